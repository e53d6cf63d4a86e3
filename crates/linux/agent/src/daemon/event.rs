//! Events of the agent, for people and for machines.

use serde::Serialize;
use std::fmt;
use vmcc_bpf::close_requests::CloseRequest;
use vmcc_guard::PathAction;

/// Action or finding of the agent.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// A value was set.
    Set {
        /// Namespace, or `kernel`.
        place: String,
        /// Of what.
        what: String,
        /// Value before; `None`: nothing.
        from: Option<String>,
        /// The value.
        to: String,
        /// It had been set before, and somebody changed it meanwhile.
        again: bool,
    },
    /// An endpoint was announced again, because no subflow uses it yet.
    Announced {
        /// Namespace.
        place: String,
        /// Endpoint.
        what: String,
    },
    /// The value from before the agent is restored.
    Restored {
        /// Namespace, or `kernel`.
        place: String,
        /// Of what.
        what: String,
        /// Value that the agent had set.
        from: Option<String>,
        /// Value now; `None`: nothing.
        to: Option<String>,
    },
    /// Somebody else changed a value of ours; it stays.
    LeftAlone {
        /// Namespace, or `kernel`.
        place: String,
        /// Of what.
        what: String,
        /// Value now; `None`: nothing.
        found: Option<String>,
        /// Value before the agent.
        before: Option<String>,
    },
    /// An endpoint stays on record and in the kernel: its removal would close connections.
    Kept {
        /// Namespace.
        place: String,
        /// Endpoint.
        what: String,
        /// Number of those connections.
        connections: usize,
        /// Cause and remedy.
        reason: String,
    },
    /// It is not there any more, and with it what was set.
    Gone {
        /// Namespace that it was in, or `kernel`.
        place: String,
        /// Resource.
        what: String,
        /// Value before the agent.
        before: Option<String>,
    },
    /// Something is not as it should be; it is tried again.
    Problem {
        /// Object and cause.
        text: String,
    },
    /// Something is as the file says, and not enough for what it is for.
    Warning {
        /// Object, cause and remedy.
        text: String,
    },
    /// A problem is over.
    Solved {
        /// Which.
        text: String,
    },
    /// The file says something that has no effect.
    Unheeded {
        /// Setting and reason.
        text: String,
    },
    /// A path was closed by the guard because an algorithm asked for it.
    Closed {
        /// Which.
        request: CloseRequest,
    },
    /// Anything else that the guard did to a path.
    Guard {
        /// Action, path and reason.
        #[serde(flatten)]
        path_action: PathAction,
    },
    /// Everything that can be is as the file says.
    Ready {
        /// Number of values that are set.
        values: usize,
        /// Number of values that cannot be set yet.
        problems: usize,
    },
    /// The file was read again.
    Reloaded,
    /// The file was to be read again and is not usable; what was read before counts.
    ReloadRefused {
        /// Error in the file.
        text: String,
    },
}

/// A value as it is shown.
pub(super) fn or_nothing(value: Option<&String>) -> &str {
    value.map_or("nothing", String::as_str)
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { place, what, from, to, again } => {
                let again = if *again { " again, after another program changed it" } else { "" };
                write!(f, "{place}: {what} set{again}: {} -> {to}", or_nothing(from.as_ref()))
            }
            Self::Announced { place, what } => {
                write!(f, "{place}: {what} announced again: no subflow uses it yet")
            }
            Self::Restored { place, what, from, to } => {
                let (from, to) = (or_nothing(from.as_ref()), or_nothing(to.as_ref()));
                write!(f, "{place}: {what} is as before: {from} -> {to}")
            }
            Self::LeftAlone { place, what, found, before } => write!(
                f,
                "{place}: {what} was changed by another program to {} and is left alone; it was {} before vmcc",
                or_nothing(found.as_ref()),
                or_nothing(before.as_ref())
            ),
            Self::Kept { place, what, reason, .. } => write!(f, "{place}: {what} kept: {reason}"),
            Self::Gone { place, what, before } => write!(
                f,
                "{place}: {what} is not there any more, or under another name, and is forgotten; it was {} before vmcc",
                or_nothing(before.as_ref())
            ),
            Self::Problem { text } | Self::Warning { text } | Self::Unheeded { text } => write!(f, "{text}"),
            Self::Solved { text } => write!(f, "no longer: {text}"),
            Self::Closed { request } => write!(
                f,
                "closed {} -> {} (connection {:08x}): it shares a bottleneck with path {}",
                request.local, request.remote, request.token, request.peer
            ),
            Self::Guard { path_action } => write!(f, "guard: {path_action}"),
            Self::Ready { values, problems: 0 } => write!(f, "ready: {values} values set"),
            Self::Ready { values, problems } => {
                write!(f, "ready: {values} values set, {problems} that cannot be set yet")
            }
            Self::Reloaded => write!(f, "the file was read again"),
            Self::ReloadRefused { text } => {
                write!(f, "the file is not usable, what was read before stays: {text}")
            }
        }
    }
}
