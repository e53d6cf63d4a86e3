/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An algorithm without a socket: runs one step of a trace at a time, for the comparison of the BPF
 * build with the native one.  Same defines as cc.bpf.c.
 *
 * The caller writes replay_step, runs the program, and reads replay_step back.
 */
#include "kernel_types.h"
#include "algorithm.bpf.h"
#include "shared.h"
#include "host.h"

/* One more level, so that CC_ALG is replaced before it is pasted. */
#define DEFINE_STEP(id) CC_DEFINE_STEP(id)
DEFINE_STEP(CC_ALG);

char _license[] SEC("license") = "Dual BSD/GPL";

struct replay_step replay_step SEC(".data.step");

SEC("syscall")
int replay_run(void *ctx)
{
	struct replay_step *s = &replay_step;

	if (s->begin)
		MP_HOOK(begin)(&s->event, &s->host, s->has_group ? &s->group : 0, &s->params);
	else
		MP_HOOK(step)(&s->event, &s->host, s->has_group ? &s->group : 0, &s->params);
	return 0;
}
