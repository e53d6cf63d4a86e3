//! Once over everything: what is wanted is set, what is no longer wanted is as before.

use super::item::{Fault, Item, follow};
use super::keep::{keep, undo};
use super::namespaces::{self, NAMED};
use super::news::News;
use super::record::{self, Place, Record};
use super::settling::Settling;
use super::wanted::{self, Wanted};
use crate::config::{Config, Settings};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use vmcc_host::{live, netns};
use vmcc_netlink::Changes;
use wildmatch::WildMatch;

/// What the agent's own namespace is called.
const OWN: &str = "host";

/// Who announces changes, by the cookies of the namespaces.
pub(crate) type Watches = BTreeMap<u64, Changes>;

/// One time over everything.
pub(crate) struct Round<'a> {
    record: &'a mut Record,
    watches: &'a mut Watches,
    settling: &'a mut Settling,
    pub(crate) news: Vec<News>,
    /// What cannot be set now.
    pub(crate) problems: BTreeSet<String>,
    /// The namespaces that were looked at.
    seen: BTreeSet<u64>,
    /// Names of those that could not be.
    unsure: BTreeSet<String>,
    /// Whether there may be more of them than are known.
    blind: bool,
}

impl<'a> Round<'a> {
    pub(crate) fn new(record: &'a mut Record, watches: &'a mut Watches, settling: &'a mut Settling) -> Self {
        settling.begin_round();
        Self {
            record,
            watches,
            settling,
            news: Vec::new(),
            problems: BTreeSet::new(),
            seen: BTreeSet::new(),
            unsure: BTreeSet::new(),
            blind: false,
        }
    }

    pub(crate) fn everything(&mut self, config: &Config) {
        let mut kernel = wanted::algorithms(config);
        kernel.extend(self.cgroups(config));
        // Those that are no longer wanted go last: until then a namespace may have one as its default.
        self.set_all(&Place::kernel(), &kernel);
        self.namespaces(config);
        self.uncovered();
        self.undo_unwanted(&Place::kernel(), &kernel);
        let seen = &self.seen;
        self.watches.retain(|cookie, _| seen.contains(cookie));
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
        if let Entry::Vacant(vacant) = self.watches.entry(place.cookie) {
            let failed = |source| Fault::Netlink { action: "be told of changed addresses", source };
            vacant.insert(Changes::open().map_err(failed)?);
        }
        let mut wanted = wanted::settings(settings)?;
        wanted.extend(ports);
        // First, as there may be no room for more endpoints.
        self.undo_unwanted(place, &wanted);
        self.set_all(place, &wanted);
        if settings.live
            && let Err(fault) = self.follow(place, &wanted)
        {
            let of = format!("{}: connections that run keep their congestion control", place.name);
            self.problem(&of, &fault);
        }
        Ok(())
    }

    /// Subflows that join a connection are given what it began with.
    fn follow(&self, place: &Place, wanted: &Wanted) -> Result<(), Fault> {
        live::possible()?;
        let to = wanted.iter().find(|(item, _)| *item == Item::LiveDefault).map(|(_, name)| name.as_str());
        let before = self.record.find(place, &Item::LiveDefault).and_then(|entry| entry.before.clone());
        to.map_or(Ok(()), |to| follow(before.as_deref(), to))
    }

    fn set_all(&mut self, place: &Place, wanted: &Wanted) {
        for (item, value) in wanted {
            let value = self.settling.value(place, item, value);
            if let Err(fault) = keep(self.record, place, item, &value, &mut self.news) {
                self.settling.failed(place, item);
                self.problem(&format!("{}: {item}", place.name), &fault);
            }
        }
    }

    fn undo_unwanted(&mut self, place: &Place, wanted: &Wanted) {
        let is_wanted = |item: &Item| wanted.iter().any(|(one, _)| one == item);
        let here = |entry: &&record::Entry| entry.place.cookie == place.cookie && !is_wanted(&entry.item);
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

    /// What was set in a namespace went with it.
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
        self.watches.clear();
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
