/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The arithmetic of times as the host's compiler builds it. */
#include "elapsed.h"

int vmcc_short_passed(unsigned long long now_us, unsigned long long then_us, unsigned int wait_us);

int vmcc_short_passed(unsigned long long now_us, unsigned long long then_us, unsigned int wait_us)
{
	return short_passed(short_clock(now_us), short_clock(then_us), wait_us);
}

unsigned int vmcc_brief_in_full(unsigned int time);

unsigned int vmcc_brief_in_full(unsigned int time)
{
	return in_full(brief(time));
}
