//! Cost of idle connections, both ends in one thread and without a network: `idle [COUNT]...`, 1,000 to 10,000 by default.
//!
//! Memory is what the C library has back once an end is dropped; `talks` is how long one connection needs to carry 100 kB there and back
//! while all the others are silent.

use std::error::Error;
use std::process::Command;
use std::time::Instant;
use vmcc_quic_testkit::crowd::Crowd;

/// Talks of which the middle one counts.
const TALKS: usize = 101;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, count] = &args[..]
        && role == "--one"
    {
        measure(count.parse()?);
        return Ok(());
    }
    let usual = ["1000", "2000", "5000", "10000"].map(str::to_owned);
    let counts = if args.is_empty() { &usual[..] } else { &args[..] };
    println!(
        "| connections | KiB of a client's end | KiB of a server's end | KiB of RSS, both | ms to open one | us one talks |"
    );
    println!("|---|---|---|---|---|---|");
    for count in counts {
        // Each in a process of its own: memory that was given back is not always the system's again.
        let status = Command::new(std::env::current_exe()?).args(["--one", count]).status()?;
        if !status.success() {
            return Err(format!("{count} connections: {status}").into());
        }
    }
    Ok(())
}

fn measure(count: usize) {
    let (before, began) = (resident(), Instant::now());
    let mut crowd = Crowd::new(count);
    (0..count).for_each(|_| crowd.open());
    let opened = began.elapsed().as_secs_f64() * 1e3 / count as f64;
    let mut talks: Vec<f64> = (0..TALKS).map(|i| talk(&mut crowd, i * count / TALKS)).collect();
    talks.sort_by(f64::total_cmp);
    let each = |bytes: usize| bytes as f64 / count as f64 / 1024.0;
    let all = each(resident() - before);
    let (client, server) = (each(crowd.weigh(0)), each(crowd.weigh(1)));
    println!("| {count} | {client:.1} | {server:.1} | {all:.1} | {opened:.2} | {:.0} |", talks[TALKS / 2]);
}

/// Microseconds of one.
fn talk(crowd: &mut Crowd, client: usize) -> f64 {
    let began = Instant::now();
    crowd.talk(client);
    began.elapsed().as_secs_f64() * 1e6
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    line.and_then(|kib| kib.parse::<usize>().ok()).map_or(0, |kib| kib * 1024)
}
