/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * OLIA, the opportunistic linked increases algorithm: moves traffic to the best paths without
 * flapping.
 *
 * Source: draft-khalili-mptcp-congestion-control-05 section 3.  With n paths, M those with the
 * largest w, B those with the largest l/T^2, C the members of B that are not in M:
 *
 *   growth      w_r += acked * ((w_r / T_r^2) / (sum of w/T)^2 + alpha_r / w_r)
 *   alpha_r     1/(n|C|) in C; -1/(n|M|) in M if C is not empty; else 0
 *   l           max(packets between the last two losses, packets since the last loss)
 *   congestion  half (ssthresh floor 1 with several paths), l1 = l2, l2 = 0
 *
 * Deviations: paths are ranked by l/T^2, consistent with a throughput of sqrt(l)/T, as Linux does;
 * some implementations of the draft use l^2/T.  When alpha lowers the window, ssthresh follows,
 * else slow start would undo it.  Whole packets leave the window only once a whole packet of
 * decrease has accumulated.
 *
 * Valid range: see coupling.h; absolute error of the increase below 1e-6 in data-center and
 * wide-area ranges, below 1e-4 anywhere.  With one path it is Reno, bit for bit.
 */
#include "olia.h"

struct CC_PRIVATE olia {
	struct cc_olia loss;
};

CC_HOOK(olia, init)
{
	cc_path_clear(self);
}

CC_HOOK(olia, on_ack)
{
	cc_olia_on_ack(&CC_STATE(olia, self)->loss, ev, self);
}

CC_HOOK(olia, on_congestion)
{
	cc_olia_reduce(&CC_STATE(olia, self)->loss, ev, self, group, out);
}

CC_HOOK(olia, on_grow)
{
	struct cc_olia_alpha alpha;

	alpha = cc_olia_grow(&CC_STATE(olia, self)->loss, ev, self, group, out);
	/* For observers: alpha as sign (bit 32) and divisor. */
	self->pub[0] = (uint64_t)alpha.negative << 32 | alpha.divisor;
}

CC_HOOK(olia, on_state)
{
}

CC_ALGORITHM(olia, struct olia);
