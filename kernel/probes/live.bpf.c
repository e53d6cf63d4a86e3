/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Changes the congestion control of connections that run, in the network namespace of the
 * reader: of those that have the given one.  A byte for each that has changed.
 *
 * A changed socket is marked.  The kernel notes for each socket whether it was given its congestion
 * control (TCP_CONGESTION) or has that of its namespace.  One that was given it and has no mark was
 * given it by its program: `spare_chosen` leaves it alone.
 */
#include "kernel_types.h"
#include "live_shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* The states of whole sockets that have, or had, a peer. */
#define CONNECTED                                                                                  \
	(1u << TCP_ESTABLISHED | 1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2 |                       \
	 1u << TCP_CLOSE_WAIT | 1u << TCP_LAST_ACK | 1u << TCP_CLOSING)
enum {
	TCP_FIN_WAIT1 = 4,
	TCP_FIN_WAIT2 = 5,
	TCP_LAST_ACK = 9,
	TCP_CLOSING = 11,
};

const volatile struct live_settings settings = {};

/* Pinned by the loader: the marks outlive a run. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u8);
} live_marks SEC(".maps");

SEC("iter/tcp")
int live_change(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	const struct inet_connection_sock *icsk = (const struct inet_connection_sock *)common;
	char name[LIVE_NAME_LEN] = {};
	u8 changed = 1;
	int i;

	if (!common || common->skc_state > TCP_CLOSING || !(CONNECTED & 1u << common->skc_state))
		return 0;
	BPF_CORE_READ_INTO(&name, icsk, icsk_ca_ops, name);
	for (i = 0; i < LIVE_NAME_LEN; i++)
		if (name[i] != settings.from[i])
			return 0;
	if (settings.spare_chosen && BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_setsockopt) &&
	    !bpf_sk_storage_get(&live_marks, common, NULL, 0))
		return 0;
	/* Marked first: an unmarked change would never be taken back. */
	if (!bpf_sk_storage_get(&live_marks, common, NULL, BPF_SK_STORAGE_GET_F_CREATE))
		return 0;
	/* Read by the kernel alone, as in cgroup.bpf.c. */
	if (!bpf_setsockopt(common, SOL_TCP, TCP_CONGESTION, (void *)settings.to, LIVE_NAME_LEN))
		bpf_seq_write(ctx->meta->seq, &changed, sizeof(changed));
	return 0;
}
