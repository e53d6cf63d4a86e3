//! Cost of reading scenarios of many entries: no schema is made for each.

use vmcc_scenario::{Document, Overrides};
use vmcc_testkit::allocations::{Counting, asked_by};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// For reading, checking and naming an entry; a schema of its keys alone would be ten times that.
const MAX_BYTES_PER_ENTRY: u64 = 64 << 10;

/// Bytes that loading and planning this many entries of traffic ask for.
fn asked(entries: usize) -> u64 {
    let entry = |n: usize| {
        format!("[[traffic]]\nname = \"e{n}\"\nkind = \"sized\"\nsize = \"10kB\"\nstart = \"{n}us\"\n")
    };
    let text: String = (0..entries).map(entry).collect();
    let text = format!(
        "title = \"t\"\nduration = \"1s\"\n[topology]\nkind = \"parallel-paths\"\npaths = 1\nrate = \"10mbit\"\ndelay = \"1ms\"\n{text}"
    );
    let (plan, asked) = asked_by(|| {
        let document = Document::parse("many", &text).expect("a scenario");
        document.plan(&Overrides::default()).expect("a plan")
    });
    assert_eq!(plan.cases[0].scenario.traffic.len(), entries);
    asked
}

#[test]
fn memory_per_traffic_entry_is_constant() {
    asked(1);
    let (few, many) = (asked(100), asked(800));
    let per_entry = (many - few) / 700;
    println!("{few} bytes for 100 entries, {many} for 800");
    assert!(per_entry < MAX_BYTES_PER_ENTRY, "{per_entry} bytes for each entry");
    assert!(many < 10 * few, "{few} bytes for 100 entries, {many} for 800");
}
