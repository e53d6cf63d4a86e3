/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * OLIA's increase and reduction, shared by OLIA and vMCC.  Equations, deviations, range:
 * src/olia.c.
 *
 * An algorithm that uses this publishes l = max(l1, l2), packets between losses, in
 * pub[CC_OLIA_PUB].
 */
#ifndef VMCC_OLIA_H
#define VMCC_OLIA_H

#include "coupling.h"

#define CC_OLIA_PUB 1
/* Past this many packets without loss, more make no difference. */
#define CC_OLIA_MAX_LOSS_GAP 0x3fffffffu

struct CC_PRIVATE cc_olia {
	uint32_t l1_pkt; /* between the last two losses */
	uint32_t l2_pkt; /* since the last loss */
};

/* alpha_r = sign / divisor */
struct cc_olia_alpha {
	uint32_t divisor; /* n |C| or n |M|; 0: alpha is 0 */
	uint32_t negative;
};

CC_INLINE void cc_olia_publish(const struct cc_olia *o, struct cc_path *self)
{
	self->pub[CC_OLIA_PUB] = cc_min(cc_max(o->l1_pkt, o->l2_pkt), CC_OLIA_MAX_LOSS_GAP);
}

CC_INLINE void cc_olia_on_ack(struct cc_olia *o, const struct cc_event *ev, struct cc_path *self)
{
	uint32_t l2 =
		cc_min(o->l2_pkt, CC_OLIA_MAX_LOSS_GAP) + cc_min(ev->acked_pkt, CC_MAX_CWND_PKT);

	o->l2_pkt = cc_min(l2, CC_OLIA_MAX_LOSS_GAP);
	cc_olia_publish(o, self);
}

CC_INLINE void cc_olia_on_loss(struct cc_olia *o, struct cc_path *self)
{
	o->l1_pkt = o->l2_pkt;
	o->l2_pkt = 0;
	cc_olia_publish(o, self);
}

/* l_a / T_a^2 compared with l_b / T_b^2: 1, 0 or -1. */
CC_INLINE int cc_olia_compare(uint32_t la, uint32_t ta, uint32_t lb, uint32_t tb)
{
	struct cc_product x = cc_multiply((uint64_t)la * tb, tb);
	struct cc_product y = cc_multiply((uint64_t)lb * ta, ta);

	if (x.hi != y.hi)
		return x.hi > y.hi ? 1 : -1;
	if (x.lo != y.lo)
		return x.lo > y.lo ? 1 : -1;
	return 0;
}

/*
 * alpha of path `me`.  M: the paths with the largest window.  B: those with the largest l/T^2.  C
 * is B without M: good paths that deserve a larger window, paid for by the members of M.
 */
CC_INLINE struct cc_olia_alpha cc_olia_alpha(const struct cc_view *view, const uint32_t *l,
					     uint32_t me)
{
	struct cc_olia_alpha alpha = {0, 0};
	uint32_t widest = 0, best_l = 0, best_t = 0, i;
	uint32_t n = 0, in_m = 0, in_c = 0;
	int me_in_c = 0;

	for (i = 0; i < CC_MAX_PATHS; i++) {
		if (!view->w[i])
			continue;
		widest = cc_max(widest, view->w[i]);
		if (!best_t || cc_olia_compare(l[i], view->srtt[i], best_l, best_t) > 0) {
			best_l = l[i];
			best_t = view->srtt[i];
		}
	}
	for (i = 0; i < CC_MAX_PATHS; i++) {
		if (!view->w[i])
			continue;
		n++;
		if (view->w[i] == widest) {
			in_m++;
		} else if (!cc_olia_compare(l[i], view->srtt[i], best_l, best_t)) {
			in_c++;
			me_in_c |= i == me;
		}
	}
	if (!in_c)
		return alpha;
	if (me_in_c) {
		alpha.divisor = n * in_c;
	} else if (view->w[me] == widest) {
		alpha.divisor = n * in_m;
		alpha.negative = 1;
	}
	return alpha;
}

/* (w_r / T_r^2) / (sum of w/T)^2 in Q40, for path `me`. */
CC_INLINE uint64_t cc_olia_first_q40(const struct cc_view *view, const struct cc_coupling *c,
				     uint32_t me)
{
	uint64_t u = ((uint64_t)view->w[me] << 16) * c->srtt / view->srtt[me];
	uint64_t v = u * c->srtt / view->srtt[me];

	if (!c->sum)
		return 0;
	return (((v << (16 + c->shift)) / c->sum) << (8 + c->shift)) / c->sum;
}

/* Avoidance with an increase that may be negative; never below one packet. */
CC_INLINE uint32_t cc_olia_move(struct cc_path *self, uint32_t w, uint32_t acked, uint64_t up_q40,
				uint64_t down_q40)
{
	int64_t credit = cc_credit(self) + (int64_t)(acked * up_q40) - (int64_t)(acked * down_q40);
	uint64_t size = credit < 0 ? (uint64_t)-credit : (uint64_t)credit;
	uint64_t whole = size >> CC_CREDIT_BITS;
	int64_t rest = (int64_t)(size & (CC_CREDIT_ONE - 1));

	self->credit_q40 = credit < 0 ? -rest : rest;
	if (credit >= 0)
		return (uint32_t)cc_min64(w + whole, CC_MAX_CWND_PKT);
	if (whole >= w) {
		self->credit_q40 = 0;
		return 1;
	}
	return w - (uint32_t)whole;
}

/*
 * Growth.  Returns the alpha that was used, for observers.
 */
CC_INLINE struct cc_olia_alpha cc_olia_grow(const struct cc_olia *o, const struct cc_event *ev,
					    struct cc_path *self, const struct cc_group *group,
					    struct cc_decision *out)
{
	struct cc_olia_alpha alpha = {0, 0};
	uint32_t w = cc_window(ev->cwnd_pkt), me = cc_own_index(ev), left, i;
	uint32_t l[CC_MAX_PATHS];
	struct cc_view view;
	struct cc_coupling c;
	uint64_t second;

	left = cc_slow_start(ev, &w);
	if (left && cc_is_coupled(ev, group)) {
		cc_view_load(&view, ev, group, w);
		for (i = 0; i < CC_MAX_PATHS; i++)
			l[i] = (uint32_t)cc_min64(group->path[i].pub[CC_OLIA_PUB],
						  CC_OLIA_MAX_LOSS_GAP);
		l[me] = cc_min(cc_max(o->l1_pkt, o->l2_pkt), CC_OLIA_MAX_LOSS_GAP);
		if (cc_view_count(&view) > 1) {
			cc_couple(&view, &c);
			alpha = cc_olia_alpha(&view, l, me);
			second = alpha.divisor ? CC_CREDIT_ONE / ((uint64_t)alpha.divisor * w) : 0;
			w = cc_olia_move(self, w, left,
					 cc_olia_first_q40(&view, &c, me) +
						 (alpha.negative ? 0 : second),
					 alpha.negative ? second : 0);
			left = 0;
		}
	}
	if (left)
		w = cc_avoidance(self, w, left, cc_inverse_q40(w));
	/* Above the valid range the host's window is left alone. */
	if (w != ev->cwnd_pkt && ev->cwnd_pkt <= CC_MAX_CWND_PKT)
		cc_set_cwnd(out, w);
	return alpha;
}

/* Reduction: Reno's half; one packet is allowed as long as another path carries the connection. */
CC_INLINE void cc_olia_reduce(struct cc_olia *o, const struct cc_event *ev, struct cc_path *self,
			      const struct cc_group *group, struct cc_decision *out)
{
	cc_olia_on_loss(o, self);
	if (cc_has_sibling(ev, group))
		cc_reduce(ev, self, cc_flight(ev) / 2, 1, 1, out);
	else
		cc_reno_reduce(ev, self, out);
}

#endif /* VMCC_OLIA_H */
