//! Errors of serving a port.

use crate::ConfigError;
use std::io;
use std::path::PathBuf;
use vmcc_bpf::ControlError;
use vmcc_system::KernelError;

/// Error of serving a port, or of serving it as configured. The state before is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// No such port in this network namespace.
    #[error("there is no port `{port}` in this network namespace; `ip link` lists them")]
    NoSuchPort {
        /// The name given.
        port: String,
    },
    /// The port went away while something was done to it.
    #[error("port {port} went away meanwhile, and with it what served it; serve it again when it is back")]
    Gone {
        /// The port.
        port: String,
    },
    /// vmcc serves the port already.
    #[error(
        "port {port} is served already; change it with `vmcc mark {port}` once nobody holds it, or `vmcc unmark \
         {port}` first"
    )]
    AlreadyAttached {
        /// The port.
        port: String,
    },
    /// Another process of vmcc holds the port.
    #[error("port {port} belongs to a running vmcc (process {pid}); stop that first")]
    Held {
        /// The port.
        port: String,
        /// The process; 0 when it did not say.
        pid: u32,
    },
    /// vmcc does not serve the port.
    #[error("port {port} is not served by vmcc; `vmcc mark --list` shows those that are")]
    NotAttached {
        /// The port.
        port: String,
    },
    /// The settings cannot be had on this port.
    #[error("port {port}: {error}")]
    Config {
        /// The port.
        port: String,
        /// Which setting, what is wrong with it, and what would be right.
        error: Box<ConfigError>,
    },
    /// Somebody configured a queue on the port that could not be put back.
    #[error(
        "port {port} has a queue of its own ({queue}) that vmcc could not put back later; remove it first (`tc qdisc \
         del dev {port} root`), or set no rate: then packets are marked by the queue that is there"
    )]
    ForeignQueue {
        /// The port.
        port: String,
        /// Queue on the port.
        queue: String,
    },
    /// Filters of packets that leave have no place on the port.
    #[error(
        "port {port} has an `ingress` queue, whose place vmcc needs for clsact (filters of packets that leave, too); \
         replace it (`tc qdisc del dev {port} ingress`, `tc qdisc add dev {port} clsact`) and add its filters again \
         (`tc filter show dev {port} ingress` lists them)"
    )]
    Ingress {
        /// The port.
        port: String,
    },
    /// A rule that goes by the length of a queue, on a port where none builds.
    #[error(
        "port {port}: there is no queue to mark by: its queueing discipline is `noqueue`, so nothing ever waits there; \
         give it a rate (`--rate 100mbit`, in a file `rate`), or a queue that holds packets back (`tc qdisc replace dev \
         {port} root tbf rate 100mbit burst 32kb limit 150kb`)"
    )]
    NoQueue {
        /// The port.
        port: String,
    },
    /// The same on a port that was never up: it gets its queue when it comes up.
    #[error(
        "port {port} is down: its own queue is not there yet, and whether one to mark by will be is not known; \
         `ip link set {port} up` first, or give it a rate (`--rate 100mbit`, in a file `rate`)"
    )]
    Down {
        /// The port.
        port: String,
    },
    /// Packets that the program could not read.
    #[error(
        "port {port}: its packets begin with a header that vmcc does not know (link type {number}); it serves Ethernet, \
         and devices whose packets begin with IP (tun, WireGuard, IPIP, SIT, GRE, PPP)"
    )]
    LinkLayer {
        /// The port.
        port: String,
        /// `ARPHRD_...` of linux/if_arp.h.
        number: u16,
    },
    /// A rule that goes by the length of one of several queues, where nobody can know which.
    #[error(
        "port {port} has several queues (`mq`), and its driver gives each packet to one by rules of its own, after vmcc \
         has looked at it; give it a rate (`--rate 100mbit`, in a file `rate`), or one queue for all (`tc qdisc replace \
         dev {port} root pfifo`)"
    )]
    ManyQueues {
        /// The port.
        port: String,
    },
    /// Queues of vmcc's own would have to replace the port's while it is served, or the reverse.
    #[error(
        "port {port} is served {now}, and cannot go on {asked}; `vmcc unmark {port}`, then mark it again",
        now = kept(*queues),
        asked = kept(!*queues)
    )]
    OtherQueues {
        /// The port.
        port: String,
        /// True if the queues are vmcc's now.
        queues: bool,
    },
    /// The kernel refused the program.
    #[error("the kernel refused the port's program: {cause}\n{log}")]
    Refused {
        /// The system's error.
        cause: String,
        /// The last lines of the verifier or of libbpf.
        log: String,
    },
    /// The kernel lacks something.
    #[error("port {port}: this kernel cannot {feature}: {cause}; {remedy}")]
    Feature {
        /// The port.
        port: String,
        /// Unsupported feature.
        feature: String,
        /// The system's error.
        cause: String,
        /// Remedy.
        remedy: String,
    },
    /// The kernel refused a queue, a class or a filter.
    #[error("port {port}: cannot {action}: {source}")]
    Kernel {
        /// The port.
        port: String,
        /// Attempted action.
        action: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The record of what is attached cannot be kept.
    #[error("{}: {source}; the records of what vmcc did to ports must be there", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Something else went wrong.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// Phrase for a port that is served with queues of ours or without.
fn kept(queues: bool) -> &'static str {
    if queues {
        "with queues of vmcc's own (a rate, or several classes)"
    } else {
        "by the queue that it had (no rate, one class)"
    }
}

impl From<KernelError> for PortError {
    fn from(error: KernelError) -> Self {
        Self::Control(error.into())
    }
}

impl PortError {
    pub(crate) fn kernel(port: &str, action: impl Into<String>, source: io::Error) -> Self {
        Self::Kernel { port: port.to_owned(), action: action.into(), source }
    }

    /// Adds the remedy to what is wrong with a setting.
    #[must_use]
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        match self {
            Self::Config { port, error } => Self::Config { port, error: Box::new(error.help(help)) },
            other => other,
        }
    }

    pub(crate) fn config(port: &str, key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Config { port: port.to_owned(), error: Box::new(ConfigError::at(key, problem)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkFacts, PortConfig};
    use vmcc_units::Bytes;

    #[test]
    fn invalid_setting_error_names_port_and_remedy() {
        let config: PortConfig = toml::from_str("rate = '1mbit'\n[[class]]\nname = 'a'\nweight = 0").unwrap();
        let error = config.plan(&LinkFacts { mtu: Bytes::new(1500), speed: None }).unwrap_err();
        let error = PortError::Config { port: "p0".to_owned(), error: Box::new(error) }.to_string();
        assert!(error.contains("p0") && error.contains("class[0].weight"), "{error}");
    }
}
