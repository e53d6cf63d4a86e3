/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An algorithm as one of Linux's TCP congestion controls: the only struct_ops wrapper.
 *
 * Compiled once per entry of registry.toml with
 *     CC_ALG          its name          CC_KERNEL_NAME  its name in the kernel, a string
 *     CC_ALG_SOURCE   its source file   CC_COUPLED      1 if it reads its siblings, else 0
 *     CC_NEEDS_ECN    1 if it needs every mark echoed, else 0
 *     CC_DETECTS      1 if it detects paths that share a bottleneck, else 0
 *     CC_PACES        1 if it has packets spaced, else 0
 *
 * Linux's callbacks, and the hooks that they lead to:
 *
 *   pkts_acked, in_ack_event: noted.  Either may come first (Linux 6.16 swapped them), either may
 *   be missing.  on_ack runs once both are there, or growth or a change of state follows, at the
 *   latest when the next ACK arrives.  in_ack_event exists for echoed marks only: Linux calls it
 *   for every segment at a receiver as well, which an algorithm without ECN need not pay for.
 *   Whether an ACK echoed a mark stays known until the next in_ack_event: one ACK may end a
 *   reduction and begin another, so that Linux asks again after on_ack has run.
 *
 *   ssthresh: noted.  Linux calls it before it gives the reason; set_state, which follows at once
 *   (tcp_enter_cwr, tcp_enter_recovery, tcp_enter_loss), tells a loss, an echoed mark or a timeout.
 *
 *   set_state: on_ack if still due, on_congestion if ssthresh was asked for or the timer expired,
 *   then on_state if the state is another.
 *
 *   cong_avoid: on_ack if still due, on_grow.
 *
 *   detect: once on_ack has run, at the end of in_ack_event, pkts_acked or cong_avoid (of the next
 *   one if it ran in set_state), noinline for the stack limit.
 *
 *   cwnd_event: the receiver's echo of marks (echo.bpf.h).  With AccECN the receiver counts marks
 *   instead, and on_ack sees that count (count_marks).
 *
 *   undo_cwnd: Linux's own rule; no hook.
 *
 *   min_tso_segs: the spacing that was asked for (cc_space.bpf.h).
 *
 * The window that on_congestion returns is not taken: Linux reduces gradually (PRR) to ssthresh.
 */
#include "cc_call.bpf.h"
#include "cc_detect.bpf.h"
#include "cc_mend.bpf.h"
#include "echo.bpf.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Every callback of an ACK has come, and Linux is in a state in which no growth will follow. */
static __always_inline void ack_complete(struct sock *sk, u8 flags)
{
	u32 state = ca_state(sk);

	if ((flags & SK_WHOLE_ACK) == SK_WHOLE_ACK &&
	    (state == CC_STATE_CWR || state == CC_STATE_RECOVERY))
		ack_only(sk);
}

/*
 * Leaves the connection to Reno, as Linux's own DCTCP does, if ECN has not been negotiated; true if
 * it has been left.  Its packets must not say that they can be marked: nothing would echo the
 * marks.  Only Linux can take ECT from a socket, and does so for an algorithm that needs no ECN.
 */
static __always_inline int without_ecn(struct sock *sk)
{
	char reno[] = "reno";

	if (!CC_NEEDS_ECN || ((const struct tcp_sock *)sk)->ecn_flags & TCP_ECN_NEGOTIATED)
		return 0;
	if (bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1))
		return 0;
	count(MP_COUNT_NO_ECN);
	return 1;
}

static __noinline int init_path(struct sock *sk)
{
	struct mp_sk *ca = mp_sk(sk);
	struct mp_group *entry;
	struct call c;

	call_load(&c, sk, ca);
	entry = group_find(ca);
	RUN(init, &c, entry);
	apply(&c, sk);
	call_end(&c, sk, ca, entry);
	return 0;
}

/* Begins, unless the handshake has shown that there is no ECN. */
static __always_inline void begin(struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);

	if (without_ecn(sk))
		return;
	ca->group_key = 0;
	ca->rtt_us = 0;
	if (accurate_ecn(tp))
		ca->counted_ce = tp->delivered_ce;
	else
		ca->prior_rcv_nxt = tp->rcv_nxt;
	ca->gap = 0;
	ca->acked_pkt = 0;
	ca->slot = 0;
	ca->flags = SK_LIVE;
	membership(sk, ca);
	init_path(sk);
}

/*
 * An algorithm that was selected while connecting was initialised before the peer could answer
 * about ECN, and Linux does not do so again: it begins with the first ACK.  What Linux calls during
 * a handshake, before init, does not get here: the state is another.
 */
static __always_inline void begin_late(struct sock *sk)
{
	if (CC_NEEDS_ECN && sk->__sk_common.skc_state == TCP_ESTABLISHED)
		begin(sk);
}

SEC("struct_ops")
void BPF_PROG(cc_init, struct sock *sk)
{
	/* Keeps the configuration alive, by which a registration is found after its owner was
	 * killed. */
	if (mp_config.interface_version != CC_INTERFACE_VERSION)
		return;
	mp_sk(sk)->flags = 0;
	if (CC_NEEDS_ECN && sk->__sk_common.skc_state == TCP_SYN_SENT)
		return;
	begin(sk);
}

SEC("struct_ops")
void BPF_PROG(cc_release, struct sock *sk)
{
#if CC_COUPLED
	struct mp_sk *ca = mp_sk(sk);

	if (live(sk) && ca->group_key && group_leave(ca->group_key, ca->slot, sk))
		group_end(ca->group_key);
	ca->group_key = 0;
#endif
	if (live(sk))
		space(sk, 0, 0);
	mp_sk(sk)->flags = 0;
}

#if CC_NEEDS_ECN
SEC("struct_ops")
void BPF_PROG(cc_in_ack_event, struct sock *sk, u32 ack_flags)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	u8 flags;

	if (!live(sk))
		return;
	/* The one before: nothing but on_ack was due. */
	if (ca->flags & SK_ACK)
		ack_only(sk);
	flags = ca->flags & ~SK_ECE;
	/* A receiver is called for each segment; it has nothing in flight that could be
	 * acknowledged. */
	if (tp->packets_out || flags & SK_SAMPLE) {
		flags |= SK_ACK;
		if (ack_flags & CA_ACK_ECE)
			flags |= SK_ECE;
	}
	ca->flags = flags;
	ack_complete(sk, flags);
	detect_if_due(sk);
}
#endif

SEC("struct_ops")
void BPF_PROG(cc_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct mp_sk *ca = mp_sk(sk);
	u32 acked = sample->pkts_acked;
	s32 rtt_us = sample->rtt_us;
	u8 flags;

	if (!live(sk)) {
		begin_late(sk);
		return;
	}
	mend_ssthresh(sk);
	if (membership_due(sk, ca))
		membership(sk, ca);
	if (ca->flags & SK_SAMPLE)
		ack_only(sk);
	ca->rtt_us = rtt_us > 0 ? rtt_us : 0;
	ca->acked_pkt = cc_min(acked, 0xffff);
	flags = ca->flags | SK_SAMPLE;
	ca->flags = flags;
	ack_complete(sk, flags);
	detect_if_due(sk);
}

SEC("struct_ops")
u32 BPF_PROG(cc_ssthresh, struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);

	ca->flags |= SK_REDUCING;
	/* Overwritten by set_state, which is the next thing Linux calls. */
	return cc_max(tp->snd_cwnd / 2, CC_MIN_SSTHRESH_PKT);
}
/*
 * True if Linux enters Loss because its timer has expired.  During a reduction it then requests no
 * new ssthresh, but clears icsk_pending before the timer's work.  Otherwise it retransmits packets
 * that became too long for the path (tcp_simple_retransmit), which is no congestion.
 */
static __always_inline int timed_out(const struct sock *sk, int asked)
{
	return asked || !((const struct inet_connection_sock *)sk)->icsk_pending;
}

/*
 * Cause of the reduction.  Algorithms without ECN do not implement in_ack_event, so the ECE flag of
 * this ACK is unknown to them; CWR with ECN negotiated counts as ECE.  A CWR because of a full
 * local queue or a TLP repair is then misattributed, which is rare.
 */
static __always_inline u32 cause_of(const struct sock *sk, u32 new_state, u32 flags)
{
	int may_echo = flags & CC_EV_ECE;

	if (!CC_NEEDS_ECN)
		may_echo = ((const struct tcp_sock *)sk)->ecn_flags & TCP_ECN_NEGOTIATED;
	if (new_state == CC_STATE_LOSS)
		return CC_CAUSE_RTO;
	return new_state == CC_STATE_CWR && may_echo ? CC_CAUSE_ECE : CC_CAUSE_LOSS;
}

/* noinline: keeps the caller's stack below 512 bytes together with on_ack. */
static __noinline int change_state(struct sock *sk, u32 new_state)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	u32 old_state = ca_state(sk);
	struct mp_group *entry = group_find(ca);
	int asked = ca->flags & SK_REDUCING;
	struct call c;

	call_load(&c, sk, ca);
	ca->flags &= ~SK_REDUCING;
	if ((asked && new_state >= CC_STATE_CWR) ||
	    (new_state == CC_STATE_LOSS && old_state != CC_STATE_LOSS && timed_out(sk, asked))) {
		c.ev.cause = cause_of(sk, new_state, c.ev.flags);
		/* After a timeout Linux has already cut the window. */
		if (c.ev.cause == CC_CAUSE_RTO)
			c.ev.cwnd_pkt = cc_max(tp->snd_cwnd, tp->prior_cwnd);
		/* RFC 5681 counts everything that is not acknowledged. */
		c.ev.in_flight_pkt = tp->packets_out;
		RUN(on_congestion, &c, entry);
		count(c.ev.cause);
		if (asked && c.out.set & CC_SET_SSTHRESH)
			tp->snd_ssthresh = c.out.ssthresh_pkt;
	}
	c.ev.state = new_state;
	c.ev.cwnd_pkt = tp->snd_cwnd;
	c.ev.ssthresh_pkt = tp->snd_ssthresh;
	if (new_state != old_state) {
		RUN(on_state, &c, entry);
		apply(&c, sk);
	}
	call_end(&c, sk, ca, entry);
	return 0;
}

SEC("struct_ops")
void BPF_PROG(cc_set_state, struct sock *sk, u8 new_state)
{
	struct mp_sk *ca = mp_sk(sk);

	if (!live(sk))
		return;
	if (new_state == CC_STATE_OPEN && ca_state(sk) >= CC_STATE_CWR)
		mend_window(sk, ca);
	if (ca->flags & (SK_ACK | SK_SAMPLE))
		ack_only(sk);
	change_state(sk, new_state);
}

/* noinline: its stack is released before detect runs (limit: 512 bytes). */
static __noinline int grow(struct sock *sk, u32 acked)
{
	struct mp_sk *ca = mp_sk(sk);
	struct mp_group *entry;
	struct call c;

	entry = call_begin(&c, sk, ca);
	if (c.ev.flags & CC_EV_CWND_LIMITED && acked) {
		c.ev.acked_pkt = acked;
		RUN(on_grow, &c, entry);
		apply(&c, sk);
	}
	call_end(&c, sk, ca, entry);
	return 0;
}

SEC("struct_ops")
void BPF_PROG(cc_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	if (!live(sk))
		return;
	grow(sk, acked);
	detect_if_due(sk);
}

SEC("struct_ops")
u32 BPF_PROG(cc_undo_cwnd, struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;

	return cc_max(tp->snd_cwnd, tp->prior_cwnd);
}

#if CC_NEEDS_ECN
SEC("struct_ops")
void BPF_PROG(cc_cwnd_event, struct sock *sk, int event)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	int was, ce;

	if (event != CA_EVENT_ECN_IS_CE && event != CA_EVENT_ECN_NO_CE)
		return;
	if (!live(sk))
		begin_late(sk);
	if (!live(sk) || accurate_ecn(tp))
		return;
	was = !!(ca->flags & SK_CE);
	ce = event == CA_EVENT_ECN_IS_CE;
	echo_segment(tp, was, ce, ca->prior_rcv_nxt);
	ca->prior_rcv_nxt = tp->rcv_nxt;
	ca->flags = ce ? ca->flags | SK_CE : ca->flags & ~SK_CE;
}
#endif

#if CC_PACES
SEC("struct_ops")
u32 BPF_PROG(cc_min_tso_segs, struct sock *sk)
{
	if (live(sk))
		space_now(sk);
	return MIN_TSO_SEGS;
}
#endif

/* The loader requests AccECN there (MP_OPS_FLAGS). */
_Static_assert(__builtin_offsetof(struct tcp_congestion_ops, flags) == MP_OPS_FLAGS,
	       "crates/linux/bpf sets the flags");

SEC(".struct_ops.link")
struct tcp_congestion_ops mp_ops = {
	.init = (void *)cc_init,
	.release = (void *)cc_release,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)cc_cong_avoid,
	.set_state = (void *)cc_set_state,
	.pkts_acked = (void *)cc_pkts_acked,
	.undo_cwnd = (void *)cc_undo_cwnd,
#if CC_PACES
	.min_tso_segs = (void *)cc_min_tso_segs,
#endif
#if CC_NEEDS_ECN
	.in_ack_event = (void *)cc_in_ack_event,
	.cwnd_event = (void *)cc_cwnd_event,
	.flags = TCP_CONG_NON_RESTRICTED | TCP_CONG_NEEDS_ECN,
#else
	.flags = TCP_CONG_NON_RESTRICTED,
#endif
	.name = CC_KERNEL_NAME,
};