/* SPDX-License-Identifier: MIT */
/*
 * rtxg_clock.h - the one clock of user space: CLOCK_MONOTONIC, in nanoseconds. The shared page, the
 * core's events, the module's ioctls and the daemon's history all carry times of this clock, so
 * that a time that one process writes can be compared with a time that another process reads. A
 * second way to read the time (CLOCK_REALTIME jumps, CLOCK_MONOTONIC_RAW drifts away) would break
 * that.
 * Not installed. The kernel module reads the same clock as ktime_get_ns().
 */
#ifndef RTXG_CLOCK_H
#define RTXG_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t rtxg_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * The same clock as of the kernel's last tick: up to 10 ms behind, and a tenth of the price. For
 * who asks often whether something that takes longer is due.
 */
static inline uint64_t rtxg_tick_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
