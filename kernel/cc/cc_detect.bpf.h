/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The hook `detect` of an algorithm that has it (cc.bpf.c). */
#ifndef VMCC_CC_DETECT_BPF_H
#define VMCC_CC_DETECT_BPF_H

#include "cc_call.bpf.h"

#if CC_DETECTS
/*
 * True if the connection has data waiting.  A narrow subflow has mostly sent all of its share,
 * while the connection keeps the data that it gets with the next ACK.
 */
static __always_inline int more_to_send(const struct tcp_sock *tp)
{
	const struct mptcp_subflow_context *subflow;
	const struct mptcp_sock *connection;

	if (tp->write_seq != tp->snd_nxt)
		return 1;
	subflow = subflow_of((const struct sock *)tp);
	if (!subflow)
		return 0;
	connection = (const struct mptcp_sock *)BPF_CORE_READ(subflow, conn);
	return BPF_CORE_READ(connection, write_seq) != BPF_CORE_READ(connection, snd_nxt);
}

/* Looks whether the path shares a bottleneck; at most one look per ACK that on_ack has seen. */
static __noinline int detect(struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct mp_sk *ca = mp_sk(sk);
	struct mp_watched_group *entry;
	struct cc_decision out = {0};
	struct cc_event ev;

	ca->slot &= ~SLOT_DETECT;
	entry = (struct mp_watched_group *)group_find(ca);
	if (!entry || !entry->several)
		return 0;
	event_load(&ev, sk, ca);
	ev.rtt_us = ca->rtt_us;
	ev.acked_pkt = ca->acked_pkt;
	/*
	 * If the host's own queue is the bottleneck, Linux holds a socket back before its window is
	 * full (TCP small queues).  Here it only matters that the application is not the limit.
	 */
	if (!(ev.flags & CC_EV_CWND_LIMITED) && more_to_send(tp))
		ev.flags |= CC_EV_CWND_LIMITED;
	MP_HOOK(detect)(&ev, &entry->group.group, &entry->sharing, &mp_config.params, &out);
	if (out.set & CC_SET_SSTHRESH)
		tp->snd_ssthresh = out.ssthresh_pkt;
	if (out.set & CC_SET_CWND)
		tp->snd_cwnd = cc_min(cc_max(out.cwnd_pkt, 1), tp->snd_cwnd_clamp);
	if (out.set & CC_CLOSE_PATH)
		close_path(sk, out.peer);
	return 0;
}

static __always_inline void detect_if_due(struct sock *sk)
{
	if (mp_sk(sk)->slot & SLOT_DETECT && mp_sk(sk)->group_key)
		detect(sk);
}
#else
static __always_inline void detect_if_due(struct sock *sk)
{
	(void)sk;
}
#endif

#endif /* VMCC_CC_DETECT_BPF_H */
