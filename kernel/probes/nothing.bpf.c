/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A program that does nothing: what it takes is what the kernel's run-time statistics take. */
#include "kernel_types.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int vmcc_nothing(struct __sk_buff *skb)
{
	return 0;
}
