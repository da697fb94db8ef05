// SPDX-License-Identifier: MIT
/*
 * backend_nvidia.c - the backend of processes that carry nothing of rtxg: it opens the lever, tells
 * it of the vGPUs and of who is to be in which, and waits on the lever's descriptor. The core's
 * slice policy decides, the lever acts. May do neither.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "access.h"
#include "backend_nvidia.h"
#include "breathe.h"
#include "history.h"
#include "nvidia.h"
#include "nvidia_metrics.h"
#include "nvidia_promise.h"
#include "nvidia_report.h"
#include "objects.h"
#include "process.h"
#include "program.h"
#include "rtxg/releases.h"
#include "timeline.h"

/*
 * The daemon's real-time priority while the lever governs a process: above what programs are given,
 * below the guardian's.
 */
#define URGENCY 40

/* For the next daemon: which process is in which vGPU. Root alone can read it. */
#define RUN_DIR	      "/run/rtxg"
#define ASSIGNED_PATH RUN_DIR "/nvidia-assigned"

static sd_event_source *source;
static uint64_t own_ns;
static bool left; /* a process is gone that may have been the last one of its vGPU */

static void on_log(void *ctx, enum lever_nvidia_log level, const char *line)
{
	if (level <= LEVER_NVIDIA_INFO)
		fprintf(stderr, "rtxgd: nvidia: %s\n", line);
}

static void on_stay(void *ctx, uint32_t gpu, uint32_t pid, uint32_t vgpu, uint64_t start_ns,
		    uint64_t end_ns)
{
	timeline_stay(gpu, pid, vgpu, start_ns, end_ns);
}

static void on_acted(void *ctx, uint32_t gpu, uint32_t pid, uint64_t at_ns, uint64_t took_ns,
		     uint64_t what)
{
	timeline_acted(gpu, pid, at_ns, took_ns, what);
}

static void on_context(void *ctx, uint32_t gpu, uint32_t pid, const char *comm, uint32_t vgpu,
		       bool alive)
{
	timeline_context(gpu, pid, comm, vgpu, alive);
	if (alive)
		history_wake(nvidia.daemon);
	else
		left = true;
}

/* Transient vGPUs whose creators have ended go with their last process. */
static void collect(struct daemon *d)
{
	left = false;
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		objects_vgpu_collect(d, &d->vgpus[i]);
}

static bool populates(struct daemon *d, const struct vgpu *vgpu)
{
	int number = nvidia.lever ? nvidia_number(vgpu) : -1;

	for (uint32_t g = 0; number >= 0 && g < lever_nvidia_gpus(nvidia.lever); g++) {
		struct rtxg_slice_view view;

		if (!lever_nvidia_vgpu_view(nvidia.lever, g, (uint32_t)number, &view) &&
		    view.contexts)
			return true;
	}
	return false;
}

static uint64_t own_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void stop(void)
{
	source = sd_event_source_disable_unref(source);
	lever_nvidia_close(nvidia.lever);
	nvidia.lever = NULL;
	if (nvidia.locked)
		munlockall();
	nvidia.locked = false;
	memset(nvidia.slots, 0, sizeof(nvidia.slots));
	for (uint32_t g = 0; g < LEVER_NVIDIA_GPUS; g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			free(nvidia.samples[g][v]);
			nvidia.samples[g][v] = NULL;
		}
	timeline_close();
}

static int on_lever(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	uint64_t began = own_time();
	int ret = lever_nvidia_dispatch(nvidia.lever);

	own_ns += own_time() - began;
	if (ret < 0) {
		snprintf(nvidia.why_not, sizeof(nvidia.why_not),
			 "the lever let go: %s; see the log, and restart rtxgd", strerror(-ret));
		fprintf(stderr, "rtxgd: nvidia: %s\n", nvidia.why_not);
		stop();
		left = true;
	}
	if (left)
		collect(nvidia.daemon);
	/* It may be due again at once. */
	breathe(nvidia.daemon);
	return 0;
}

static bool is_default(const struct vgpu *vgpu)
{
	return !strcmp(vgpu->name, "default");
}

static void vgpu_changed(struct daemon *d, const struct vgpu *vgpu)
{
	bool made = false;
	int number;

	if (!nvidia.lever || (vgpu->gpu[0] && nvidia_gpu(vgpu->gpu) < 0))
		return;
	number = nvidia_number(vgpu);
	if (is_default(vgpu) && number < 0) {
		nvidia.slots[0] = vgpu;
		number = 0;
		made = true;
	}
	for (int i = 1; i < (int)LEVER_NVIDIA_VGPUS && number < 0; i++)
		if (!nvidia.slots[i]) {
			nvidia.slots[i] = vgpu;
			nvidia.periods[i] = 0;
			number = i;
			made = true;
		}
	if (number >= 0)
		nvidia_tell((uint32_t)number);
	else
		fprintf(stderr,
			"rtxgd: nvidia: vGPU %s is one too many for the lever (%u): its processes "
			"share one\n",
			vgpu->name, LEVER_NVIDIA_VGPUS - 1);
	if (made && !nvidia.starting)
		lever_nvidia_restore(nvidia.lever);
}

/* A vGPU as the file of assignments has it: the period of its releases, and its name. */
static bool on_label(void *ctx, uint32_t number, char *text, size_t size)
{
	if (!nvidia.slots[number])
		return false;
	snprintf(text, size, "%llu %s", (unsigned long long)nvidia.periods[number],
		 nvidia.slots[number]->name);
	return true;
}

static int on_number(void *ctx, const char *label)
{
	unsigned long long period;
	int at = 0;

	if (sscanf(label, "%llu %n", &period, &at) != 1 || !at)
		return -1;
	for (int i = 0; i < (int)LEVER_NVIDIA_VGPUS; i++)
		if (nvidia.slots[i] && !strcmp(nvidia.slots[i]->name, label + at)) {
			if (i && !nvidia.periods[i] && period) {
				nvidia.periods[i] = period;
				nvidia_tell((uint32_t)i);
			}
			return i;
		}
	return -1;
}

static void vgpu_gone(struct daemon *d, const struct vgpu *vgpu)
{
	struct lever_nvidia_process *list;
	int n, number = nvidia.lever ? nvidia_number(vgpu) : -1;

	if (number <= 0)
		return;
	/* Those that belonged here by their cgroup belong elsewhere from now on. */
	nvidia.slots[number] = NULL;
	lever_nvidia_place(nvidia.lever, true);
	list = nvidia_processes(&n);
	for (int i = 0; i < n; i++)
		if (list[i].vgpu == (uint32_t)number)
			lever_nvidia_assign(nvidia.lever, list[i].pid, 0);
	free(list);
	for (uint32_t g = 0; g < lever_nvidia_gpus(nvidia.lever); g++) {
		lever_nvidia_vgpu_remove(nvidia.lever, g, (uint32_t)number);
		free(nvidia.samples[g][number]);
		nvidia.samples[g][number] = NULL;
	}
	nvidia_promise_forget((uint32_t)number);
	nvidia_metrics_forget((uint32_t)number);
}

/* By its cgroup, or by a rule: as access_match() says of tasks. */
static uint32_t on_place(void *ctx, uint32_t pid)
{
	char name[RTXG_NAME_MAX + 1];
	const struct vgpu *vgpu;
	uid_t uid;
	int number;

	if (!process_owner((pid_t)pid, &uid))
		return 0;
	access_match(nvidia.daemon, (pid_t)pid, uid, name);
	vgpu = objects_vgpu_find(nvidia.daemon, name);
	number = vgpu && access_vgpu_user(vgpu, uid) ? nvidia_number(vgpu) : 0;
	return number > 0 ? (uint32_t)number : 0;
}

static void place(struct daemon *d, bool all)
{
	if (nvidia.lever)
		lever_nvidia_place(nvidia.lever, all);
}

static int assign(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns,
		  bool sets)
{
	int ret, number = vgpu ? nvidia_number(vgpu) : 0;

	if (!nvidia.lever)
		return -EOPNOTSUPP;
	/* it belongs to a GPU that is not the lever's, or there are too many */
	if (number < 0)
		return vgpu->gpu[0] ? -ENODEV : -ENOSPC;
	if (number && !sets && period_ns && nvidia.periods[number] != period_ns)
		return -EPERM;
	if (number && sets && nvidia.periods[number] != period_ns) {
		nvidia.periods[number] = period_ns;
		nvidia_tell((uint32_t)number);
	}
	ret = lever_nvidia_assign(nvidia.lever, (uint32_t)pid, (uint32_t)number);
	if (!ret)
		collect(d); /* it may have been the last one where it was */
	return ret;
}

static void on_breathe(void *ctx)
{
	breathe(nvidia.daemon);
}

static int on_start_program(void *ctx, const char *path, const char *const words[],
			    const int files[2], pid_t *pid)
{
	struct program program = { .path = path,
				   .files = { { files[0], 3 }, { files[1], 4 } },
				   .count = 2,
				   .group = true,
				   .deaf = true };

	for (unsigned int i = 0; words[i] && i < PROGRAM_WORDS; i++)
		program.words[i] = words[i];
	return program_start(&program, pid);
}

static void start(struct daemon *d)
{
	struct lever_nvidia_options options = { .size = sizeof(options),
						.probe = true,
						.releases = NV_RELEASES_PATH,
						.assigned = ASSIGNED_PATH };
	struct lever_nvidia_ops ops = { .size = sizeof(ops),
					.log = on_log,
					.context = on_context,
					.stay = on_stay,
					.acted = on_acted,
					.label = on_label,
					.number = on_number,
					.place = on_place,
					.breathe = on_breathe,
					.start_program = on_start_program };

	nvidia.daemon = d;
	if (&nvidia_stand) {
		options = *nvidia_stand.options;
	} else if (access("/dev/nvidiactl", F_OK)) {
		return;
	} else if (geteuid() != 0) {
		snprintf(nvidia.why_not, sizeof(nvidia.why_not),
			 "it needs root: run rtxgd as the system's service");
		return;
	} else if (mkdir(RUN_DIR, 0755) && errno != EEXIST) {
		/*
		 * The socket's unit makes it, and so does the daemon itself at its usual socket.
		 * The lever says what it cannot write.
		 */
		fprintf(stderr, "rtxgd: nvidia: cannot make " RUN_DIR ": %s\n", strerror(errno));
	}
	timeline_open();
	if (lever_nvidia_open(&options, &ops, &nvidia.lever, nvidia.why_not,
			      sizeof(nvidia.why_not))) {
		fprintf(stderr, "rtxgd: nvidia: %s; CUDA programs run as if rtxg were not there\n",
			nvidia.why_not);
		return;
	}
	if (sd_event_add_io(d->event, &source, lever_nvidia_fd(nvidia.lever), EPOLLIN, on_lever,
			    NULL) < 0) {
		snprintf(nvidia.why_not, sizeof(nvidia.why_not), "the event loop refused it");
		stop();
		return;
	}
	sd_event_source_set_priority(source, SD_EVENT_PRIORITY_IMPORTANT);
	/* The thread that stops programs in time must not wait for memory. */
	nvidia.locked = !mlockall(MCL_CURRENT | MCL_FUTURE);
	if (!nvidia.locked)
		fprintf(stderr,
			"rtxgd: nvidia: memory is not locked: %s; the unit says "
			"LimitMEMLOCK=infinity\n",
			strerror(errno));
	nvidia.starting = true;
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used)
			vgpu_changed(d, &d->vgpus[i]);
	nvidia.starting = false;
	lever_nvidia_restore(nvidia.lever);
	lever_nvidia_place(nvidia.lever, true);
	if (&nvidia_stand)
		nvidia_stand.started(d, nvidia.lever);
}

static void sample(struct daemon *d)
{
	uint64_t began = own_time();

	if (nvidia.lever)
		lever_nvidia_catch_up(nvidia.lever);
	own_ns += own_time() - began;
	nvidia_metrics_sample(d);
	nvidia_report_sample(d);
}

static uint64_t own_time_ns(void)
{
	return own_ns;
}

static bool has(struct daemon *d, const char *gpu)
{
	return nvidia_gpu(gpu) >= 0;
}

const struct backend backend_nvidia = {
	.name = "nvidia",
	.urgency = URGENCY,
	.start = start,
	.stop = stop,
	.admit = nvidia_promise_admit,
	.vgpu_changed = vgpu_changed,
	.vgpu_gone = vgpu_gone,
	.assign = assign,
	.place = place,
	.populates = populates,
	.busy = nvidia_busy,
	.own_ns = own_time_ns,
	.sample = sample,
	.has = has,
	.gpus = nvidia_report_gpus,
	.tasks = nvidia_report_tasks,
	.stats = nvidia_report_stats,
	.memory = nvidia_report_memory,
	.metrics = nvidia_metrics,
	.history = nvidia_report_history,
	.timeline = timeline_report,
	.doctor = nvidia_report_doctor,
};
