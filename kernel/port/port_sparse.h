/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Priority for sparse flows (RFC 8290 section 4.1).
 *
 * Busy flows hold a standing queue: TCP's window is at least two packets.  So a class has two
 * bands, and the one of sparse flows is served first.  A packet joins it if
 *
 * - its flow has sent less of late than half of a sixteenth of the class's rate and, where the
 *   class is busy, than half of a flow's mean;
 * - all packets of its flow have left the other band: none of them is overtaken;
 * - the band stays within an eighth of the class's rate, with a burst of 2 ms of that rate.
 *
 * The last rule bounds a flood of flows that are all sparse, and how long a sparse flow's packet
 * waits for others.  What exceeds it waits with the bulk, as without priority.
 */
#ifndef VMCC_PORT_SPARSE_H
#define VMCC_PORT_SPARSE_H

#define SPARSE_PART	 2 /* part of the mean below which a flow is sparse */
#define SPARSE_RATE_PART 8 /* part of the rate that the band may use */
#define SPARSE_BURST_NS	 16000000ull
#define SPARSE_FRAMES	 2 /* in a burst, at least */
/* A train of packets: other CPUs may put it into the bulk between this program's look at it and
 * the packet's place there. */
#define SPARSE_MARGIN_BYTES 65536u

/* True if a flow sends little compared with the others; `share` blocks are a sixteenth of the rate.
 * A window with less than half of the rate tells nothing of the flows that hold a queue now. */
static __always_inline int is_sparse(const struct class_flows *c, u64 recent, u64 share)
{
	if (c->all_before >= FLOW_MIN_PART / 2 * share)
		share = mark_min(share, mark_min(c->mean ?: share, c->all_mean));
	return recent < share / SPARSE_PART;
}

/* True if one of the flow's packets may be among the `queued` bytes of the bulk behind the `left`
 * ones.  Any other end is of the past: 32 bits of it are kept. */
static __always_inline int waits_in_bulk(const struct flow *f, u32 left, u64 queued)
{
	u32 ahead = f->bulk_end - left;

	return ahead && ahead <= queued + 2 * SPARSE_MARGIN_BYTES;
}

/* Takes a packet's part of the band's rate; false if that is used up. */
static __always_inline int take_band(struct class_flows *c, u64 now, u64 rate, u64 bytes,
				     u64 frame_bytes)
{
	u64 part = rate / SPARSE_RATE_PART, was = c->sparse_free_at, at;
	u64 burst = mark_ns(part, SPARSE_FRAMES * frame_bytes);

	at = mark_elapsed(now, burst > SPARSE_BURST_NS ? burst : SPARSE_BURST_NS);
	at = (was > at ? was : at) + mark_ns(part, bytes);
	return at <= now && __sync_val_compare_and_swap(&c->sparse_free_at, was, at) == was;
}

/* Chooses the band of a packet that is not dropped, and keeps its flow's place in the bulk: at
 * first with a margin.  Fragments have none of the priority: later ones do not name their flow, and
 * the margin of the first one covers them.  Of a flow that may be sparse soon the filter at the
 * root queue knows the place itself (band.bpf.c), so that its next packet may pass as soon as this
 * one has left. */
static __always_inline void choose_band(struct __sk_buff *skb, const struct port_config *cfg,
					const struct packet *p, struct class_flows *c,
					const struct arrival *a, struct flow *first,
					struct flow *second, u64 recent, u64 now,
					struct lengths *queue)
{
	u64 left = bytes_left(queue), rate;

	if (queue->own > cfg->floor_bytes && p->part == PART_WHOLE &&
	    is_sparse(c, recent, min_part(cfg->rate))) {
		rate = queue->rate ?: class_rate(cfg, queue->class, queue->busy);
		queue->band = is_sparse(c, recent, min_part(rate)) ? BAND_PLACED : BAND_BULK;
		if (queue->band == BAND_PLACED &&
		    (!waits_in_bulk(first, left, queue->own) ||
		     !waits_in_bulk(second, left, queue->own)) &&
		    take_band(c, now, rate, skb->wire_len, cfg->floor_bytes)) {
			__sync_fetch_and_add(&c->sparse_bytes, skb->wire_len);
			queue->band = BAND_SPARSE;
			return;
		}
	}
	first->bulk_end = left + queue->own + skb->wire_len + SPARSE_MARGIN_BYTES;
	second->bulk_end = first->bulk_end;
	if (queue->band != BAND_PLACED)
		return;
	skb->cb[NOTE_KEYS] = flow_key(a, 1) << NOTE_KEY_SHIFT | flow_key(a, 0);
	skb->cb[NOTE_QUEUE_HIGH] = queue->address >> 32;
	skb->cb[NOTE_QUEUE_LOW] = queue->address;
}

#endif /* VMCC_PORT_SPARSE_H */
