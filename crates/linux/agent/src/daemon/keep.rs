//! Setting one thing, and putting back what was there.
//!
//! Every change is on record before it is made and off it after it is undone, so a process may end anywhere: what is on
//! record and as before was not changed yet, or is back already.

use super::contention::Contention;
use super::item::{Fault, HALF_DONE, Item, is_same_value, settling_text};
use super::news::News;
use super::record::{Entry, Place, Record};

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
fn step(now: Option<&str>, entry: Option<&Entry>, wanted: &str, exclusive: bool, object: u64) -> Step {
    let is_wanted = now == Some(wanted);
    let Some(entry) = entry else {
        return match now {
            _ if is_wanted => Step::Nothing,
            Some(_) if exclusive => Step::Refuse,
            _ => Step::Set,
        };
    };
    match now {
        _ if is_wanted && entry.ours == [wanted] => Step::Nothing,
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

/// True if the agent set this value, or was killed while it did.
fn is_ours(entry: &Entry, value: &str) -> bool {
    // The guard has endpoints settle, too.
    let settles = |one: &str| settling_text(&entry.item, one).is_some_and(|text| is_same_value(&text, value));
    value == HALF_DONE || entry.ours.iter().any(|one| is_same_value(one, value) || settles(one))
}

/// Sets a thing of the calling thread's namespace, which `place` is, as wanted. What somebody else changes again and again
/// is set again as often as `contention` says.
pub(crate) fn keep(
    record: &mut Record,
    place: &Place,
    item: &Item,
    wanted: &str,
    contention: &mut Contention,
    news: &mut Vec<News>,
) -> Result<(), Fault> {
    let object = item.object();
    let now = item.read()?;
    let entry = record.find(place, item);
    let step = step(now.as_deref(), entry, wanted, item.is_exclusive(), object);
    let mut entry = entry.cloned().unwrap_or_else(|| Entry {
        place: place.clone(),
        item: item.clone(),
        before: now.clone(),
        ours: Vec::new(),
        seen: None,
    });
    match step {
        Step::Nothing => {
            record.saw(place, item, object);
            return Ok(());
        }
        Step::Refuse => return Err(Fault::SomebodyElse { found: now.unwrap_or_default() }),
        Step::Note => {}
        Step::SetAgain if !contention.allows(place, item) => return Err(Fault::Contended),
        Step::Set | Step::SetAgain => {
            set(record, &mut entry, wanted)?;
            let again = step == Step::SetAgain;
            let said = again && contention.goes_on(place, item);
            news.extend((!said).then(|| News::Set {
                place: place.name.clone(),
                what: item.to_string(),
                from: now,
                to: wanted.to_owned(),
                again,
            }));
        }
    }
    entry.seen = Some(object);
    entry.ours = vec![wanted.to_owned()];
    record.put(entry).map_err(Fault::Record)
}

/// Gives it the value. Where that does not succeed, what is there instead is on record as ours, and what never was there is
/// not.
fn set(record: &mut Record, entry: &mut Entry, wanted: &str) -> Result<(), Fault> {
    let known = entry.ours.clone();
    ours_too(&mut entry.ours, wanted);
    record.put(entry.clone()).map_err(Fault::Record)?;
    let written = entry.item.write(Some(wanted));
    let found = entry.item.read()?;
    if found.as_deref() == Some(wanted) {
        return Ok(());
    }
    match after_failure(entry, known, found.as_deref()) {
        Some(ours) => {
            entry.ours = ours;
            record.put(entry.clone())
        }
        None => record.remove(&entry.place, &entry.item),
    }
    .map_err(Fault::Record)?;
    written?;
    Err(Fault::Changed { wanted: wanted.to_owned(), found: found.unwrap_or_default() })
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

/// Puts back what was there before, unless somebody else has changed it meanwhile.
pub(crate) fn undo(record: &mut Record, entry: &Entry, news: &mut Vec<News>) -> Result<(), Fault> {
    let (place, what) = (entry.place.name.clone(), entry.item.to_string());
    let now = match entry.item.read() {
        Err(fault) if fault.is_gone() => {
            news.push(News::Gone { place, what, before: entry.before.clone() });
            return record.remove(&entry.place, &entry.item).map_err(Fault::Record);
        }
        now => now?,
    };
    if now != entry.before {
        if !now.as_ref().is_some_and(|now| is_ours(entry, now)) {
            let (found, before) = (now, entry.before.clone());
            news.push(News::LeftAlone { place, what, found, before });
            return record.remove(&entry.place, &entry.item).map_err(Fault::Record);
        }
        entry.item.write(entry.before.as_deref())?;
        let found = entry.item.read()?;
        if found != entry.before {
            return Err(Fault::NotBack { before: entry.before.clone(), found });
        }
        news.push(News::Restored { place, what, from: now, to: entry.before.clone() });
    } else if now.is_none() {
        entry.item.settle()?;
    }
    record.remove(&entry.place, &entry.item).map_err(Fault::Record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::item::Limit;

    fn entry(before: Option<&str>, ours: &[&str]) -> Entry {
        Entry {
            place: Place::kernel(),
            item: Item::Limit(Limit::Accept),
            before: before.map(str::to_owned),
            ours: ours.iter().map(|&one| one.to_owned()).collect(),
            seen: None,
        }
    }

    #[test]
    fn what_is_done_depends_on_what_is_there_and_whose_it_is() {
        let set = |now, wanted| step(now, None, wanted, false, 0);
        assert_eq!(set(Some("a"), "a"), Step::Nothing);
        assert_eq!(set(Some("b"), "a"), Step::Set);
        assert_eq!(set(None, "a"), Step::Set);
        assert_eq!(step(Some("b"), None, "a", true, 0), Step::Refuse, "an endpoint of somebody else");
        assert_eq!(step(None, None, "a", true, 0), Step::Set);

        let known = entry(Some("before"), &["a"]);
        let then = |now, wanted| step(now, Some(&known), wanted, false, 0);
        assert_eq!(then(Some("a"), "a"), Step::Nothing);
        assert_eq!(then(Some("a"), "b"), Step::Set, "the file wants something else now");
        assert_eq!(then(Some("before"), "a"), Step::Set, "killed between the record and the change");
        assert_eq!(then(Some("b"), "b"), Step::Note);
        assert_eq!(then(Some("x"), "a"), Step::SetAgain);
        assert_eq!(then(None, "a"), Step::SetAgain);

        let mut set = entry(None, &["a"]);
        assert_eq!(
            step(None, Some(&set), "a", true, 7),
            Step::Set,
            "killed between the record and the change"
        );
        set.seen = Some(7);
        assert_eq!(step(None, Some(&set), "a", true, 7), Step::SetAgain, "somebody removed it");
        assert_eq!(step(None, Some(&set), "a", true, 8), Step::Set, "a new object of the same name");
        let seen = Entry { seen: Some(7), ..known.clone() };
        let then = |object| step(Some("x"), Some(&seen), "a", false, object);
        assert_eq!((then(7), then(8)), (Step::SetAgain, Step::Set), "a new interface of the same name");

        let half = entry(None, &["a", "b"]);
        let then = |now, wanted| step(now, Some(&half), wanted, true, 0);
        assert_eq!(then(Some("a"), "b"), Step::Set, "killed before the change to b");
        assert_eq!(then(Some("b"), "b"), Step::Note, "killed after it");
        assert_eq!(then(None, "b"), Step::Set, "its interface came back");
        assert_eq!(then(Some(HALF_DONE), "b"), Step::Set);
        assert_eq!(then(Some("x"), "b"), Step::Refuse);
    }

    #[test]
    fn what_the_kernel_made_of_a_value_is_ours_and_what_never_was_there_is_not() {
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
    fn what_cannot_be_set_leaves_nothing_on_record_however_often_it_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
        let absent = Item::Port("vmcc-none".to_owned());
        for _ in 0..3 {
            let (mut contention, mut news) = (Contention::default(), Vec::new());
            keep(&mut record, &Place::kernel(), &absent, "{}", &mut contention, &mut news).unwrap_err();
            assert_eq!(record.entries().len(), 0);
        }
    }

    #[test]
    fn a_thing_that_is_gone_leaves_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::lock_in(folder.path().to_str().unwrap()).unwrap();
        let item = Item::Sysctl("net/ipv4/conf/vmcc-none/arp_ignore".to_owned());
        let gone = Entry { item, ..entry(Some("0"), &["1"]) };
        record.put(gone.clone()).unwrap();
        let mut news = Vec::new();
        undo(&mut record, &gone, &mut news).unwrap();
        assert!(matches!(&news[..], [News::Gone { .. }]) && record.entries().is_empty(), "{news:?}");
    }
}
