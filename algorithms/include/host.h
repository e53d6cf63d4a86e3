/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The simplest host that keeps the contract of cc.h: reductions take effect at once, everything
 * else is given by the caller.  Vectors, fuzzing, differential tests and the comparison of the
 * native with the BPF build all run algorithms through it, so that the order of hooks and the
 * once-per-window gate are one piece of C.
 *
 * Include it after an algorithm's source and write CC_DEFINE_STEP(<name>); natively,
 * CC_HOST_OPS(<name>) does that and exports a table of all hooks.
 *
 * One step is one acknowledgment, loss episode or timeout:
 *   1. on_ack
 *   2. a reduction ends when everything sent before it is acknowledged (RFC 3168 section 6.1.2,
 *      RFC 6582 section 3.2): state open
 *   3. a timeout, or the first ECE or loss of a window, reduces
 *   4. otherwise the window grows, unless ECE is set, the path is reducing, or is
 * application-limited
 */
#ifndef VMCC_HOST_H
#define VMCC_HOST_H

#include "common.h"

/* One path as the driver sees it.  `reducing` is nonzero until snd_una reaches `cut_end`. */
struct cc_host {
	struct cc_path path;
	struct cc_decision decision; /* of the last step, all hooks together */
	uint32_t cwnd_pkt;
	uint32_t ssthresh_pkt;
	uint32_t state; /* enum cc_state */
	uint32_t reducing;
	uint32_t cut_end; /* snd_nxt at the last reduction */
};

_Static_assert(sizeof(struct cc_host) == 120, "cc_host is shared with Rust and BPF");

/* Takes over what a hook decided. */
CC_INLINE void cc_host_apply(struct cc_host *h, const struct cc_decision *d, int reduction)
{
	if (d->set & CC_SET_SSTHRESH) {
		h->ssthresh_pkt = d->ssthresh_pkt;
		h->decision.ssthresh_pkt = d->ssthresh_pkt;
		if (reduction)
			h->cwnd_pkt = d->ssthresh_pkt;
	}
	if (d->set & CC_SET_CWND) {
		h->cwnd_pkt = d->cwnd_pkt;
		h->decision.cwnd_pkt = d->cwnd_pkt;
	}
	if (d->set & CC_CLOSE_PATH)
		h->decision.peer = d->peer;
	if (d->set & CC_SET_GAP)
		h->decision.gap_us = d->gap_us;
	h->decision.set |= d->set;
}

CC_INLINE void cc_host_event(struct cc_event *e, const struct cc_host *h, uint32_t cause)
{
	e->cwnd_pkt = h->cwnd_pkt;
	e->ssthresh_pkt = h->ssthresh_pkt;
	e->state = h->state;
	e->cause = cause;
}

/* Cause of the reduction that follows on_ack in a step, or none. */
CC_INLINE uint32_t cc_host_cause(const struct cc_event *ev, const struct cc_host *h)
{
	if (ev->cause == CC_CAUSE_RTO)
		return CC_CAUSE_RTO;
	if (h->reducing)
		return CC_CAUSE_NONE;
	if (ev->cause == CC_CAUSE_LOSS)
		return CC_CAUSE_LOSS;
	return ev->flags & CC_EV_ECE ? CC_CAUSE_ECE : CC_CAUSE_NONE;
}

CC_INLINE int cc_host_may_grow(const struct cc_event *ev, const struct cc_host *h)
{
	if ((ev->flags & CC_EV_ECE) || !(ev->flags & CC_EV_CWND_LIMITED) || !ev->acked_pkt)
		return 0;
	return h->state != CC_STATE_CWR && h->state != CC_STATE_RECOVERY;
}

CC_INLINE uint32_t cc_host_state(uint32_t cause)
{
	if (cause == CC_CAUSE_RTO)
		return CC_STATE_LOSS;
	return cause == CC_CAUSE_LOSS ? CC_STATE_RECOVERY : CC_STATE_CWR;
}

/* Publishes a path for its siblings. */
CC_INLINE void cc_host_publish(const struct cc_host *h, uint32_t srtt_8us, struct cc_slot *slot)
{
	slot->flags = CC_SLOT_ESTABLISHED;
	if (h->state == CC_STATE_CWR || h->state == CC_STATE_RECOVERY)
		slot->flags |= CC_SLOT_RECOVERY;
	if (h->state == CC_STATE_LOSS)
		slot->flags |= CC_SLOT_LOSS;
	if (h->cwnd_pkt < h->ssthresh_pkt)
		slot->flags |= CC_SLOT_SLOW_START;
	slot->cwnd_pkt = h->cwnd_pkt;
	slot->ssthresh_pkt = h->ssthresh_pkt;
	slot->srtt_8us = srtt_8us;
	slot->pub[0] = h->path.pub[0];
	slot->pub[1] = h->path.pub[1];
}

#define CC_HOST_CALL(id, hook, cause, reduction)                                                   \
	do {                                                                                       \
		d = (struct cc_decision){0};                                                       \
		cc_host_event(&e, h, cause);                                                       \
		id##_##hook(&e, &h->path, group, params, &d);                                      \
		cc_host_apply(h, &d, reduction);                                                   \
	} while (0)

/* <id>_begin: a path is established with the windows in *h.  <id>_step: see above. */
#define CC_DEFINE_STEP(id)                                                                         \
	CC_NOINLINE void id##_begin(const struct cc_event *ev, struct cc_host *h,                  \
				    const struct cc_group *group, const struct cc_params *params)  \
	{                                                                                          \
		struct cc_event e = *ev;                                                           \
		struct cc_decision d;                                                              \
                                                                                                   \
		h->state = CC_STATE_OPEN;                                                          \
		h->reducing = 0;                                                                   \
		h->decision = (struct cc_decision){0};                                             \
		CC_HOST_CALL(id, init, CC_CAUSE_NONE, 0);                                          \
		CC_LEAVE();                                                                        \
	}                                                                                          \
                                                                                                   \
	CC_NOINLINE void id##_step(const struct cc_event *ev, struct cc_host *h,                   \
				   const struct cc_group *group, const struct cc_params *params)   \
	{                                                                                          \
		struct cc_event e = *ev;                                                           \
		struct cc_decision d;                                                              \
		uint32_t cause;                                                                    \
                                                                                                   \
		h->decision = (struct cc_decision){0};                                             \
		CC_HOST_CALL(id, on_ack, CC_CAUSE_NONE, 0);                                        \
		if (h->reducing && !cc_seq_before(ev->snd_una, h->cut_end)) {                      \
			h->reducing = 0;                                                           \
			h->state = CC_STATE_OPEN;                                                  \
			CC_HOST_CALL(id, on_state, CC_CAUSE_NONE, 0);                              \
		}                                                                                  \
		cause = cc_host_cause(ev, h);                                                      \
		if (cause == CC_CAUSE_RTO && h->state == CC_STATE_LOSS) {                          \
			h->cwnd_pkt = 1; /* RFC 5681 section 3.1: ssthresh is kept */              \
		} else if (cause != CC_CAUSE_NONE) {                                               \
			CC_HOST_CALL(id, on_congestion, cause, 1);                                 \
			h->reducing = 1;                                                           \
			h->cut_end = ev->snd_nxt;                                                  \
			h->state = cc_host_state(cause);                                           \
			CC_HOST_CALL(id, on_state, cause, 0);                                      \
		} else if (cc_host_may_grow(ev, h)) {                                              \
			CC_HOST_CALL(id, on_grow, CC_CAUSE_NONE, 0);                               \
		}                                                                                  \
		CC_LEAVE();                                                                        \
	}                                                                                          \
	_Static_assert(1, "")

#ifndef __bpf__
/* Of an algorithm that detects; its file is included with CC_DETECTS defined as 1. */
#if CC_DETECTS
#define CC_HOST_DETECT(id) id##_detect
#else
#define CC_HOST_DETECT(id) 0
#endif

struct cc_host_ops {
	void (*init)(CC_HOOK_ARGS);
	void (*on_ack)(CC_HOOK_ARGS);
	void (*on_congestion)(CC_HOOK_ARGS);
	void (*on_grow)(CC_HOOK_ARGS);
	void (*on_state)(CC_HOOK_ARGS);
	void (*begin)(const struct cc_event *ev, struct cc_host *h, const struct cc_group *group,
		      const struct cc_params *params);
	void (*step)(const struct cc_event *ev, struct cc_host *h, const struct cc_group *group,
		     const struct cc_params *params);
	void (*detect)(CC_DETECT_ARGS); /* NULL: does not */
};

#define CC_HOST_OPS(id)                                                                            \
	CC_DEFINE_STEP(id);                                                                        \
	extern const struct cc_host_ops cc_host_ops_##id;                                          \
	const struct cc_host_ops cc_host_ops_##id = {                                              \
		.init = id##_init,                                                                 \
		.on_ack = id##_on_ack,                                                             \
		.on_congestion = id##_on_congestion,                                               \
		.on_grow = id##_on_grow,                                                           \
		.on_state = id##_on_state,                                                         \
		.begin = id##_begin,                                                               \
		.step = id##_step,                                                                 \
		.detect = CC_HOST_DETECT(id),                                                      \
	}
#endif

#endif /* VMCC_HOST_H */
