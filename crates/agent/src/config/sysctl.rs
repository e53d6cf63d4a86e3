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

    /// As it is written with slashes.
    pub fn as_str(&self) -> &str {
        &self.0
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
