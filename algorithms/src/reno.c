/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reno: one packet per round trip, half the window at congestion.
 *
 * Source: RFC 5681 section 3.1; RFC 3168 section 6.1.2 for ECE.
 *   growth      w += acked / w
 *   congestion  ssthresh = max(FlightSize / 2, 2); after ECE the window may fall to 1
 *
 * Deviations: none.  As a multipath algorithm it is the uncoupled one: every path on its own.
 *
 * Valid range: w up to 2^20.
 */
#include "common.h"

struct CC_PRIVATE reno {
	uint64_t unused;
};

CC_HOOK(reno, init)
{
	cc_path_clear(self);
}

CC_HOOK(reno, on_ack)
{
}

CC_HOOK(reno, on_congestion)
{
	cc_reno_reduce(ev, self, out);
}

CC_HOOK(reno, on_grow)
{
	cc_reno_grow(ev, self, out);
}

CC_HOOK(reno, on_state)
{
}

CC_ALGORITHM(reno, struct reno);
