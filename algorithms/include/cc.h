/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clang-format off */
/*
 * The contract between a congestion-control algorithm and its caller: Linux's TCP, the simulator or
 * the transport.  Elsewhere the caller is also called the host (host.h).
 *
 * The same algorithm source is compiled natively (simulator, tests) and for the BPF virtual machine
 * (kernel).  Hence the C subset: freestanding C11, unsigned 64-bit integers (signed only where a
 * value can be negative, and never divided), no libc, no mutable globals, bounded loops.
 *
 * An algorithm is five hooks.  Each takes an event and leaves a decision.  A hook may read the
 * sibling paths of its connection and writes only its own `struct cc_path` and the decision.
 *
 *   init           the path has just been established, or the algorithm was just selected
 *   on_ack         every ACK, in every state, before any growth: counters, RTT rounds, marking
 *                  fraction
 *   on_congestion  the caller starts a reduction (CC_CAUSE_ECE, CC_CAUSE_LOSS) or its timer expired
 *                  (CC_CAUSE_RTO): returns the new ssthresh.  It is called at most once per window
 *                  of data for ECE and LOSS together.  It may add a window where the reduction ends
 *                  elsewhere than at ssthresh (1 after RTO; below the ssthresh floor after ECE); a
 *                  caller that has its own recovery machinery may ignore that
 *   on_grow        an ACK arrived while growth is allowed (state open, disorder or loss;
 *                  cwnd-limited)
 *   on_state       the caller's recovery state has changed to event->state
 *
 * One that detects paths which share a bottleneck (`detects` in registry.toml) has a sixth:
 *
 *   detect         after on_ack, with the history of all paths of the connection.  It may request to
 *                  close the path, and may change its window as a probe of the siblings.  A caller
 *                  that does not close paths need not call it.  The event is the hook's own copy,
 *                  which it may change: a second one would not fit on the stack of a BPF program
 *
 * The caller clears decision->set before each hook.  It owns the recovery state machine (Linux, or
 * the simulator's model of it), and the gradual reduction (PRR) towards the ssthresh that
 * on_congestion returned.
 *
 * Units: windows in packets, times in the unit of the name, `_qN` fixed point with N fractional
 * bits. A zero in an event field other than flags and state means "unknown" unless its comment says
 * otherwise.
 */
/* clang-format on */
#ifndef VMCC_CC_H
#define VMCC_CC_H

#include <stdint.h>

/* Changes whenever a struct below changes shape or meaning. */
#define CC_INTERFACE_VERSION 4

#define CC_MAX_PATHS	     32 /* a multiple of CC_STRIDE (coupling.h) */
#define CC_MAX_PARAMS	     12
#define CC_MAX_CWND_PKT	     (1u << 20) /* validity range of every fixed-point derivation */
#define CC_MAX_SRTT_8US	     80000000u	/* 10 s */
#define CC_SSTHRESH_INFINITE 0x7fffffffu

/* Functions that run a hook.  BPF needs out-of-line functions that the verifier checks once each.
 */
#ifdef __bpf__
#define CC_NOINLINE static __attribute__((noinline))
#else
#define CC_NOINLINE static
#endif
#define CC_INLINE static inline __attribute__((always_inline))

/*
 * Global functions for the BPF verifier: each is verified once, independent of its callers.  They
 * must accept any arguments, so pointers are tested.
 */
#ifdef __bpf__
#define CC_SEPARATE __attribute__((noinline))
#else
#define CC_SEPARATE static
#endif

enum cc_state {
	CC_STATE_OPEN = 0,
	CC_STATE_DISORDER = 1,
	CC_STATE_CWR = 2,      /* reducing after ECE */
	CC_STATE_RECOVERY = 3, /* fast recovery */
	CC_STATE_LOSS = 4,     /* after a retransmission timeout */
};

enum cc_cause {
	CC_CAUSE_NONE = 0,
	CC_CAUSE_ECE = 1,
	CC_CAUSE_LOSS = 2,
	CC_CAUSE_RTO = 3,
};

/* event->flags */
#define CC_EV_ECE	   (1u << 0) /* this ACK echoes congestion */
#define CC_EV_CWND_LIMITED (1u << 1) /* the window, not the application, limited sending */
#define CC_EV_PEER_US	   (1u << 2) /* peer_ts is in us; alike on all events of a path */

struct cc_event {
	uint64_t now_us;	/* monotonic; never 0 */
	uint32_t flags;		/* CC_EV_* */
	uint32_t state;		/* enum cc_state */
	uint32_t cause;		/* enum cc_cause; on_congestion only */
	uint32_t self;		/* own index in the group; 0 when group is NULL */
	uint32_t cwnd_pkt;	/* >= 1 */
	uint32_t ssthresh_pkt;	/* CC_SSTHRESH_INFINITE until the first reduction */
	uint32_t srtt_8us;	/* smoothed RTT in 1/8 us */
	uint32_t min_rtt_us;	/* the caller's windowed minimum */
	uint32_t rtt_us;	/* this ACK's sample; 0: no sample */
	uint32_t acked_pkt;	/* packets newly acknowledged by this ACK; may be 0 */
	uint32_t in_flight_pkt; /* in on_congestion: RFC 5681's FlightSize (sent, not yet
				   acknowledged) */
	uint32_t snd_una;	/* sequence numbers, any unit, compared modulo 2^32 */
	uint32_t snd_nxt;
	uint32_t peer_ts; /* the peer's clock when it sent this ACK (RFC 7323), in ms, from any
			     origin, modulo 2^32 */
};

/* slot->flags; a slot with flags == 0 is free */
#define CC_SLOT_ESTABLISHED (1u << 0)
#define CC_SLOT_RECOVERY    (1u << 1) /* CWR or fast recovery: cwnd is in transit to ssthresh */
#define CC_SLOT_LOSS	    (1u << 2)
#define CC_SLOT_SLOW_START  (1u << 3)

/*
 * State of a path that siblings may read.  The caller publishes it after a hook; where one callback
 * runs several (the kernel: on_ack, then on_grow), after the last.
 */
struct cc_slot {
	uint32_t flags;
	uint32_t cwnd_pkt;
	uint32_t ssthresh_pkt;
	uint32_t srtt_8us;
	uint64_t pub[2]; /* the algorithm's own, copied from cc_path.pub */
};

/*
 * The paths of one connection.  A single-path connection has none: hooks get a NULL group.  Loops
 * over paths end at `end`, so that a path costs what its siblings take, not what could be there.
 */
struct cc_group {
	uint32_t end; /* slots from here on have never been taken */
	uint32_t reserved;
	struct cc_slot path[CC_MAX_PATHS];
};

#define CC_SHARING_BINS 21 /* a block, and as many more as one end may be ahead: see sharing.h */
/* Detection compares the paths in the first slots; pairs beyond them are not compared. */
#define CC_SHARING_PATHS 8
#define CC_SHARING_PAIRS (CC_SHARING_PATHS * (CC_SHARING_PATHS - 1) / 2)

/* One path, as the detector sees it. */
struct cc_history {
	uint32_t bin;	  /* that is being filled, counted in bins since the clock began */
	uint32_t delays;  /* sum over its ACKs, in 1/1024 of a bin */
	uint16_t acks;	  /* in this bin */
	uint16_t marked;  /* of them with ECE */
	uint16_t ignored; /* of them without information about a queue */
	uint8_t settle;	  /* complete bins that will be left out still */
	uint8_t trial;	  /* the trial whose effect is not known yet; 0: none */
	uint16_t hold;	  /* the window of the probe that is being made; 0: none is */
	uint16_t back;	  /* the window after it */
	uint16_t until;	  /* when it ends, in ticks */
	uint16_t value[CC_SHARING_BINS];
	uint16_t expected; /* how far a probe of that trial would move a queue of its own */
	uint8_t tried;	   /* the bin of the last trial, modulo 2^8 */
	uint8_t doubts;	   /* blocks in a row, up to some, after which a pair was in doubt */
};

/* The detector's state of a connection.  Initially zero. */
struct cc_sharing {
	struct cc_history path[CC_SHARING_PATHS]; /* each written by its path only */
	int8_t evidence[CC_SHARING_PAIRS];
	int8_t alone[CC_SHARING_PAIRS]; /* sum of the trials: high if one path alone responds */
	/* A bin is 2^shift us long; 0: none has begun.  Highest bit: CC_SHARING_POOLED. */
	uint32_t shift;
};

/* An algorithm's own state on one path.  Fits, with the kernel wrapper's needs, in icsk_ca_priv. */
struct cc_path {
	int64_t credit_q40; /* growth not yet turned into whole packets */
	uint64_t pub[2];    /* what siblings may read */
	uint64_t priv[7];   /* the algorithm's own struct */
};

/* Raw parameter values, in the order and fixed point of registry.toml. */
struct cc_params {
	uint64_t v[CC_MAX_PARAMS];
};

/* decision->set: which fields are meant */
#define CC_SET_CWND	(1u << 0)
#define CC_SET_SSTHRESH (1u << 1)
#define CC_CLOSE_PATH	(1u << 2) /* this path shares a bottleneck: close it, reinject its data */
#define CC_ONLY_PATH	(1u << 3) /* send new data of the connection on this path only ... */
#define CC_ALL_PATHS	(1u << 4) /* ... on every path again.  Both are advice to the scheduler */
#define CC_SET_GAP	(1u << 5) /* only by one with `paces` in registry.toml */
#define CC_ACK_EACH	(1u << 6) /* with CC_SET_GAP: an immediate ACK per packet */

struct cc_decision {
	uint32_t set;
	uint32_t cwnd_pkt;
	uint32_t ssthresh_pkt;
	uint32_t peer;	 /* with CC_CLOSE_PATH: the slot of the path that is kept.  Do not close if
			  * the peer is being closed itself: two paths may name each other at the
			  * same moment */
	uint32_t gap_us; /* time between two packets from now on; 0: no limit.  With CC_ACK_EACH
			  * each of them also requests an immediate acknowledgment, by CWR if ECN
			  * is negotiated: a delayed one would wait for the next packet */
};

#define CC_UNUSED __attribute__((unused))
#define CC_HOOK_ARGS                                                                               \
	CC_UNUSED const struct cc_event *ev, CC_UNUSED struct cc_path *self,                       \
		CC_UNUSED const struct cc_group *group, CC_UNUSED const struct cc_params *params,  \
		CC_UNUSED struct cc_decision *out
#define CC_PASS_ARGS ev, self, group, params, out
#define CC_DETECT_ARGS                                                                             \
	CC_UNUSED struct cc_event *ev, CC_UNUSED const struct cc_group *group,                     \
		CC_UNUSED struct cc_sharing *sharing, CC_UNUSED const struct cc_params *params,    \
		CC_UNUSED struct cc_decision *out

/*
 * Put before the end of an out-of-line function without a result: the BPF verifier refuses one that
 * leaves a pointer in r0, as the compiler may.
 */
#ifdef __bpf__
#define CC_LEAVE() __asm__ volatile("r0 = 0" ::: "r0")
#else
#define CC_LEAVE() ((void)0)
#endif

/* Begins the definition of a hook: CC_HOOK(lia, on_grow) { ... } defines lia_on_grow. */
#define CC_HOOK(id, hook)                                                                          \
	CC_INLINE void id##_##hook##_body(CC_HOOK_ARGS);                                           \
	CC_NOINLINE void id##_##hook(CC_HOOK_ARGS)                                                 \
	{                                                                                          \
		id##_##hook##_body(CC_PASS_ARGS);                                                  \
		CC_LEAVE();                                                                        \
	}                                                                                          \
	CC_INLINE void id##_##hook##_body(CC_HOOK_ARGS)

/* Begins the definition of detect: CC_DETECT_HOOK(vmcc) { ... } defines vmcc_detect. */
#define CC_DETECT_HOOK(id)                                                                         \
	CC_INLINE void id##_detect_body(CC_DETECT_ARGS);                                           \
	CC_NOINLINE void id##_detect(CC_DETECT_ARGS)                                               \
	{                                                                                          \
		id##_detect_body(ev, group, sharing, params, out);                                 \
		CC_LEAVE();                                                                        \
	}                                                                                          \
	CC_INLINE void id##_detect_body(CC_DETECT_ARGS)

/*
 * Ends an algorithm's file: checks the size of its state.  Hooks are called by their names,
 * <id>_init and so on; host.h makes tables and a driver of them where those are wanted.
 */
#define CC_ALGORITHM(id, state)                                                                    \
	_Static_assert(sizeof(state) <= sizeof(((struct cc_path *)0)->priv),                       \
		       #id ": state too large")

_Static_assert(sizeof(struct cc_event) == 64, "cc_event is shared with Rust and BPF");
_Static_assert(sizeof(struct cc_slot) == 32, "cc_slot is shared with Rust and BPF");
_Static_assert(sizeof(struct cc_path) == 80, "cc_path must leave 24 bytes of icsk_ca_priv");
_Static_assert(sizeof(struct cc_history) == 68, "cc_history is shared with Rust and BPF");
_Static_assert(sizeof(struct cc_sharing) == 604, "cc_sharing is shared with Rust and BPF");
_Static_assert(sizeof(struct cc_decision) == 20, "cc_decision is shared with Rust and BPF");

#endif /* VMCC_CC_H */
