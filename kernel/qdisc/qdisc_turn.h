/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Scheduling: strict priority, or deficit round robin (Shreedhar and Varghese 1995), and MQ-ECN's
 * round time (Bai et al., NSDI 2016).
 *
 * Deviations: queues take turns in fixed order, not in the order in which they woke up.  A packet
 * longer than its quantum (segmentation offload) gets its turns at once instead of one by one; its
 * rounds count as that many.
 */
#ifndef VMCC_QDISC_TURN_H
#define VMCC_QDISC_TURN_H

#define NEVER (~0ull)

/* Shows the time of a round to the marking program, in every class. */
static __always_inline void show_round(struct qdisc_port *port)
{
	struct port_queue *shown;
	u32 class;

	for (class = 0; class < PORT_CLASSES; class ++) {
		shown = public_of(class);
		if (shown)
			shown->round_q8 = port->round_q8;
	}
}

/* A queue's quantum is spent, or it is empty.  A packet that took several rounds gives the mean of
 * them. */
static __always_inline void take_round_sample(struct qdisc_port *port, struct qdisc_queue *queue,
					      u64 now, u64 least_ns)
{
	u64 sample;

	if (!queue->rounds)
		return;
	sample = (now - queue->round_start_ns) / queue->rounds;
	if (sample < least_ns)
		sample = least_ns;
	port->round_q8 = mark_round_smooth(port->round_q8, sample);
	show_round(port);
	queue->round_start_ns = now;
	queue->rounds = 0;
}

/* The port was idle until now. */
static __always_inline void forget_rounds(struct qdisc_port *port, const struct qdisc_config *set,
					  u64 now)
{
	if (!port->round_q8)
		return;
	port->round_q8 = mark_round_idle(port->round_q8, now - port->idle_since_ns,
					 cost_ns(set->mtu_bytes, set->byte_ns_q20));
	show_round(port);
}

struct turn {
	u64 now;
	u64 wake_at;  /* the earliest that a class held back by its ceiling may send */
	u32 open;     /* ceilings do not count any more */
	u32 by_right; /* the class has its turn by its right, not by its place in the order */
};

/* Packets that wait in a queue. */
static __always_inline u32 waiting(const struct qdisc_queue *queue)
{
	return queue->bands[QDISC_BAND_SPARSE].packets + queue->bands[QDISC_BAND_BULK].packets;
}

/* The band whose packet leaves next. */
static __always_inline u32 first_band(const struct qdisc_queue *queue)
{
	return queue->bands[QDISC_BAND_SPARSE].packets ? QDISC_BAND_SPARSE : QDISC_BAND_BULK;
}

/* True if the class may send now: it has a packet, and its ceiling allows that. */
static __always_inline int may_send(struct turn *turn, struct qdisc_queue *queue,
				    const struct qdisc_class *class)
{
	if (!waiting(queue))
		return 0;
	follow_price(&queue->free_at_ns, &queue->paid_q20, turn->now, class->byte_ns_q20);
	if (turn->open || !class->byte_ns_q20 || queue->free_at_ns <= turn->now)
		return 1;
	if (queue->free_at_ns < turn->wake_at)
		turn->wake_at = queue->free_at_ns;
	return 0;
}

/* True if the class is below its guarantee. */
static __always_inline int has_right(struct turn *turn, struct qdisc_queue *queue,
				     const struct qdisc_class *class)
{
	if (!class->right_ns_q20 || turn->open)
		return 0;
	follow_price(&queue->right_free_at_ns, &queue->right_paid_q20, turn->now,
		     class->right_ns_q20);
	return queue->right_free_at_ns <= turn->now;
}

/* The first class that has a right to send, else the first that may; PORT_CLASSES if none. */
static __always_inline u32 by_priority(struct turn *turn, struct qdisc_config *set)
{
	struct qdisc_queue *queue;
	u32 class, first = PORT_CLASSES;

	for (class = 0; class < PORT_CLASSES; class ++) {
		queue = queue_of(class);
		if (!queue || !may_send(turn, queue, &set->queue[class]))
			continue;
		if (has_right(turn, queue, &set->queue[class])) {
			turn->by_right = 1;
			return class;
		}
		if (first == PORT_CLASSES)
			first = class;
	}
	return first;
}

static __always_inline u32 quantum_of(const struct qdisc_class *class)
{
	return class->quantum_bytes ? class->quantum_bytes : 1;
}

/* Turns that the class must get before its first packet fits the deficit. */
static __always_inline u64 turns_needed(const struct qdisc_queue *queue, u32 quantum)
{
	u64 missing;

	if (queue->deficit_bytes >= (long long)queue->head_bytes)
		return 1;
	missing = queue->head_bytes - queue->deficit_bytes;
	return (missing + quantum - 1) / quantum;
}

/* Gives every class that waits the quanta of the turns that pass until `winner` has had `turns`. */
static __always_inline void pass_turns(struct turn *turn, struct qdisc_config *set, u32 from,
				       u32 winner_step, u64 turns)
{
	struct qdisc_queue *queue;
	u32 step, class;
	u64 passed;

	for (step = 1; step <= PORT_CLASSES; step++) {
		class = (from + step) & CLASS_MASK;
		queue = queue_of(class);
		if (!queue || !may_send(turn, queue, &set->queue[class]))
			continue;
		passed = step <= winner_step ? turns : turns - 1;
		queue->deficit_bytes += passed * quantum_of(&set->queue[class]);
		queue->rounds += passed;
	}
}

/* Deficit round robin: the current class while its deficit lasts, then the one whose turn comes
 * first with a deficit for its first packet.  PORT_CLASSES if nothing may leave. */
static __always_inline u32 by_round(struct turn *turn, struct qdisc_config *set,
				    struct qdisc_port *port)
{
	u32 from = port->current & CLASS_MASK, step, class, winner_step = 0;
	u64 turns, least = NEVER;
	struct qdisc_queue *queue = queue_of(from);

	if (!queue)
		return PORT_CLASSES;
	if (may_send(turn, queue, &set->queue[from])) {
		if (queue->deficit_bytes >= (long long)queue->head_bytes)
			return from;
		take_round_sample(port, queue, turn->now, 0);
	}
	for (step = 1; step <= PORT_CLASSES; step++) {
		class = (from + step) & CLASS_MASK;
		queue = queue_of(class);
		if (!queue || !may_send(turn, queue, &set->queue[class]))
			continue;
		turns = turns_needed(queue, quantum_of(&set->queue[class]));
		if (turns < least) {
			least = turns;
			winner_step = step;
		}
	}
	if (least == NEVER)
		return PORT_CLASSES;
	pass_turns(turn, set, from, winner_step, least);
	port->current = (from + winner_step) & CLASS_MASK;
	return port->current;
}

#endif /* VMCC_QDISC_TURN_H */
