/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BALIA, the balanced linked adaptation: between LIA's friendliness and OLIA's responsiveness.
 *
 * Source: draft-walid-mptcp-congestion-control-04.  With x = w/T, m the path with the largest x,
 * alpha_r = x_m/x_r, rho_r = x_r/x_m, sigma = sum of rho:
 *
 *   growth      w_r += acked * (x_r/T_r)/(sum of x)^2 * (1 + alpha_r)/2 * (4 + alpha_r)/5
 *                    = acked * (1 + rho_r)(1 + 4 rho_r) / (10 w_r sigma^2)
 *   congestion  w_r -= (w_r/2) min(alpha_r, 1.5), floor 1 with several paths
 *   RTO         the same ssthresh, w = 1
 *
 * Deviations: none from the draft; Linux's module truncates alpha_r to an integer before the
 * minimum and so cuts too little for 1 < alpha < 2.
 *
 * Valid range: see coupling.h; relative error of the increase below 2.6e-4, the reduction is exact.
 * With one path it is Reno, bit for bit.
 */
#include "balia.h"

struct CC_PRIVATE balia {
	uint64_t unused;
};

CC_HOOK(balia, init)
{
	cc_path_clear(self);
}

CC_HOOK(balia, on_ack)
{
}

CC_HOOK(balia, on_congestion)
{
	cc_balia_reduce(ev, self, group, out);
}

CC_HOOK(balia, on_grow)
{
	cc_balia_grow(ev, self, group, out);
}

CC_HOOK(balia, on_state)
{
}

CC_ALGORITHM(balia, struct balia);
