/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clang-format off */
/* vmcc
 * title = "FOO: all paths together grow as one TCP connection"
 * source = "Wischik et al., NSDI 2011: SEMICOUPLED"
 * coupled = true
 * needs_ecn = false
 *
 * [[param]]
 * name = "gain"
 * unit = "1"
 * default = 1.0
 * min = 0.0
 * max = 1.0
 * q = 16
 * cite = "NSDI 2011: the constant a of SEMICOUPLED"
 * doc = "packets per round trip that all paths gain together"
 */
/* clang-format on */
/*
 * The comment above is the algorithm's registry entry: the same keys as in vmcc's
 * algorithms/registry.toml. `vmcc algorithm check foo.c` compiles this file and checks it; `vmcc
 * run foo.toml --algorithm foo.c` compares it with LIA.
 *
 *   growth      w_r += acked * gain / w_total
 *   congestion  w_r /= 2, as Reno
 *
 * Rules of an algorithm: freestanding C11, integers, no libc, no variables that change, loops with
 * a constant bound. Any bits may be in the event, the state, the group and the parameters.
 */
#include "coupling.h"

_Static_assert(CC_INTERFACE_VERSION == FOO_INTERFACE_VERSION,
	       "written for another version of cc.h");

/* State of one path, at most 56 bytes. */
struct CC_PRIVATE foo_state {
	uint32_t congestions;
};

/* The path has just been established. */
CC_HOOK(foo, init)
{
	cc_path_clear(self);
}

/* Every ACK, before any growth: count, measure, publish in self->pub. */
CC_HOOK(foo, on_ack)
{
}

/* A reduction begins; ev->cause is ECE, LOSS or RTO. Answer with the new ssthresh. */
CC_HOOK(foo, on_congestion)
{
	CC_STATE(foo_state, self)->congestions++;
	cc_reno_reduce(ev, self, out);
}

/* Windows of all paths, at most 32 * 2^20 packets. */
CC_INLINE uint32_t foo_total(const struct cc_event *ev, const struct cc_group *group, uint32_t w)
{
	struct cc_own own = cc_own(ev, w);
	uint32_t total = 0;
	uint32_t i;

	/* A connection with one path has no group. */
	if (!cc_is_coupled(ev, group))
		return w;
	CC_FOR_PATHS(i, group)
	total += cc_term(group, i, &own).w;
	/* The own slot may not be published yet. */
	return cc_max(total, w);
}

/* This ACK may let the window grow. */
CC_HOOK(foo, on_grow)
{
	uint32_t w = cc_window(ev->cwnd_pkt);
	uint32_t left = cc_slow_start(ev, &w);
	/* At most 1 in Q16: the product with 1 in Q40 fits 64 bits. */
	uint64_t gain = cc_min64(params->v[CC_P_FOO_GAIN], 1u << 16);

	if (left)
		w = cc_avoidance(self, w, left,
				 (cc_inverse_q40(foo_total(ev, group, w)) * gain) >> 16);
	cc_grown(ev, w, out);
}

/* ev->state is the host's new recovery state. */
CC_HOOK(foo, on_state)
{
}

CC_ALGORITHM(foo, struct foo_state);
