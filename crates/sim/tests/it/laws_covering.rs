//! Laws that hold at every setting, over a design in which every two values of any two settings meet.
//!
//! Every point costs a few thousand packets. `VMCC_TEST_SCALE` repeats the design with as many other fillings and
//! lengthens the runs.

use std::collections::BTreeMap;

use crate::covering::design::Design;
use crate::covering::point::{FILLED, Point, WIDE};

fn scale() -> u64 {
    std::env::var("VMCC_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

#[test]
fn every_pair_of_setting_values_is_covered() {
    for axes in [WIDE, FILLED] {
        let mut design = Design::pairwise(&axes, 1);
        assert!(design.is_covering());
        // No fewer are possible: the two longest axes have as many pairs.
        assert!((12 * 7..110).contains(&design.rows.len()), "{} points", design.rows.len());
        design.rows.truncate(60);
        assert!(!design.is_covering());
    }
}

fn points() -> Vec<Point> {
    let design = |axes: &[usize], seed, point: fn(&[usize]) -> Point| {
        Design::pairwise(axes, seed).rows.iter().map(|row| point(row)).collect::<Vec<_>>()
    };
    (1..=scale())
        .flat_map(|seed| [design(&WIDE, seed, Point::wide), design(&FILLED, seed, Point::filled)].concat())
        .collect()
}

#[test]
fn laws_hold_at_every_setting() {
    let mut broken = Vec::new();
    let mut checked = BTreeMap::<&str, u32>::new();
    for point in points() {
        let measured = point.run(scale());
        for (law, complaint) in point.laws(&measured) {
            *checked.entry(law).or_default() += 1;
            broken.extend(complaint.map(|text| format!("{law}: {text}\n    {point}\n    {measured}")));
        }
    }
    println!("{checked:#?}");
    // A law that was asked nowhere says nothing.
    assert!(checked.values().all(|&times| times >= 10), "{checked:#?}");
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
}
