/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the evidence and the trials of a path's pairs say, and the request to close it. */
#ifndef VMCC_DETECT_VERDICT_H
#define VMCC_DETECT_VERDICT_H

#include "detect/trial.h"

/* Comparison of a path with those in lower slots. */
struct cc_verdict {
	uint32_t kept; /* the lowest that shares with it and may be kept; CC_SHARING_PATHS: none */
	uint32_t others;   /* is there any? */
	int32_t suspicion; /* the strongest evidence */
};

CC_NOINLINE void cc_sharing_verdict(const struct cc_group *group, const struct cc_sharing *sharing,
				    uint32_t me, struct cc_verdict *v)
{
	uint64_t strongest = 0, shared = 0, others = 0;
	uint32_t i;

	CC_FOR_COMPARED(i, me)
	{
		uint64_t lives = cc_sharing_usable(&group->path[i]) & cc_less(i, me);
		uint32_t pair = cc_sharing_pair(me, i);
		uint64_t above = (uint64_t)(sharing->evidence[pair] - INT8_MIN) & (0 - lives);
		uint64_t alone = (uint64_t)(sharing->alone[pair] - INT8_MIN);

		others |= lives;
		strongest = cc_max64(strongest, above);
		shared |= (cc_less(CC_SHARING_SHARED - INT8_MIN - 1, above) &
			   cc_less(alone, CC_SHARING_ALONE_MIN - INT8_MIN + 1))
			  << i;
	}
	v->kept = shared ? cc_bitlen(shared & (0 - shared)) - 1 : CC_SHARING_PATHS;
	v->others = (uint32_t)others;
	v->suspicion = (int32_t)strongest + INT8_MIN;
	CC_LEAVE();
}

/* Stores another detector's conclusion about two paths where the verdict is read. */
CC_INLINE void cc_sharing_conclude(struct cc_sharing *sharing, uint32_t a, uint32_t b, int shares)
{
	uint32_t pair = cc_sharing_pair(a, b);

	sharing->evidence[pair] = shares ? CC_SHARING_SHARED : CC_SHARING_APART;
	sharing->alone[pair] = shares ? CC_SHARING_ALONE_MIN : 0;
}

/* Requests that the path be closed if it shares a bottleneck with one in a lower slot. */
CC_SEPARATE int cc_sharing_close(const struct cc_group *group, const struct cc_sharing *sharing,
				 uint32_t me, struct cc_decision *out)
{
	struct cc_verdict v;

	if (!group || !sharing || !out)
		return 0;
	cc_sharing_verdict(group, sharing, me & (CC_SHARING_PATHS - 1), &v);
	if (v.kept < CC_SHARING_PATHS) {
		out->set |= CC_CLOSE_PATH;
		out->peer = v.kept;
	}
	return 0;
}

#endif /* VMCC_DETECT_VERDICT_H */
