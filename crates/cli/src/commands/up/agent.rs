//! The agent in the foreground.

use crate::failure::{Exit, Failure, agent_failure};
use crate::ui::Ui;
use serde_json::json;
use std::path::Path;
use vmcc_agent::daemon::{self, Ended, News};

pub(crate) fn agent(file: &Path, ui: &Ui) -> Result<Exit, Failure> {
    let mut left = Vec::new();
    let ended = daemon::run(file, &mut |news| {
        say(news, ui);
        if let News::LeftAlone { place, what, .. } = news {
            left.push(format!("{place}: {what}"));
        }
    });
    let ended = ended.map_err(|e| agent_failure(&e))?;
    let restored = ended != Ended::HandedOver;
    ui.answer(&json!({ "restored": restored, "left": left }), || match (ended, left.len()) {
        (Ended::HandedOver, _) => {
            "ended; everything stays as it is, on record for the next agent or `vmcc down`".to_owned()
        }
        (_, 0) => "ended; everything is as before".to_owned(),
        (_, some) => {
            format!("ended; everything is as before, but for {some} values that somebody else changed")
        }
    });
    Ok(if ended == (Ended::Restored { interrupted: true }) { Exit::Interrupted } else { Exit::Done })
}

/// What needs somebody's attention is a warning.
pub(crate) fn say(news: &News, ui: &Ui) {
    match news {
        News::Problem { .. } | News::LeftAlone { .. } | News::ReloadRefused { .. } => {
            ui.warn(&news.to_string())
        }
        _ => ui.note(&news.to_string()),
    }
}
