//! Controls of rates: what the kernel's own queue carries in the same seconds as the port or path that is judged.

use crate::netns::run;
use crate::port::{Pair, iperf};
use std::time::Duration;

/// Share of an Ethernet frame that is TCP payload: MTU 1500, timestamps, Ethernet header included.
pub const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;

/// Payload per second, in bits, of a link of `rate_mbit` that full frames fill.
pub fn payload_bps(rate_mbit: u32) -> f64 {
    f64::from(rate_mbit) * 1e6 * PAYLOAD_SHARE
}

/// Queue of a control without a delay: about as long as thresholds are.
const QUEUE_BYTES: f64 = 100e3;

/// TCP port of a control's server.
const PORT: u16 = 5999;

/// Share of `rate_mbit` that plain TCP under Reno fills now over a path of `rtt` with the kernel's token bucket filter. Packets
/// reach it by a redirect to another device, as with a shared budget. The queue holds C x RTT.
pub fn tbf_share(rate_mbit: u32, rtt: Duration, connections: u32) -> f64 {
    let pair = if rtt.is_zero() { Pair::new() } else { Pair::delayed(rtt) };
    let bdp = f64::from(rate_mbit) * 1e6 / 8.0 * rtt.as_secs_f64();
    let limit = if rtt.is_zero() { QUEUE_BYTES } else { bdp };
    let (ip, tc) = (format!("ip -n {}", pair.a), format!("tc -n {}", pair.a));
    run(&format!("{ip} link add ifb9 type ifb"));
    run(&format!("{ip} link set ifb9 up"));
    run(&format!("{tc} qdisc add dev ifb9 root tbf rate {rate_mbit}mbit burst 32k limit {limit:.0}"));
    run(&format!("{tc} qdisc add dev p0 clsact"));
    let redirect = "protocol all u32 match u32 0 0 action mirred egress redirect dev ifb9";
    run(&format!("{tc} filter add dev p0 egress {redirect}"));
    iperf(&pair, PORT, &format!("-t 4 -O 1 -C reno -P {connections}")) / payload_bps(rate_mbit)
}
