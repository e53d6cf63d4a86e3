//! Visits of a namespace whose kernel is a list of subflows.

use super::{FAILED, busy, idle, request, seconds, subflow};
use crate::action::{Action, GuardEvent};
use crate::machine::{Activity, Backoffs, Command, Machine, Outcome, Output, RequestCounts};
use crate::policy::Policy;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_system::diag::{CaState, Mptcp, Subflow};

const NETNS: u32 = 1;
/// Closes at once, on request only.
const ON_REQUEST: Policy = Policy { failed: None, ..FAILED };
const DRAINS: Policy = Policy { drain: Duration::from_secs(1), ..ON_REQUEST };

/// A kernel with the subflows of some connections.
struct Kernel {
    subflows: Vec<Subflow>,
    /// It manages paths itself.
    manages: bool,
    /// Outcome of renewed endpoints.
    renewed: Outcome,
    /// It refuses every command.
    refuses: bool,
    commands: Vec<Command>,
}

impl Kernel {
    fn new(subflows: impl Into<Vec<Subflow>>) -> Self {
        let (renewed, commands) = (Outcome::Done, Vec::new());
        Self { subflows: subflows.into(), manages: false, renewed, refuses: false, commands }
    }

    fn perform(&mut self, command: &Command) -> Outcome {
        self.commands.push(command.clone());
        match command {
            _ if self.refuses => Outcome::Failed,
            Command::Close(subflow) => {
                let before = self.subflows.len();
                self.subflows.retain(|s| s.cookie != subflow.cookie);
                if self.subflows.len() < before { Outcome::Done } else { Outcome::NotFound }
            }
            Command::SetBackup(..) | Command::Reopen(_) if self.manages => Outcome::KernelManaged,
            Command::SetBackup(subflow, backup) => {
                for one in self.subflows.iter_mut().filter(|s| s.cookie == subflow.cookie) {
                    one.mptcp = one.mptcp.map(|mptcp| Mptcp { backup: *backup, ..mptcp });
                }
                Outcome::Done
            }
            Command::Reopen(_) => Outcome::Done,
            Command::Renew(..) => self.renewed,
        }
    }

    /// A round of the guard. Events by kind and cookie; requests that were followed are `None`.
    fn round(&mut self, machine: &mut Machine, now: f64) -> Vec<(Option<Action>, u8)> {
        // Something happens all the time.
        let activity = Activity::from([(NETNS, now.to_bits())]);
        let mut events = Vec::new();
        for netns in machine.begin(seconds(now), || activity) {
            let topology = machine.needs_topology().then_some(7);
            let mut visit = machine.visit(seconds(now), netns, self.subflows.clone(), topology);
            while let Some(output) = visit.poll() {
                match output {
                    Output::Report(GuardEvent::Closed(request)) => {
                        events.push((None, cookie_of(request.local)))
                    }
                    Output::Report(GuardEvent::Action(one)) => {
                        events.push((Some(one.action), cookie_of(one.local)));
                    }
                    Output::Perform(command) => visit.outcome(self.perform(&command)),
                }
            }
        }
        events
    }

    fn cookies(&self) -> Vec<u8> {
        self.subflows.iter().map(|s| s.cookie[0]).collect()
    }
}

fn cookie_of(local: SocketAddr) -> u8 {
    match local.ip() {
        IpAddr::V4(ip) => ip.octets()[2],
        IpAddr::V6(_) => 0,
    }
}

fn machine(policy: Policy) -> Machine {
    Machine::new(policy, vec!["mp_vmcc"], Backoffs::default())
}

fn requesting(policy: Policy, requests: &[CloseRequest]) -> Machine {
    let mut machine = machine(policy);
    machine.enqueue(requests.to_vec(), "mp_vmcc");
    machine
}

fn paths<const COUNT: usize>() -> [Subflow; COUNT] {
    std::array::from_fn(|at| subflow(at as u8 + 1, 5))
}

fn lost(subflow: &Subflow) -> Subflow {
    Subflow { ca_state: CaState::Loss, ..subflow.clone() }
}

#[test]
fn one_of_two_mutually_accused_paths_survives() {
    let all = paths::<2>();
    let requests = [request(&all[0], &all[1]), request(&all[1], &all[0])];
    let (mut machine, mut kernel) = (requesting(ON_REQUEST, &requests), Kernel::new(all));
    assert_eq!(kernel.round(&mut machine, 0.0), [(None, 1)]);
    assert_eq!(kernel.cookies(), [2]);
    assert_eq!(machine.counts(), RequestCounts { closed: 1, pending: 1, ..RequestCounts::default() });
    assert_eq!(kernel.round(&mut machine, 6.0), [], "nothing to keep, for five seconds");
    assert_eq!(machine.counts(), RequestCounts { closed: 1, nothing_to_keep: 1, ..RequestCounts::default() });
    assert_eq!(kernel.cookies(), [2]);
}

#[test]
fn request_waits_until_the_path_to_keep_is_alive() {
    let all = paths::<2>();
    let mut machine = requesting(ON_REQUEST, &[CloseRequest { cookie: 0, ..request(&all[1], &all[0]) }]);
    let mut kernel = Kernel::new([lost(&all[0]), all[1].clone()]);
    assert_eq!(kernel.round(&mut machine, 0.0), []);
    assert!(!machine.is_due(seconds(0.4)) && machine.is_due(seconds(0.5)), "it is examined again by scans");
    kernel.subflows = all.to_vec();
    assert_eq!(kernel.round(&mut machine, 0.1), [], "between scans");
    assert_eq!(kernel.round(&mut machine, 0.6), [(None, 2)]);
    assert_eq!(machine.counts().closed, 1);
    // Meanwhile the ends of another request belong to another socket.
    let mut machine = requesting(ON_REQUEST, &[CloseRequest { cookie: 0, ..request(&all[1], &all[0]) }]);
    let mut kernel = Kernel::new([lost(&all[0]), all[1].clone()]);
    kernel.round(&mut machine, 0.0);
    kernel.subflows = vec![all[0].clone(), Subflow { cookie: [9; 8], ..all[1].clone() }];
    assert_eq!(kernel.round(&mut machine, 0.6), []);
    assert_eq!(machine.counts(), RequestCounts { gone: 1, ..RequestCounts::default() });
}

#[test]
fn path_drains_before_it_is_closed() {
    let all = paths::<3>();
    let of = |kernel: &mut Kernel, policy| {
        let mut machine = requesting(policy, &[request(&all[1], &all[0])]);
        let events = [0.0, 0.2, 0.9, 1.0, 1.2].map(|now| kernel.round(&mut machine, now));
        (events.concat(), events.iter().position(|events| events.contains(&(None, 2))), machine.counts())
    };
    let closed = RequestCounts { closed: 1, ..RequestCounts::default() };
    let drained = [(Some(Action::Draining), 2), (None, 2)];
    assert_eq!(of(&mut Kernel::new(all.clone()), DRAINS), (drained.to_vec(), Some(3), closed));
    let empty = [all[0].clone(), idle(all[1].clone()), all[2].clone()];
    assert_eq!(of(&mut Kernel::new(empty), DRAINS), (drained.to_vec(), Some(0), closed), "all acknowledged");
    let mut managed = Kernel { manages: true, ..Kernel::new(all.clone()) };
    assert_eq!(of(&mut managed, DRAINS), (vec![(None, 2)], Some(0), closed), "the kernel sets no backup");
    assert_eq!(of(&mut Kernel::new(all.clone()), ON_REQUEST), (vec![(None, 2)], Some(0), closed));
    let mut refusing = Kernel { refuses: true, ..Kernel::new(all.clone()) };
    let failed = RequestCounts { failed: 1, ..RequestCounts::default() };
    for policy in [DRAINS, ON_REQUEST] {
        assert_eq!(of(&mut refusing, policy), (vec![], None, failed));
    }
}

#[test]
fn last_path_is_released_while_it_drains() {
    let all = paths::<2>();
    let mut machine = requesting(DRAINS, &[request(&all[1], &all[0])]);
    let mut kernel = Kernel::new(all);
    assert_eq!(kernel.round(&mut machine, 0.0), [(Some(Action::Draining), 2)]);
    kernel.subflows.remove(0);
    assert_eq!(kernel.round(&mut machine, 0.2), [(Some(Action::Released), 2)]);
    assert!(!kernel.subflows[0].mptcp.unwrap().backup);
    assert_eq!(kernel.round(&mut machine, 2.0), []);
    assert_eq!(machine.counts(), RequestCounts { nothing_to_keep: 1, ..RequestCounts::default() });
}

#[test]
fn repeated_request_for_a_retained_path_is_reported_once() {
    let all = paths::<3>();
    let policy = Policy { min_paths: 3, ..ON_REQUEST };
    let repeated = [request(&all[1], &all[0]); 3];
    let (mut machine, mut kernel) = (requesting(policy, &repeated), Kernel::new(all));
    assert_eq!(kernel.round(&mut machine, 0.0), [(Some(Action::Retained), 2)]);
    assert_eq!(machine.counts(), RequestCounts { retained: 3, ..RequestCounts::default() });
    assert_eq!(kernel.commands, []);
}

#[test]
fn repeated_request_for_a_draining_path_has_no_effect() {
    let all = paths::<3>();
    let repeated = [request(&all[1], &all[0]); 3];
    let (mut machine, mut kernel) = (requesting(DRAINS, &repeated), Kernel::new(all));
    assert_eq!(kernel.round(&mut machine, 0.0), [(Some(Action::Draining), 2)]);
    assert_eq!(kernel.commands.len(), 1);
    assert_eq!(machine.counts().pending, 1);
}

#[test]
fn dry_run_reports_and_performs_nothing() {
    let all = paths::<3>();
    let policy = Policy { dry_run: true, ..DRAINS };
    let requests = [request(&all[1], &all[0]), request(&all[2], &all[0]), request(&all[0], &all[1])];
    let (mut machine, mut kernel) = (requesting(policy, &requests), Kernel::new(all));
    let would = |cookie| (Some(Action::WouldClose), cookie);
    let retained = (Some(Action::Retained), 1);
    assert_eq!(kernel.round(&mut machine, 0.0), [would(2), would(3), retained], "the first is the last one");
    assert_eq!(kernel.commands, []);
}

#[test]
fn closed_path_is_reopened_after_its_backoff() {
    let all = paths::<2>();
    let policy = Policy { retry: Some(seconds(10.0)), ..ON_REQUEST };
    let rounds = |kernel: &mut Kernel| {
        let mut machine = requesting(policy, &[request(&all[1], &all[0])]);
        let mut events = Vec::new();
        for second in 0..45 {
            let now = f64::from(second);
            events.extend(kernel.round(&mut machine, now).into_iter().map(|(action, _)| (second, action)));
        }
        events
    };
    let tried = |second| (second, Some(Action::TriedAgain));
    let mut kernel = Kernel::new(all.clone());
    assert_eq!(rounds(&mut kernel), [(0, None), tried(10), tried(20), tried(40)], "it does not join");
    let renews = |command: &Command| matches!(command, Command::Renew(..));
    assert!(!kernel.commands.iter().any(renews));
    let mut managed = Kernel { manages: true, ..Kernel::new(all.clone()) };
    assert_eq!(rounds(&mut managed), [(0, None), tried(10), tried(20), tried(40)]);
    assert_eq!(managed.commands.iter().filter(|command| renews(command)).count(), 3);
    for renewed in [Outcome::NoEndpoint, Outcome::EndpointInUse] {
        let mut unable = Kernel { manages: true, renewed, ..Kernel::new(all.clone()) };
        assert_eq!(rounds(&mut unable), [(0, None), (10, Some(Action::NotTriedAgain))], "reported once");
        assert_eq!(unable.commands.iter().filter(|command| renews(command)).count(), 4, "and no back-off");
    }
}

#[test]
fn useless_path_is_suppressed_and_released_after_its_backoff() {
    let policy = Policy { useless: Some(10.0), retry: Some(seconds(20.0)), ..ON_REQUEST };
    let at = |now: f64| [busy(now, subflow(1, (now * 1e6) as u64)), busy(now, subflow(2, 0))];
    let rounds = |manages| {
        let (mut machine, mut kernel) = (machine(policy), Kernel { manages, ..Kernel::new(at(0.0)) });
        let mut events = Vec::new();
        for half in 0..70 {
            let now = f64::from(half) / 2.0;
            for (subflow, next) in kernel.subflows.iter_mut().zip(at(now)) {
                *subflow = Subflow { mptcp: subflow.mptcp, ..next };
            }
            events.extend(kernel.round(&mut machine, now).into_iter().map(|event| (now, event)));
        }
        (events, machine, kernel)
    };
    let (events, mut machine, mut kernel) = rounds(false);
    let suppressed = |now| (now, (Some(Action::Suppressed), 2));
    assert_eq!(events, [suppressed(10.0), (30.0, (Some(Action::Released), 2))]);
    // The next one begins with the back-offs, and nothing is a backup any more.
    kernel.subflows.truncate(1);
    kernel.round(&mut machine, 35.0);
    let mut next = Machine::new(policy, vec!["mp_vmcc"], machine.end(seconds(35.0)));
    assert_eq!(next.begin(seconds(36.0), Activity::default), [NETNS].into());
    let (events, ..) = rounds(true);
    assert_eq!(events[0], (10.0, (Some(Action::Closed), 2)), "the kernel sets no backup");
}

#[test]
fn failed_path_is_closed_without_a_request() {
    let at = |now: f64| {
        let silent = Subflow { retransmitted_pkt: (now * 10.0) as u32, ..subflow(2, now.min(1.0) as u64) };
        [subflow(1, (now * 1e6) as u64), silent]
    };
    let policy = Policy { drain: seconds(1.0), ..FAILED };
    let (mut machine, mut kernel) = (machine(policy), Kernel::new(at(0.0)));
    let mut events = Vec::new();
    for half in 0..10 {
        let now = f64::from(half) / 2.0;
        let there = kernel.subflows.len();
        kernel.subflows = at(now)[..there].to_vec();
        events.extend(kernel.round(&mut machine, now));
    }
    assert_eq!(events, [(Some(Action::Closed), 2)], "on a failed path nothing drains");
    assert_eq!(machine.counts(), RequestCounts::default());
}

#[test]
fn command_without_an_outcome_counts_as_failed() {
    let all = paths::<2>();
    let mut machine = requesting(ON_REQUEST, &[request(&all[1], &all[0])]);
    machine.begin(seconds(0.0), Activity::default);
    let mut visit = machine.visit(seconds(0.0), NETNS, all.to_vec(), None);
    assert!(matches!(visit.poll(), Some(Output::Perform(Command::Close(_)))));
    assert_eq!((visit.poll(), visit.subflows().len()), (None, 2));
    visit.outcome(Outcome::Done);
    assert_eq!(visit.poll(), None);
    assert_eq!(machine.counts(), RequestCounts { failed: 1, ..RequestCounts::default() });
}

#[test]
fn namespace_that_is_gone_leaves_no_state() {
    let all = paths::<3>();
    let requests = [request(&all[1], &all[0]), request(&all[2], &all[0])];
    let (mut machine, mut kernel) = (requesting(DRAINS, &requests[..1]), Kernel::new(all));
    kernel.round(&mut machine, 0.0);
    machine.enqueue(requests[1..].to_vec(), "mp_vmcc");
    let dropped = machine.drop_namespace(NETNS);
    assert!(dropped.had_request);
    assert_eq!(dropped.draining.iter().map(|s| s.cookie[0]).collect::<Vec<_>>(), [2]);
    assert_eq!(machine.counts(), RequestCounts { gone: 2, ..RequestCounts::default() });
    assert!(!machine.is_due(seconds(9.0)));
    assert!(machine.begin(seconds(9.0), Activity::default).is_empty());
}

#[test]
fn scans_enter_no_idle_namespace() {
    for count in [1000, 4000] {
        let mut machine = machine(FAILED);
        let idle: Activity = (1..=count).map(|netns| (netns, 7)).collect();
        let mut now = 0.0;
        let mut scan = |namespaces: &Activity| {
            now += 1.0;
            let namespaces = namespaces.clone();
            machine.begin(seconds(now), || namespaces)
        };
        assert_eq!(scan(&idle).len(), count as usize, "each is new");
        assert_eq!(scan(&idle), [].into(), "of {count}");
        let mut one_is_active = idle.clone();
        one_is_active.insert(count / 2, 8);
        assert_eq!(scan(&one_is_active), [count / 2].into(), "of {count}");
        assert_eq!(scan(&one_is_active), [].into(), "of {count}");
    }
}
