//! Pairs of sender and receivers.

use std::sync::Arc;

use vmcc_scenario::Scenario;
use vmcc_scenario::model::{Pairing, Traffic};

use crate::build::{Fabric, FabricError};
use crate::rng::{Streams, below};

/// A sender and the receivers it may choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) host: usize,
    pub(crate) name: Arc<str>,
    /// Receivers by number and name; never empty.
    pub(crate) receivers: Vec<(usize, Arc<str>)>,
    /// True if each connection chooses one receiver at random; false if all are used.
    pub(crate) random: bool,
}

/// The senders of the entry whose random streams are called after `identity`, in the topology's order; one for each pair unless receivers are random.
pub(crate) fn senders(
    scenario: &Scenario,
    fabric: &Fabric,
    traffic: &Traffic,
    identity: &str,
    streams: &Streams,
) -> Result<Vec<Sender>, FabricError> {
    let (from, to) = scenario.endpoints(traffic);
    let number = |name: &String| fabric.host(name).map(|host| (host, Arc::from(name.as_str())));
    let from: Vec<_> = from.iter().map(number).collect::<Result<_, _>>()?;
    let to: Vec<_> = to.iter().map(number).collect::<Result<_, _>>()?;
    let one = |(host, name): &(usize, Arc<str>), receivers: Vec<(usize, Arc<str>)>, random| Sender {
        host: *host,
        name: name.clone(),
        receivers,
        random,
    };
    let others = |host: usize| to.iter().filter(|(h, _)| *h != host).cloned().collect::<Vec<_>>();
    let all = match traffic.common.pairing {
        Pairing::All => from.iter().map(|s| one(s, others(s.0), false)).collect(),
        Pairing::Random => from.iter().map(|s| one(s, others(s.0), true)).collect(),
        Pairing::OneToOne => one_to_one(&from, &to).map(|(s, r)| one(s, vec![r.clone()], false)).collect(),
        Pairing::Permutation => {
            let shuffled = shuffle(&from, to.clone(), streams, identity);
            from.iter().zip(shuffled).map(|(s, r)| one(s, vec![r], false)).collect::<Vec<_>>()
        }
    };
    Ok(all.into_iter().filter(|sender| !sender.receivers.is_empty()).collect())
}

type Host = (usize, Arc<str>);

/// The i-th with the i-th, the shorter list repeated; a host that would meet itself meets the next.
fn one_to_one<'a>(from: &'a [Host], to: &'a [Host]) -> impl Iterator<Item = (&'a Host, &'a Host)> {
    (0..from.len().max(to.len())).filter_map(move |i| {
        let sender = &from[i % from.len()];
        let meets = |shift: usize| &to[(i + shift) % to.len()];
        let receiver = if meets(0).0 == sender.0 { meets(1) } else { meets(0) };
        (receiver.0 != sender.0).then_some((sender, receiver))
    })
}

/// Fisher and Yates; then nobody sends to itself.
fn shuffle(from: &[Host], mut to: Vec<Host>, streams: &Streams, identity: &str) -> Vec<Host> {
    let mut stream = streams.stream(&format!("traffic/{identity}/permutation"));
    for i in (1..to.len()).rev() {
        to.swap(i, below(&mut stream, i + 1));
    }
    for i in 0..to.len() {
        if from.get(i).is_some_and(|s| s.0 == to[i].0) {
            let next = (i + 1) % to.len();
            to.swap(i, next);
        }
    }
    to
}
