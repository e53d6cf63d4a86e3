//! Event traces: one connection of up to eight paths, moved by a source of numbers.
//!
//! The same source gives the same trace on every machine, so a trace is recorded by its seed (or its
//! bytes). Each [`Step`] holds what an algorithm was given and what it left, which is all that is needed to
//! replay it through another build of the same C and compare bit for bit. The fuzz target and the tests of
//! invariants run on the same traces.

use crate::{
    Algorithm, Cause, DecisionFlags, Event, EventFlags, Group, Host, MAX_CWND_PKT, MAX_PATHS, MAX_SRTT_8US,
    ParamInfo, Params, Path, Slot, SlotFlags, State,
};

/// Source of the numbers that make up a trace.
pub trait Source {
    /// The next number; `None` ends the trace.
    fn next(&mut self) -> Option<u64>;

    /// A number below `n`; `n` is at least 1.
    fn below(&mut self, n: u32) -> Option<u32> {
        Some((self.next()? % u64::from(n.max(1))) as u32)
    }

    /// A number up to `max`, every order of magnitude as likely as any other.
    fn wide(&mut self, max: u32) -> Option<u32> {
        let bits = self.below(33 - max.leading_zeros())?;
        let top = 1u64 << bits >> 1;
        Some(((self.next()? & top.saturating_sub(1)) | top).min(u64::from(max)) as u32)
    }
}

/// An endless source: SplitMix64 from a seed.
#[derive(Debug, Clone)]
pub struct Seeded(pub u64);

impl Source for Seeded {
    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(z ^ (z >> 31))
    }
}

/// The bytes of a fuzzer, four per number.
#[derive(Debug, Clone)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Source for Bytes<'_> {
    fn next(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        // Spread over 64 bits: a fuzzer should not need eight bytes to reach the upper half.
        Some(u64::from(u32::from_le_bytes(*head)).wrapping_mul(0x1_0000_0001))
    }
}

/// Range of events and states that a trace may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conduct {
    /// Only events and states that a host which keeps the contract of `cc.h` can produce.
    Lawful,
    /// Also any bits at all in the path's state, the group and the event.
    Wild,
}

/// One step: what the algorithm was given and what it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Step {
    /// The event; window, ssthresh and state are those of `before`.
    pub event: Event,
    /// The path before.
    pub before: Host,
    /// The path after.
    pub after: Host,
    /// The paths of the connection before; meant if `grouped` is nonzero.
    pub group: Group,
    /// Nonzero: the connection has several paths.
    pub grouped: u32,
    /// Nonzero: the path was established ([`Algorithm::begin`]); else [`Algorithm::step`].
    pub begin: u32,
}

/// A connection that a source of numbers moves.
#[derive(Debug, Clone)]
pub struct Walk<S> {
    source: S,
    algorithm: Algorithm,
    params: Params,
    conduct: Conduct,
    now_us: u64,
    paths: usize,
    ends: [End; MAX_PATHS],
    group: Group,
}

#[derive(Debug, Clone, Copy)]
struct End {
    host: Host,
    started: bool,
    base_rtt_us: u32,
    srtt_8us: u32,
    acked_pkt: u32,
    snd_una: u32,
    snd_nxt: u32,
}

impl<S: Source> Walk<S> {
    /// A connection with `paths` paths (1 to [`MAX_PATHS`]), not established yet. `None` if the source is empty.
    pub fn new(
        algorithm: Algorithm,
        params: Params,
        paths: usize,
        conduct: Conduct,
        mut source: S,
    ) -> Option<Self> {
        let mut ends = [End::default(); MAX_PATHS];
        let mut base_rtt_us = 0;
        for end in &mut ends {
            // Paths of a connection are often alike.
            if base_rtt_us == 0 || source.below(2)? == 0 {
                base_rtt_us = source.wide(10_000_000)?.max(10);
            }
            end.base_rtt_us = base_rtt_us;
            end.srtt_8us = end.base_rtt_us * 8;
            end.snd_una = source.next()? as u32;
            end.snd_nxt = end.snd_una;
        }
        let (paths, group) = (paths.clamp(1, MAX_PATHS), Group::default());
        Some(Self { source, algorithm, params, conduct, now_us: 1, paths, ends, group })
    }

    /// The next step of the trace; `None` at the end of the source.
    pub fn advance(&mut self) -> Option<Step> {
        let path = self.source.below(self.paths as u32)? as usize;
        let restart = self.source.below(500)? == 0;
        let pause = if self.source.below(1000)? == 0 { 200_000_000 } else { 20_000 };
        self.now_us += u64::from(self.source.wide(pause)?) + 1;
        self.ends[path].receive(&mut self.source)?;
        let mut event = self.event(path)?;
        if self.conduct == Conduct::Wild {
            self.disturb(path, &mut event)?;
        }
        let begin = restart || !self.ends[path].started;
        let mut step = Step {
            event,
            before: self.ends[path].host,
            after: self.ends[path].host,
            group: self.group,
            grouped: u32::from(self.paths > 1),
            begin: u32::from(begin),
        };
        let group = (self.paths > 1).then_some(&self.group);
        let run = if begin { Algorithm::begin } else { Algorithm::step };
        run(&self.algorithm, &step.event, &mut step.after, group, &self.params);
        let end = &mut self.ends[path];
        (end.host, end.started) = (step.after, true);
        end.snd_nxt = end.snd_una.wrapping_add(step.after.cwnd_pkt.min(1 << 24));
        self.group.publish(path, step.after.slot(step.event.srtt_8us));
        Some(step)
    }

    fn event(&mut self, path: usize) -> Option<Event> {
        let (end, source) = (&self.ends[path], &mut self.source);
        let cause = match source.below(200)? {
            0 => Cause::Rto,
            1..=3 => Cause::Loss,
            _ => Cause::None,
        };
        let rtt_us = end.base_rtt_us.saturating_add(source.wide(end.base_rtt_us.saturating_mul(20))?);
        Some(Event {
            now_us: self.now_us,
            flags: EventFlags::NONE
                .with(EventFlags::ECE, source.below(12)? == 0)
                .with(EventFlags::CWND_LIMITED, source.below(8)? != 0)
                .with(EventFlags::PEER_US, path % 2 == 1),
            state: end.host.state,
            cause,
            self_index: path as u32,
            cwnd_pkt: end.host.cwnd_pkt,
            ssthresh_pkt: end.host.ssthresh_pkt,
            srtt_8us: end.srtt_8us,
            min_rtt_us: end.base_rtt_us,
            rtt_us: if source.below(6)? == 0 { 0 } else { rtt_us },
            acked_pkt: end.acked_pkt,
            in_flight_pkt: source.wide(end.host.cwnd_pkt)?,
            snd_una: end.snd_una,
            snd_nxt: end.snd_nxt,
            peer_ts: source.wide(1 << 30)?,
        })
    }

    /// Any bits at all, in a few places.
    fn disturb(&mut self, path: usize, event: &mut Event) -> Option<()> {
        let source = &mut self.source;
        let host = &mut self.ends[path].host;
        match source.below(16)? {
            0 => host.path = any_path(source)?,
            1 => host.path.priv_words[source.below(7)? as usize] = source.next()?,
            2 => self.group.publish(source.below(MAX_PATHS as u32)? as usize, any_slot(source)?),
            3 => (host.cwnd_pkt, host.ssthresh_pkt) = (any(source)?, any(source)?),
            4 => {
                let fields = [
                    &mut event.srtt_8us,
                    &mut event.min_rtt_us,
                    &mut event.rtt_us,
                    &mut event.acked_pkt,
                    &mut event.in_flight_pkt,
                    &mut event.snd_una,
                    &mut event.snd_nxt,
                    &mut event.peer_ts,
                ];
                for field in fields {
                    *field = any(source)?;
                }
                event.now_us = source.next()?;
            }
            _ => {}
        }
        (event.cwnd_pkt, event.ssthresh_pkt) = (host.cwnd_pkt, host.ssthresh_pkt);
        Some(())
    }
}

impl Default for End {
    fn default() -> Self {
        Self {
            host: Host::new(10),
            started: false,
            base_rtt_us: 0,
            srtt_8us: 0,
            acked_pkt: 0,
            snd_una: 0,
            snd_nxt: 0,
        }
    }
}

impl End {
    /// An ACK moves the sequence numbers and the smoothed round-trip time.
    fn receive<S: Source>(&mut self, source: &mut S) -> Option<()> {
        let outstanding = self.snd_nxt.wrapping_sub(self.snd_una);
        self.acked_pkt = source.wide(outstanding.min(128))?;
        self.snd_una = self.snd_una.wrapping_add(self.acked_pkt);
        let sample = self.base_rtt_us.saturating_add(source.wide(self.base_rtt_us)?);
        let srtt = u64::from(self.srtt_8us) * 7 / 8 + u64::from(sample);
        self.srtt_8us = srtt.clamp(8, u64::from(MAX_SRTT_8US)) as u32;
        Some(())
    }
}

/// Any bits, with the edges more often than chance would have them.
fn any<S: Source>(source: &mut S) -> Option<u32> {
    Some(match source.below(6)? {
        0 => 0,
        1 => u32::MAX,
        2 => source.wide(MAX_CWND_PKT)?,
        _ => source.next()? as u32,
    })
}

fn any_path<S: Source>(source: &mut S) -> Option<Path> {
    let mut path = Path { credit_q40: source.next()?.cast_signed(), ..Path::default() };
    for word in path.pub_words.iter_mut().chain(&mut path.priv_words) {
        *word = u64::from(any(source)?) << 32 | u64::from(any(source)?);
    }
    Some(path)
}

fn any_slot<S: Source>(source: &mut S) -> Option<Slot> {
    Some(Slot {
        flags: SlotFlags(source.below(16)?),
        cwnd_pkt: any(source)?,
        ssthresh_pkt: any(source)?,
        srtt_8us: any(source)?,
        pub_words: [source.next()?, source.next()?],
    })
}

/// Sets every parameter to a bound, its default, or something between.
pub fn vary_params<S: Source>(params: &mut Params, source: &mut S) -> Option<()> {
    for info in params.algorithm().info().params {
        let value = vary(info, source.below(5)?);
        // Between the bounds by construction.
        let _ = params.set(info.name, value);
    }
    Some(())
}

fn vary(info: &ParamInfo, pick: u32) -> f64 {
    if !info.choices.is_empty() {
        return f64::from(pick % info.choices.len() as u32);
    }
    match pick {
        0 => info.min,
        1 => info.max,
        2 => f64::midpoint(info.min, info.max),
        _ => info.default,
    }
}

impl Step {
    /// Checks what holds for every algorithm after every step, whatever the state was before.
    ///
    /// # Errors
    /// The invariant that is broken.
    pub fn check(&self) -> Result<(), String> {
        self.broken_rule().map_or(Ok(()), |rule| Err(format!("{rule}: {self:?}")))
    }

    /// The first of these rules that does not hold.
    pub fn broken_rule(&self) -> Option<&'static str> {
        let (before, after) = (&self.before, &self.after);
        let known = DecisionFlags::CWND
            | DecisionFlags::SSTHRESH
            | DecisionFlags::CLOSE_PATH
            | DecisionFlags::ONLY_PATH
            | DecisionFlags::ALL_PATHS
            | DecisionFlags::GAP
            | DecisionFlags::ACK_EACH;
        let decision = &after.decision;
        let rules = [
            (after.cwnd_pkt >= 1 || before.cwnd_pkt == 0, "the window is at least one packet"),
            (after.cwnd_pkt <= before.cwnd_pkt.max(MAX_CWND_PKT), "the window grows to 2^20 at most"),
            (!decision.set.has(DecisionFlags::SSTHRESH) || after.ssthresh_pkt >= 1, "ssthresh is at least 1"),
            (after.ssthresh_pkt <= before.ssthresh_pkt.max(MAX_CWND_PKT), "ssthresh is a window"),
            (known.has(decision.set), "decisions are known ones"),
            (
                self.grouped != 0 || !decision.set.has(DecisionFlags::CLOSE_PATH),
                "a single path is not closed",
            ),
            (self.peer_is_sibling(), "the peer is another established path"),
            (after.state != State::Open || after.reducing == 0, "an open path is not reducing"),
            (self.credit_is_fraction(), "growth leaves less than one packet of credit"),
        ];
        rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| *rule)
    }

    fn peer_is_sibling(&self) -> bool {
        let Some(peer) = self.after.decision.close_in_favor_of() else { return true };
        peer < MAX_PATHS
            && peer != self.event.self_index as usize
            && self.group.path[peer].flags.has(SlotFlags::ESTABLISHED)
    }

    /// Only a step that wrote the credit is held to it: others leave what was there.
    fn credit_is_fraction(&self) -> bool {
        let credit = self.after.path.credit_q40;
        credit == self.before.path.credit_q40 || credit.unsigned_abs() < 1 << 40
    }
}
