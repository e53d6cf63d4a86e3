//! Setting one thing, and putting back what was there.
//!
//! Every change is on record before it is made and off it after it is undone, so a process may end anywhere: what is on
//! record and as before was not changed yet, or is back already.

use super::item::{Fault, HALF_DONE, Item};
use super::news::News;
use super::record::{Entry, Place, Record};

/// What is to be done to a thing that is wanted.
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

fn step(now: Option<&str>, entry: Option<&Entry>, wanted: &str, exclusive: bool) -> Step {
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
        Some(value) if is_ours(entry, value) || entry.before.as_deref() == now => Step::Set,
        None if entry.before.is_none() => Step::Set,
        Some(_) if exclusive => Step::Refuse,
        _ => Step::SetAgain,
    }
}

/// Whether the agent has set it so, or was killed on the way.
fn is_ours(entry: &Entry, value: &str) -> bool {
    value == HALF_DONE || entry.ours.iter().any(|one| one == value)
}

/// Sets a thing of the calling thread's namespace, which `place` is, as wanted.
pub(crate) fn keep(
    record: &mut Record,
    place: &Place,
    item: &Item,
    wanted: &str,
    news: &mut Vec<News>,
) -> Result<(), Fault> {
    let now = item.read()?;
    let entry = record.find(place, item);
    let step = step(now.as_deref(), entry, wanted, item.is_exclusive());
    let mut entry = entry.cloned().unwrap_or_else(|| Entry {
        place: place.clone(),
        item: item.clone(),
        before: now.clone(),
        ours: Vec::new(),
    });
    match step {
        Step::Nothing => return Ok(()),
        Step::Refuse => return Err(Fault::SomebodyElse { found: now.unwrap_or_default() }),
        Step::Note => {}
        Step::Set | Step::SetAgain => {
            entry.ours.push(wanted.to_owned());
            record.put(entry.clone()).map_err(Fault::Record)?;
            item.write(Some(wanted))?;
            let found = item.read()?;
            if found.as_deref() != Some(wanted) {
                return Err(Fault::Changed { wanted: wanted.to_owned(), found: found.unwrap_or_default() });
            }
            let again = step == Step::SetAgain;
            news.push(News::Set {
                place: place.name.clone(),
                what: item.to_string(),
                from: now,
                to: wanted.to_owned(),
                again,
            });
        }
    }
    entry.ours = vec![wanted.to_owned()];
    record.put(entry).map_err(Fault::Record)
}

/// Puts back what was there before, unless somebody else has changed it meanwhile.
pub(crate) fn undo(record: &mut Record, entry: &Entry, news: &mut Vec<News>) -> Result<(), Fault> {
    let now = entry.item.read()?;
    let (place, what) = (entry.place.name.clone(), entry.item.to_string());
    if now != entry.before {
        if !now.as_ref().is_some_and(|now| is_ours(entry, now)) {
            let (found, before) = (now, entry.before.clone());
            news.push(News::LeftAlone { place, what, found, before });
            return record.remove(&entry.place, &entry.item).map_err(Fault::Record);
        }
        entry.item.write(entry.before.as_deref())?;
        news.push(News::Restored { place, what, from: now, to: entry.before.clone() });
    } else if now.is_none() {
        entry.item.settle()?;
    }
    record.remove(&entry.place, &entry.item).map_err(Fault::Record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(before: Option<&str>, ours: &[&str]) -> Entry {
        Entry {
            place: Place::kernel(),
            item: Item::Limits,
            before: before.map(str::to_owned),
            ours: ours.iter().map(|&one| one.to_owned()).collect(),
        }
    }

    #[test]
    fn what_is_done_depends_on_what_is_there_and_whose_it_is() {
        let set = |now, wanted| step(now, None, wanted, false);
        assert_eq!(set(Some("a"), "a"), Step::Nothing);
        assert_eq!(set(Some("b"), "a"), Step::Set);
        assert_eq!(set(None, "a"), Step::Set);
        assert_eq!(step(Some("b"), None, "a", true), Step::Refuse, "an endpoint of somebody else");
        assert_eq!(step(None, None, "a", true), Step::Set);

        let known = entry(Some("before"), &["a"]);
        let then = |now, wanted| step(now, Some(&known), wanted, false);
        assert_eq!(then(Some("a"), "a"), Step::Nothing);
        assert_eq!(then(Some("a"), "b"), Step::Set, "the file wants something else now");
        assert_eq!(then(Some("before"), "a"), Step::Set, "killed between the record and the change");
        assert_eq!(then(Some("b"), "b"), Step::Note);
        assert_eq!(then(Some("x"), "a"), Step::SetAgain);
        assert_eq!(then(None, "a"), Step::SetAgain);

        let half = entry(None, &["a", "b"]);
        let then = |now, wanted| step(now, Some(&half), wanted, true);
        assert_eq!(then(Some("a"), "b"), Step::Set, "killed before the change to b");
        assert_eq!(then(Some("b"), "b"), Step::Note, "killed after it");
        assert_eq!(then(None, "b"), Step::Set, "its interface came back");
        assert_eq!(then(Some(HALF_DONE), "b"), Step::Set);
        assert_eq!(then(Some("x"), "b"), Step::Refuse);
    }
}
