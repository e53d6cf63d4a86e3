//! One shard: a part of the network, its hosts, and the loop over its events.

use crate::engine::{Ctx, Endpoints, TimerId};
use crate::net::{ACK_ONLY, AT_HOST, Crossings, MAX_ENDPOINT, Network};
use crate::packet::{Packet, Sack};
use crate::time::Time;
use crate::wheel::{Due, EventKey, Kind, Prefetch};

#[derive(Debug)]
pub(crate) struct Shard<E> {
    pub(crate) ctx: Ctx,
    pub(crate) hosts: E,
    pub(crate) events: u64,
}

/// Brings closer what coming arrivals will touch.
struct Prefetcher<'a, E> {
    net: &'a Network,
    hosts: &'a E,
}

impl<E> Copy for Prefetcher<'_, E> {}

impl<E> Clone for Prefetcher<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Endpoints> Prefetch for Prefetcher<'_, E> {
    #[inline(always)]
    fn soon(self, key: EventKey, payload: u32, target: u32) {
        if key.is_arrival() {
            self.net.prefetch(payload, target);
            if target & AT_HOST != 0 {
                self.hosts.prefetch(target & MAX_ENDPOINT, target & ACK_ONLY != 0);
            }
        }
    }

    #[inline(always)]
    fn near(self, target: u32) {
        if target & AT_HOST != 0 {
            self.hosts.prefetch_more(target & MAX_ENDPOINT, target & ACK_ONLY != 0);
        }
    }
}

impl<E> Shard<E> {
    /// Takes in packets from other shards; empties the buffer.
    pub(crate) fn take_in(&mut self, arrived: &mut Crossings) {
        self.ctx.net.enter(arrived, &mut self.ctx.wheel);
    }
}

impl<E: Endpoints> Shard<E> {
    /// Handles events before `end`, at most `most`; whether it handled all.
    pub(crate) fn run_part(&mut self, end: Time, most: u64) -> bool {
        let mut left = most;
        while left != 0
            && let Some(due) = self.ctx.wheel.pop(end, Prefetcher { net: &self.ctx.net, hosts: &self.hosts })
        {
            self.ctx.now = due.at;
            left -= 1;
            self.handle(due);
        }
        self.events += most - left;
        left != 0
    }

    #[inline]
    fn handle(&mut self, due: Due) {
        if !due.key.is_arrival() {
            self.handle_other(due.key, due.payload, due.at);
        } else if due.target & AT_HOST == 0 {
            self.ctx.net.arrive(due.payload, due.target, due.at, &mut self.ctx.wheel);
        } else {
            self.deliver(due.payload);
        }
    }

    #[inline(never)]
    fn handle_other(&mut self, key: EventKey, payload: u32, now: Time) {
        let source = key.source();
        match key.kind() {
            Kind::Arrival => {}
            Kind::Timer => {
                self.ctx.timer_events += 1;
                self.hosts.on_timer(&mut self.ctx, TimerId(source));
            }
            Kind::Control => self.ctx.control(source),
            Kind::Service => self.ctx.net.service(source, payload, now, &mut self.ctx.wheel),
        }
    }

    #[inline]
    fn deliver(&mut self, id: u32) {
        let packet = self.ctx.net.deliver(id);
        let ranges;
        let mut sack = &Sack::EMPTY;
        if packet.has(Packet::SACK | Packet::PAYLOAD) {
            if !packet.has(Packet::SACK) {
                return self.deliver_payload(id, &packet);
            }
            ranges = self.ctx.net.sack(id);
            sack = &ranges;
        }
        // The only call, so that it costs no more than what it calls.
        self.hosts.on_packet(&mut self.ctx, &packet, sack);
    }

    #[inline(never)]
    fn deliver_payload(&mut self, id: u32, packet: &Packet) {
        let payload = self.ctx.net.payloads.take(id);
        self.hosts.on_payload(&mut self.ctx, packet, &payload);
        self.ctx.net.payloads.reuse(payload);
    }
}
