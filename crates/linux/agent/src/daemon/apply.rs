//! Applies the desired value of one resource, and rolls it back.
//!
//! Every change is on record before it is made and off it after it is undone, so a process may end anywhere: what is on
//! record and as before was not changed yet, or is back already.

use super::contention::Contention;
use super::event::Event;
use super::record::{Entry, Place, Record};
use super::resource::{HALF_DONE, OTHER_BUILD, Resource, ResourceError, is_same_value, settling_text};
use super::usage::Usage;
use nix::net::if_::if_indextoname;

/// Action that brings a resource to its desired value.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is as wanted, and was before.
    Nothing,
    /// It is as wanted, by us; only the record is not that far.
    Note,
    /// It is set, and goes on record.
    Set,
    /// Somebody changed it meanwhile; it is set again.
    SetAgain,
    /// It is somebody else's.
    Refuse,
}

/// `object`: number of the object that has the value `now`.
fn next_step(now: Option<&str>, entry: Option<&Entry>, desired: &str, exclusive: bool, object: u64) -> Step {
    let is_wanted = now == Some(desired);
    let Some(entry) = entry else {
        return match now {
            _ if is_wanted => Step::Nothing,
            Some(_) if exclusive => Step::Refuse,
            _ => Step::Set,
        };
    };
    match now {
        _ if is_wanted && entry.ours == [desired] => Step::Nothing,
        _ if is_wanted => Step::Note,
        // That it was there is certain only of what this process has seen.
        None if entry.before.is_none() && entry.seen == Some(object) => Step::SetAgain,
        Some(value) if is_ours(entry, value) || entry.before.as_deref() == now => Step::Set,
        None if entry.before.is_none() => Step::Set,
        Some(_) if exclusive => Step::Refuse,
        // A new object begins with a value of its own: nobody changed ours.
        _ if entry.seen.is_some_and(|seen| seen != object) => Step::Set,
        _ => Step::SetAgain,
    }
}

/// The step for a value that was seen as desired: a backup flag that nobody but another program has set since is undone as its
/// change.
fn after_settling(now: Option<&str>, entry: Option<&Entry>, resource: &Resource, desired: &str) -> Step {
    let is_settled = entry.is_some_and(|entry| entry.ours == [desired]);
    let is_backup = now.is_some() && settling_text(resource, desired).as_deref() == now;
    if is_settled && is_backup { Step::SetAgain } else { Step::Set }
}

/// True if an entry's value before was that of a removed interface whose name another one has.
fn is_of_another_object(entry: &Entry, object: u64) -> bool {
    matches!(entry.resource, Resource::Sysctl(_))
        && entry.object != 0
        && object != 0
        && entry.object != object
}

/// True if the agent set this value, or was killed while it did.
fn is_ours(entry: &Entry, value: &str) -> bool {
    // The guard has endpoints settle, too.
    let settles =
        |one: &str| settling_text(&entry.resource, one).is_some_and(|text| is_same_value(&text, value));
    value == HALF_DONE || entry.ours.iter().any(|one| is_same_value(one, value) || settles(one))
}

/// True if this value of an entry is rolled back: an agent set it, perhaps one before an upgrade, whose algorithm this build cannot read.
fn is_undone(entry: &Entry, value: &str) -> bool {
    value == OTHER_BUILD || is_ours(entry, value)
}

/// Applies the desired value of a resource in the calling thread's namespace, which `place` is. A value that another program
/// keeps changing is set again as often as `contention` allows.
pub(crate) fn apply(
    record: &mut Record,
    place: &Place,
    resource: &Resource,
    desired: &str,
    (contention, usage): (&mut Contention, &mut Usage),
    events: &mut Vec<Event>,
) -> Result<(), ResourceError> {
    let object = resource.object();
    let now = resource.read()?;
    if now.as_deref() == Some(OTHER_BUILD) {
        return Err(ResourceError::OtherBuild);
    }
    let entry = record.find(place, resource).filter(|entry| !is_of_another_object(entry, object));
    let next_step = match next_step(now.as_deref(), entry, desired, resource.is_exclusive(), object) {
        Step::Set if !contention.guard_settles && entry.is_some_and(|entry| entry.seen == Some(object)) => {
            after_settling(now.as_deref(), entry, resource, desired)
        }
        step => step,
    };
    let mut entry = entry.cloned().unwrap_or_else(|| Entry {
        place: place.clone(),
        resource: resource.clone(),
        before: now.clone(),
        ours: Vec::new(),
        object,
        seen: None,
    });
    if object != 0 {
        entry.object = object;
    }
    if let Some(renamed) = renamed_port(&entry, now.as_ref()) {
        return Err(ResourceError::Renamed { now: renamed.to_string() });
    }
    match next_step {
        Step::Nothing => {
            record.saw(place, resource, object);
            return Ok(());
        }
        // Somebody replaced ours, perhaps again and again.
        Step::Refuse if !entry.ours.is_empty() && contention.is_replaced(place, resource) => {
            return Err(ResourceError::Contended);
        }
        Step::Refuse => return Err(ResourceError::SomebodyElse { found: now.unwrap_or_default() }),
        Step::Note => {}
        Step::SetAgain if !contention.allows(place, resource) => return Err(ResourceError::Contended),
        Step::Set | Step::SetAgain => {
            set(record, &mut entry, desired, usage)?;
            let again = next_step == Step::SetAgain;
            let said = again && contention.goes_on(place, resource);
            events.extend((!said).then(|| Event::Set {
                place: place.name.clone(),
                what: resource.to_string(),
                from: now,
                to: desired.to_owned(),
                again,
            }));
        }
    }
    entry.seen = Some(object);
    entry.ours = vec![desired.to_owned()];
    record.put(entry).map_err(ResourceError::Record)
}

/// Gives it the value. Where that does not succeed, what is there instead is on record as ours, and what never was there is
/// not.
fn set(
    record: &mut Record,
    entry: &mut Entry,
    desired: &str,
    usage: &mut Usage,
) -> Result<(), ResourceError> {
    let known = entry.ours.clone();
    ours_too(&mut entry.ours, desired);
    record.put(entry.clone()).map_err(ResourceError::Record)?;
    let written = entry.resource.write(Some(desired), usage);
    let found = entry.resource.read()?;
    if found.as_deref() == Some(desired) {
        return Ok(());
    }
    match after_failure(entry, known, found.as_deref()) {
        Some(ours) => {
            entry.ours = ours;
            record.put(entry.clone())
        }
        None => record.remove(&entry.place, &entry.resource),
    }
    .map_err(ResourceError::Record)?;
    written?;
    Err(ResourceError::Changed { desired: desired.to_owned(), found: found.unwrap_or_default() })
}

/// Values that count as the agent's after a failed write: the `known` ones and the `found` one; `None` if the value is as
/// before.
fn after_failure(entry: &Entry, mut known: Vec<String>, found: Option<&str>) -> Option<Vec<String>> {
    if found == entry.before.as_deref() {
        return None;
    }
    // The kernel made it of what we wrote.
    if let Some(found) = found {
        ours_too(&mut known, found);
    }
    Some(known)
}

fn ours_too(ours: &mut Vec<String>, value: &str) {
    ours.retain(|one| one != value);
    ours.push(value.to_owned());
}

/// A served port that has another name by now. One that is in another network namespace is not found.
fn renamed_port(entry: &Entry, now: Option<&String>) -> Option<Resource> {
    let Resource::Port(name) = &entry.resource else { return None };
    let index = u32::try_from(entry.object).ok().filter(|index| *index != 0 && now.is_none())?;
    let current = if_indextoname(index).ok()?.into_string().ok().filter(|current| current != name)?;
    let renamed = Resource::Port(current);
    renamed.read().is_ok_and(|value| value.is_some_and(|value| is_ours(entry, &value))).then_some(renamed)
}

/// Restores the value from before, unless another program has changed it since.
pub(crate) fn roll_back(
    record: &mut Record,
    entry: &Entry,
    usage: &mut Usage,
    events: &mut Vec<Event>,
) -> Result<(), ResourceError> {
    let (place, what) = (entry.place.name.clone(), entry.resource.to_string());
    let now = match entry.resource.read() {
        Err(fault) if fault.is_gone() => {
            events.push(Event::Gone { place, what, before: entry.before.clone() });
            return record.remove(&entry.place, &entry.resource).map_err(ResourceError::Record);
        }
        now => now?,
    };
    if is_of_another_object(entry, entry.resource.object()) {
        events.push(Event::Gone { place, what, before: entry.before.clone() });
        return record.remove(&entry.place, &entry.resource).map_err(ResourceError::Record);
    }
    if let Some(renamed) = renamed_port(entry, now.as_ref()) {
        renamed.write(None, usage)?;
        let (what, from) = (format!("{what}, now {renamed},"), entry.ours.last().cloned());
        events.push(Event::Restored { place, what, from, to: None });
        return record.remove(&entry.place, &entry.resource).map_err(ResourceError::Record);
    }
    if now != entry.before {
        if !now.as_ref().is_some_and(|now| is_undone(entry, now)) {
            let (found, before) = (now, entry.before.clone());
            events.push(Event::LeftAlone { place, what, found, before });
            return record.remove(&entry.place, &entry.resource).map_err(ResourceError::Record);
        }
        entry.resource.write(entry.before.as_deref(), usage)?;
        let found = entry.resource.read()?;
        if found != entry.before {
            return Err(ResourceError::NotBack { before: entry.before.clone(), found });
        }
        events.push(Event::Restored { place, what, from: now, to: entry.before.clone() });
    } else if now.is_none() {
        entry.resource.settle()?;
    }
    record.remove(&entry.place, &entry.resource).map_err(ResourceError::Record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::resource::Limit;

    fn entry(before: Option<&str>, ours: &[&str]) -> Entry {
        Entry {
            place: Place::kernel(),
            resource: Resource::Limit(Limit::Accept),
            before: before.map(str::to_owned),
            ours: ours.iter().map(|&one| one.to_owned()).collect(),
            object: 0,
            seen: None,
        }
    }

    #[test]
    fn next_step_depends_on_current_value_and_owner() {
        let set = |now, desired| next_step(now, None, desired, false, 0);
        assert_eq!(set(Some("a"), "a"), Step::Nothing);
        assert_eq!(set(Some("b"), "a"), Step::Set);
        assert_eq!(set(None, "a"), Step::Set);
        assert_eq!(next_step(Some("b"), None, "a", true, 0), Step::Refuse, "an endpoint of somebody else");
        assert_eq!(next_step(None, None, "a", true, 0), Step::Set);

        let known = entry(Some("before"), &["a"]);
        let then = |now, desired| next_step(now, Some(&known), desired, false, 0);
        assert_eq!(then(Some("a"), "a"), Step::Nothing);
        assert_eq!(then(Some("a"), "b"), Step::Set, "the file wants something else now");
        assert_eq!(then(Some("before"), "a"), Step::Set, "killed between the record and the change");
        assert_eq!(then(Some("b"), "b"), Step::Note);
        assert_eq!(then(Some("x"), "a"), Step::SetAgain);
        assert_eq!(then(None, "a"), Step::SetAgain);

        let mut set = entry(None, &["a"]);
        assert_eq!(
            next_step(None, Some(&set), "a", true, 7),
            Step::Set,
            "killed between the record and the change"
        );
        set.seen = Some(7);
        assert_eq!(next_step(None, Some(&set), "a", true, 7), Step::SetAgain, "somebody removed it");
        assert_eq!(next_step(None, Some(&set), "a", true, 8), Step::Set, "a new object of the same name");
        let seen = Entry { seen: Some(7), ..known.clone() };
        let then = |object| next_step(Some("x"), Some(&seen), "a", false, object);
        assert_eq!((then(7), then(8)), (Step::SetAgain, Step::Set), "a new interface of the same name");

        let half = entry(None, &["a", "b"]);
        let then = |now, desired| next_step(now, Some(&half), desired, true, 0);
        assert_eq!(then(Some("a"), "b"), Step::Set, "killed before the change to b");
        assert_eq!(then(Some("b"), "b"), Step::Note, "killed after it");
        assert_eq!(then(None, "b"), Step::Set, "its interface came back");
        assert_eq!(then(Some(HALF_DONE), "b"), Step::Set);
        assert_eq!(then(Some("x"), "b"), Step::Refuse);
    }

    #[test]
    fn algorithm_of_an_earlier_build_is_undone_and_not_set_again() {
        let loaded = entry(None, &["up g=0.0625"]);
        assert!(is_undone(&loaded, OTHER_BUILD) && is_undone(&loaded, "up g=0.0625"));
        assert!(!is_undone(&loaded, "up g=0.5") && !is_ours(&loaded, OTHER_BUILD));
    }

    #[test]
    fn backup_flag_of_a_settled_endpoint_is_another_programs() {
        let resource = Resource::Endpoint("10.0.0.1".parse().unwrap());
        let (plain, backup) = ("signal dev 3 id 1", "signal,backup dev 3 id 1");
        let settled = Entry { resource: resource.clone(), ..entry(None, &[plain]) };
        let settling = Entry { ours: vec![backup.to_owned()], ..settled.clone() };
        let step = |now, entry| after_settling(Some(now), Some(entry), &resource, plain);
        assert_eq!(step(backup, &settled), Step::SetAgain);
        assert_eq!(step(backup, &settling), Step::Set, "the agent's own second step");
        assert_eq!(step("signal dev 2 id 1", &settled), Step::Set);
    }

    #[test]
    fn value_of_a_recreated_interface_is_not_restored_from_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
        let resource = Resource::Sysctl("net/ipv4/conf/lo/arp_ignore".to_owned());
        let now = resource.read().unwrap();
        let object = resource.object();
        assert_ne!(object, 0);
        let old = Entry { resource, object: object + 1000, ..entry(Some("2"), &["1"]) };
        record.put(old.clone()).unwrap();
        let mut events = Vec::new();
        roll_back(&mut record, &old, &mut Usage::default(), &mut events).unwrap();
        assert!(matches!(&events[..], [Event::Gone { .. }]) && record.len() == 0, "{events:?}");
        assert_eq!(old.resource.read().unwrap(), now);
    }

    #[test]
    fn value_normalized_by_the_kernel_is_ours() {
        let first = entry(Some("before"), &["1,2,3"]);
        let ours = |known: &[&str], found| {
            let known = known.iter().map(|&one| one.to_owned()).collect();
            after_failure(&first, known, found)
        };
        assert_eq!(ours(&[], Some("1-3")), Some(vec!["1-3".to_owned()]), "spelled otherwise");
        assert_eq!(ours(&["1-3"], Some("1-3")), Some(vec!["1-3".to_owned()]), "however often");
        assert_eq!(ours(&[], Some("before")), None, "refused");
        assert_eq!(ours(&["a"], Some("a")), Some(vec!["a".to_owned()]), "refused after another of ours");
        let exclusive = entry(None, &["new"]);
        assert_eq!(after_failure(&exclusive, vec!["old".to_owned()], None), None);
    }

    #[test]
    fn failed_set_leaves_no_record_entry() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
        let absent = Resource::Port("vmcc-none".to_owned());
        for _ in 0..3 {
            let (mut contention, mut events) = (Contention::default(), Vec::new());
            let state = (&mut contention, &mut Usage::default());
            apply(&mut record, &Place::kernel(), &absent, "{}", state, &mut events).unwrap_err();
            assert_eq!(record.len(), 0);
        }
    }

    #[test]
    fn missing_resource_leaves_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
        let resource = Resource::Sysctl("net/ipv4/conf/vmcc-none/arp_ignore".to_owned());
        let gone = Entry { resource, ..entry(Some("0"), &["1"]) };
        record.put(gone.clone()).unwrap();
        let mut events = Vec::new();
        roll_back(&mut record, &gone, &mut Usage::default(), &mut events).unwrap();
        assert!(matches!(&events[..], [Event::Gone { .. }]) && record.len() == 0, "{events:?}");
    }
}
