/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Holds packets that leave a port while its root queue is exchanged: they go to a device with a
 * closed queue instead, and from its other end back to the port afterwards.
 * See crates/linux/port/src/serve/swap.
 */
#include "kernel_types.h"
#include "hold_shared.h"
#include "skb.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define SOURCE_AT 6 /* the source address of a frame */

const volatile struct hold_settings hold = {};

/* Nonzero: packets that return may pass on to the port. */
u32 hold_open SEC(".data.open");
/* Packets that left the device, counted as the kernel counts those that leave a queue. */
u64 hold_out SEC(".data.out");

SEC("tcx/egress")
int vmcc_hold(struct __sk_buff *skb)
{
	u32 from = skb->ingress_ifindex;

	if ((from == hold.back || from == hold.budget) && *(volatile u32 *)&hold_open)
		return TC_ACT_UNSPEC;
	return bpf_redirect(hold.device, 0);
}

SEC("tcx/ingress")
int vmcc_hold_back(struct __sk_buff *skb)
{
	u8 from[HOLD_ADDRESS_LEN] = {};
	int other = 0;
	int i;

	__sync_fetch_and_add(&hold_out, skb->gso_segs ? skb->gso_segs : 1);
	if (bpf_skb_load_bytes(skb, SOURCE_AT, from, sizeof(from)))
		return TC_ACT_SHOT;
	for (i = 0; i < HOLD_ADDRESS_LEN; i++)
		other |= from[i] ^ hold.address[i];
	return other ? bpf_redirect(hold.port, 0) : TC_ACT_SHOT;
}
