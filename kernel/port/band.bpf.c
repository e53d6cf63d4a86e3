/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Filter at the root of a port's HTB queue, for packets whose skb->priority is none of its classes.
 *
 * That is so of packets whose band was chosen (port_sparse.h): their priority is a class of the
 * queue below their class (port_shared.h).  HTB finds the band there by itself, and here the class
 * that has it.  Under the lock of the queue this knows the place that a packet of the bulk gets.
 */
#include "kernel_types.h"
#include "skb.h"
#include "port_shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#include "port_flow_map.h"

/* Return value for the class that the filter was given. */
#define FALLBACK_CLASS (-1)

/* Keeps where the packet ends among the bytes that ever joined the bulk. */
static __always_inline void keep_place(const struct __sk_buff *skb)
{
	struct Qdisc *queue =
		(void *)((u64)skb->cb[NOTE_QUEUE_HIGH] << 32 | skb->cb[NOTE_QUEUE_LOW]);
	void *sent = (void *)queue + bpf_core_field_offset(struct Qdisc, bstats);
	u64 left = 0;
	u32 end;

	if (bpf_probe_read_kernel(&left, sizeof(left), sent))
		return;
	end = left + BPF_CORE_READ(queue, qstats.backlog) + skb->wire_len;
	flow_keep_end(skb->cb[NOTE_KEYS], end);
}

SEC("tc")
int vmcc_port_band(struct __sk_buff *skb)
{
	u32 product = (skb->priority >> 16) * PORT_LEAF_FACTOR;
	u32 class = (product - PORT_BANDS_FIRST) & 0xffff;

	if (class >= PORT_CLASSES)
		return FALLBACK_CLASS;
	if ((skb->priority & 0xffff) == PORT_BAND_BULK)
		keep_place(skb);
	return PORT_ROOT_MAJOR << 16 | (PORT_ROOT_FIRST + class);
}
