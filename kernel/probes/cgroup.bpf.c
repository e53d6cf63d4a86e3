/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Gives connections of a cgroup their congestion control: those that it opens before the SYN, as
 * ECN is asked for there; those that it accepts through their listener, and where that is older
 * than this program, when they are established, before their algorithm's init.  Subflows of MPTCP
 * belong to the cgroup of their connection.
 *
 * The kernel calls the programs of a socket's cgroup before those of the cgroups around it, with
 * one context: the innermost counts.
 */
#include "kernel_types.h"
#include "cgroup_shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* From <linux/bpf.h>: what programs see of it is no kernel structure, and stays as it is. */
struct bpf_sock_ops {
	u32 op;
	u32 reply;
};

enum {
	BPF_SOCK_OPS_TCP_CONNECT_CB = 3,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_NEEDS_ECN = 6,
	BPF_SOCK_OPS_TCP_LISTEN_CB = 11,
};

/* Left to the programs that are called next; the kernel does not ask for it. */
#define DONE 0x766d6363

const volatile struct cgroup_settings settings = {};

SEC("sockops")
int vmcc_cgroup(struct bpf_sock_ops *ctx)
{
	/* Read by the kernel alone: what is copied here the compiler would take for what it is at
	 * first. */
	void *name = (void *)settings.congestion_control;

	switch (ctx->op) {
	case BPF_SOCK_OPS_NEEDS_ECN:
		if (settings.needs_ecn)
			ctx->reply = 1;
		return 1;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		break;
	default:
		return 1;
	}
	if (ctx->reply == DONE)
		return 1;
	if (!bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, CGROUP_NAME_LEN))
		ctx->reply = DONE;
	return 1;
}
