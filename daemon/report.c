// SPDX-License-Identifier: MIT
/*
 * report.c - what the listing requests show, as docs/reference/protocol.md has it. Reads, and
 * changes nothing.
 */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nvidia.h"
#include "host.h"
#include "objects.h"
#include "report.h"

static json_t *number(uint64_t value)
{
	return json_integer(value > INT64_MAX ? -1 : (json_int_t)value);
}

static void put(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, number(value));
}

static void put_text(json_t *object, const char *name, const char *text)
{
	json_t *string = text ? json_string(text) : json_null();

	/* Names of processes may be any bytes. */
	json_object_set_new(object, name, string ? string : json_string("?"));
}

static void put_bool(json_t *object, const char *name, bool value)
{
	json_object_set_new(object, name, json_boolean(value));
}

static const char *origin_name(enum origin origin)
{
	static const char *const names[] = { "builtin", "config", "runtime", "transient", "task" };

	return names[origin];
}

/* --- GPUs and vGPUs --------------------------------------------------------------------------- */

json_t *report_gpu_params(const struct rtxg_gpu_params *p)
{
	json_t *o = json_object();

	put_text(o, "policy", rtxg_gpu_policy_name(p->policy));
	put_text(o, "overrun", p->overrun == RTXG_OVERRUN_CHARGE ? "charge" : "forgive");
	put(o, "period_ns", p->period_ns);
	put(o, "window_ns", p->window_ns);
	put(o, "band_wait_ns", p->band_wait_ns);
	put(o, "think_ns", p->think_ns);
	put(o, "revoke_timeout_ns", p->revoke_timeout_ns);
	put(o, "switch_ppm", p->switch_ppm);
	return o;
}

static uint64_t reserved_on(struct daemon *d, const struct gpu *gpu)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && d->vgpus[i].on[gpu->id])
			sum += d->vgpus[i].params.min_ppm;
	return sum;
}

static uint64_t available_on(struct daemon *d, const struct gpu *gpu)
{
	uint64_t taken = reserved_on(d, gpu) + gpu->params.switch_ppm;

	return taken < RTXG_PPM ? RTXG_PPM - taken : 0;
}

json_t *report_gpu(struct daemon *d, const struct gpu *gpu)
{
	json_t *o = report_gpu_params(&gpu->params);

	put_text(o, "gpu", gpu->name);
	put(o, "reserved_ppm", reserved_on(d, gpu));
	put(o, "available_ppm", available_on(d, gpu));
	put(o, "tasks", gpu->tasks);
	json_object_set_new(o, "levers", json_pack("[s]", "gate"));
	put_text(o, "origin", origin_name(gpu->origin));
	return o;
}

static void put_vgpu_params(json_t *o, const struct vgpu *vgpu)
{
	put_text(o, "vgpu", vgpu->name);
	put(o, "min_ppm", vgpu->params.min_ppm);
	put(o, "max_ppm", vgpu->params.max_ppm);
	if (vgpu->params.weight)
		put(o, "weight", vgpu->params.weight);
	put(o, "priority", vgpu->params.priority);
	put(o, "period_ns", vgpu->params.period_ns);
	put_text(o, "policy", rtxg_task_policy_name(vgpu->params.policy));
}

json_t *report_vgpu(struct daemon *d, const struct vgpu *vgpu)
{
	json_t *o = json_object(), *users = json_array(), *on = json_array();
	bool conserving = true, any = false;

	put_vgpu_params(o, vgpu);
	put_text(o, "gpu", vgpu->gpu[0] ? vgpu->gpu : NULL);
	put(o, "task_priority", vgpu->task_priority);
	for (uint32_t i = 0; i < vgpu->users_count; i++)
		json_array_append_new(users, json_string(vgpu->users[i]));
	json_object_set_new(o, "users", users);
	put_text(o, "origin", origin_name(vgpu->origin));
	put_text(o, "source", vgpu->source[0] ? vgpu->source : NULL);
	put(o, "tasks", vgpu->tasks);
	for (uint32_t i = 0; i < GPUS_MAX; i++) {
		struct gpu *gpu = &d->gpus[i];

		if (!gpu->used || (vgpu->gpu[0] && strcmp(vgpu->gpu, gpu->name)))
			continue;
		any = true;
		conserving &= objects_work_conserving(vgpu, gpu);
		if (vgpu->on[i])
			json_array_append_new(on, json_pack("{s:s, s:i}", "gpu", gpu->name, "tasks",
							    (int)vgpu->on[i]->tasks));
	}
	put_bool(o, "work_conserving", any && conserving);
	json_object_set_new(o, "on", on);
	return o;
}

/* --- tasks ------------------------------------------------------------------------------------ */

static void read_comm(pid_t pid, char comm[64])
{
	char path[64];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, comm, 63);
		close(fd);
	}
	comm[n > 0 ? n : 0] = 0;
	comm[strcspn(comm, "\n")] = 0;
}

static json_t *report_task_engine(struct daemon *d, const struct task *task, uint32_t engine,
				  bool *device)
{
	struct lane_view lane;
	json_t *o = json_object();

	d->host->lane_view(d, task, engine, &lane);
	*device |= lane.device_ns != 0;
	put_text(o, "engine", rtxg_engine_name(engine));
	put_text(o, "state", lane.state);
	put(o, "in_flight", lane.in_flight);
	put(o, "launches", lane.launches);
	put(o, "completions", lane.stats.completions);
	put(o, "busy_ns", lane.stats.busy_ns);
	put(o, "used_ns", lane.stats.used_ns);
	put(o, "device_ns", lane.device_ns);
	put(o, "wait_ns", lane.stats.wait_ns);
	put(o, "grants", lane.stats.grants);
	put(o, "overruns", lane.stats.overruns);
	put(o, "expelled", lane.stats.expelled);
	return o;
}

json_t *report_task(struct daemon *d, const struct task *task)
{
	json_t *o = json_object(), *engines = json_array();
	char comm[64], path[64], exe[4096];
	bool device = false;
	ssize_t n;

	read_comm(task->pid, comm);
	snprintf(path, sizeof(path), "/proc/%d/exe", task->pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = 0;
	put(o, "task", task->id);
	put(o, "pid", (uint64_t)task->pid);
	put(o, "uid", task->uid);
	put_text(o, "comm", comm);
	put_text(o, "exe", exe);
	put_text(o, "vgpu", task->vgpu->name);
	put_text(o, "gpu", task->gpu->name);
	put(o, "priority",
	    task->permit.params.priority ? task->permit.params.priority : RTXG_PRIORITY_MIN);
	put(o, "runtime_ns", task->permit.params.runtime_ns);
	put(o, "deadline_ns",
	    task->permit.params.deadline_ns ? task->permit.params.deadline_ns
					    : task->permit.params.period_ns);
	put(o, "period_ns", task->permit.params.period_ns);
	put(o, "opened_ns", task->permit.opened_ns);
	if (task->moving_to)
		put_text(o, "moving_to", task->moving_to->name);
	if (task->pool) {
		put_text(o, "pool", task->pool->name);
		put_text(o, "pool_gpu",
			 task->permit.pool_held ? d->gpus[task->permit.pool_gpu].name : NULL);
	}
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		json_array_append_new(engines, report_task_engine(d, task, i, &device));
	put_bool(o, "device_unknown", !device);
	json_object_set_new(o, "engines", engines);
	return o;
}

/* --- shares over time ------------------------------------------------------------------------- */

/*
 * What was charged and claimed since the sample nearest to `span` ago, as parts of the time since
 * then.
 */
static void used_over(struct daemon *d, const struct account *account, uint32_t engine,
		      uint64_t busy_now, uint64_t now, uint64_t span, uint32_t *busy_ppm,
		      uint32_t *device_ppm)
{
	const struct account_engine *e = &account->engines[engine];
	uint64_t busy = busy_now - e->last.busy_ns,
		 device = account->permit.engines[engine].device_ns - e->last_device_ns;
	uint64_t oldest = d->samples > SLOTS ? d->samples - SLOTS : 0;
	uint64_t from = now > span ? now - span : 0, start, length;
	uint64_t at = d->samples;

	if (account->since_ns > from)
		from = account->since_ns;
	if (account->slots) {
		while (at > oldest + 1 && d->times[(at - 1) % (SLOTS + 1)] + SLOT_NS / 2 >= from) {
			at--;
			busy += account->slots[at % SLOTS][engine].busy_ns;
			device += account->slots[at % SLOTS][engine].device_ns;
		}
	}
	start = at ? d->times[at % (SLOTS + 1)] : from;
	if (start < account->since_ns)
		start = account->since_ns;
	length = now > start ? now - start : 1;
	*busy_ppm = busy >= length ? RTXG_PPM : (uint32_t)(busy * RTXG_PPM / length);
	*device_ppm = device >= length ? RTXG_PPM : (uint32_t)(device * RTXG_PPM / length);
}

json_t *report_stats(struct daemon *d, const struct gpu *only, bool tasks)
{
	json_t *o = json_object(), *gpus = json_array();
	uint64_t now;

	d->host->count(d);
	now = rtxg_now_ns();
	put(o, "now_ns", now);
	for (uint32_t g = 0; g < GPUS_MAX; g++) {
		struct gpu *gpu = &d->gpus[g];
		uint64_t used_1s[RTXG_ENGINES] = { 0 }, used_10s[RTXG_ENGINES] = { 0 },
			 waiting[RTXG_ENGINES] = { 0 };
		uint32_t holder[RTXG_ENGINES];
		json_t *one, *vgpus, *engines;
		bool conserving = true;

		if (!gpu->used || (only && gpu != only))
			continue;
		memset(holder, 0xff, sizeof(holder));
		vgpus = json_array();
		for (uint64_t order = 0, next; (next = RTXG_TIME_NEVER), true; order = next) {
			struct vgpu *vgpu = NULL;
			struct account *account;
			json_t *v, *list;

			/* In the order of creation. */
			for (uint32_t i = 0; i < VGPUS_MAX; i++)
				if (d->vgpus[i].used && d->vgpus[i].on[g] &&
				    d->vgpus[i].created > order && d->vgpus[i].created < next) {
					vgpu = &d->vgpus[i];
					next = vgpu->created;
				}
			if (!vgpu)
				break;
			account = vgpu->on[g];
			v = json_object();
			put_vgpu_params(v, vgpu);
			put_bool(v, "work_conserving", objects_work_conserving(vgpu, gpu));
			conserving &= objects_work_conserving(vgpu, gpu);
			put(v, "tasks", account->tasks);
			list = json_array();
			for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
				struct rtxg_account_view view;
				uint32_t busy_1s, busy_10s, device_1s, device_10s;
				json_t *e = json_object();

				d->host->account_view(d, account, i, now, &view);
				used_over(d, account, i, view.stats.busy_ns, now, NS_PER_S,
					  &busy_1s, &device_1s);
				used_over(d, account, i, view.stats.busy_ns, now, 10 * NS_PER_S,
					  &busy_10s, &device_10s);
				used_1s[i] += busy_1s;
				used_10s[i] += busy_10s;
				waiting[i] += view.waiting;
				if (view.holder != RTXG_NONE)
					holder[i] = view.holder;
				put_text(e, "engine", rtxg_engine_name(i));
				put(e, "used_1s_ppm", busy_1s);
				put(e, "used_10s_ppm", busy_10s);
				put(e, "device_1s_ppm", device_1s);
				put(e, "device_10s_ppm", device_10s);
				put(e, "busy_ns", view.stats.busy_ns);
				put(e, "used_ns", view.stats.used_ns);
				put(e, "device_ns", account->permit.engines[i].device_ns);
				put(e, "wait_ns", view.stats.wait_ns);
				put(e, "grants", view.stats.grants);
				put(e, "launches", account->permit.engines[i].launches);
				put(e, "completions", view.stats.completions);
				put(e, "overruns", view.stats.overruns);
				put(e, "expelled", view.stats.expelled);
				put(e, "throttled", view.stats.throttled);
				put(e, "waiting", view.waiting);
				json_object_set_new(e, "holder",
						    view.holder == RTXG_NONE ? json_null()
									     : number(view.holder));
				json_object_set_new(e, "credit_ns", json_integer(view.credit_ns));
				put(e, "deadline_ns", view.deadline_ns);
				json_array_append_new(list, e);
			}
			json_object_set_new(v, "engines", list);
			json_array_append_new(vgpus, v);
		}
		one = json_object();
		put_text(one, "gpu", gpu->name);
		put_text(one, "policy", rtxg_gpu_policy_name(gpu->params.policy));
		put(one, "reserved_ppm", reserved_on(d, gpu));
		put(one, "tasks", gpu->tasks);
		put_bool(one, "work_conserving", conserving);
		engines = json_array();
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			struct task *task = holder[i] < TASKS_MAX ? &d->tasks[holder[i]] : NULL;
			json_t *e = json_object();

			put_text(e, "engine", rtxg_engine_name(i));
			put(e, "used_1s_ppm", used_1s[i]);
			put(e, "used_10s_ppm", used_10s[i]);
			put(e, "waiting", waiting[i]);
			json_object_set_new(e, "holder", task ? number(task->id) : json_null());
			put_text(e, "holder_vgpu", task ? task->vgpu->name : NULL);
			json_array_append_new(engines, e);
		}
		json_object_set_new(one, "engines", engines);
		json_object_set_new(one, "vgpus", vgpus);
		json_array_append_new(gpus, one);
	}
	nvidia_stats(d, gpus);
	json_object_set_new(o, "gpus", gpus);
	if (tasks) {
		json_t *list = json_array();

		for (uint32_t i = 0; i < d->tasks_top; i++)
			if (d->tasks[i].used && (!only || d->tasks[i].gpu == only))
				json_array_append_new(list, report_task(d, &d->tasks[i]));
		nvidia_tasks(d, list, NULL, NULL, 0);
		json_object_set_new(o, "tasks", list);
	}
	return o;
}

json_t *report_history(struct daemon *d, const struct gpu *only, uint64_t since, bool has_since)
{
	/*
	 * The slot numbered n lies between times[n] and times[n + 1]; the border before the very
	 * first one is gone when the ring is full.
	 */
	uint64_t first = d->samples > SLOTS ? d->samples - SLOTS : 0;
	json_t *o = json_object(), *times = json_array(), *all = json_array();

	if (has_since && since > first)
		first = since < d->samples ? since : d->samples;
	put(o, "slot_ns", SLOT_NS);
	put(o, "now_ns", rtxg_now_ns());
	put(o, "first", first);
	put(o, "next", d->samples);
	for (uint64_t n = first; n <= d->samples; n++)
		json_array_append_new(times, number(d->times[n % (SLOTS + 1)]));
	json_object_set_new(o, "times_ns", times);
	for (uint32_t id = 0; id < ACCOUNTS_MAX; id++) {
		struct account *account = &d->accounts[id];

		if (!account->used || !account->slots || (only && account->gpu != only))
			continue;
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			json_t *series, *busy, *device, *completions, *backlogged;
			bool any = false;

			for (uint64_t n = first; n < d->samples && !any; n++) {
				const struct slot *slot = &account->slots[n % SLOTS][i];

				any = slot->busy_ns || slot->device_ns || slot->backlogged_ns ||
				      slot->completions;
			}
			if (!any)
				continue;
			busy = json_array();
			device = json_array();
			completions = json_array();
			backlogged = json_array();
			for (uint64_t n = first; n < d->samples; n++) {
				const struct slot *slot = &account->slots[n % SLOTS][i];

				json_array_append_new(busy, number(slot->busy_ns));
				json_array_append_new(device, number(slot->device_ns));
				json_array_append_new(completions, number(slot->completions));
				json_array_append_new(backlogged, number(slot->backlogged_ns));
			}
			series = json_object();
			put_text(series, "gpu", account->gpu->name);
			put_text(series, "vgpu", account->vgpu->name);
			put_text(series, "engine", rtxg_engine_name(i));
			json_object_set_new(series, "busy_ns", busy);
			json_object_set_new(series, "device_ns", device);
			json_object_set_new(series, "completions", completions);
			json_object_set_new(series, "backlogged_ns", backlogged);
			json_array_append_new(all, series);
		}
	}
	nvidia_history(d, all, first);
	json_object_set_new(o, "series", all);
	return o;
}

/* --- limits and doctor ------------------------------------------------------------------------ */

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

json_t *report_limits(struct daemon *d)
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
						(json_int_t)reserved_on(d, gpu), "available_ppm",
						(json_int_t)available_on(d, gpu)));
	}
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		vgpus += d->vgpus[i].used;
	for (uint32_t i = 0; i < POOLS_MAX; i++)
		pools += d->pools[i].used;
	put_use(o, "gpus", gpus, GPUS_MAX);
	put_use(o, "vgpus", vgpus, VGPUS_MAX);
	put_use(o, "tasks", d->tasks_count, d->tasks_max);
	put_use(o, "pools", pools, POOLS_MAX);
	put(o, "tasks_per_user", d->tasks_per_user);
	put(o, "message_bytes", RTXG_REQUEST_MAX);
	put(o, "launches_outstanding", RTXG_LAUNCHES_MAX);
	put_range(o, "priority", RTXG_PRIORITY_MIN, RTXG_PRIORITY_MAX, RTXG_PRIORITY_MIN);
	put_range(o, "weight", RTXG_WEIGHT_MIN, RTXG_WEIGHT_MAX, RTXG_WEIGHT_DEFAULT);
	put_range(o, "period_ns", RTXG_PERIOD_MIN_NS, RTXG_PERIOD_MAX_NS, RTXG_PERIOD_DEFAULT_NS);
	put_range(o, "min_ppm", 0, RTXG_PPM, 0);
	put_range(o, "max_ppm", 0, RTXG_PPM, RTXG_PPM);
	json_object_set_new(o, "policies", names(rtxg_gpu_policy_name));
	json_object_set_new(o, "task_policies", names(rtxg_task_policy_name));
	json_object_set_new(o, "engines", names(rtxg_engine_name));
	json_object_set_new(o, "devices", devices);
	return o;
}

static void check(json_t *list, const char *name, bool ok, const char *remedy, const char *format,
		  ...) __attribute__((format(printf, 5, 6)));
static void check(json_t *list, const char *name, bool ok, const char *remedy, const char *format,
		  ...)
{
	char detail[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(detail, sizeof(detail), format, ap);
	va_end(ap);
	json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:s}", "check", name, "ok", ok,
					      "detail", detail, "remedy", ok ? "" : remedy));
}

static void check_nvidia(void *ctx, const char *name, bool ok, const char *detail)
{
	check(ctx, name, ok, "see docs/nvidia.md: what the lever needs, and what it does without",
	      "%s", detail);
}

json_t *report_doctor(struct daemon *d)
{
	json_t *o = json_object(), *list = json_array();
	struct timespec zero = { 0 };
	struct rlimit files;
	int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, pidfd, fd;
	const char *wrong;

	check(list, "daemon", true, "", "rtxgd of %s, socket %s",
	      d->system ? "the system" : "the user", d->socket_path);
	check(list, "host",
	      d->host->here ? d->host_given || access(RTXG_MODULE_DEVICE, F_OK) : true,
	      "rtxg host stop (programs that run go on unmanaged, or wait, until they are started "
	      "anew), and start rtxgd as root",
	      "%s",
	      !d->host->here ? "the kernel module hosts GPU tasks, this daemon speaks for it; "
			       "rmmod needs \"rtxg host stop\" first"
	      : access(RTXG_MODULE_DEVICE, F_OK) ? "this daemon hosts GPU tasks itself"
	      : d->host_given ? "this daemon hosts GPU tasks itself, as it was told to, though the "
				"kernel module is loaded"
			      : "the kernel module was loaded after this daemon had started: "
				"programs that start now go to the "
				"module, where the vGPUs of this daemon are not known");
	check(list, "configuration", !d->config_fail[0],
	      "correct the file and say \"rtxg host reload\"", "%s",
	      d->config_fail[0] ? d->config_fail : "read without errors");
	wrong = d->host->check(d);
	if (d->host->here)
		check(list, "scheduler", !wrong, "this is an error in rtxg; please report it", "%s",
		      wrong ? wrong : "every invariant holds");
	getrlimit(RLIMIT_NOFILE, &files);
	check(list, "descriptors", files.rlim_cur >= 4 * 1024, "set LimitNOFILE=65536 for rtxgd",
	      "%llu descriptors are allowed; a task needs 3", (unsigned long long)files.rlim_cur);
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0u);
	check(list, "pidfd", pidfd >= 0, "use Linux 5.3 or newer", "%s",
	      pidfd >= 0 ? "the death of a task is seen at once"
			 : "the death of a task is seen by its connection only");
	if (pidfd >= 0)
		close(pidfd);
	fd = (int)syscall(SYS_epoll_pwait2, d->fast, NULL, 0, &zero, NULL, 0);
	check(list, "timer", fd >= 0 || errno != ENOSYS, "use Linux 5.11 or newer", "%s",
	      errno != ENOSYS ? "budgets end to the nanosecond (epoll_pwait2)"
			      : "budgets end to the millisecond");
	if (d->host->here)
		check(list, "real-time", policy == SCHED_FIFO || policy == SCHED_RR,
		      "the system unit sets CPUSchedulingPolicy=fifo; a user's daemon needs "
		      "RLIMIT_RTPRIO",
		      "rtxgd itself runs under %s",
		      policy == SCHED_FIFO ? "SCHED_FIFO"
		      : policy == SCHED_RR ? "SCHED_RR"
					   : "SCHED_OTHER");
	fd = access("/dev/rtxg", F_OK);
	check(list, "module", fd == 0,
	      "load rtxg.ko for interrupt interception; programs run without it", "/dev/rtxg %s",
	      fd == 0 ? "is there" : "is not there");
	nvidia_doctor(check_nvidia, list);
	json_object_set_new(o, "checks", list);
	return o;
}
