//! The detectors of shared bottlenecks beside each other on this machine's kernel: the table in docs/evidence/sharing.md.

use crate::common::alone;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use vmcc_bpf::Loaded;
use vmcc_bpf::close_requests::CloseRequests;
use vmcc_guard::{Guard, GuardState, Policy, RequestReaders};
use vmcc_lab::{Cc, Control, Error, LabSpec, Programs};
use vmcc_scenario::{Document, Overrides};

const DETECTORS: [&str; 4] = ["correlation", "counts", "events", "statistics"];
/// Hosts with a VM each that run at a time; how long a VM's connections last, and when the next ones begin.
const HOSTS: usize = 9;
const SECONDS: usize = 10;
const EVERY: usize = 11;
/// Interval of looks at the table of connections.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Connections over twins of a setting, and as many that share.
const WANTED: usize = 100;

/// Which connections: this many of a VM, behind ports that mark or that drop, over twins or over one NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    detector: &'static str,
    marked: bool,
    connections: usize,
    share: bool,
}

/// Results of the connections of a setting.
#[derive(Debug, Clone, Default)]
struct Counts {
    all: usize,
    /// Seconds from the beginning to the close, of those that lost a path.
    closed: Vec<f64>,
}

impl Setting {
    fn all() -> Vec<Self> {
        let kinds = [(true, 1), (true, 10), (false, 1), (false, 10)];
        let kinds = kinds.iter().flat_map(|kind| [(*kind, false), (*kind, true)]);
        let of = |detector| {
            kinds.clone().map(move |((marked, connections), share)| Self {
                detector,
                marked,
                connections,
                share,
            })
        };
        DETECTORS.into_iter().flat_map(of).collect()
    }

    fn name(self) -> String {
        let Self { detector, marked, connections, share } = self;
        format!(
            "{detector}:{}:{connections}:{}",
            if marked { "marks" } else { "drops" },
            if share { "one" } else { "twins" }
        )
    }

    /// A bin, or a base interval, is a round trip with queue, as it is for our own; with what their sources have, neither
    /// of the two decides anything in so short a time.
    fn interval(self) -> String {
        let loaded_ms = if self.marked { 10.0 } else { 32.0 };
        match self.detector {
            "events" => format!("interval = {}", loaded_ms / 8.0),
            "statistics" => format!("interval = {loaded_ms}"),
            _ => String::new(),
        }
    }

    /// Number of times that a VM's connections are opened in one run: building the hosts takes longer than the connections last.
    fn turns(self) -> usize {
        if self.connections == 1 { 6 } else { 2 }
    }

    /// Of a run.
    fn connections_in_all(self) -> usize {
        HOSTS * self.turns() * self.connections
    }

    fn spec(self) -> LabSpec {
        let traffic = (0..self.turns()).map(|turn| {
            let (start, connections) = (turn * EVERY, self.connections);
            let stop = start + SECONDS;
            format!(
                "[[traffic]]\nkind = 'bulk'\nfrom = 'vm0'\nto = 'client'\nconnections = {connections}\n\
                 start = '{start}s'\nstop = '{stop}s'\n"
            )
        });
        let traffic: Vec<_> = traffic.collect();
        let marking = if self.marked { "{ rule = 'threshold', at = '30kB' }" } else { "{ rule = 'none' }" };
        let text = format!(
            "title = 'One VM'\nduration = '{}s'\nwarmup = '1s'\ninterval = '500ms'\n\
             [host]\ncc = 'vmcc'\n[host.params.vmcc]\ndetector = '{}'\n{}\n\
             [topology]\nkind = 'virtual-host'\nvms = 1\nnics = 2\nvnics = 2\nnic_of_vnic = [0, {}]\n\
             vm_rate = '1gbit'\nbuffer = '1000pkt'\npath_rate = '25mbit'\npath_delay = '50us'\n\
             path_buffer = '{}'\npath_marking = {marking}\n{}",
            EVERY * self.turns(),
            self.detector,
            self.interval(),
            u8::from(!self.share),
            if self.marked { "1000pkt" } else { "100kB" },
            traffic.concat()
        );
        let plan = Document::parse("one-vm", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let plan = plan.plan(&Overrides::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        LabSpec::try_from(&plan.cases[0]).unwrap()
    }

    /// Runs hosts side by side with a guard; what became of their connections.
    fn run(self) -> Counts {
        let spec = self.spec();
        let Cc::Registry(params) = spec.flows[0].cc else { panic!("an algorithm of ours") };
        let loaded = Loaded::load(params.algorithm(), &params).unwrap_or_else(|e| panic!("{e}"));
        let mut guard = Guard::new(RequestReaders::default(), Policy::default(), GuardState::default());
        let requests = CloseRequests::open(&loaded).unwrap().expect("it asks to close paths");
        let (mut opened, mut closed) = (BTreeMap::new(), BTreeMap::new());
        let failures: Vec<String> = thread::scope(|scope| {
            let hosts: Vec<_> = (0..HOSTS).map(|_| scope.spawn(|| host(&spec))).collect();
            while hosts.iter().any(|host| !host.is_finished()) {
                let looked = Instant::now();
                for connection in loaded.table().unwrap() {
                    opened.entry(connection.token).or_insert(looked);
                }
                for request in requests.poll(POLL_INTERVAL).unwrap() {
                    // Who shares asks at each round trip; to close one takes longer where many do.
                    let late = looked.elapsed() > 2 * POLL_INTERVAL;
                    if late || closed.contains_key(&request.token) {
                        continue;
                    }
                    let before = guard.counts().closed;
                    guard.enqueue(vec![request], requests.kernel_name());
                    // Its host may just be ending.
                    guard.act(&mut drop);
                    if guard.counts().closed == before {
                        continue;
                    }
                    let opened = opened.get(&request.token).map_or(Duration::ZERO, Instant::elapsed);
                    closed.insert(request.token, opened.as_secs_f64());
                }
            }
            hosts.into_iter().filter_map(|host| host.join().unwrap()).collect()
        });
        // Both ends have an entry, and so have iperf3's own connections.
        let seen = opened.len();
        assert!(seen >= 2 * self.connections_in_all(), "only {seen} ends were seen; {failures:#?}");
        Counts { all: self.connections_in_all(), closed: closed.into_values().collect() }
    }
}

/// One virtual host from beginning to end; what could not be measured, if anything.
fn host(spec: &LabSpec) -> Option<String> {
    let cancel = AtomicBool::new(false);
    let mut control =
        Control { cancel: &cancel, progress: &mut |_| {}, programs: Programs::default(), machine: None };
    match vmcc_lab::run(spec, &mut control) {
        Ok(_) => None,
        // On a busy machine some figure may be missing; connections are counted by the algorithm's table.
        Err(error @ Error::Measurement { .. }) => Some(error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// Results of earlier runs and of this one, in a file with a line per run: all settings take hours, which may be split.
struct Kept {
    file: PathBuf,
    counts: BTreeMap<Setting, Counts>,
}

impl Kept {
    fn open(file: PathBuf, settings: &[Setting]) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let mut kept = Self { file, counts: settings.iter().map(|of| (*of, Counts::default())).collect() };
        for line in text.lines() {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let (of, counts) = kept.counts.iter_mut().find(|(of, _)| of.name() == name).unwrap();
            counts.all += of.connections_in_all();
            counts.closed.extend(words.map(|word| word.parse::<f64>().unwrap()));
        }
        kept
    }

    fn add(&mut self, of: Setting) {
        let counts = of.run();
        let times: Vec<_> = counts.closed.iter().map(|time| format!(" {time:.2}")).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file).unwrap();
        writeln!(file, "{}{}", of.name(), times.concat()).unwrap();
        let all = self.counts.get_mut(&of).unwrap();
        all.all += counts.all;
        all.closed.extend(counts.closed);
    }

    /// The settings with too few connections.
    fn wanting(&self) -> Vec<Setting> {
        let few = self.counts.iter().filter(|(_, counts)| counts.all < WANTED);
        few.map(|(of, _)| *of).collect()
    }

    /// A line per kind of ports, number of connections and detector: what sharing and what disjoint connections lost.
    fn table(&self) -> String {
        let head = "| ports | connections | detector | sharing | twins | precision | recall | F | median s |";
        let mut lines =
            vec![head.to_owned(), head.split('|').skip(2).fold("|".to_owned(), |line, _| line + "---|")];
        for (of, sharing) in self.counts.iter().filter(|(of, counts)| of.share && counts.all > 0) {
            let twins = &self.counts[&Setting { share: false, ..*of }];
            lines.push(format!(
                "| {} | {} | {} | {} of {} | {} of {} | {} |",
                if of.marked { "marks" } else { "tail drop" },
                of.connections,
                of.detector,
                sharing.closed.len(),
                sharing.all,
                twins.closed.len(),
                twins.all,
                scores(sharing, twins)
            ));
        }
        lines.join("\n")
    }
}

/// Precision, recall and F as if there were as many of both kinds, and the median of the time to a right close.
fn scores(sharing: &Counts, twins: &Counts) -> String {
    let share = |counts: &Counts| counts.closed.len() as f64 / counts.all.max(1) as f64;
    let (recall, wrong) = (share(sharing), share(twins));
    let mut times = sharing.closed.clone();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).map_or("-".to_owned(), |time| format!("{time:.1}"));
    if recall + wrong == 0.0 {
        return format!("- | 0.00 | 0.00 | {median}");
    }
    let f = 2.0 * recall / (1.0 + recall + wrong);
    format!("{:.2} | {recall:.2} | {f:.2} | {median}", recall / (recall + wrong))
}

/// `VMCC_DETECTORS` names some, `VMCC_DETECTORS_FILE` where runs are kept, `VMCC_DETECTORS_SECONDS` after how long no
/// further one begins.
#[test]
#[ignore = "on demand: hours; it prints the table of docs/evidence/sharing.md"]
fn root_detectors_side_by_side() {
    let _alone = alone();
    let set = |name: &str| std::env::var(name).ok();
    let names = set("VMCC_DETECTORS");
    let all = DETECTORS.into_iter();
    let some = all.filter(|name| names.as_ref().is_none_or(|names| names.split(',').any(|n| n == *name)));
    let some: Vec<_> = some.collect();
    let time =
        set("VMCC_DETECTORS_SECONDS").map_or(Duration::MAX, |s| Duration::from_secs(s.parse().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let file = set("VMCC_DETECTORS_FILE").map_or_else(|| folder.path().join("runs"), PathBuf::from);
    let mut kept = Kept::open(file, &Setting::all());
    let began = Instant::now();
    loop {
        let wanting = kept.wanting();
        let wanted = wanting.iter().filter(|of| some.contains(&of.detector));
        // All grow alike.
        let Some(next) = wanted.min_by_key(|of| (kept.counts[*of].all, **of)) else { break };
        if began.elapsed() > time {
            break;
        }
        kept.add(*next);
    }
    println!("{}", kept.table());
}
