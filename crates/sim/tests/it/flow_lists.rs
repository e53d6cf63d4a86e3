//! Transfers that a scenario lists.

use std::fs;
use std::path::Path;

use crate::common::{plan, run, run_threads};
use vmcc_results::RunOutput;
use vmcc_scenario::{Document, Overrides};
use vmcc_sim::{Options, run_case};

const SCENARIO: &str = "title = 't'\nduration = '50ms'\nwarmup = '0s'\n[host]\nprotocol = 'tcp'\ncc = 'dctcp'\n\
                        [topology]\nkind = 'fat-tree'\nk = 4\nrate = '1gbit'\ndelay = '1us'\n[[traffic]]\n";

type Row = (u64, String, String, u64);

fn rows(output: &RunOutput) -> Vec<Row> {
    let row = |flow: &vmcc_results::FlowRecord| {
        (flow.start_us, flow.src.to_string(), flow.dst.to_string(), flow.size_bytes.unwrap())
    };
    output.flows.iter().map(row).collect()
}

#[test]
fn listed_transfers_start_at_their_time_and_host() {
    let text = format!(
        "{SCENARIO}kind = 'flows'\nstart = '1ms'\nflows = [\n{{ at = '3ms', from = 'h0', to = 'h15', size = '1MB' }},\n\
         {{ at = '0s', from = 'h3', to = 'h4', size = '1B' }},\n{{ at = '49ms', from = 'h3', to = 'h4', size = '2B' }},\n]\n"
    );
    let output = run(&text, &[]);
    let row = |at, from: &str, to: &str, size| (at, from.to_owned(), to.to_owned(), size);
    assert_eq!(
        rows(&output),
        [row(4_000, "h0", "h15", 1_000_000), row(1_000, "h3", "h4", 1)],
        "not after the end"
    );
    assert!(
        output.flows.iter().all(|flow| flow.completed && flow.slowdown.is_some_and(|factor| factor >= 1.0))
    );
}

/// Flow records of one run are the list of another.
#[test]
fn exported_flows_can_be_replayed() {
    let poisson = format!(
        "{SCENARIO}kind = 'poisson'\nload = 0.2\nsizes = '20kB'\nstop = '20ms'\npairing = 'random'\n"
    );
    let first = run_threads(&plan(&poisson, &[]), 0, 1, 1);
    assert!(first.flows.len() > 100);
    let mut csv = "flow,size_bytes,src,dst,start_us\n".to_owned();
    for (number, (at, from, to, size)) in rows(&first).into_iter().enumerate() {
        csv.push_str(&format!("{number},{size},{from},{to},{at}\n"));
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flow-lists");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("trace.csv"), csv).unwrap();
    fs::write(folder.join("s.toml"), format!("{SCENARIO}kind = 'flows'\nflows = 'trace.csv'\n")).unwrap();
    let document = Document::load(&folder.join("s.toml")).unwrap_or_else(|e| panic!("{e}"));
    let again = document.plan(&Overrides::default()).unwrap();
    let again = run_case(&again.cases[0], 1, &Options { threads: 1, ..Options::default() }).unwrap();
    assert_eq!(rows(&again), rows(&first));
    assert!(again.flows.iter().all(|flow| flow.completed));
}
