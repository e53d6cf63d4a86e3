//! Once over everything: what is wanted is set, what is no longer wanted is as before.

use super::contention::Contention;
use super::item::{Fault, Item, all_endpoints, endpoint_text, follow, is_implicit};
use super::keep::{keep, undo};
use super::namespaces::{self, NAMED};
use super::news::News;
use super::readiness::Readiness;
use super::record::{self, Place, Record};
use super::settling::Settling;
use super::wanted::{self, Wanted};
use crate::config::{Config, Settings};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use vmcc_host::diag::{Diag, Subflow};
use vmcc_host::{live, netns, several_paths};
use vmcc_netlink::{Changes, Endpoint, Links};
use wildmatch::WildMatch;

/// Name of the agent's own namespace.
const OWN: &str = "host";

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
pub(crate) struct Memory {
    /// Begin of the latest round.
    began: Option<Instant>,
    pub(crate) watches: Watches,
    readiness: Readiness,
    contention: Contention,
    settling: Settling,
}

impl Memory {
    /// Time of the next round if nothing is announced.
    pub(crate) fn due(&self) -> Option<Instant> {
        let settled = self.settling.rest().map(|rest| Instant::now() + rest);
        self.readiness
            .next()
            .into_iter()
            .chain(self.began.and_then(|began| self.contention.next(began)))
            .chain(settled)
            .min()
    }
}

/// One time over everything.
pub(crate) struct Round<'a> {
    record: &'a mut Record,
    memory: &'a mut Memory,
    pub(crate) news: Vec<News>,
    /// Values that cannot be set now.
    pub(crate) problems: BTreeSet<String>,
    /// Settings that are as the file says and cannot have their effect.
    pub(crate) warnings: BTreeSet<String>,
    /// The namespaces that were looked at.
    seen: BTreeSet<u64>,
    /// Names of those that could not be.
    unsure: BTreeSet<String>,
    /// True if there may be more namespaces than are known.
    blind: bool,
}

impl<'a> Round<'a> {
    pub(crate) fn new(record: &'a mut Record, memory: &'a mut Memory) -> Self {
        memory.began = Some(Instant::now());
        memory.settling.begin_round();
        Self {
            record,
            memory,
            news: Vec::new(),
            problems: BTreeSet::new(),
            warnings: BTreeSet::new(),
            seen: BTreeSet::new(),
            unsure: BTreeSet::new(),
            blind: false,
        }
    }

    pub(crate) fn everything(&mut self, config: &Config) {
        let mut kernel = wanted::algorithms(config);
        kernel.extend(self.cgroups(config));
        self.warnings.extend(wanted::cgroup_warnings(config));
        // Those that are no longer wanted go last: until then a namespace may have one as its default.
        self.set_all(&Place::kernel(), &kernel, &BTreeSet::new());
        self.namespaces(config);
        self.uncovered();
        self.undo_unwanted(&Place::kernel(), &kernel);
        let seen = &self.seen;
        self.memory.watches.retain(|(cookie, _), _| seen.contains(cookie));
        if !self.blind && self.unsure.is_empty() {
            self.memory.readiness.retain(seen);
        }
    }

    /// If they cannot be found, what was set stays.
    fn cgroups(&mut self, config: &Config) -> Wanted {
        wanted::cgroups(config).unwrap_or_else(|fault| {
            self.problem("cgroups", &fault);
            let is_one = |entry: &&record::Entry| matches!(entry.item, Item::Cgroup(_) | Item::Upgrade(_));
            let known = self.record.entries().iter().filter(is_one);
            known.filter_map(|entry| Some((entry.item.clone(), entry.ours.last()?.clone()))).collect()
        })
    }

    fn namespaces(&mut self, config: &Config) {
        match namespaces::own() {
            Ok(own) => self.namespace(OWN, own.as_fd(), &config.host, wanted::ports(config)),
            Err(error) => self.problem(OWN, &error.into()),
        }
        // Who names none has no business with what lies there.
        if config.namespaces.is_empty() {
            return;
        }
        let names = namespaces::names().unwrap_or_else(|source| {
            self.blind = true;
            self.problem(NAMED, &Fault::File { file: NAMED.to_owned(), source });
            Vec::new()
        });
        for name in names {
            let rule = config.namespaces.iter().find(|rule| WildMatch::new(&rule.name).matches(&name));
            let Some(rule) = rule else { continue };
            match namespaces::named(&name) {
                Ok(Some(fd)) => self.namespace(&name, fd.as_fd(), &rule.settings(), Vec::new()),
                Ok(None) => {}
                Err(source) => self.unsure(&name, &Fault::Namespace { source }),
            }
        }
    }

    /// It is there, and was not looked at.
    fn unsure(&mut self, name: &str, fault: &Fault) {
        self.unsure.insert(name.to_owned());
        self.problem(name, fault);
    }

    fn namespace(&mut self, name: &str, fd: BorrowedFd<'_>, settings: &Settings, ports: Wanted) {
        let done = netns::within(fd, || {
            let cookie = netns::cookie()
                .map_err(|source| Fault::Netlink { action: "tell namespaces apart", source })?;
            // The agent's own may have a name, too, and two names may be one.
            if self.seen.insert(cookie) {
                self.here(&Place { cookie, name: name.to_owned() }, settings, ports)?;
            }
            Ok(())
        });
        if let Err(fault) = done.map_err(Fault::from).and_then(|done| done) {
            self.unsure(name, &fault);
        }
    }

    /// In the calling thread's namespace. Who announces changes is asked first, so that none is missed.
    fn here(&mut self, place: &Place, settings: &Settings, ports: Wanted) -> Result<(), Fault> {
        let watched = |source| Fault::Netlink { action: "be told of changed addresses", source };
        if let Entry::Vacant(vacant) = self.memory.watches.entry((place.cookie, Watch::Addresses)) {
            vacant.insert(Changes::open().map_err(watched)?);
        }
        let mut wanted = wanted::settings(settings);
        let there = self.endpoints(place, settings, &mut wanted)?;
        wanted.extend(ports);
        // First, as there may be no room for more endpoints.
        self.undo_unwanted(place, &wanted);
        let unsettled = self.unsettled(place, &wanted, &there);
        let there = there.iter().filter(|one| !is_implicit(one));
        self.set_all(place, &unsettled, &there.map(Item::endpoint).collect());
        self.announce_again(place, &wanted)?;
        for item in self.memory.contention.of(place) {
            self.problem(&format!("{}: {item}", place.name), &Fault::Contended);
        }
        self.advise(place, settings);
        if settings.live
            && let Err(fault) = self.follow(place, &wanted)
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
        wanted: &mut Wanted,
    ) -> Result<Vec<Endpoint>, Fault> {
        let rules = &settings.mptcp.endpoints;
        if rules.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |source| Fault::Netlink { action: "list addresses", source };
        let mut links = Links::open().map_err(failed)?;
        let (nics, addresses) = (links.list().map_err(failed)?, links.addresses().map_err(failed)?);
        let named = wanted::named(rules, &nics);
        let of_rules: Vec<_> = named.iter().map(|(nic, _)| *nic).collect();
        let readiness = &mut self.memory.readiness;
        let answers = (place.cookie, Watch::Neighbours);
        if !readiness.begin(place.cookie, &of_rules) {
            self.memory.watches.remove(&answers);
        } else if let Entry::Vacant(vacant) = self.memory.watches.entry(answers) {
            // Before the first solicitation, so that no answer is missed.
            vacant.insert(Changes::of_neighbours().map_err(failed)?);
        }
        let ready = readiness.ready(place.cookie, &of_rules, &mut links).map_err(failed)?;
        let (_, there) = all_endpoints()?;
        let ids = self.memory.readiness.ids(place.cookie);
        wanted.extend(wanted::endpoints(&named, &ready, &addresses, &there, ids));
        Ok(there)
    }

    /// Without the endpoints that are as wanted, and on record so: they are listed once, not read one by one.
    fn unsettled(&self, place: &Place, wanted: &Wanted, there: &[Endpoint]) -> Wanted {
        let there = there.iter().filter(|one| !is_implicit(one));
        let there: BTreeMap<Item, String> =
            there.map(|one| (Item::endpoint(one), endpoint_text(one))).collect();
        let is_settled = |(item, value): &(Item, String)| {
            let entry = || self.record.find(place, item);
            there.get(item) == Some(value)
                && entry().is_some_and(|entry| entry.seen.is_some() && entry.ours == [value.as_str()])
        };
        wanted.iter().filter(|one| !is_settled(one)).cloned().collect()
    }

    /// A peer that could not connect to a new address in that moment does not try again by itself: an endpoint that no subflow
    /// uses although there are connections is made anew, for a minute.
    fn announce_again(&mut self, place: &Place, wanted: &Wanted) -> Result<(), Fault> {
        let values: BTreeMap<&Item, &String> = wanted.iter().map(|(item, value)| (item, value)).collect();
        let due = self.memory.readiness.trials(place.cookie, &values.keys().copied().collect());
        if due.is_empty() {
            return Ok(());
        }
        let all = Diag::open()?.subflows_and_attempts()?;
        for item in due {
            let address = item.address().map(|address| address.to_canonical());
            let uses = |one: &&Subflow| one.mptcp.is_some() && Some(one.local.ip().to_canonical()) == address;
            let here = || all.iter().filter(uses);
            let is_used = here().any(|one| one.established);
            if is_used || !all.iter().any(|one| one.established && one.mptcp.is_some()) {
                self.memory.readiness.used(place.cookie, &item);
                continue;
            }
            // An attempt that is under way may still fail.
            let is_tried = here().next().is_some();
            let Some(value) = values.get(&item).filter(|_| !is_tried) else { continue };
            match item
                .write(None)
                .and_then(|()| item.write(Some(&self.memory.settling.begin(place, &item, value))))
            {
                Ok(()) => {
                    self.news.push(News::Announced { place: place.name.clone(), what: item.to_string() })
                }
                Err(fault) => self.problem(&format!("{}: {item}", place.name), &fault),
            }
        }
        Ok(())
    }

    /// Warns of what keeps connections of a namespace that asks for several paths with one.
    fn advise(&mut self, place: &Place, settings: &Settings) {
        if settings.wants_several_paths() {
            // What cannot be read is said by whoever sets it.
            let found = several_paths::obstacles().unwrap_or_default().into_iter();
            self.warnings.extend(found.map(|text| format!("{}: {text}", place.name)));
        }
    }

    /// Subflows that join a connection are given what it began with.
    fn follow(&self, place: &Place, wanted: &Wanted) -> Result<(), Fault> {
        live::possible()?;
        let to = wanted.iter().find(|(item, _)| *item == Item::LiveDefault).map(|(_, name)| name.as_str());
        let before = self.record.find(place, &Item::LiveDefault).and_then(|entry| entry.before.clone());
        to.map_or(Ok(()), |to| follow(before.as_deref(), to))
    }

    /// `there`: the endpoints of the namespace before this round.
    fn set_all(&mut self, place: &Place, wanted: &Wanted, there: &BTreeSet<Item>) {
        let mut without_room = 0;
        for (item, value) in wanted {
            let is_endpoint = item.address().is_some();
            // After the first that finds none there is none for the others either, but those that are there may change.
            if is_endpoint && without_room > 0 && !there.contains(item) {
                without_room += 1;
                continue;
            }
            let value = &self.memory.settling.value(place, item, value);
            let (contention, said) = (&mut self.memory.contention, self.news.len());
            let kept = keep(self.record, place, item, value, contention, &mut self.news);
            if kept.is_err() {
                self.memory.settling.failed(place, item);
            }
            match kept {
                Err(fault) if is_endpoint && fault.is_no_room() => without_room += 1,
                Err(fault) => self.problem(&format!("{}: {item}", place.name), &fault),
                // One that was there has settled, or has other flags: that is no addition, and its trials go on.
                Ok(()) if is_endpoint && self.news.len() > said && !there.contains(item) => {
                    self.memory.readiness.added(place.cookie, item)
                }
                Ok(()) => {}
            }
        }
        if without_room > 0 {
            self.problem(&place.name, &Fault::NoRoom { without: without_room });
        }
    }

    fn undo_unwanted(&mut self, place: &Place, wanted: &Wanted) {
        let wanted: BTreeSet<&Item> = wanted.iter().map(|(item, _)| item).collect();
        let here =
            |entry: &&record::Entry| entry.place.cookie == place.cookie && !wanted.contains(&entry.item);
        let unwanted: Vec<record::Entry> = self.record.entries().iter().filter(here).cloned().collect();
        self.undo_all(&unwanted);
    }

    fn undo_all(&mut self, entries: &[record::Entry]) {
        for entry in entries.iter().rev() {
            if let Err(fault) = undo(self.record, entry, &mut self.news) {
                self.problem(&format!("{}: {} cannot be put back", entry.place.name, entry.item), &fault);
            }
        }
    }

    /// Namespaces that no rule covers any more, and those that are gone.
    fn uncovered(&mut self) {
        if self.blind {
            return;
        }
        let covered = |entry: &record::Entry| {
            entry.place.cookie == 0
                || self.seen.contains(&entry.place.cookie)
                || self.unsure.contains(&entry.place.name)
        };
        let left: Vec<record::Entry> =
            self.record.entries().iter().filter(|entry| !covered(entry)).cloned().collect();
        self.undo_elsewhere(&left);
    }

    fn undo_elsewhere(&mut self, entries: &[record::Entry]) {
        let cookies: BTreeSet<u64> = entries.iter().map(|entry| entry.place.cookie).collect();
        if cookies.is_empty() {
            return;
        }
        let of = |known: &dyn Fn(u64) -> bool| -> Vec<record::Entry> {
            entries.iter().filter(|entry| known(entry.place.cookie)).cloned().collect()
        };
        let mut found = BTreeSet::new();
        let looked = namespaces::find(&cookies, &mut |cookie, fd| {
            found.insert(cookie);
            let here = of(&|one| one == cookie);
            if let Err(error) = netns::within(fd, || self.undo_all(&here)) {
                self.problem(&here[0].place.name, &error.into());
            }
        });
        let rest = of(&|one| !found.contains(&one));
        match looked {
            Ok(()) => self.forget(&rest),
            Err(source) => self.not_found(&rest, source),
        }
    }

    /// They may be there all the same: what is on record stays there.
    fn not_found(&mut self, entries: &[record::Entry], source: io::Error) {
        let fault = Fault::Namespace { source };
        let names: BTreeSet<&str> = entries.iter().map(|entry| entry.place.name.as_str()).collect();
        names.into_iter().for_each(|name| self.problem(name, &fault));
    }

    /// Removes entries from the journal whose namespace is gone: the values went with it.
    fn forget(&mut self, entries: &[record::Entry]) {
        for entry in entries {
            match self.record.remove(&entry.place, &entry.item) {
                Ok(()) => self.news.push(News::Gone {
                    place: entry.place.name.clone(),
                    what: entry.item.to_string(),
                    before: entry.before.clone(),
                }),
                Err(error) => self.problem(&entry.place.name, &Fault::Record(error)),
            }
        }
    }

    /// Puts everything back; what cannot be stays on record.
    pub(crate) fn restore(&mut self) {
        // Nothing is followed any more; what that held open is needed now.
        self.memory.watches.clear();
        let all = self.record.entries().to_vec();
        let (kernel, elsewhere): (Vec<record::Entry>, Vec<record::Entry>) =
            all.into_iter().partition(|e| e.place.cookie == 0);
        self.undo_elsewhere(&elsewhere);
        self.undo_all(&kernel);
        if kernel.is_empty() {
            return;
        }
        // On kernels without links a process that was killed while it loaded an algorithm leaves it.
        if let Err(error) = vmcc_host::clean() {
            self.problem("kernel", &error.into());
        }
    }

    fn problem(&mut self, of: &str, fault: &Fault) {
        self.problems.insert(format!("{of}: {fault}"));
    }
}
