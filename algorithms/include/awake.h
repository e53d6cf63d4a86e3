/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clang-format off */
/*
 * Detection of descheduling: a sender compares its own clock with the peer's to find intervals in
 * which its virtual CPU did not run.  Such an interval is a "sleep" in the names below.
 *
 *   silence  no ACK for `gap`, nor for a quarter of T, although data were in flight
 *   sleep    the ACK that ends it was sent long before: since the previous ACK the peer's clock (RFC
 *            7323) has advanced by less than half of the silence.  A link that is down, a peer that
 *            is descheduled, a delayed ACK or a queue in the data's direction advance that clock.
 *            Without timestamps: silence of 2 T and of 50 ms, longer than ACKs are delayed
 *
 * If a machine runs for less than one RTT at a time, the ACK before a silence had waited as well.
 * Its wait is `late`, from the last sleep on, and counts as silence:
 *
 *   late     at a sleep: late + silence - the advance of the peer's clock.  With every other ACK it
 *            changes by the advance of the own clock less that of the peer's, to 0 at least and
 *            never up.  It is 0 again with the first sample of a packet that left after the sleep
 *   sleep    2 * (late + silence - advance) > silence
 *
 * If the peer was suspended, its clock stopped, and all later ACKs appear late.  The wait of an ACK
 * is part of its RTT sample, in addition to the path's own RTT, the lower of T and the host's
 * minimum.  A sample that is too short to contain `late` refutes it: `late` then counts as 0, and
 * so it does without a sample.
 *
 * An ACK that was overtaken by another is no proof: the network delayed it.  It is otherwise
 * ignored.
 *
 * Effects:
 *
 *   samples  of packets that left before the end of the sleep contain it.  They do not enter T,
 *            which departs from the host's estimate until both are equal again
 *
 *   timeout  before an ACK that had waited is spurious: window and ssthresh are restored; during a
 *            reduction, its target.  Only timestamps prove this, and only those of this silence:
 *            2 * (silence - advance) > silence, and the peer sent the ACK before the timeout: a
 *            later one may acknowledge the retransmission
 *
 *   pace     all data in flight are acknowledged at once, and a whole window would leave as a burst.
 *            It is paced over T, and up to 2 T if it has not left by then: a host that begins to
 *            reduce meanwhile limits the window to the small amount in flight, and returns to
 *            ssthresh at the end.  ssthresh is paced then, and over half of T in slow start, which
 *            doubles it.  Not if runs are shorter than one RTT: most of the window would still wait
 *            at the next sleep, which costs more than a queue that overflows.  A run is long enough
 *            if a packet of it was acknowledged in it.  `trust` increases by one with each such
 *            run and decreases by eight with each other, from 0 to 15; from 8 on the window is
 *            paced.  A sleep of less than T continues the one before if its ACK was there before
 *
 * Deviations: none, there is no paper.  A sleep that begins and ends while the ACKs are still in the
 * network is detected if it is longer than a quarter of T.  If all ACKs of a connection waited
 * alike from the first one on, no sleep is detected.  There is one false positive: the network
 * suddenly delays ACKs by more than `gap` and a quarter of T (a queue that jumps, a radio link that
 * pauses).  Samples of one RTT are then withheld and one window is paced; a timeout before such an
 * ACK was spurious as well.
 *
 * Valid range: silences up to half an hour.  Any content of the memory is accepted.
 */
/* clang-format on */
#ifndef VMCC_AWAKE_H
#define VMCC_AWAKE_H

#include "lia.h"

#define CC_AWAKE_DELAYED_US   50000u /* Linux delays ACKs by up to 40 ms */
#define CC_AWAKE_SIMILAR_PART 8u     /* estimates that differ by less than 1/8 are alike */
#define CC_AWAKE_TICK_US      1000u  /* of the peer's clock */
#define CC_AWAKE_LATE_US      3600000000u

#define CC_AWAKE_IN_FLIGHT   (1u << 0) /* data was in flight at the last ACK */
#define CC_AWAKE_DESCHEDULED (1u << 1) /* samples may be of before woke_us */
#define CC_AWAKE_PACED	     (1u << 2)
#define CC_AWAKE_CERTAIN     (1u << 3) /* the clocks over this silence alone prove a sleep */

#define CC_AWAKE_TRUST_SHIFT 8 /* in flags: how sure it is that the next run is long enough */
#define CC_AWAKE_TRUST	     (15u << CC_AWAKE_TRUST_SHIFT)
#define CC_AWAKE_TRUST_LOSS  8u /* by a run that was too short */
#define CC_AWAKE_TRUST_PACES 8u

/* In flags: from the last ACK to the timeout, rounded down. */
#define CC_AWAKE_FIRED_SHIFT 12
#define CC_AWAKE_FIRED	     (0xfffffu << CC_AWAKE_FIRED_SHIFT)
#define CC_AWAKE_FIRED_BITS  11 /* it counts in 2^11 us */

#define CC_AWAKE_PACES (1ull << 63) /* beside a time */

struct CC_PRIVATE cc_awake {
	uint32_t seen_us;  /* the last ACK, modulo 2^32 */
	uint32_t peer_ts;  /* the peer's clock then; 0: unknown */
	uint32_t woke_us;  /* the ACK that ended the last sleep */
	uint32_t host_8us; /* the host's T, before the sample that is being judged */
	uint32_t flags;
	uint32_t before_pkt; /* the window before a timeout, or what it was reduced to; 0: none */
	uint32_t before_ssthresh_pkt;
	uint32_t late_us; /* for how long the last ACK had waited, if sleeps followed each other */
};

/* T; `own_8us` is ours, 0 if the host's is good. */
CC_INLINE uint32_t cc_awake_srtt(const struct cc_awake *a, const struct cc_event *ev,
				 uint32_t own_8us)
{
	uint32_t host = a->host_8us ? a->host_8us : ev->srtt_8us;

	return cc_known_srtt(own_8us ? own_8us : host);
}

CC_INLINE void cc_awake_init(struct cc_awake *a, const struct cc_event *ev)
{
	a->host_8us = ev->srtt_8us;
	a->flags = CC_AWAKE_TRUST;
}

/* For how long the ACK waited that ends a silence, if the one before it had waited for `late_us`.
 */
CC_INLINE uint64_t cc_awake_waited_us(const struct cc_awake *a, const struct cc_event *ev,
				      uint32_t late_us)
{
	uint64_t own_us = (uint64_t)late_us + ((uint32_t)ev->now_us - a->seen_us);
	uint64_t tick_us = ev->flags & CC_EV_PEER_US ? 1 : CC_AWAKE_TICK_US;
	uint32_t ticks = ev->peer_ts - a->peer_ts;

	/* After an hour without data a clock of microseconds may look like one of before. */
	if (!a->peer_ts || !ev->peer_ts || ticks >> 31)
		return own_us;
	return own_us - cc_min64(ticks * tick_us, own_us);
}

/* True if the peer sent this ACK before the one that was handled last: the network reordered it. */
CC_INLINE int cc_awake_was_overtaken(const struct cc_awake *a, const struct cc_event *ev)
{
	return a->flags & CC_AWAKE_IN_FLIGHT && a->peer_ts && ev->peer_ts &&
	       (ev->peer_ts - a->peer_ts) >> 31;
}

/* Part of `late_us` that the RTT sample can contain; 0 if that is much less. */
CC_INLINE uint32_t cc_awake_borne_out(const struct cc_event *ev, uint32_t srtt_us, uint64_t late_us)
{
	uint32_t path_us = ev->min_rtt_us ? cc_min(ev->min_rtt_us, srtt_us) : srtt_us;
	uint32_t most_us = cc_min(ev->rtt_us - cc_min(ev->rtt_us, path_us), CC_AWAKE_LATE_US);

	if (late_us > (uint64_t)most_us + most_us / CC_AWAKE_SIMILAR_PART + 2 * CC_AWAKE_TICK_US)
		return 0;
	return (uint32_t)cc_min64(late_us, most_us);
}

/* An ACK that ends no sleep may have waited less than the one before. */
CC_INLINE void cc_awake_catch_up(struct cc_awake *a, const struct cc_event *ev, uint32_t srtt_us)
{
	uint32_t late_us = (uint32_t)cc_min64(cc_awake_waited_us(a, ev, a->late_us), a->late_us);

	a->late_us = ev->rtt_us ? cc_awake_borne_out(ev, srtt_us, late_us) : late_us;
}

/* True if, by both clocks, this ACK ends a descheduled interval. */
CC_INLINE int cc_awake_had_waited(struct cc_awake *a, const struct cc_event *ev, uint32_t srtt_us,
				  uint32_t silence_us)
{
	/* At least: a clock shows whole ticks. */
	uint64_t enough_us = (uint64_t)silence_us + 2 * CC_AWAKE_TICK_US;
	uint64_t alone_us = cc_awake_waited_us(a, ev, 0), late_us = alone_us;

	if (ev->rtt_us) {
		late_us = cc_awake_borne_out(ev, srtt_us, cc_awake_waited_us(a, ev, a->late_us));
		alone_us = cc_awake_borne_out(ev, srtt_us, alone_us);
		late_us = cc_max64(late_us, alone_us);
	}
	if (silence_us < srtt_us / 4 || 2 * late_us <= enough_us)
		return 0;
	if (2 * alone_us > enough_us)
		a->flags |= CC_AWAKE_CERTAIN;
	a->late_us = (uint32_t)cc_min64(late_us, CC_AWAKE_LATE_US);
	return 1;
}

/* True if this ACK ends a descheduled interval. */
CC_INLINE int cc_awake_ends_sleep(struct cc_awake *a, const struct cc_event *ev, uint32_t srtt_us,
				  uint64_t gap_us)
{
	uint32_t silence_us = (uint32_t)ev->now_us - a->seen_us;

	if (!(a->flags & CC_AWAKE_IN_FLIGHT) || silence_us < gap_us)
		return 0;
	if (!a->peer_ts || !ev->peer_ts)
		return silence_us >= cc_max(2 * srtt_us, CC_AWAKE_DELAYED_US);
	return cc_awake_had_waited(a, ev, srtt_us, silence_us);
}

/*
 * True if it is still the interval before.  If this ACK was there already when the last one was
 * handled, the machine has not got to it since: it is slow, or was off for a moment, and the run
 * goes on.
 */
CC_INLINE int cc_awake_goes_on(const struct cc_awake *a, uint32_t srtt_us, uint32_t silence_us)
{
	return silence_us < srtt_us && a->late_us >= silence_us + CC_AWAKE_TICK_US;
}

/* A sleep has ended a run. */
CC_INLINE void cc_awake_judge(struct cc_awake *a)
{
	uint32_t trust = (a->flags & CC_AWAKE_TRUST) >> CC_AWAKE_TRUST_SHIFT;

	/* Nothing that left in it was acknowledged in it. */
	if (a->flags & CC_AWAKE_DESCHEDULED)
		trust -= cc_min(trust, CC_AWAKE_TRUST_LOSS);
	else
		trust = cc_min(trust + 1, CC_AWAKE_TRUST >> CC_AWAKE_TRUST_SHIFT);
	a->flags = (a->flags & ~CC_AWAKE_TRUST) | trust << CC_AWAKE_TRUST_SHIFT;
}

/* Takes a sample into T, or withholds it. */
CC_INLINE uint32_t cc_awake_sample(struct cc_awake *a, const struct cc_event *ev, uint32_t own_8us)
{
	uint32_t sample_8us = (uint32_t)cc_min64((uint64_t)ev->rtt_us * 8, CC_MAX_SRTT_8US);
	uint32_t awake_us = (uint32_t)ev->now_us - a->woke_us;
	uint32_t t, apart;

	if (a->flags & CC_AWAKE_DESCHEDULED && ev->rtt_us > awake_us)
		return cc_awake_srtt(a, ev, own_8us);
	a->flags &= ~CC_AWAKE_DESCHEDULED;
	a->late_us = 0;
	if (!own_8us)
		return 0;
	t = cc_known_srtt(own_8us);
	t = cc_known_srtt(t - (t >> 3) + (sample_8us >> 3));
	apart = cc_max(t, ev->srtt_8us) - cc_min(t, ev->srtt_8us);
	return apart < t / CC_AWAKE_SIMILAR_PART ? 0 : t;
}

/* True if all of the window that was to be spread has left.  An eighth may go at once. */
CC_INLINE int cc_awake_has_left(const struct cc_awake *a, const struct cc_event *ev,
				uint32_t srtt_us, uint32_t w)
{
	uint32_t awake_us = (uint32_t)ev->now_us - a->woke_us;

	if (awake_us < srtt_us)
		return 0;
	return awake_us >= 2 * srtt_us || !ev->in_flight_pkt || ev->in_flight_pkt >= w - w / 8 - 1;
}

/*
 * The window that is to be spread.  During a reduction it may be anything, and is ssthresh after
 * it; after a timeout ssthresh, too, or more if the host takes that back.
 */
CC_INLINE uint32_t cc_awake_spread(const struct cc_event *ev, const struct cc_decision *out)
{
	uint32_t w = cc_window(out->set & CC_SET_CWND ? out->cwnd_pkt : ev->cwnd_pkt);

	return ev->state > CC_STATE_DISORDER ? cc_max(w, cc_window(ev->ssthresh_pkt)) : w;
}

/* The time between packets.  Slow start doubles the window meanwhile. */
CC_INLINE uint32_t cc_awake_gap_us(const struct cc_event *ev, uint32_t srtt_us, uint32_t w)
{
	return cc_max(srtt_us / (w < ev->ssthresh_pkt / 2 ? 2 * w : w), 1);
}

/* The window that the ACK leaves, spread over T; for as long. */
CC_INLINE void cc_awake_pace(struct cc_awake *a, const struct cc_event *ev, uint32_t srtt_us,
			     int woke, struct cc_decision *out)
{
	uint32_t w = cc_awake_spread(ev, out);

	if (woke && (a->flags & CC_AWAKE_TRUST) >> CC_AWAKE_TRUST_SHIFT >= CC_AWAKE_TRUST_PACES) {
		a->flags |= CC_AWAKE_PACED;
		cc_set_gap(out, cc_awake_gap_us(ev, srtt_us, w));
	} else if (a->flags & CC_AWAKE_PACED && (woke || cc_awake_has_left(a, ev, srtt_us, w))) {
		a->flags &= ~CC_AWAKE_PACED;
		cc_set_gap(out, 0);
	}
}

/* True if the peer sent the ACK before the timeout that preceded it: the timeout was spurious. */
CC_INLINE int cc_awake_was_in_vain(const struct cc_awake *a, const struct cc_event *ev,
				   uint32_t silence_us)
{
	uint64_t fired_us = (uint64_t)(a->flags >> CC_AWAKE_FIRED_SHIFT) << CC_AWAKE_FIRED_BITS;
	uint64_t advance_us = silence_us - cc_awake_waited_us(a, ev, 0);

	if (!a->before_pkt || !(a->flags & CC_AWAKE_CERTAIN) || ev->state != CC_STATE_LOSS)
		return 0;
	return advance_us + CC_AWAKE_TICK_US < fired_us;
}

/* The timeout before this ACK was in vain. */
CC_INLINE void cc_awake_undo(const struct cc_awake *a, const struct cc_event *ev,
			     struct cc_decision *out)
{
	uint32_t ssthresh = cc_min(a->before_ssthresh_pkt, CC_MAX_CWND_PKT);

	cc_set_cwnd(out, cc_max(cc_window(a->before_pkt), cc_window(ev->cwnd_pkt)));
	if (ssthresh > ev->ssthresh_pkt)
		cc_set_ssthresh(out, ssthresh);
}

/* This ACK ends a sleep. */
CC_INLINE void cc_awake_wakes(struct cc_awake *a, const struct cc_event *ev, uint32_t srtt_us,
			      struct cc_decision *out)
{
	uint32_t silence_us = (uint32_t)ev->now_us - a->seen_us;

	if (!cc_awake_goes_on(a, srtt_us, silence_us))
		cc_awake_judge(a);
	a->woke_us = (uint32_t)ev->now_us;
	a->flags |= CC_AWAKE_DESCHEDULED;
	if (cc_awake_was_in_vain(a, ev, silence_us))
		cc_awake_undo(a, ev, out);
}

/* An ACK in its turn: does it end a sleep? */
CC_INLINE int cc_awake_hear(struct cc_awake *a, const struct cc_event *ev, uint32_t srtt_us,
			    uint64_t gap_us, struct cc_decision *out)
{
	int woke;

	a->flags &= ~CC_AWAKE_CERTAIN;
	woke = cc_awake_ends_sleep(a, ev, srtt_us, gap_us);
	if (woke)
		cc_awake_wakes(a, ev, srtt_us, out);
	else
		cc_awake_catch_up(a, ev, srtt_us);
	a->before_pkt = 0;
	a->seen_us = (uint32_t)ev->now_us;
	a->peer_ts = ev->peer_ts;
	return woke;
}

/* Every ACK: the new `own_8us`.  `gap`: what shorter silence is none, and CC_AWAKE_PACES. */
CC_SEPARATE int cc_awake_ack(struct cc_awake *a, const struct cc_event *ev, uint32_t own_8us,
			     uint64_t gap, struct cc_decision *out)
{
	uint32_t srtt_us;
	int woke = 0;

	if (!a || !ev || !out)
		return 0;
	srtt_us = cc_awake_srtt(a, ev, own_8us) >> 3;
	if (!cc_awake_was_overtaken(a, ev))
		woke = cc_awake_hear(a, ev, srtt_us, gap & ~CC_AWAKE_PACES, out);
	if (ev->rtt_us)
		own_8us = cc_awake_sample(a, ev, own_8us);
	if (gap & CC_AWAKE_PACES)
		cc_awake_pace(a, ev, cc_awake_srtt(a, ev, own_8us) >> 3, woke, out);
	if (!(a->flags & CC_AWAKE_DESCHEDULED))
		a->host_8us = ev->srtt_8us;
	a->flags = ev->snd_una != ev->snd_nxt ? a->flags | CC_AWAKE_IN_FLIGHT
					      : a->flags & ~CC_AWAKE_IN_FLIGHT;
	return (int)own_8us;
}

/* The same, before the ACK is used.  `paces`: restart with pacing. */
CC_INLINE uint32_t cc_awake_on_ack(struct cc_awake *a, const struct cc_event *ev, uint32_t own_8us,
				   uint64_t gap_us, uint64_t paces, struct cc_decision *out)
{
	uint64_t gap = cc_min64(gap_us, CC_AWAKE_PACES - 1) | cc_nonzero(paces) << 63;

	return (uint32_t)cc_awake_ack(a, ev, own_8us, gap, out);
}

CC_INLINE void cc_awake_on_congestion(struct cc_awake *a, const struct cc_event *ev)
{
	uint32_t fired = ((uint32_t)ev->now_us - a->seen_us) >> CC_AWAKE_FIRED_BITS;

	if (ev->cause != CC_CAUSE_RTO || a->before_pkt)
		return;
	fired = cc_min(fired, CC_AWAKE_FIRED >> CC_AWAKE_FIRED_SHIFT);
	a->flags = (a->flags & ~CC_AWAKE_FIRED) | fired << CC_AWAKE_FIRED_SHIFT;
	a->before_pkt = cc_window(ev->cwnd_pkt);
	a->before_ssthresh_pkt = ev->ssthresh_pkt;
	/* The reduction itself stays. */
	if (ev->state == CC_STATE_CWR || ev->state == CC_STATE_RECOVERY)
		a->before_pkt = cc_min(a->before_pkt, cc_window(ev->ssthresh_pkt));
}

#endif /* VMCC_AWAKE_H */
