/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Repair of windows on a kernel that skipped the programs (cc.bpf.c). */
#ifndef VMCC_CC_MEND_BPF_H
#define VMCC_CC_MEND_BPF_H

#include "cc_socket.bpf.h"

/* The highest ssthresh that an algorithm sets whatever the window was before. */
#if CC_DETECTS
#define LOW_SSTHRESH CC_SHARING_GROWN_PKT
#else
#define LOW_SSTHRESH CC_MIN_SSTHRESH_PKT
#endif

/*
 * True if no algorithm could have set the window or its ssthresh: Linux called, and the program did
 * not run.  Linux itself raises ssthresh during a reduction in two cases, and both clear
 * undo_marker: when it undoes (without SACK the state stays), and when it retransmits packets that
 * became too long for the path, which enters Loss without calling.  In Loss it may also restart
 * from the window after idleness.
 */
static __always_inline int unanswered(struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u32 state = ca_state(sk), highest = CC_SSTHRESH_INFINITE;

	if (state == CC_STATE_CWR || (state > CC_STATE_CWR && tp->undo_marker))
		highest = cc_max(tp->prior_cwnd, LOW_SSTHRESH);
	if (state == CC_STATE_LOSS)
		highest = cc_max(highest, tp->snd_cwnd);
	return tp->snd_ssthresh > highest || tp->snd_cwnd > CC_MAX_CWND_PKT;
}

/*
 * A kernel may skip our programs: one that guards its init process was seen to skip every BPF
 * program in softirqs that interrupt process 1.  ssthresh then returns what was on the stack; PRR
 * raises the window towards it without limit, and the end of the reduction sets the window to it.
 * The next ACK ends that.
 */
static __always_inline void mend_ssthresh(struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 before = tp->prior_cwnd;

	if (!unanswered(sk))
		return;
	if (before > CC_MAX_CWND_PKT)
		before = CC_MIN_SSTHRESH_PKT;
	tp->snd_ssthresh = cc_max(before / 2, CC_MIN_SSTHRESH_PKT);
	tp->snd_cwnd = cc_max(cc_min(tp->snd_cwnd, before), 1);
	mp_sk(sk)->flags |= SK_MENDED;
	count(MP_COUNT_MENDED);
}

/*
 * PRR reduces what is in flight by the ratio of ssthresh to the window that the reduction started
 * from.  With far more in flight than that window, as a run-away leaves it, both are at the floor
 * and the ratio is one: a packet is sent for each that leaves, and marks change nothing any more.
 * So when the reduction ends that mend_ssthresh mended, the window is what is in flight.  The next
 * reduction may start within the same ACK, without another call in between.
 */
static __always_inline void mend_window(struct sock *sk, struct mp_sk *ca)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	u32 out = in_flight(tp);

	if (!(ca->flags & SK_MENDED))
		return;
	ca->flags &= ~SK_MENDED;
	if (out / 2 > tp->snd_cwnd)
		tp->snd_cwnd = out;
}

#endif /* VMCC_CC_MEND_BPF_H */
