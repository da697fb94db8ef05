// SPDX-License-Identifier: MIT
/*
 * permit.c - the conversation with librtxg: permits, what has completed, and the helper's sleep.
 * May not call OpenCL.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "permit.h"
#include "rtxg_clock.h"

bool layer_permit_revoked(const struct layer_lane *lane)
{
	return rtx_gpu_revoked(lane->gpu->handle, lane->engine);
}

bool layer_permit_awaited(const struct layer_lane *lane)
{
	return lane->state.contended && rtx_gpu_awaited(lane->gpu->handle, lane->engine);
}

void layer_permit_wake(struct layer_lane *lane)
{
	atomic_fetch_add(&lane->signals, 1);
	if (atomic_load(&lane->sleeping))
		syscall(SYS_futex, &lane->signals, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void layer_permit_missed(struct layer_lane *lane)
{
	if (lane_missed(&lane->state, rtxg_now_ns()))
		layer_permit_wake(lane);
}

bool layer_permit_try(struct layer_lane *lane)
{
	/*
	 * A time that has passed: not even a moment's wait if the permit is called back between the
	 * look and the launch.
	 */
	if (!layer_permit_revoked(lane) &&
	    !rtx_gpu_launch_until(lane->gpu->handle, lane->engine, 1))
		return true;
	layer_permit_missed(lane);
	return false;
}

void layer_permit_report(struct layer_lane *lane)
{
	if (!lane->unreported)
		return;
	for (; lane->unreported; lane->unreported--) {
		rtx_gpu_complete(lane->gpu->handle, lane->engine, lane->unreported_ns);
		lane->unreported_ns = 0;
	}
	if (lane_reported(&lane->state))
		layer_permit_wake(lane);
}

void layer_permit_return(struct layer_lane *lane)
{
	rtx_gpu_complete(lane->gpu->handle, lane->engine, 0);
}

int layer_permit_wait(struct layer_lane *lane, uint64_t until_ns)
{
	return rtx_gpu_launch_until(lane->gpu->handle, lane->engine, until_ns);
}

void layer_permit_listen(struct layer_lane *lane, uint64_t until_ns)
{
	rtx_gpu_wait_revoked(lane->gpu->handle, lane->engine, until_ns);
}

void layer_permit_sleep(struct layer_lane *lane, unsigned int signals, uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000ull),
			      .tv_nsec = (long)(ns % 1000000000ull) };

	atomic_store(&lane->sleeping, true);
	syscall(SYS_futex, &lane->signals, FUTEX_WAIT_PRIVATE, signals,
		ns == UINT64_MAX ? NULL : &t, NULL, 0);
	atomic_store(&lane->sleeping, false);
}
