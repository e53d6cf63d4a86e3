//! The scenario under test, and candidates as scenario files.

use crate::candidate::Candidate;
use crate::change::{Bounds, Change, Kind};
use crate::error::SearchError;
use crate::minimal::without_nulls;
use crate::property::{Comparison, Property, TESTED, control};
use serde_json::{Map, Value, json};
use vmcc_cc::Algorithm;
use vmcc_network::{LinkSettings, Loss};
use vmcc_scenario::model::{Coupling, Protocol, Traffic, TrafficKind};
use vmcc_scenario::{ClaimSpec, Document, Overrides, Plan, Scenario, ScenarioError};
use vmcc_units::{BitsPerSec, Nanos};

/// Most paths: each adds a run to every candidate.
const MAX_PATHS: usize = 8;
/// Shortest time that changes need, in milliseconds.
const MIN_ROOM_MS: u32 = 100;
/// Controls where the user names none: RFC 5681, or its form for marks.
const CONTROL: &str = "reno";
const CONTROL_WITH_ECN: &str = "dctcp";

/// The bottleneck of a path, as the scenario has it.
#[derive(Debug, Clone)]
struct Bottleneck {
    link: String,
    rate: BitsPerSec,
    delay: Nanos,
    loss: Loss,
}

/// A scenario whose measured connections are under test.
#[derive(Debug, Clone)]
pub struct Subject {
    name: String,
    algorithm: String,
    control: String,
    tree: Map<String, Value>,
    paths: Vec<String>,
    bottlenecks: Vec<Bottleneck>,
    /// Entries under test: index, key in overrides, the control's settings on each path.
    controls: Vec<(usize, String, Vec<Value>)>,
    rivals: Vec<(String, usize)>,
    bounds: Bounds,
    warmup: Nanos,
}

impl Subject {
    /// The only case of `plan`, compared with TCP under the algorithm `control`. Absent: `reno`, or `dctcp` where the algorithm under test
    /// needs ECN.
    ///
    /// # Errors
    /// The plan has several cases, no named paths or no endless connections, or cannot be compared with single TCP connections.
    pub fn new(plan: &Plan, control: Option<&str>) -> Result<Self, SearchError> {
        let mut scenario = only_case(plan)?.clone();
        let tested = tested_entries(&scenario)?;
        name_entries(&mut scenario, &tested);
        let scenario = &scenario;
        let algorithm = algorithm_of(scenario, &tested)?;
        let control = control_of(&algorithm, control)?;
        let network = scenario.topology.network();
        let allowed = |entry: &Traffic, name: &String| {
            entry.common.path.as_ref().is_none_or(|only| only.0.contains(name))
        };
        let used = |name: &String| tested.iter().any(|index| allowed(&scenario.traffic[*index], name));
        let (paths, bottlenecks): (Vec<String>, Vec<Bottleneck>) = network
            .paths
            .iter()
            .filter(|path| used(&path.name))
            .map(|path| {
                let LinkSettings { rate, delay, loss, .. } = network.port(path.queue).settings;
                let link = network.cable_of(path.queue).to_owned();
                (path.name.clone(), Bottleneck { link, rate, delay, loss })
            })
            .unzip();
        if paths.is_empty() || paths.len() > MAX_PATHS {
            return Err(SearchError::unsuitable(
                format!("{}: it has {} named paths for the connections under test", plan.name, paths.len()),
                format!(
                    "give it a topology with 1 to {MAX_PATHS} named paths, such as parallel-paths, or a `path` to its traffic"
                ),
            ));
        }
        let on_path = |index: &usize| {
            let entry = &scenario.traffic[*index];
            let settings = |path: &String| {
                // Beside entries that take a path, those that cannot stay on their own first.
                let own = || entry.common.path.as_ref().and_then(|only| only.0.first());
                let path = if allowed(entry, path) { path } else { own().unwrap_or(path) };
                let mut settings = json!({ "protocol": "tcp", "cc": control, "path": path });
                if entry.common.subflows.is_some() {
                    settings["subflows"] = json!(1);
                }
                settings
            };
            (*index, override_key(scenario, *index), paths.iter().map(settings).collect())
        };
        let controls = tested.iter().map(on_path).collect();
        let subject = Self {
            name: plan.name.clone(),
            algorithm,
            control,
            tree: tree_of(scenario),
            rivals: rivals(scenario, &paths),
            bounds: bounds(scenario, paths.len())?,
            warmup: scenario.warmup,
            paths,
            bottlenecks,
            controls,
        };
        subject.check_meaning(scenario)?;
        Ok(subject)
    }

    /// Checks that the scenario, written as a file, is still the same.
    fn check_meaning(&self, scenario: &Scenario) -> Result<(), SearchError> {
        let written = self.unchanged()?;
        let duration = Nanos::from_millis(self.bounds.end_ms.into());
        let expected = Scenario { source: None, description: None, runs: 1, duration, ..scenario.clone() };
        if written.cases.first().is_some_and(|case| case.scenario == expected) {
            return Ok(());
        }
        Err(SearchError::unsuitable(
            format!("{}: the resolved scenario cannot be written as one file", self.name),
            "give its values in the file itself, without files beside it",
        ))
    }

    /// Name of the scenario.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Algorithm under test.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// Algorithm of the TCP connections in the comparison.
    pub fn control(&self) -> &str {
        &self.control
    }

    /// Simulator runs of one candidate: the connections under test, and one TCP connection on each path.
    pub fn runs_per_candidate(&self) -> u32 {
        1 + self.paths.len() as u32
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Seed of run `run` of the scenario, from 0.
    pub(crate) fn seed(&self, run: u32) -> u64 {
        let first = self.tree.get("seed").and_then(Value::as_u64).unwrap_or(1);
        first.wrapping_add(run.into())
    }

    /// Claims of `properties` about a candidate, each with its property.
    pub(crate) fn claims(
        &self,
        candidate: &Candidate,
        properties: &[Property],
    ) -> Vec<(Property, ClaimSpec)> {
        let flows = candidate.changes.iter().enumerate().filter(|(_, change)| change.kind == Kind::Flow);
        let flows = flows.map(|(index, change)| (flow_name(index), change.path));
        let rivals: Vec<(String, usize)> = self.rivals.iter().cloned().chain(flows).collect();
        let end = Nanos::from_millis(candidate.end_ms.into());
        let window_s = end.get().saturating_sub(self.warmup.get()) as f64 / 1e9;
        let seen = Comparison { paths: &self.paths, rivals: &rivals, window_s };
        let of = |property: Property| property.claims(&seen).into_iter().map(move |claim| (property, claim));
        properties.iter().copied().flat_map(of).collect()
    }

    /// Cases and claims of a candidate.
    pub(crate) fn plan(
        &self,
        candidate: &Candidate,
        claims: &[ClaimSpec],
        runs: u32,
    ) -> Result<Plan, ScenarioError> {
        self.plan_of(&self.candidate_tree(candidate, claims, runs))
    }

    /// Cases and claims of a scenario file.
    pub(crate) fn plan_of(&self, tree: &Map<String, Value>) -> Result<Plan, ScenarioError> {
        Document::parse(&self.name, &text(tree))?.plan(&Overrides::default())
    }

    /// Cases of the scenario as it is.
    pub(crate) fn unchanged(&self) -> Result<Plan, SearchError> {
        self.plan(&Candidate::unchanged(&self.bounds), &[], 1).map_err(SearchError::Control)
    }

    /// The scenario of a candidate as a tree.
    pub(crate) fn candidate_tree(
        &self,
        candidate: &Candidate,
        claims: &[ClaimSpec],
        runs: u32,
    ) -> Map<String, Value> {
        let mut tree = self.tree.clone();
        tree.insert("duration".into(), ms(candidate.end_ms));
        tree.insert("runs".into(), json!(runs));
        let (mut events, mut traffic) = (Vec::new(), Vec::new());
        for (index, change) in candidate.changes.iter().enumerate() {
            self.write(index, change, candidate.end_ms, (&mut events, &mut traffic));
        }
        append(&mut tree, "event", events);
        append(&mut tree, "traffic", traffic);
        tree.insert("sweep".into(), json!({ "variant": self.variants() }));
        if !claims.is_empty() {
            tree.insert("claim".into(), json!(claims));
        }
        tree
    }

    /// The cases that claims compare.
    fn variants(&self) -> Vec<Value> {
        let on_path = |(path, name): (usize, &String)| {
            let entries =
                self.controls.iter().map(|(_, key, settings)| (key.clone(), settings[path].clone()));
            json!({ "name": control(name), "traffic": entries.collect::<Map<String, Value>>() })
        };
        let controls = self.paths.iter().enumerate().map(on_path);
        std::iter::once(json!({ "name": TESTED })).chain(controls).collect()
    }

    /// Writes a change as events or as an entry of traffic.
    fn write(
        &self,
        index: usize,
        change: &Change,
        end_ms: u32,
        (events, traffic): (&mut Vec<Value>, &mut Vec<Value>),
    ) {
        let own = &self.bottlenecks[change.path];
        let link = own.link.as_str();
        let event = |at: u32, kind: &str| json!({ "at": ms(at), "kind": kind, "link": link });
        let (from, until) = (change.from_ms, change.until_ms);
        let set = |kind: &str, key: &str, changed: Value, before: Value| {
            [(from, changed), (until, before)].map(|(at, value)| {
                let mut event = event(at, kind);
                event[key] = value;
                event
            })
        };
        let [first, last] = match change.kind {
            Kind::Rate { percent } => {
                set("set-rate", "rate", json!(share(own.rate, percent)), json!(own.rate))
            }
            Kind::Delay { us } => {
                set("set-delay", "delay", json!(Nanos::from_micros(us.into())), json!(own.delay))
            }
            Kind::Loss { per_10k, burst_pkt } => {
                let probability = f64::from(per_10k) / 10_000.0;
                let changed = match burst_pkt {
                    1 => json!(probability),
                    _ => json!({ "probability": probability, "burst": format!("{burst_pkt}pkt") }),
                };
                set("set-loss", "loss", changed, without_nulls(json!(own.loss)))
            }
            Kind::Outage => [event(from, "link-down"), event(until, "link-up")],
            Kind::Flow => {
                return traffic.push(self.entry(
                    change,
                    json!({ "name": flow_name(index), "kind": "bulk", "protocol": "tcp", "cc": self.control, "competing": true }),
                ));
            }
            Kind::Datagrams { percent, on_ms, off_ms } => {
                return traffic.push(self.entry(
                    change,
                    json!({
                        "name": format!("added-udp{}", index + 1), "kind": "on-off-udp",
                        "rate": share(own.rate, percent), "on": ms(on_ms), "off": ms(off_ms),
                    }),
                ));
            }
        };
        events.push(first);
        if until < end_ms {
            events.push(last);
        }
    }

    /// An entry of traffic on a change's path and in its time, between the hosts under test.
    fn entry(&self, change: &Change, mut entry: Value) -> Value {
        let tested = self.controls.first().and_then(|(index, ..)| self.tree.get("traffic")?.get(*index));
        for key in ["from", "to"] {
            if let Some(hosts) = tested.and_then(|tested| tested.get(key)) {
                entry[key] = hosts.clone();
            }
        }
        entry["path"] = json!(self.paths[change.path]);
        entry["start"] = ms(change.from_ms);
        entry["stop"] = ms(change.until_ms);
        entry
    }
}

/// Gives unnamed entries under test their label as a name. Random draws of named entries depend on nothing else, so they are the same in all
/// cases.
fn name_entries(scenario: &mut Scenario, tested: &[usize]) {
    let labels = Traffic::labels(&scenario.traffic);
    for index in tested {
        scenario.traffic[*index].common.name = Some(labels[*index].clone());
    }
}

/// The entry in overrides: its name, or its index if the name is a number.
fn override_key(scenario: &Scenario, index: usize) -> String {
    let name = scenario.traffic[index].common.name.as_ref().filter(|name| name.parse::<usize>().is_err());
    name.cloned().unwrap_or_else(|| index.to_string())
}

fn flow_name(index: usize) -> String {
    format!("added-tcp{}", index + 1)
}

fn ms(value: u32) -> Value {
    json!(Nanos::from_millis(value.into()))
}

/// `percent` of a rate, at least the lowest rate that scenarios have.
fn share(rate: BitsPerSec, percent: u32) -> BitsPerSec {
    const LEAST: u64 = 10_000;
    BitsPerSec::new((rate.get() / 100).saturating_mul(percent.into()).max(LEAST))
}

fn append(tree: &mut Map<String, Value>, key: &str, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    if let Value::Array(items) = tree.entry(key).or_insert_with(|| json!([])) {
        items.extend(more);
    }
}

/// The TOML of a tree without nulls.
pub(crate) fn text(tree: &Map<String, Value>) -> String {
    toml::to_string(tree).unwrap_or_default()
}

fn tree_of(scenario: &Scenario) -> Map<String, Value> {
    match without_nulls(json!(scenario)) {
        Value::Object(mut tree) => {
            for key in ["source", "description"] {
                tree.remove(key);
            }
            tree
        }
        _ => Map::new(),
    }
}

fn only_case(plan: &Plan) -> Result<&Scenario, SearchError> {
    match plan.cases.as_slice() {
        [case] => Ok(&case.scenario),
        cases => {
            let axes =
                cases.first().map(|case| case.set.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
            let choice = axes.iter().map(|axis| format!("--set {axis}=VALUE")).collect::<Vec<_>>().join(" ");
            Err(SearchError::unsuitable(
                format!("{}: it has {} cases, and a search is about one", plan.name, cases.len()),
                format!("choose one with {choice}"),
            ))
        }
    }
}

/// Indices of the measured entries with connections, all of which must be endless.
fn tested_entries(scenario: &Scenario) -> Result<Vec<usize>, SearchError> {
    let mut tested = Vec::new();
    for (index, (entry, label)) in scenario.traffic.iter().zip(Traffic::labels(&scenario.traffic)).enumerate()
    {
        if entry.is_competing() || !entry.kind.has_connections() {
            continue;
        }
        if !matches!(entry.kind, TrafficKind::Bulk(_)) {
            return Err(SearchError::unsuitable(
                format!(
                    "traffic `{label}` is `{}`: its goodput says nothing about congestion control",
                    entry.kind.name()
                ),
                "make it `bulk`, or give it competing = true",
            ));
        }
        if entry.common.coupling == Some(Coupling::Combined)
            || scenario.host.coupling == Some(Coupling::Combined)
        {
            return Err(SearchError::unsuitable(
                format!("traffic `{label}`: `coupling = \"combined\"` has no counterpart over TCP"),
                "leave the key out",
            ));
        }
        tested.push(index);
    }
    if tested.is_empty() {
        return Err(SearchError::unsuitable(
            "no traffic is under test: all of it competes",
            "add an entry of kind `bulk`",
        ));
    }
    Ok(tested)
}

fn algorithm_of(scenario: &Scenario, tested: &[usize]) -> Result<String, SearchError> {
    let of = |index: &usize| scenario.traffic[*index].common.cc.as_ref().unwrap_or(&scenario.host.cc);
    let mut names: Vec<&String> = tested.iter().map(of).collect();
    names.sort();
    names.dedup();
    match names.as_slice() {
        [one] => Ok((*one).clone()),
        several => Err(SearchError::unsuitable(
            format!("the measured traffic has {} congestion controls", several.len()),
            "test one at a time: give the others competing = true",
        )),
    }
}

fn control_of(tested: &str, wanted: Option<&str>) -> Result<String, SearchError> {
    let find = |name: &str| {
        Algorithm::by_name(name)
            .map_err(|error| SearchError::unsuitable(error.to_string(), "`vmcc algorithms` lists them"))
    };
    let needs_ecn = find(tested)?.info().needs_ecn;
    let name = wanted.unwrap_or(if needs_ecn { CONTROL_WITH_ECN } else { CONTROL });
    find(name).map(|found| found.name().to_owned())
}

/// Competing endless TCP connections of the scenario that stay on one path.
fn rivals(scenario: &Scenario, paths: &[String]) -> Vec<(String, usize)> {
    let entries = Traffic::labels(&scenario.traffic).into_iter().zip(&scenario.traffic);
    let rival = |(label, entry): (String, &Traffic)| {
        let tcp = entry.is_competing()
            && matches!(entry.kind, TrafficKind::Bulk(_))
            && entry.protocol(&scenario.host) == Protocol::Tcp;
        let path = match entry.common.path.as_ref().map(|only| only.0.as_slice()) {
            Some([one]) => paths.iter().position(|path| path == one),
            None if paths.len() == 1 => Some(0),
            _ => None,
        };
        tcp.then_some(label).zip(path)
    };
    entries.filter_map(rival).collect()
}

/// Changes begin after the warm-up, and after a tenth of the run: a connection whose first path is down cannot begin.
fn bounds(scenario: &Scenario, paths: usize) -> Result<Bounds, SearchError> {
    let ms = |time: Nanos| u32::try_from(time.get() / 1_000_000).unwrap_or(u32::MAX);
    let (end_ms, warmup_ms) = (ms(scenario.duration), ms(scenario.warmup));
    let bounds = Bounds { paths, start_ms: warmup_ms.max(end_ms / 10), end_ms };
    if bounds.end_ms.saturating_sub(bounds.start_ms) < MIN_ROOM_MS {
        return Err(SearchError::unsuitable(
            format!("duration: {} leaves no time for changes after the warm-up", scenario.duration),
            "give it a longer `duration`; some seconds are usual",
        ));
    }
    Ok(bounds)
}
