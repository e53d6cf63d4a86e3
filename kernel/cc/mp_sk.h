/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A subflow's state in icsk_ca_priv, for the wrapper and for its readers. */
#ifndef VMCC_MP_SK_H
#define VMCC_MP_SK_H

#include "kernel_types.h"
#include "cc.h"

/* In mp_sk.slot of a path that is not coupled: it has been counted as such. */
#define SLOT_REFUSED 0x80
/* With SLOT_REFUSED: because the connection has CC_MAX_PATHS others. */
#define SLOT_BEYOND 0x20
/* In mp_sk.slot: on_ack has run, and detect is due. */
#define SLOT_DETECT 0x40
_Static_assert(CC_MAX_PATHS <= SLOT_BEYOND, "a slot and its flags share a byte");

/* A subflow's state in icsk_ca_priv. */
struct mp_sk {
	struct cc_path path;
	u64 group_key; /* 0: not coupled */
	u32 rtt_us;    /* with SK_SAMPLE */
	/* CC_NEEDS_ECN. */
	union {
		u32 prior_rcv_nxt; /* RFC 3168, receiver: what had arrived at the last segment */
		u32 counted_ce;	   /* AccECN, sender: marked packets that on_ack has counted */
	};
	u16 looked;    /* when membership was looked at (short_clock) */
	u16 gap;       /* CC_PACES: the time between packets in us (brief); 0: Linux's */
	u16 acked_pkt; /* with SK_SAMPLE */
	u8 slot;       /* and SLOT_... */
	u8 flags;
};

_Static_assert(sizeof(struct mp_sk) <= 104, "struct mp_sk must fit icsk_ca_priv");

#endif /* VMCC_MP_SK_H */
