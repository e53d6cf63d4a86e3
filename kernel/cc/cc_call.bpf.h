/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A call of an algorithm's hook: the event from the socket, the decision to it (cc.bpf.c). */
#ifndef VMCC_CC_CALL_BPF_H
#define VMCC_CC_CALL_BPF_H

#include "algorithm.bpf.h"
#include "cc_siblings.bpf.h"
#include "cc_space.bpf.h"

/*
 * Linux's timestamps are in milliseconds unless a route asks for microseconds; then the peer's are
 * taken to be, too: both ends of such a route have to.  They are passed on as they are, since
 * milliseconds made of them would not wrap at 2^32, but jump back every 71 minutes.
 */
static __always_inline u32 peer_clock_is_us(const struct tcp_sock *tp)
{
	return bpf_core_field_exists(tp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD(tp, tcp_usec_ts);
}

/*
 * The flags of an event from conditions.  The verifier forgets their values here, or it would
 * follow the hooks once per combination.
 */
CC_SEPARATE u32 event_flags(u32 peer_us, u32 limited, u32 ece)
{
	return (peer_us ? CC_EV_PEER_US : 0) | (limited ? CC_EV_CWND_LIMITED : 0) |
	       (ece ? CC_EV_ECE : 0);
}

static __always_inline void event_load(struct cc_event *ev, struct sock *sk, const struct mp_sk *ca)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u32 min_rtt_us = tp->rtt_min.s[0].v;

	ev->now_us = tp->tcp_mstamp | !tp->tcp_mstamp;
	ev->flags = event_flags(peer_clock_is_us(tp), cwnd_limited(tp), ca->flags & SK_ECE);
	ev->state = ca_state(sk);
	ev->cause = CC_CAUSE_NONE;
	ev->self = ca->slot & (CC_MAX_PATHS - 1);
	ev->cwnd_pkt = tp->snd_cwnd;
	ev->ssthresh_pkt = tp->snd_ssthresh;
	ev->srtt_8us = tp->srtt_us;
	ev->min_rtt_us = min_rtt_us == ~0u ? 0 : min_rtt_us;
	ev->rtt_us = 0;
	ev->acked_pkt = 0;
	ev->in_flight_pkt = in_flight(tp);
	ev->snd_una = tp->snd_una;
	ev->snd_nxt = tp->snd_nxt;
	ev->peer_ts = tp->rx_opt.rcv_tsval;
}

static __always_inline void call_load(struct call *c, struct sock *sk, const struct mp_sk *ca)
{
	event_load(&c->ev, sk, ca);
	c->path = ca->path;
}

static __always_inline void decision_clear(struct call *c)
{
	__builtin_memset(&c->out, 0, sizeof(c->out));
}

/* Takes over a decision; the event follows, for the next hook of the same ACK. */
static __always_inline void apply(struct call *c, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	if (c->out.set & CC_SET_SSTHRESH) {
		tp->snd_ssthresh = c->out.ssthresh_pkt;
		c->ev.ssthresh_pkt = c->out.ssthresh_pkt;
	}
	if (c->out.set & CC_SET_CWND) {
		c->ev.cwnd_pkt = cc_min(cc_max(c->out.cwnd_pkt, 1), tp->snd_cwnd_clamp);
		tp->snd_cwnd = c->ev.cwnd_pkt;
	}
	if (CC_PACES && c->out.set & CC_SET_GAP)
		space(sk, c->out.gap_us, c->out.set & CC_ACK_EACH);
	if (CC_COUPLED && c->out.set & CC_CLOSE_PATH)
		close_path(sk, c->out.peer);
}

/* Asks the algorithm; `c` is a struct call *, `entry` the connection's. */
#define RUN(hook, c, entry)                                                                        \
	do {                                                                                       \
		decision_clear(c);                                                                 \
		MP_HOOK(hook)(&(c)->ev, &(c)->path, (entry) ? &(entry)->group : 0,                 \
			      &mp_config.params, &(c)->out);                                       \
	} while (0)

#if CC_NEEDS_ECN
/*
 * True if on_ack counts the packets of this ACK as marked.  Under AccECN an ACK may cover packets
 * with marks and without.  It then counts as a whole, rounded to the nearer of both; the rest of
 * the `due` marks stays for the next ACK, so that the sum over ACKs is that of delivered_ce.
 */
CC_SEPARATE u32 counts_as_marked(u32 ece, u32 accurate, u32 due, u32 acked)
{
	if (!accurate)
		return ece;
	return acked && 2 * (s32)due >= (s32)acked;
}

/* noinline: keeps the caller's stack below 512 bytes. */
static __noinline int count_marks(struct cc_event *ev, struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	u32 marked = counts_as_marked(ev->flags & CC_EV_ECE, accurate_ecn(tp),
				      tp->delivered_ce - ca->counted_ce, ev->acked_pkt);

	ca->counted_ce += ev->acked_pkt * (marked & accurate_ecn(tp));
	ev->flags = (ev->flags & ~CC_EV_ECE) | (marked & CC_EV_ECE);
	return 0;
}
#else
static __always_inline int count_marks(struct cc_event *ev, struct sock *sk)
{
	return 0;
}
#endif

/* Fills in what the callbacks of this ACK noted; true if on_ack is due. */
static __always_inline int take_ack(struct call *c, struct sock *sk, struct mp_sk *ca)
{
	u8 flags = ca->flags;
	u32 sampled = -(u32) !!(flags & SK_SAMPLE);

	if (!(flags & (SK_ACK | SK_SAMPLE)))
		return 0;
	/* Without branches, which the verifier would follow through all of on_ack. */
	c->ev.rtt_us = ca->rtt_us & sampled;
	c->ev.acked_pkt = ca->acked_pkt & sampled;
	ca->flags = flags & ~(SK_ACK | SK_SAMPLE);
	count_marks(&c->ev, sk);
	if (CC_DETECTS)
		ca->slot |= SLOT_DETECT;
	return 1;
}

/* Starts a call: the event, and on_ack if an ACK is still due. */
static __always_inline struct mp_group *call_begin(struct call *c, struct sock *sk,
						   struct mp_sk *ca)
{
	struct mp_group *entry = group_find(ca);

	call_load(c, sk, ca);
	if (take_ack(c, sk, ca)) {
		RUN(on_ack, c, entry);
		apply(c, sk);
		/* Through memory: else the verifier follows growth once per branch of on_ack. */
		ca->path = c->path;
		barrier();
		c->path = ca->path;
	}
	return entry;
}

/* Ends a call: what the algorithm keeps, and what it shows to siblings. */
static __always_inline void call_end(const struct call *c, struct sock *sk, struct mp_sk *ca,
				     struct mp_group *entry)
{
	ca->path = c->path;
	publish(sk, ca, c, entry);
}

/* on_ack alone: no growth follows. */
static __noinline int ack_only(struct sock *sk)
{
	struct mp_sk *ca = mp_sk(sk);
	struct mp_group *entry;
	struct call c;

	entry = call_begin(&c, sk, ca);
	call_end(&c, sk, ca, entry);
	return 0;
}

#endif /* VMCC_CC_CALL_BPF_H */
