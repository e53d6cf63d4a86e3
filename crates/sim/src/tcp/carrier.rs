//! Connections as carriers: what a session above them writes, and what it sees of their TCP.

use super::record::Closing;
use super::shard::Connections;
use super::subflow::Status;
use super::timers::Purpose;
use crate::endpoint::Wire;
use crate::engine::TimerId;
use crate::packet::Packet;
use crate::time::{Span, Time};
use vmcc_multipath::PathView;
use vmcc_tcp::CarrierInfo;

/// Half of a connection, by its index in the shard's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Sending(u32),
    Receiving(u32),
}

impl Connections {
    /// The half that a packet is for.
    pub(crate) fn half_of(&self, packet: &Packet) -> Half {
        let to = packet.to as usize;
        if super::shard::to_receiver(packet) {
            Half::Receiving(self.rx_subs[to].conn)
        } else {
            Half::Sending(self.subs[to].conn)
        }
    }

    /// The connection whose sending half a timer belongs to.
    pub(crate) fn sender_of_timer(&self, id: TimerId) -> Option<u32> {
        let (purpose, index) = Purpose::of(id);
        match purpose {
            Purpose::Subflow | Purpose::Pace => Some(self.subs[index as usize].conn),
            Purpose::App | Purpose::DelayedAck | Purpose::Read | Purpose::Sample => None,
        }
    }

    /// Connection `conn` carries `bytes` more, as far as its windows allow at once. Its twin's handshake is its own.
    pub(crate) fn carry<W: Wire>(&mut self, wire: &mut W, conn: u32, bytes: u64) {
        self.with_tx(wire, conn, |tx| {
            if tx.conn.finished || tx.conn.closing {
                return;
            }
            if !tx.conn.started {
                tx.open_established();
            }
            tx.conn.append_at_once(bytes);
            tx.push(None);
        });
    }

    /// Opens connection `conn`, whose start was left open.
    pub(crate) fn dial<W: Wire>(&mut self, wire: &mut W, conn: u32) {
        self.with_tx(wire, conn, |tx| tx.open());
    }

    /// Ends connection `conn` once everything written has been acknowledged.
    pub(crate) fn end_gracefully<W: Wire>(&mut self, wire: &mut W, conn: u32) {
        self.with_tx(wire, conn, |tx| {
            if !tx.conn.finished {
                tx.conn.close();
                if tx.conn.una >= tx.conn.end {
                    tx.finish();
                }
            }
        });
    }

    /// Ends connection `conn` now; what has not been acknowledged is lost.
    pub(crate) fn abort<W: Wire>(&mut self, wire: &mut W, conn: u32) {
        self.with_tx(wire, conn, |tx| {
            if !tx.conn.finished && tx.subs[0].status != Status::Closed {
                tx.close_subflow(0, Closing::Managed);
            }
        });
    }

    /// True once the handshake of connection `conn` is complete.
    pub(crate) fn is_connected(&self, conn: u32) -> bool {
        self.conns[conn as usize].established_at != Time::NEVER
    }

    /// True once TCP has given connection `conn` up.
    pub(crate) fn has_timed_out(&self, conn: u32) -> bool {
        self.subs[self.conns[conn as usize].first as usize].closed == Some(Closing::Timeout)
    }

    /// Bytes that the receiving half `rx` has delivered in order.
    pub(crate) fn arrived_bytes(&self, rx: u32) -> u64 {
        self.rx_conns[rx as usize].delivered_bytes
    }

    /// `TCP_INFO` of connection `conn`, which received its last acknowledgment `since_ack` ago.
    pub(crate) fn carrier_info(&self, conn: u32, since_ack: Span) -> CarrierInfo {
        let conn = &self.conns[conn as usize];
        let sub = &self.subs[conn.first as usize];
        CarrierInfo {
            mss: conn.mss_bytes.into(),
            cwnd_pkt: sub.cwnd,
            srtt: sub.rtt.srtt(),
            rttvar: Span::from_us(sub.rtt.deviation_us().into()),
            in_flight: u64::from(sub.board.out()) * u64::from(conn.mss_bytes),
            queued: conn.unsent_bytes(),
            blocked: false,
            since_ack,
            timeouts: sub.retries.into(),
            slow_start: sub.in_slow_start(),
        }
    }
}
