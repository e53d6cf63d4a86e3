//! The hosts' namespaces.

use crate::spec::{Flow, LabSpec, Role};
use crate::{Error, netns::Netns};
use std::net::Ipv4Addr;
use vmcc_netlink::{Links, PathManager, os_code};

/// The last byte of an address is a stack's number, from 1.
const MAX_STACKS: usize = 250;

/// A host's TCP stack as some of the flows need it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StackPlan {
    pub(super) host: usize,
    role: Role,
    cc: String,
    ecn: Option<bool>,
    listens: bool,
    /// Interfaces that its flows need, from subnet 0 on.
    subnets: usize,
}

/// The sending and the receiving stack of each flow.
pub(super) type Ends = Vec<(usize, usize)>;

/// A namespace with a host's TCP stack.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) netns: Netns,
    pub(super) host: usize,
    /// Among all stacks of the run, from 0.
    pub(super) number: usize,
    listens: bool,
    /// Its interfaces, from subnet 0 on.
    pub(super) subnets: usize,
    /// It is that of a virtual machine: the namespace only has the near ends of the machine's user-space links.
    elsewhere: bool,
}

/// The subnet that an address belongs to.
pub(crate) fn subnet_of(address: Ipv4Addr) -> Option<usize> {
    let [10, 77, subnet, _] = address.octets() else { return None };
    Some(usize::from(subnet))
}

/// The address of the same stack on another subnet.
pub(crate) fn on_subnet(address: Ipv4Addr, subnet: usize) -> Ipv4Addr {
    let [first, second, _, last] = address.octets();
    Ipv4Addr::new(first, second, u8::try_from(subnet).unwrap_or(u8::MAX), last)
}

/// The stacks that the flows of `spec` need, and the sender's and the receiver's of each flow.
pub(super) fn plan(spec: &LabSpec) -> Result<(Vec<StackPlan>, Ends), Error> {
    let mut plans: Vec<StackPlan> = Vec::new();
    let mut find = |host: usize, flow: &Flow, listens: bool| {
        let cc = flow.cc.kernel_name();
        let same = |plan: &StackPlan| {
            (plan.host, plan.role, plan.ecn) == (host, flow.role, flow.ecn) && plan.cc == cc
        };
        let index = plans.iter().position(same).unwrap_or_else(|| {
            let (role, cc, ecn) = (flow.role, cc.clone(), flow.ecn);
            plans.push(StackPlan { host, role, cc, ecn, listens, subnets: 0 });
            plans.len() - 1
        });
        plans[index].listens |= listens;
        plans[index].subnets = plans[index].subnets.max(spec.paths_of(flow).len());
        index
    };
    let ends = spec.flows.iter().map(|flow| {
        (find(flow.from, flow, flow.job.is_fetched()), find(flow.to, flow, !flow.job.is_fetched()))
    });
    let ends = ends.collect();
    if plans.len() > MAX_STACKS {
        let problem = format!("{} kinds of TCP stack; the kernel engine takes {MAX_STACKS}", plans.len());
        return Err(Error::spec("traffic", problem));
    }
    Ok((plans, ends))
}

impl Stack {
    pub(super) fn new(
        number: usize,
        plan: &StackPlan,
        netns: Netns,
        (spec, elsewhere): (&LabSpec, bool),
    ) -> Result<Self, Error> {
        set_up(&netns, spec, plan)?;
        Ok(Self { netns, host: plan.host, number, listens: plan.listens, subnets: plan.subnets, elsewhere })
    }

    /// True if it belongs to a virtual machine, of which only the near ends of user-space links are here.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Addresses that its interface on a subnet gets here: none for a virtual machine, which sets its own.
    pub(super) fn addresses_here(&self, subnet: usize) -> Vec<Ipv4Addr> {
        (!self.elsewhere).then(|| self.address(subnet)).into_iter().collect()
    }

    /// Its address on a subnet.
    pub(super) fn address(&self, subnet: usize) -> Ipv4Addr {
        let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        Ipv4Addr::new(10, 77, byte(subnet), byte(self.number + 1))
    }

    /// The MPTCP endpoints: a listener announces an address in each of its subnets.
    pub(super) fn announce(&self) -> Result<(), Error> {
        let addresses: Vec<_> = if self.listens {
            (0..self.subnets).map(|subnet| self.address(subnet)).collect()
        } else {
            Vec::new()
        };
        let done = self.netns.run(move || {
            let mut manager = PathManager::open()?;
            manager.set_limits(vmcc_netlink::MAX_LIMIT, vmcc_netlink::MAX_LIMIT)?;
            addresses.into_iter().try_for_each(|address| manager.signal(address))
        });
        done.map_err(|e| match os_code(&e) {
            Some(nix::libc::ENOENT) => no_mptcp("the path manager's netlink family is missing"),
            _ => {
                Error::kernel("setting the MPTCP endpoints of", format!("namespace {}", self.netns.name()), e)
            }
        })
    }
}

impl StackPlan {
    /// A name among `plans`: the host's, and from its second stack on a number, with a `+`, which no host's name has.
    pub(super) fn name(plans: &[Self], index: usize, hosts: &[String]) -> String {
        let host = &hosts[plans[index].host];
        match plans[..index].iter().filter(|plan| plan.host == plans[index].host).count() {
            0 => host.clone(),
            before => format!("{}+{host}", before + 1),
        }
    }
}

/// Settings of an endpoint's TCP. All are settings of the namespace.
fn set_up(end: &Netns, spec: &LabSpec, plan: &StackPlan) -> Result<(), Error> {
    super::wire::in_namespace(end, "bringing up loopback in", || Links::open()?.bring_up(1, None))?;
    super::wire::no_ipv6(end)?;
    end.sysctl("net.mptcp.enabled", "1").map_err(|_| no_mptcp("net.mptcp.enabled cannot be set"))?;
    // What an earlier connection learned about a path would make the runs of a sweep depend on their order.
    end.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
    // 2: accept ECN when asked; whether to ask is the congestion control's business.
    let ecn = match plan.ecn {
        None => "2",
        Some(true) => "1",
        Some(false) => "0",
    };
    end.sysctl("net.ipv4.tcp_ecn", ecn)?;
    // A SYN that was lost would be repeated without ECN (RFC 3168 section 6.1.1.1), and the connection be left to Reno.
    end.sysctl("net.ipv4.tcp_ecn_fallback", "0")?;
    // A vNIC that moved is answered over another port than its address's.
    end.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
    end.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
    if let Some(bytes) = spec.receive_buffer {
        // A buffer is never made smaller than it is at first, whatever the largest is.
        let (first, most) = (bytes.get().min(131_072), bytes.get());
        end.sysctl("net.ipv4.tcp_rmem", &format!("{} {first} {most}", first.min(4096)))?;
    }
    if let Some(bytes) = spec.send_buffer {
        let (first, most) = (bytes.get().min(16_384), bytes.get());
        end.sysctl("net.ipv4.tcp_wmem", &format!("{} {first} {most}", first.min(4096)))?;
    }
    if let Some(bytes) = spec.notsent_lowat {
        end.sysctl("net.ipv4.tcp_notsent_lowat", &bytes.get().to_string())?;
    }
    if let Some(min) = spec.min_rto {
        let micros = (min.get() / 1_000).to_string();
        end.sysctl("net.ipv4.tcp_rto_min_us", &micros).map_err(|e| Error::NotExpressible {
            key: "host.min_rto".to_owned(),
            problem: format!("it cannot be set on this kernel ({e})"),
            remedy: "use Linux 6.11 or later, or `--engine sim`".to_owned(),
        })?;
    }
    Ok(())
}

fn no_mptcp(cause: &str) -> Error {
    Error::KernelFeature {
        feature: "Multipath TCP".to_owned(),
        cause: cause.to_owned(),
        remedy: "use a kernel with CONFIG_MPTCP, or `--engine guest`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_names_are_unique_per_host() {
        let hosts = ["a", "a.2"].map(str::to_owned);
        let plan = |host, cc: &str| StackPlan {
            host,
            role: Role::Measured,
            cc: cc.to_owned(),
            ecn: None,
            listens: false,
            subnets: 1,
        };
        let plans = [plan(0, "reno"), plan(0, "cubic"), plan(1, "reno")];
        let names: Vec<String> = (0..3).map(|index| StackPlan::name(&plans, index, &hosts)).collect();
        assert_eq!(names[0], "a");
        assert!(names[1] != names[2], "{names:?}");
    }
}
