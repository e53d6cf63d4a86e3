//! `vmcc down`: no algorithm of ours is a congestion control of this host any more.

use crate::failure::{Exit, Failure, agent_failure};
use crate::ui::Ui;
use serde_json::json;

pub(crate) fn down(ui: &Ui) -> Result<Exit, Failure> {
    let down = vmcc_agent::down().map_err(|e| agent_failure(&e))?;
    if let Some(name) = &down.still_default {
        ui.warn(&format!(
            "new connections here go on using {name}: it is the default of this network namespace, until for example \
             `sysctl -w net.ipv4.tcp_congestion_control=cubic`"
        ));
    }
    ui.answer(&json!({ "down": down.removed }), || match down.removed.as_slice() {
        [] => "nothing was up".to_owned(),
        names => format!("down: {}", names.join(", ")),
    });
    Ok(Exit::Done)
}
