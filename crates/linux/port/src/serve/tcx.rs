//! tcx: programs on a port before its tc filters and its queue, in the kernel since Linux 6.6. Placing one there leaves
//! the port's queues alone, other than clsact.

use libbpf_rs::libbpf_sys::{BPF_F_BEFORE, bpf_program__attach_tcx, bpf_tcx_opts};
use libbpf_rs::{AsRawLibbpf, Link, Object};
use std::io;
use std::ptr::NonNull;
use vmcc_bpf::objects;

/// Puts a program of `object` in front of those that are on the port already, in the direction that its section
/// says. It is taken off when the link is dropped, or this process ends.
///
/// # Errors
/// `InvalidInput` on a kernel without tcx; the kernel refuses.
pub(crate) fn attach_first(object: &Object, name: &str, ifindex: i32) -> io::Result<Link> {
    objects::quiet();
    let program = object.progs().find(|p| p.name() == name).expect("the object defines it");
    let options =
        bpf_tcx_opts { sz: size_of::<bpf_tcx_opts>() as u64, flags: BPF_F_BEFORE, ..bpf_tcx_opts::default() };
    // SAFETY: the program belongs to the loaded `object`, which is borrowed; the options live until the call returns.
    let link =
        unsafe { bpf_program__attach_tcx(program.as_libbpf_object().as_ptr(), ifindex, &raw const options) };
    let link = NonNull::new(link).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: libbpf has just made it, and nobody else has it.
    Ok(unsafe { Link::from_ptr(link) })
}
