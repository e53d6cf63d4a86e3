/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One function of marking.h or bucket.h by number: what the test of the BPF build and that of the
 * native one call. */
#ifndef VMCC_MARKING_STEP_H
#define VMCC_MARKING_STEP_H

#include "bucket.h"
#include "flow_rate.h"
#include "marking_rtt.h"

enum marking_function {
	MARKING_PORT_THRESHOLD = 0,
	MARKING_ROUND_SMOOTH = 1,
	MARKING_ROUND_IDLE = 2,
	MARKING_QUEUE_THRESHOLD = 3,
	MARKING_SHARE = 4,
	MARKING_DRAIN = 5,
	MARKING_ROUND_LEFT = 6,
	MARKING_ELAPSED = 7,
	MARKING_FILL = 8,
	MARKING_REPRICED = 9,
	MARKING_RTT_BUCKET = 10,
	MARKING_RTT_QUANTILE = 11,
	MARKING_FLOW_RECENT = 12,
	MARKING_OVERLOAD = 13,
	MARKING_FLOOD = 14,
};

#define MARKING_TABLE MARK_RTT_BUCKETS
#define MARKING_PAIRS 8

struct marking_step {
	unsigned long long function;
	unsigned long long input[4];
	unsigned long long table[MARKING_TABLE];
	unsigned long long out;
};

/* The table has a quantum and a ceiling of each class that waits. */
static inline unsigned long long marking_round_left(unsigned long long rate,
						    const unsigned long long *table)
{
	struct mark_left left = {rate, 0};
	int i;

	for (i = 0; i < 2 * MARKING_PAIRS; i += 2)
		left.round_ns += mark_min(table[i], MARK_MAX_NS);
	for (i = 0; i < 2 * MARKING_PAIRS; i += 2) {
		if (table[i])
			mark_take_out(&left, table[i], table[i + 1]);
	}
	return mark_round_left(&left, rate);
}

static inline void marking_step(struct marking_step *s)
{
	const unsigned long long *in = s->input;

	switch (s->function) {
	case MARKING_PORT_THRESHOLD:
		s->out = mark_port_threshold(in[0], in[1], (unsigned int)in[2]);
		break;
	case MARKING_ROUND_SMOOTH:
		s->out = mark_round_smooth(in[0], in[1]);
		break;
	case MARKING_ROUND_IDLE:
		s->out = mark_round_idle(in[0], in[1], in[2]);
		break;
	case MARKING_QUEUE_THRESHOLD:
		s->out = mark_queue_threshold(in[0], in[1], in[2]);
		break;
	case MARKING_SHARE:
		s->out = mark_share(in[0], in[1], in[2]);
		break;
	case MARKING_DRAIN:
		s->out = mark_drain(in[0], in[1], (unsigned int)in[2], in[3]);
		break;
	case MARKING_RTT_BUCKET:
		s->out = mark_rtt_bucket(in[0]);
		break;
	case MARKING_RTT_QUANTILE:
		s->out = mark_rtt_quantile(s->table);
		break;
	case MARKING_FLOW_RECENT:
		s->out = flow_recent(in[0], (unsigned int)in[1], (unsigned int)in[2]);
		break;
	case MARKING_OVERLOAD:
		s->out = overload_q32(in[0], in[1], in[2]);
		break;
	case MARKING_FLOOD:
		s->out = flood_q32(in[0], in[1]);
		break;
	case MARKING_ROUND_LEFT:
		s->out = marking_round_left(in[0], s->table);
		break;
	case MARKING_ELAPSED:
		s->out = mark_elapsed(in[0], in[1]);
		break;
	case MARKING_FILL:
		s->out = mark_fill(in[0], in[1], in[2], in[3]);
		break;
	case MARKING_REPRICED:
		s->out = repriced(in[0], in[1], in[2], in[3]);
		break;
	}
}

#endif /* VMCC_MARKING_STEP_H */
