/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The receiver's half of ECN as data-centre algorithms need it: every mark is echoed, not one per
 * window.
 *
 * Source: RFC 8257 section 3.2.  The receiver remembers whether the last segment carried CE.  While
 * that stays, ACKs may be delayed and echo it; when it changes, what is still unacknowledged is
 * acknowledged at once with the old echo, and the segment that brought the change without delay
 * with the new one.
 */
#ifndef VMCC_ECHO_BPF_H
#define VMCC_ECHO_BPF_H

#include "kernel_types.h"

/* Makes the stack set (or not) ECE on what it sends from here on. */
static __always_inline void echo_set(struct tcp_sock *tp, int ce)
{
	u8 flags = tp->ecn_flags;

	tp->ecn_flags = ce ? flags | TCP_ECN_DEMAND_CWR : flags & ~TCP_ECN_DEMAND_CWR;
}

/*
 * A data segment has arrived, with CE or without; `was` is what the one before it carried, and
 * `acknowledged` the sequence number up to which data had arrived then.
 */
static __always_inline void echo_segment(struct tcp_sock *tp, int was, int ce, u32 acknowledged)
{
	u8 pending;

	if (was != ce) {
		pending = tp->inet_conn.icsk_ack.pending;
		if (pending & ICSK_ACK_TIMER) {
			echo_set(tp, was);
			bpf_tcp_send_ack(tp, acknowledged);
			pending = tp->inet_conn.icsk_ack.pending;
		}
		tp->inet_conn.icsk_ack.pending = pending | ICSK_ACK_NOW;
	}
	echo_set(tp, ce);
}

#endif /* VMCC_ECHO_BPF_H */
