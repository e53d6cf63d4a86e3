/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * LIA, the linked increases algorithm: all paths together take what one TCP would on the best path.
 *
 * Source: RFC 6356 section 3.
 *   growth      w_r += acked * min(alpha / w_total, 1 / w_r),
 *               alpha = w_total * max(w/T^2) / (sum of w/T)^2
 *   congestion  Reno
 *
 * Deviations: alpha is not rounded to a few bits nor cached between acknowledgments (the
 * out-of-tree Linux module keeps 12 bits and becomes uncoupled Reno for windows above 4096); a
 * sibling in recovery enters with its ssthresh, as the RFC says and that module does not.
 *
 * Valid range: see coupling.h.  With one path it is Reno, bit for bit.
 *
 * The increase is cc_lia_increase_q40() in lia.h, the sums over paths cc_couple() in coupling.h.
 */
#include "lia.h"

struct CC_PRIVATE lia {
	uint64_t unused;
};

CC_HOOK(lia, init)
{
	cc_path_clear(self);
}

CC_HOOK(lia, on_ack)
{
}

CC_HOOK(lia, on_congestion)
{
	cc_reno_reduce(ev, self, out);
}

CC_HOOK(lia, on_grow)
{
	cc_lia_grow(ev, self, group, out);
}

CC_HOOK(lia, on_state)
{
}

CC_ALGORITHM(lia, struct lia);
