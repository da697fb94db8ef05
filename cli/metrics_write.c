// SPDX-License-Identifier: MIT
/*
 * metrics_write.c - the reply to "metrics" as lines of Prometheus. A label is spelled as NVIDIA's
 * dcgm-exporter spells it where that has it (gpu, UUID, pci_bus_id, device), so that both join. May
 * not write what tells who runs what: no command line, no path, no user.
 */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "metrics.h"
#include "metrics_pods.h"
#include "reply.h"

#define LABELS 1024

/* What is shown of an object (a vGPU on an engine, a process, a GPU), with its labels. */
struct row {
	const json_t *object;
	char labels[LABELS];
};

struct rows {
	struct row *row;
	size_t count;
	const json_t *columns; /* NULL: rows are objects; else lists in this order */
};

struct page {
	struct metrics_out *out;
	const char *proc;
	bool open;
	struct rows gpus, vgpus, processes;
};

/* --- cells ------------------------------------------------------------------------------------ */

/* A row of vGPUs or programs is a list. What only some have is an object in its last place. */

static size_t column_of(const struct rows *rows, const char *name)
{
	const json_t *column;
	size_t i;

	json_array_foreach (rows->columns, i, column)
		if (strcmp(json_string_value(column), name) == 0)
			break;
	return i;
}

static const json_t *more_of(const struct row *row)
{
	return json_array_get(row->object, json_array_size(row->object) - 1);
}

static const json_t *cell(const struct rows *rows, const struct row *row, size_t column,
			  const char *name)
{
	if (!rows->columns)
		return json_object_get(row->object, name);
	if (column < json_array_size(rows->columns))
		return json_array_get(row->object, column);
	return json_object_get(more_of(row), name);
}

static const json_t *named(const struct rows *rows, const struct row *row, const char *name)
{
	return cell(rows, row, column_of(rows, name), name);
}

static const char *text_of(const struct rows *rows, const struct row *row, const char *name)
{
	const char *text = json_string_value(named(rows, row, name));

	return text ? text : "";
}

/* --- labels ----------------------------------------------------------------------------------- */

static void add_label(char labels[LABELS], const char *name, const char *value)
{
	size_t at = strlen(labels), room = LABELS - at;

	/* An empty label is none. What does not fit is left out as a whole. */
	if (!*value || room < strlen(name) + 2 * strlen(value) + 6)
		return;
	at = (size_t)(stpcpy(stpcpy(stpcpy(labels + at, at ? "," : ""), name), "=\"") - labels);
	for (; *value; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			labels[at++] = '\\';
		labels[at++] = *value == '\n' ? 'n' : *value;
	}
	labels[at++] = '"';
	labels[at] = 0;
}

static const json_t *gpu_of(const json_t *reply, const char *name)
{
	const json_t *gpu;
	size_t i;

	json_array_foreach (json_object_get(reply, "gpus"), i, gpu)
		if (strcmp(reply_string(gpu, "gpu"), name) == 0)
			return gpu;
	return NULL;
}

/* "GPU UUID:   GPU-..." in what the driver says of the card. */
static void find_uuid(const char *proc, const char *pci, char uuid[64])
{
	char path[PATH_MAX], line[256];
	FILE *f;

	*uuid = 0;
	if (strchr(pci, '/') || snprintf(path, sizeof(path), "%s/driver/nvidia/gpus/%s/information",
					 proc, pci) >= (int)sizeof(path))
		return;
	f = fopen(path, "re");
	while (f && !*uuid && fgets(line, sizeof(line), f))
		if (sscanf(line, "GPU UUID: %63s", uuid) != 1)
			*uuid = 0;
	if (f)
		fclose(f);
}

/* nvidia-smi numbers its cards, and NVML writes eight digits of the PCI domain. */
static void add_gpu(char labels[LABELS], const char *proc, const json_t *reply, const char *name)
{
	const json_t *gpu = gpu_of(reply, name);
	const char *pci = reply_string(gpu, "pci");
	char uuid[64], bus[64];

	if (strcmp(reply_string(gpu, "lever"), "nvidia") != 0) {
		add_label(labels, "gpu", name);
		return;
	}
	add_label(labels, "gpu", name + strcspn(name, "0123456789"));
	add_label(labels, "device", name);
	find_uuid(proc, pci, uuid);
	add_label(labels, "UUID", uuid);
	snprintf(bus, sizeof(bus), "0000%.40s", pci);
	add_label(labels, "pci_bus_id", bus);
}

static void label_gpu(struct page *page, const json_t *reply, struct row *row)
{
	add_gpu(row->labels, page->proc, reply, reply_string(row->object, "gpu"));
}

static void label_engine(struct page *page, const struct rows *rows, struct row *row)
{
	const char *gpu = text_of(rows, row, "gpu");

	/* The labels of its GPU are made once. */
	for (size_t i = 0; i < page->gpus.count; i++)
		if (strcmp(reply_string(page->gpus.row[i].object, "gpu"), gpu) == 0)
			strcpy(row->labels, page->gpus.row[i].labels);
	add_label(row->labels, "vgpu", text_of(rows, row, "vgpu"));
}

static void label_vgpu(struct page *page, const json_t *reply, struct row *row)
{
	label_engine(page, &page->vgpus, row);
	add_label(row->labels, "engine", text_of(&page->vgpus, row, "engine"));
}

static void label_process(struct page *page, const json_t *reply, struct row *row)
{
	const json_t *task = named(&page->processes, row, "task");
	long long process = json_integer_value(named(&page->processes, row, "pid"));
	struct metrics_pod pod;
	char pid[32], number[32];

	label_engine(page, &page->processes, row);
	snprintf(pid, sizeof(pid), "%lld", process);
	add_label(row->labels, "pid", pid);
	if (json_is_integer(task)) {
		snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(task));
		add_label(row->labels, "task", number);
	}
	add_label(row->labels, "comm", text_of(&page->processes, row, "comm"));
	pod = metrics_pod_of(page->proc, (size_t)(row - page->processes.row), process);
	add_label(row->labels, "pod_uid", pod.uid);
	add_label(row->labels, "container_id", pod.container);
}

static void make_rows(struct page *page, struct rows *rows, const json_t *reply, const char *list,
		      const char *columns,
		      void (*label)(struct page *page, const json_t *reply, struct row *row))
{
	const json_t *objects = json_object_get(reply, list), *object;
	size_t i;

	rows->columns = columns ? json_object_get(reply, columns) : NULL;
	rows->row = calloc(json_array_size(objects) + 1, sizeof(*rows->row));
	json_array_foreach (objects, i, object) {
		if (!rows->row)
			return;
		rows->row[i].object = object;
		label(page, reply, &rows->row[i]);
		rows->count++;
	}
}

/* --- lines ------------------------------------------------------------------------------------ */

enum unit { NUMBER, SECONDS, RATIO, FLAG };
enum type { COUNTER, GAUGE, INFO, HISTOGRAM };

/* A family: its name without _total, from the member of that name. */
struct family {
	const char *name;
	enum type type;
	enum unit unit;
	const char *member, *help;
};

static void put_head(const struct page *page, const struct family *f)
{
	static const char *const types[] = { "counter", "gauge", "info", "histogram" };
	const char *suffix = "", *type = types[f->type];

	/* OpenMetrics has a suffix in the names of lines only, the older text everywhere. */
	if (!page->open && f->type == COUNTER)
		suffix = "_total";
	if (!page->open && f->type == INFO) {
		suffix = "_info";
		type = "gauge";
	}
	metrics_out_format(page->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", f->name, suffix, f->help,
			   f->name, suffix, type);
}

static void put_name(const struct page *page, const struct family *f, const char *labels)
{
	metrics_out_text(page->out, f->name);
	if (f->type == COUNTER)
		metrics_out_text(page->out, "_total");
	if (f->type == INFO)
		metrics_out_text(page->out, "_info");
	if (labels && *labels) {
		metrics_out_put(page->out, "{", 1);
		metrics_out_text(page->out, labels);
		metrics_out_put(page->out, "}", 1);
	}
	metrics_out_put(page->out, " ", 1);
}

/*
 * A number with so many decimals, and the end of the line. printf takes
 * four times as long for thousands of them.
 */
static void put_decimals(struct metrics_out *out, json_int_t value, int decimals)
{
	char text[32];
	unsigned long long n =
		value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
	int at = sizeof(text);

	text[--at] = '\n';
	for (int digit = 0; digit <= decimals || n; digit++) {
		if (digit && digit == decimals)
			text[--at] = '.';
		text[--at] = (char)('0' + n % 10);
		n /= 10;
	}
	if (value < 0)
		text[--at] = '-';
	metrics_out_put(out, text + at, sizeof(text) - (size_t)at);
}

static void put_value(struct metrics_out *out, enum unit unit, const json_t *value)
{
	json_int_t n = unit == FLAG ? json_is_true(value) : json_integer_value(value);

	put_decimals(out, n, unit == SECONDS ? 9 : unit == RATIO ? 6 : 0);
}

/* One line for each row that has the member; no head where none has. */
static void put_rows(const struct page *page, const struct rows *rows, const struct family *f)
{
	size_t column = column_of(rows, f->member);
	bool any = false;

	for (size_t i = 0; i < rows->count; i++) {
		const json_t *value = cell(rows, &rows->row[i], column, f->member);

		if (!value || json_is_null(value))
			continue;
		if (!any)
			put_head(page, f);
		any = true;
		put_name(page, f, rows->row[i].labels);
		put_value(page->out, f->unit, value);
	}
}

static const struct family of_gpus[] = {
	{ "rtxg_gpu_governed", GAUGE, FLAG, "governed", "1: shares are enforced on this GPU." },
	{ "rtxg_gpu_tasks", GAUGE, NUMBER, "tasks", "Programs on this GPU that rtxg manages." },
	{ "rtxg_gpu_ungoverned_contexts", GAUGE, NUMBER, "ungoverned",
	  "Contexts on this GPU that cannot be governed." },
	{ "rtxg_gpu_idle_while_waiting_seconds", COUNTER, SECONDS, "idle_ns",
	  "For how long the GPU had nothing to do while a stopped context had work." },
	{ "rtxg_gpu_log_lost", COUNTER, NUMBER, "log_lost",
	  "Records of the driver's context-switch log that were lost." },
};

static const struct family of_vgpus[] = {
	{ "rtxg_vgpu_entitled_seconds", COUNTER, SECONDS, "entitled_ns",
	  "The reserved share of the time in which the vGPU wanted the engine." },
	{ "rtxg_vgpu_received_seconds", COUNTER, SECONDS, "received_ns",
	  "Time on the engine that the vGPU got." },
	{ "rtxg_vgpu_wanted_seconds", COUNTER, SECONDS, "wanted_ns",
	  "For how long the vGPU used the engine or wanted to." },
	{ "rtxg_vgpu_share_error_ratio", GAUGE, RATIO, "error_ppm",
	  "Received less entitled, as a part of the last second. Negative: too little." },
	{ "rtxg_vgpu_share_reserved_ratio", GAUGE, RATIO, "min_ppm", "Reserved share." },
	{ "rtxg_vgpu_share_limit_ratio", GAUGE, RATIO, "max_ppm", "Cap." },
	{ "rtxg_vgpu_tasks", GAUGE, NUMBER, "tasks", "Programs in the vGPU." },
	{ "rtxg_vgpu_waiting", GAUGE, NUMBER, "waiting", "Programs that want the engine now." },
	{ "rtxg_vgpu_waited_seconds", COUNTER, SECONDS, "waited_ns",
	  "For how long its programs waited for a permit." },
	{ "rtxg_vgpu_stopped_seconds", COUNTER, SECONDS, "stopped_ns",
	  "For how long its programs were stopped by the lever." },
	{ "rtxg_vgpu_latency_limit_seconds", GAUGE, SECONDS, "latency_ns",
	  "Its work is to wait no longer than that." },
	{ "rtxg_vgpu_longest_wait_seconds", GAUGE, SECONDS, "waited_1s_ns",
	  "Longest wait of work that arrived in the last second." },
	{ "rtxg_vgpu_ungoverned_contexts", GAUGE, NUMBER, "ungoverned",
	  "Its contexts that cannot be governed." },
};

static const struct family of_processes[] = {
	{ "rtxg_process_received_seconds", COUNTER, SECONDS, "received_ns",
	  "Time on the engines that the program got." },
	{ "rtxg_process_waited_seconds", COUNTER, SECONDS, "waited_ns",
	  "For how long the program waited for a permit." },
	{ "rtxg_process_stopped_seconds", COUNTER, SECONDS, "stopped_ns",
	  "For how long the program was stopped by the lever." },
	{ "rtxg_process_memory_bytes", GAUGE, NUMBER, "memory", "GPU memory in use." },
	{ "rtxg_process_managed", GAUGE, FLAG, "managed",
	  "0: the program is UNMANAGED, it takes what it likes." },
};

/* Members of an object in the rows as lines with a label more: broken promises, by their name. */
static void put_promises(const struct page *page)
{
	static const struct family now = { "rtxg_vgpu_promise_broken", GAUGE, NUMBER, NULL,
					   "1: the promise is broken now." },
				   sum = { "rtxg_vgpu_promise_broken_seconds", COUNTER, SECONDS,
					   NULL, "For how long the promise was broken." };
	const struct family *both[] = { &now, &sum };

	for (size_t k = 0; k < 2; k++) {
		bool any = false;

		for (size_t i = 0; i < page->vgpus.count; i++) {
			const struct row *row = &page->vgpus.row[i];
			const json_t *more = more_of(row);
			const json_t *broken = json_object_get(more, "broken"), *ns, *one;
			const char *name;
			size_t at;

			json_object_foreach ((json_t *)json_object_get(more, "broken_ns"), name,
					     ns) {
				char labels[LABELS];
				int is = 0;

				if (!any)
					put_head(page, both[k]);
				any = true;
				strcpy(labels, row->labels);
				add_label(labels, "promise", name);
				put_name(page, both[k], labels);
				json_array_foreach (broken, at, one)
					is |= strcmp(json_string_value(one), name) == 0;
				if (k)
					put_value(page->out, SECONDS, ns);
				else
					metrics_out_format(page->out, "%d\n", is);
			}
		}
	}
}

static void put_bucket(const struct page *page, const char *labels, const char *limit,
		       uint64_t count)
{
	metrics_out_format(page->out, "rtxg_vgpu_wait_seconds_bucket{%s,le=\"%s\"} %" PRIu64 "\n",
			   labels, limit, count);
}

static void put_waits(const struct page *page)
{
	static const struct family f = { "rtxg_vgpu_wait_seconds", HISTOGRAM, SECONDS, NULL,
					 "Waits of work that arrived, of vGPUs with a limit." };
	bool any = false;

	for (size_t i = 0; i < page->vgpus.count; i++) {
		const struct row *row = &page->vgpus.row[i];
		const json_t *waits = json_object_get(more_of(row), "waits"), *limit;
		const json_t *counts = json_object_get(waits, "counts");
		uint64_t sum = 0;
		size_t at;

		if (!waits)
			continue;
		if (!any)
			put_head(page, &f);
		any = true;
		json_array_foreach (json_object_get(waits, "limits_ns"), at, limit) {
			char text[32];

			snprintf(text, sizeof(text), "%g", (double)json_integer_value(limit) / 1e9);
			if (!strpbrk(text, ".e"))
				strcat(text, ".0");
			sum += (uint64_t)json_integer_value(json_array_get(counts, at));
			put_bucket(page, row->labels, text, sum);
		}
		sum += (uint64_t)json_integer_value(
			json_array_get(counts, json_array_size(counts) - 1));
		put_bucket(page, row->labels, "+Inf", sum);
		metrics_out_format(page->out,
				   "rtxg_vgpu_wait_seconds_count{%s} %" PRIu64
				   "\nrtxg_vgpu_wait_seconds_sum{%s} ",
				   row->labels, sum, row->labels);
		put_value(page->out, SECONDS, json_object_get(waits, "sum_ns"));
	}
}

/* GPU memory of the programs of each vGPU, where all of them say it. */
static void put_memory(const struct page *page)
{
	static const struct family f = { "rtxg_vgpu_memory_bytes", GAUGE, NUMBER, NULL,
					 "GPU memory that its programs have in use." };
	const struct row **with = calloc(page->processes.count + 1, sizeof(*with));
	size_t column = column_of(&page->processes, "memory"), count = 0;
	bool any = false;

	for (size_t k = 0; with && k < page->processes.count; k++)
		if (json_is_integer(
			    cell(&page->processes, &page->processes.row[k], column, "memory")))
			with[count++] = &page->processes.row[k];
	for (size_t i = 0; count && i < page->vgpus.count; i++) {
		const struct row *vgpu = &page->vgpus.row[i];
		uint64_t sum = 0;
		bool known = false;

		for (size_t k = 0; k < count; k++) {
			if (strcmp(text_of(&page->processes, with[k], "vgpu"),
				   text_of(&page->vgpus, vgpu, "vgpu")) != 0 ||
			    strcmp(text_of(&page->processes, with[k], "gpu"),
				   text_of(&page->vgpus, vgpu, "gpu")) != 0)
				continue;
			known = true;
			sum += (uint64_t)json_integer_value(
				cell(&page->processes, with[k], column, "memory"));
		}
		if (!known)
			continue;
		if (!any)
			put_head(page, &f);
		any = true;
		put_name(page, &f, vgpu->labels);
		metrics_out_format(page->out, "%" PRIu64 "\n", sum);
	}
	free(with);
}

static void put_lever(const struct page *page, const json_t *lever)
{
	static const struct family actions = { "rtxg_lever_actions", COUNTER, NUMBER, NULL,
					       "What the lever did." },
				   times = { "rtxg_lever_action_seconds", COUNTER, SECONDS, NULL,
					     "Time that the driver took for it." },
				   failures = { "rtxg_lever_failures", COUNTER, NUMBER, NULL,
						"Actions that failed; final: that will not pass." },
				   guardian = { "rtxg_guardian_up", GAUGE, FLAG, NULL,
						"1: a guardian resumes what is stopped if the "
						"daemon dies." },
				   xids = { "rtxg_lever_xids", COUNTER, NUMBER, NULL,
					    "Errors that the driver logged." };
	static const char *const names[][3] = { { "action=\"suspend\"", "suspends", "suspend_ns" },
						{ "action=\"resume\"", "resumes", "resume_ns" },
						{ "action=\"slice\"", "slices", "slice_ns" } };

	put_head(page, &actions);
	for (size_t i = 0; i < 3; i++) {
		put_name(page, &actions, names[i][0]);
		put_value(page->out, NUMBER, json_object_get(lever, names[i][1]));
	}
	put_head(page, &times);
	for (size_t i = 0; i < 3; i++) {
		put_name(page, &times, names[i][0]);
		put_value(page->out, SECONDS, json_object_get(lever, names[i][2]));
	}
	put_head(page, &failures);
	put_name(page, &failures, "kind=\"passing\"");
	metrics_out_format(page->out, "%" PRIu64 "\n",
			   reply_u64(lever, "failures") - reply_u64(lever, "final"));
	put_name(page, &failures, "kind=\"final\"");
	metrics_out_format(page->out, "%" PRIu64 "\n", reply_u64(lever, "final"));
	put_head(page, &guardian);
	put_name(page, &guardian, NULL);
	put_value(page->out, FLAG, json_object_get(lever, "guarded"));
	put_head(page, &xids);
	put_name(page, &xids, NULL);
	put_value(page->out, NUMBER, json_object_get(lever, "xids"));
}

/* --- all -------------------------------------------------------------------------------------- */

static void put_host(const struct page *page, const json_t *reply)
{
	static const struct family up = { "rtxg_up", GAUGE, NUMBER, NULL,
					  "1: a host of rtxg answers." },
				   build = { "rtxg_build", INFO, NUMBER, NULL,
					     "The host that answers." },
				   refused = { "rtxg_refused_processes", GAUGE, NUMBER, NULL,
					       "Programs that asked for a task and got none; they "
					       "may run UNMANAGED." },
				   unmanaged = { "rtxg_unmanaged_processes", GAUGE, NUMBER, NULL,
						 "Programs that use a GPU and cannot be "
						 "governed." };
	char labels[LABELS] = "";
	unsigned int count = 0;

	put_head(page, &up);
	put_name(page, &up, NULL);
	metrics_out_format(page->out, "%d\n", reply != NULL);
	if (!reply)
		return;
	add_label(labels, "version", reply_string(reply, "version"));
	add_label(labels, "host", reply_string(reply, "host"));
	add_label(labels, "scope", reply_string(reply, "scope"));
	put_head(page, &build);
	put_name(page, &build, labels);
	metrics_out_text(page->out, "1\n");
	put_head(page, &refused);
	put_name(page, &refused, NULL);
	metrics_out_format(page->out, "%" PRIu64 "\n", reply_u64(reply, "refused"));
	for (size_t i = 0; i < page->processes.count; i++)
		count += json_is_false(named(&page->processes, &page->processes.row[i], "managed"));
	put_head(page, &unmanaged);
	put_name(page, &unmanaged, NULL);
	metrics_out_format(page->out, "%u\n", count);
}

#define EACH(families, rows)                                                     \
	for (size_t i_ = 0; i_ < sizeof(families) / sizeof((families)[0]); i_++) \
	put_rows(&page, &page.rows, &(families)[i_])

void metrics_write(struct metrics_out *out, const json_t *reply, const char *proc, bool open)
{
	struct page page = { .out = out, .proc = proc, .open = open };
	const json_t *lever;
	size_t i;

	make_rows(&page, &page.gpus, reply, "gpus", NULL, label_gpu);
	make_rows(&page, &page.vgpus, reply, "vgpus", "vgpu_columns", label_vgpu);
	make_rows(&page, &page.processes, reply, "processes", "process_columns", label_process);
	put_host(&page, reply);
	EACH(of_gpus, gpus);
	EACH(of_vgpus, vgpus);
	put_promises(&page);
	put_waits(&page);
	put_memory(&page);
	EACH(of_processes, processes);
	/* There is one; a second one would need a label. */
	json_array_foreach (json_object_get(reply, "levers"), i, lever)
		if (i == 0)
			put_lever(&page, lever);
	if (open)
		metrics_out_text(out, "# EOF\n");
	free(page.gpus.row);
	free(page.vgpus.row);
	free(page.processes.row);
}
