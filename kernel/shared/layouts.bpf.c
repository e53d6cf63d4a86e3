/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Never loaded: the types and constants that the programs and crates/linux/bpf share, for the test
 * that compares them with those in Rust (crates/linux/bpf/src/shared).  BTF keeps what a variable
 * has.
 */
#include "activity_shared.h"
#include "bucket.h"
#include "cgroup_shared.h"
#include "hold_shared.h"
#include "live_shared.h"
#include "marking_step.h"
#include "observe_shared.h"
#include "port_shared.h"
#include "qdisc_shared.h"
#include "shared.h"
#include "sharing.h"
#include "states_shared.h"

#define SHARED_STRUCT(name) struct name shared_##name
#define SHARED_ENUM(name)   enum name shared_##name
/* BTF has no macros. */
#define SHARED_MACRO(name) MACRO_##name = name

enum cc_macros {
	SHARED_MACRO(CC_EV_ECE),
	SHARED_MACRO(CC_EV_CWND_LIMITED),
	SHARED_MACRO(CC_EV_PEER_US),
	SHARED_MACRO(CC_SLOT_ESTABLISHED),
	SHARED_MACRO(CC_SLOT_RECOVERY),
	SHARED_MACRO(CC_SLOT_LOSS),
	SHARED_MACRO(CC_SLOT_SLOW_START),
	SHARED_MACRO(CC_SET_CWND),
	SHARED_MACRO(CC_SET_SSTHRESH),
	SHARED_MACRO(CC_CLOSE_PATH),
	SHARED_MACRO(CC_ONLY_PATH),
	SHARED_MACRO(CC_ALL_PATHS),
	SHARED_MACRO(CC_SET_GAP),
	SHARED_MACRO(CC_ACK_EACH),
	SHARED_MACRO(CC_SSTHRESH_INFINITE),
};

enum mp_ops_macros {
	SHARED_MACRO(MP_OPS_FLAGS),
	SHARED_MACRO(TCP_CONG_NEEDS_ACCECN),
};

enum port_macros {
	SHARED_MACRO(PORT_NO_CLASS),
	SHARED_MACRO(PORT_LEAF_FACTOR),
	SHARED_MACRO(PORT_LEAF_FIRST),
	SHARED_MACRO(PORT_LEAF_BUCKET),
	SHARED_MACRO(PORT_BANDS_FIRST),
	SHARED_MACRO(PORT_SPARSE_FIRST),
	SHARED_MACRO(PORT_BAND_SPARSE),
	SHARED_MACRO(PORT_BAND_BULK),
	SHARED_MACRO(PORT_ROOT_MAJOR),
	SHARED_MACRO(PORT_ROOT_FIRST),
};

enum qdisc_macros {
	SHARED_MACRO(QDISC_SLOTS),
	SHARED_MACRO(QDISC_MAJOR),
	SHARED_MACRO(QDISC_SPARSE),
	SHARED_MACRO(QDISC_PLACED),
	SHARED_MACRO(BUCKET_FRACTION),
};

/* Without a sign. */
#define CC_SHARING_EXCLUDED (-(CC_SHARING_APART))
#define CC_SHARING_TOGETHER (-(CC_SHARING_ALONE_MIN))
enum sharing_macros {
	SHARED_MACRO(CC_SHARING_SHARED),
	SHARED_MACRO(CC_SHARING_EXCLUDED),
	SHARED_MACRO(CC_SHARING_TOGETHER),
};

_Static_assert(MP_GROUP_DEAD == UINT64_MAX, "mirrored in crates/linux/bpf, too long for an enum");

SHARED_ENUM(cc_macros);
SHARED_ENUM(cc_state);
SHARED_ENUM(cc_cause);
SHARED_ENUM(mp_count);
SHARED_ENUM(mp_ops_macros);
SHARED_ENUM(port_macros);
SHARED_ENUM(port_source);
SHARED_ENUM(port_trust);
SHARED_ENUM(port_rule);
SHARED_ENUM(port_kind);
SHARED_ENUM(qdisc_macros);
SHARED_ENUM(sharing_macros);
SHARED_ENUM(state_refused);
SHARED_ENUM(marking_function);

SHARED_STRUCT(activity_record);
SHARED_STRUCT(mp_config);
SHARED_STRUCT(mp_account);
SHARED_STRUCT(mp_counters);
SHARED_STRUCT(mp_group);
SHARED_STRUCT(mp_watched_group);
SHARED_STRUCT(cc_sharing);
SHARED_STRUCT(mp_close_event);
SHARED_STRUCT(replay_step);
SHARED_STRUCT(observe_config);
SHARED_STRUCT(observe_record);
SHARED_STRUCT(socket_state);
SHARED_STRUCT(cgroup_settings);
SHARED_STRUCT(hold_settings);
SHARED_STRUCT(live_settings);
SHARED_STRUCT(port_settings);
SHARED_STRUCT(port_config);
SHARED_STRUCT(port_counters);
SHARED_STRUCT(port_queue);
SHARED_STRUCT(port_state);
SHARED_STRUCT(qdisc_config);
SHARED_STRUCT(marking_step);
