/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * When was the own machine off?  A sender whose virtual CPU was taken away finds that out by its
 * own clock, and by the peer's.
 *
 *   silence  no ACK for `gap`, nor for a quarter of T, though data was in flight
 *   sleep    the ACK that ends it was sent long before: since the one that was handled last the
 *            peer's clock (RFC 7323) has gone on by less than half of the silence.  What keeps the
 *            peer from sending ACKs, a link that is down, a peer that is off, the time for which it
 *            delays one, moves that clock; a queue that grows moves it with every ACK.
 *            Without timestamps: silence of 2 T and of 50 ms, longer than ACKs are delayed
 *
 * What then holds:
 *
 *   samples  of packets that left before the end of the sleep contain it.  They do not enter T,
 *            which goes its own way from what the host's estimate was, until that is the same again
 *   timeout  if it came before an ACK that had been waiting, it was in vain: the window and
 * ssthresh of before come back.  Only timestamps prove this pace     all that was in flight is
 * acknowledged at once, and a whole window would leave as one burst: it is spread over T, for as
 * long
 *
 * Deviations: none, there is no paper.  A sleep that begins and ends while packets wait for ACKs
 * that the network still has is seen if it is longer than a quarter of T.
 *
 * Valid range: silences up to an hour.  Any content of the memory is accepted.
 */
#ifndef VMCC_AWAKE_H
#define VMCC_AWAKE_H

#include "lia.h"

#define CC_AWAKE_DELAYED_US 50000u /* Linux delays ACKs by up to 40 ms */
#define CC_AWAKE_NEAR	    8u	   /* estimates that differ by less than one of so many are alike */

#define CC_AWAKE_WAITS (1u << 0) /* data was in flight at the last ACK */
#define CC_AWAKE_SLEPT (1u << 1) /* samples may be of before woke_us */
#define CC_AWAKE_PACED (1u << 2)
#define CC_AWAKE_PROOF (1u << 3) /* both clocks tell of the last sleep */

struct CC_PRIVATE cc_awake {
	uint32_t seen_us;  /* the last ACK, modulo 2^32 */
	uint32_t peer_ms;  /* the peer's clock then; 0: unknown */
	uint32_t woke_us;  /* the ACK that ended the last sleep */
	uint32_t srtt_8us; /* T; 0: the host's is good */
	uint32_t host_8us; /* the host's, before the sample that is being judged */
	uint32_t flags;
	uint32_t before_pkt; /* the window before a timeout; 0: there was none */
	uint32_t before_ssthresh_pkt;
};

CC_INLINE uint32_t cc_awake_srtt(const struct cc_awake *a, const struct cc_event *ev)
{
	uint32_t host = a->host_8us ? a->host_8us : ev->srtt_8us;

	return cc_known_srtt(a->srtt_8us ? a->srtt_8us : host);
}

CC_INLINE void cc_awake_init(struct cc_awake *a, const struct cc_event *ev)
{
	a->host_8us = ev->srtt_8us;
}

/* Does this ACK end a sleep? */
CC_INLINE int cc_awake_ends_sleep(struct cc_awake *a, const struct cc_event *ev, uint64_t gap_us)
{
	uint32_t silence_us = (uint32_t)ev->now_us - a->seen_us;
	uint32_t srtt_us = cc_awake_srtt(a, ev) >> 3;
	/* At most: a clock shows whole ticks. */
	uint64_t advance_us = ((uint64_t)(ev->peer_ms - a->peer_ms) + 1) * 1000;

	if (!(a->flags & CC_AWAKE_WAITS) || silence_us < gap_us)
		return 0;
	if (!a->peer_ms || !ev->peer_ms)
		return silence_us >= cc_max(2 * srtt_us, CC_AWAKE_DELAYED_US);
	/* An ACK that was overtaken has a clock of before. */
	if ((ev->peer_ms - a->peer_ms) >> 31)
		advance_us = 0;
	a->flags |= CC_AWAKE_PROOF;
	return silence_us >= srtt_us / 4 && 2 * advance_us < silence_us;
}

/* Takes a sample into T, or withholds it. */
CC_INLINE void cc_awake_sample(struct cc_awake *a, const struct cc_event *ev)
{
	uint32_t sample_8us = (uint32_t)cc_min64((uint64_t)ev->rtt_us * 8, CC_MAX_SRTT_8US);
	uint32_t awake_us = (uint32_t)ev->now_us - a->woke_us, host = ev->srtt_8us;

	if (a->flags & CC_AWAKE_SLEPT && ev->rtt_us > awake_us) {
		a->srtt_8us = cc_awake_srtt(a, ev);
		return;
	}
	a->flags &= ~CC_AWAKE_SLEPT;
	if (a->srtt_8us) {
		uint32_t t = cc_known_srtt(cc_known_srtt(a->srtt_8us) -
					   (cc_known_srtt(a->srtt_8us) >> 3) + (sample_8us >> 3));
		uint32_t apart = cc_max(t, host) - cc_min(t, host);

		a->srtt_8us = apart < t / CC_AWAKE_NEAR ? 0 : t;
	}
}

/* The window that the ACK leaves, spread over T; for as long. */
CC_INLINE void cc_awake_pace(struct cc_awake *a, const struct cc_event *ev, int woke,
			     struct cc_decision *out)
{
	uint32_t srtt_us = cc_awake_srtt(a, ev) >> 3;
	uint32_t w = cc_window(out->set & CC_SET_CWND ? out->cwnd_pkt : ev->cwnd_pkt);

	if (woke) {
		a->flags |= CC_AWAKE_PACED;
		cc_set_gap(out, cc_max(srtt_us / w, 1));
	} else if (a->flags & CC_AWAKE_PACED && (uint32_t)ev->now_us - a->woke_us >= srtt_us) {
		a->flags &= ~CC_AWAKE_PACED;
		cc_set_gap(out, 0);
	}
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

/* Every ACK, before it is used.  `paces`: restart with pacing. */
CC_INLINE void cc_awake_on_ack(struct cc_awake *a, const struct cc_event *ev, uint64_t gap_us,
			       uint64_t paces, struct cc_decision *out)
{
	int woke;

	a->flags &= ~CC_AWAKE_PROOF;
	woke = cc_awake_ends_sleep(a, ev, gap_us);
	if (woke) {
		a->woke_us = (uint32_t)ev->now_us;
		a->flags |= CC_AWAKE_SLEPT;
		if (a->before_pkt && a->flags & CC_AWAKE_PROOF && ev->state == CC_STATE_LOSS)
			cc_awake_undo(a, ev, out);
	}
	a->before_pkt = 0;
	if (ev->rtt_us)
		cc_awake_sample(a, ev);
	if (paces)
		cc_awake_pace(a, ev, woke, out);
	if (!(a->flags & CC_AWAKE_SLEPT))
		a->host_8us = ev->srtt_8us;
	a->seen_us = (uint32_t)ev->now_us;
	a->peer_ms = ev->peer_ms;
	a->flags =
		ev->snd_una != ev->snd_nxt ? a->flags | CC_AWAKE_WAITS : a->flags & ~CC_AWAKE_WAITS;
}

CC_INLINE void cc_awake_on_congestion(struct cc_awake *a, const struct cc_event *ev)
{
	if (ev->cause != CC_CAUSE_RTO || a->before_pkt)
		return;
	a->before_pkt = cc_window(ev->cwnd_pkt);
	a->before_ssthresh_pkt = ev->ssthresh_pkt;
}

#endif /* VMCC_AWAKE_H */
