//! Findings of `docs/evidence/search` are what they were published as.

use crate::searches::verdicts;
use std::fs;
use std::path::Path;

#[test]
fn published_findings_run_and_fail_their_claims() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/evidence/search");
    let mut found = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // The scenario that was searched has no sweep.
        if text.contains("[[sweep.variant]]") {
            assert_eq!(verdicts(&text), [false], "{}", path.display());
            found += 1;
        }
    }
    assert!(found >= 3, "{found} findings");
}
