/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * LIA for descheduled virtual machines: RTT samples inflated by the hypervisor's scheduler neither
 * enter the coupling nor lower the increase.
 *
 * Source: the VM-scheduling-aware MPTCP paper, equations 1 to 15 and section V; RFC 6356.
 *   sample D    inflated by scheduling iff D >= theta * minRTT
 *   not so      T = 7/8 T + 1/8 D
 *   inflated    T unchanged; alpha of this ACK is the largest of the last second
 *   growth      w_r += acked * min(alpha / w_total, 1 / w_r), current w_total; the rest is LIA
 *
 * With keep = "increase" alpha / w_total is kept and used again, as in the out-of-tree Linux LIA,
 * whose variable alpha holds that.  The window it
 * was computed for was smaller, so that growth comes near 1 / w_r: paths are no longer coupled.
 *
 * Deviations: D = theta * minRTT counts as inflated (the paper says both).  After `escape` of
 * uninterrupted inflation samples are accepted, else a lasting rise would freeze T.  As
 * long as no sample was withheld T is the host's own estimate, so that it is LIA bit for bit.  The
 * connection's ring of 8 times 125 ms is one ring per path whose maximum siblings read, which may
 * be up to a second older.  alpha is kept with a 24-bit mantissa, rounded down: relative error
 * below 2^-23. The host's retransmission timer must keep using its own, unfiltered estimate.
 *
 * Valid range: see coupling.h.
 */
#define CC_OWN_SRTT 1 /* VMSCHED_PUB_SRTT */
#include "lia.h"

#define VMSCHED_BUCKET_US     125000u
#define VMSCHED_BUCKETS	      8u
#define VMSCHED_MANTISSA_BITS 24
#define VMSCHED_US_PER_MS     1000u
/* pub[0]: filtered T in 1/8 us, 0 if it is the host's.  pub[1]: bucket number, alpha. */
#define VMSCHED_PUB_SRTT  0 /* as CC_OWN_SRTT has it */
#define VMSCHED_PUB_ALPHA 1

struct CC_PRIVATE vmsched {
	uint32_t ring[VMSCHED_BUCKETS]; /* largest alpha per bucket, packed */
	uint64_t inflated_since_us;	/* 0: the last sample was not */
	uint32_t bucket;		/* number of the newest bucket */
	uint32_t srtt_8us;		/* filtered; 0: the host's is good */
	uint32_t withhold;		/* the last sample was inflated and withheld */
	uint32_t seen_8us;		/* the host's srtt before the sample that is being judged */
};

/* alpha (Q20) as exponent (8 bits) and mantissa (24 bits): order is kept. */
CC_INLINE uint32_t vmsched_pack(uint64_t alpha_q20)
{
	uint32_t bits = cc_max(cc_bitlen(alpha_q20), VMSCHED_MANTISSA_BITS);
	uint32_t exponent = bits - VMSCHED_MANTISSA_BITS;

	return exponent << VMSCHED_MANTISSA_BITS | (uint32_t)(alpha_q20 >> exponent);
}

CC_INLINE uint64_t vmsched_unpack(uint32_t packed)
{
	uint32_t exponent = cc_min(packed >> VMSCHED_MANTISSA_BITS, 40);

	return (uint64_t)(packed & ((1u << VMSCHED_MANTISSA_BITS) - 1)) << exponent;
}

/* Notes alpha in the ring; buckets older than a second are emptied.  Returns the largest. */
CC_INLINE uint32_t vmsched_note(struct vmsched *v, uint64_t now_us, uint32_t alpha)
{
	uint32_t bucket = (uint32_t)(now_us / VMSCHED_BUCKET_US), largest = alpha, i;
	uint32_t age = bucket - v->bucket;

	for (i = 0; i < VMSCHED_BUCKETS; i++) {
		uint64_t stale = cc_less((i - v->bucket - 1) % VMSCHED_BUCKETS, age);
		uint64_t mine = cc_equal(i, bucket % VMSCHED_BUCKETS);
		uint32_t old = (uint32_t)cc_select(stale, 0, v->ring[i]);

		v->ring[i] = (uint32_t)cc_select(mine, cc_max(old, alpha), old);
		largest = cc_max(largest, v->ring[i]);
	}
	v->bucket = bucket;
	return largest;
}

/* The largest alpha that siblings noted within the last second. */
CC_INLINE uint32_t vmsched_siblings(const struct cc_event *ev, const struct cc_group *group,
				    uint32_t bucket)
{
	uint32_t me = cc_own_index(ev), largest = 0, i;

	CC_FOR_PATHS(i, group)
	{
		const struct cc_slot *slot = &group->path[i];
		uint64_t word = slot->pub[VMSCHED_PUB_ALPHA];
		uint32_t age = bucket + 1 - (uint32_t)(word >> 32);
		uint64_t counts = cc_slot_counts(slot) & cc_less(age, VMSCHED_BUCKETS + 1);

		counts &= cc_equal(i, me) ^ 1;
		largest = cc_max(largest, (uint32_t)cc_select(counts, (uint32_t)word, 0));
	}
	return largest;
}

/* min(alpha / w_total, 1/w) in Q40, where an inflated ACK uses the largest alpha of a second. */
CC_INLINE uint64_t vmsched_increase_q40(struct vmsched *v, const struct cc_event *ev,
					struct cc_path *self, const struct cc_group *group,
					uint64_t keep, uint32_t w)
{
	struct cc_own own = cc_own_filtered(ev, w, v->srtt_8us);
	uint64_t coupled, total = 0;
	struct cc_coupling c;
	uint32_t largest, i;

	cc_couple(group, &own, &c);
	if (keep == CC_P_VMSCHED_KEEP_ALPHA) {
		CC_FOR_PATHS(i, group)
		total += cc_term(group, i, &own).w;
	}
	total = cc_max64(total, 1);
	coupled = cc_coupled_increase_q40(&c);
	largest = vmsched_note(v, ev->now_us, vmsched_pack((total * coupled) >> 20));
	self->pub[VMSCHED_PUB_ALPHA] = (uint64_t)v->bucket << 32 | largest;
	if (v->withhold) {
		largest = cc_max(largest, vmsched_siblings(ev, group, v->bucket));
		/* alpha is at most w_total: more than 2^44 is not a value of ours. */
		coupled = cc_max64(coupled,
				   (cc_min64(vmsched_unpack(largest), 1ull << 43) << 20) / total);
		coupled = cc_min64(coupled, CC_CREDIT_ONE);
	}
	return cc_capped_increase_q40(coupled, w);
}

/* Takes an RTT sample into T, or withholds it. */
CC_INLINE void vmsched_sample(struct vmsched *v, const struct cc_event *ev,
			      const struct cc_params *params)
{
	uint64_t theta = cc_min64(cc_max64(params->v[CC_P_VMSCHED_THETA], 1), 1u << 20);
	uint64_t escape_us = cc_min64(params->v[CC_P_VMSCHED_ESCAPE], 1u << 30) * VMSCHED_US_PER_MS;
	uint64_t sample_8us = cc_min64((uint64_t)ev->rtt_us * 8, CC_MAX_SRTT_8US);

	v->withhold = 0;
	if (!ev->min_rtt_us || ev->rtt_us < theta * ev->min_rtt_us) {
		v->inflated_since_us = 0;
	} else {
		if (!v->inflated_since_us)
			v->inflated_since_us = ev->now_us;
		v->withhold = ev->now_us - v->inflated_since_us < escape_us;
	}
	if (v->withhold) {
		/* From here on T goes its own way, from what the host's was before this sample. */
		if (!v->srtt_8us)
			v->srtt_8us = v->seen_8us ? v->seen_8us : ev->srtt_8us;
	} else if (v->srtt_8us) {
		v->srtt_8us = cc_known_srtt(v->srtt_8us - (v->srtt_8us >> 3) +
					    (uint32_t)(sample_8us >> 3));
	}
}

/* Hosts differ in whether srtt holds the sample of this ACK yet when on_ack runs. */
CC_INLINE void vmsched_see(struct vmsched *v, const struct cc_event *ev)
{
	if (!v->withhold)
		v->seen_8us = ev->srtt_8us;
}

CC_HOOK(vmsched, init)
{
	cc_path_clear(self);
	vmsched_see(CC_STATE(vmsched, self), ev);
}

CC_HOOK(vmsched, on_ack)
{
	struct vmsched *v = CC_STATE(vmsched, self);

	if (ev->rtt_us)
		vmsched_sample(v, ev, params);
	vmsched_see(v, ev);
	self->pub[VMSCHED_PUB_SRTT] = v->srtt_8us;
}

CC_HOOK(vmsched, on_congestion)
{
	cc_reno_reduce(ev, self, out);
}

CC_HOOK(vmsched, on_grow)
{
	struct vmsched *v = CC_STATE(vmsched, self);
	uint32_t w = cc_window(ev->cwnd_pkt), left;
	uint64_t inc;

	vmsched_see(v, ev);
	left = cc_slow_start(ev, &w);
	if (left) {
		inc = cc_inverse_q40(w);
		if (cc_is_coupled(ev, group))
			inc = vmsched_increase_q40(v, ev, self, group, params->v[CC_P_VMSCHED_KEEP],
						   w);
		w = cc_avoidance(self, w, left, inc);
	}
	cc_grown(ev, w, out);
}

CC_HOOK(vmsched, on_state)
{
}

CC_ALGORITHM(vmsched, struct vmsched);
