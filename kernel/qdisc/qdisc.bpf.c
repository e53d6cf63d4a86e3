/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Queueing discipline of a virtual switch's port: up to eight service queues, deficit round robin
 * or strict priority, tail drop per queue, a token bucket for the port and one per queue (ceiling).
 *
 * A qdisc in BPF cannot set CE.  The tc program at the port's egress hook (port.bpf.c) classifies
 * by skb->priority, reads from the map `port_queues` what is published here, and marks before the
 * packet is queued.
 *
 * Every callback runs under the port's root lock, so nothing here needs one.
 */
#include "kernel_types.h"
#include "port_shared.h"
#include "qdisc_shared.h"
#include "marking.h"
#include "qdisc_kernel.h"
#include "qdisc_maps.h"
#include "qdisc_bucket.h"
#include "qdisc_turn.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* --- enqueue --------------------------------------------------------------------------------- */

/* The class that the marking program chose; what it did not see goes to the last. */
static __always_inline u32 class_of(u32 priority, u32 classes)
{
	u32 minor = priority & 0xffff;

	if (priority >> 16 != QDISC_MAJOR || minor == 0 || minor > classes)
		minor = classes;
	return (minor - 1) & CLASS_MASK;
}

static __always_inline int is_full(const struct qdisc_queue *queue, const struct qdisc_class *class,
				   u32 bytes)
{
	if (queue->backlog_packets >= QDISC_SLOTS || queue->backlog_packets >= class->limit_packets)
		return 1;
	return class->limit_bytes && queue->backlog_bytes + bytes > class->limit_bytes;
}

static __always_inline void wake(struct qdisc_queue *queue, u32 bytes, u64 now)
{
	queue->head_bytes = bytes;
	queue->deficit_bytes = 0;
	queue->round_start_ns = now;
	queue->rounds = 0;
}

static __always_inline void show_backlog(struct port_queue *shown, const struct qdisc_queue *queue)
{
	shown->backlog_bytes = queue->backlog_bytes;
	shown->backlog_packets = queue->backlog_packets;
}

SEC("struct_ops/vmcc_enqueue")
int BPF_PROG(vmcc_enqueue, struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free)
{
	u32 bytes = ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
	u64 now = bpf_ktime_get_ns();
	struct qdisc_config *set = config();
	struct qdisc_port *port = port_state();
	struct qdisc_queue *queue;
	struct port_queue *shown;
	struct slot *slot;
	u32 class;

	if (!set || !port)
		goto drop;
	class = class_of(skb->priority, set->classes);
	queue = queue_of(class);
	shown = public_of(class);
	if (!queue || !shown)
		goto drop;
	slot = slot_of(class, queue->head + queue->backlog_packets);
	if (!slot || is_full(queue, &set->queue[class], bytes)) {
		shown->drops_full++;
		goto drop;
	}
	skb = bpf_kptr_xchg(&slot->skb, skb);
	if (skb) /* the slot was taken: cannot be, but the verifier wants an answer */
		bpf_kfree_skb(skb);
	slot->queued_ns = now;
	slot->bytes = bytes;
	if (!sch->q.qlen)
		forget_rounds(port, set, now);
	if (!queue->backlog_packets)
		wake(queue, bytes, now);
	queue->backlog_packets++;
	queue->backlog_bytes += bytes;
	show_backlog(shown, queue);
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
	return NET_XMIT_SUCCESS;

drop:
	sch->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

/* --- dequeue --------------------------------------------------------------------------------- */

/* Books a packet of `bytes` that leaves the class's queue. */
static __always_inline void leave(struct qdisc_config *set, struct qdisc_port *port,
				  struct qdisc_queue *queue, const struct qdisc_class *class,
				  u64 bytes, const struct turn *turn)
{
	u64 now = turn->now;

	queue->backlog_packets--;
	queue->backlog_bytes -= bytes;
	queue->deficit_bytes -= bytes;
	if (class->byte_ns_q20)
		queue->free_at_ns =
			paid_at(queue->free_at_ns, now, set->burst_ns, bytes, class->byte_ns_q20);
	if (turn->by_right)
		queue->right_free_at_ns = paid_at(queue->right_free_at_ns, now, set->burst_ns,
						  bytes, class->right_ns_q20);
	if (set->byte_ns_q20)
		port->free_at_ns =
			paid_at(port->free_at_ns, now, set->burst_ns, bytes, set->byte_ns_q20);
}

/* Makes the next packet the queue's head; an emptied queue ends its round. */
static __always_inline void advance(struct qdisc_config *set, struct qdisc_port *port,
				    struct qdisc_queue *queue, u32 class, u64 bytes, u64 now)
{
	struct slot *next;

	queue->head = (queue->head + 1) & SLOT_MASK;
	if (!queue->backlog_packets) {
		take_round_sample(port, queue, now, cost_ns(bytes, set->byte_ns_q20));
		queue->deficit_bytes = 0;
		return;
	}
	next = slot_of(class, queue->head);
	if (next)
		queue->head_bytes = next->bytes;
}

/* Until then, or until the rates may have changed. */
static __always_inline void sleep(struct Qdisc *sch, u64 now, u64 until)
{
	bpf_qdisc_watchdog_schedule(sch, mark_min(until, now + QDISC_SLEEP_NS), 0);
}

SEC("struct_ops/vmcc_dequeue")
struct sk_buff *BPF_PROG(vmcc_dequeue, struct Qdisc *sch)
{
	struct turn turn = {.now = bpf_ktime_get_ns(), .wake_at = NEVER};
	struct qdisc_config *set = config();
	struct qdisc_port *port = port_state();
	struct qdisc_queue *queue;
	struct port_queue *shown;
	struct sk_buff *skb;
	struct slot *slot;
	u64 until, bytes;
	u32 class;

	if (!set || !port || !sch->q.qlen)
		return NULL;
	turn.open = set->open;
	until = held_until(set, port, turn.now);
	if (until) {
		sleep(sch, turn.now, until);
		return NULL;
	}
	class = set->strict ? by_priority(&turn, set) : by_round(&turn, set, port);
	if (class >= PORT_CLASSES) {
		if (turn.wake_at != NEVER)
			sleep(sch, turn.now, turn.wake_at);
		return NULL;
	}
	queue = queue_of(class);
	shown = public_of(class);
	if (!queue || !shown)
		return NULL;
	slot = slot_of(class, queue->head);
	if (!slot)
		return NULL;
	skb = bpf_kptr_xchg(&slot->skb, NULL);
	if (!skb)
		return NULL;
	bytes = slot->bytes;
	shown->sojourn_ns = turn.now - slot->queued_ns;
	shown->sent_packets++;
	shown->sent_bytes += bytes;
	leave(set, port, queue, &set->queue[class & CLASS_MASK], bytes, &turn);
	advance(set, port, queue, class, bytes, turn.now);
	show_backlog(shown, queue);
	sch->q.qlen--;
	sch->qstats.backlog -= bytes;
	if (!sch->q.qlen)
		port->idle_since_ns = turn.now;
	bpf_qdisc_bstats_update(sch, skb);
	return skb;
}

/* --- beginning and end ----------------------------------------------------------------------- */

/* One qdisc at a time runs on these maps: as the root of a port, not as the children of `mq`. */
SEC("struct_ops/vmcc_init")
int BPF_PROG(vmcc_init, struct Qdisc *sch, struct nlattr *arg, struct netlink_ext_ack *extack)
{
	struct qdisc_port *port = port_state();

	if (!port || __sync_val_compare_and_swap(&port->in_use, 0, 1))
		return -EBUSY;
	return 0;
}

static __always_inline void empty(u32 class)
{
	struct qdisc_queue *queue = queue_of(class);
	struct port_queue *shown = public_of(class);
	struct sk_buff *skb;
	struct slot *slot;
	int i;

	if (!queue || !shown)
		return;
	bpf_for(i, 0, QDISC_SLOTS)
	{
		if (!queue->backlog_packets)
			break;
		slot = slot_of(class, queue->head);
		if (!slot)
			break;
		skb = bpf_kptr_xchg(&slot->skb, NULL);
		if (skb)
			bpf_kfree_skb(skb);
		queue->head = (queue->head + 1) & SLOT_MASK;
		queue->backlog_packets--;
		shown->drops_other++;
	}
	queue->backlog_bytes = 0;
	queue->deficit_bytes = 0;
	show_backlog(shown, queue);
}

/* The port went down, or the qdisc goes away. */
SEC("struct_ops/vmcc_reset")
void BPF_PROG(vmcc_reset, struct Qdisc *sch)
{
	int class;

	bpf_for(class, 0, PORT_CLASSES) empty(class);
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

SEC("struct_ops/vmcc_destroy")
void BPF_PROG(vmcc_destroy, struct Qdisc *sch)
{
	struct qdisc_port *port = port_state();

	if (port)
		port->in_use = 0;
}

SEC(".struct_ops.link")
struct Qdisc_ops vmcc_qdisc = {
	.enqueue = (void *)vmcc_enqueue,
	.dequeue = (void *)vmcc_dequeue,
	.init = (void *)vmcc_init,
	.reset = (void *)vmcc_reset,
	.destroy = (void *)vmcc_destroy,
	.id = "vmcc",
};
