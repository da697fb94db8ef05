// SPDX-License-Identifier: MIT
/*
 * nvidia_report.c - what lists, statistics and the doctor show of the NVIDIA lever. It comes from
 * the lever's accounts, and nothing depends on it. Changes nothing but its own history.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "access.h"
#include "breathe.h"
#include "history.h"
#include "nvidia.h"
#include "nvidia_promise.h"
#include "nvidia_report.h"
#include "process.h"
#include "reply.h"
#include "report.h"
#include "series.h"

static json_t *gpu_name(uint32_t gpu)
{
	return json_sprintf("nvidia%u", gpu);
}

static const char *policy_name(uint32_t gpu, const struct lever_nvidia_gpu *view)
{
	return view->lost || view->log_error ? "none" : nvidia_promise_mode(gpu);
}

static bool counts(const struct vgpu *vgpu, uint32_t gpu)
{
	return nvidia_number(vgpu) >= 0 && nvidia_applies(vgpu, gpu);
}

void nvidia_report_gpus(struct daemon *d, json_t *gpus)
{
	for (uint32_t g = 0; nvidia.lever && g < lever_nvidia_gpus(nvidia.lever); g++) {
		struct lever_nvidia_gpu view;
		uint64_t reserved = report_reserved(d, counts, g);
		json_t *o = json_object();

		lever_nvidia_gpu(nvidia.lever, g, &view);
		json_object_set_new(o, "gpu", gpu_name(g));
		report_put_text(o, "policy", policy_name(g, &view));
		report_put_text(o, "overrun", "charge");
		report_put(o, "period_ns", 0);
		report_put(o, "window_ns", 0);
		report_put(o, "band_wait_ns", 0);
		report_put(o, "think_ns", 0);
		report_put(o, "revoke_timeout_ns", 0);
		report_put(o, "switch_ppm", 0);
		report_put(o, "ahead_ns", 0);
		report_put(o, "early_ns", 0);
		report_put(o, "reserved_ppm", reserved);
		report_put(o, "available_ppm", reserved < RTXG_PPM ? RTXG_PPM - reserved : 0);
		report_put(o, "tasks", view.contexts);
		json_object_set_new(o, "levers", json_pack("[s]", "nvidia"));
		report_put_text(o, "origin", "builtin");
		report_put_text(o, "pci", view.pci);
		json_array_append_new(gpus, o);
	}
}

/* An engine of a process or vGPU; only the compute engine has something to say. */
static json_t *no_engine(uint32_t engine, const char *const *counters)
{
	json_t *o = json_object();

	report_put_text(o, "engine", rtxg_engine_name(engine));
	for (; *counters; counters++)
		report_put(o, *counters, 0);
	return o;
}

static const char *const task_counters[] = { "in_flight", "launches",  "completions", "busy_ns",
					     "used_ns",	  "device_ns", "wait_ns",     "grants",
					     "overruns",  "expelled",  NULL };
static const char *const vgpu_counters[] = {
	"used_1s_ppm", "used_10s_ppm", "device_1s_ppm", "device_10s_ppm", "busy_ns",	 "used_ns",
	"device_ns",   "wait_ns",      "grants",	"launches",	  "completions", "overruns",
	"expelled",    "throttled",    "waiting",	"credit_ns",	  "deadline_ns", NULL
};

/* Launches are not seen: the lever counts how often the process came onto the engine. */
static json_t *task_engines(const struct lever_nvidia_process *p)
{
	static const char *const states[] = { "idle", "waiting", "running", "stopped" };
	json_t *engines = json_array(), *compute = no_engine(RTXG_ENGINE_COMPUTE, task_counters);

	report_put_text(compute, "state", states[p->state < 4 ? p->state : 0]);
	report_put(compute, "busy_ns", p->work_ns);
	report_put(compute, "used_ns", p->work_ns);
	report_put(compute, "device_ns", p->stay_ns);
	report_put(compute, "wait_ns", p->stopped_ns);
	report_put(compute, "grants", p->stays);
	json_array_append_new(engines, compute);
	for (uint32_t e = 1; e < RTXG_ENGINES; e++) {
		json_t *none = no_engine(e, task_counters);

		report_put_text(none, "state", "idle");
		json_array_append_new(engines, none);
	}
	return engines;
}

static json_t *task_of(const struct lever_nvidia_process *p, const struct connection *viewer,
		       struct report_process *said)
{
	const struct vgpu *vgpu = p->managed ? nvidia.slots[p->vgpu] : NULL;
	json_t *o = json_object();
	uid_t uid;

	json_object_set_new(o, "task", json_null());
	report_put_text(o, "lever", "nvidia");
	json_object_set_new(o, "uid",
			    process_owner((pid_t)p->pid, &uid) ? json_integer(uid) : json_null());
	report_put_process(o, (pid_t)p->pid, p->comm, viewer, said);
	report_put_text(o, "vgpu", p->managed ? nvidia_vgpu_name(p->vgpu) : NULL);
	json_object_set_new(o, "gpu", p->since_ns ? gpu_name(p->gpu) : json_null());
	report_put(o, "priority", vgpu ? vgpu->params.priority : RTXG_PRIORITY_MIN);
	report_put(o, "runtime_ns", 0);
	report_put(o, "deadline_ns", 0);
	report_put(o, "period_ns", p->managed ? nvidia.periods[p->vgpu] : 0);
	if (vgpu && vgpu->latency_ns)
		report_put(o, "latency_ns", vgpu->latency_ns);
	report_put(o, "opened_ns", p->since_ns);
	report_put_bool(o, "managed", p->managed);
	report_put_text(o, "remedy", p->remedy ? p->remedy : "");
	report_put_bool(o, "mps", p->mps);
	json_object_set_new(o, "mps_server", p->server ? json_integer(p->server) : json_null());
	report_put_bool(o, "adopted", p->adopted);
	report_put(o, "channels", p->channels);
	report_put(o, "slice_ns", p->slice_ns);
	json_object_set_new(o, "memory",
			    p->memory_bytes == LEVER_NVIDIA_NOT_KNOWN
				    ? json_null()
				    : json_integer((json_int_t)p->memory_bytes));
	report_put_bool(o, "device_unknown", false);
	json_object_set_new(o, "engines", task_engines(p));
	return o;
}

/* Processes that are looked at in one piece of a list. */
#define AT_ONCE 32u

/* What is looked at, and has a row if it is wanted: rows->next of them. */
struct listed_process {
	uint32_t pid, gpu;
};

static bool is_new(const struct backend_rows *rows, const struct lever_nvidia_process *p)
{
	const struct listed_process *seen = rows->seen;

	for (uint32_t i = 0; i < rows->next; i++)
		if (seen[i].pid == p->pid && seen[i].gpu == p->gpu)
			return false;
	return true;
}

static bool is_wanted(const struct backend_filter *filter, const struct lever_nvidia_process *p)
{
	if ((filter->pid && p->pid != filter->pid) ||
	    (filter->gpu && (int)p->gpu != nvidia_gpu(filter->gpu)) ||
	    (filter->gpu && filter->on_gpu && !p->since_ns) ||
	    (filter->vgpu && (!p->managed || strcmp(nvidia_vgpu_name(p->vgpu), filter->vgpu))))
		return false;
	return access_sees_process(filter->viewer, (pid_t)p->pid);
}

/*
 * The lever's list has no order that holds from one piece to the next. So each piece takes the list
 * as it is by then, and goes on with what no piece has looked at.
 */
bool nvidia_report_tasks(struct daemon *d, const struct backend_filter *filter,
			 struct backend_rows *rows)
{
	struct lever_nvidia_process *list;
	struct report_process said = { 0 };
	int n, at = 0, wanted = 0;
	struct listed_process *seen;
	uint32_t end;

	if (filter->numbered || !nvidia.lever)
		return true;
	seen = realloc(rows->seen, (rows->next + AT_ONCE) * sizeof(*seen));
	if (!seen) {
		rows->out->bad = true;
		return true;
	}
	rows->seen = seen;
	list = nvidia_processes(&n);
	for (end = rows->next + AT_ONCE; at < n && rows->next < end; at++) {
		if (!is_new(rows, &list[at]))
			continue;
		seen[rows->next++] =
			(struct listed_process){ .pid = list[at].pid, .gpu = list[at].gpu };
		if (is_wanted(filter, &list[at]))
			list[wanted++] = list[at];
	}
	if (wanted)
		lever_nvidia_memory(nvidia.lever, list, wanted);
	for (int i = 0; i < wanted; i++) {
		reply_rows_add(rows->out, task_of(&list[i], filter->viewer, &said));
		breathe(d);
	}
	free(list);
	return at == n;
}

/* For how long the engine had nothing to do while a stopped context had, at each border. */
static uint64_t idle_ns[LEVER_NVIDIA_GPUS][SLOTS + 1];

void nvidia_report_sample(struct daemon *d)
{
	uint64_t border = d->samples + 1;

	for (uint32_t g = 0;
	     nvidia.lever && g < lever_nvidia_gpus(nvidia.lever) && g < LEVER_NVIDIA_GPUS; g++) {
		struct rtxg_slice_gpu_view view;

		if (!lever_nvidia_gpu_slice(nvidia.lever, g, &view))
			idle_ns[g][border % (SLOTS + 1)] = view.idle_ns;
	}
	if (nvidia.lever)
		nvidia_promise_sample(d);

	for (uint32_t g = 0;
	     nvidia.lever && g < lever_nvidia_gpus(nvidia.lever) && g < LEVER_NVIDIA_GPUS; g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			struct rtxg_slice_view view;
			struct nvidia_sample now;

			if (!nvidia_counters(g, v, &now, &view) ||
			    (!nvidia.samples[g][v] && !now.stays))
				continue;
			if (!nvidia.samples[g][v]) /* all that went before it is zero */
				nvidia.samples[g][v] =
					calloc(SLOTS + 1, sizeof(struct nvidia_sample));
			if (nvidia.samples[g][v])
				nvidia.samples[g][v][border % (SLOTS + 1)] = now;
		}
}

/* What was used since the sample nearest to `span` ago, as parts of the time since then. */
static void used_over(const struct daemon *d, const struct nvidia_sample *ring,
		      const struct nvidia_sample *now, uint64_t at, uint64_t span,
		      uint32_t *busy_ppm, uint32_t *device_ppm)
{
	uint64_t border = history_border(d, history_oldest(d), at > span ? at - span : 0);
	uint64_t start = d->times[border % (SLOTS + 1)], length = at > start ? at - start : 1;
	const struct nvidia_sample *then;

	*busy_ppm = *device_ppm = 0;
	if (!ring)
		return;
	then = &ring[border % (SLOTS + 1)];
	if (now->busy_ns > then->busy_ns)
		*busy_ppm = report_ppm(now->busy_ns - then->busy_ns, length);
	if (now->device_ns > then->device_ns)
		*device_ppm = report_ppm(now->device_ns - then->device_ns, length);
}

static json_t *vgpu_stats(struct daemon *d, uint32_t gpu, uint32_t number, uint64_t at,
			  uint32_t sums[3])
{
	uint32_t busy_1s, busy_10s, device_1s, device_10s;
	const struct vgpu *vgpu = nvidia.slots[number];
	struct rtxg_slice_view view;
	json_t *o, *e, *engines;
	struct nvidia_sample now;

	if (!nvidia_counters(gpu, number, &now, &view))
		return NULL;
	used_over(d, nvidia.samples[gpu][number], &now, at, NS_PER_S, &busy_1s, &device_1s);
	used_over(d, nvidia.samples[gpu][number], &now, at, 10 * NS_PER_S, &busy_10s, &device_10s);
	o = json_object();
	report_put_text(o, "vgpu", nvidia_vgpu_name(number));
	report_put(o, "min_ppm", vgpu ? vgpu->params.min_ppm : 0);
	report_put(o, "max_ppm", vgpu ? vgpu->params.max_ppm : RTXG_PPM);
	if (vgpu && vgpu->params.weight)
		report_put(o, "weight", vgpu->params.weight);
	report_put(o, "priority", vgpu ? vgpu->params.priority : RTXG_PRIORITY_MIN);
	report_put(o, "period_ns", nvidia.periods[number]);
	report_put_text(o, "policy", "fifo");
	nvidia_promise_put(o, gpu, number, &view);
	json_object_set_new(o, "work_conserving",
			    json_boolean(!vgpu || vgpu->params.max_ppm > vgpu->params.min_ppm));
	report_put(o, "tasks", view.contexts);
	e = no_engine(RTXG_ENGINE_COMPUTE, vgpu_counters);
	report_put(e, "used_1s_ppm", busy_1s);
	report_put(e, "used_10s_ppm", busy_10s);
	report_put(e, "device_1s_ppm", device_1s);
	report_put(e, "device_10s_ppm", device_10s);
	report_put(e, "busy_ns", view.work_ns);
	report_put(e, "used_ns", view.work_ns);
	report_put(e, "device_ns", view.stay_ns);
	report_put(e, "wait_ns", view.stopped_ns);
	report_put(e, "grants", view.stays);
	report_put(e, "expelled", view.suspended);
	report_put(e, "waiting", view.active);
	json_object_set_new(e, "holder", json_null());
	json_object_set_new(e, "credit_ns", json_integer(-(json_int_t)view.lag_ns));
	engines = json_array();
	json_array_append_new(engines, e);
	for (uint32_t i = 1; i < RTXG_ENGINES; i++) {
		e = no_engine(i, vgpu_counters);
		json_object_set_new(e, "holder", json_null());
		json_array_append_new(engines, e);
	}
	json_object_set_new(o, "engines", engines);
	sums[0] += busy_1s;
	sums[1] += busy_10s;
	sums[2] += view.active;
	return o;
}

static void put_sharing(struct daemon *d, json_t *o, uint32_t gpu, uint64_t at)
{
	uint64_t border = history_border(d, history_oldest(d), at > NS_PER_S ? at - NS_PER_S : 0);
	uint64_t start = d->times[border % (SLOTS + 1)],
		 before = idle_ns[gpu][border % (SLOTS + 1)];
	struct rtxg_slice_gpu_view view;

	if (lever_nvidia_gpu_slice(nvidia.lever, gpu, &view))
		return;
	report_put(o, "idle_ns", view.idle_ns);
	report_put(o, "idle_1s_ppm",
		   view.idle_ns > before && at > start
			   ? report_ppm(view.idle_ns - before, at - start)
			   : 0);
	report_put(o, "ungoverned", view.loads);
	report_put(o, "retried", view.retried);
}

/* Adds what is known. */
static void add_memory(uint64_t *sum, uint64_t bytes)
{
	if (bytes != LEVER_NVIDIA_NOT_KNOWN)
		*sum = (*sum == UINT64_MAX ? 0 : *sum) + bytes;
}

void nvidia_report_memory(struct daemon *d, uint64_t used[VGPUS_MAX])
{
	int n;
	struct lever_nvidia_process *list = nvidia_processes_memory(&n);

	for (int i = 0; i < n; i++)
		if (list[i].managed && nvidia.slots[list[i].vgpu])
			add_memory(&used[nvidia.slots[list[i].vgpu] - d->vgpus],
				   list[i].memory_bytes);
	free(list);
}

void nvidia_report_stats(struct daemon *d, uint64_t at, json_t *gpus)
{
	static const char *const engine_counters[] = { "used_1s_ppm", "used_10s_ppm", "waiting",
						       NULL };
	int n;
	struct lever_nvidia_process *list = nvidia_processes_memory(&n);

	for (uint32_t g = 0;
	     nvidia.lever && g < lever_nvidia_gpus(nvidia.lever) && g < LEVER_NVIDIA_GPUS; g++) {
		uint32_t sums[3] = { 0 };
		struct lever_nvidia_gpu view;
		json_t *o = json_object(), *vgpus = json_array(), *engines = json_array(), *e, *one;
		bool conserving = true;
		const char *holder = NULL;
		char name[32];
		size_t index;

		snprintf(name, sizeof(name), "nvidia%u", g);
		/* if a vGPU was made for it the gate has a GPU of that name, which no task opens */
		json_array_foreach (gpus, index, one)
			if (!strcmp(json_string_value(json_object_get(one, "gpu")), name)) {
				json_array_remove(gpus, index);
				break;
			}
		lever_nvidia_gpu(nvidia.lever, g, &view);
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			json_t *made = vgpu_stats(d, g, v, at, sums);
			uint64_t used = UINT64_MAX;

			for (int i = 0; i < n; i++)
				if (list[i].gpu == g && list[i].managed && list[i].vgpu == v)
					add_memory(&used, list[i].memory_bytes);
			if (made)
				report_put_known(made, "memory", used);

			conserving =
				conserving &&
				(!made || json_is_true(json_object_get(made, "work_conserving")));
			if (made)
				json_array_append_new(vgpus, made);
		}
		for (int i = 0; i < n; i++)
			if (list[i].gpu == g && list[i].managed &&
			    list[i].state == RTXG_SLICE_RUNNING)
				holder = nvidia_vgpu_name(list[i].vgpu);
		json_object_set_new(o, "gpu", gpu_name(g));
		report_put_text(o, "lever", "nvidia");
		report_put_text(o, "policy", policy_name(g, &view));
		report_put_text(o, "pci", view.pci);
		put_sharing(d, o, g, at);
		report_put(o, "reserved_ppm", report_reserved(d, counts, g));
		report_put(o, "tasks", view.contexts);
		json_object_set_new(o, "work_conserving", json_boolean(conserving));
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			e = no_engine(i, engine_counters);
			if (!i) {
				report_put(e, "used_1s_ppm", sums[0]);
				report_put(e, "used_10s_ppm", sums[1]);
				report_put(e, "waiting", sums[2]);
			}
			json_object_set_new(e, "holder", json_null());
			report_put_text(e, "holder_vgpu", i ? NULL : holder);
			json_array_append_new(engines, e);
		}
		json_object_set_new(o, "engines", engines);
		json_object_set_new(o, "vgpus", vgpus);
		json_array_append_new(gpus, o);
	}
	free(list);
}

static void copy_series(struct daemon *d, uint32_t gpu, uint32_t number, struct series_list *list)
{
	const struct nvidia_sample *ring = nvidia.samples[gpu][number];
	uint64_t first = series_first(list, d), any = 0;
	struct series_slot *to;
	char name[32];

	for (uint64_t n = first; n < list->next; n++) {
		const struct nvidia_sample *a = &ring[n % (SLOTS + 1)],
					   *b = &ring[(n + 1) % (SLOTS + 1)];

		any |= (b->busy_ns - a->busy_ns) | (b->wanted_ns - a->wanted_ns);
	}
	if (!any)
		return;
	snprintf(name, sizeof(name), "nvidia%u", gpu);
	to = series_add(list, name, nvidia_vgpu_name(number), RTXG_ENGINE_COMPUTE);
	for (uint64_t n = first; to && n < list->next; n++) {
		const struct nvidia_sample *a = &ring[n % (SLOTS + 1)],
					   *b = &ring[(n + 1) % (SLOTS + 1)];

		to[n - list->base] =
			(struct series_slot){ .busy_ns = b->busy_ns - a->busy_ns,
					      .device_ns = b->device_ns - a->device_ns,
					      .backlogged_ns = b->wanted_ns - a->wanted_ns };
	}
}

bool nvidia_report_history(struct daemon *d, struct series_list *list)
{
	uint32_t gpus = nvidia.lever ? lever_nvidia_gpus(nvidia.lever) : 0;

	if (gpus > LEVER_NVIDIA_GPUS)
		gpus = LEVER_NVIDIA_GPUS;
	while (list->at < gpus * LEVER_NVIDIA_VGPUS) {
		uint32_t g = list->at / LEVER_NVIDIA_VGPUS, v = list->at % LEVER_NVIDIA_VGPUS;

		list->at++;
		if (!nvidia.samples[g][v])
			continue;
		copy_series(d, g, v, list);
		breathe(d);
		if (rtxg_now_ns() >= list->end_ns)
			return false;
	}
	return true;
}

/* One line of the doctor; one remedy serves all of the lever. */
static void check(json_t *checks, const char *name, bool ok, const char *detail)
{
	report_check(checks, name, ok,
		     "see docs/nvidia.md: what the lever needs, and what it does without", "%s",
		     detail);
}

static void doctor_gpu(json_t *checks, uint32_t gpu)
{
	struct rtxg_slice_gpu_view sharing;
	struct lever_nvidia_gpu view;
	char name[32], text[400];

	lever_nvidia_gpu(nvidia.lever, gpu, &view);
	lever_nvidia_gpu_slice(nvidia.lever, gpu, &sharing);
	snprintf(name, sizeof(name), "nvidia%u", gpu);
	if (view.lost)
		snprintf(text, sizeof(text),
			 "%s: the lever let go of it after an error (see the log); restart rtxgd",
			 view.pci);
	else if (view.mig)
		snprintf(
			text, sizeof(text),
			"%s is in MIG mode, in which the driver gives out no log of the whole GPU: "
			"nothing is governed on it; \"nvidia-smi -i %u -mig 0\" ends that mode",
			view.pci, gpu);
	else if (view.log_error)
		snprintf(text, sizeof(text),
			 "%s: no context-switch log (%s): nothing is governed on it", view.pci,
			 strerror(-view.log_error));
	else
		snprintf(text, sizeof(text),
			 "%s: %u processes, policy %s, %llu records of the log lost; it was idle "
			 "for "
			 "%.3g s while a stopped process had work",
			 view.pci, view.contexts, policy_name(gpu, &view),
			 (unsigned long long)view.log_lost, (double)sharing.idle_ns / 1e9);
	check(checks, name, !view.lost && !view.log_error, text);
}

static void doctor_real_time(json_t *checks)
{
	bool fifo = (sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_FIFO;
	struct lever_nvidia_stats stats;
	char text[400];

	lever_nvidia_stats(nvidia.lever, &stats);
	snprintf(text, sizeof(text),
		 "rtxgd has %s and its memory is %s%s; it came %.3g ms late at most, and a call of "
		 "the driver took %.3g ms at most (0x%x)",
		 fifo ? "real-time priority" : "no real-time priority",
		 nvidia.locked ? "locked" : "not locked",
		 fifo && nvidia.locked
			 ? ""
			 : "; with CAP_SYS_NICE and LimitMEMLOCK=infinity it stops and resumes in "
			   "time under load",
		 (double)stats.late_most_ns / 1e6, (double)stats.call_most_ns / 1e6,
		 stats.call_most);
	check(checks, "nvidia real-time", fifo && nvidia.locked, text);
}

static void doctor_processes(json_t *checks, const struct connection *viewer)
{
	int n, unmanaged = 0, mps = 0;
	struct lever_nvidia_process *list = nvidia_processes(&n);
	char text[400], name[80];

	for (int i = 0; i < n; i++) {
		unmanaged += !list[i].managed;
		mps += list[i].mps;
	}
	snprintf(text, sizeof(text), "%d with contexts, %d of them UNMANAGED%s", n, unmanaged,
		 mps ? "; MPS is running: all of its clients share one vGPU" : "");
	report_check(checks, "nvidia processes", !unmanaged,
		     "the lines of these processes say why, and what to do", "%s", text);
	for (int i = 0; i < n; i++) {
		/* One that is managed and has a remedy is governed in part. */
		if ((list[i].managed && !list[i].remedy) ||
		    !access_sees_process(viewer, (pid_t)list[i].pid))
			continue;
		snprintf(name, sizeof(name), "process %u", list[i].pid);
		report_check(checks, name, false, list[i].remedy ? list[i].remedy : "restart it",
			     "%s cannot be governed%s: it may break what is promised to others "
			     "while it uses the GPU",
			     list[i].comm, list[i].managed ? " in full" : "");
	}
	free(list);
}

void nvidia_report_doctor(struct daemon *d, json_t *checks, const struct connection *viewer)
{
	struct lever_nvidia_probe probes[8];
	char name[80];
	int n;

	if (!nvidia.lever) {
		if (!access("/dev/nvidiactl", F_OK)) /* else there is nothing to say */
			check(checks, "nvidia", false, nvidia.why_not);
		return;
	}
	n = lever_nvidia_probes(nvidia.lever, probes, 8);
	for (int i = 0; i < n && i < 8; i++) {
		snprintf(name, sizeof(name), "nvidia %s", probes[i].name);
		check(checks, name, !probes[i].error, probes[i].detail);
	}
	for (uint32_t g = 0; g < lever_nvidia_gpus(nvidia.lever); g++)
		doctor_gpu(checks, g);
	if (nvidia_busy(d))
		doctor_real_time(checks);
	doctor_processes(checks, viewer);
	nvidia_promise_doctor(checks);
}
