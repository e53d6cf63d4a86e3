//! Instructions that all processors execute for any process: a proxy for energy, where that has no counters. The kernel counts them
//! with the processors' own counters (`perf_event_open`).

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};
use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

const ONLINE: &str = "/sys/devices/system/cpu/online";
/// Duration of a trial of the counters: long enough for each of them to have had its turn.
const TRIAL_DURATION: Duration = Duration::from_millis(5);

/// Reasons for which instructions are not counted here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CounterError {
    #[error(
        "the kernel has no counter of instructions here ({0}): no hardware counters, as in most virtual machines"
    )]
    Absent(io::Error),
    #[error("what all processors do may only be counted by root ({0})")]
    NotPermitted(io::Error),
    #[error("counting what processor {processor} does: {source}")]
    Refused { processor: usize, source: io::Error },
    #[error("{ONLINE}: {0}")]
    Processors(io::Error),
    #[error("the counters were there, and counted nothing")]
    Still,
}

impl CounterError {
    fn of(processor: usize, error: io::Error) -> Self {
        use nix::libc::{EACCES, ENODEV, ENOENT, ENOSYS, EOPNOTSUPP, EPERM};
        match error.raw_os_error() {
            Some(ENOENT | ENODEV | EOPNOTSUPP | ENOSYS) => Self::Absent(error),
            Some(EACCES | EPERM) => Self::NotPermitted(error),
            _ => Self::Refused { processor, source: error },
        }
    }

    /// True if the machine may have counters nevertheless.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::NotPermitted(_))
    }

    pub(crate) fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Absent(_) => Some(
                "measure on a machine whose processors count; a virtual machine has such counters if its host passes them on (`-cpu host,pmu=on`)",
            ),
            Self::NotPermitted(_) => Some("run as root: `sudo vmcc ...`"),
            Self::Still => Some("see who else uses the counters (`sysctl kernel.nmi_watchdog`)"),
            Self::Refused { .. } | Self::Processors(_) => None,
        }
    }
}

/// Reading of a counter. Events that share one of the processor's counters are each counted for a part of the time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Reading {
    counted: u64,
    enabled: Duration,
    running: Duration,
}

impl Reading {
    /// Count scaled to the whole time; `None` if nothing was counted: no processor executes nothing.
    fn all(self) -> Option<f64> {
        if self.counted == 0 || self.running.is_zero() {
            return None;
        }
        Some(self.counted as f64 * (self.enabled.as_secs_f64() / self.running.as_secs_f64()).max(1.0))
    }
}

/// Source of a count that starts when it is opened.
pub(crate) trait Source {
    /// `None` if something was not counted.
    fn all(&mut self) -> Option<f64>;
}

/// Counters of one event, one for each processor, that count from when they are opened on.
#[derive(Debug)]
pub(crate) struct Counters {
    online: String,
    each: Vec<Counter>,
}

impl Counters {
    fn open(event: impl Event + Copy) -> Result<Self, CounterError> {
        let online = online().map_err(CounterError::Processors)?;
        let one = |processor: usize| {
            let mut builder = Builder::new(event);
            builder.any_pid().one_cpu(processor).include_kernel().include_hv().enabled(true);
            builder.build().map_err(|e| CounterError::of(processor, e))
        };
        let each = processors(&online).map(one).collect::<Result<_, _>>()?;
        Ok(Self { online, each })
    }
}

impl Source for Counters {
    /// On all processors; `None` if one of them did not count, came or went.
    fn all(&mut self) -> Option<f64> {
        let one = |counter: &mut Counter| {
            let data = counter.read_full().ok()?;
            let reading = Reading {
                counted: data.count(),
                enabled: data.time_enabled()?,
                running: data.time_running()?,
            };
            reading.all()
        };
        let all = self.each.iter_mut().map(one).sum::<Option<f64>>()?;
        (online().ok()? == self.online && !self.each.is_empty()).then_some(all)
    }
}

fn online() -> io::Result<String> {
    fs::read_to_string(ONLINE)
}

/// The numbers of a list as the kernel writes it: `0-3,8`.
fn processors(list: &str) -> impl Iterator<Item = usize> {
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flatten()
}

/// Tests if instructions are counted here, by counting some.
pub(crate) fn try_to_count() -> Result<(), CounterError> {
    let mut counters = Counters::open(Hardware::INSTRUCTIONS)?;
    thread::sleep(TRIAL_DURATION);
    counters.all().map(drop).ok_or(CounterError::Still)
}

/// Instructions executed within a window of the run. There are none on a machine without counters, or if they are lost meanwhile.
pub(crate) struct Window<S = Counters> {
    from: Duration,
    to: Duration,
    state: State<S>,
}

enum State<S> {
    Before,
    Within(Option<S>),
    After(Option<f64>),
}

impl Window {
    pub(crate) fn new(from: Duration, to: Duration) -> Self {
        Self { from, to, state: State::Before }
    }

    /// To be called often.
    pub(crate) fn update(&mut self, elapsed: Duration) {
        self.advance(elapsed, || Counters::open(Hardware::INSTRUCTIONS).ok());
    }

    pub(crate) fn executed(&self) -> Option<f64> {
        match self.state {
            State::After(executed) => executed,
            State::Before | State::Within(_) => None,
        }
    }
}

impl<S: Source> Window<S> {
    fn advance(&mut self, elapsed: Duration, open: impl FnOnce() -> Option<S>) {
        match &mut self.state {
            State::Before if elapsed >= self.from => self.state = State::Within(open()),
            State::Within(counters) if elapsed >= self.to => {
                self.state = State::After(counters.as_mut().and_then(S::all));
            }
            State::Before | State::Within(_) | State::After(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event::events::Software;
    use std::hint::black_box;

    #[test]
    fn cpu_list_ranges_are_parsed() {
        assert_eq!(processors("0-2,5,8-9\n").collect::<Vec<_>>(), [0, 1, 2, 5, 8, 9]);
        assert_eq!(processors("0\n").collect::<Vec<_>>(), [0]);
        assert_eq!(processors("\n").count(), 0);
        assert!(processors(&online().unwrap()).count() >= 1);
    }

    #[test]
    fn multiplexed_counters_are_scaled_and_unscheduled_ones_absent() {
        let reading = |counted, enabled, running| Reading {
            counted,
            enabled: Duration::from_millis(enabled),
            running: Duration::from_millis(running),
        };
        assert_eq!(reading(700, 10, 10).all(), Some(700.0));
        assert_eq!(reading(700, 10, 5).all(), Some(1400.0));
        assert_eq!(reading(700, 10, 11).all(), Some(700.0), "clocks are read one after the other");
        assert_eq!(reading(0, 10, 0).all(), None, "it never had a turn");
        assert_eq!(reading(0, 10, 10).all(), None, "a counter that stands still");
    }

    struct Counting(Option<f64>);

    impl Source for Counting {
        fn all(&mut self) -> Option<f64> {
            self.0
        }
    }

    /// Count of a window that is updated at these seconds, and the number of times that it opened counters.
    fn found(seconds: &[u64], open: impl Fn() -> Option<Counting>) -> (Option<f64>, usize) {
        let mut window =
            Window { from: Duration::from_secs(1), to: Duration::from_secs(4), state: State::Before };
        let mut opened = 0;
        for second in seconds {
            window.advance(Duration::from_secs(*second), || {
                opened += 1;
                open()
            });
        }
        let executed = match window.state {
            State::After(executed) => executed,
            State::Before | State::Within(_) => None,
        };
        (executed, opened)
    }

    #[test]
    fn window_opens_once_and_is_read_at_its_end() {
        assert_eq!(found(&[0, 1, 2, 4, 5], || Some(Counting(Some(7.0)))), (Some(7.0), 1));
        assert_eq!(found(&[0, 2, 3], || Some(Counting(Some(7.0)))), (None, 1), "it is not over");
        assert_eq!(found(&[0, 1, 4], || None), (None, 1), "no counters");
        assert_eq!(found(&[0, 1, 4], || Some(Counting(None))), (None, 1), "counters that were lost");
    }

    #[test]
    fn perf_errors_are_distinguished() {
        use nix::libc::{EACCES, EMFILE, ENOENT, EOPNOTSUPP, EPERM};
        let of = |code| CounterError::of(3, io::Error::from_raw_os_error(code));
        for code in [ENOENT, EOPNOTSUPP] {
            assert!(matches!(of(code), CounterError::Absent(_)) && !of(code).is_unknown(), "{code}");
        }
        for code in [EACCES, EPERM] {
            assert!(of(code).is_unknown() && of(code).remedy().unwrap().contains("root"), "{code}");
        }
        assert!(of(EMFILE).to_string().contains("processor 3"), "{}", of(EMFILE));
    }

    /// Software's events are there without any hardware.
    #[test]
    fn per_cpu_counters_count_all_processes() {
        let mut counters = match Counters::open(Software::CONTEXT_SWITCHES) {
            Ok(counters) => counters,
            Err(error) => {
                return assert!(error.is_unknown() || matches!(error, CounterError::Absent(_)), "{error}");
            }
        };
        assert_eq!(counters.each.len(), processors(&online().unwrap()).count());
        let mut all = None;
        for _ in 0..1000 {
            thread::sleep(Duration::from_millis(1));
            all = counters.all();
            if all.is_some_and(|all| all >= 100.0) {
                return;
            }
        }
        panic!("{all:?} switches in a thousand sleeps");
    }

    #[test]
    fn instructions_are_counted_or_the_obstacle_is_named() {
        let tried = try_to_count();
        let Ok(mut counters) = Counters::open(Hardware::INSTRUCTIONS) else {
            let said = tried.expect_err("none could be opened").to_string();
            return assert!(!said.is_empty());
        };
        if tried.is_err() {
            return;
        }
        // Two for each number at the least, and all else that the machine does.
        let sum = (0..10_000_000_u64).fold(0, |sum, number| black_box(sum ^ number));
        let counted = counters.all().expect("they count");
        assert!((20e6..1e15).contains(&counted), "{counted} ({sum})");
    }
}
