/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Queueing discipline of a virtual switch's port: up to eight service queues, deficit round robin
 * or strict priority, tail drop per queue, a token bucket for the port and one per queue (ceiling).
 * A queue has two bands; the one of sparse flows is served first.
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
#include "port_flow_map.h"
#include "qdisc_kernel.h"
#include "qdisc_maps.h"
#include "qdisc_bucket.h"
#include "qdisc_turn.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* --- enqueue --------------------------------------------------------------------------------- */

/* The marking program's choice for a packet. */
struct choice {
	u32 class;
	u32 band;
	u32 placed;
};

/* Packets that it has not seen go to the last class. */
static __always_inline struct choice choice_of(u32 priority, u32 classes)
{
	u32 minor = priority & 0xffff, which = minor & ~(QDISC_SPARSE - 1);
	u32 class = (minor & (QDISC_SPARSE - 1)) - 1;

	if (priority >> 16 != QDISC_MAJOR || class >= classes)
		return (struct choice){.class = (classes - 1) & CLASS_MASK,
				       .band = QDISC_BAND_BULK};
	return (struct choice){
		.class = class & CLASS_MASK,
		.band = which == QDISC_SPARSE ? QDISC_BAND_SPARSE : QDISC_BAND_BULK,
		.placed = which == QDISC_PLACED,
	};
}

/* Each band has the class's limit. */
static __always_inline int is_full(const struct qdisc_band *band, const struct qdisc_class *class,
				   u32 bytes)
{
	if (band->packets >= QDISC_SLOTS || band->packets >= class->limit_packets)
		return 1;
	return class->limit_bytes && band->bytes + bytes > class->limit_bytes;
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
	shown->backlog_bytes = queue->bands[QDISC_BAND_BULK].bytes;
	shown->backlog_packets = queue->bands[QDISC_BAND_BULK].packets;
	shown->sparse_bytes = queue->bands[QDISC_BAND_SPARSE].bytes;
	shown->sparse_packets = queue->bands[QDISC_BAND_SPARSE].packets;
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
	struct qdisc_band *band;
	struct choice to;
	struct slot *slot;
	u32 keys = *(u32 *)((struct qdisc_skb_cb *)skb->cb)->data;

	if (!set || !port)
		goto drop;
	to = choice_of(skb->priority, set->classes);
	queue = queue_of(to.class);
	shown = public_of(to.class);
	if (!queue || !shown)
		goto drop;
	band = &queue->bands[to.band & BAND_MASK];
	slot = slot_of(to.class, to.band, band->head + band->packets);
	if (!slot || is_full(band, &set->queue[to.class & CLASS_MASK], bytes)) {
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
	if (!waiting(queue))
		wake(queue, bytes, now);
	else if (to.band == QDISC_BAND_SPARSE && !band->packets)
		queue->head_bytes = bytes;
	band->packets++;
	band->bytes += bytes;
	if (to.placed)
		flow_keep_end(keys, shown->sent_bytes + band->bytes);
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

/* Takes the first packet, of `bytes`, out of a band. */
static __always_inline void take(struct qdisc_band *band, u64 bytes)
{
	band->head = (band->head + 1) & SLOT_MASK;
	band->packets--;
	band->bytes -= bytes;
}

/* Books a packet of `bytes` that leaves the class's queue. */
static __always_inline void leave(struct qdisc_config *set, struct qdisc_port *port,
				  struct qdisc_queue *queue, const struct qdisc_class *class,
				  u64 bytes, const struct turn *turn)
{
	u64 now = turn->now;

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
	u32 band;

	if (!waiting(queue)) {
		take_round_sample(port, queue, now, cost_ns(bytes, set->byte_ns_q20));
		queue->deficit_bytes = 0;
		return;
	}
	band = first_band(queue);
	next = slot_of(class, band, queue->bands[band & BAND_MASK].head);
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
	struct qdisc_band *band;
	struct sk_buff *skb;
	struct slot *slot;
	u64 until, bytes;
	u32 class, which;

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
	which = first_band(queue);
	band = &queue->bands[which & BAND_MASK];
	slot = slot_of(class, which, band->head);
	if (!slot)
		return NULL;
	skb = bpf_kptr_xchg(&slot->skb, NULL);
	if (!skb)
		return NULL;
	bytes = slot->bytes;
	shown->sojourn_ns = turn.now - slot->queued_ns;
	if (which == QDISC_BAND_BULK) {
		shown->sent_packets++;
		shown->sent_bytes += bytes;
	}
	take(band, bytes);
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
	struct qdisc_band *band;
	struct sk_buff *skb;
	struct slot *slot;
	u32 which;
	int i;

	if (!queue || !shown)
		return;
	bpf_for(i, 0, QDISC_BANDS * QDISC_SLOTS)
	{
		if (!waiting(queue))
			break;
		which = first_band(queue);
		band = &queue->bands[which & BAND_MASK];
		slot = slot_of(class, which, band->head);
		if (!slot)
			break;
		skb = bpf_kptr_xchg(&slot->skb, NULL);
		if (skb)
			bpf_kfree_skb(skb);
		take(band, slot->bytes);
		shown->drops_other++;
	}
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
