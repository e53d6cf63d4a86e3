//! Two paths of 100 Mbit/s under the kernel's own Reno, straight through the library.
//!
//! `two_paths RUN_ID SECONDS [QUOTA_MS]`: prints the metrics as JSON. With a quota the sender's programs have so much processor
//! time in 100 ms. Ctrl-C ends it with exit code 130 after cleaning up.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vmcc_lab::{
    Cc, Control, Direction, Error, ErrorKind, Flow, Job, LabSpec, Layout, Machines, Path, Programs, Role,
    Shape, Throttle, Transport, Wire,
};
use vmcc_scenario::model::{Marking, Queue};
use vmcc_units::{BitsPerSec, Bytes, Limit, Nanos};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (run_id, seconds) = (arguments.next(), arguments.next().and_then(|text| text.parse().ok()));
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&cancel)) {
            eprintln!("cannot handle signals: {error}");
            return ExitCode::from(3);
        }
    }
    let quota = arguments.next().and_then(|text| text.parse().ok());
    let throttles = quota.map(|quota| throttle(Nanos::from_millis(quota)));
    let throttles = throttles.into_iter().collect();
    let spec = LabSpec { throttles, ..spec(run_id, seconds.unwrap_or(5)) };
    match measure(&spec, &cancel) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(match error.kind() {
                ErrorKind::BadInput => 2,
                ErrorKind::Interrupted => 130,
                _ => 3,
            })
        }
    }
}

fn throttle(quota: Nanos) -> Throttle {
    Throttle { at: Nanos::ZERO, until: None, host: 0, quota, period: Nanos::from_millis(100) }
}

fn measure(spec: &LabSpec, cancel: &AtomicBool) -> Result<String, Error> {
    let mut progress =
        |p: &vmcc_lab::Progress| eprintln!("{:.1} s {:?}", p.elapsed.as_secs_f64(), p.path_rates_bps);
    let mut control =
        Control { cancel, progress: &mut progress, programs: Programs::default(), machine: None };
    let metrics = vmcc_lab::run(spec, &mut control)?.metrics;
    Ok(serde_json::to_string_pretty(&metrics).unwrap_or_default())
}

fn spec(run_id: Option<String>, seconds: u64) -> LabSpec {
    let shape = Shape {
        rate: BitsPerSec::new(100_000_000),
        buffer: Limit::Bytes(Bytes::new(150_000)),
        marking: Marking::None,
        queue: Queue::default(),
    };
    let both = Direction { shape: Some(shape), wire: Wire::default() };
    let path = |name: &str| Path::alike(name, both.clone());
    let flow = Flow {
        label: "bulk".to_owned(),
        role: Role::Measured,
        from: 0,
        to: 1,
        cc: Cc::Native("reno".to_owned()),
        ecn: None,
        transport: Transport::Mptcp { first: 0 },
        class: 0,
        connections: 1,
        job: Job::Bulk { writes_at: None },
        round: 0,
        start: Nanos::ZERO,
        stop: Nanos::from_secs(seconds),
        unloaded: None,
    };
    LabSpec {
        run_id,
        layout: Layout::ParallelPaths,
        hosts: vec!["client".to_owned(), "server".to_owned()],
        paths: vec![path("a"), path("b")],
        flows: vec![flow],
        remaps: Vec::new(),
        cuts: Vec::new(),
        throttles: Vec::new(),
        machines: Machines::default(),
        duration: Nanos::from_secs(seconds),
        warmup: Nanos::from_millis(500),
        sample_interval: Nanos::from_millis(10),
        series_interval: Nanos::from_millis(100),
        receive_buffer: None,
        send_buffer: None,
        notsent_lowat: None,
        min_rto: None,
        min_paths: 1,
    }
}
