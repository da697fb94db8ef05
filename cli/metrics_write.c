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

#define LABELS	1024
#define COLUMNS 24
#define DIGITS	24 /* bytes of a number as text */

struct labels {
	char text[LABELS];
	size_t size;
};

/*
 * What is shown of an object (a vGPU on an engine, a process, a GPU). A vGPU or a process comes as
 * text with '/' between its cells, the last of which may have that, too; "-" is none. A GPU comes
 * as an object, and so does what only some vGPUs have.
 */
struct row {
	const char *cells[COLUMNS]; /* NULL: none */
	const json_t *object;	    /* a GPU, or what only some have; NULL */
	char *text;		    /* of the cells */
	char *labels;		    /* in braces, with a blank behind */
};

/* The columns that are labels, or are looked at by name. */
enum key { K_GPU, K_VGPU, K_ENGINE, K_PID, K_TASK, K_COMM, K_MANAGED, K_MEMORY, K_MORE, KEYS };

static const char *const keys[] = { "gpu",  "vgpu",    "engine", "pid", "task",
				    "comm", "managed", "memory", "more" };

_Static_assert(sizeof(keys) / sizeof(*keys) == KEYS, "each has a name");

struct rows {
	struct row *row;
	size_t count;
	const json_t *columns; /* NULL: of objects */
	size_t columns_count, column[KEYS];
};

struct page {
	struct metrics_out *out;
	const char *proc;
	bool open;
	struct rows gpus, vgpus, processes;
};

/* --- cells ------------------------------------------------------------------------------------ */

static size_t column_of(const struct rows *rows, const char *name)
{
	const json_t *column;
	size_t i;

	json_array_foreach (rows->columns, i, column)
		if (strcmp(json_string_value(column), name) == 0)
			break;
	return i;
}

/* NULL is NULL; true is 1. */
static const char *as_text(const json_t *value, char number[DIGITS])
{
	if (json_is_string(value))
		return json_string_value(value);
	if (!value || json_is_null(value))
		return NULL;
	snprintf(number, DIGITS, "%" JSON_INTEGER_FORMAT,
		 json_is_boolean(value) ? (json_int_t)json_is_true(value)
					: json_integer_value(value));
	return number;
}

static const char *cell(const struct rows *rows, const struct row *row, size_t column,
			const char *name, char number[DIGITS])
{
	if (column < rows->columns_count)
		return column < COLUMNS ? row->cells[column] : NULL;
	return as_text(json_object_get(row->object, name), number);
}

/* "" is none. */
static const char *named(const struct rows *rows, const struct row *row, enum key key)
{
	size_t column = rows->column[key];

	return column < COLUMNS && row->cells[column] ? row->cells[column] : "";
}

static void split(struct rows *rows, struct row *row, const json_t *object)
{
	size_t columns = rows->columns_count;
	char *at;

	row->text = strdup(json_is_string(object) ? json_string_value(object) : "");
	at = row->text;
	for (size_t i = 0; i < columns && i < COLUMNS && at; i++) {
		char *end = i + 1 < columns ? strchr(at, '/') : NULL;

		if (end)
			*end++ = 0;
		row->cells[i] = end && at[0] == '-' && !at[1] ? NULL : at;
		at = end;
	}
}

/* --- labels ----------------------------------------------------------------------------------- */

static void add_label(struct labels *labels, const char *name, const char *value)
{
	size_t value_size = strlen(value);
	char *at = labels->text + labels->size;

	/* An empty label is none. What does not fit is left out as a whole. */
	if (!value_size || LABELS - labels->size < strlen(name) + 2 * value_size + 6)
		return;
	if (labels->size)
		*at++ = ',';
	at = stpcpy(stpcpy(at, name), "=\"");
	for (; *value; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			*at++ = '\\';
		*at++ = *value == '\n' ? 'n' : *value;
	}
	*at++ = '"';
	*at = 0;
	labels->size = (size_t)(at - labels->text);
}

/* As they stand in a line; of no labels it is a blank. */
static char *finish(const struct labels *labels)
{
	char *text = malloc(labels->size + 4), *at = text;

	if (text && labels->size) {
		*at++ = '{';
		at = mempcpy(at, labels->text, labels->size);
		*at++ = '}';
	}
	if (text)
		strcpy(at, " ");
	return text;
}

/* Labels that are done, without what finish() put around them. */
static void begin_with(struct labels *labels, const char *done)
{
	labels->size = done && *done == '{' ? strlen(done) - 3 : 0;
	if (labels->size)
		memcpy(labels->text, done + 1, labels->size);
	labels->text[labels->size] = 0;
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
static void add_gpu(struct labels *labels, const char *proc, const json_t *reply, const char *name)
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

static void label_gpu(struct page *page, const json_t *reply, struct row *row,
		      struct labels *labels)
{
	add_gpu(labels, page->proc, reply, reply_string(row->object, "gpu"));
}

static void label_engine(struct page *page, const struct rows *rows, struct row *row,
			 struct labels *labels)
{
	const char *gpu = named(rows, row, K_GPU);

	/* The labels of its GPU are made once. */
	for (size_t i = 0; i < page->gpus.count; i++)
		if (strcmp(reply_string(page->gpus.row[i].object, "gpu"), gpu) == 0)
			begin_with(labels, page->gpus.row[i].labels);
	add_label(labels, "vgpu", named(rows, row, K_VGPU));
}

static void label_vgpu(struct page *page, const json_t *reply, struct row *row,
		       struct labels *labels)
{
	label_engine(page, &page->vgpus, row, labels);
	add_label(labels, "engine", named(&page->vgpus, row, K_ENGINE));
}

static void label_process(struct page *page, const json_t *reply, struct row *row,
			  struct labels *labels)
{
	const char *pid = named(&page->processes, row, K_PID);
	struct metrics_pod pod;

	label_engine(page, &page->processes, row, labels);
	add_label(labels, "pid", pid);
	add_label(labels, "task", named(&page->processes, row, K_TASK));
	add_label(labels, "comm", named(&page->processes, row, K_COMM));
	pod = metrics_pod_of(page->proc, METRICS_POD_LOGS, (size_t)(row - page->processes.row),
			     strtoll(pid, NULL, 10));
	add_label(labels, "namespace", pod.space);
	add_label(labels, "pod", pod.pod);
	add_label(labels, "container", pod.container);
	add_label(labels, "pod_uid", pod.uid);
	add_label(labels, "container_id", pod.id);
}

static void make_rows(struct page *page, struct rows *rows, const json_t *reply, const char *list,
		      const char *columns,
		      void (*label)(struct page *page, const json_t *reply, struct row *row,
				    struct labels *labels))
{
	const json_t *objects = json_object_get(reply, list), *object;
	size_t i;

	rows->columns = columns ? json_object_get(reply, columns) : NULL;
	rows->columns_count = json_array_size(rows->columns);
	for (enum key key = 0; key < KEYS; key++)
		rows->column[key] = columns ? column_of(rows, keys[key]) : COLUMNS;
	rows->row = calloc(json_array_size(objects) + 1, sizeof(*rows->row));
	json_array_foreach (objects, i, object) {
		struct row *row = rows->row ? &rows->row[i] : NULL;
		struct labels labels;
		const char *more;

		if (!row)
			return;
		rows->count++;
		labels.size = 0;
		if (columns) {
			split(rows, row, object);
			more = named(rows, row, K_MORE);
			if (*more)
				row->object = json_array_get(json_object_get(reply, "more"),
							     strtoul(more, NULL, 10));
		} else {
			row->object = object;
		}
		label(page, reply, row, &labels);
		row->labels = finish(&labels);
		page->out->failed |= !row->labels || (columns && !row->text);
	}
}

static void free_rows(struct rows *rows)
{
	for (size_t i = 0; i < rows->count; i++) {
		free(rows->row[i].text);
		free(rows->row[i].labels);
	}
	free(rows->row);
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

/* labels: as finish() made them; NULL: none */
static void put_name(const struct page *page, const struct family *f, const char *labels)
{
	metrics_out_text(page->out, f->name);
	if (f->type == COUNTER)
		metrics_out_text(page->out, "_total");
	if (f->type == INFO)
		metrics_out_text(page->out, "_info");
	metrics_out_text(page->out, labels ? labels : " ");
}

/* The end of a line: digits, of which the last ones are decimals of the unit. */
static void put_digits(struct metrics_out *out, enum unit unit, const char *digits)
{
	const size_t decimals = unit == SECONDS ? 9 : unit == RATIO ? 6 : 0;
	char text[DIGITS + 12], *at = text;
	size_t n;

	if (*digits == '-')
		*at++ = *digits++;
	n = strspn(digits, "0123456789");
	if (!n || digits[n] || n > DIGITS) {
		digits = "0";
		n = 1;
	}
	if (n > decimals) {
		memcpy(at, digits, n - decimals);
		at += n - decimals;
		digits += n - decimals;
		n = decimals;
	} else {
		*at++ = '0';
	}
	if (decimals) {
		*at++ = '.';
		memset(at, '0', decimals - n);
		memcpy(at + decimals - n, digits, n);
		at += decimals;
	}
	*at++ = '\n';
	metrics_out_put(out, text, (size_t)(at - text));
}

static void put_value(struct metrics_out *out, enum unit unit, const json_t *value)
{
	char number[DIGITS];
	const char *text = as_text(value, number);

	put_digits(out, unit, text ? text : "0");
}

/* One line for each row that has the member; no head where none has. */
static void put_rows(const struct page *page, const struct rows *rows, const struct family *f)
{
	size_t column = column_of(rows, f->member);
	bool any = false;

	for (size_t i = 0; i < rows->count; i++) {
		char number[DIGITS];
		const char *value = cell(rows, &rows->row[i], column, f->member, number);

		if (!value)
			continue;
		if (!any)
			put_head(page, f);
		any = true;
		put_name(page, f, rows->row[i].labels);
		put_digits(page->out, f->unit, value);
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
			const json_t *broken = json_object_get(row->object, "broken"), *ns, *one;
			const char *name;
			size_t at;

			json_object_foreach ((json_t *)json_object_get(row->object, "broken_ns"),
					     name, ns) {
				struct labels labels;
				char *finished;
				int is = 0;

				if (!any)
					put_head(page, both[k]);
				any = true;
				begin_with(&labels, row->labels);
				add_label(&labels, "promise", name);
				finished = finish(&labels);
				put_name(page, both[k], finished);
				free(finished);
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
		const json_t *waits = json_object_get(row->object, "waits"), *limit;
		const json_t *counts = json_object_get(waits, "counts");
		struct labels labels;
		uint64_t sum = 0;
		size_t at;

		if (!waits)
			continue;
		if (!any)
			put_head(page, &f);
		any = true;
		begin_with(&labels, row->labels);
		json_array_foreach (json_object_get(waits, "limits_ns"), at, limit) {
			char text[32];

			snprintf(text, sizeof(text), "%g", (double)json_integer_value(limit) / 1e9);
			if (!strpbrk(text, ".e"))
				strcat(text, ".0");
			sum += (uint64_t)json_integer_value(json_array_get(counts, at));
			put_bucket(page, labels.text, text, sum);
		}
		sum += (uint64_t)json_integer_value(
			json_array_get(counts, json_array_size(counts) - 1));
		put_bucket(page, labels.text, "+Inf", sum);
		metrics_out_format(page->out,
				   "rtxg_vgpu_wait_seconds_count{%s} %" PRIu64
				   "\nrtxg_vgpu_wait_seconds_sum{%s} ",
				   labels.text, sum, labels.text);
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
	char number[DIGITS];
	bool any = false;

	for (size_t k = 0; with && k < page->processes.count; k++)
		if (cell(&page->processes, &page->processes.row[k], column, "memory", number))
			with[count++] = &page->processes.row[k];
	for (size_t i = 0; count && i < page->vgpus.count; i++) {
		const struct row *vgpu = &page->vgpus.row[i];
		uint64_t sum = 0;
		bool known = false;

		for (size_t k = 0; k < count; k++) {
			if (strcmp(named(&page->processes, with[k], K_VGPU),
				   named(&page->vgpus, vgpu, K_VGPU)) != 0 ||
			    strcmp(named(&page->processes, with[k], K_GPU),
				   named(&page->vgpus, vgpu, K_GPU)) != 0)
				continue;
			known = true;
			sum += strtoull(named(&page->processes, with[k], K_MEMORY), NULL, 10);
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
	static const char *const names[][3] = { { "{action=\"suspend\"} ", "suspends",
						  "suspend_ns" },
						{ "{action=\"resume\"} ", "resumes", "resume_ns" },
						{ "{action=\"slice\"} ", "slices", "slice_ns" } };

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
	put_name(page, &failures, "{kind=\"passing\"} ");
	metrics_out_format(page->out, "%" PRIu64 "\n",
			   reply_u64(lever, "failures") - reply_u64(lever, "final"));
	put_name(page, &failures, "{kind=\"final\"} ");
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
	struct labels labels = { .size = 0 };
	unsigned int count = 0;
	char *finished;

	put_head(page, &up);
	put_name(page, &up, NULL);
	metrics_out_format(page->out, "%d\n", reply != NULL);
	if (!reply)
		return;
	add_label(&labels, "version", reply_string(reply, "version"));
	add_label(&labels, "host", reply_string(reply, "host"));
	add_label(&labels, "scope", reply_string(reply, "scope"));
	put_head(page, &build);
	finished = finish(&labels);
	put_name(page, &build, finished);
	free(finished);
	metrics_out_text(page->out, "1\n");
	put_head(page, &refused);
	put_name(page, &refused, NULL);
	metrics_out_format(page->out, "%" PRIu64 "\n", reply_u64(reply, "refused"));
	for (size_t i = 0; i < page->processes.count; i++)
		count += strcmp(named(&page->processes, &page->processes.row[i], K_MANAGED), "0") ==
			 0;
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
	free_rows(&page.gpus);
	free_rows(&page.vgpus);
	free_rows(&page.processes);
}
