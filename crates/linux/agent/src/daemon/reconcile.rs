//! Reconciles every resource: sets the desired values and rolls back those that are no longer desired.

use super::apply::{apply, roll_back};
use super::contention::Contention;
use super::desired::{self, Desired};
use super::event::Event;
use super::readiness::Readiness;
use super::record::{self, Place, Record};
use super::resource::{
    Resource, ResourceError, all_endpoints, endpoint_text, follow, is_implicit, waits_for_announcements,
};
use super::settling::Settling;
use super::usage::{InUse, Usage};
use crate::config::{Config, Mptcp, Settings};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use vmcc_bpf::reassign;
use vmcc_netlink::{Changes, Endpoint, Links};
use vmcc_system::diag::{Diag, Subflow};
use vmcc_system::namespaces::{self, NAMED};
use vmcc_system::{mptcp, netns};
use wildmatch::WildMatch;

/// Name of the agent's own namespace.
const OWN_NAME: &str = "host";

/// Kernel announcements that begin a round, by the cookies of the namespaces.
pub(crate) type Watches = BTreeMap<(u64, Watch), Changes>;

/// Subject of announcements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watch {
    /// Links and addresses.
    Addresses,
    /// The neighbour table, only while an interface waits for its neighbours: it changes all the time on a busy link.
    Neighbours,
}

/// State between rounds, besides the record.
#[derive(Default)]
pub(crate) struct ReconcileState {
    /// Begin of the latest round.
    began: Option<Instant>,
    pub(crate) watches: Watches,
    readiness: Readiness,
    contention: Contention,
    settling: Settling,
    /// Endpoints that are no longer desired and that connections depend on, by namespace.
    retained: BTreeSet<(u64, Resource)>,
}

impl ReconcileState {
    /// Time of the next round if nothing is announced.
    pub(crate) fn due(&self) -> Option<Instant> {
        let settled = self.settling.until_settled().map(|rest| Instant::now() + rest);
        self.readiness
            .next()
            .into_iter()
            .chain(self.began.and_then(|began| self.contention.next(began)))
            .chain(settled)
            .min()
    }
}

/// One pass over every namespace and resource.
pub(crate) struct Reconciler<'a> {
    record: &'a mut Record,
    state: &'a mut ReconcileState,
    /// Connections of the namespace that is being reconciled.
    usage: Usage,
    pub(crate) events: Vec<Event>,
    /// Values that cannot be set now.
    pub(crate) problems: BTreeSet<String>,
    /// Settings that are as the file says and cannot have their effect.
    pub(crate) warnings: BTreeSet<String>,
    /// Endpoints that could not be rolled back, because connections depend on them.
    pub(crate) retained: Vec<Event>,
    /// The namespaces that were looked at.
    seen: BTreeSet<u64>,
    /// Names of those that could not be.
    unsure: BTreeSet<String>,
    /// True if there may be more namespaces than are known.
    blind: bool,
}

impl<'a> Reconciler<'a> {
    pub(crate) fn new(record: &'a mut Record, state: &'a mut ReconcileState) -> Self {
        state.began = Some(Instant::now());
        state.settling.begin_round();
        Self {
            record,
            state,
            usage: Usage::default(),
            events: Vec::new(),
            problems: BTreeSet::new(),
            warnings: BTreeSet::new(),
            retained: Vec::new(),
            seen: BTreeSet::new(),
            unsure: BTreeSet::new(),
            blind: false,
        }
    }

    pub(crate) fn reconcile(&mut self, config: &Config) {
        self.state.contention.guard_settles = config.guard.is_some_and(|policy| policy.retry.is_some());
        let mut kernel = desired::algorithms(config);
        kernel.extend(self.cgroups(config));
        self.warnings.extend(desired::cgroup_warnings(config));
        // Those that are no longer wanted go last: until then a namespace may have one as its default.
        self.set_all(&Place::kernel(), &kernel, &BTreeSet::new());
        self.namespaces(config);
        self.roll_back_uncovered();
        self.roll_back_undesired(&Place::kernel(), &kernel);
        let seen = &self.seen;
        self.state.watches.retain(|(cookie, _), _| seen.contains(cookie));
        if !self.blind && self.unsure.is_empty() {
            self.state.readiness.retain(seen);
            self.state.retained.retain(|(cookie, _)| seen.contains(cookie));
        }
    }

    /// If they cannot be found, what was set stays.
    fn cgroups(&mut self, config: &Config) -> Desired {
        desired::cgroups(config).unwrap_or_else(|fault| {
            self.problem("cgroups", &fault);
            let is_one =
                |entry: &&record::Entry| matches!(entry.resource, Resource::Cgroup(_) | Resource::Upgrade(_));
            let known = self.record.entries().filter(is_one);
            known.filter_map(|entry| Some((entry.resource.clone(), entry.ours.last()?.clone()))).collect()
        })
    }

    fn namespaces(&mut self, config: &Config) {
        match namespaces::own() {
            Ok(own) => self.namespace(OWN_NAME, own.as_fd(), &config.host, desired::ports(config)),
            Err(error) => self.problem(OWN_NAME, &error.into()),
        }
        // Who names none has no business with what lies there.
        if config.namespaces.is_empty() {
            return;
        }
        let names = namespaces::names().unwrap_or_else(|source| {
            self.blind = true;
            self.problem(NAMED, &ResourceError::File { file: NAMED.to_owned(), source });
            Vec::new()
        });
        for name in names {
            let rule = config.namespaces.iter().find(|rule| WildMatch::new(&rule.name).matches(&name));
            let Some(rule) = rule else { continue };
            match namespaces::named(&name) {
                Ok(Some(fd)) => self.namespace(&name, fd.as_fd(), &rule.settings(), Vec::new()),
                Ok(None) => {}
                Err(source) => self.unsure(&name, &ResourceError::Namespace { source }),
            }
        }
    }

    /// It is there, and was not looked at.
    fn unsure(&mut self, name: &str, fault: &ResourceError) {
        self.unsure.insert(name.to_owned());
        self.problem(name, fault);
    }

    fn namespace(&mut self, name: &str, fd: BorrowedFd<'_>, settings: &Settings, ports: Desired) {
        let done = netns::within(fd, || {
            let cookie = netns::cookie()
                .map_err(|source| ResourceError::Netlink { action: "tell namespaces apart", source })?;
            // The agent's own may have a name, too, and two names may be one.
            if self.seen.insert(cookie) {
                self.usage = Usage::default();
                self.reconcile_here(&Place { cookie, name: name.to_owned() }, settings, ports)?;
            }
            Ok(())
        });
        if let Err(fault) = done.map_err(ResourceError::from).and_then(|done| done) {
            self.unsure(name, &fault);
        }
    }

    /// Reconciles the calling thread's namespace. Subscribes to changes first, so that none is missed.
    fn reconcile_here(
        &mut self,
        place: &Place,
        settings: &Settings,
        ports: Desired,
    ) -> Result<(), ResourceError> {
        let watched = |source| ResourceError::Netlink { action: "subscribe to address changes", source };
        if let Entry::Vacant(vacant) = self.state.watches.entry((place.cookie, Watch::Addresses)) {
            vacant.insert(Changes::open().map_err(watched)?);
        }
        let mut desired = desired::settings(settings);
        let there = self.endpoints(place, settings, &mut desired)?;
        desired.extend(ports);
        // First, as there may be no room for more endpoints.
        self.roll_back_undesired(place, &desired);
        self.clear_exchanged_ids(place, &desired, &there);
        let unsettled = self.unsettled(place, &desired, &there);
        let there = there.iter().filter(|one| !is_implicit(one));
        self.set_all(place, &unsettled, &there.map(Resource::endpoint).collect());
        self.try_retained(place, &desired);
        self.announce_again(place, &desired)?;
        for resource in self.state.contention.of(place) {
            self.problem(&format!("{}: {resource}", place.name), &ResourceError::Contended);
        }
        self.add_warnings(place, settings);
        if settings.live
            && let Err(fault) = self.follow(place, &desired)
        {
            let of = format!("{}: connections that run keep their congestion control", place.name);
            self.problem(&of, &fault);
        }
        Ok(())
    }

    /// The endpoints that are wanted now, and those that are there. Interfaces that come back wait for a neighbour, whose
    /// answer is announced like a change of addresses.
    fn endpoints(
        &mut self,
        place: &Place,
        settings: &Settings,
        desired: &mut Desired,
    ) -> Result<Vec<Endpoint>, ResourceError> {
        let rules = &settings.mptcp.endpoints;
        if rules.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |source| ResourceError::Netlink { action: "list addresses", source };
        let mut links = Links::open().map_err(failed)?;
        let (nics, addresses) = (links.list().map_err(failed)?, links.addresses().map_err(failed)?);
        let named = desired::named(rules, &nics);
        let of_rules: Vec<_> = named.iter().map(|(nic, _)| *nic).collect();
        let readiness = &mut self.state.readiness;
        let answers = (place.cookie, Watch::Neighbours);
        if !readiness.begin(place.cookie, &of_rules) {
            self.state.watches.remove(&answers);
        } else if let Entry::Vacant(vacant) = self.state.watches.entry(answers) {
            // Before the first solicitation, so that no answer is missed.
            vacant.insert(Changes::of_neighbours().map_err(failed)?);
        }
        let ready = readiness.ready(place.cookie, &of_rules, &mut links).map_err(failed)?;
        let (_, there) = all_endpoints()?;
        let ids = self.state.readiness.ids(place.cookie);
        let (endpoints, warnings) = desired::endpoints(&named, &ready, &addresses, &there, ids);
        desired.extend(endpoints);
        self.warnings.extend(warnings.into_iter().map(|text| format!("{}: {text}", place.name)));
        Ok(there)
    }

    /// Without the endpoints that are as wanted, and on record so: they are listed once, not read one by one.
    fn unsettled(&self, place: &Place, desired: &Desired, there: &[Endpoint]) -> Desired {
        let there = there.iter().filter(|one| !is_implicit(one));
        let there: BTreeMap<Resource, String> =
            there.map(|one| (Resource::endpoint(one), endpoint_text(one))).collect();
        let is_settled = |(resource, value): &(Resource, String)| {
            let entry = || self.record.find(place, resource);
            there.get(resource) == Some(value)
                && entry().is_some_and(|entry| entry.seen.is_some() && entry.ours == [value.as_str()])
        };
        desired.iter().filter(|one| !is_settled(one)).cloned().collect()
    }

    /// A peer that could not connect to a new address in that moment does not try again by itself: an endpoint that no subflow
    /// uses although there are connections is recreated, for a minute.
    fn announce_again(&mut self, place: &Place, desired: &Desired) -> Result<(), ResourceError> {
        let values: BTreeMap<&Resource, &String> =
            desired.iter().map(|(resource, value)| (resource, value)).collect();
        let due = self.state.readiness.trials(place.cookie, &values.keys().copied().collect());
        if due.is_empty() {
            return Ok(());
        }
        let all = Diag::open()?.subflows_and_attempts()?;
        for resource in due {
            let address = resource.address().map(|address| address.to_canonical());
            let uses = |one: &&Subflow| one.mptcp.is_some() && Some(one.local.ip().to_canonical()) == address;
            let here = || all.iter().filter(uses);
            let is_used = here().any(|one| one.established);
            if is_used || !all.iter().any(|one| one.established && one.mptcp.is_some()) {
                self.state.readiness.used(place.cookie, &resource);
                continue;
            }
            // An attempt that is under way may still fail.
            let is_tried = here().next().is_some();
            let Some(value) = values.get(&resource).filter(|_| !is_tried) else { continue };
            let begins = self.state.settling.begin(place, &resource, value).into_owned();
            match resource
                .write(None, &mut self.usage)
                .and_then(|()| resource.write(Some(&begins), &mut self.usage))
                .and_then(|()| self.note(place, &resource, begins))
            {
                Ok(()) => self
                    .events
                    .push(Event::Announced { place: place.name.clone(), what: resource.to_string() }),
                // A connection has just begun there.
                Err(ResourceError::InUse(_)) => {}
                Err(fault) => self.problem(&format!("{}: {resource}", place.name), &fault),
            }
        }
        Ok(())
    }

    /// Removes endpoints that are to have each other's ids, from the kernel and the record, so that they can be added with these. An
    /// endpoint that connections depend on, or that another program has set, keeps its id, and so does each that was to have
    /// that id.
    fn clear_exchanged_ids(&mut self, place: &Place, desired: &Desired, there: &[Endpoint]) {
        let (record, usage) = (&self.record, &mut self.usage);
        let exchanged = desired::exchanges(desired, there, |one| {
            let entry = record.find(place, &Resource::endpoint(one));
            let is_own = entry.is_some_and(|entry| entry.ours.contains(&endpoint_text(one)));
            !is_own || !matches!(usage.of(one), Ok(None))
        });
        for resource in &exchanged {
            let removed = resource
                .write(None, &mut self.usage)
                .and_then(|()| self.record.remove(place, resource).map_err(ResourceError::Record));
            if let Err(fault) = removed {
                self.problem(&format!("{}: {resource}", place.name), &fault);
            }
        }
    }

    /// Notes the value that an endpoint of the record has now.
    fn note(&mut self, place: &Place, resource: &Resource, value: String) -> Result<(), ResourceError> {
        let Some(entry) = self.record.find(place, resource) else { return Ok(()) };
        let noted = record::Entry { ours: vec![value], ..entry.clone() };
        self.record.put(noted).map_err(ResourceError::Record)
    }

    /// Warns of what keeps connections of a namespace that asks for several paths with one.
    fn add_warnings(&mut self, place: &Place, settings: &Settings) {
        if settings.mptcp != Mptcp::default() && !mptcp::kernel_manages_paths() {
            self.warnings.insert(format!(
                "{}: `mptcp` of the file has no effect on new connections: user space manages their paths \
                 (`net.mptcp.pm_type` is 1); set it to 0, or leave `mptcp` out and run a path manager such as mptcpd",
                place.name
            ));
        }
        if settings.wants_several_paths() {
            // Unreadable values are reported when they are set.
            let found = mptcp::obstacles().unwrap_or_default().into_iter();
            self.warnings.extend(found.map(|text| format!("{}: {text}", place.name)));
        }
    }

    /// Subflows that join a connection are given what it began with.
    fn follow(&self, place: &Place, desired: &Desired) -> Result<(), ResourceError> {
        reassign::check_support()?;
        let is_live = |(resource, _): &&(Resource, String)| *resource == Resource::LiveDefault;
        let Some((live, to)) = desired.iter().find(is_live) else { return Ok(()) };
        if live.read()?.as_deref() != Some(to) {
            return Ok(());
        }
        let before = self.record.find(place, &Resource::LiveDefault).and_then(|entry| entry.before.clone());
        follow(before.as_deref(), to, reassign::Scope::All)
    }

    /// `there`: the endpoints of the namespace before this round.
    fn set_all(&mut self, place: &Place, desired: &Desired, there: &BTreeSet<Resource>) {
        let mut without_room = 0;
        for (resource, value) in desired {
            let is_endpoint = resource.address().is_some();
            // After the first that finds none there is none for the others either, but those that are there may change.
            if is_endpoint && without_room > 0 && !there.contains(resource) {
                without_room += 1;
                continue;
            }
            let value = &self.state.settling.value(place, resource, value);
            let said = self.events.len();
            let state = (&mut self.state.contention, &mut self.usage);
            let kept = apply(self.record, place, resource, value, state, &mut self.events);
            if kept.is_err() {
                self.state.settling.failed(place, resource);
            }
            match kept {
                Err(fault) if is_endpoint && fault.is_no_room() => without_room += 1,
                Err(ResourceError::InUse(InUse { dependence, .. })) => {
                    self.warnings.insert(format!(
                        "{}: {resource} stays as it is: connections {dependence}, and Linux would close them with a change to \
                         `{value}`; it changes when they have ended",
                        place.name
                    ));
                }
                Err(fault) => self.problem(&format!("{}: {resource}", place.name), &fault),
                // One that was there has settled, or has other flags: that is no addition, and its trials go on.
                Ok(())
                    if is_endpoint
                        && self.events.len() > said
                        && !there.contains(resource)
                        && !waits_for_announcements(resource, value) =>
                {
                    self.state.readiness.added(place.cookie, resource)
                }
                Ok(()) => {}
            }
        }
        if without_room > 0 {
            self.problem(&place.name, &ResourceError::NoRoom { without: without_room });
        }
    }

    fn roll_back_undesired(&mut self, place: &Place, desired: &Desired) {
        let desired: BTreeSet<&Resource> = desired.iter().map(|(resource, _)| resource).collect();
        let undesired = |entry: &&record::Entry| !desired.contains(&entry.resource);
        let unwanted: Vec<record::Entry> =
            self.record.entries_of(place.cookie).filter(undesired).cloned().collect();
        self.roll_back_all(&unwanted);
    }

    fn roll_back_all(&mut self, entries: &[record::Entry]) {
        for entry in entries.iter().rev() {
            let Err(fault) = roll_back(self.record, entry, &mut self.usage, &mut self.events) else {
                continue;
            };
            match fault.in_use() {
                Some(in_use) => self.retain(entry, in_use),
                None => self
                    .problem(&format!("{}: {} cannot be put back", entry.place.name, entry.resource), &fault),
            }
        }
    }

    /// Keeps an endpoint that connections depend on, in the kernel and on record.
    fn retain(&mut self, entry: &record::Entry, in_use: InUse) {
        let (place, what) = (entry.place.name.clone(), entry.resource.to_string());
        let InUse { id, connections, dependence } = in_use;
        // Without their number, which changes from round to round.
        self.warnings.insert(format!(
            "{place}: {what} is kept though nothing asks for it: connections {dependence}, and Linux would close them; it goes \
             when they have ended"
        ));
        let of = if place == OWN_NAME { String::new() } else { format!("-n {place} ") };
        let reason = format!(
            "{connections} connections {dependence}, and Linux would close them; `vmcc down` again when they have ended, or \
             `ip {of}mptcp endpoint delete id {id}`"
        );
        self.retained.push(Event::Kept { place, what, connections, reason });
        self.state.retained.insert((entry.place.cookie, entry.resource.clone()));
    }

    /// Looks again at endpoints that were kept and are desired again: their subflows may have ended meanwhile.
    fn try_retained(&mut self, place: &Place, desired: &Desired) {
        for (resource, _) in desired {
            if self.state.retained.remove(&(place.cookie, resource.clone())) {
                self.state.readiness.added(place.cookie, resource);
            }
        }
    }

    /// Rolls back namespaces that no rule covers any more, and those that are gone.
    fn roll_back_uncovered(&mut self) {
        if self.blind {
            return;
        }
        let covered = |entry: &record::Entry| {
            entry.place.cookie == 0
                || self.seen.contains(&entry.place.cookie)
                || self.unsure.contains(&entry.place.name)
        };
        let left: Vec<record::Entry> =
            self.record.entries().filter(|entry| !covered(entry)).cloned().collect();
        self.roll_back_elsewhere(&left);
    }

    fn roll_back_elsewhere(&mut self, entries: &[record::Entry]) {
        let mut by_place: BTreeMap<u64, Vec<record::Entry>> = BTreeMap::new();
        for entry in entries {
            by_place.entry(entry.place.cookie).or_default().push(entry.clone());
        }
        let cookies: BTreeSet<u64> = by_place.keys().copied().collect();
        if cookies.is_empty() {
            return;
        }
        let looked = namespaces::find(&cookies, &mut |cookie, fd| {
            let Some(here) = by_place.remove(&cookie) else { return };
            self.usage = Usage::default();
            if let Err(error) = netns::within(fd, || self.roll_back_all(&here)) {
                self.problem(&here[0].place.name, &error.into());
            }
        });
        let rest: Vec<record::Entry> = by_place.into_values().flatten().collect();
        match looked {
            Ok(()) => self.forget(&rest),
            Err(source) => self.not_found(&rest, source),
        }
    }

    /// They may be there all the same: what is on record stays there.
    fn not_found(&mut self, entries: &[record::Entry], source: io::Error) {
        let fault = ResourceError::Namespace { source };
        let names: BTreeSet<&str> = entries.iter().map(|entry| entry.place.name.as_str()).collect();
        names.into_iter().for_each(|name| self.problem(name, &fault));
    }

    /// Removes entries from the journal whose namespace is gone: the values went with it.
    fn forget(&mut self, entries: &[record::Entry]) {
        for entry in entries {
            match self.record.remove(&entry.place, &entry.resource) {
                Ok(()) => self.events.push(Event::Gone {
                    place: entry.place.name.clone(),
                    what: entry.resource.to_string(),
                    before: entry.before.clone(),
                }),
                Err(error) => self.problem(&entry.place.name, &ResourceError::Record(error)),
            }
        }
    }

    /// Rolls back every recorded value; those that fail stay in the record.
    pub(crate) fn restore(&mut self) {
        // Nothing is followed any more; what that held open is needed now.
        self.state.watches.clear();
        let all = self.record.entries().cloned();
        let (kernel, elsewhere): (Vec<record::Entry>, Vec<record::Entry>) =
            all.partition(|e| e.place.cookie == 0);
        self.roll_back_elsewhere(&elsewhere);
        self.roll_back_all(&kernel);
        let is_live = |entry: &record::Entry| entry.resource == Resource::LiveDefault;
        if elsewhere.iter().any(is_live)
            && !self.record.entries().any(is_live)
            && let Err(error) = reassign::forget()
        {
            self.problem("kernel", &error.into());
        }
        if kernel.is_empty() {
            return;
        }
        // On kernels without links a process that was killed while it loaded an algorithm leaves it.
        if let Err(error) = vmcc_bpf::clean() {
            self.problem("kernel", &error.into());
        }
    }

    fn problem(&mut self, of: &str, fault: &ResourceError) {
        self.problems.insert(format!("{of}: {fault}"));
    }
}
