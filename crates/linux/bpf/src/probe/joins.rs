//! Check that MPTCP keeps the bytes right where a subflow joins a connection that carries data.

use libbpf_rs::btf::{Btf, types::Struct};
use vmcc_system::probe::{Answer, problem};

/// Members of `struct mptcp_sock`: where a kernel puts what arrives while the connection's lock is taken, with its place in
/// the stream. Up to Linux 6.13 or so the first, the second in 7.
const QUEUES: [&str; 2] = ["receive_queue", "backlog_list"];

/// Kernels without such a queue leave the bytes in the subflow's, and a join that was put off meanwhile gives them another
/// place (`docs/reference/kernels.md`). A fix of the join alone cannot be told from here.
pub(super) fn keep_bytes() -> Answer {
    let has_queue = Btf::from_vmlinux().ok().and_then(|btf| {
        let connection = btf.type_by_name::<Struct<'_>>("mptcp_sock")?;
        Some(connection.iter().any(|m| m.name.is_some_and(|name| QUEUES.iter().any(|queue| name == *queue))))
    });
    let remedy = "boot Linux 7.3 or 6.12, or set net.mptcp.checksum_enabled=1 at both ends, \
                  which finds most of it; check transfers end to end, as TLS does; vmcc's agent adds endpoints so that it \
                  does not happen";
    match has_queue {
        Some(true) => Ok(()),
        Some(false) => Err(problem(
            "a subflow that joins while the receiving program reads may have its first bytes delivered at another place of \
             the stream, in silence (seen on Linux 6.18)",
            remedy,
        )),
        None => Err(problem("this kernel's type information does not have MPTCP's connections", remedy)),
    }
}
