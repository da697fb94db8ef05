// SPDX-License-Identifier: MIT
/*
 * nvidia_metrics.c - the NVIDIA lever in the reply of "metrics": its GPUs, vGPUs and processes,
 * what it did and what failed. Reads; asks the driver for nothing but the memory in use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "history.h"
#include "nvidia.h"
#include "nvidia_metrics.h"
#include "nvidia_promise.h"
#include "report.h"

static struct {
	uint64_t entitled_ns, wanted_ns; /* up to the last sample */
} owed[LEVER_NVIDIA_GPUS][LEVER_NVIDIA_VGPUS];

static uint32_t gpus(void)
{
	uint32_t n = nvidia.lever ? lever_nvidia_gpus(nvidia.lever) : 0;

	return n < LEVER_NVIDIA_GPUS ? n : LEVER_NVIDIA_GPUS;
}

static uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

void nvidia_metrics_sample(struct daemon *d)
{
	for (uint32_t g = 0; g < gpus(); g++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			struct rtxg_slice_view view;
			struct nvidia_sample s;

			if (!nvidia_counters(g, v, &s, &view))
				continue;
			owed[g][v].entitled_ns += metrics_entitled(
				nvidia.slots[v], since(s.wanted_ns, owed[g][v].wanted_ns));
			owed[g][v].wanted_ns = s.wanted_ns;
		}
}

void nvidia_metrics_forget(uint32_t number)
{
	for (uint32_t g = 0; g < LEVER_NVIDIA_GPUS; g++)
		memset(&owed[g][number], 0, sizeof(owed[g][number]));
}

/* What it got in the last second less what it was owed. */
static int64_t error_of(const struct daemon *d, uint32_t gpu, uint32_t number,
			const struct nvidia_sample *s, uint64_t now)
{
	const struct nvidia_sample *ring = nvidia.samples[gpu][number];
	uint64_t border, start;

	if (!ring)
		return 0;
	border = history_border(d, history_oldest(d), since(now, NS_PER_S));
	start = d->times[border % (SLOTS + 1)];
	ring += border % (SLOTS + 1);
	return metrics_error(
		since(s->busy_ns, ring->busy_ns),
		metrics_entitled(nvidia.slots[number], since(s->wanted_ns, ring->wanted_ns)),
		since(now, start));
}

static json_t *histogram(const uint64_t counted[RTXG_SLICE_WAITS])
{
	json_t *limits = json_array(), *counts = json_array();

	for (uint32_t i = 0; i < RTXG_SLICE_WAITS; i++) {
		if (i + 1 < RTXG_SLICE_WAITS)
			json_array_append_new(limits, report_number(rtxg_slice_wait_limit(i)));
		json_array_append_new(counts, report_number(counted[i]));
	}
	return json_pack("{s:o, s:o}", "limits_ns", limits, "counts", counts);
}

static void put_vgpu(struct daemon *d, uint32_t gpu, const char *name, uint32_t number,
		     uint64_t now, struct metrics *m)
{
	const struct vgpu *vgpu = nvidia.slots[number];
	struct rtxg_slice_view view;
	struct metrics_engine e;
	struct nvidia_sample s;
	json_t *o;

	if (!nvidia_counters(gpu, number, &s, &view))
		return;
	e = (struct metrics_engine){
		.gpu = name,
		.engine = rtxg_engine_name(RTXG_ENGINE_COMPUTE),
		.vgpu = vgpu,
		.tasks = view.contexts,
		.waiting = view.active,
		.received_ns = s.busy_ns,
		.wanted_ns = s.wanted_ns,
		.entitled_ns =
			owed[gpu][number].entitled_ns +
			metrics_entitled(vgpu, since(s.wanted_ns, owed[gpu][number].wanted_ns)),
		.error_ppm = error_of(d, gpu, number, &s, now),
		.waited_ns = UINT64_MAX,
		.stopped_ns = view.stopped_ns,
	};
	o = json_object();
	nvidia_promise_put(o, gpu, number, &view);
	if (vgpu && vgpu->latency_ns) {
		json_t *waits = histogram(view.waits);

		json_object_del(o, "waited_ns"); /* of the gate it is a sum */
		report_put(o, "waited_1s_ns", view.waited_ns);
		report_put(waits, "sum_ns", view.waits_ns);
		json_object_set_new(o, "waits", waits);
	}
	metrics_put(m, &e, o);
}

static void put_gpu(uint32_t gpu, const char *name, struct metrics *m)
{
	struct rtxg_slice_gpu_view sharing = { 0 };
	struct lever_nvidia_gpu view;
	json_t *o = json_object();

	lever_nvidia_gpu(nvidia.lever, gpu, &view);
	lever_nvidia_gpu_slice(nvidia.lever, gpu, &sharing);
	report_put_text(o, "gpu", name);
	report_put_text(o, "lever", "nvidia");
	report_put_text(o, "policy", nvidia_promise_mode(gpu));
	report_put_text(o, "pci", view.pci);
	report_put_bool(o, "governed", !view.lost && !view.mig && !view.log_error);
	report_put(o, "tasks", view.contexts);
	report_put(o, "idle_ns", sharing.idle_ns);
	report_put(o, "ungoverned", sharing.loads);
	report_put(o, "log_lost", view.log_lost);
	json_array_append_new(m->gpus, o);
}

static void put_process(const struct lever_nvidia_process *p, struct metrics *m)
{
	char name[32];
	struct metrics_process row = {
		.pid = (pid_t)p->pid,
		.task = -1,
		.comm = p->comm,
		.vgpu = p->managed ? nvidia_vgpu_name(p->vgpu) : NULL,
		.gpu = p->since_ns ? name : NULL,
		.managed = p->managed,
		.received_ns = p->work_ns,
		.waited_ns = UINT64_MAX,
		.stopped_ns = p->stopped_ns,
		.memory = p->memory_bytes == LEVER_NVIDIA_NOT_KNOWN ? UINT64_MAX : p->memory_bytes,
	};

	snprintf(name, sizeof(name), "nvidia%u", p->gpu);
	if (access_sees(m->viewer, (uid_t)-1) || access_sees_process(m->viewer, row.pid))
		metrics_put_process(m, &row);
}

static void put_lever(struct metrics *m)
{
	struct lever_nvidia_stats s;
	json_t *o = json_object();

	lever_nvidia_stats(nvidia.lever, &s);
	report_put_text(o, "lever", "nvidia");
	report_put_bool(o, "guarded", s.guarded);
	report_put(o, "suspends", s.suspends);
	report_put(o, "suspend_ns", s.suspend_ns);
	report_put(o, "resumes", s.resumes);
	report_put(o, "resume_ns", s.resume_ns);
	report_put(o, "slices", s.slices);
	report_put(o, "slice_ns", s.slice_ns);
	report_put(o, "calls", s.calls);
	report_put(o, "calls_ns", s.calls_ns);
	report_put(o, "failures", s.failures);
	report_put(o, "final", s.final);
	report_put(o, "log_lost", s.log_lost);
	report_put(o, "xids", s.xids);
	json_object_set_new(o, "late", histogram(s.late));
	report_put(o, "late_most_ns", s.late_most_ns);
	report_put(o, "call_most_ns", s.call_most_ns);
	report_put(o, "call_most", s.call_most);
	json_array_append_new(m->levers, o);
}

/* Where a vGPU was made for a GPU of ours the gate has one of that name, which no task opens. */
static void drop_gates(const char *name, json_t *list)
{
	size_t length = strlen(name);

	for (size_t i = json_array_size(list); i-- > 0;) {
		const json_t *one = json_array_get(list, i);
		const char *of =
			json_string_value(json_is_string(one) ? one : json_object_get(one, "gpu"));

		/* The GPU is a row's first cell. */
		if (of && strncmp(of, name, length) == 0 && (!of[length] || of[length] == '/'))
			json_array_remove(list, i);
	}
}

void nvidia_metrics(struct daemon *d, uint64_t now, struct metrics *m)
{
	struct lever_nvidia_process *list;
	int n;

	for (uint32_t g = 0; g < gpus(); g++) {
		char name[32];

		snprintf(name, sizeof(name), "nvidia%u", g);
		drop_gates(name, m->gpus);
		drop_gates(name, m->vgpus);
		put_gpu(g, name, m);
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++)
			put_vgpu(d, g, name, v, now, m);
	}
	if (!nvidia.lever)
		return;
	list = nvidia_processes_memory(&n);
	for (int i = 0; i < n; i++)
		put_process(&list[i], m);
	free(list);
	put_lever(m);
}
