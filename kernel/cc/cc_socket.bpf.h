/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The wrapper's state in a socket, and its reads of socket fields (cc.bpf.c). */
#ifndef VMCC_CC_SOCKET_BPF_H
#define VMCC_CC_SOCKET_BPF_H

#include "kernel_types.h"
#include "shared.h"
#include "mp_sk.h"

struct mp_config mp_config SEC(".data.vmcc") = {
	.interface_version = CC_INTERFACE_VERSION,
	.name = CC_KERNEL_NAME,
	.account_connections = MP_ACCOUNT_CONNECTIONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mp_counters);
} mp_counters SEC(".maps");

/* Bits of mp_sk.flags. */
#define SK_ACK	    (1u << 0) /* in_ack_event has been called for an ACK that on_ack has not seen */
#define SK_SAMPLE   (1u << 1) /* the same for pkts_acked */
#define SK_ECE	    (1u << 2) /* the last ACK echoed a mark, whether on_ack has seen it or not */
#define SK_CE	    (1u << 3) /* receiver: the last segment carried CE */
#define SK_REDUCING (1u << 4) /* ssthresh was asked for */
#define SK_BACKUP   (1u << 5)
#define SK_LIVE	    (1u << 6) /* init has run: Linux calls back already during the handshake */
#define SK_MENDED   (1u << 7) /* mend_ssthresh has cut the window below what is in flight */

/* Callbacks of an ACK that precede growth. */
#define SK_WHOLE_ACK (CC_NEEDS_ECN ? SK_ACK | SK_SAMPLE : SK_SAMPLE)

/* One call of an algorithm, on the stack: map or socket memory cannot be passed as plain memory. */
struct call {
	struct cc_event ev;
	struct cc_path path;
	struct cc_decision out;
};

static __always_inline struct mp_sk *mp_sk(struct sock *sk)
{
	return (struct mp_sk *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline int live(struct sock *sk)
{
	return mp_sk(sk)->flags & SK_LIVE;
}

/* 1 if the receiver counts marked packets for the sender (AccECN, RFC 9768), else 0. */
static __always_inline u32 accurate_ecn(const struct tcp_sock *tp)
{
	return (u32)cc_equal(tp->ecn_flags & TCP_ECN_NEGOTIATED, TCP_ECN_ACCECN);
}

static __always_inline u32 ca_state(struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;

	return BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
}

static __always_inline int cwnd_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	/* In slow start the window may run ahead of what the application sends, up to twice. */
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

static __always_inline u32 in_flight(const struct tcp_sock *tp)
{
	u32 left = tp->sacked_out + tp->lost_out;
	u32 out = tp->packets_out + tp->retrans_out;

	return out > left ? out - left : 0;
}

/* Adds one to a counter, of all CPUs together: for what happens far less often than ACKs. */
static __always_inline void count(u32 which)
{
	u32 zero = 0;
	struct mp_counters *counters = bpf_map_lookup_elem(&mp_counters, &zero);

	if (counters && which < MP_COUNTERS)
		__sync_fetch_and_add(&counters->count[which], 1);
}

#endif /* VMCC_CC_SOCKET_BPF_H */
