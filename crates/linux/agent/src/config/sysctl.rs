//! Names and values of sysctls.

use std::path::PathBuf;

const ROOT: &str = "/proc/sys";
/// Only these belong to a network namespace.
const NETWORK: &str = "net/";

/// A sysctl of the network, as its file below /proc/sys is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SysctlName(String);

impl SysctlName {
    /// Reads `net.ipv4.tcp_ecn`, or with slashes where a part has a dot: `net/ipv4/conf/eth0.100/arp_ignore`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = if text.contains('/') { text.to_owned() } else { text.replace('.', "/") };
        let odd = |part: &str| part.is_empty() || part == "." || part == "..";
        if path.split('/').any(odd) || path.contains('\0') {
            return Err(format!("`{text}` is no name of a sysctl"));
        }
        if !path.starts_with(NETWORK) {
            return Err(format!("`{text}` is not of the network: only names that begin with `net.` are set"));
        }
        Ok(Self(path))
    }

    /// The default congestion control.
    pub fn congestion_control() -> Self {
        Self("net/ipv4/tcp_congestion_control".to_owned())
    }

    /// The most that a connection holds unsent.
    pub fn notsent_lowat() -> Self {
        Self("net/ipv4/tcp_notsent_lowat".to_owned())
    }

    /// True if a write of it also changes other values, which the rollback of this one does not restore: those of all interfaces of
    /// a namespace, or addresses of interfaces.
    pub(super) fn changes_others(&self) -> bool {
        const ALL: [&str; 5] = [
            "net/ipv4/ip_forward",
            "net/ipv4/conf/all/forwarding",
            "net/ipv6/conf/all/forwarding",
            "net/ipv6/conf/all/addr_gen_mode",
            "net/ipv6/conf/all/ignore_routes_with_linkdown",
        ];
        let of_ipv6 = self.0.strip_prefix("net/ipv6/conf/");
        ALL.contains(&self.0.as_str()) || of_ipv6.is_some_and(|rest| rest.ends_with("/disable_ipv6"))
    }

    /// As it is written with slashes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Interface it belongs to, if it is one of an interface (`all` and `default` are none).
    pub(crate) fn interface(&self) -> Option<&str> {
        let mut parts = self.0.split('/').skip(2);
        let of_interfaces = ["conf", "neigh"].contains(&parts.next()?);
        parts.next().filter(|name| of_interfaces && !["all", "default"].contains(name))
    }

    /// Its file.
    pub fn file(&self) -> PathBuf {
        PathBuf::from(ROOT).join(&self.0)
    }
}

/// A value with a blank where the kernel prints a tab.
pub(crate) fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
