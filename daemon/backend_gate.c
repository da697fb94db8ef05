// SPDX-License-Identifier: MIT
/*
 * backend_gate.c - the backend of tasks that were opened, in this daemon or in rtxg.ko: what lists
 * and statistics show of the daemon's own tables. Reads, and changes nothing.
 */
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "backend_gate.h"
#include "breathe.h"
#include "history.h"
#include "host.h"
#include "metrics.h"
#include "objects.h"
#include "process.h"
#include "reply.h"
#include "report.h"
#include "series.h"

/* --- GPUs ------------------------------------------------------------------------------------- */

static bool has_account(const struct vgpu *vgpu, uint32_t gpu)
{
	return vgpu->on[gpu] != NULL;
}

uint64_t backend_gate_reserved(const struct daemon *d, const struct gpu *gpu)
{
	return report_reserved(d, has_account, gpu->id);
}

uint64_t backend_gate_available(const struct daemon *d, const struct gpu *gpu)
{
	uint64_t taken = backend_gate_reserved(d, gpu) + gpu->params.switch_ppm;

	return taken < RTXG_PPM ? RTXG_PPM - taken : 0;
}

json_t *backend_gate_gpu(const struct daemon *d, const struct gpu *gpu)
{
	json_t *o = report_gpu_params(&gpu->params);

	report_put_text(o, "gpu", gpu->name);
	report_put(o, "reserved_ppm", backend_gate_reserved(d, gpu));
	report_put(o, "available_ppm", backend_gate_available(d, gpu));
	report_put(o, "tasks", gpu->tasks);
	json_object_set_new(o, "levers", json_pack("[s]", backend_gate.name));
	report_put_text(o, "origin", report_origin(gpu->origin));
	return o;
}

static bool gate_has(struct daemon *d, const char *gpu)
{
	return objects_gpu_find(d, gpu) != NULL;
}

static void gate_gpus(struct daemon *d, json_t *gpus)
{
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (d->gpus[i].used)
			json_array_append_new(gpus, backend_gate_gpu(d, &d->gpus[i]));
}

/* --- tasks ------------------------------------------------------------------------------------ */

static json_t *task_engine(struct daemon *d, const struct task *task, uint32_t engine, bool *device)
{
	struct lane_view lane;
	json_t *o = json_object();

	d->host->lane_view(d, task, engine, &lane);
	*device |= lane.device_ns != 0;
	report_put_text(o, "engine", rtxg_engine_name(engine));
	report_put_text(o, "state", lane.state);
	report_put(o, "in_flight", lane.in_flight);
	report_put(o, "launches", lane.launches);
	report_put(o, "device_ns", lane.device_ns);
	report_put_stats(o, &lane.stats);
	return o;
}

json_t *backend_gate_task(struct daemon *d, const struct task *task,
			  const struct connection *viewer, struct report_process *said)
{
	json_t *o = json_object(), *engines = json_array();
	bool device = false;

	report_put(o, "task", task->id);
	report_put_process(o, task->pid, NULL, viewer, said);
	report_put(o, "uid", task->uid);
	report_put_text(o, "vgpu", task->vgpu->name);
	report_put_text(o, "gpu", task->gpu->name);
	report_put(o, "priority",
		   task->permit.params.priority ? task->permit.params.priority : RTXG_PRIORITY_MIN);
	report_put(o, "runtime_ns", task->permit.params.runtime_ns);
	report_put(o, "deadline_ns",
		   task->permit.params.deadline_ns ? task->permit.params.deadline_ns
						   : task->permit.params.period_ns);
	report_put(o, "period_ns", task->permit.params.period_ns);
	if (task->vgpu->latency_ns)
		report_put(o, "latency_ns", task->vgpu->latency_ns);
	report_put(o, "opened_ns", task->permit.opened_ns);
	if (task->ungated || (task->permit.page &&
			      page_load(&task->permit.page->client_flags) & RTXG_PAGE_C_UNGATED))
		report_put_text(o, "remedy", "in part: some of what it enqueues passes ungated");
	if (task->moving_to)
		report_put_text(o, "moving_to", task->moving_to->name);
	if (task->pool) {
		report_put_text(o, "pool", task->pool->name);
		report_put_text(o, "pool_gpu",
				task->permit.pool_held ? d->gpus[task->permit.pool_gpu].name
						       : NULL);
	}
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		json_array_append_new(engines, task_engine(d, task, i, &device));
	report_put_bool(o, "device_unknown", !device);
	json_object_set_new(o, "engines", engines);
	return o;
}

/*
 * The gate cannot take a launch back: work that arrives waits for all that is in flight, however
 * long that is.
 */
static void gate_unkept(struct daemon *d, const struct vgpu *wanted, char *why, size_t size)
{
	uint64_t busy_ns = 0, launches = 0;
	char mean[80] = "none was seen as yet";

	d->host->count(d);
	for (uint32_t id = 0; id < ACCOUNTS_MAX; id++) {
		const struct account *account = &d->accounts[id];
		struct rtxg_account_view view;

		if (!account->used || (wanted->gpu[0] && strcmp(wanted->gpu, account->gpu->name)))
			continue;
		d->host->account_view(d, account, RTXG_ENGINE_COMPUTE, rtxg_now_ns(), &view);
		busy_ns += view.stats.busy_ns;
		launches += account->permit.engines[RTXG_ENGINE_COMPUTE].launches;
	}
	if (launches)
		snprintf(mean, sizeof(mean), "%.4g ms each, in the mean of %llu",
			 (double)busy_ns / 1e6 / (double)launches, (unsigned long long)launches);
	snprintf(why, size,
		 "vGPU %s: a latency of %.4g ms cannot be kept on %s%s, where no lever can stop "
		 "what "
		 "runs: work that arrives waits for the launches in flight (%s); leave --latency "
		 "out "
		 "and launch short kernels, or use a GPU that the NVIDIA lever governs (rtxg "
		 "doctor)",
		 wanted->name, (double)wanted->latency_ns / 1e6,
		 wanted->gpu[0] ? "GPU " : "any GPU here", wanted->gpu, mean);
}

static bool gate_busy(const struct daemon *d)
{
	return d->tasks_count != 0;
}

/* A task has its number as long as it lives, so it is either before the next one or not. */
static bool gate_tasks(struct daemon *d, const struct backend_filter *filter,
		       struct backend_rows *rows)
{
	struct report_process said = { 0 };

	while (rows->next < d->tasks_top) {
		struct task *task = &d->tasks[rows->next++];

		if (!task->used || (filter->vgpu && strcmp(task->vgpu->name, filter->vgpu)) ||
		    (filter->gpu && strcmp(task->gpu->name, filter->gpu)) ||
		    (filter->pid && task->pid != filter->pid) ||
		    (filter->numbered && task->id != filter->task) ||
		    !access_sees(filter->viewer, task->uid))
			continue;
		reply_rows_add(rows->out, backend_gate_task(d, task, filter->viewer, &said));
		breathe(d);
		if (rtxg_now_ns() >= rows->end_ns)
			return false;
	}
	return true;
}

/* --- shares over time ------------------------------------------------------------------------- */

/* Parts of the time since a moment in the past. */
struct used {
	uint32_t busy_ppm, device_ppm;
};

/* What was charged and claimed since the sample nearest to `span` ago. */
static struct used used_over(const struct daemon *d, const struct account *account, uint32_t engine,
			     uint64_t busy_now, uint64_t now, uint64_t span)
{
	const struct account_engine *e = &account->engines[engine];
	uint64_t busy = busy_now - e->last.busy_ns,
		 device = account->permit.engines[engine].device_ns - e->last_device_ns;
	uint64_t from = now > span ? now - span : 0, at = d->samples, start, length;

	if (account->since_ns > from)
		from = account->since_ns;
	if (account->slots) {
		at = history_border(d, history_oldest(d) + 1, from);
		for (uint64_t n = at; n < d->samples; n++) {
			busy += account->slots[n % SLOTS][engine].busy_ns;
			device += account->slots[n % SLOTS][engine].device_ns;
		}
	}
	start = at ? d->times[at % (SLOTS + 1)] : from;
	if (start < account->since_ns)
		start = account->since_ns;
	length = now > start ? now - start : 1;
	return (struct used){ .busy_ppm = report_ppm(busy, length),
			      .device_ppm = report_ppm(device, length) };
}

/* Sums over the vGPUs of a GPU, for one engine. */
struct totals {
	uint64_t used_1s, used_10s, waiting;
	uint32_t holder; /* a task, or RTXG_NONE */
};

static json_t *vgpu_engine(struct daemon *d, const struct account *account, uint32_t engine,
			   uint64_t now, struct totals *totals)
{
	struct rtxg_account_view view;
	struct used used_1s, used_10s;
	json_t *o = json_object();

	d->host->account_view(d, account, engine, now, &view);
	used_1s = used_over(d, account, engine, view.stats.busy_ns, now, NS_PER_S);
	used_10s = used_over(d, account, engine, view.stats.busy_ns, now, 10 * NS_PER_S);
	totals->used_1s += used_1s.busy_ppm;
	totals->used_10s += used_10s.busy_ppm;
	totals->waiting += view.waiting;
	if (view.holder != RTXG_NONE)
		totals->holder = view.holder;
	report_put_text(o, "engine", rtxg_engine_name(engine));
	report_put(o, "used_1s_ppm", used_1s.busy_ppm);
	report_put(o, "used_10s_ppm", used_10s.busy_ppm);
	report_put(o, "device_1s_ppm", used_1s.device_ppm);
	report_put(o, "device_10s_ppm", used_10s.device_ppm);
	report_put_stats(o, &view.stats);
	report_put(o, "device_ns", account->permit.engines[engine].device_ns);
	report_put(o, "launches", account->permit.engines[engine].launches);
	report_put(o, "throttled", view.stats.throttled);
	report_put(o, "waiting", view.waiting);
	json_object_set_new(o, "holder",
			    view.holder == RTXG_NONE ? json_null() : report_number(view.holder));
	json_object_set_new(o, "credit_ns", json_integer(view.credit_ns));
	report_put(o, "deadline_ns", view.deadline_ns);
	return o;
}

static json_t *vgpu_stats(struct daemon *d, const struct vgpu *vgpu, const struct gpu *gpu,
			  uint64_t now, struct totals totals[RTXG_ENGINES])
{
	const struct account *account = vgpu->on[gpu->id];
	json_t *o = json_object(), *engines = json_array();

	report_put_vgpu_params(o, vgpu);
	report_put_bool(o, "work_conserving", objects_work_conserving(vgpu, gpu));
	report_put(o, "tasks", account->tasks);
	json_object_set_new(o, "broken",
			    account->short_of_share ? json_pack("[s]", "share") : json_array());
	json_object_set_new(o, "broken_ns",
			    json_pack("{s:I}", "share", (json_int_t)account->short_ns));
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		json_array_append_new(engines, vgpu_engine(d, account, i, now, &totals[i]));
	json_object_set_new(o, "engines", engines);
	return o;
}

static json_t *gpu_engine(struct daemon *d, uint32_t engine, const struct totals *totals)
{
	const struct task *holder = totals->holder < TASKS_MAX ? &d->tasks[totals->holder] : NULL;
	json_t *o = json_object();

	report_put_text(o, "engine", rtxg_engine_name(engine));
	report_put(o, "used_1s_ppm", totals->used_1s);
	report_put(o, "used_10s_ppm", totals->used_10s);
	report_put(o, "waiting", totals->waiting);
	json_object_set_new(o, "holder", holder ? report_number(holder->id) : json_null());
	report_put_text(o, "holder_vgpu", holder ? holder->vgpu->name : NULL);
	return o;
}

static json_t *gpu_stats(struct daemon *d, const struct gpu *gpu, uint64_t now)
{
	struct totals totals[RTXG_ENGINES] = { 0 };
	json_t *o = json_object(), *vgpus = json_array(), *engines = json_array();
	const struct vgpu *vgpu;
	bool conserving = true;

	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		totals[i].holder = RTXG_NONE;
	for (uint64_t order = 0; (vgpu = report_next_vgpu(d, order)); order = vgpu->created) {
		if (!vgpu->on[gpu->id])
			continue;
		conserving &= objects_work_conserving(vgpu, gpu);
		json_array_append_new(vgpus, vgpu_stats(d, vgpu, gpu, now, totals));
	}
	report_put_text(o, "gpu", gpu->name);
	report_put_text(o, "policy", rtxg_gpu_policy_name(gpu->params.policy));
	report_put(o, "reserved_ppm", backend_gate_reserved(d, gpu));
	report_put(o, "tasks", gpu->tasks);
	report_put_bool(o, "work_conserving", conserving);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		json_array_append_new(engines, gpu_engine(d, i, &totals[i]));
	json_object_set_new(o, "engines", engines);
	json_object_set_new(o, "vgpus", vgpus);
	return o;
}

static void gate_stats(struct daemon *d, uint64_t now, json_t *gpus)
{
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (d->gpus[i].used) {
			json_array_append_new(gpus, gpu_stats(d, &d->gpus[i], now));
			breathe(d);
		}
}

/* Most vGPUs use few engines. */
static bool was_used(const struct account *account, uint32_t engine, uint64_t first, uint64_t next)
{
	for (uint64_t n = first; n < next; n++) {
		const struct slot *slot = &account->slots[n % SLOTS][engine];

		if (slot->busy_ns || slot->device_ns || slot->backlogged_ns || slot->completions)
			return true;
	}
	return false;
}

static void copy_series(struct daemon *d, const struct account *account, uint32_t engine,
			struct series_list *list)
{
	uint64_t first = series_first(list, d);
	struct series_slot *to = NULL;

	if (was_used(account, engine, first, list->next))
		to = series_add(list, account->gpu->name, account->vgpu->name, engine);
	for (uint64_t n = first; to && n < list->next; n++) {
		const struct slot *slot = &account->slots[n % SLOTS][engine];

		to[n - list->base] = (struct series_slot){ .busy_ns = slot->busy_ns,
							   .device_ns = slot->device_ns,
							   .completions = slot->completions,
							   .backlogged_ns = slot->backlogged_ns };
	}
}

static bool gate_history(struct daemon *d, struct series_list *list)
{
	while (list->at < ACCOUNTS_MAX * RTXG_ENGINES) {
		const struct account *account = &d->accounts[list->at / RTXG_ENGINES];
		uint32_t engine = list->at++ % RTXG_ENGINES;

		if (!account->used || !account->slots)
			continue;
		copy_series(d, account, engine, list);
		breathe(d);
		if (rtxg_now_ns() >= list->end_ns)
			return false;
	}
	return true;
}

/* --- metrics ---------------------------------------------------------------------------------- */

_Static_assert(sizeof(((struct task *)0)->comm) == PROCESS_COMM, "a name of a process");

static int64_t error_of(const struct daemon *d, const struct account *account, uint32_t engine,
			uint64_t now)
{
	uint64_t busy = 0, wanted = 0, first;

	if (!account->slots || !d->samples)
		return 0;
	first = history_border(d, history_oldest(d), now > NS_PER_S ? now - NS_PER_S : 0);
	for (uint64_t n = first; n < d->samples; n++) {
		busy += account->slots[n % SLOTS][engine].busy_ns;
		wanted += account->slots[n % SLOTS][engine].backlogged_ns;
	}
	return metrics_error(busy, metrics_entitled(account->vgpu, wanted),
			     d->times[d->samples % (SLOTS + 1)] - d->times[first % (SLOTS + 1)]);
}

static void put_account(struct daemon *d, const struct account *account, uint64_t now,
			struct metrics *m)
{
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		const struct account_engine *last = &account->engines[i];
		uint64_t wanted = permit_active_ns(&account->permit.engines[i], now);
		struct rtxg_account_view view;
		struct metrics_engine e;
		json_t *more = NULL;

		d->host->account_view(d, account, i, now, &view);
		/* Most programs hardly copy. */
		if (i && !view.stats.busy_ns && !wanted)
			continue;
		e = (struct metrics_engine){
			.gpu = account->gpu->name,
			.engine = rtxg_engine_name(i),
			.vgpu = account->vgpu,
			.tasks = account->tasks,
			.waiting = view.waiting,
			.received_ns = view.stats.busy_ns,
			.wanted_ns = wanted,
			.entitled_ns =
				last->entitled_ns +
				metrics_entitled(account->vgpu, wanted - last->last_active_ns),
			.error_ppm = error_of(d, account, i, now),
			.waited_ns = view.stats.wait_ns,
			.stopped_ns = UINT64_MAX,
		};
		/* A promise is on the compute engine, and is said once it was broken. */
		if (!i && account->short_ns)
			more = json_pack("{s:o, s:{s:I}}", "broken",
					 account->short_of_share ? json_pack("[s]", "share")
								 : json_array(),
					 "broken_ns", "share", (json_int_t)account->short_ns);
		metrics_put(m, &e, more);
	}
}

static void put_task(struct daemon *d, struct task *task, struct metrics *m)
{
	struct metrics_process p;
	uint64_t busy = 0, waited = 0;

	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct lane_view lane;

		d->host->lane_view(d, task, i, &lane);
		busy += lane.stats.busy_ns;
		waited += lane.stats.wait_ns;
	}
	/* A label that changes would begin another series. */
	if (!access_sees(m->viewer, task->uid))
		return;
	if (!*task->comm)
		process_comm(task->pid, task->comm);
	p = (struct metrics_process){ .pid = task->pid,
				      .task = task->id,
				      .comm = task->comm,
				      .vgpu = task->vgpu->name,
				      .gpu = task->gpu->name,
				      .managed = true,
				      .received_ns = busy,
				      .waited_ns = waited,
				      .stopped_ns = UINT64_MAX,
				      .memory = UINT64_MAX };
	metrics_put_process(m, &p);
}

static void gate_metrics(struct daemon *d, uint64_t now, struct metrics *m)
{
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (d->gpus[i].used)
			json_array_append_new(
				m->gpus,
				json_pack("{s:s, s:s, s:s, s:b, s:i}", "gpu", d->gpus[i].name,
					  "lever", "gate", "policy",
					  rtxg_gpu_policy_name(d->gpus[i].params.policy),
					  "governed", true, "tasks", (int)d->gpus[i].tasks));
	for (uint32_t id = 0; id < ACCOUNTS_MAX; id++)
		if (d->accounts[id].used)
			put_account(d, &d->accounts[id], now, m);
	for (uint32_t i = 0; i < d->tasks_top; i++)
		if (d->tasks[i].used)
			put_task(d, &d->tasks[i], m);
}

const struct backend backend_gate = {
	.name = "gate",
	.unkept = gate_unkept,
	.busy = gate_busy,
	.has = gate_has,
	.gpus = gate_gpus,
	.tasks = gate_tasks,
	.stats = gate_stats,
	.metrics = gate_metrics,
	.history = gate_history,
};
