//! Sender, router and receiver in a row: what the router's port does to packets, the sender sees by its ACKs alone.
//! (Behind its own port it would be held back by the queue, and told of drops at once.)

use vmcc_testkit::netns::{Namespace, join, run};

/// The receiver's address.
pub const RECEIVER: &str = "10.79.1.1";

/// Three namespaces: the sender's port is `p0`, the receiver's `p1`, the router has both.
pub struct Row {
    pub sender: Namespace,
    pub router: Namespace,
    pub receiver: Namespace,
}

impl Row {
    pub fn new() -> Self {
        let row =
            Self { sender: Namespace::new("a"), router: Namespace::new("r"), receiver: Namespace::new("b") };
        join(&row.sender, &row.router, "p0", "10.79.0");
        join(&row.receiver, &row.router, "p1", "10.79.1");
        row.router.sysctl("ipv4/ip_forward", "1");
        run(&format!("ip -n {} route add default via 10.79.0.2", row.sender));
        run(&format!("ip -n {} route add default via 10.79.1.2", row.receiver));
        row
    }

    /// A row in which packets come one by one, and ends receive in kernel threads, as the lab's hosts do: a softirq that
    /// interrupts another process is where one vendor's kernel skips programs.
    pub fn packet_by_packet() -> Self {
        let row = Self::new();
        for (end, port) in row.ends() {
            end.within(|| {
                vmcc_netlink::disable_segmentation_offload(port).unwrap();
                let index = nix::net::if_::if_nametoindex(port).unwrap();
                vmcc_netlink::Links::open().unwrap().receive_in_thread(index, port).unwrap();
            });
        }
        row
    }

    /// The same, where ACKs take `delay_ms` to come back.
    pub fn delayed(delay_ms: u32) -> Self {
        let row = Self::packet_by_packet();
        run(&format!("tc -n {} qdisc add dev p1 root netem delay {delay_ms}ms limit 10000", row.receiver));
        row
    }

    fn ends(&self) -> [(&Namespace, &'static str); 4] {
        [(&self.sender, "p0"), (&self.router, "p0"), (&self.router, "p1"), (&self.receiver, "p1")]
    }
}
