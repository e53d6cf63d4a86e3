//! Packet schedulers: links that select the next packet at departure, because of classes, shapers, or a rate or state that
//! changes. Two events per packet: the wire becomes free, the packet arrives.

use crate::net::queue::drr::Drr;
use crate::net::queue::shaper::{Shaper, leaves};
use crate::net::queue::{ClassQueue, Next, QueuedPacket};
use crate::net::rate::ps_per_byte_q16;
use crate::net::spec::{LimitSpec, LinkSpec, MarkingSpec, QueueSpec, Scheduling, ThresholdSpec};
use crate::time::{Span, Time};

#[derive(Clone, Debug)]
enum Discipline {
    /// One queue, or the lowest class first.
    Strict,
    Drr(Drr),
    Shaper(Box<Shaper>),
}

/// Result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enqueued {
    Queued { mark: bool },
    Full,
    Down,
}

/// Next action of a free wire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// This packet goes, marked if it waited too long.
    Send { packet: QueuedPacket, mark: bool },
    /// Ask again then.
    Wait(Time),
    /// Nothing to do.
    Idle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Paused,
    Down,
}

/// Scheduler of a link: its queues and their discipline.
#[derive(Clone, Debug)]
pub(crate) struct LinkScheduler {
    queues: Vec<ClassQueue>,
    discipline: Discipline,
    marking: MarkingSpec,
    state: State,
    /// Number of the service event that counts; earlier ones are stale.
    pub(crate) generation: u32,
    /// The wire is in use until the service event.
    pub(crate) sending: bool,
}

impl LinkScheduler {
    /// The scheduler of a link's queue.
    pub(crate) fn new(spec: &LinkSpec) -> LinkScheduler {
        let (queues, discipline, marking) = match &spec.queue {
            QueueSpec::Fifo { limit, mark } => {
                (vec![ClassQueue::new(*limit, *mark)], Discipline::Strict, MarkingSpec::None)
            }
            QueueSpec::Red(red) => {
                (vec![ClassQueue::new(red.limit, None)], Discipline::Strict, MarkingSpec::None)
            }
            QueueSpec::Classes { scheduling, marking, classes } => {
                let discipline = match scheduling {
                    Scheduling::StrictPriority => Discipline::Strict,
                    Scheduling::DeficitRoundRobin => {
                        Discipline::Drr(Drr::new(classes.iter().map(|c| c.quantum_bytes)))
                    }
                };
                let queue = |c: &crate::net::spec::ClassSpec| ClassQueue::new(c.limit, c.mark);
                (classes.iter().map(queue).collect(), discipline, *marking)
            }
            QueueSpec::Shaper { classes } => {
                let queue = |&leaf: &usize| {
                    let class = &classes[leaf];
                    let guaranteed = ps_per_byte_q16(class.guarantee_bps);
                    ClassQueue::new(
                        class.limit,
                        class.mark.map(|m| ThresholdSpec::Bytes(m.in_bytes(guaranteed))),
                    )
                };
                let queues = leaves(classes).iter().map(queue).collect();
                (queues, Discipline::Shaper(Box::new(Shaper::new(classes))), MarkingSpec::None)
            }
        };
        LinkScheduler { queues, discipline, marking, state: State::Up, generation: 0, sending: false }
    }

    /// A packet of `class` arrives.
    pub(crate) fn enqueue(&mut self, class: u8, packet: QueuedPacket, ps_per_byte_q16: u64) -> Enqueued {
        if self.state == State::Down {
            return Enqueued::Down;
        }
        let class = usize::from(class).min(self.queues.len() - 1);
        let queue = &mut self.queues[class];
        if !queue.has_room(packet.size) {
            return Enqueued::Full;
        }
        let mut mark = queue.above_threshold(ps_per_byte_q16);
        if let Discipline::Drr(drr) = &mut self.discipline {
            if queue.is_empty() {
                drr.activate(class, packet.since, ps_per_byte_q16);
            }
            if let MarkingSpec::MqEcn { port_threshold_bytes } = self.marking {
                mark |= queue.bytes() > drr.mq_ecn_threshold(class, port_threshold_bytes, ps_per_byte_q16);
            }
        }
        queue.push(packet);
        Enqueued::Queued { mark }
    }

    /// The wire is free at `now`: takes out the next packet if there is one.
    pub(crate) fn dequeue(&mut self, now: Time, wire: impl Fn(u16) -> Span) -> Action {
        if self.state != State::Up {
            return Action::Idle;
        }
        let next = match &mut self.discipline {
            Discipline::Strict => {
                self.queues.iter().position(|q| !q.is_empty()).map_or(Next::Empty, Next::Queue)
            }
            Discipline::Drr(drr) => drr.next(&self.queues, now),
            Discipline::Shaper(shaper) => shaper.next(&self.queues, now),
        };
        let class = match next {
            Next::Queue(class) => class,
            Next::Wait(until) => return Action::Wait(until),
            Next::Empty => return Action::Idle,
        };
        let queue = &mut self.queues[class];
        let Some(packet) = queue.pop() else { return Action::Idle };
        match &mut self.discipline {
            Discipline::Strict => {}
            Discipline::Drr(drr) => drr.sent(class, queue.is_empty(), now, wire(packet.size)),
            Discipline::Shaper(shaper) => shaper.sent(class, packet.size),
        }
        let mark = matches!(self.marking, MarkingSpec::Tcn { sojourn } if now.since(packet.since) > sojourn);
        Action::Send { packet, mark }
    }

    /// Bytes waiting, without the packet in service.
    pub(crate) fn bytes(&self) -> u64 {
        self.queues.iter().map(ClassQueue::bytes).sum()
    }

    /// Waiting bytes and marking threshold in bytes of each class; nothing where there is one queue only.
    pub(crate) fn classes(&self, ps_per_byte_q16: u64) -> impl Iterator<Item = (u64, Option<u64>)> {
        let threshold = move |class: usize, queue: &ClassQueue| match (&self.discipline, self.marking) {
            (Discipline::Drr(drr), MarkingSpec::MqEcn { port_threshold_bytes }) => {
                Some(drr.mq_ecn_threshold(class, port_threshold_bytes, ps_per_byte_q16))
            }
            _ => queue.threshold_bytes(ps_per_byte_q16),
        };
        let several = if self.queues.len() > 1 { &self.queues[..] } else { &[] };
        several.iter().enumerate().map(move |(class, queue)| (queue.bytes(), threshold(class, queue)))
    }

    pub(crate) fn pause(&mut self) {
        self.state = State::Paused;
    }

    pub(crate) fn up(&mut self) {
        self.state = State::Up;
    }

    /// Goes down; returns the packets that waited.
    pub(crate) fn down(&mut self) -> Vec<u32> {
        self.state = State::Down;
        if let Discipline::Drr(drr) = &mut self.discipline {
            drr.clear();
        }
        let drain = |q: &mut ClassQueue| std::iter::from_fn(|| q.pop()).map(|p| p.id).collect::<Vec<_>>();
        self.queues.iter_mut().flat_map(drain).collect()
    }
}

/// True if this queue needs two events per packet even on an unchanging link. A plain FIFO has limits in packets, or in bytes
/// of 32 bits.
pub(crate) fn needs_scheduler(queue: &QueueSpec) -> bool {
    let many = |bytes: u64| bytes >= u64::from(u32::MAX);
    let unusual = |limit: &LimitSpec| match limit {
        LimitSpec::Bytes(bytes) => many(*bytes),
        LimitSpec::Packets(_) | LimitSpec::Unlimited => false,
    };
    match queue {
        QueueSpec::Fifo { limit, mark } => {
            unusual(limit) || matches!(mark, Some(ThresholdSpec::Bytes(bytes)) if many(*bytes))
        }
        QueueSpec::Red(red) => unusual(&red.limit),
        QueueSpec::Classes { .. } | QueueSpec::Shaper { .. } => true,
    }
}
