//! Classes that cannot be served, or that nobody can tell apart.

use super::{buffer, inherited, name, rate};
use crate::config::{ClassConfig, EcnKind, Filter, MAX_FILTERS, MAX_PRIORITIES, PortConfig};
use crate::error::{Check, ConfigError, require};
use crate::plan::{LINK_HEADER_BYTES, LinkFacts, ONLY_CLASS};
use std::collections::BTreeMap;
use vmcc_config::Discipline;
use vmcc_units::{BitsPerSec, Bytes};

const MAX_WEIGHT: u32 = 1_000;

pub(super) fn all(config: &PortConfig) -> Check {
    for (index, class) in config.classes.iter().enumerate() {
        one(config, class, index).map_err(|e| e.of_class(&class.name))?;
    }
    claims(config, "dscp", |class| class.dscp.iter().map(|&d| u32::from(d)).collect())?;
    claims(config, "priority", |class| class.priority.clone())?;
    bounded(config)
}

fn one(config: &PortConfig, class: &ClassConfig, index: usize) -> Check {
    let at = |key: &str| format!("class[{index}].{key}");
    name(&class.name, &at("name"), "a class")?;
    let taken = config.classes[..index].iter().any(|other| other.name == class.name);
    require(!taken, &at("name"), || "another class has this name".to_owned())?;
    if class.weight == 0 {
        return Err(ConfigError::at(at("weight"), "a class of weight zero is never served")
            .help("give at least 1, or leave the class out"));
    }
    let fits = class.weight <= MAX_WEIGHT;
    require(fits, &at("weight"), || format!("{} is above {MAX_WEIGHT}", class.weight))?;
    if let Some(guarantee) = class.guarantee {
        rate(guarantee, &at("guarantee"))?;
    }
    if let Some(ceiling) = class.ceiling {
        rate(ceiling, &at("ceiling"))?;
    }
    if let (Some(guarantee), Some(ceiling)) = (class.guarantee, class.ceiling) {
        let message = || format!("{ceiling} is below the guarantee of {guarantee}");
        require(ceiling >= guarantee, &at("ceiling"), message)?;
    }
    if let Some(limit) = class.buffer {
        buffer(limit, &at("buffer"))?;
    }
    if let Some(rule) = &class.marking {
        super::marking::rule(rule, config, &at("marking"))?;
    }
    for (i, dscp) in class.dscp.iter().enumerate() {
        let message = || format!("{dscp} is no DSCP: they are 0 to 63");
        require(*dscp <= 63, &at(&format!("dscp[{i}]")), message)?;
    }
    class.filter.iter().enumerate().try_for_each(|(i, f)| filter(f, &at(&format!("filter[{i}]"))))
}

fn filter(filter: &Filter, key: &str) -> Check {
    require(*filter != Filter::default(), key, || "an empty filter matches every packet".to_owned())?;
    if let (Some(from), Some(to)) = (filter.from, filter.to) {
        let message = || format!("no packet goes from {from} to {to}: one is IPv4, the other IPv6");
        require(from.is_ipv4() == to.is_ipv4(), key, message)?;
    }
    let ports = filter.from_port.is_some() || filter.to_port.is_some();
    // TCP, UDP, DCCP, SCTP and UDP-Lite have ports at the same place.
    let with_ports = filter.protocol.is_none_or(|p| [6, 17, 33, 132, 136].contains(&p));
    let protocol = filter.protocol.unwrap_or_default();
    require(!ports || with_ports, key, || format!("protocol {protocol} has no ports"))
}

/// Each value belongs to one class.
fn claims(config: &PortConfig, key: &str, values: impl Fn(&ClassConfig) -> Vec<u32>) -> Check {
    let mut owner: BTreeMap<(u32, EcnKind), &str> = BTreeMap::new();
    for (index, class) in config.classes.iter().enumerate() {
        for (i, value) in values(class).into_iter().enumerate() {
            let kinds = class.ecn.map_or(vec![EcnKind::Ect, EcnKind::NotEct], |kind| vec![kind]);
            let first =
                kinds.iter().fold(None, |first, kind| owner.insert((value, *kind), &class.name).or(first));
            if let Some(first) = first {
                let whose =
                    if first == class.name { "this class".to_owned() } else { format!("class `{first}`") };
                let message = format!("{value} is claimed already, by {whose}");
                return Err(
                    ConfigError::at(format!("class[{index}].{key}[{i}]"), message).of_class(&class.name)
                );
            }
        }
    }
    Ok(())
}

/// The kernel's tables have fixed sizes.
fn bounded(config: &PortConfig) -> Check {
    let count = |of: fn(&ClassConfig) -> usize| config.classes.iter().map(of).sum::<usize>();
    let (filters, priorities) = (count(|c| c.filter.len()), count(|c| c.priority.len()));
    require(filters <= MAX_FILTERS, "class", || {
        format!("{filters} filters; a port has at most {MAX_FILTERS}")
    })?;
    let message = || format!("{priorities} priorities; a port tells at most {MAX_PRIORITIES} apart");
    require(priorities <= MAX_PRIORITIES, "class", message)
}

/// A buffer below one packet of the MTU would drop every full packet.
pub(super) fn buffers_hold_a_packet(config: &PortConfig, link: &LinkFacts) -> Check {
    let packet = Bytes::new(link.mtu.get() + LINK_HEADER_BYTES);
    let holds = |limit: vmcc_units::Limit, key: &str| {
        let message = || format!("{limit} holds no packet of the link's MTU ({packet} with its header)");
        require(limit.bytes(packet).is_some_and(|bytes| bytes >= packet), key, message)
    };
    holds(config.buffer, "buffer")?;
    let classes = config.classes.iter().enumerate();
    for (index, class) in classes {
        if let Some(limit) = class.buffer {
            holds(limit, &inherited(true, index, "buffer")).map_err(|e| e.of_class(&class.name))?;
        }
    }
    Ok(())
}

/// Guarantees that the port can keep.
pub(crate) fn rates(config: &PortConfig, cap: Option<BitsPerSec>, shares: &[Option<BitsPerSec>]) -> Check {
    let guarantees = config.classes.iter().filter_map(|class| class.guarantee);
    let guarantees = BitsPerSec::new(guarantees.fold(0, |sum, rate| rate.get().saturating_add(sum)));
    let Some(rate) = cap else {
        let rated = config.classes.iter().position(|c| c.guarantee.is_some() || c.ceiling.is_some());
        let Some(index) = rated else { return Ok(()) };
        let class = &config.classes[index];
        let key = if class.guarantee.is_some() { "guarantee" } else { "ceiling" };
        return Err(ConfigError::at(inherited(true, index, key), "the port has no rate to share")
            .of_class(&class.name)
            .help("give the port a `rate`"));
    };
    for (index, class) in config.classes.iter().enumerate() {
        if let Some(ceiling) = class.ceiling.filter(|ceiling| *ceiling > rate) {
            let message = format!("{ceiling} is more than the port sends ({rate})");
            return Err(ConfigError::at(inherited(true, index, "ceiling"), message).of_class(&class.name));
        }
    }
    let last = config.classes.iter().rposition(|c| c.guarantee.is_some()).unwrap_or_default();
    if guarantees > rate {
        let message = format!("the guarantees sum up to {guarantees}, the port sends {rate}");
        return Err(ConfigError::at(inherited(true, last, "guarantee"), message)
            .help("lower a guarantee, or raise the port's rate"));
    }
    let starved = shares.iter().position(|share| share.is_some_and(|share| share.bytes_per_sec() == 0));
    match starved.filter(|_| config.discipline() != Discipline::Priority) {
        None => Ok(()),
        Some(index) => {
            let message = format!("the guarantees of the others take all of {rate}");
            Err(ConfigError::at(inherited(!config.classes.is_empty(), index, "name"), message)
                .of_class(config.classes.get(index).map_or(ONLY_CLASS, |class| &class.name))
                .help("give it a guarantee too, or lower the others'"))
        }
    }
}
