/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Filter at the root of a port's HTB queue, for packets whose skb->priority is none of its classes.
 *
 * A sparse flow's packet has the priority of its band, which is a class of the queue below its
 * class (port_shared.h).  HTB finds the band there by itself, and here the class that has it.
 */
#include "kernel_types.h"
#include "skb.h"
#include "port_shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Return value for the class that the filter was given. */
#define FALLBACK_CLASS (-1)

SEC("tc")
int vmcc_port_band(struct __sk_buff *skb)
{
	u32 product = (skb->priority >> 16) * PORT_LEAF_FACTOR;
	u32 class = (product - PORT_BANDS_FIRST) & 0xffff;

	if (class >= PORT_CLASSES)
		return FALLBACK_CLASS;
	return PORT_ROOT_MAJOR << 16 | (PORT_ROOT_FIRST + class);
}
