//! A port that is damaged: something of ours is on it, or should be, and it is not served as a whole.

use crate::serve::attachment::HALF_CHANGED;
use crate::serve::device::Device;
use crate::serve::error::PortError;
use crate::serve::{record, shared_rate, state};
use crate::{Backend, PortStats};

const NO_PROGRAM: &str = "its program is gone: nothing is put into classes, nothing is marked";
const NO_RECORD: &str =
    "what there is of vmcc's is not whole, and nothing says what it was; `vmcc unmark` removes it";

/// Description of the damage, in the `differences` of otherwise empty statistics.
pub(crate) fn damaged(port: &str) -> Result<PortStats, PortError> {
    let mut dev = Device::open(port)?;
    let none = || PortError::NotAttached { port: port.to_owned() };
    if record::is_held(dev.index)? {
        // Somebody is about to serve it, or to end that.
        return Err(none());
    }
    let (content, _) = state::peek(&mut dev)?;
    let difference = match content {
        Some(content) if content.changing => HALF_CHANGED.to_owned(),
        Some(content) => match content.member {
            Some(member) => shared_rate::differs(&mut dev, &member.vm)?,
            None if content.queues && !dev.has_our_queues()? => {
                format!("{NO_PROGRAM}; so are its queues: nothing caps it")
            }
            None => NO_PROGRAM.to_owned(),
        },
        None if state::has_ours(&mut dev)? => NO_RECORD.to_owned(),
        None => return Err(none()),
    };
    Ok(PortStats {
        port: port.to_owned(),
        backend: Backend::Auto,
        differences: vec![difference],
        ..PortStats::default()
    })
}
