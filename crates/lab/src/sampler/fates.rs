//! Fates of MPTCP subflows: those that were opened, those that were closed while their connection continued, and the reasons.

use super::plain;
use crate::spec::{LabSpec, flow_of};
use crate::topology::Topology;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use vmcc_metrics::observed::{Closed, End};
use vmcc_netlink::{Ends, Event, Events};

/// Fate of one subflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fate {
    pub(crate) opened: bool,
    pub(crate) closed: Option<Closed>,
    /// The remote address that it had.
    address: Option<Address>,
}

/// A remote address of a connection: the sender's number, the connection's token there, the address's identifier.
type Address = (usize, u32, u8);

/// Those of a run, by local and remote end at the sender.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Fates {
    #[serde(with = "pairs")]
    known: BTreeMap<(SocketAddr, SocketAddr), Fate>,
    /// Announcements are missing: nobody knows what became of whom.
    incomplete: bool,
}

/// Listens to the kernels of the senders.
#[derive(Default)]
pub(crate) struct Listener {
    senders: Vec<Events>,
    withdrawn: BTreeSet<Address>,
    fates: Fates,
}

impl Fates {
    pub(crate) fn of(&self, ends: (SocketAddr, SocketAddr)) -> Fate {
        self.known.get(&ends).copied().unwrap_or_default()
    }

    /// End of a subflow.
    pub(crate) fn end(&self, ends: (SocketAddr, SocketAddr)) -> End {
        match self.of(ends).closed {
            _ if self.incomplete => End::Unseen,
            Some(why) => End::Closed(why),
            None => End::WithConnection,
        }
    }
}

impl Fates {
    /// Takes in those that were seen elsewhere.
    pub(crate) fn join(&mut self, others: Self) {
        self.known.extend(others.known);
        self.incomplete |= others.incomplete;
    }
}

/// A map as a list, because the keys of JSON's are texts.
mod pairs {
    use super::Fate;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    type Map = BTreeMap<(SocketAddr, SocketAddr), Fate>;

    pub(super) fn serialize<S: Serializer>(map: &Map, to: S) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Map, D::Error> {
        Ok(Vec::<((SocketAddr, SocketAddr), Fate)>::deserialize(from)?.into_iter().collect())
    }
}

impl Listener {
    /// A kernel that announces nothing leaves all fates unknown.
    pub(crate) fn open(topology: &Topology) -> Self {
        let (senders, _) = topology.senders_and_receivers();
        let opened: Result<Vec<Events>, _> = senders.iter().map(|sender| sender.run(Events::open)).collect();
        let fates = Fates { incomplete: opened.is_err(), ..Fates::default() };
        Self { senders: opened.unwrap_or_default(), fates, ..Self::default() }
    }

    /// Takes what was announced until `t_us`.
    pub(crate) fn take(&mut self, spec: &LabSpec, t_us: u64) {
        for sender in 0..self.senders.len() {
            match self.senders[sender].pending() {
                Ok(events) => events.iter().for_each(|event| self.note(spec, sender, t_us, event)),
                Err(_) => self.fates.incomplete = true,
            }
        }
    }

    fn note(&mut self, spec: &LabSpec, sender: usize, t_us: u64, event: &Event) {
        match *event {
            Event::Established(ends) => self.fate(ends).opened = true,
            Event::Withdrawn { token, remote_id } => self.withdraw((sender, token, remote_id)),
            Event::Closed { ends, token, remote_id, error, reset } => {
                let flow = flow_of(ends.remote.port()).and_then(|flow| spec.flows.get(flow));
                // When its time is over a connection ends by itself.
                if flow.is_some_and(|flow| t_us < flow.stop.get() / 1_000) {
                    let address = (sender, token, remote_id);
                    let withdrawn = self.withdrawn.contains(&address);
                    let fate = self.fate(ends);
                    fate.address = Some(address);
                    fate.closed.get_or_insert(reason(error, reset, withdrawn));
                }
            }
        }
    }

    /// The news takes another subflow than the end of the one that is closed for it: either may come first.
    fn withdraw(&mut self, address: Address) {
        self.withdrawn.insert(address);
        for fate in self.fates.known.values_mut().filter(|fate| fate.address == Some(address)) {
            fate.closed = fate.closed.map(|why| if why == Closed::Peer { Closed::PathManager } else { why });
        }
    }

    fn fate(&mut self, ends: Ends) -> &mut Fate {
        self.fates.known.entry((plain(ends.local), plain(ends.remote))).or_default()
    }

    pub(crate) fn finish(self) -> Fates {
        self.fates
    }
}

/// Reason of a subflow's close, from the error of its socket.
fn reason(error: Option<i32>, reset: bool, withdrawn: bool) -> Closed {
    use nix::libc::{ECONNABORTED, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT};
    match error {
        Some(ECONNABORTED) => Closed::Guard,
        // What a router said meanwhile stands for the timeout.
        Some(ETIMEDOUT | EHOSTUNREACH | ENETUNREACH) => Closed::Timeout,
        _ if withdrawn => Closed::PathManager,
        None if !reset => Closed::Peer,
        _ => Closed::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_withdrawal_is_matched_before_or_after_subflow_end() {
        let spec = crate::convert::tests::of_text(
            "[topology]\nkind='parallel-paths'\npaths=2\nrate='20mbit'\ndelay='20us'\n[[traffic]]\nkind='bulk'\n",
        )
        .unwrap();
        let ends =
            Ends { local: "10.77.1.1:40000".parse().unwrap(), remote: "10.77.1.2:5201".parse().unwrap() };
        let closed = |token| Event::Closed { ends, token, remote_id: 2, error: None, reset: false };
        let withdrawn = Event::Withdrawn { token: 7, remote_id: 2 };
        let end = |events: &[Event]| {
            let mut listener = Listener::default();
            events.iter().for_each(|event| listener.note(&spec, 0, 1_000, event));
            listener.finish().end((ends.local, ends.remote))
        };
        assert_eq!(end(&[withdrawn, closed(7)]), End::Closed(Closed::PathManager));
        assert_eq!(end(&[closed(7), withdrawn]), End::Closed(Closed::PathManager));
        assert_eq!(end(&[closed(8), withdrawn]), End::Closed(Closed::Peer), "of another connection");
        assert_eq!(end(&[withdrawn]), End::WithConnection);
    }

    #[test]
    fn socket_error_gives_the_close_reason_of_a_subflow() {
        for (error, reset, withdrawn, why) in [
            (Some(103), false, false, Closed::Guard),
            (Some(110), false, false, Closed::Timeout),
            (Some(113), false, false, Closed::Timeout),
            (Some(104), false, false, Closed::Reset),
            (None, true, false, Closed::Reset),
            (None, false, true, Closed::PathManager),
            (None, false, false, Closed::Peer),
        ] {
            assert_eq!(reason(error, reset, withdrawn), why, "{error:?} {reset} {withdrawn}");
        }
    }
}
