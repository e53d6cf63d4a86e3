//! `vmcc doctor`: what this host can do.

use crate::failure::{Exit, Failure};
use crate::table;
use crate::ui::Ui;
use serde::Serialize;
use serde_json::json;

/// One thing that the host can or cannot do.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) purpose: String,
    pub(crate) ok: bool,
    /// True if the result is unknown, because only root may try it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unknown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Check {
    fn verdict(&self) -> &'static str {
        match (self.ok, self.unknown) {
            (true, _) => "ok",
            (false, true) => "?",
            (false, false) => "NO",
        }
    }
}

/// Usability of an engine, with the reason if it cannot be used.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EngineState {
    pub(crate) usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl EngineState {
    /// Usable when `result` is fine, else with its reason and remedy.
    pub(crate) fn of(result: &Result<(), Failure>) -> Self {
        match result {
            Ok(()) => Self { usable: true, reason: None, remedy: None },
            Err(f) => Self { usable: false, reason: Some(f.message.clone()), remedy: f.help.clone() },
        }
    }
}

pub(crate) fn doctor(ui: &Ui) -> Result<Exit, Failure> {
    let (checks, kernel, guest) = host();
    let engines = [
        ("sim", EngineState::of(&Ok(()))),
        ("kernel", EngineState::of(&kernel)),
        ("guest", EngineState::of(&guest)),
    ];
    let by_name: serde_json::Map<String, serde_json::Value> =
        engines.iter().map(|(name, state)| ((*name).to_owned(), json!(state))).collect();
    ui.answer(&json!({ "engines": by_name, "checks": checks }), || text(&engines, &checks));
    Ok(Exit::Done)
}

#[cfg(feature = "kernel")]
fn host() -> (Vec<Check>, Result<(), Failure>, Result<(), Failure>) {
    use vmcc_lab::engine::{self, Unusable};
    let checks = engine::checks().iter().map(|c| Check {
        name: c.name.clone(),
        purpose: c.purpose.to_owned(),
        ok: c.ok,
        unknown: c.unknown,
        reason: c.reason.clone(),
        remedy: c.remedy.clone(),
    });
    let usable = |answer: Result<(), Unusable>| answer.map_err(|e| crate::failure::engine_failure(&e.into()));
    (checks.collect(), usable(engine::kernel_usable()), usable(engine::guest_usable()))
}

#[cfg(not(feature = "kernel"))]
fn host() -> (Vec<Check>, Result<(), Failure>, Result<(), Failure>) {
    let missing = |name| Err(crate::failure::without_kernel(name));
    (Vec::new(), missing("the kernel engine"), missing("the guest engine"))
}

fn text(engines: &[(&str, EngineState)], checks: &[Check]) -> String {
    let mut table = table::plain(&["ENGINE", "", "REASON", "REMEDY"]);
    for (name, state) in engines {
        let verdict = if state.usable { "usable" } else { "not usable" };
        let (reason, remedy) = (state.reason.as_deref(), state.remedy.as_deref());
        table.add_row([name, verdict, reason.unwrap_or(""), remedy.unwrap_or("")]);
    }
    let mut text = table::render(&table);
    if checks.is_empty() {
        return text;
    }
    let mut table = table::plain(&["CHECK", "", "NEEDED FOR"]);
    for check in checks {
        table.add_row([check.name.as_str(), check.verdict(), check.purpose.as_str()]);
    }
    text.push_str("\n\n");
    text.push_str(&table::render(&table));
    if checks.iter().any(|check| check.unknown) {
        text.push_str("\n\n?: only root can find out\n  help: sudo vmcc doctor");
    }
    for check in checks.iter().filter(|check| !check.ok && !check.unknown) {
        let reason = check.reason.as_deref().unwrap_or("no reason given");
        text.push_str(&format!("\n\n{}: {reason}", check.name));
        if let Some(remedy) = &check.remedy {
            text.push_str(&format!("\n  help: {remedy}"));
        }
    }
    text
}
