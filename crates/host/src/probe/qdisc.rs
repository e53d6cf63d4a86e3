//! Which queueing disciplines the kernel has: asked by adding each to the loopback port of a new namespace.

use super::{Answer, MODULES, NEWER_KERNEL, Problem, modules_installed, not_permitted, problem};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use std::io;
use std::thread;

// From <linux/rtnetlink.h> and <linux/pkt_sched.h>.
const RTM_NEWQDISC: u16 = 36;
const TCA_KIND: u16 = 1;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_CLSACT: u32 = 0xffff_fff1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_HEADER_LEN: usize = 16;
const TCMSG_LEN: usize = 20;
/// The loopback port's index, the same in every namespace.
const LOOPBACK: i32 = 1;

/// Runs `question` on a thread in a network namespace of its own, which is gone afterwards.
pub(super) fn in_new_namespace<T: Send + 'static>(
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let asked = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| match e {
            nix::Error::EPERM => not_permitted("not permitted to make a network namespace"),
            _ => problem(format!("no network namespaces: {e}"), format!("CONFIG_NET_NS: {NEWER_KERNEL}")),
        })?;
        Ok(question())
    });
    asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Whether the kernel knows this kind of queue. Options are left out: a kernel that knows the kind complains
/// about them or takes it, one that does not says that there is no such kind.
pub(super) fn known(kind: &str) -> Answer {
    match add(kind) {
        Ok(()) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            let option = format!("CONFIG_NET_SCH_{}", module(kind).to_uppercase());
            let remedy = if modules_installed() {
                format!("modprobe sch_{}; if there is none, {option}: {NEWER_KERNEL}", module(kind))
            } else {
                format!("{MODULES}; if it has none, {option}: {NEWER_KERNEL}")
            };
            Err(problem(format!("this kernel has no queue of kind {kind}"), remedy))
        }
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => Err(not_permitted(e)),
        // It exists, and missed its options.
        Err(_) => Ok(()),
    }
}

fn module(kind: &str) -> &str {
    match kind {
        "clsact" => "ingress",
        "bfifo" => "fifo",
        other => other,
    }
}

/// Adds it to the loopback port.
pub(super) fn add(kind: &str) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(kind), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    verdict(&answer)
}

fn request(kind: &str) -> Vec<u8> {
    let (handle, parent): (u32, u32) =
        if kind == "clsact" { (0xffff_0000, TC_H_CLSACT) } else { (0x0001_0000, TC_H_ROOT) };
    let value_len = kind.len() + 1;
    let length = NLMSG_HEADER_LEN + TCMSG_LEN + (4 + value_len).next_multiple_of(4);
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(RTM_NEWQDISC.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]); // sequence number, port
    bytes.extend([0; 4]); // family
    bytes.extend(LOOPBACK.to_ne_bytes());
    bytes.extend(handle.to_ne_bytes());
    bytes.extend(parent.to_ne_bytes());
    bytes.extend([0; 4]); // info
    bytes.extend((4 + value_len as u16).to_ne_bytes());
    bytes.extend(TCA_KIND.to_ne_bytes());
    bytes.extend(kind.as_bytes());
    bytes.resize(length, 0);
    bytes
}

/// Reads an acknowledgment.
fn verdict(answer: &[u8]) -> io::Result<()> {
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "unreadable netlink answer");
    let kind = answer.get(4..6).ok_or_else(unreadable)?;
    let code = answer.get(NLMSG_HEADER_LEN..NLMSG_HEADER_LEN + 4).ok_or_else(unreadable)?;
    if kind != NLMSG_ERROR.to_ne_bytes() {
        return Err(unreadable());
    }
    match i32::from_ne_bytes(code.try_into().map_err(|_| unreadable())?) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_length_it_says() {
        for kind in ["htb", "clsact", "bfifo"] {
            let bytes = request(kind);
            assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
            assert_eq!(bytes.len() % 4, 0);
        }
    }

    #[test]
    fn short_answers_are_errors() {
        for length in 0..20 {
            assert!(verdict(&vec![0; length]).is_err());
        }
    }
}
