//! The agent without a command line: algorithms up and down, a port served and let go. Needs root.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use vmcc_agent::ports::{self, Unmarked};
use vmcc_agent::{Error, Guard, GuardState, Policy, Request};
use vmcc_cc::{Algorithm, Params};
use vmcc_port::PortError;
use vmcc_port::{ConfigFile, PortConfig};
use vmcc_testkit::netns::{Namespace, join, run};

fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// Takes down what a failed test left up.
struct Down;

impl Drop for Down {
    fn drop(&mut self) {
        let _ = vmcc_agent::down();
    }
}

fn params(algorithm: &str) -> Params {
    Params::defaults(Algorithm::by_name(algorithm).unwrap())
}

fn request(algorithms: &[Params]) -> Request<'_> {
    Request { algorithms, restricted: false, guarded: false }
}

#[test]
fn root_algorithms_stay_up_until_down() {
    let _down = Down;
    let mut wanted = [params("lia"), params("vmcc")];
    drop(vmcc_agent::up(request(&wanted)).unwrap());
    assert!(available().contains("mp_lia") && available().contains("mp_vmcc"));
    wanted[1].set("theta", "5").unwrap();
    drop(vmcc_agent::up(request(&wanted)).unwrap());

    let host = vmcc_agent::status().unwrap();
    let named = |name: &str| host.algorithms.iter().find(|a| a.kernel_name == name).unwrap();
    assert!(named("mp_lia").kept && named("mp_vmcc").kept);
    assert_eq!(named("mp_vmcc").parameters.as_ref(), Some(&wanted[1]), "again changes it at once");
    let document = serde_json::to_value(&host).unwrap();
    assert!(document["sockets"].is_array() && document["ports"].is_array(), "{document}");

    let clean = vmcc_agent::clean().unwrap();
    assert!(clean.algorithms.is_empty(), "what is up on purpose is no leftover: {clean:?}");
    let down = vmcc_agent::down().unwrap();
    assert_eq!(down.removed, ["mp_lia", "mp_vmcc"]);
    assert_eq!(down.still_default, None);
    assert!(!available().contains("mp_") && vmcc_agent::down().unwrap().removed.is_empty());
}

#[test]
fn root_guards_stop_and_leave_the_algorithms_up() {
    let _down = Down;
    let wanted = [params("vmcc")];
    let requests = vmcc_agent::up(Request { guarded: true, ..request(&wanted) }).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| stop.store(true, Ordering::SeqCst));
        let guard = Guard::new(requests, Policy::default(), GuardState::default());
        guard.watch(&stop, &mut |seen| panic!("nobody sends: {seen:?}"));
    });
    assert!(available().contains("mp_vmcc"));
}

fn config(text: &str) -> PortConfig {
    ConfigFile::parse("test", text).unwrap().config
}

/// A port `p0` in a namespace of its own, on whose thread `test` runs.
fn with_port(test: impl FnOnce(&Namespace) + Send) {
    let (here, there) = (Namespace::new("a"), Namespace::new("b"));
    join(&here, &there, "p0", "10.78.0");
    here.within(|| test(&here));
}

const TWO: &str =
    "rate = '100mbit'\nqueue = 'drr'\n[[class]]\nname = 'gold'\nweight = 4\n[[class]]\nname = 'rest'";
const ONE: &str = "rate = '50mbit'\nqueue = 'drr'\n[[class]]\nname = 'rest'";

#[test]
fn root_port_is_served_changed_listed_and_released() {
    with_port(|here| {
        let queues = || run(&format!("tc -n {here} qdisc show dev p0"));
        let before = queues();
        let served = ports::serve("p0", &config(TWO), false).unwrap();
        assert!(served.changed.is_none() && served.stats.rate_bps == Some(100_000_000));
        served.keep();

        let changed = ports::serve("p0", &config(ONE), false).unwrap();
        let what = changed.changed.as_ref().unwrap();
        assert_eq!((what.removed_classes.as_slice(), what.dropped_packets), (&["gold".to_owned()][..], 0));
        changed.keep();

        let listed = ports::list().unwrap();
        assert_eq!((listed.ports.len(), listed.unreadable.len()), (1, 0));
        assert_eq!(listed.ports[0].rate_bps, Some(50_000_000));
        assert!(ports::repair("p0").unwrap().differences.is_empty());

        let Err(error) = ports::serve("p0", &config(ONE), true) else { panic!("it stays served") };
        assert!(matches!(error, Error::StaysServed { .. }) && error.is_bad_request(), "{error}");
        assert!(error.remedy().unwrap().contains("unmark"), "{error:?}");

        let Unmarked::Ended(Some(last)) = ports::unmark("p0").unwrap() else { panic!("it was served") };
        assert_eq!(last.rate_bps, Some(50_000_000));
        assert!(matches!(ports::unmark("p0").unwrap(), Unmarked::NotServed));
        assert_eq!(queues(), before, "what was there before is back");
    });
}

#[test]
fn root_held_port_is_released_at_the_end() {
    with_port(|_| {
        let served = ports::serve("p0", &config(ONE), true).unwrap();
        let (stop, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
        let last = served.hold(&stop, &mut |port| {
            assert!(port.stats().is_ok());
            stop.store(looks.fetch_add(1, Ordering::SeqCst) == 2, Ordering::SeqCst);
        });
        assert_eq!(last.unwrap().rate_bps, Some(50_000_000));
        assert_eq!(looks.load(Ordering::SeqCst), 3);
        assert!(ports::list().unwrap().ports.is_empty());
    });
}

#[test]
fn root_errors_keep_type_and_class() {
    with_port(|_| {
        let Err(error) = ports::stats("p0") else { panic!("it is not served") };
        assert!(matches!(error, Error::Port(PortError::NotAttached { .. })) && error.is_bad_request());
        let Err(error) = ports::serve("p9", &config(ONE), false) else { panic!("there is none") };
        assert!(matches!(error, Error::Port(PortError::NoSuchPort { .. })) && error.is_bad_request());
        assert_eq!(error.remedy(), None, "its text has it: {error}");
    });
}
