// SPDX-License-Identifier: MIT
/*
 * sync.c - how a launch's completion is seen (Linux-RTXG, section III.C: FENCE polls a word, NOTIFY
 * sleeps until told). May not touch the page: it waits, and launch.c accounts.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "cpu.h"
#include "errors.h"
#include "handle.h"
#include "nvrm.h"
#include "rtxg_nvrm.h"
#include "sync.h"

/*
 * No one need wake the futex when a GPU writes the word by itself, so look again from time to time.
 */
#define LOOK_AGAIN_NS	    (50 * 1000ull)
#define FUTEX_LOOK_AGAIN_NS NS_PER_MS

int rtx_lib_sync_check(const struct rtx_gpu_notify *in, struct rtx_gpu_notify *out, uint64_t *of)
{
	*of = 0;
	if (!in) {
		out->how = RTX_SYNC_CALLER;
		return 0;
	}
	if (in->size < offsetof(struct rtx_gpu_notify, word))
		return rtx_lib_failed(-EINVAL,
				      "notify.size is %zu; set it to sizeof(struct rtx_gpu_notify)",
				      in->size);
	for (size_t i = sizeof(*out); i < in->size; i++)
		if (((const unsigned char *)in)[i])
			return rtx_lib_failed(
				-E2BIG,
				"notify has a member that this librtxg does not know (byte "
				"%zu is not 0)",
				i);
	*out = RTX_INIT(struct rtx_gpu_notify);
	out->fd = -1;
	memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
	/* Others wait for them by what they find there: the host of the task, and a sync. */
	if (out->how != RTX_SYNC_FENCE && out->how != RTX_SYNC_NOTIFY)
		out->timeline = NULL;
	if (out->how != RTX_SYNC_FENCE && (out->how != RTX_SYNC_NOTIFY || out->fd >= 0))
		out->word = NULL;
	if (out->until_ns && (out->how == RTX_SYNC_CALLER || out->how == RTX_SYNC_WAIT))
		return rtx_lib_failed(-EINVAL, "notify.until_ns is for RTX_SYNC_FENCE and "
					       "RTX_SYNC_NOTIFY; others end by themselves");
	if (out->timeline && (out->how == RTX_SYNC_FENCE || out->how == RTX_SYNC_NOTIFY)) {
		int ret;

		/* First, so that one that is closed from here on is none of another's. */
		*of = rtx_lib_timeline_opened(out->timeline);
		ret = rtx_lib_timeline_check(out->timeline);
		if (ret)
			return ret;
		out->word = rtx_timeline_word(out->timeline);
		out->fd = -1;
		return out->how == RTX_SYNC_NOTIFY ? rtx_timeline_arm(out->timeline, out->value)
						   : 0;
	}
	switch (out->how) {
	case RTX_SYNC_CALLER:
		return 0;
	case RTX_SYNC_FENCE:
		break;
	case RTX_SYNC_NOTIFY:
		if (out->fd < 0)
			break;
		if (fcntl(out->fd, F_GETFD) < 0)
			return rtx_lib_failed(-EINVAL, "notify.fd %d is not an open descriptor",
					      out->fd);
		return 0;
	case RTX_SYNC_WAIT:
		if (!out->wait)
			return rtx_lib_failed(
				-EINVAL,
				"notify.wait is NULL; RTX_SYNC_WAIT needs a function that waits");
		return 0;
	default:
		return rtx_lib_failed(-EINVAL, "notify.how %d does not exist", (int)out->how);
	}
	if (!out->word || ((uintptr_t)out->word & 3u))
		return rtx_lib_failed(-EINVAL,
				      "notify.word %p is not the address of an aligned 32-bit word",
				      (void *)out->word);
	return 0;
}

static bool reached(const struct rtx_gpu_notify *how)
{
	return (int32_t)(__atomic_load_n(how->word, __ATOMIC_ACQUIRE) - how->value) >= 0;
}

static uint64_t limit_of(const struct rtx_gpu_notify *how)
{
	return how->until_ns ? how->until_ns : NEVER;
}

/* The handle is being closed, or the time is over: an error, and the launch stays outstanding. */
static int ended(struct rtx_gpu *h, const struct rtx_gpu_notify *how)
{
	pthread_testcancel(); /* not every way to wait has such a place by itself */
	if (load(&h->closing))
		return rtx_lib_failed(-ECANCELED, "the handle was closed by another thread");
	if (how->until_ns && rtxg_now_ns() >= how->until_ns)
		return rtx_lib_not_yet(-ETIMEDOUT, "the launch did not complete in time");
	return 0;
}

/* So long from now, or until the limit. */
static uint64_t soon(const struct rtx_gpu_notify *how, uint64_t ns)
{
	uint64_t at = rtxg_now_ns() + ns;

	return at < limit_of(how) ? at : limit_of(how);
}

/* How long the host is left to wait before this thread looks whether the handle is being closed. */
#define HOST_SYNC_NS (100 * NS_PER_MS)
/* So long without the value, and the timeline's own wait is asked whether it can still come. */
#define HOST_DOUBT_NS NS_PER_S

/* A timeline's word is there no more when the timeline has been closed. */
static int gone(const struct rtx_gpu_notify *how)
{
	return how->timeline && rtx_lib_timeline_check(how->timeline)
		       ? rtx_lib_failed(-ECANCELED, "the timeline was closed by another thread")
		       : 0;
}

/*
 * The host knows the word, and wakes by the interrupt: 1 if it cannot, else as rtx_lib_sync_wait().
 */
static int wait_in_host(struct rtx_gpu *h, unsigned int engine, const struct rtx_gpu_notify *how)
{
	uint32_t seen = __atomic_load_n(how->word, __ATOMIC_ACQUIRE);
	uint64_t asked = rtxg_now_ns();
	int ret = 0;

	while (!ret && !reached(how)) {
		ret = ended(h, how);
		if (!ret)
			ret = gone(how);
		if (!ret && how->timeline)
			ret = rtx_lib_timeline_went_back(how->timeline, &seen);
		/* The host knows interrupts and the word: not that a GPU is lost. */
		if (!ret && how->timeline && rtxg_now_ns() - asked > HOST_DOUBT_NS) {
			asked = rtxg_now_ns();
			ret = rtx_lib_timeline_alive(how->timeline);
		}
		if (ret)
			break;
		ret = h->transport->sync(h, engine, how->value, soon(how, HOST_SYNC_NS));
		if (ret == -EINTR)
			return rtx_lib_failed(-EINTR, "a signal came while waiting for completion");
		ret = ret && ret != -ETIMEDOUT;
	}
	return ret;
}

static void leave(void *timeline)
{
	if (timeline)
		rtx_lib_timeline_leave(timeline);
}

/* As wait_in_host(). What closes the timeline waits for this thread, which may be cancelled. */
static int wait_beside_host(struct rtx_gpu *h, unsigned int engine,
			    const struct rtx_gpu_notify *how)
{
	int ret = how->timeline ? rtx_lib_timeline_enter(how->timeline) : 0;

	if (ret)
		return ret;
	pthread_cleanup_push(leave, how->timeline);
	ret = wait_in_host(h, engine, how);
	pthread_cleanup_pop(1);
	return ret;
}

/* False: a signal came. */
static bool look_again_later(void)
{
	return clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ .tv_nsec = LOOK_AGAIN_NS },
			       NULL) != EINTR;
}

static int wait_fence(struct rtx_gpu *h, const struct rtx_gpu_notify *how)
{
	bool sleeps = rtx_lib_yield_costs_budget();

	while (!reached(how)) {
		int ret = ended(h, how);

		if (ret)
			return ret;
		if (sleeps) {
			if (!look_again_later())
				return rtx_lib_failed(-EINTR,
						      "a signal came while waiting for completion");
		} else {
			sched_yield();
		}
	}
	return 0;
}

static int wait_word(struct rtx_gpu *h, const struct rtx_gpu_notify *how)
{
	while (!reached(how)) {
		uint32_t now = __atomic_load_n(how->word, __ATOMIC_ACQUIRE);
		int ret = ended(h, how);

		if ((int32_t)(now - how->value) >= 0)
			break;
		if (ret)
			return ret;
		ret = rtx_lib_futex_wait(how->word, now, soon(how, FUTEX_LOOK_AGAIN_NS), true);
		/* memory of a device has no futex */
		if (ret == -EFAULT && !look_again_later())
			ret = -EINTR;
		if (ret == -EINTR)
			return rtx_lib_failed(-EINTR, "a signal came while waiting for completion");
	}
	return 0;
}

/*
 * Takes one completion from an eventfd. Another thread may have taken it, also where the program
 * has left the descriptor to block: -EAGAIN.
 */
static int take(int fd)
{
	uint64_t count;
	struct iovec into = { .iov_base = &count, .iov_len = sizeof(count) };
	ssize_t n = preadv2(fd, &into, 1, -1, RWF_NOWAIT);

	/* of a file that cannot be read so it is known to be readable, and that is all */
	if (n < 0 && errno != EAGAIN)
		n = read(fd, &count, sizeof(count));
	return n < 0 && errno == EAGAIN ? -EAGAIN : 0;
}

static int wait_fd(struct rtx_gpu *h, const struct rtx_gpu_notify *how)
{
	struct pollfd p = { .fd = how->fd, .events = POLLIN };

	for (;;) {
		uint64_t now = rtxg_now_ns(), at = soon(how, 100 * NS_PER_MS);
		int n = poll(&p, 1, at > now ? (int)((at - now) / NS_PER_MS) + 1 : 0), ret;

		if (n < 0 && errno == EINTR)
			return rtx_lib_failed(-EINTR, "a signal came while waiting for completion");
		if (n < 0)
			return rtx_lib_failed(-errno, "waiting for descriptor %d failed: %s",
					      how->fd, rtx_lib_error_name(errno));
		ret = load(&h->closing) || !n ? ended(h, how) : 0;
		if (ret)
			return ret;
		if (!n)
			continue;
		if (p.revents & POLLNVAL)
			return rtx_lib_failed(
				-EBADF, "descriptor %d was closed while a launch waited for it",
				how->fd);
		if (!(p.revents & POLLIN))
			return rtx_lib_failed(-EIO, "descriptor %d cannot become readable any more",
					      how->fd);
		if (take(how->fd) == -EAGAIN)
			continue;
		return 0;
	}
}

/* A wait that the host takes no part in. */
static int wait_here(struct rtx_gpu *h, const struct rtx_gpu_notify *how)
{
	switch (how->how) {
	case RTX_SYNC_FENCE:
		return wait_fence(h, how);
	case RTX_SYNC_NOTIFY:
		return how->fd >= 0 ? wait_fd(h, how) : wait_word(h, how);
	case RTX_SYNC_WAIT:
		return how->wait(how->arg);
	default:
		return 0;
	}
}

int rtx_lib_sync_wait(struct rtx_gpu *h, unsigned int engine, const struct rtx_gpu_notify *how,
		      bool fenced)
{
	/* a FENCE is polled, where that costs no more than the CPU */
	bool sleeps = how->how == RTX_SYNC_NOTIFY
			      ? how->fd < 0
			      : how->how == RTX_SYNC_FENCE && rtx_lib_yield_costs_budget();
	int ret = 1;

	if (fenced && sleeps && h->transport->sync)
		ret = wait_beside_host(h, engine, how);
	if (ret <= 0)
		return ret;
	if (how->timeline && (how->how == RTX_SYNC_FENCE || how->how == RTX_SYNC_NOTIFY))
		return rtx_lib_timeline_wait(how->timeline, how->value, how->how, limit_of(how),
					     &h->closing);
	/* its time asleep is the GPU's, too */
	rtx_lib_cpu_waits_for_gpu(true);
	ret = wait_here(h, how);
	rtx_lib_cpu_waits_for_gpu(false);
	return ret;
}
