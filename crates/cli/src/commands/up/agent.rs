//! The agent in the foreground.

use crate::failure::{Exit, Failure, agent_failure};
use crate::ui::Ui;
use serde_json::json;
use std::path::Path;
use vmcc_agent::daemon::{self, Ended, Event};

pub(crate) fn agent(file: &Path, ui: &Ui) -> Result<Exit, Failure> {
    let (mut left, mut kept) = (Vec::new(), Vec::new());
    let ended = daemon::run(file, &mut |event| {
        say(event, ui);
        match event {
            Event::LeftAlone { place, what, .. } => left.push(format!("{place}: {what}")),
            Event::Kept { place, what, .. } => kept.push(format!("{place}: {what}")),
            _ => {}
        }
    });
    let ended = ended.map_err(|e| agent_failure(&e))?;
    let (restored, problems) = match ended {
        Ended::HandedOver => (false, 0),
        Ended::Restored { problems, .. } => (problems == 0 && kept.is_empty(), problems),
    };
    let document = json!({ "restored": restored, "left": left, "kept": kept, "problems": problems });
    ui.answer(&document, || text(ended, left.len(), kept.len()));
    Ok(match ended {
        Ended::Restored { problems: 1.., .. } => Exit::CheckFailed,
        Ended::Restored { interrupted: true, .. } => Exit::Interrupted,
        _ => Exit::Done,
    })
}

/// Message about the end of the agent, for people; `left`: number of values that another program has changed; `kept`: number of
/// endpoints that connections depend on.
fn text(ended: Ended, left: usize, kept: usize) -> String {
    match (ended, left, kept) {
        (Ended::HandedOver, ..) => {
            "ended; everything stays as it is, on record for the next agent or `vmcc down`".to_owned()
        }
        (Ended::Restored { problems: some @ 1.., .. }, ..) => {
            format!("ended; {some} problems: not everything is as before; `vmcc down` tries it again")
        }
        (_, 0, 0) => "ended; everything is as before".to_owned(),
        (_, some, 0) => {
            format!("ended; everything is as before, but for {some} values that another program changed")
        }
        (_, left, kept) => format!(
            "ended; everything is as before, but for {kept} endpoints that connections use and {left} values that somebody else \
             changed"
        ),
    }
}

/// Prints an event, as a warning if it needs attention.
pub(crate) fn say(event: &Event, ui: &Ui) {
    match event {
        Event::Problem { .. }
        | Event::Warning { .. }
        | Event::Unheeded { .. }
        | Event::LeftAlone { .. }
        | Event::Kept { .. }
        | Event::ReloadRefused { .. } => ui.warn(&event.to_string()),
        _ => ui.note(&event.to_string()),
    }
}
