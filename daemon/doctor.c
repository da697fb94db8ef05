// SPDX-License-Identifier: MIT
/*
 * doctor.c - the daemon looks at itself: what works, what does not and what to do about it, and how
 * much there may be of everything. Changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend_gate.h"
#include "ceiling.h"
#include "devices.h"
#include "discard.h"
#include "doctor.h"
#include "host.h"
#include "interrupts.h"
#include "keep.h"
#include "memory.h"
#include "report.h"
#include "user.h"

/* --- limits ----------------------------------------------------------------------------------- */

static void put_use(json_t *o, const char *name, uint64_t used, uint64_t max)
{
	json_object_set_new(
		o, name, json_pack("{s:I, s:I}", "used", (json_int_t)used, "max", (json_int_t)max));
}

static void put_range(json_t *o, const char *name, uint64_t min, uint64_t max, uint64_t standard)
{
	json_object_set_new(o, name,
			    json_pack("{s:I, s:I, s:I}", "min", (json_int_t)min, "max",
				      (json_int_t)max, "default", (json_int_t)standard));
}

static json_t *names(const char *(*name)(uint32_t))
{
	json_t *list = json_array();

	for (uint32_t i = 0; name(i); i++)
		json_array_append_new(list, json_string(name(i)));
	return list;
}

json_t *doctor_limits(struct daemon *d)
{
	json_t *o = json_object(), *devices = json_array();
	uint64_t gpus = 0, vgpus = 0, pools = 0;

	for (uint32_t i = 0; i < GPUS_MAX; i++) {
		struct gpu *gpu = &d->gpus[i];

		if (!gpu->used)
			continue;
		gpus++;
		json_array_append_new(devices,
				      json_pack("{s:s, s:I, s:I}", "gpu", gpu->name, "reserved_ppm",
						(json_int_t)backend_gate_reserved(d, gpu),
						"available_ppm",
						(json_int_t)backend_gate_available(d, gpu)));
	}
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		vgpus += d->vgpus[i].used;
	for (uint32_t i = 0; i < POOLS_MAX; i++)
		pools += d->pools[i].used;
	put_use(o, "gpus", gpus, d->gpus_max);
	put_use(o, "vgpus", vgpus, VGPUS_MAX);
	put_use(o, "tasks", d->tasks_count, d->tasks_max);
	put_use(o, "pools", pools, POOLS_MAX);
	report_put(o, "tasks_per_user", d->tasks_per_user);
	report_put(o, "message_bytes", RTXG_REQUEST_MAX);
	report_put(o, "launches_outstanding", RTXG_LAUNCHES_MAX);
	put_range(o, "priority", RTXG_PRIORITY_MIN, RTXG_PRIORITY_MAX, RTXG_PRIORITY_MIN);
	put_range(o, "weight", RTXG_WEIGHT_MIN, RTXG_WEIGHT_MAX, RTXG_WEIGHT_DEFAULT);
	put_range(o, "period_ns", RTXG_PERIOD_MIN_NS, RTXG_PERIOD_MAX_NS, RTXG_PERIOD_DEFAULT_NS);
	put_range(o, "min_ppm", 0, RTXG_PPM, 0);
	put_range(o, "max_ppm", 1, RTXG_PPM, RTXG_PPM);
	json_object_set_new(o, "policies", names(rtxg_gpu_policy_name));
	json_object_set_new(o, "task_policies", names(rtxg_task_policy_name));
	json_object_set_new(o, "engines", names(rtxg_engine_name));
	json_object_set_new(o, "devices", devices);
	json_object_set_new(o, "users", user_report(d));
	json_object_set_new(o, "opencl", devices_report());
	return o;
}

/* --- doctor ----------------------------------------------------------------------------------- */

/* Nine tenths of a quota: the next program of that user may be refused. */
static bool is_near(uint64_t used, uint64_t max)
{
	return used * 10 >= max * 9;
}

/* A line for each ordinary user: what of each quota is taken. */
static void check_users(const struct daemon *d, json_t *list)
{
	for (const struct user *user = d->users; user; user = user->next) {
		uint32_t pending = discard_pending(user->uid);
		char name[32];

		if (user->trusted)
			continue;
		snprintf(name, sizeof(name), "user %u", user->uid);
		report_check(list, name,
			     !is_near(user->connections, USER_CONNECTIONS) &&
				     !is_near(user->tasks, d->tasks_per_user) &&
				     !is_near(user->gpus, USER_GPUS) &&
				     !is_near(user->accounts, USER_ACCOUNTS) &&
				     !is_near(user->cgroups, USER_CGROUPS) &&
				     !is_near(user->unread_bytes, USER_UNREAD_BYTES) &&
				     !is_near(pending, USER_FOREIGN),
			     "end programs of this user (rtxg ps, rtxg limits -u); TasksPerUser= "
			     "sets the quota of tasks",
			     "%u of %u connections, %u of %u tasks, %u of %u names of GPUs, "
			     "%u of %u vGPUs on GPUs, %u of %u cgroups, %.4g of %.4g MiB of unread "
			     "replies, %u of %u "
			     "descriptors that do "
			     "not close",
			     user->connections, USER_CONNECTIONS, user->tasks, d->tasks_per_user,
			     user->gpus, USER_GPUS, user->accounts, USER_ACCOUNTS, user->cgroups,
			     USER_CGROUPS, (double)user->unread_bytes / (1 << 20),
			     (double)USER_UNREAD_BYTES / (1 << 20), pending, USER_FOREIGN);
	}
}

json_t *doctor_report(struct daemon *d, const struct connection *viewer)
{
	json_t *o = json_object(), *list = json_array();
	struct timespec zero = { 0 };
	struct rlimit files;
	int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, pidfd, fd;
	const char *wrong;

	report_check(list, "daemon", true, "", "rtxgd of %s, socket %s",
		     d->system ? "the system" : "the user", d->socket_path);
	report_check(list, "host",
		     d->host->here ? d->host_given || access(RTXG_MODULE_DEVICE, F_OK) : true,
		     "rtxg host stop (programs that run go on unmanaged, or wait, until they are "
		     "started "
		     "again), and start rtxgd as root",
		     "%s",
		     !d->host->here
			     ? "the kernel module hosts GPU tasks, this daemon speaks for it; "
			       "rmmod needs \"rtxg host stop\" first"
		     : access(RTXG_MODULE_DEVICE, F_OK) ? "this daemon hosts GPU tasks itself"
		     : d->host_given
			     ? "this daemon hosts GPU tasks itself, as it was told to, though the "
			       "kernel module is loaded"
			     : "the kernel module was loaded after this daemon had started: "
			       "programs that start now go to the "
			       "module, where the vGPUs of this daemon are not known");
	report_check(list, "configuration", !d->config_fail[0],
		     "correct the file and say \"rtxg host reload\"", "%s",
		     d->config_fail[0] ? d->config_fail : "read without errors");
	keep_doctor(d, list);
	check_users(d, list);
	wrong = d->host->check(d);
	if (d->host->here)
		report_check(list, "scheduler", !wrong,
			     "this is an error in rtxg; please report it", "%s",
			     wrong ? wrong : "every invariant holds");
	getrlimit(RLIMIT_NOFILE, &files);
	report_check(
		list, "descriptors", files.rlim_cur >= 4 * 1024, "set LimitNOFILE=65536 for rtxgd",
		"%llu descriptors are allowed; a task needs 3", (unsigned long long)files.rlim_cur);
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0u);
	report_check(list, "pidfd", pidfd >= 0, "use Linux 5.3 or newer", "%s",
		     pidfd >= 0 ? "the death of a task is seen at once"
				: "the death of a task is seen by its connection only");
	if (pidfd >= 0)
		close(pidfd);
	fd = (int)syscall(SYS_epoll_pwait2, d->fast, NULL, 0, &zero, NULL, 0);
	report_check(list, "timer", fd >= 0 || errno != ENOSYS, "use Linux 5.11 or newer", "%s",
		     errno != ENOSYS ? "budgets end to the nanosecond (epoll_pwait2)"
				     : "budgets end to the millisecond");
	if (d->host->here)
		report_check(list, "real-time", policy == SCHED_FIFO || policy == SCHED_RR,
			     "the system unit sets CPUSchedulingPolicy=fifo; a user's daemon needs "
			     "RLIMIT_RTPRIO",
			     "rtxgd itself runs under %s",
			     policy == SCHED_FIFO ? "SCHED_FIFO"
			     : policy == SCHED_RR ? "SCHED_RR"
						  : "SCHED_OTHER");
	if (d->host->here)
		report_check(list, "inheritance", !d->inherit_error,
			     "give rtxgd CAP_SYS_NICE, or RLIMIT_RTPRIO for threads of its own "
			     "user, and let it write beside its socket",
			     "%s%s",
			     d->inherit_error ? "a thread that holds a GPU of a pool could not be "
						"given the priority that it inherits: "
					      : "threads that hold a GPU of a pool run at the "
						"priority that they inherit",
			     d->inherit_error ? strerrordesc_np(d->inherit_error) : "");
	ceiling_doctor(d, list);
	interrupts_doctor(d, list);
	fd = access("/dev/rtxg", F_OK);
	report_check(list, "module", fd == 0,
		     "load rtxg.ko for interrupt interception; programs run without it",
		     "/dev/rtxg %s", fd == 0 ? "is there" : "is not there");
	backend_doctor(d, list, viewer);
	memory_doctor(d, list, report_check);
	json_object_set_new(o, "checks", list);
	return o;
}
