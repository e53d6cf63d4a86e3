//! Parallel paths.
//!
//! ```text
//!  client ─── p0 ──┐  mid0                           ┌── p0 ─── server
//!                  ├─ bridge l ── lt ═══ rt ── bridge r ─┤
//!  2+client ─ p0 ──┘              shaped             └── p0 ─── 2+server
//! ```
//!
//! Each path has a namespace of its own in the middle with two bridges, joined by a pair of ports that are
//! shaped in each direction: the path's bottleneck.

use super::stack::Stack;
use super::wire::{Interface, Leg, add_bridge, bring_up, in_namespace, join, no_ipv6, plug};
use super::{Between, PortPlace, impaired_link, shape};
use crate::spec::{LabSpec, OfPaths, Path};
use crate::userspace_link::UserspaceLink;
use crate::{Error, netns::Netns};
use vmcc_netlink::Links;

pub(super) fn build(spec: &LabSpec, stacks: &[Stack], middles: &[Netns]) -> Result<Between, Error> {
    let mut between = Between::default();
    for (index, (path, middle)) in spec.paths.iter().zip(middles).enumerate() {
        between.userspace_links.extend(add_path(spec, path, index, (stacks, middle))?);
        for (port, outward, direction) in [("lt", true, &path.out), ("rt", false, &path.back)] {
            let Some(shape) = &direction.shape else { continue };
            if spec.flows.iter().any(|flow| spec.layout.is_outward(flow) == outward) {
                let (namespace, config) = (middle.name().to_owned(), shape.config());
                let paths = OfPaths::of(index);
                between.ports.push(PortPlace { namespace, port: port.to_owned(), config, paths });
            } else {
                shape::limit(middle, port, shape)?;
            }
        }
    }
    Ok(between)
}

/// The hosts' ports stay as they are, so no event is sent.
pub(super) fn cut(middle: &Netns, up: bool) -> Result<(), Error> {
    if up {
        return bring_up(middle, "lt", None);
    }
    let index = middle.port_index("lt")?;
    in_namespace(middle, "switching off a port of", move || Links::open()?.take_down(index))
}

fn add_path(
    spec: &LabSpec,
    path: &Path,
    index: usize,
    (stacks, middle): (&[Stack], &Netns),
) -> Result<Option<UserspaceLink>, Error> {
    no_ipv6(middle)?;
    for bridge in ["l", "r"] {
        add_bridge(middle, bridge)?;
    }
    let legs = (&Leg::new(middle, "lt", "l"), &Leg::new(middle, "rt", "r"));
    let in_userspace = impaired_link::in_userspace(spec, middle);
    let userspace_link = match in_userspace {
        true => Some(impaired_link::lay(legs, (path.out.wire, path.back.wire), (spec, index))?),
        false => join(legs.0, legs.1).map(|()| None)?,
    };
    for stack in stacks {
        let port = format!("s{}", stack.number);
        let (bridge, arriving) = if stack.host == 0 { ("l", &path.back) } else { ("r", &path.out) };
        let interface = Interface {
            name: format!("p{index}"),
            addresses: stack.addresses_here(index),
            ..Interface::default()
        };
        plug(&Leg::new(middle, port.as_str(), bridge), &stack.netns, interface)?;
        if !spec.userspace_links_impair() && !in_userspace {
            shape::behind(middle, &port, arriving)?;
        }
    }
    Ok(userspace_link)
}
