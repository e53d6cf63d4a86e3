/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DCTCP: cuts in proportion to the fraction of marked packets.
 *
 * Source: RFC 8257 sections 3.2 to 3.5.
 *
 *   every ACK   acked += n; with ECE marked += n
 *   per window  alpha = (1 - g) alpha + g marked / acked
 *   growth      Reno
 *   ECE         w -= floor(w * alpha / 2), once per window
 *   loss, RTO   Reno (RFC 8257 section 3.5), one cut per window over all signals
 *
 * Deviations: counts packets, not bytes; the floor after ECE is a parameter (RFC 1, Linux
 * 2). alpha has 30 fractional bits and is rounded down as a whole, so it decays to 0 (Linux's 10
 * bits stall).
 *
 * Valid range: w up to 2^20; alpha exact to 16 * 2^-30.
 */
#include "dctcp.h"

struct CC_PRIVATE dctcp {
	struct cc_dctcp ecn;
};

CC_HOOK(dctcp, init)
{
	cc_path_clear(self);
	cc_dctcp_init(&CC_STATE(dctcp, self)->ecn, ev, params->v[CC_P_DCTCP_ALPHA_INIT]);
	self->pub[0] = CC_STATE(dctcp, self)->ecn.alpha_q30;
}

CC_HOOK(dctcp, on_ack)
{
	cc_dctcp_on_ack(&CC_STATE(dctcp, self)->ecn, ev, params->v[CC_P_DCTCP_G]);
	self->pub[0] = CC_STATE(dctcp, self)->ecn.alpha_q30; /* for observers */
}

CC_HOOK(dctcp, on_congestion)
{
	if (ev->cause == CC_CAUSE_ECE)
		cc_dctcp_cut(&CC_STATE(dctcp, self)->ecn, ev, self, params->v[CC_P_DCTCP_FLOOR],
			     out);
	else
		cc_reno_reduce(ev, self, out);
}

CC_HOOK(dctcp, on_grow)
{
	cc_reno_grow(ev, self, out);
}

CC_HOOK(dctcp, on_state)
{
}

CC_DCTCP_BEGINS(struct dctcp);
CC_ALGORITHM(dctcp, struct dctcp);
