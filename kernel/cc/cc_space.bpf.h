/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Spacing of packets by an algorithm (cc.bpf.c); empty unless CC_PACES.
 *
 * Linux recomputes sk_pacing_rate at the end of every ACK.  So the gap is kept, and written as a
 * rate right before Linux sends, which is when it calls min_tso_segs.  An application's own limit
 * (SO_MAX_PACING_RATE) is read and never written: the lower of both holds, and what an algorithm
 * asked for ends with it.  A packet that is sent again goes out before Linux asks, and the one
 * after it follows at Linux's rate.
 */
#ifndef VMCC_CC_SPACE_BPF_H
#define VMCC_CC_SPACE_BPF_H

#include "cc_socket.bpf.h"
#include "elapsed.h"

/* Linux's own (net.ipv4.tcp_min_tso_segs). */
#define MIN_TSO_SEGS 2

#if CC_PACES

/* Ends Linux's pacing at its own rate, unless an application has set a limit. */
static __always_inline void space_end(struct sock *sk)
{
	if (sk->sk_pacing_status == SK_PACING_NEEDED && !~sk->sk_max_pacing_rate)
		sk->sk_pacing_status = SK_PACING_NONE;
}

/* Spaces packets as the decision says. */
static __noinline int space(struct sock *sk, u32 gap_us, u32 ack_each)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	mp_sk(sk)->gap = brief(gap_us);
	if (!gap_us) {
		space_end(sk);
		return 0;
	}
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	/*
	 * The receiver shall acknowledge each packet at once.  Under AccECN the bit is one of the
	 * counter's, and asks for nothing.
	 */
	if (ack_each && tp->ecn_flags & TCP_ECN_RFC3168)
		tp->ecn_flags |= TCP_ECN_QUEUE_CWR;
	return 0;
}

/* Right before Linux sends. */
static __always_inline void space_now(struct sock *sk)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u32 gap_us = in_full(mp_sk(sk)->gap);
	u64 rate, limit = sk->sk_max_pacing_rate;

	if (!gap_us)
		return;
	rate = (u64)tp->mss_cache * 1000000 / gap_us;
	/* A limit of 0 is none: to Linux a rate of 0 means that it need not pace. */
	sk->sk_pacing_rate = cc_min64(rate | 1, limit ? limit : ~0ull);
}

#else

static __always_inline int space(struct sock *sk, u32 gap_us, u32 ack_each)
{
	(void)sk;
	(void)gap_us;
	(void)ack_each;
	return 0;
}

#endif

#endif /* VMCC_CC_SPACE_BPF_H */
