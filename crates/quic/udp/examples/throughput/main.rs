//! Cost of a transfer, beside `quinn`, `noq` and UDP alone: `throughput [OPTIONS]`, see [`USAGE`].
//!
//! Each transfer is one stream between two processes of its own, each with a processor of its own where there are two. All have
//! the same certificate, cipher, flow control windows, packet size, socket buffers, pieces of application data and kind of runtime.

mod noq;
mod options;
mod ours;
mod payload;
mod process;
mod quinn;
mod setup;
mod table;
mod udp;

use options::{Case, Library, Options};
use process::{Far, Near};
use std::error::Error;
use table::Row;

const USAGE: &str = "throughput [--gib N] [--rounds N] [--paths 1,2] [--offload on,off] [--libraries vmcc,quinn,noq,udp] [--at IP,IP] \
[--from IP,IP] [--far-in COMMAND] [--near-in COMMAND] [--json FILE]
  --at, --from       addresses of the receiver and of the sender, one for each path; of the loopback if not said
  --far-in, --near-in  what the receiver and the sender are started with, such as `ip netns exec NAME`";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("receive") => receive(&args[1..]),
        Some("send") => send(&args[1..]),
        Some("--help" | "-h") => {
            println!("{USAGE}");
            Ok(())
        }
        _ => compare(&Options::parse(&args)?),
    }
}

/// Every case in turn, round after round: what disturbs the host disturbs all.
fn compare(options: &Options) -> Result<()> {
    let mut rows: Vec<Row> = options.cases().into_iter().map(Row::new).collect();
    for round in 1..=options.rounds {
        for row in &mut rows {
            let far = Far::start(options, &row.case)?;
            let near = Near::start(options, &row.case, &far)?;
            // Both, so that neither is waited for in vain.
            match (near.usage(), far.usage()) {
                (Ok(sent), Ok(received)) => row.add(&sent, &received),
                (Err(error), _) | (_, Err(error)) => row.fail(&error.to_string()),
            }
        }
        eprintln!("round {round} of {}", options.rounds);
    }
    print!("{}", table::markdown(options, &rows));
    if let Some(file) = &options.json {
        std::fs::write(file, table::json(options, &rows)).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The receiver's process.
fn receive(args: &[String]) -> Result<()> {
    let case = Case::from_args(args)?;
    process::pin(1);
    let usage = runtime()?.block_on(async {
        match case.library {
            Library::Vmcc => ours::receive(&case).await,
            Library::Quinn => quinn::receive(&case).await,
            Library::Noq => noq::receive(&case).await,
            Library::Udp => udp::receive(&case).await,
        }
    })?;
    println!("{usage}");
    Ok(())
}

/// The sender's process.
fn send(args: &[String]) -> Result<()> {
    let case = Case::from_args(args)?;
    process::pin(0);
    let usage = runtime()?.block_on(async {
        match case.library {
            Library::Vmcc => ours::send(&case).await,
            Library::Quinn => quinn::send(&case).await,
            Library::Noq => noq::send(&case).await,
            Library::Udp => udp::send(&case).await,
        }
    })?;
    println!("{usage}");
    Ok(())
}
