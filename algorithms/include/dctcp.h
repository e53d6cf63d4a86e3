/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DCTCP's estimate of the marked fraction and its cut (RFC 8257 sections 3.3 and 3.5), shared by
 * DCTCP and vMCC.  Equations, deviations and range: src/dctcp.c.
 */
#ifndef VMCC_DCTCP_H
#define VMCC_DCTCP_H

#include "common.h"

#define CC_DCTCP_ALPHA_BITS 30

/* For an entry of the registry that says `alpha`: observers read the estimate where it begins. */
#define CC_DCTCP_BEGINS(state)                                                                     \
	_Static_assert(__builtin_offsetof(state, ecn) == 0, "observers look for alpha here")

struct CC_PRIVATE cc_dctcp {
	uint32_t alpha_q30; /* first: read by observers */
	uint32_t acked_pkt; /* in this observation window */
	uint32_t marked_pkt;
	uint32_t window_end; /* sequence number */
};

CC_INLINE void cc_dctcp_init(struct cc_dctcp *d, const struct cc_event *ev, uint64_t alpha_q30)
{
	d->alpha_q30 = (uint32_t)cc_min64(alpha_q30, CC_ALPHA_ONE_Q30);
	d->acked_pkt = 0;
	d->marked_pkt = 0;
	d->window_end = ev->snd_nxt;
}

/* alpha = (1 - g) alpha + g F.  Rounded down as a whole, so that alpha reaches 0 without marks. */
CC_INLINE uint32_t cc_dctcp_average(uint32_t alpha_q30, uint32_t fraction_q30, uint64_t g_q20)
{
	uint64_t a = cc_min(alpha_q30, CC_ALPHA_ONE_Q30);
	uint64_t g = cc_min64(g_q20, 1u << 20);

	return (uint32_t)((a * ((1u << 20) - g) + fraction_q30 * g) >> 20);
}

/* Counts this ACK; at the end of an observation window updates alpha. */
CC_INLINE void cc_dctcp_on_ack(struct cc_dctcp *d, const struct cc_event *ev, uint64_t g_q20)
{
	uint32_t acked = cc_min(ev->acked_pkt, CC_MAX_CWND_PKT);
	uint32_t marked;

	d->acked_pkt = cc_min(d->acked_pkt, 1u << 30) + acked;
	if (ev->flags & CC_EV_ECE)
		d->marked_pkt = cc_min(d->marked_pkt, 1u << 30) + acked;
	/* A window in which no whole packet was counted goes on. */
	if (!cc_round_over(ev, d->window_end) || !d->acked_pkt)
		return;
	marked = cc_min(d->marked_pkt, d->acked_pkt);
	d->alpha_q30 = cc_dctcp_average(d->alpha_q30,
					(uint32_t)(((uint64_t)marked << 30) / d->acked_pkt), g_q20);
	d->window_end = ev->snd_nxt;
	d->acked_pkt = 0;
	d->marked_pkt = 0;
}

/*
 * ECE: w -= floor(w * alpha / 2), not below `floor`.  Both window and ssthresh: hosts as Linux
 * reduce gradually and end at ssthresh, whatever the window.
 */
CC_INLINE void cc_dctcp_cut(const struct cc_dctcp *d, const struct cc_event *ev,
			    struct cc_path *self, uint64_t floor, struct cc_decision *out)
{
	uint32_t w = cc_window(ev->cwnd_pkt);
	uint64_t alpha = cc_min(d->alpha_q30, CC_ALPHA_ONE_Q30);
	uint32_t cut = (uint32_t)((w * alpha) >> (CC_DCTCP_ALPHA_BITS + 1));
	uint32_t least = (uint32_t)cc_min64(cc_max64(floor, 1), 16);

	cc_reduce(ev, self, w - cut, least, least, out);
}

#endif /* VMCC_DCTCP_H */
