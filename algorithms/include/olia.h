/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * OLIA's increase and reduction, shared by OLIA and vMCC.  Equations, deviations, range:
 * src/olia.c.
 *
 * An algorithm that uses this publishes l = max(l1, l2), packets between losses, in
 * pub[CC_OLIA_PUB], of which the upper half is its own.
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

/* l of a path, the own one from its own state; 0 for an absent one. */
CC_INLINE uint32_t cc_olia_l(const struct cc_olia *o, const struct cc_group *group, uint32_t i,
			     uint32_t me)
{
	const struct cc_slot *slot = &group->path[i];
	uint64_t published = (uint32_t)slot->pub[CC_OLIA_PUB];
	uint64_t sibling = cc_select(cc_slot_counts(slot), published, 0);
	uint64_t l = cc_select(cc_equal(i, me), cc_max(o->l1_pkt, o->l2_pkt), sibling);

	return cc_min((uint32_t)l, CC_OLIA_MAX_LOSS_GAP);
}

/*
 * The path sets of alpha, a bit per path.  M: the paths with the largest window.  B: those with the
 * largest l/T^2.  B without M are good paths that deserve a larger window, paid for by the members
 * of M.
 */
struct cc_olia_sets {
	uint64_t all;
	uint64_t m;
	uint64_t b;
	uint32_t w;    /* the largest window */
	uint32_t l;    /* of the members of B */
	uint32_t srtt; /* likewise */
};

#define CC_OLIA_SETS_AT_FIRST {0, 0, 0, 0, 0, 1}

/* The members of a set of maxima after one more path. */
CC_INLINE uint64_t cc_olia_maxima(uint64_t members, uint64_t bit, uint64_t greater, uint64_t equal)
{
	return cc_select(greater, bit, members | cc_select(equal, bit, 0));
}

CC_INLINE void cc_olia_sort(struct cc_olia_sets *sets, const struct cc_term *term, uint32_t l,
			    uint32_t i)
{
	struct cc_product own = cc_multiply((uint64_t)l * sets->srtt, sets->srtt);
	struct cc_product best = cc_multiply((uint64_t)sets->l * term->srtt, term->srtt);
	/* The term is there; the verifier shall not follow the sets of paths that may be. */
	uint64_t better = cc_product_greater(own, best), bit = cc_nonzero(term->w) << i;

	sets->all |= bit;
	sets->m = cc_olia_maxima(sets->m, bit, cc_below(sets->w, term->w),
				 cc_equal(sets->w, term->w));
	sets->b = cc_olia_maxima(sets->b, bit, better, cc_product_equal(own, best));
	sets->w = cc_max(sets->w, term->w);
	sets->l = (uint32_t)cc_select(better, l, sets->l);
	sets->srtt = (uint32_t)cc_select(better, term->srtt, sets->srtt);
}

/* alpha of the own path. */
CC_INLINE struct cc_olia_alpha cc_olia_alpha(const struct cc_olia_sets *sets, uint32_t me)
{
	struct cc_olia_alpha alpha = {0, 0};
	uint64_t c = sets->b & ~sets->m, mine = 1ull << me;
	uint64_t of = cc_select(cc_nonzero(c & mine), c,
				cc_select(cc_nonzero(sets->m & mine), sets->m, 0));

	if (!c)
		return alpha;
	alpha.divisor = cc_members(sets->all) * cc_members(of);
	alpha.negative = (uint32_t)cc_nonzero(sets->m & mine);
	return alpha;
}

/* Sums and alpha.  Two loops for both: with 32 paths each costs as much as all the rest. */
CC_INLINE void cc_olia_couple(const struct cc_olia *o, const struct cc_group *group,
			      const struct cc_own *own, struct cc_coupling *c,
			      struct cc_olia_alpha *alpha)
{
	struct cc_olia_sets sets = CC_OLIA_SETS_AT_FIRST;
	struct cc_best best = CC_BEST_AT_FIRST;
	uint32_t i;

	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = cc_term(group, i, own);

		CC_SKIP_UNLESS(term.w);
		cc_best_of(&best, &term);
		cc_olia_sort(&sets, &term, cc_olia_l(o, group, i, own->index), i);
	}
	cc_couple_begin(&best, c);
	CC_FOR_PATHS(i, group)
	{
		struct cc_term term = cc_term(group, i, own);

		CC_SKIP_UNLESS(term.w);
		cc_couple_add(&best, &term, c);
	}
	cc_couple_end(c);
	*alpha = cc_olia_alpha(&sets, own->index);
}

/*
 * (w / T^2) / (sum of w/T)^2 in Q40, for a path of the sum.  v = w (T_k/T)^2 <= w_k in e fractional
 * bits; u, on the way there, is at most sqrt(w w_k).
 */
CC_INLINE uint64_t cc_olia_first_q40(const struct cc_coupling *c, uint32_t w, uint32_t srtt)
{
	uint32_t e = 36 - cc_bitlen(w | c->w); /* u and v below 2^36, times T below 2^63 */
	uint64_t u = cc_scale((uint64_t)w << e, c->srtt, srtt);
	uint64_t v = cc_scale(u, c->srtt, srtt);

	if (!c->sum)
		return 0;
	/* At most 1, unless a path has changed between the loops. */
	return cc_min64((((v << 27) / c->sum) << (2 * c->shift + 13 - e)) / c->sum, CC_CREDIT_ONE);
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

/* One step of avoidance among several paths.  Returns the new window. */
CC_INLINE uint32_t cc_olia_avoidance(const struct cc_olia *o, const struct cc_group *group,
				     const struct cc_own *own, struct cc_path *self, uint32_t acked,
				     struct cc_olia_alpha *alpha)
{
	uint32_t w = own->w;
	struct cc_coupling c;
	uint64_t up, second = 0;

	cc_olia_couple(o, group, own, &c, alpha);
	up = cc_olia_first_q40(&c, w, cc_known_srtt(own->srtt));
	if (alpha->divisor)
		second = CC_CREDIT_ONE / ((uint64_t)alpha->divisor * w);
	if (alpha->negative)
		return cc_olia_move(self, w, acked, up, second);
	return cc_olia_move(self, w, acked, up + second, 0);
}

/* Growth.  Returns the alpha that was used, for observers. */
CC_INLINE struct cc_olia_alpha cc_olia_grow(const struct cc_olia *o, const struct cc_event *ev,
					    struct cc_path *self, const struct cc_group *group,
					    struct cc_decision *out)
{
	struct cc_olia_alpha alpha = {0, 0};
	uint32_t w = cc_window(ev->cwnd_pkt), left;
	struct cc_own own;

	left = cc_slow_start(ev, &w);
	if (left && cc_has_sibling(ev, group)) {
		own = cc_own(ev, w);
		w = cc_olia_avoidance(o, group, &own, self, left, &alpha);
	} else if (left) {
		w = cc_avoidance(self, w, left, cc_inverse_q40(w));
	}
	/* Above the valid range the host's window is left alone. */
	if (w == ev->cwnd_pkt || ev->cwnd_pkt > CC_MAX_CWND_PKT)
		return alpha;
	cc_set_cwnd(out, w);
	/* Else slow start would at once undo the decrease. */
	if (w < ev->cwnd_pkt && w < ev->ssthresh_pkt)
		cc_set_ssthresh(out, w);
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
