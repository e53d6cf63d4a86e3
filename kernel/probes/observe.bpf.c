/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Watches windows from outside, under any congestion control, ours and the kernel's: a record for
 * each change of a recovery state and for each segment that reaches an established socket which has
 * data in flight.  Read at the next segment, ssthresh is what a reduction was answered.
 */
#include "kernel_types.h"
#include "observe_shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} observe_records SEC(".maps");

/* The network namespace to watch, set before loading; and how many records found no room. */
struct observe_config observe_config SEC(".data.observe");

static __always_inline void record(const struct sock *sk, u32 state, u32 entered)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	struct observe_record *to;

	if (BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) != observe_config.netns)
		return;
	if (!entered && !BPF_CORE_READ(tp, packets_out))
		return;
	to = bpf_ringbuf_reserve(&observe_records, sizeof(*to), 0);
	if (!to) {
		__sync_fetch_and_add(&observe_config.lost, 1);
		return;
	}
	to->socket = (u64)sk;
	to->entered = entered;
	to->state = state;
	to->remote_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	to->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	to->cwnd_pkt = BPF_CORE_READ(tp, snd_cwnd);
	to->prior_cwnd_pkt = BPF_CORE_READ(tp, prior_cwnd);
	to->ssthresh_pkt = BPF_CORE_READ(tp, snd_ssthresh);
	to->lost_pkt = BPF_CORE_READ(tp, lost_out);
	bpf_core_read(to->private, sizeof(to->private), &tp->inet_conn.icsk_ca_priv);
	bpf_ringbuf_submit(to, 0);
}

SEC("tp_btf/tcp_cong_state_set")
int BPF_PROG(observe_state, struct sock *sk, u8 state)
{
	record(sk, state, 1);
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(observe_segment, struct sock *sk)
{
	u32 state = BPF_CORE_READ_BITFIELD_PROBED((const struct inet_connection_sock *)sk,
						  icsk_ca_state);

	record(sk, state, 0);
	return 0;
}
