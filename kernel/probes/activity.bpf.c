/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Activity of the connections of one group table: a record per connection.  An entry is up to 2
 * KiB; to copy all of them out of the kernel costs more than all else that a guard does at rest.
 */
#include "kernel_types.h"
#include "activity_shared.h"
#include "shared.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Odd, so that no bit is lost: the fractional part of the golden ratio. */
#define ACTIVITY_FACTOR 0x9e3779b97f4a7c15ull

static __always_inline u64 mix(u64 sum, u64 word)
{
	return ((sum << 5 | sum >> 59) ^ word) * ACTIVITY_FACTOR;
}

/* Every word that a path publishes. */
static __always_inline u64 mix_slot(u64 sum, const struct cc_slot *slot)
{
	sum = mix(sum, (u64)slot->flags << 32 | slot->cwnd_pkt);
	sum = mix(sum, (u64)slot->ssthresh_pkt << 32 | slot->srtt_8us);
	sum = mix(sum, slot->pub[0]);
	return mix(sum, slot->pub[1]);
}

SEC("iter/bpf_map_elem")
int activity_read(struct bpf_iter__bpf_map_elem *ctx)
{
	const struct mp_group *entry = ctx->value;
	struct activity_record record = {};
	u32 i, end;
	u64 sum;

	if (!entry || !entry->members || entry->members == MP_GROUP_DEAD)
		return 0;
	sum = entry->members ^ entry->token;
	end = entry->group.end;
	for (i = 0; i < CC_MAX_PATHS && i < end; i++)
		sum = mix_slot(sum, &entry->group.path[i]);
	record.netns = entry->netns;
	record.fingerprint = sum;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
