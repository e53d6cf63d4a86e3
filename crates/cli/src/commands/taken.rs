//! Processor time that this machine did not get, in words.

use serde_json::Value;
use vmcc_agent::{CpuSteal, Throttled, Timeouts};

/// More cgroups are only counted; `--json` has all.
const MAX_CGROUPS: usize = 3;

/// A line for each that there is anything to say of; `off` is what the agent noticed.
pub(super) fn lines(taken: &CpuSteal, off: &Value) -> Vec<String> {
    let steal = taken.steal_seconds.filter(|seconds| *seconds > 0.0);
    let mut lines: Vec<String> =
        self::off(off).map(|text| format!("this machine was {text}")).into_iter().collect();
    lines.extend(
        off["problem"].as_str().map(|why| format!("whether this machine is off cannot be noticed: {why}")),
    );
    lines
        .extend(steal.map(|seconds| format!("steal: {seconds:.1} s of its processors' time went to others")));
    lines.extend(throttled(&taken.throttled));
    lines.extend(taken.timeouts.and_then(timeouts));
    lines
}

/// For a line that has other things on it.
pub(super) fn short(taken: &CpuSteal, off: &Value) -> String {
    let cost = taken.timeouts.filter(|found| found.spurious > 0);
    let cost = cost.map(|found| format!("{} of {} timeouts for nothing", found.spurious, found.all));
    [self::off(off), cost].into_iter().flatten().map(|text| format!("; {text}")).collect()
}

fn off(off: &Value) -> Option<String> {
    let times = off["times"].as_u64().filter(|times| *times > 0)?;
    let seconds = |key: &str| off[key].as_f64().unwrap_or_default();
    Some(format!(
        "off {times} times, {:.2} s in all, {:.0} ms at most, {:.0} s ago",
        seconds("seconds"),
        seconds("longest_seconds") * 1e3,
        seconds("last_seconds_ago")
    ))
}

fn throttled(all: &[Throttled]) -> Option<String> {
    let name = |one: &Throttled| if one.cgroup.is_empty() { "/".to_owned() } else { one.cgroup.clone() };
    let said = |one: &Throttled| {
        format!("{} {:.1} s in {} periods", name(one), one.time_us as f64 / 1e6, one.periods)
    };
    let shown: Vec<String> = all.iter().take(MAX_CGROUPS).map(said).collect();
    let more = match all.len().saturating_sub(MAX_CGROUPS) {
        0 => String::new(),
        more => format!("; and {more} more, which --json has"),
    };
    (!all.is_empty()).then(|| format!("throttled: {}{more}", shown.join("; ")))
}

fn timeouts(found: Timeouts) -> Option<String> {
    let Timeouts { all, spurious, undone, withheld, .. } = found;
    (all + withheld > 0).then(|| {
        format!(
            "timeouts here: {all}, {spurious} of them for nothing, {undone} undone; {withheld} retransmissions withheld"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn causes_without_lost_time_are_omitted() {
        let taken =
            CpuSteal { steal_seconds: Some(0.0), timeouts: Some(Timeouts::default()), ..CpuSteal::default() };
        assert_eq!(lines(&taken, &Value::Null), [""; 0]);
        assert_eq!(short(&taken, &json!({ "times": 0 })), "");
    }

    #[test]
    fn each_cause_of_lost_time_has_a_line() {
        let cgroup = |n: u64| Throttled { cgroup: format!("pods/{n}"), periods: n, time_us: n * 100_000 };
        let taken = CpuSteal {
            steal_seconds: Some(2.5),
            throttled: (1..6).rev().map(cgroup).collect(),
            timeouts: Some(Timeouts { all: 14, spurious: 9, undone: 8, withheld: 2, probes: 30 }),
        };
        let off = json!({ "times": 3, "seconds": 0.63, "longest_seconds": 0.48, "last_seconds_ago": 7.2 });
        assert_eq!(
            lines(&taken, &off),
            [
                "this machine was off 3 times, 0.63 s in all, 480 ms at most, 7 s ago",
                "steal: 2.5 s of its processors' time went to others",
                "throttled: pods/5 0.5 s in 5 periods; pods/4 0.4 s in 4 periods; pods/3 0.3 s in 3 periods; \
                 and 2 more, which --json has",
                "timeouts here: 14, 9 of them for nothing, 8 undone; 2 retransmissions withheld",
            ]
        );
        assert_eq!(
            short(&taken, &off),
            "; off 3 times, 0.63 s in all, 480 ms at most, 7 s ago; 9 of 14 timeouts for nothing"
        );
    }
}
