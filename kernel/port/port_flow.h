/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flows without ECN beside flows with it (approximate fair dropping, Pan et al., CCR 2003).
 *
 * A sender with ECN answers a mark once per round trip and stops at a window of two packets, so N
 * of them may hold a queue above any threshold for ever.  To drop every packet that cannot be
 * marked there would end all other flows.  Three rules give both kinds the same response instead:
 *
 * - a flow loses at most one packet per round trip, as one mark per round trip counts;
 * - it loses at most one packet in FLOW_SPACING_TCP or in FLOW_TRIPS_TCP round trips, so that
 *   windows as small as the floor of the ECN flows survive; without TCP, where the sender may not
 *   repeat what is lost, one packet in FLOW_SPACING;
 * - it loses none below four times the usual bound while it has sent less of late than the mean
 *   ECN flow, and one that has sent more loses packets from the threshold on;
 * - it loses none at all below a quarter of that mean, or of a sixteenth of the rate where ECN
 *   traffic is sparse: a request or a retransmission that is lost waits for a timeout.
 *
 * Flows without TCP, and TCP without payload, that together offer more than the class sends, for
 * seconds, do not respond.  Each of them is a flood while it sends more than a fair share, with ECN
 * or without: above half of the threshold it loses the excess, so that others keep their share.  A
 * fair share is halved, again and again, while they still have more than half of what the class
 * sends, so a flood of many flows takes no more than one of a few.  Frames that are not IP lose
 * packets by that rule only: neighbour discovery and spanning trees do without ECN.
 *
 * Every packet counts for the rate of its flow, also those that meet a short queue: a flow whose
 * packets come one by one meets its own queue less often than one that sends them in bursts.
 * Rates are kept per class in a count-min sketch: a flood of flows reaches no other class.
 */
#ifndef VMCC_PORT_FLOW_H
#define VMCC_PORT_FLOW_H

#include "flow_rate.h"
#include "port_flow_map.h"

#define FLOW_SPACING_TCP 8
#define FLOW_TRIPS_TCP	 3 /* round trips after which the spacing is over for TCP */
#define FLOW_SPACING	 128
#define FLOW_BOUND	 4 /* times the usual one, below the mean */
#define FLOW_SPARSE	 4 /* part of the mean below which a flow loses nothing */
/* ECN traffic below both is sparse: no mean is taken of it. */
#define FLOW_MIN_FRAMES 64
#define FLOW_MIN_PART	16
#define FLOW_TICK_SHIFT 16
/* Windows without a packet after which a flow is a new one. */
#define FLOW_MAX_IDLE 16
/* Interval at which the rate in use is checked. */
#define FLOW_CHECK_NS  134217728ull
#define FLOW_MAX_REST  31
#define FLOW_USE_SHIFT 20
/* Excess over the bytes sent, as a part of these, at which flows without TCP are floods, and the
 * windows that it lasts: a slow start is over before.  The part of drops at which they stay so. */
#define FLOOD_MIN_EXCESS 32
#define FLOOD_WINDOWS	 2
#define FLOOD_MIN_DROPS	 64
/* Times that a fair share is halved at most. */
#define FLOOD_MAX_HALVINGS 10
/* Among more than FLOW_FEW ECN flows each counts in the mean with at most this part more than the
 * last one: one large flow among many does not make all others small. */
#define FLOW_FEW	 4
#define FLOW_MEAN_MARGIN 2

/* Flows of one class together. */
struct class_flows {
	u64 window;
	u64 ect_blocks;	  /* of packets with ECN in this window */
	u64 ect_weighted; /* the sum of blocks times what their flow had sent of late */
	u64 mean;	  /* blocks per window of an ECN flow, weighted by blocks; 0: sparse */
	u32 ect_flows;	  /* seen in this window, and in the last one */
	u32 ect_flows_before;
	u64 sent_blocks; /* what left in the last window */
	u64 window_left; /* bytes that had left when the window began */
	u64 queued;	 /* bytes since ever */
	u64 checked_at;
	u64 checked_left;
	u64 rested;  /* bytes sent per 2^FLOW_USE_SHIFT ns during the last rest; 0: none yet */
	u32 dropped; /* something was dropped for fairness since the last check */
	u32 rest;    /* checks until the next drop for fairness */
	u32 backoff;
	u32 excess_windows; /* in a row, up to FLOOD_WINDOWS */
	u32 halvings;	    /* of a flood's fair share */
	u64 offered;	    /* bytes without TCP that met the threshold in this window */
	u64 refused;	    /* bytes of these that were dropped */
	u64 all_blocks;	    /* as ect_blocks, of packets with ECN and without */
	u64 all_weighted;
	u64 all_before; /* in the last window */
	u64 all_mean;
	u64 sparse_free_at; /* when what the band of sparse flows got is paid for, ns */
	u64 sparse_bytes;   /* that joined it since ever */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_CLASSES);
	__type(key, u32);
	__type(value, struct class_flows);
} port_class_flows SEC(".maps");

enum {
	DROP_NOTHING,
	DROP_NOT_ECT,
	DROP_OVERLOAD,
};

struct arrival {
	u32 class;
	u32 hash;
	u32 blocks;
	u32 spacing;
};

/* TCP without payload, or the first packet of a connection: none of it can be marked, and nothing
 * slows down when it is lost.
 */
static __always_inline int is_tcp_control(struct __sk_buff *skb, const struct packet *p)
{
	u8 h[2];

	if (p->protocol != PROTOCOL_TCP || !p->transport_at ||
	    bpf_skb_load_bytes(skb, p->transport_at + TCP_FLAGS_AT - 1, h, sizeof(h)))
		return 0;
	return h[1] & TCP_SYN || p->transport_at + (h[0] >> 4) * 4 >= p->end;
}

static __always_inline u64 hash_mix(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

/*
 * Hash of a flow's addresses, protocol and ports.  Not skb->hash: a TCP socket of this machine
 * changes that with every retransmission timeout, and its flow would be a new one with no rate.
 * Seeded, so that no sender can choose whose bucket it shares.
 */
static __always_inline u32 flow_hash(const struct packet *p)
{
	const u32 *from = (const u32 *)p->from, *to = (const u32 *)p->to;
	u64 hash = port_set.hash_seed;
	int i, words = p->version == 4 ? 1 : 4;

	for (i = 0; i < 4 && i < words; i++)
		hash = hash_mix(hash, (u64)from[i] << 32 | to[i]);
	hash = hash_mix(hash, (u64)p->from_port << 32 | p->to_port << 16 | p->protocol);
	return hash;
}

static __always_inline struct arrival arrival_of(struct __sk_buff *skb, const struct packet *p,
						 u32 class)
{
	return (struct arrival){
		.class = class,
		.hash = flow_hash(p),
		.blocks = flow_blocks(skb->wire_len),
		.spacing = p->protocol == PROTOCOL_TCP ? FLOW_SPACING_TCP : FLOW_SPACING,
	};
}

static __always_inline struct class_flows *flows_of(u32 class)
{
	class &= PORT_CLASSES - 1;
	return bpf_map_lookup_elem(&port_class_flows, &class);
}

/* The other row has other bits of the hash. */
static __always_inline u32 flow_key(const struct arrival *a, u32 row)
{
	u32 bucket = row ? a->hash >> 16 : a->hash;

	return ((a->class & (PORT_CLASSES - 1)) * FLOW_ROWS + row) * FLOW_BUCKETS +
	       (bucket & (FLOW_BUCKETS - 1));
}

/* Enters a packet; a flow that was idle restarts, with a few packets that pass. */
static __always_inline u64 flow_enter(struct flow *f, const struct arrival *a, u64 now,
				      u32 frame_blocks)
{
	u32 window = now >> FLOW_WINDOW_SHIFT, passed = window - f->window;

	if (passed) {
		f->before = passed == 1 ? f->blocks : 0;
		f->blocks = 0;
		f->window = window;
		if (passed > FLOW_MAX_IDLE) {
			f->spared = a->spacing * frame_blocks;
			f->dropped_at = now >> FLOW_TICK_SHIFT;
		}
	}
	f->blocks += a->blocks;
	return flow_recent(now, f->before, f->blocks);
}

static __always_inline int is_flooded(const struct class_flows *c)
{
	return c->excess_windows >= FLOOD_WINDOWS;
}

/* At the end of a window in which `sent` bytes left.  A queue that does not move, as without a
 * carrier, tells nothing of its senders. */
static __always_inline u32 excess_windows(const struct class_flows *c, u64 sent)
{
	if (!sent)
		return 0;
	if (is_flooded(c))
		return c->refused > sent / FLOOD_MIN_DROPS ? FLOOD_WINDOWS : 0;
	return c->offered > sent + sent / FLOOD_MIN_EXCESS ? c->excess_windows + 1 : 0;
}

/* Bytes that have left since ever: what the queue's owner counts, which excludes its drops; else
 * what was queued and is not there any more.  What joins the band of sparse flows leaves at once.
 */
static __always_inline u64 total_left(const struct class_flows *c, const struct lengths *queue)
{
	u64 left = bytes_left(queue);

	if (left || port_set.source == PORT_SOURCE_MAP || queue->address)
		return left + c->sparse_bytes;
	return mark_elapsed(c->queued, queue->own);
}

/* At the end of a window of a flood, whose flows had `passed` of the bytes sent. */
static __always_inline u32 halvings(const struct class_flows *c, u64 passed, u64 sent)
{
	if (passed > sent / 2)
		return mark_min(c->halvings + 1, FLOOD_MAX_HALVINGS);
	return c->halvings && passed < sent / 4 ? c->halvings - 1 : c->halvings;
}

/* A new window: the mean of the last one's ECN flows, and whether there are floods. */
static __always_inline void turn_window(struct class_flows *c, u64 now, u32 frame_blocks,
					const struct lengths *queue)
{
	u64 window = now >> FLOW_WINDOW_SHIFT, last = c->window, left, sent, all;
	int flooded = is_flooded(c);

	if (window == last || __sync_val_compare_and_swap(&c->window, last, window) != last)
		return;
	left = total_left(c, queue);
	sent = mark_elapsed(left, c->window_left);
	all = flow_blocks(sent);
	c->excess_windows = window - last == 1 ? excess_windows(c, sent) : 0;
	c->halvings = is_flooded(c) ? halvings(c, mark_elapsed(c->offered, c->refused), sent) : 0;
	c->sent_blocks = window - last == 1 ? all : 0;
	/* Floods are in the mean of the window before they are found. */
	if (window - last == 1 && is_flooded(c) <= flooded && c->ect_blocks &&
	    (c->ect_blocks >= FLOW_MIN_FRAMES * frame_blocks ||
	     c->ect_blocks >= all / FLOW_MIN_PART))
		c->mean = c->ect_weighted / c->ect_blocks;
	else
		c->mean = 0;
	c->all_before = window - last == 1 ? c->all_blocks : 0;
	c->all_mean = c->all_before ? c->all_weighted / c->all_before : 0;
	c->all_blocks = 0;
	c->all_weighted = 0;
	c->ect_blocks = 0;
	c->ect_weighted = 0;
	c->ect_flows_before = c->ect_flows;
	c->ect_flows = 0;
	c->window_left = left;
	c->offered = 0;
	c->refused = 0;
}

/* Blocks per window below which ECN traffic is sparse. */
static __always_inline u64 min_part(u64 rate)
{
	return flow_blocks(mark_bytes(rate, 1ull << FLOW_WINDOW_SHIFT)) / FLOW_MIN_PART;
}

/* Queue length above which packets of a flood are dropped: below the threshold, so that those that
 * respond find room before they are marked. */
static __always_inline u64 flood_bound(const struct class_flows *c, u64 threshold)
{
	return is_flooded(c) ? threshold / 2 : threshold;
}

/* Counts a packet that may be a flood's; a flood's is dropped with the probability that leaves its
 * flow a fair share. */
static __always_inline int flood_drops(struct class_flows *c, u32 bytes, u64 recent, u64 rate)
{
	/* A port without a rate has that of what is behind it. */
	u64 fair = mark_min(min_part(rate), c->sent_blocks / FLOW_MIN_PART);

	c->offered += bytes;
	if (!is_flooded(c))
		return 0;
	fair = (c->mean > fair ? c->mean : fair) >> c->halvings;
	if (bpf_get_prandom_u32() >= flood_q32(recent, fair))
		return 0;
	c->refused += bytes;
	return 1;
}

/*
 * Checks if drops for fairness left the rate unused: an ECN flow that has less to send does not use
 * the rate that another one gives up.  Fairness is then suspended, longer each time.  If less than
 * the rate was sent during that time too, as on a machine that cannot carry it, that counts as the
 * rate.  It grows until the next suspension measures it again.
 */
static __always_inline void check_use(struct class_flows *c, u64 now, const struct lengths *queue)
{
	u64 at = c->checked_at, elapsed = mark_elapsed(now, at), left, sent, rested = c->rested;
	int full;

	if (elapsed < FLOW_CHECK_NS || __sync_val_compare_and_swap(&c->checked_at, at, now) != at)
		return;
	left = total_left(c, queue);
	sent = mark_elapsed(left, c->checked_left);
	full = sent >= mark_bytes(queue->rate, elapsed) / 8 * 7;
	sent /= elapsed >> FLOW_USE_SHIFT;
	full |= rested && sent >= rested / 4 * 3;
	c->rested = rested + rested / 32;
	if (c->rest) {
		c->rest--;
		c->rested = sent;
	}
	if (c->dropped) {
		c->backoff = full ? 0 : mark_min(2 * c->backoff + 1, FLOW_MAX_REST);
		c->rest = c->backoff;
	}
	c->dropped = 0;
	c->checked_left = left;
}

/* The mean of the last window, or of this one where flows have become faster. */
static __always_inline u64 mean_of(const struct class_flows *c, u32 frame_blocks)
{
	u64 blocks = c->ect_blocks, now;

	if (blocks < FLOW_MIN_FRAMES * frame_blocks)
		return c->mean;
	now = c->ect_weighted / blocks;
	return now > c->mean ? now : c->mean;
}

/* Queue length above which a flow that has sent `recent` blocks of late loses a packet. */
static __always_inline u64 bound_of(const struct class_flows *c, u64 mean, u64 recent, u64 rate,
				    u64 threshold, u64 low)
{
	if (recent < (mean ?: min_part(rate)) / FLOW_SPARSE)
		return ~0ull;
	if (!mean)
		return low;
	if (recent < mean)
		return FLOW_BOUND * low;
	return c->rest ? low : threshold;
}

/* An ECN flow's packet, which counts for the mean. */
static __always_inline void weigh(struct class_flows *c, u64 blocks, u64 recent, int is_first)
{
	u64 mean = c->mean;

	c->ect_flows += is_first;
	if (mean && c->ect_flows_before > FLOW_FEW)
		recent = mark_min(recent, mean + mean / FLOW_MEAN_MARGIN + 1);
	c->ect_blocks += blocks;
	c->ect_weighted += blocks * recent;
}

/* Read once: another CPU may write it meanwhile. */
static __always_inline void spare_less(struct flow *f, u32 blocks)
{
	u32 spared = *(volatile u32 *)&f->spared;

	f->spared = spared > blocks ? spared - blocks : 0;
}

/* True if the flow's last loss is long enough ago. */
static __always_inline int may_drop(const struct flow *first, const struct flow *second,
				    const struct arrival *a, u32 tick, u32 trip)
{
	u32 since = mark_min(tick - first->dropped_at, tick - second->dropped_at);

	if (since < trip)
		return 0;
	if (a->spacing == FLOW_SPACING_TCP && since >= FLOW_TRIPS_TCP * (u64)trip)
		return 1;
	return !first->spared && !second->spared;
}

#include "port_sparse.h"

/*
 * Drop decision for a packet that meets `queue` above `threshold`; its flow has sent `recent`
 * blocks of late.
 */
static __always_inline int flow_verdict(struct __sk_buff *skb, const struct port_config *cfg,
					const struct packet *p, const struct lengths *queue,
					u64 threshold, const struct arrival *a,
					struct class_flows *c, struct flow *first,
					struct flow *second, u64 recent)
{
	u64 now, mean, low = cfg->drop_floor_bytes;
	int control = 0;
	u32 tick;

	if (queue->judged > flood_bound(c, threshold)) {
		control = is_tcp_control(skb, p);
		if ((a->spacing == FLOW_SPACING || control) &&
		    flood_drops(c, skb->wire_len, recent, queue->rate))
			return DROP_OVERLOAD;
	}
	if (queue->judged <= threshold) {
		spare_less(first, a->blocks);
		spare_less(second, a->blocks);
		return DROP_NOTHING;
	}
	if (kind_of(p) == PORT_ECT || control || !p->version)
		return DROP_NOTHING;
	mean = mean_of(c, flow_blocks(cfg->floor_bytes));
	/* A flow above the mean loses packets at the rate of the others' marks, in overload too. */
	if (queue->overloaded && (!mean || recent < mean))
		return DROP_NOTHING;
	now = bpf_ktime_get_ns();
	tick = now >> FLOW_TICK_SHIFT;
	check_use(c, now, queue);
	low = threshold > low ? threshold : low;
	if (queue->judged > bound_of(c, mean, recent, queue->rate, threshold, low) &&
	    may_drop(first, second, a, tick, queue->trip)) {
		first->spared = second->spared = a->spacing * a->blocks;
		first->dropped_at = second->dropped_at = tick;
		if (queue->judged <= low)
			c->dropped = 1;
		return DROP_NOT_ECT;
	}
	spare_less(first, a->blocks);
	spare_less(second, a->blocks);
	return DROP_NOTHING;
}

/*
 * Counts a packet for its flow; decides if it is dropped, and if it is served first.
 *
 * Sums over all flows are estimates: where CPUs meet, one may miss a packet, which costs less than
 * a locked addition per packet.  For windows of a second a clock of some milliseconds will do.
 */
static __noinline int flow_drops(struct __sk_buff *skb, const struct port_config *cfg,
				 const struct packet *p, struct lengths *queue, u64 threshold)
{
	u64 now = bpf_ktime_get_coarse_ns(), recent;
	u32 frame_blocks = flow_blocks(cfg->floor_bytes);
	struct arrival a = arrival_of(skb, p, queue->class);
	struct class_flows *c = flows_of(a.class);
	struct flow *first = flow_at(flow_key(&a, 0)), *second = flow_at(flow_key(&a, 1));
	int verdict = DROP_NOTHING, is_first;

	if (!c || !first || !second)
		return DROP_NOTHING;
	turn_window(c, now, frame_blocks, queue);
	is_first = first->window != (u32)(now >> FLOW_WINDOW_SHIFT);
	recent = flow_enter(first, &a, now, frame_blocks);
	recent = mark_min(recent, flow_enter(second, &a, now, frame_blocks));
	if (kind_of(p) == PORT_ECT && !(is_flooded(c) && a.spacing == FLOW_SPACING))
		weigh(c, a.blocks, recent, is_first);
	c->all_blocks += a.blocks;
	c->all_weighted += a.blocks * recent;
	if (cfg->drop_not_ect)
		verdict = flow_verdict(skb, cfg, p, queue, threshold, &a, c, first, second, recent);
	if (verdict == DROP_NOTHING && class_of(cfg, queue->class)->sparse_id)
		choose_band(skb, cfg, p, c, &a, first, second, recent, now, queue);
	return verdict;
}

#endif /* VMCC_PORT_FLOW_H */
