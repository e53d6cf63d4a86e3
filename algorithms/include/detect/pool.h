/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clang-format off */
/*
 * Detection of shared bottlenecks by all connections between two hosts together.
 *
 * A pool is a connection whose paths are the routes between the two hosts, one per local interface.
 * Clock, blocks, evidence, trials and verdict are those of sharing.h.  Only two inputs differ:
 *
 *   bin     each connection has one vote on a route's bin, the value that it keeps of it.  The
 *           delay is the mean of the middle half of the votes, the share of marks the mean of all.
 *           Fewer than CC_POOL_MIN votes are none.  A vote weighs the same however much the
 *           connection sends, so none decides alone, and a quarter of them may be anything.
 *   trial   in step: a coin for each route and trial, from a secret of the host.  If it says so,
 *           all connections probe in the same bin, and the response grows with their number.
 *           The expected response is that to the packets of all, in the queue that they fill.
 *
 *   homogeneity   a pair of routes is a mixture if the network spreads connections over several
 *           queues.  Members keep their own evidence and sums of their own responses.  If more than
 *           a quarter of the sums are positive, or if more than a quarter of the members have
 *           CC_POOL_SHARES of evidence and more than a third less than CC_POOL_DOUBTS, the pool
 *           does not decide, and each connection closes by what it knows itself.
 *   age     a verdict ends after CC_POOL_HOLD bins, and the evidence of its pairs with it, because
 *           a closed route has no traffic that could contradict.
 *
 * A member is a connection with two or more of the routes.  With fewer than CC_POOL_MIN of them
 * each decides alone.
 *
 * Valid range: up to CC_POOL_VOTES votes.  Any content of members' memory is accepted.
 */
/* clang-format on */
#ifndef VMCC_DETECT_POOL_H
#define VMCC_DETECT_POOL_H

#include "sharing.h"

/* The fewest votes on a bin, and members of a pool. */
#define CC_POOL_MIN   3u
#define CC_POOL_VOTES 1024u
/* Bins until all members have theirs: an ACK counts to the bin of half an RTT ago. */
#define CC_POOL_LAG 2u
/* Bins until the response to a trial is known. */
#define CC_POOL_EFFECT_BINS 2u
/* A trial counts if it moves this part of the packets in flight. */
#define CC_POOL_LEAST_PART 16u
/* Evidence of the two camps of a mixture. */
#define CC_POOL_SHARES 40
#define CC_POOL_DOUBTS 28
#define CC_POOL_HOLD   (1u << 13)

/* One route: the trial that runs, as its members joined it, and the verdict. */
struct cc_pool_route {
	uint32_t members;     /* that joined */
	uint32_t windows_pkt; /* sums over them */
	uint32_t flight_pkt;
	uint32_t moved_pkt;
	uint32_t since;	 /* bin of the verdict */
	uint8_t kept;	 /* the route that is kept, from 1; 0: no verdict */
	uint8_t narrow;	 /* most windows were too narrow to be reduced */
	uint16_t unused; /* zero */
};

/* All connections between two hosts.  Initially zero but for the secret. */
struct cc_pool {
	uint64_t secret;
	struct cc_sharing sharing; /* of routes instead of paths */
	uint32_t bin;		   /* the next to be voted on */
	uint32_t mixed;		   /* routes whose members disagree, as bits */
	uint32_t active;	   /* there are enough members */
	struct cc_pool_route route[CC_SHARING_PATHS];
};

/* One connection: what it keeps, and its path on each route; none: CC_SHARING_PATHS or more. */
struct cc_pool_member {
	const struct cc_sharing *sharing;
	uint8_t path[CC_SHARING_PATHS];
};

_Static_assert(sizeof(struct cc_pool) == 816, "cc_pool is shared with Rust");
_Static_assert(sizeof(struct cc_pool_member) == 16, "cc_pool_member is shared with Rust");

/* Value of a bin by the votes on it; 0, which is no vote, if they are too few. */
CC_INLINE uint16_t cc_pool_vote(const uint16_t *vote, uint32_t n)
{
	uint16_t count[CC_SHARING_DELAY_MAX + 1] = {0};
	uint64_t marks = 0, votes = 0, delays = 0, below = 0, trimmed, kept;
	uint32_t i;

	for (i = 0; i < n && i < CC_POOL_VOTES; i++) {
		if (!vote[i])
			continue;
		count[vote[i] >> CC_SHARING_MARK_BITS]++;
		marks += vote[i] & CC_SHARING_MARK_MAX;
		votes++;
	}
	if (votes < CC_POOL_MIN)
		return 0;
	trimmed = votes / 4;
	kept = votes - 2 * trimmed;
	for (i = 0; i <= CC_SHARING_DELAY_MAX; i++) {
		uint64_t end = below + count[i];
		uint64_t from = cc_max64(below, trimmed), to = cc_min64(end, trimmed + kept);

		delays += from < to ? i * (to - from) : 0;
		below = end;
	}
	return (uint16_t)(cc_max64(delays / kept, 1) << CC_SHARING_MARK_BITS | marks / votes);
}

/* A member's value of a bin; 0: unknown. */
CC_INLINE uint16_t cc_pool_value(const struct cc_pool_member *m, uint32_t route, uint32_t bin)
{
	uint32_t path = m->path[route], ahead;
	const struct cc_history *h;

	if (path >= CC_SHARING_PATHS)
		return 0;
	h = &m->sharing->path[path];
	ahead = h->bin - bin;
	return ahead - 1 < CC_SHARING_BINS - 1 ? h->value[cc_sharing_at(bin)] : 0;
}

/* Adds the members' votes on the next bin to every route. */
CC_INLINE void cc_pool_bin(struct cc_pool *p, const struct cc_pool_member *m, uint32_t n)
{
	uint16_t vote[CC_POOL_VOTES];
	uint32_t route, i;

	n = cc_min(n, CC_POOL_VOTES);
	for (route = 0; route < CC_SHARING_PATHS; route++) {
		struct cc_history *h = &p->sharing.path[route];

		for (i = 0; i < n; i++)
			vote[i] = cc_pool_value(&m[i], route, p->bin);
		h->value[cc_sharing_at(p->bin)] = cc_pool_vote(vote, n);
		h->bin = p->bin + 1;
	}
	p->bin++;
}

/* Compares the routes over the block that is over. */
CC_INLINE void cc_pool_block(struct cc_pool *p, const struct cc_group *routes)
{
	uint32_t a, b;

	for (a = 0; a < CC_SHARING_PATHS; a++) {
		struct cc_history *h = &p->sharing.path[a];

		if (!cc_sharing_usable(&routes->path[a]))
			continue;
		for (b = 0; b < a; b++) {
			if (cc_sharing_usable(&routes->path[b]))
				cc_sharing_compare(&p->sharing, a, b, p->bin - CC_SHARING_BLOCK);
		}
		if (h->doubts < CC_SHARING_UNDECIDED_BLOCKS)
			h->doubts++;
	}
}

/* Members of a pair of routes, by what they know themselves. */
struct cc_pool_camps {
	uint32_t answered; /* trials */
	uint32_t alone;	   /* of them, whose sum contradicts */
	uint32_t compared; /* blocks */
	uint32_t sharing;  /* of them, whose evidence nearly decides */
	uint32_t doubting; /* of them, whose evidence is far from that */
};

CC_INLINE void cc_pool_count(const struct cc_pool_member *m, uint32_t a, uint32_t b,
			     struct cc_pool_camps *camps)
{
	uint32_t x = m->path[a], y = m->path[b], pair;
	int32_t evidence, sum;

	if (x >= CC_SHARING_PATHS || y >= CC_SHARING_PATHS || x == y)
		return;
	pair = cc_sharing_pair(x, y);
	evidence = m->sharing->evidence[pair];
	sum = m->sharing->alone[pair];
	camps->answered += sum != 0;
	camps->alone += sum > 0;
	camps->compared += evidence != 0;
	camps->sharing += evidence >= CC_POOL_SHARES;
	camps->doubting += evidence != 0 && evidence < CC_POOL_DOUBTS;
}

/* True unless members say that only some of them share: by trials, or as two camps by evidence. */
CC_INLINE int cc_pool_is_homogeneous(const struct cc_pool_member *m, uint32_t n, uint32_t a,
				     uint32_t b)
{
	struct cc_pool_camps camps = {0};
	uint32_t i;

	for (i = 0; i < n; i++)
		cc_pool_count(&m[i], a, b, &camps);
	return 4 * camps.alone <= camps.answered &&
	       (4 * camps.sharing <= camps.compared || 3 * camps.doubting <= camps.compared);
}

/* A coin of the host: nobody else can know how it falls. */
CC_INLINE uint8_t cc_pool_coin(uint64_t secret, uint32_t route, uint32_t bin)
{
	uint64_t x = secret + (((uint64_t)bin << 3 | route) + 1) * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return (uint8_t)(x >> 63);
}

/* Adds the response to the trial that is over, if its members moved enough. */
CC_INLINE void cc_pool_evaluate(struct cc_pool *p, const struct cc_group *routes, uint32_t route,
				uint32_t bin)
{
	struct cc_pool_route *r = &p->route[route];
	struct cc_history *h = &p->sharing.path[route];
	uint64_t srtt_us = cc_slot_srtt(&routes->path[route]) >> 3;

	if (r->moved_pkt && r->moved_pkt >= r->flight_pkt / CC_POOL_LEAST_PART) {
		h->expected =
			cc_sharing_expected(srtt_us * r->moved_pkt / cc_max(r->flight_pkt, 1),
					    !!(h->trial & CC_SHARING_WIDEN), p->sharing.shift & 31);
		if (h->expected)
			cc_sharing_evaluate(&p->sharing, route, bin);
	}
	if (r->members)
		r->narrow = r->windows_pkt <= CC_SHARING_NARROW_PKT * r->members;
	h->trial = 0;
}

/* Announces a trial; members join in the bin from which on none of them has been. */
CC_INLINE void cc_pool_trial_begin(struct cc_pool *p, uint32_t route)
{
	struct cc_pool_route *r = &p->route[route];
	struct cc_history *h = &p->sharing.path[route];
	uint32_t bin = p->bin + CC_POOL_LAG;

	h->trial = (r->narrow ? CC_SHARING_WIDEN : CC_SHARING_PAUSE) |
		   cc_pool_coin(p->secret, route, bin);
	h->tried = (uint8_t)bin;
	r->members = 0;
	r->windows_pkt = 0;
	r->flight_pkt = 0;
	r->moved_pkt = 0;
}

/* Ends a verdict that is too old, and what it was based on. */
CC_INLINE void cc_pool_age(struct cc_pool *p, uint32_t route)
{
	struct cc_pool_route *r = &p->route[route];

	if (!r->kept || p->bin - r->since < CC_POOL_HOLD)
		return;
	r->kept = 0;
	cc_sharing_forget(&p->sharing, route);
}

/* Two routes share a bottleneck, or members disagree, and trials begin again. */
CC_INLINE void cc_pool_conclude(struct cc_pool *p, const struct cc_pool_member *m, uint32_t n,
				uint32_t route, uint32_t kept)
{
	if (cc_pool_is_homogeneous(m, n, route, kept)) {
		p->route[route].kept = (uint8_t)(kept + 1);
		p->route[route].since = p->bin;
		p->mixed &= ~(1u << route);
	} else {
		p->sharing.alone[cc_sharing_pair(route, kept)] = 0;
		p->mixed |= 1u << route;
	}
}

/* Evaluates the last trial of a route; then decides, begins another trial, or waits. */
CC_INLINE void cc_pool_decide(struct cc_pool *p, const struct cc_group *routes,
			      const struct cc_pool_member *m, uint32_t n, uint32_t route)
{
	struct cc_history *h = &p->sharing.path[route];
	int8_t since = (int8_t)(h->bin - h->tried);
	struct cc_verdict v;

	cc_pool_age(p, route);
	if (h->trial && since >= (int8_t)CC_POOL_EFFECT_BINS)
		cc_pool_evaluate(p, routes, route, h->bin - (uint32_t)since);
	if (!p->active || !cc_sharing_usable(&routes->path[route]))
		return;
	cc_sharing_verdict(routes, &p->sharing, route, &v);
	if (v.suspicion <= CC_SHARING_APART)
		h->doubts = 0;
	if (v.kept < CC_SHARING_PATHS) {
		cc_pool_conclude(p, m, n, route, v.kept);
		return;
	}
	if (v.others && !h->trial && cc_sharing_due(h, h->bin + CC_POOL_LAG, v.suspicion))
		cc_pool_trial_begin(p, route);
}

/* The clock has changed: bins and trials begin again, evidence stays. */
CC_INLINE void cc_pool_restart(struct cc_pool *p, uint32_t bin)
{
	const struct cc_history nothing = {0};
	uint32_t i;

	for (i = 0; i < CC_SHARING_PATHS; i++)
		p->sharing.path[i] = nothing;
	p->bin = bin;
}

/* Bins that may be voted on now. */
CC_INLINE uint32_t cc_pool_due(const struct cc_pool *p, uint64_t now_us)
{
	uint32_t ahead = (uint32_t)(now_us >> (p->sharing.shift & 31)) - p->bin;

	if (!p->sharing.shift)
		return 1;
	return (int32_t)ahead < (int32_t)CC_POOL_LAG ? 0 : ahead - CC_POOL_LAG + 1;
}

/* Votes on the bins that are over, and what follows from them. */
CC_INLINE void cc_pool_turn(struct cc_pool *p, const struct cc_group *routes,
			    const struct cc_pool_member *m, uint32_t n, uint64_t now_us)
{
	uint32_t shift = p->sharing.shift, due, route;

	p->active = n >= CC_POOL_MIN;
	cc_sharing_clock(routes, &p->sharing);
	due = cc_pool_due(p, now_us);
	if (p->sharing.shift != shift || due > CC_SHARING_BINS) {
		cc_pool_restart(p, (uint32_t)(now_us >> (p->sharing.shift & 31)));
		return;
	}
	for (; due; due--) {
		cc_pool_bin(p, m, n);
		if (!(p->bin & (CC_SHARING_BLOCK - 1)))
			cc_pool_block(p, routes);
		for (route = 0; route < CC_SHARING_PATHS; route++)
			cc_pool_decide(p, routes, m, n, route);
	}
}

/*
 * An ACK of a member's path on a route, after its own detector has seen it: joins the trial of this
 * bin.  Of a mixed route the connection decides itself.
 */
CC_INLINE void cc_pool_on_ack(const struct cc_event *ev, const struct cc_group *group,
			      struct cc_pool *p, uint32_t route, struct cc_sharing *own,
			      struct cc_decision *out)
{
	struct cc_pool_route *r = &p->route[route &= CC_SHARING_PATHS - 1];
	const struct cc_history *trial = &p->sharing.path[route];
	struct cc_history *h = &own->path[cc_sharing_own(ev)];
	uint32_t w = cc_window(ev->cwnd_pkt), narrow = w <= CC_SHARING_NARROW_PKT;

	if (p->mixed >> route & 1)
		cc_sharing_close(group, own, cc_sharing_own(ev), out);
	if (!trial->trial || trial->tried != (uint8_t)h->bin || h->tried == trial->tried)
		return;
	h->tried = trial->tried;
	r->members++;
	r->windows_pkt += w;
	/* Of a narrow window an ACK leaves next to nothing in flight. */
	r->flight_pkt += narrow ? w : cc_max(cc_min(ev->in_flight_pkt, w), 1);
	r->moved_pkt += cc_sharing_trial_join(ev, h, own->shift & 31, trial->trial);
}

#endif /* VMCC_DETECT_POOL_H */
