// SPDX-License-Identifier: MIT
/*
 * inversions_run.c - loads inversions.bpf.c, waits, and prints for each owner the priority
 * inversions that were found. May not: change anything, or judge what an inversion is.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli/text.h"
#include "inversions.h"
#include "inversions.skel.h"
#include "inversions_run.h"

static const char *const kinds[INV_KINDS] = {
	[INV_TOP] = "top_halves", [INV_RUNS] = "bottom_halves", [INV_WAITS] = "waits"
};

struct chooser {
	int map;
	unsigned int owner;
};

static int choose_one(void *ctx, unsigned int irq)
{
	const struct chooser *chooser = ctx;
	const struct inv_irq value = { .owner = chooser->owner, .named = chooser->owner != 0 };

	return bpf_map_update_elem(chooser->map, &irq, &value, BPF_ANY);
}

static bool read_file(int32_t tid, const char *name, char *text, size_t size)
{
	char path[64];
	size_t length;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/%s", tid, name);
	file = fopen(path, "r");
	if (!file)
		return false;
	length = fread(text, 1, size - 1, file);
	text[length] = 0;
	fclose(file);
	return length;
}

/* What a thread is now, from /proc; false: there is none. */
static bool thread_now(int32_t tid, struct inv_owner *owner)
{
	char text[512], name[32], *end;
	int priority;

	/* stat has the name, too, but not as the thread has chosen it */
	if (!read_file(tid, "stat", text, sizeof(text)) ||
	    !read_file(tid, "comm", name, sizeof(name)))
		return false;
	name[strlen(name) - 1] = 0;
	end = strrchr(text, ')');
	/* the 18th word: Linux's count, less 100 */
	if (!end ||
	    sscanf(end + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %d",
		   &priority) != 1)
		return false;
	*owner = (struct inv_owner){ .prio = 100 + priority };
	snprintf(owner->comm, sizeof(owner->comm), "%.15s", name);
	return true;
}

/* Until a task switch is seen on a CPU, nothing is known of what runs there. */
static int prepare(const struct inversions_bpf *program, const struct inversions *how)
{
	const struct inv_cpu nothing = { .prio = INV_ORDINARY };
	struct inv_owner owner;
	int cpus = libbpf_num_possible_cpus(), err = 0;

	for (unsigned int cpu = 0; !err && (int)cpu < cpus && cpu < INV_CPUS; cpu++)
		err = bpf_map_update_elem(bpf_map__fd(program->maps.cpus), &cpu, &nothing, BPF_ANY);
	if (err || !how->owner)
		return err;
	if (!thread_now(how->owner, &owner)) {
		fprintf(stderr, "rtxg-irq: -p %d: there is no such thread\n", how->owner);
		return -ESRCH;
	}
	return bpf_map_update_elem(bpf_map__fd(program->maps.owners), &how->owner, &owner, BPF_ANY);
}

static json_t *told(const struct inv_stats *stats)
{
	json_t *slots = json_array();

	for (int i = 0; i < INV_SLOTS; i++)
		json_array_append_new(slots, json_integer(stats->slots[i]));
	return json_pack("{s:I s:I s:I s:I s:o}", "count", (json_int_t)stats->count, "sum_ns",
			 (json_int_t)stats->sum_ns, "longest_ns", (json_int_t)stats->longest_ns,
			 "below_5us", (json_int_t)stats->below, "slots", slots);
}

/* The owner's row, made when its first kind is met. */
static json_t *row_of(json_t *rows, unsigned int tid, int owners)
{
	static const struct inv_stats none;
	struct inv_owner owner = { .prio = INV_ORDINARY };
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		if (json_integer_value(json_object_get(row, "owner")) == (json_int_t)tid)
			return row;
	if (bpf_map_lookup_elem(owners, &tid, &owner))
		owner.comm[0] = 0;
	owner.comm[sizeof(owner.comm) - 1] = 0;
	row = json_pack("{s:i s:s# s:i}", "owner", (int)tid, "name", "", 0, "prio", owner.prio);
	if (!row)
		return NULL;
	/* the thread chose it: it may be no text, or command a terminal */
	json_object_set_new(row, "name", json_string(text_clean(owner.comm)));
	for (int kind = 0; kind < INV_KINDS; kind++)
		json_object_set_new(row, kinds[kind], told(&none));
	json_array_append_new(rows, row);
	return row;
}

static json_t *read_all(const struct inversions_bpf *program)
{
	int map = bpf_map__fd(program->maps.found), owners = bpf_map__fd(program->maps.owners);
	struct inv_key key, next, *at = NULL;
	json_t *rows = json_array();
	struct inv_stats stats;

	while (!bpf_map_get_next_key(map, at, &next)) {
		json_t *row;

		key = next;
		at = &key;
		if (key.kind >= INV_KINDS || bpf_map_lookup_elem(map, &key, &stats))
			continue;
		row = row_of(rows, key.owner, owners);
		if (row)
			json_object_set_new(row, kinds[key.kind], told(&stats));
	}
	return rows;
}

static void print_rows(const json_t *rows)
{
	const json_t *row;
	size_t i;

	printf("%7s %-15s %-13s %9s %12s %12s %9s\n", "OWNER", "NAME", "INVERSIONS", "COUNT",
	       "SUM-us", "LONGEST-us", "BELOW-5us");
	json_array_foreach (rows, i, row) {
		int owner = (int)json_integer_value(json_object_get(row, "owner"));
		const char *name = json_string_value(json_object_get(row, "name"));
		bool any = false;

		for (int kind = 0; kind < INV_KINDS; kind++) {
			const json_t *stats = json_object_get(row, kinds[kind]);
			json_int_t count = json_integer_value(json_object_get(stats, "count"));

			if (!count)
				continue;
			any = true;
			printf("%7d %-15s %-13s %9lld %12.1f %12.1f %8.1f%%\n", owner, name,
			       kinds[kind], (long long)count,
			       (double)json_integer_value(json_object_get(stats, "sum_ns")) / 1e3,
			       (double)json_integer_value(json_object_get(stats, "longest_ns")) /
				       1e3,
			       100.0 *
				       (double)json_integer_value(
					       json_object_get(stats, "below_5us")) /
				       (double)count);
		}
		if (!any)
			printf("%7d %-15s %-13s %9d\n", owner, name, "none", 0);
	}
}

static int measure(struct inversions_bpf *program, const struct inversions *how)
{
	struct chooser chooser = { .map = bpf_map__fd(program->maps.chosen),
				   .owner = (unsigned int)how->owner };
	int chosen = how->choose(choose_one, &chooser), err;
	double seconds;
	json_t *rows;

	if (chosen <= 0) {
		fprintf(stderr, chosen ? "rtxg-irq: /proc/interrupts cannot be read\n"
				       : "rtxg-irq: no interrupt has that name or number; see "
					 "/proc/interrupts\n");
		return 1;
	}
	if (prepare(program, how))
		return 1;
	err = inversions_bpf__attach(program);
	if (err) {
		fprintf(stderr, "rtxg-irq: the tracepoints cannot be attached to: %s\n",
			strerror(-err));
		return 1;
	}
	seconds = how->wait(how->seconds);
	inversions_bpf__detach(program);
	rows = read_all(program);
	/* one that was asked for is told of, also if it had none */
	if (how->owner)
		row_of(rows, (unsigned int)how->owner, bpf_map__fd(program->maps.owners));
	if (how->json) {
		json_t *all = json_pack("{s:f s:s s:o}", "seconds", seconds, "source", "bpf",
					"owners", rows);

		json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
		printf("\n");
		json_decref(all);
	} else {
		print_rows(rows);
		json_decref(rows);
	}
	return 0;
}

/* Whether the kernel has the tracepoint. */
static bool has_tracepoint(const char *name)
{
	struct btf *btf = btf__load_vmlinux_btf();
	char type[64];
	bool has;

	snprintf(type, sizeof(type), "btf_trace_%s", name);
	has = btf && btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF) > 0;
	btf__free(btf);
	return has;
}

static struct inversions_bpf *load(void)
{
	struct inversions_bpf *program = inversions_bpf__open();
	bool each_tasklet = has_tracepoint("tasklet_entry");

	if (!program)
		return NULL;
	program->rodata->each_tasklet = each_tasklet;
	bpf_program__set_autoload(program->progs.tasklet, each_tasklet);
	bpf_program__set_autoload(program->progs.tasklet_done, each_tasklet);
	if (inversions_bpf__load(program)) {
		int err = errno;

		inversions_bpf__destroy(program);
		errno = err;
		return NULL;
	}
	return program;
}

int inversions_run(const struct inversions *how)
{
	struct inversions_bpf *program;
	int ret;

	if (!getenv("RTXG_BPF_DEBUG"))
		libbpf_set_print(NULL);
	program = load();
	if (!program) {
		ret = errno;
		fprintf(stderr,
			"rtxg-irq: the BPF program cannot be loaded: %s; it needs root, a kernel "
			"of 5.13 or later with BTF, and no lockdown\n",
			strerror(ret));
		return ret == EPERM || ret == EACCES ? 77 : 1;
	}
	ret = measure(program, how);
	inversions_bpf__destroy(program);
	return ret;
}
