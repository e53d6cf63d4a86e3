//! Common parts of packet filters, whatever their action.

// Numbers from the kernel's user interface: linux/rtnetlink.h, linux/pkt_sched.h, linux/pkt_cls.h.
pub(crate) const RTM_NEWTFILTER: u16 = 44;
pub(crate) const RTM_DELTFILTER: u16 = 45;
pub(crate) const RTM_GETTFILTER: u16 = 46;
/// Parents below clsact of filters for incoming and outgoing packets.
pub(crate) const CLSACT_INGRESS: u32 = 0xffff_fff2;
pub(crate) const CLSACT_EGRESS: u32 = 0xffff_fff3;
pub(crate) const ETH_P_ALL: u16 = 3;
pub(crate) const TCA_BPF_ACT: u16 = 1;
pub(crate) const TCA_BPF_CLASSID: u16 = 3;
pub(crate) const TCA_BPF_OPS_LEN: u16 = 4;
pub(crate) const TCA_BPF_OPS: u16 = 5;
pub(crate) const TCA_BPF_FD: u16 = 6;
pub(crate) const KIND: &str = "bpf";
/// One instruction of classic BPF, `ret #-1`: every packet matches. (There are kernels without matchall, but none that
/// serves a port and has no BPF classifier.)
pub(crate) const MATCH_ALL: [u8; 8] = [6, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
