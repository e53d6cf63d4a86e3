//! The measurement behind `vmcc bench kernel`. Needs root: without it these tests fail, they do not skip.

use std::time::{Duration, Instant};
use vmcc_bpf::bench::{BenchOptions, Traffic, TrafficError, run};
use vmcc_cc::Algorithm;
use vmcc_testkit::paths::{Net, Over, alone, transfer};

/// MPTCP over unshaped veth pairs; a network per number of subflows.
struct Veth {
    nets: Vec<Net>,
    port: u16,
}

impl Traffic for Veth {
    fn transfer(
        &mut self,
        kernel_name: &str,
        subflows: usize,
        duration: Duration,
    ) -> Result<f64, TrafficError> {
        if self.nets.iter().all(|n| n.paths != subflows) {
            self.nets.push(Net::new(subflows, None));
        }
        let net = self.nets.iter().find(|n| n.paths == subflows).expect("just made");
        net.select(kernel_name);
        self.port += 1;
        let until = Instant::now() + duration;
        let done = transfer(net, Over::Mptcp, self.port, |_| Instant::now() >= until);
        Ok(done.bytes as f64 * 8.0 / done.seconds)
    }
}

#[test]
fn root_bench_measures_costs_and_ratios() {
    let _alone = alone();
    let algorithms: Vec<Algorithm> = match std::env::var("VMCC_BENCH") {
        Ok(names) => names.split(',').map(|n| Algorithm::by_name(n).unwrap()).collect(),
        Err(_) => vec![Algorithm::by_name("lia").unwrap()],
    };
    let options = BenchOptions { algorithms, pairs: 3, ..BenchOptions::default() };
    let mut traffic = Veth { nets: Vec::new(), port: 5400 };
    let all = run(&options, &mut traffic, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    for one in &all {
        println!("{}: {:?} bytes", one.kernel_name, one.bytes_per_connection);
        for cost in &one.costs {
            println!(
                "  {} subflows: {} acks, {:.0} ns/ack, {:.2} Gbit/s",
                cost.subflows,
                cost.acks,
                cost.ns_per_ack,
                cost.goodput_bps / 1e9
            );
            for c in &cost.callbacks {
                println!("    {:<14} {:>9} {:6.0} ns", c.callback, c.calls, c.ns_per_call);
            }
            // How many there are says how much each acknowledges, up to a hundred segments where nothing limits a packet.
            assert!(cost.acks > 10 && cost.ns_per_ack > 1.0 && cost.ns_per_ack < 1e6, "{cost:?}");
        }
        println!("  ratio {:?}", one.goodput);
        // The kernel's own MPTCP stalls at times, with Reno of its own as well: the extremes say nothing.
        assert!(one.goodput.median > 0.1 && one.goodput.min <= one.goodput.median);
        assert!(one.bytes_per_connection.is_none_or(|bytes| bytes <= 2048));
    }
}
