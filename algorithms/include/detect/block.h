/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Correlation of two paths over a block of bins, and the evidence that it gives. */
#ifndef VMCC_DETECT_BLOCK_H
#define VMCC_DETECT_BLOCK_H

#include "detect/clock.h"

/* Evidence, in 1/32 of r.  At least three blocks decide. */
#define CC_SHARING_R_MIDPOINT 9
#define CC_SHARING_SHARED     48
#define CC_SHARING_APART      (-16)

/* The least evidence without a trial. */
#define CC_SHARING_UNTESTED_APART (-12)

/* Below these n^2-fold variances a signal is flat: 0.06 of full marking, 1/1024 of a bin. */
#define CC_SHARING_MARKS_FLAT  1024u
#define CC_SHARING_DELAYS_FLAT 256u

/* If one signal is flat and the other has this many times its variance, r is 0. */
#define CC_SHARING_VARIANCE_RATIO 16u
/* Below any r: nothing moves; nothing is known. */
#define CC_SHARING_R_FLAT    (-64)
#define CC_SHARING_R_INVALID (-65)

/* n sum(i^2) - sum(i)^2 for i below 16 */
#define CC_SHARING_LINE 5440u

/* n^2-fold variances and covariance of two signals.  Values below 2^11, 16 of them: below 2^30. */
struct cc_covariance {
	uint64_t xx;
	uint64_t yy;
	int64_t xy;
};

/* |r| in 1/16, rounded down, with the sign of r; r = xy / sqrt(xx yy). */
CC_INLINE int64_t cc_covariance_r(const struct cc_covariance *c)
{
	uint64_t negative = (uint64_t)c->xy >> 63;
	uint64_t size = ((uint64_t)c->xy ^ (0 - negative)) + negative;
	uint64_t whole = (c->xx * c->yy) >> 8, r = 0, step;

	size = size * size;
	for (step = 8; step; step >>= 1)
		r += step & (0 - (cc_less(size, (r + step) * (r + step) * whole) ^ 1));
	return (int64_t)((r ^ (0 - negative)) + negative);
}

CC_INLINE uint64_t cc_covariance_flat(const struct cc_covariance *c, uint64_t flat)
{
	return cc_less(c->xx, flat) | cc_less(c->yy, flat);
}

/* Sums over a block, of the marks of two paths. */
struct cc_marks {
	uint64_t known; /* bins that are, on both */
	uint64_t x, y, xx, yy, xy;
};

/* The same of delays, and what a line and differences take. */
struct cc_delays {
	uint64_t x, y, xx, yy, xy;
	uint64_t ix, iy; /* of the bin's number times the delay */
	uint64_t first_x, first_y, last_x, last_y;
	uint64_t exx, eyy; /* of the differences from bin to bin */
	int64_t exy;
};

CC_INLINE void cc_delays_add(struct cc_delays *d, uint32_t i, uint64_t x, uint64_t y)
{
	uint64_t later = cc_nonzero(i);
	int64_t ex = (int64_t)(x - d->last_x) * (int64_t)later;
	int64_t ey = (int64_t)(y - d->last_y) * (int64_t)later;

	d->x += x;
	d->y += y;
	d->xx += x * x;
	d->yy += y * y;
	d->xy += x * y;
	d->ix += i * x;
	d->iy += i * y;
	d->first_x = cc_select(later, d->first_x, x);
	d->first_y = cc_select(later, d->first_y, y);
	d->last_x = x;
	d->last_y = y;
	d->exx += (uint64_t)(ex * ex);
	d->eyy += (uint64_t)(ey * ey);
	d->exy += ex * ey;
}

/* |a| |b| / CC_SHARING_LINE with the sign of a b */
CC_INLINE int64_t cc_line_part(int64_t a, int64_t b)
{
	uint64_t na = (uint64_t)a >> 63, nb = (uint64_t)b >> 63, n = na ^ nb;
	uint64_t size = (((uint64_t)a ^ (0 - na)) + na) * (((uint64_t)b ^ (0 - nb)) + nb);

	return (int64_t)(((size / CC_SHARING_LINE) ^ (0 - n)) + n);
}

/* Delays, what is left of them after the best straight line. */
CC_INLINE void cc_delays_detrended(const struct cc_delays *d, struct cc_covariance *c)
{
	const uint64_t n = CC_SHARING_BLOCK, sum = n * (n - 1) / 2;
	int64_t slope_x = (int64_t)(n * d->ix - sum * d->x);
	int64_t slope_y = (int64_t)(n * d->iy - sum * d->y);

	c->xx = n * d->xx - d->x * d->x - (uint64_t)cc_line_part(slope_x, slope_x);
	c->yy = n * d->yy - d->y * d->y - (uint64_t)cc_line_part(slope_y, slope_y);
	c->xy = (int64_t)(n * d->xy - d->x * d->y) - cc_line_part(slope_x, slope_y);
}

/* Delays, the differences from bin to bin. */
CC_INLINE void cc_delays_differences(const struct cc_delays *d, struct cc_covariance *c)
{
	const int64_t n = CC_SHARING_BLOCK - 1;
	int64_t x = (int64_t)(d->last_x - d->first_x), y = (int64_t)(d->last_y - d->first_y);

	c->xx = (uint64_t)n * d->exx - (uint64_t)(x * x);
	c->yy = (uint64_t)n * d->eyy - (uint64_t)(y * y);
	c->xy = n * d->exy - x * y;
}

/* r of the marks in 1/32; CC_SHARING_R_FLAT if flat, CC_SHARING_R_INVALID if a bin is not known. */
CC_NOINLINE int cc_sharing_marks(const struct cc_history *x, const struct cc_history *y,
				 uint64_t at)
{
	const uint64_t n = CC_SHARING_BLOCK;
	struct cc_marks m = {0};
	struct cc_covariance c;
	uint32_t i;

	for (i = 0; i < CC_SHARING_BLOCK; i++) {
		uint64_t a, b;

		if (at >= CC_SHARING_BINS)
			return CC_SHARING_R_INVALID;
		a = x->value[at];
		b = y->value[at];
		at = cc_sharing_next(at);
		m.known += cc_nonzero(a) & cc_nonzero(b);
		a &= CC_SHARING_MARK_MAX;
		b &= CC_SHARING_MARK_MAX;
		m.x += a;
		m.y += b;
		m.xx += a * a;
		m.yy += b * b;
		m.xy += a * b;
	}
	if (m.known != CC_SHARING_BLOCK)
		return CC_SHARING_R_INVALID;
	c.xx = n * m.xx - m.x * m.x;
	c.yy = n * m.yy - m.y * m.y;
	c.xy = (int64_t)(n * m.xy - m.x * m.y);
	if (cc_covariance_flat(&c, CC_SHARING_MARKS_FLAT))
		return CC_SHARING_R_FLAT;
	return 2 * (int)cc_covariance_r(&c);
}

/* r of the delays in 1/32, the sum of both kinds in 1/16. */
CC_NOINLINE int cc_sharing_delays(const struct cc_history *x, const struct cc_history *y,
				  uint64_t at)
{
	struct cc_delays d = {0};
	struct cc_covariance detrended, differences;
	uint32_t i;

	for (i = 0; i < CC_SHARING_BLOCK; i++) {
		if (at >= CC_SHARING_BINS)
			return CC_SHARING_R_INVALID;
		cc_delays_add(&d, i, x->value[at] >> CC_SHARING_MARK_BITS,
			      y->value[at] >> CC_SHARING_MARK_BITS);
		at = cc_sharing_next(at);
	}
	cc_delays_detrended(&d, &detrended);
	cc_delays_differences(&d, &differences);
	if (!(cc_covariance_flat(&detrended, CC_SHARING_DELAYS_FLAT) |
	      cc_covariance_flat(&differences, CC_SHARING_DELAYS_FLAT)))
		return (int)(cc_covariance_r(&detrended) + cc_covariance_r(&differences));
	if (cc_less(CC_SHARING_VARIANCE_RATIO * detrended.xx, detrended.yy) |
	    cc_less(CC_SHARING_VARIANCE_RATIO * detrended.yy, detrended.xx))
		return 0;
	return CC_SHARING_R_FLAT;
}

/* Adds to the evidence, within its bounds; without a trial those are narrower. */
CC_INLINE void cc_sharing_add(struct cc_sharing *sharing, uint32_t pair, int32_t step)
{
	int32_t before = sharing->evidence[pair], after = before + step;
	int32_t least = sharing->alone[pair] ? CC_SHARING_APART : CC_SHARING_UNTESTED_APART;

	if (before < least)
		least = before;
	if (after > CC_SHARING_SHARED)
		after = CC_SHARING_SHARED;
	if (after < least)
		after = least;
	sharing->evidence[pair] = (int8_t)after;
}

/* Compares two paths over the block that begins with bin `start`. */
CC_SEPARATE int cc_sharing_compare(struct cc_sharing *sharing, uint32_t me, uint32_t other,
				   uint32_t start)
{
	const struct cc_history *x, *y;
	int of_marks, of_delays, r;

	if (!sharing)
		return 0;
	x = &sharing->path[me & (CC_SHARING_PATHS - 1)];
	y = &sharing->path[other & (CC_SHARING_PATHS - 1)];
	of_marks = cc_sharing_marks(x, y, cc_sharing_at(start));
	if (of_marks == CC_SHARING_R_INVALID)
		return 0;
	of_delays = cc_sharing_delays(x, y, cc_sharing_at(start));
	r = of_marks < of_delays ? of_delays : of_marks;
	if (of_marks != CC_SHARING_R_FLAT && of_delays != CC_SHARING_R_FLAT)
		r = (int)((uint32_t)(of_marks + of_delays - 2 * CC_SHARING_R_FLAT) >> 1) +
		    CC_SHARING_R_FLAT;
	if (r != CC_SHARING_R_FLAT)
		cc_sharing_add(sharing, cc_sharing_pair(me, other), r - CC_SHARING_R_MIDPOINT);
	return 0;
}

/* Compares the path with every other that has completed the block as well. */
CC_INLINE void cc_sharing_block(const struct cc_group *group, struct cc_sharing *sharing,
				uint32_t me, uint32_t start)
{
	uint32_t i;

	for (i = 0; i < CC_SHARING_PATHS; i++) {
		uint32_t ahead = sharing->path[i].bin - start;

		if (i != me && cc_sharing_usable(&group->path[i]) && ahead >= CC_SHARING_BLOCK &&
		    ahead < CC_SHARING_BINS)
			cc_sharing_compare(sharing, me, i, start);
	}
}

#endif /* VMCC_DETECT_BLOCK_H */
