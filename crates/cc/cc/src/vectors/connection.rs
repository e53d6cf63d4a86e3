//! A connection under the driver of `host.h`, moved by the rows of a vector file.

use super::file::Row;
use crate::{
    Algorithm, Cause, DecisionFlags, Event, EventFlags, Group, Host, MAX_CWND_PKT, MAX_PATHS, Params,
    SSTHRESH_INFINITE,
};

/// Acknowledgments of one row, at most.
const MAX_ACKS: f64 = 1e6;

/// A path. One unit of sequence space is one packet: bytes do not matter.
struct End {
    host: Host,
    srtt_8us: u32,
    min_rtt_us: u32,
    snd_una: u32,
    snd_nxt: u32,
}

pub(crate) struct Connection {
    algorithm: Algorithm,
    params: Params,
    now_us: u64,
    ends: Vec<End>,
    seen: DecisionFlags,
    peer: Option<usize>,
}

impl Connection {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let params = Params::defaults(algorithm);
        Self { algorithm, params, now_us: 1_000_000, ends: Vec::new(), seen: DecisionFlags::NONE, peer: None }
    }

    /// Carries out one row; returns how many values it checked.
    pub(crate) fn run(&mut self, row: &Row) -> Result<usize, String> {
        match row.verb.as_str() {
            "param" => self.set_params(row),
            "paths" => self.set_paths(row),
            "window" => self.set_window(row),
            "rtt" => self.set_rtt(row),
            "ack" => self.ack(row),
            "signal" => self.signal(row),
            "increase" => self.increase(row),
            "cut" => self.cut(row),
            "windows" => row.only(&[]).and_then(|()| row.check(&self.windows())),
            "thresholds" => row.only(&[]).and_then(|()| row.check(&self.thresholds())),
            "public" => self.public(row),
            "decided" => self.decided(row),
            other => Err(format!("no such verb: `{other}`")),
        }
    }

    fn windows(&self) -> Vec<f64> {
        self.ends.iter().map(|e| f64::from(e.host.cwnd_pkt)).collect()
    }

    fn thresholds(&self) -> Vec<f64> {
        self.ends.iter().map(|e| f64::from(e.host.ssthresh_pkt)).collect()
    }

    fn set_params(&mut self, row: &Row) -> Result<usize, String> {
        for (name, value) in row.pairs() {
            self.params.set(name, value).map_err(|e| e.to_string())?;
        }
        Ok(0)
    }

    /// Establishes paths with windows `w` and round-trip times `srtt`, in avoidance unless `slow=1`.
    fn set_paths(&mut self, row: &Row) -> Result<usize, String> {
        row.only(&["w", "srtt", "min", "slow"])?;
        let w = row.list("w")?.ok_or("paths need w")?;
        let srtt = row.list("srtt")?.ok_or("paths need srtt")?;
        if w.len() != srtt.len() || w.len() > MAX_PATHS || !self.ends.is_empty() {
            return Err(format!("paths need one srtt per window; a case has them once, at most {MAX_PATHS}"));
        }
        let slow = row.get("slow", 0.0)? != 0.0;
        for (i, (w, srtt)) in w.iter().zip(srtt).enumerate() {
            let mut host = Host::new(*w as u32);
            host.ssthresh_pkt = if slow { SSTHRESH_INFINITE } else { *w as u32 };
            let min_rtt_us = row.get("min", srtt)? as u32;
            self.ends.push(End { host, srtt_8us: (srtt * 8.0) as u32, min_rtt_us, snd_una: 1, snd_nxt: 1 });
            let (event, group) = (self.event(i, EventFlags::NONE), self.group());
            self.algorithm.begin(&event, &mut self.ends[i].host, group.as_ref(), &self.params);
            self.ends[i].snd_nxt = 1 + (*w as u32).min(MAX_CWND_PKT);
        }
        Ok(0)
    }

    fn path(&self, row: &Row) -> Result<usize, String> {
        let path = row.get("path", 0.0)? as usize;
        if path < self.ends.len() { Ok(path) } else { Err(format!("there is no path {path}")) }
    }

    fn set_window(&mut self, row: &Row) -> Result<usize, String> {
        row.only(&["path", "w", "ssthresh"])?;
        let (path, w) = (self.path(row)?, row.get("w", 0.0)? as u32);
        self.ends[path].host.cwnd_pkt = w;
        self.ends[path].host.ssthresh_pkt = row.get("ssthresh", f64::from(w))? as u32;
        Ok(0)
    }

    fn set_rtt(&mut self, row: &Row) -> Result<usize, String> {
        row.only(&["path", "srtt", "min"])?;
        let path = self.path(row)?;
        let end = &mut self.ends[path];
        end.srtt_8us = (row.get("srtt", f64::from(end.srtt_8us) / 8.0)? * 8.0) as u32;
        end.min_rtt_us = row.get("min", f64::from(end.min_rtt_us))? as u32;
        Ok(0)
    }

    fn group(&self) -> Option<Group> {
        if self.ends.len() < 2 {
            return None;
        }
        Some(self.ends.iter().map(|end| end.host.slot(end.srtt_8us)).collect())
    }

    fn event(&self, path: usize, flags: EventFlags) -> Event {
        let end = &self.ends[path];
        Event {
            now_us: self.now_us,
            flags,
            self_index: path as u32,
            cwnd_pkt: end.host.cwnd_pkt,
            ssthresh_pkt: end.host.ssthresh_pkt,
            srtt_8us: end.srtt_8us,
            min_rtt_us: end.min_rtt_us,
            snd_una: end.snd_una,
            snd_nxt: end.snd_nxt,
            ..Event::default()
        }
    }

    /// Lets `dt` seconds pass.
    fn pass(&mut self, row: &Row) -> Result<(), String> {
        let dt_us = (row.get("dt", 0.0)? * 1e6).round() as u64;
        self.now_us = self.now_us.saturating_add(dt_us);
        Ok(())
    }

    fn step(&mut self, path: usize, event: &Event) {
        let group = self.group();
        let host = &mut self.ends[path].host;
        self.algorithm.step(event, host, group.as_ref(), &self.params);
        self.seen |= host.decision.set;
        if host.decision.set.has(DecisionFlags::CLOSE_PATH) {
            self.peer = Some(host.decision.peer as usize);
        }
    }

    /// `n` ACKs of `acked` packets. `round=1`: each acknowledges all that was sent before it.
    fn ack(&mut self, row: &Row) -> Result<usize, String> {
        row.only(&["path", "n", "acked", "ece", "limited", "round", "rtt", "dt"])?;
        let path = self.path(row)?;
        let flag = |key, default| row.get(key, default).map(|v| v != 0.0);
        let flags = EventFlags::NONE
            .with(EventFlags::ECE, flag("ece", 0.0)?)
            .with(EventFlags::CWND_LIMITED, flag("limited", 1.0)?);
        let count = row.get("n", 1.0)?;
        if !(0.0..=MAX_ACKS).contains(&count) {
            return Err(format!("n is at most {MAX_ACKS}"));
        }
        for _ in 0..count as u64 {
            self.pass(row)?;
            let end = &mut self.ends[path];
            end.snd_una = if flag("round", 0.0)? { end.snd_nxt } else { end.snd_una };
            let mut event = self.event(path, flags);
            event.acked_pkt = row.get("acked", 1.0)? as u32;
            event.rtt_us = row.get("rtt", 0.0)? as u32;
            self.step(path, &event);
            // As in Linux, new data is sent after the ACK was processed.
            let end = &mut self.ends[path];
            let sent = u32::from(flag("round", 0.0)?) * end.host.cwnd_pkt.max(1);
            end.snd_nxt = end.snd_nxt.wrapping_add(sent);
        }
        if row.expect.is_empty() { Ok(0) } else { row.check(&[f64::from(self.ends[path].host.cwnd_pkt)]) }
    }

    /// A loss episode or a timeout, without an ACK.
    fn signal(&mut self, row: &Row) -> Result<usize, String> {
        row.only(&["path", "cause", "dt"])?;
        let path = self.path(row)?;
        self.pass(row)?;
        let mut event = self.event(path, EventFlags::CWND_LIMITED);
        event.cause = cause(row)?;
        self.step(path, &event);
        if row.expect.is_empty() { Ok(0) } else { row.check(&[f64::from(self.ends[path].host.cwnd_pkt)]) }
    }

    /// Growth per acknowledged packet on each path, were it to get an ACK `dt` from now that ends a
    /// round. Nothing changes.
    fn increase(&mut self, row: &Row) -> Result<usize, String> {
        row.only(&["dt"])?;
        let now = self.now_us;
        self.pass(row)?;
        let found: Vec<f64> = (0..self.ends.len()).map(|path| self.growth(path)).collect();
        self.now_us = now;
        row.check(&found)
    }

    fn growth(&self, path: usize) -> f64 {
        let (mut event, group) = (self.event(path, EventFlags::CWND_LIMITED), self.group());
        event.snd_una = event.snd_nxt;
        let mut state = self.ends[path].host.path;
        let before = i128::from(state.credit_q40);
        self.algorithm.on_ack(&event, &mut state, group.as_ref(), &self.params);
        event.acked_pkt = 1;
        let decision = self.algorithm.on_grow(&event, &mut state, group.as_ref(), &self.params);
        let w = decision.cwnd().unwrap_or(event.cwnd_pkt);
        let packets = i128::from(w) - i128::from(event.cwnd_pkt);
        ((packets << 40) + i128::from(state.credit_q40) - before) as f64 / (1u64 << 40) as f64
    }

    /// The window of each path, were it to reduce now. Nothing changes.
    fn cut(&mut self, row: &Row) -> Result<usize, String> {
        row.only(&["cause"])?;
        let group = self.group();
        let mut found = Vec::new();
        for path in 0..self.ends.len() {
            let mut event = self.event(path, EventFlags::CWND_LIMITED);
            event.cause = cause(row)?;
            let mut state = self.ends[path].host.path;
            let decision = self.algorithm.on_congestion(&event, &mut state, group.as_ref(), &self.params);
            let ssthresh = decision.ssthresh().ok_or("no ssthresh was answered")?;
            found.push(f64::from(decision.cwnd().unwrap_or(ssthresh)));
        }
        row.check(&found)
    }

    /// A published word of every path, `bits` bits from bit `from` on, divided by `scale`.
    fn public(&self, row: &Row) -> Result<usize, String> {
        row.only(&["word", "from", "bits", "scale"])?;
        let (word, from) = (row.get("word", 0.0)? as usize & 1, row.get("from", 0.0)? as u32);
        let bits = row.get("bits", 64.0)? as u32;
        if !(1..=64).contains(&bits) || from > 63 {
            return Err("a word has bits 0 to 63".to_owned());
        }
        let mask = u64::MAX >> (64 - bits);
        let scale = row.get("scale", 1.0)?;
        let value = |e: &End| ((e.host.path.pub_words[word] >> from) & mask) as f64 / scale;
        row.check(&self.ends.iter().map(value).collect::<Vec<_>>())
    }

    /// Checks the decision about paths since the last `decided`: close:PEER, only, all or nothing.
    fn decided(&mut self, row: &Row) -> Result<usize, String> {
        row.only(&[])?;
        let has = |flag| self.seen.has(flag);
        let found = match (self.peer, has(DecisionFlags::ONLY_PATH), has(DecisionFlags::ALL_PATHS)) {
            (Some(peer), false, false) => format!("close:{peer}"),
            (None, true, false) => "only".to_owned(),
            (None, false, true) => "all".to_owned(),
            (None, false, false) => "nothing".to_owned(),
            other => format!("{other:?}"),
        };
        (self.seen, self.peer) = (DecisionFlags::NONE, None);
        if row.expect == [found.as_str()] {
            Ok(1)
        } else {
            Err(format!("decided {found}, expected {:?}", row.expect))
        }
    }
}

fn cause(row: &Row) -> Result<Cause, String> {
    match row.text("cause") {
        Some("ece") => Ok(Cause::Ece),
        Some("loss") => Ok(Cause::Loss),
        Some("rto") => Ok(Cause::Rto),
        other => Err(format!("cause is ece, loss or rto, not {other:?}")),
    }
}
