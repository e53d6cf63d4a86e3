//! `vmcc down`: what was changed to keep is as before.

use super::status::lingering;
use super::up;
use crate::failure::{Exit, Failure, agent_failure, chain};
use crate::ui::Ui;
use serde_json::json;
use vmcc_agent::daemon::{self, Event, RollbackReport};
use vmcc_agent::{GuardEvent, needs_root};

pub(crate) fn down(ui: &Ui) -> Result<Exit, Failure> {
    needs_root("down: only root can take algorithms and what the agent changed away")
        .map_err(|e| agent_failure(&e))?;
    let undone = daemon::roll_back().map_err(|e| agent_failure(&e))?;
    vmcc_agent::undo_orphaned(&mut |seen| match seen {
        Ok(GuardEvent::Action(path_action)) => ui.note(&path_action.to_string()),
        Ok(GuardEvent::Closed(_)) => {}
        Err(error) => ui.warn(&chain(&error)),
    });
    let exit = match undone {
        Some(undone) => after_agent(&undone, ui),
        None => algorithms(ui),
    }?;
    let left = vmcc_agent::lingering_after_down().map_err(|e| agent_failure(&e))?;
    left.iter().for_each(|one| ui.note(&lingering(one)));
    Ok(exit)
}

/// No algorithm of ours is a congestion control of this host any more.
fn algorithms(ui: &Ui) -> Result<Exit, Failure> {
    let down = vmcc_agent::down().map_err(|e| agent_failure(&e))?;
    if let Some(name) = &down.still_default {
        ui.warn(&format!(
            "new connections here go on using {name}: it is the default of this network namespace, until for example \
             `sysctl -w net.ipv4.tcp_congestion_control=cubic`"
        ));
    }
    ui.answer(&json!({ "down": down.removed }), || text(&down.removed));
    Ok(Exit::Done)
}

fn text(removed: &[String]) -> String {
    match removed {
        [] => "no algorithm was loaded".to_owned(),
        names => format!("down: {}", names.join(", ")),
    }
}

/// Reports the rollback of an agent's changes. Algorithms that were up before the agent stay up.
fn after_agent(undone: &RollbackReport, ui: &Ui) -> Result<Exit, Failure> {
    undone.events.iter().for_each(|event| up::say(event, ui));
    undone.problems.iter().for_each(|problem| ui.warn(problem));
    let left: Vec<&Event> = undone.events.iter().filter(|n| matches!(n, Event::LeftAlone { .. })).collect();
    let kept: Vec<&Event> = undone.events.iter().filter(|n| matches!(n, Event::Kept { .. })).collect();
    let restored: Vec<&Event> =
        undone.events.iter().filter(|n| matches!(n, Event::Restored { .. })).collect();
    let document = json!({
        "down": undone.removed,
        "agent": undone.agent,
        "restored": restored,
        "left": left,
        "kept": kept,
        "problems": undone.problems,
    });
    ui.answer(&document, || {
        let agent = match undone.agent {
            Some(pid) => format!("the agent, process {pid}, has ended"),
            None => "an agent that ended without it had left changes".to_owned(),
        };
        format!("{agent}; {} values are as before it", restored.len())
    });
    Ok(if undone.problems.is_empty() { Exit::Done } else { Exit::CheckFailed })
}
