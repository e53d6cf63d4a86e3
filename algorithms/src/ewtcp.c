/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * EWTCP: every path a Reno of weight a, so that together they take the share of one.
 *
 * Source: Honda et al., "Multipath Congestion Control for Shared Bottleneck", PFLDNeT 2009.
 *   growth      w += acked * a / w
 *   congestion  Reno
 *
 * Deviations: with weight 0 (the default) a = 1/n^2, the value for which n equal paths through one
 * bottleneck take exactly one TCP's share (the equilibrium window is sqrt(2a/p)); papers also write
 * 1/sqrt(n).
 *
 * Valid range: w up to 2^20.  With one path it is Reno, bit for bit.
 */
#include "coupling.h"

#define EWTCP_WEIGHT_BITS 16

struct CC_PRIVATE ewtcp {
	uint64_t unused;
};

CC_HOOK(ewtcp, init)
{
	cc_path_clear(self);
}

CC_HOOK(ewtcp, on_ack)
{
}

CC_HOOK(ewtcp, on_congestion)
{
	cc_reno_reduce(ev, self, out);
}

CC_HOOK(ewtcp, on_grow)
{
	uint64_t weight = cc_min64(params->v[CC_P_EWTCP_WEIGHT], 1u << EWTCP_WEIGHT_BITS);
	uint32_t w = cc_window(ev->cwnd_pkt), left;
	uint64_t n, inc;

	left = cc_slow_start(ev, &w);
	if (left) {
		n = 1 + cc_siblings(ev, group);
		if (n == 1)
			inc = cc_inverse_q40(w);
		else if (weight)
			inc = (weight << (CC_CREDIT_BITS - EWTCP_WEIGHT_BITS)) / w;
		else
			inc = CC_CREDIT_ONE / (n * n * w);
		w = cc_avoidance(self, w, left, inc);
	}
	cc_grown(ev, w, out);
}

CC_HOOK(ewtcp, on_state)
{
}

CC_ALGORITHM(ewtcp, struct ewtcp);
