/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Priority for sparse flows (RFC 8290 section 4.1).
 *
 * Busy flows hold a standing queue: TCP's window is at least two packets.  So a class has two
 * bands, and the one of sparse flows is served first.  A packet joins it if
 *
 * - its flow has sent less of late than half of a flow's mean, and than half of a sixteenth of the
 *   class's rate;
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
/* What other CPUs may put into the bulk between this program's look at it and the packet's place
 * there: a train of packets. */
#define SPARSE_MARGIN_BLOCKS 1024u

/* True if a flow sends little compared with the others; `share` blocks are a sixteenth of the rate.
 */
static __always_inline int is_sparse(const struct class_flows *c, u64 recent, u64 share)
{
	u64 bound = mark_min(c->mean ?: ~0ull, c->all_mean ?: ~0ull);

	return recent < mark_min(bound, share) / SPARSE_PART;
}

/* True if one of the flow's packets may be among the `queued` blocks of the bulk, of which `left`
 * is the first.  Other ends are of the past, and zero of none. */
static __always_inline int waits_in_bulk(const struct flow *f, u32 left, u64 queued)
{
	u32 ahead = f->bulk_end + SPARSE_MARGIN_BLOCKS - left;

	return f->bulk_end && ahead <= queued + 2 * SPARSE_MARGIN_BLOCKS;
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

/* Chooses the band of a packet that is not dropped, and keeps the place of one in the bulk. */
static __always_inline void choose_band(const struct port_config *cfg, struct class_flows *c,
					struct flow *first, struct flow *second, u64 recent,
					u64 now, u64 bytes, struct lengths *queue)
{
	u64 left = bytes_left(queue), rate;
	u32 at = left >> FLOW_BLOCK_SHIFT;

	if (queue->own > cfg->floor_bytes && is_sparse(c, recent, min_part(cfg->rate)) &&
	    (!waits_in_bulk(first, at, flow_blocks(queue->own)) ||
	     !waits_in_bulk(second, at, flow_blocks(queue->own)))) {
		rate = queue->rate ?: class_rate(cfg, queue->class, queue->busy);
		if (is_sparse(c, recent, min_part(rate)) &&
		    take_band(c, now, rate, bytes, cfg->floor_bytes)) {
			__sync_fetch_and_add(&c->sparse_bytes, bytes);
			queue->sparse = 1;
			return;
		}
	}
	first->bulk_end = second->bulk_end = flow_blocks(left + queue->own + bytes);
}

#endif /* VMCC_PORT_SPARSE_H */
