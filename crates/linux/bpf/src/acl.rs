//! Access control of algorithms: Linux's list of those that need no privilege.

use crate::error::ControlError;
use std::fs;

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Takes these algorithms from the list of those that anybody may choose. From then on `setsockopt` needs
/// `CAP_NET_ADMIN` for them, and only the initial network namespace can have one as its default.
///
/// # Errors
/// The list cannot be changed: not from another network namespace than the initial one.
pub fn restrict(kernel_names: &[&str]) -> Result<(), ControlError> {
    let failed = |e| {
        let action = format!("restrict {}", kernel_names.join(", "));
        ControlError::kernel(
            action,
            format!("{ALLOWED}: {e}; only root in the initial network namespace may write it"),
        )
    };
    let allowed = fs::read_to_string(ALLOWED).map_err(failed)?;
    fs::write(ALLOWED, without(&allowed, kernel_names)).map_err(failed)
}

fn without(allowed: &str, kernel_names: &[&str]) -> String {
    let left: Vec<&str> = allowed.split_whitespace().filter(|name| !kernel_names.contains(name)).collect();
    left.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_algorithms_leave_the_list() {
        assert_eq!(without("reno cubic mp_vmcc mp_lia\n", &["mp_vmcc"]), "reno cubic mp_lia");
        assert_eq!(without("reno cubic\n", &["mp_vmcc"]), "reno cubic");
    }
}
