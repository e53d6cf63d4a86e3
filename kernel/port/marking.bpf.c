/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Marking's arithmetic without a packet, for the comparison of the BPF build with the native one.
 * The caller writes marking_data, runs the program, and reads it back.
 */
#include "kernel_types.h"
#include "marking_step.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct marking_step marking_data SEC(".data.step");

SEC("syscall")
int marking_run(void *ctx)
{
	marking_step(&marking_data);
	return 0;
}
