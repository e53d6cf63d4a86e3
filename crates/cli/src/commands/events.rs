//! `vmcc events`: what happens, as it happens.

use crate::failure::{Exit, Failure, agent_failure};
use crate::interrupt;
use crate::ui::Ui;
use vmcc_agent::Follower;

pub(crate) fn events(ui: &Ui) -> Result<Exit, Failure> {
    let stop = interrupt::listen()?;
    let follower = Follower::new().map_err(|e| agent_failure(&e))?;
    ui.note(if follower.hears_agent() {
        "following the agent and the subflows of this network namespace until Ctrl-C"
    } else {
        "following the subflows of this network namespace until Ctrl-C; no agent runs"
    });
    let followed = follower.follow(stop, &mut |event| {
        let text = event["text"].as_str().map(str::to_owned);
        ui.plain(&if ui.json() { event.to_string() } else { text.unwrap_or_else(|| event.to_string()) });
    });
    followed.map_err(|e| agent_failure(&e))?;
    Ok(Exit::Interrupted)
}
