/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * vMCC's law of growth and reduction, and its detection in time, shared by vMCC and vMCC for
 * machines that are descheduled.  Equations and deviations: src/vmcc.c.
 *
 * Choices (`law`, `detector`) are the values of vMCC's own parameters.
 */
#ifndef VMCC_VMCC_H
#define VMCC_VMCC_H

#include "balia.h"
#include "dctcp.h"
#include "event_times.h"
#include "lia.h"
#include "olia.h"
#include "statistics.h"

/* ECE: DCTCP's cut.  Loss and timeout: as the law of growth has it; with LIA Reno's half. */
CC_INLINE void cc_vmcc_reduce(const struct cc_dctcp *ecn, struct cc_olia *loss, uint64_t law,
			      uint64_t floor, const struct cc_event *ev, struct cc_path *self,
			      const struct cc_group *group, struct cc_decision *out)
{
	if (ev->cause == CC_CAUSE_ECE) {
		cc_olia_on_loss(loss, self);
		cc_dctcp_cut(ecn, ev, self, floor, out);
	} else if (law == CC_P_VMCC_INCREASE_OLIA) {
		cc_olia_reduce(loss, ev, self, group, out);
	} else if (law == CC_P_VMCC_INCREASE_BALIA) {
		cc_balia_reduce(ev, self, group, out);
	} else {
		cc_reno_reduce(ev, self, out);
	}
}

/* Growth, not by an ACK with ECE. */
CC_INLINE void cc_vmcc_grow(const struct cc_olia *loss, uint64_t law, const struct cc_event *ev,
			    struct cc_path *self, const struct cc_group *group,
			    struct cc_decision *out)
{
	if (ev->flags & CC_EV_ECE)
		return;
	if (law == CC_P_VMCC_INCREASE_OLIA)
		cc_olia_grow(loss, ev, self, group, out);
	else if (law == CC_P_VMCC_INCREASE_BALIA)
		cc_balia_grow(ev, self, group, out);
	else
		cc_lia_grow(ev, self, group, out);
}

/* Detection that looks at what happens at the same time; by counts it is vMCC's own. */
CC_INLINE void cc_vmcc_detect(uint64_t detector, uint64_t interval_us, const struct cc_event *ev,
			      const struct cc_group *group, struct cc_sharing *sharing,
			      struct cc_decision *out)
{
	if (detector == CC_P_VMCC_DETECTOR_CORRELATION)
		cc_sharing_on_ack(ev, group, sharing, out);
	else if (detector == CC_P_VMCC_DETECTOR_EVENTS)
		cc_events_on_ack(ev, group, sharing, interval_us, out);
	else if (detector == CC_P_VMCC_DETECTOR_STATISTICS)
		cc_statistics_on_ack(ev, group, sharing, interval_us, out);
}

#endif /* VMCC_VMCC_H */
