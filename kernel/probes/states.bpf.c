/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lists our algorithms' state of each TCP socket that carries data, in the reader's network
 * namespace.  The algorithms have no cost: their state is read in place.
 */
#include "kernel_types.h"
#include "mp_sk.h"
#include "states_shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* True if the socket's algorithm is one of ours; copies its state. */
CC_NOINLINE int state_of(const struct inet_connection_sock *icsk, struct socket_state *to)
{
	struct mp_sk kept = {};

	BPF_CORE_READ_INTO(&to->algorithm, icsk, icsk_ca_ops, name);
	if (to->algorithm[0] != 'm' || to->algorithm[1] != 'p' || to->algorithm[2] != '_')
		return 0;
	to->cookie = BPF_CORE_READ(icsk, icsk_inet.sk.__sk_common.skc_cookie.counter);
	bpf_core_read(&kept, sizeof(kept), &icsk->icsk_ca_priv);
	to->path = kept.path;
	to->group_key = kept.group_key;
	to->slot = kept.slot & (CC_MAX_PATHS - 1);
	if (!kept.group_key && kept.slot & SLOT_REFUSED)
		to->refused = kept.slot & SLOT_BEYOND ? STATE_BEYOND : STATE_NO_ROOM;
	return 1;
}

SEC("iter/tcp")
int states_list(struct bpf_iter__tcp *ctx)
{
	const struct sock_common *common = ctx->sk_common;
	const struct inet_connection_sock *icsk = (const struct inet_connection_sock *)common;
	struct socket_state state = {};

	if (!common)
		return 0;
	/* Others may be no whole sockets. */
	if (common->skc_state != TCP_ESTABLISHED && common->skc_state != TCP_CLOSE_WAIT)
		return 0;
	if (state_of(icsk, &state))
		bpf_seq_write(ctx->meta->seq, &state, sizeof(state));
	return 0;
}
