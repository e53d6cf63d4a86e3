/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pool of connections as the host's compiler builds it: crates/cc/cc/src/pool.rs. */
#include "detect/pool.h"

uint16_t vmcc_pool_vote(const uint16_t *vote, uint32_t n);
uint32_t vmcc_pool_due(const struct cc_pool *p, uint64_t now_us);
void vmcc_pool_turn(struct cc_pool *p, const struct cc_group *routes,
		    const struct cc_pool_member *m, uint32_t n, uint64_t now_us);
void vmcc_pool_on_ack(const struct cc_event *ev, const struct cc_group *group, struct cc_pool *p,
		      uint32_t route, struct cc_sharing *own, struct cc_decision *out);

uint16_t vmcc_pool_vote(const uint16_t *vote, uint32_t n)
{
	return cc_pool_vote(vote, n);
}

uint32_t vmcc_pool_due(const struct cc_pool *p, uint64_t now_us)
{
	return cc_pool_due(p, now_us);
}

void vmcc_pool_turn(struct cc_pool *p, const struct cc_group *routes,
		    const struct cc_pool_member *m, uint32_t n, uint64_t now_us)
{
	cc_pool_turn(p, routes, m, n, now_us);
}

void vmcc_pool_on_ack(const struct cc_event *ev, const struct cc_group *group, struct cc_pool *p,
		      uint32_t route, struct cc_sharing *own, struct cc_decision *out)
{
	cc_pool_on_ack(ev, group, p, route, own, out);
}
