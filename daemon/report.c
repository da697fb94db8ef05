// SPDX-License-Identifier: MIT
/*
 * report.c - the values of which all replies are made, as docs/reference/protocol.md has them.
 * Reads, and changes nothing. May not know a backend.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "binding.h"
#include "memory.h"
#include "objects.h"
#include "report.h"

json_t *report_number(uint64_t value)
{
	return json_integer(value > INT64_MAX ? -1 : (json_int_t)value);
}

void report_put(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, report_number(value));
}

void report_put_known(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, value == UINT64_MAX ? json_null() : report_number(value));
}

void report_put_text(json_t *object, const char *name, const char *text)
{
	/* Names of processes may be any bytes. */
	json_object_set_new(object, name, text ? message_string(text) : json_null());
}

void report_put_bool(json_t *object, const char *name, bool value)
{
	json_object_set_new(object, name, json_boolean(value));
}

const char *report_origin(enum origin origin)
{
	static const char *const names[] = { "builtin", "config", "runtime", "transient", "task" };

	return names[origin];
}

uint32_t report_ppm(uint64_t part, uint64_t whole)
{
	return part >= whole ? RTXG_PPM : (uint32_t)(part * RTXG_PPM / whole);
}

void report_put_stats(json_t *object, const struct rtxg_stats *stats)
{
	report_put(object, "completions", stats->completions);
	report_put(object, "busy_ns", stats->busy_ns);
	report_put(object, "used_ns", stats->used_ns);
	report_put(object, "wait_ns", stats->wait_ns);
	report_put(object, "grants", stats->grants);
	report_put(object, "overruns", stats->overruns);
	report_put(object, "expelled", stats->expelled);
}

static void ask_process(pid_t pid, const struct connection *viewer, struct report_process *said)
{
	uid_t owner;

	said->pid = pid;
	said->exe[0] = said->command[0] = 0;
	if (viewer->uid == 0 || (process_owner(pid, &owner) && owner == viewer->uid)) {
		process_exe(pid, said->exe);
		process_command(pid, said->command);
	}
}

void report_put_process(json_t *object, pid_t pid, const char *comm,
			const struct connection *viewer, struct report_process *said)
{
	if (said->pid != pid) {
		ask_process(pid, viewer, said);
		if (!comm)
			process_comm(pid, said->comm);
	}
	report_put(object, "pid", (uint64_t)pid);
	report_put_text(object, "comm", comm ? comm : said->comm);
	report_put_text(object, "exe", said->exe);
	report_put_text(object, "command", said->command);
}

/* --- GPUs and vGPUs --------------------------------------------------------------------------- */

json_t *report_gpu_params(const struct rtxg_gpu_params *p)
{
	json_t *o = json_object();

	report_put_text(o, "policy", rtxg_gpu_policy_name(p->policy));
	report_put_text(o, "overrun", p->overrun == RTXG_OVERRUN_CHARGE ? "charge" : "forgive");
	report_put(o, "period_ns", p->period_ns);
	report_put(o, "window_ns", p->window_ns);
	report_put(o, "band_wait_ns", p->band_wait_ns);
	report_put(o, "think_ns", p->think_ns);
	report_put(o, "revoke_timeout_ns", p->revoke_timeout_ns);
	report_put(o, "switch_ppm", p->switch_ppm);
	report_put(o, "ahead_ns", p->ahead_ns);
	report_put(o, "early_ns", p->early_ns);
	return o;
}

uint64_t report_reserved(const struct daemon *d, bool (*on)(const struct vgpu *vgpu, uint32_t gpu),
			 uint32_t gpu)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && on(&d->vgpus[i], gpu))
			sum += d->vgpus[i].params.min_ppm;
	return sum;
}

void report_put_vgpu_params(json_t *o, const struct vgpu *vgpu)
{
	report_put_text(o, "vgpu", vgpu->name);
	report_put(o, "min_ppm", vgpu->params.min_ppm);
	report_put(o, "max_ppm", vgpu->params.max_ppm);
	if (vgpu->params.weight)
		report_put(o, "weight", vgpu->params.weight);
	report_put(o, "priority", vgpu->params.priority);
	report_put(o, "period_ns", vgpu->params.period_ns);
	if (vgpu->latency_ns)
		report_put(o, "latency_ns", vgpu->latency_ns);
	if (vgpu->quantum_ns)
		report_put(o, "quantum_ns", vgpu->quantum_ns);
	if (vgpu->memory_bytes)
		report_put(o, "memory_bytes", vgpu->memory_bytes);
	report_put_text(o, "policy", rtxg_task_policy_name(vgpu->params.policy));
}

json_t *report_vgpu(struct daemon *d, const struct vgpu *vgpu)
{
	json_t *o = json_object(), *users = json_array(), *on = json_array();
	bool conserving = true, any = false;

	report_put_vgpu_params(o, vgpu);
	report_put_text(o, "gpu", vgpu->gpu[0] ? vgpu->gpu : NULL);
	report_put(o, "task_priority", vgpu->task_priority);
	for (uint32_t i = 0; i < vgpu->users_count; i++)
		json_array_append_new(users, json_string(vgpu->users[i]));
	json_object_set_new(o, "users", users);
	json_object_set_new(o, "cgroups", binding_report(d, vgpu));
	if (vgpu->memory_bytes)
		json_object_set_new(o, "memory_limit", memory_report(vgpu));
	report_put_text(o, "origin", report_origin(vgpu->origin));
	report_put_text(o, "source", vgpu->source[0] ? vgpu->source : NULL);
	report_put_bool(o, "persistent", vgpu->persistent);
	report_put(o, "tasks", vgpu->tasks);
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
	report_put_bool(o, "work_conserving", any && conserving);
	json_object_set_new(o, "on", on);
	return o;
}

struct vgpu *report_next_vgpu(struct daemon *d, uint64_t created)
{
	struct vgpu *next = NULL;

	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && d->vgpus[i].created > created &&
		    (!next || d->vgpus[i].created < next->created))
			next = &d->vgpus[i];
	return next;
}

void report_check(json_t *list, const char *name, bool ok, const char *remedy, const char *format,
		  ...)
{
	char detail[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(detail, sizeof(detail), format, ap);
	va_end(ap);
	json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:s}", "check", name, "ok", ok,
					      "detail", detail, "remedy", ok ? "" : remedy));
}
