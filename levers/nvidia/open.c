// SPDX-License-Identifier: MIT
/*
 * open.c - how the lever begins and ends: driver, GPUs, log, discovery, guardian, what was there
 * before; and all of it given back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "../../bpf/discovery.h"
#include "contexts.h"
#include "carry_out.h"
#include "fecs.h"
#include "guardian.h"
#include "lookout.h"
#include "others.h"
#include "policy.h"
#include "probe.h"
#include "pump.h"
#include "releases_write.h"
#include "state.h"
#include "unknown.h"
#include "vgpus.h"
#include "watch.h"
#include "timer.h"

/* what a GPU allows until a probe says otherwise */
#define NV_CAN_ALL                                                              \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)
#define LOG_RECORDS 16384

void lever_nvidia_close(struct lever_nvidia *l)
{
	if (!l)
		return;
	nv_lookout_stop(l);
	if (l->gpus)
		lever_nvidia_enable(l, false);
	if (l->guardian > 0)
		nv_guardian_stop(&l->journal, l->guardian, l->guardian_fd);
	discovery_close(l->discovery);
	for (uint32_t i = 0; i < l->gpus; i++) {
		for (uint32_t k = 0; k < l->gpu[i].high; k++)
			if (l->gpu[i].context[k].process)
				nv_sight_close(l, &l->gpu[i], &l->gpu[i].context[k]);
		if (l->gpu[i].has_log)
			nv_fecs_close(&l->gpu[i].fecs);
		nv_rm_gpu_close(&l->gpu[i].rm);
		free(l->gpu[i].mem);
	}
	nv_save_assigned(l);
	nv_assigned_free(&l->assigned);
	nv_releases_close(l->options.releases, l->releases);
	nv_registry_free(&l->registry);
	l->rm.alive = NULL;
	nv_journal_close(&l->journal);
	if (l->kmsg >= 0)
		close(l->kmsg);
	if (l->timerfd >= 0)
		close(l->timerfd);
	if (l->epoll >= 0)
		close(l->epoll);
	nv_rm_close(&l->rm);
	free(l);
}

static int source(struct lever_nvidia *l, int fd, uint32_t id)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u32 = id };

	return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

/* What was not opened yet has a descriptor that close() leaves alone. */
static void begin(struct lever_nvidia *l, const struct lever_nvidia_options *options,
		  const struct lever_nvidia_ops *ops)
{
	l->journal.fd = l->timerfd = l->epoll = l->kmsg = l->guardian_fd = -1;
	l->guardian = -1;
	l->pump_again = l->save_again = UINT64_MAX;
	l->rm.ctl = -1;
	if (options)
		memcpy(&l->options, options,
		       options->size < sizeof(l->options) ? options->size : sizeof(l->options));
	if (ops)
		memcpy(&l->ops, ops, ops->size < sizeof(l->ops) ? ops->size : sizeof(l->ops));
	l->sys = l->options.sys ? l->options.sys : nv_sys_patient();
	l->self = (uint32_t)getpid();
	l->enabled = true;
	nv_registry_init(&l->registry);
	nv_contexts_begin(l);
}

static int open_driver(struct lever_nvidia *l, const char **why)
{
	struct nv_rm_gpu gpus[RM_GPUS_MAX];
	int n, err;

	*why = "cannot open /dev/nvidiactl: is NVIDIA's driver loaded, and are you root?";
	err = nv_rm_open(&l->rm, l->sys);
	if (err)
		return err;
	*why = "no GPU could be opened: MIG mode, or a driver whose interface differs";
	n = nv_rm_gpus_open(&l->rm, gpus, RM_GPUS_MAX);
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		l->gpu[i].rm = gpus[i];
		l->gpu[i].rm.rm = &l->rm;
	}
	l->gpus = (uint32_t)n;
	return 0;
}

static int open_loop(struct lever_nvidia *l, const char **why)
{
	*why = "cannot make the event loop";
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (l->epoll < 0 || l->timerfd < 0)
		return -errno;
	return source(l, l->timerfd, NV_SOURCE_TIMER);
}

/* Without the log there are no measured shares: then nothing is governed on this GPU. */
static void open_log(struct lever_nvidia *l, struct nv_gpu *g)
{
	unsigned int i = (unsigned int)(g - l->gpu);

	g->log_error = g->rm.mig == 1 ? -EOPNOTSUPP : nv_fecs_open(&g->fecs, &g->rm, LOG_RECORDS);
	g->has_log = !g->log_error;
	if (g->has_log)
		g->log_error = nv_fecs_calibrate(&g->fecs);
	if (!g->log_error)
		return;
	g->can = 0;
	if (g->rm.mig == 1)
		nv_log(l, LEVER_NVIDIA_ERROR,
		       "gpu %u is in MIG mode, in which the driver gives out no log of the whole "
		       "GPU: nothing is governed on it; \"nvidia-smi -i %u -mig 0\" ends that mode",
		       i, i);
	else
		nv_log(l, LEVER_NVIDIA_ERROR,
		       "gpu %u: no context-switch log: %s (driver 0x%x %s, reason %u); shares "
		       "cannot be measured, so nothing is governed",
		       i, strerror(-g->log_error), l->rm.status, nv_rm_status_name(l->rm.status),
		       g->fecs.reason);
}

static int open_gpus(struct lever_nvidia *l, const char **why)
{
	*why = "out of memory";
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];

		g->timer = UINT64_MAX;
		g->mem = calloc(1, rtxg_slice_size(LEVER_NVIDIA_VGPUS, LEVER_NVIDIA_CONTEXTS));
		if (!g->mem)
			return -ENOMEM;
		g->vgpu[0] = true;
		g->can = NV_CAN_ALL;
		open_log(l, g);
	}
	return 0;
}

_Static_assert(DISCOVER_CHANNEL_USERD(NV_CHANNEL_MOVED) == 36 &&
		       DISCOVER_CHANNEL_USERD(NV_CHANNEL_MOVED - 1) == 32,
	       "discovery and the library have one release at which a channel's fields moved");

static int open_discovery(struct lever_nvidia *l, const char **why)
{
	int err;

	if (l->options.no_discovery)
		return 0;
	*why = "cannot load the discovery program: root, and a kernel with BTF, are needed";
	l->discovery = discovery_open(l->rm.release, &err);
	if (!l->discovery)
		return err;
	err = source(l, discovery_fd(l->discovery), NV_SOURCE_DISCOVERY);
	if (err)
		return err;
	l->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (l->kmsg >= 0) {
		lseek(l->kmsg, 0, SEEK_END);
		source(l, l->kmsg, NV_SOURCE_KMSG);
	}
	return 0;
}

/* The guardian, then the policy: without a guardian the policy may not stop. */
static int open_policy(struct lever_nvidia *l, const char **why)
{
	int err;

	nv_guard_first(l);
	*why = "the slice policy refused its parameters";
	err = nv_restart_policy(l);
	if (!err && l->options.probe)
		nv_probe(l);
	return err;
}

/* Programs that are older than the lever, and the vGPUs in which an earlier daemon had put them. */
static void take_over(struct lever_nvidia *l)
{
	if (l->options.assigned)
		nv_read_assigned(l);
	/* What they have made since discovery began is known then, and not looked for. */
	nv_pump_all(l);
	if (!l->options.no_adoption)
		nv_adopt_old(l);
}

static void open_releases(struct lever_nvidia *l)
{
	int err;

	if (!l->options.releases)
		return;
	err = nv_releases_open(l->options.releases, &l->releases);
	if (err)
		nv_log(l, LEVER_NVIDIA_WARNING, "%s: %s: librtxg-cuda.so is told nothing",
		       l->options.releases, strerror(-err));
}

int lever_nvidia_open(const struct lever_nvidia_options *options,
		      const struct lever_nvidia_ops *ops, struct lever_nvidia **lever, char *reason,
		      size_t reason_size)
{
	struct lever_nvidia *l = calloc(1, sizeof(*l));
	const char *why = "out of memory";
	int err = -ENOMEM;

	*lever = NULL;
	if (!l)
		goto fail;
	begin(l, options, ops);
	err = open_driver(l, &why);
	if (!err)
		err = open_loop(l, &why);
	if (!err) {
		why = "cannot make the journal";
		err = nv_journal_create(&l->journal);
	}
	if (!err) /* each call may wait for the driver's lock: who comes to an end does not hang */
		l->rm.alive = &l->journal.page->heartbeat_ns;
	if (!err)
		err = open_gpus(l, &why);
	if (!err)
		err = open_discovery(l, &why);
	if (!err)
		err = open_policy(l, &why);
	if (err)
		goto fail;
	take_over(l);
	open_releases(l);
	err = l->options.no_lookout ? 0 : nv_lookout_start(l);
	if (err)
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "cannot start the lookout: %s; while the driver makes the lever wait, it "
		       "does not know which programs work",
		       strerror(-err));
	if (!l->ops.number)
		lever_nvidia_restore(l);
	nv_watch_begin(l);
	nv_beat(l);
	nv_arm(l);
	*lever = l;
	return 0;
fail:
	if (reason && reason_size)
		snprintf(reason, reason_size, "%s (%s; driver status 0x%x %s)", why, strerror(-err),
			 l ? l->rm.status : 0, l ? nv_rm_status_name(l->rm.status) : "");
	lever_nvidia_close(l);
	return err;
}
