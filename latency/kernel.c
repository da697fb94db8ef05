// SPDX-License-Identifier: MIT
/*
 * kernel.c - loads bpf/latency.bpf.c, and reads what it counted and recorded. All ends with the
 * process: maps and attachments are open files.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "kernel.h"
#include "latency.skel.h"
#include "symbols.h"

#define LINKS 64

struct kernel {
	struct latency *program;
	struct bpf_link *links[LINKS];
	int link_count;
	struct ring_buffer *notices;
	int cpus;
	uint32_t bins;
	struct latency_control *control;
	struct event *ring;
	struct latency_stack *stacks;
	struct latency_wake *own;
	unsigned long long *histograms;
	size_t histograms_size, control_size, ring_size, stacks_size, own_size, own_count;
	void (*late)(void *context, const struct latency_wake *wake, int bank);
	void *context;
};

/* Interrupts that x86 counts by itself, with the names of their tracepoints. */
static const struct {
	const char *name;
	int number;
} vectors[] = {
	{ "local_timer", 0xec },   { "reschedule", 0xfd },     { "call_function_single", 0xfb },
	{ "call_function", 0xfc }, { "irq_work", 0xf6 },       { "x86_platform_ipi", 0xf7 },
	{ "thermal_apic", 0xfa },  { "threshold_apic", 0xf9 }, { "deferred_error_apic", 0xf4 },
	{ "error_apic", 0xfe },	   { "spurious_apic", 0xff },
};

static void *map_memory(const struct bpf_map *map, size_t each, size_t count, size_t *size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *memory;

	*size = (each * count + page - 1) / page * page;
	memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
	return memory == MAP_FAILED ? NULL : memory;
}

static int notice(void *context, void *data, size_t size)
{
	struct kernel *k = context;
	const struct latency_notice *n = data;

	if (size >= sizeof(*n) && k->late)
		k->late(k->context, &n->wake, (int)n->bank);
	return 0;
}

static bool keep_link(struct kernel *k, struct bpf_link *link)
{
	if (libbpf_get_error(link) || k->link_count == LINKS)
		return false;
	k->links[k->link_count++] = link;
	return true;
}

static int attach(struct kernel *k)
{
	struct bpf_program *program;
	char name[64];

	/* those without which nothing can be said; kernels differ in the others */
	static const char *const needed[] = { "timer_fires", "wakes", "change" };

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		snprintf(name, sizeof(name), "%s_entry", vectors[i].name);
		if (!keep_link(k,
			       bpf_program__attach_raw_tracepoint(k->program->progs.vector, name)))
			continue;
		snprintf(name, sizeof(name), "%s_exit", vectors[i].name);
		keep_link(k,
			  bpf_program__attach_raw_tracepoint(k->program->progs.vector_end, name));
	}
	bpf_object__for_each_program(program, k->program->obj)
	{
		bool need = false;

		if (program == k->program->progs.vector || program == k->program->progs.vector_end)
			continue;
		for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
			need |= !strcmp(bpf_program__name(program), needed[i]);
		if (!keep_link(k, bpf_program__attach(program)) && need)
			return errno ? -errno : -ENOENT;
	}
	return 0;
}

static const char *why(int err)
{
	switch (err) {
	case EPERM:
		return "the BPF program may not be loaded: root, or CAP_BPF and CAP_PERFMON, is "
		       "needed, and no lockdown";
	case ENOENT:
	case ESRCH:
		return "the kernel has no type information (BTF), or lacks a tracepoint that is "
		       "needed";
	case EACCES:
		return geteuid() ? "the BPF program may not be loaded: root is needed"
				 : "the kernel's verifier refuses the BPF program; "
				   "RTXG_LATENCY_LOG=1 shows why";
	default:
		return "the BPF program cannot be loaded on this kernel; RTXG_LATENCY_LOG=1 shows "
		       "why";
	}
}

struct kernel *kernel_open(const struct kernel_wants *wants, const char **reason)
{
	struct kernel *k = calloc(1, sizeof(*k));
	struct latency *p;
	uint64_t from, to;
	size_t cpus;
	int ret = -ENOMEM;

	if (!getenv("RTXG_LATENCY_LOG"))
		libbpf_set_print(NULL);
	p = k ? latency__open() : NULL;
	if (!p) {
		*reason = why(errno);
		free(k);
		return NULL;
	}
	k->program = p;
	k->cpus = libbpf_num_possible_cpus();
	k->bins = wants->bins;
	cpus = (size_t)k->cpus;
	p->rodata->own_tgid = getpid();
	p->rodata->every_task = wants->every_task;
	p->rodata->bins = wants->bins;
	p->rodata->break_ns = wants->break_ns;
	if (symbols_range("asm_sysvec_apic_timer_interrupt", &from, &to)) {
		p->rodata->entry_from = from;
		p->rodata->entry_to = to;
	}
	if (wants->break_ns && wants->break_ns < 20000)
		p->rodata->stack_ns = wants->break_ns / 2;
	bpf_map__set_max_entries(p->maps.histograms,
				 LATENCY_BIN((uint32_t)cpus, 0, 0, wants->bins));
	bpf_map__set_max_entries(p->maps.control, (unsigned int)cpus);
	bpf_map__set_max_entries(p->maps.ring, (unsigned int)cpus * 2 * LATENCY_RING);
	bpf_map__set_max_entries(p->maps.stacks, (unsigned int)cpus * 2 * LATENCY_STACKS);
	bpf_map__set_max_entries(p->maps.own,
				 wants->threads > 0 ? (unsigned int)wants->threads : 1);
	bpf_map__set_max_entries(p->maps.own_waking, bpf_map__max_entries(p->maps.own));
	ret = latency__load(p);
	if (!ret) {
		k->control =
			map_memory(p->maps.control, sizeof(*k->control), cpus, &k->control_size);
		k->ring = map_memory(p->maps.ring, sizeof(*k->ring), cpus * 2 * LATENCY_RING,
				     &k->ring_size);
		k->stacks = map_memory(p->maps.stacks, sizeof(*k->stacks),
				       cpus * 2 * LATENCY_STACKS, &k->stacks_size);
		k->own_count = (size_t)wants->threads;
		k->own = map_memory(p->maps.own, sizeof(*k->own), k->own_count, &k->own_size);
		k->histograms =
			map_memory(p->maps.histograms, sizeof(*k->histograms),
				   bpf_map__max_entries(p->maps.histograms), &k->histograms_size);
		k->notices = ring_buffer__new(bpf_map__fd(p->maps.notices), notice, k, NULL);
		if (!k->control || !k->ring || !k->stacks || !k->own || !k->histograms ||
		    !k->notices)
			ret = -ENOMEM;
	}
	if (!ret) {
		for (int cpu = 0; cpu < k->cpus; cpu++) {
			k->control[cpu].cpu = (unsigned int)cpu;
			k->control[cpu].watched = cpu >= CPU_SETSIZE || wants->every_task ||
						  CPU_ISSET(cpu, &wants->cpus);
		}
		ret = attach(k);
	}
	if (ret) {
		*reason = why(-ret);
		kernel_close(k);
		return NULL;
	}
	return k;
}

void kernel_detach(struct kernel *k)
{
	while (k->link_count)
		bpf_link__destroy(k->links[--k->link_count]);
}

void kernel_close(struct kernel *k)
{
	if (!k)
		return;
	kernel_detach(k);
	ring_buffer__free(k->notices);
	if (k->control)
		munmap(k->control, k->control_size);
	if (k->ring)
		munmap(k->ring, k->ring_size);
	if (k->stacks)
		munmap(k->stacks, k->stacks_size);
	if (k->own)
		munmap(k->own, k->own_size);
	if (k->histograms)
		munmap(k->histograms, k->histograms_size);
	latency__destroy(k->program);
	free(k);
}

int kernel_thread(struct kernel *k, int index, int tid)
{
	uint32_t value = (uint32_t)index;

	if (!index)
		k->program->bss->own_first = tid;
	k->own[index].pid = tid;
	return bpf_map_update_elem(bpf_map__fd(k->program->maps.own_index), &tid, &value, BPF_ANY)
		       ? -errno
		       : 0;
}

const struct latency_wake *kernel_wake(struct kernel *k, int index)
{
	return &k->own[index];
}

int kernel_keep(struct kernel *k, int cpu)
{
	struct latency_control *c;
	unsigned int bank, next;

	if (cpu < 0 || cpu >= k->cpus)
		return -1;
	c = &k->control[cpu];
	bank = c->bank & 1;
	next = bank ^ 1;
	if (__atomic_load_n(&c->full[next], __ATOMIC_ACQUIRE)) {
		c->untaken++;
		return -1;
	}
	c->head[next] = 0;
	c->stacks[next] = 0;
	__atomic_store_n(&c->full[bank], 1, __ATOMIC_RELAXED);
	__atomic_store_n(&c->bank, next, __ATOMIC_RELEASE);
	return (int)bank;
}

static void name_vector(struct event *e)
{
	if (e->type != EVENT_VECTOR)
		return;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
		if (vectors[i].number == e->arg) {
			strcpy(e->name, vectors[i].name);
			for (char *c = e->name; *c; c++)
				if (*c == '_')
					*c = ' ';
			return;
		}
	strcpy(e->name, "vector");
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

int kernel_take(struct kernel *k, int cpu, int bank, struct kernel_capture *capture)
{
	struct latency_control *c = &k->control[cpu];
	size_t at = (size_t)cpu * 2 + (size_t)bank;
	unsigned long long head = c->head[bank];
	int ret = 0;

	if (!capture->events)
		capture->events = malloc(LATENCY_RING * sizeof(*capture->events));
	if (!capture->stacks)
		capture->stacks = malloc(LATENCY_STACKS * sizeof(*capture->stacks));
	capture->taken = capture->events && capture->stacks;
	if (capture->taken) {
		capture->count = head < LATENCY_RING ? (int)head : LATENCY_RING;
		for (int i = 0; i < capture->count; i++) {
			capture->events[i] = k->ring[at * LATENCY_RING +
						     ((head - (unsigned long long)capture->count +
						       (unsigned long long)i) &
						      (LATENCY_RING - 1))];
			name_vector(&capture->events[i]);
		}
		/* an interrupt between the taking of a place and of the time */
		qsort(capture->events, (size_t)capture->count, sizeof(*capture->events), by_time);
		memcpy(capture->stacks, &k->stacks[at * LATENCY_STACKS],
		       LATENCY_STACKS * sizeof(*capture->stacks));
	} else {
		ret = -ENOMEM;
	}
	__atomic_store_n(&c->full[bank], 0, __ATOMIC_RELEASE);
	return ret;
}

void kernel_capture_close(struct kernel_capture *capture)
{
	free(capture->events);
	free(capture->stacks);
	memset(capture, 0, sizeof(*capture));
}

int kernel_fd(struct kernel *k)
{
	return ring_buffer__epoll_fd(k->notices);
}

void kernel_others(struct kernel *k,
		   void (*late)(void *context, const struct latency_wake *wake, int bank),
		   void *context)
{
	k->late = late;
	k->context = context;
	ring_buffer__consume(k->notices);
}

void kernel_histogram(struct kernel *k, int cpu, enum latency_class of, enum latency_kind kind,
		      struct histogram *h)
{
	for (int i = cpu < 0 ? 0 : cpu; i < (cpu < 0 ? k->cpus : cpu + 1); i++) {
		const struct latency_sum *sum = &k->control[i].sums[of][kind];
		const unsigned long long *counts =
			&k->histograms[LATENCY_BIN((size_t)i, of, kind, (size_t)k->bins)];

		if (!sum->count)
			continue;
		if (!h->total || sum->min_ns < h->min_ns)
			h->min_ns = sum->min_ns;
		if (sum->max_ns > h->max_ns)
			h->max_ns = sum->max_ns;
		h->sum_ns += sum->sum_ns;
		h->total += sum->count;
		for (uint32_t bin = 0; bin <= k->bins; bin++) {
			if (bin < k->bins && bin < h->bins)
				h->count[bin] += counts[bin];
			else
				h->overflows += counts[bin];
		}
	}
}

void kernel_forget(struct kernel *k)
{
	for (int cpu = 0; cpu < k->cpus; cpu++)
		k->control[cpu].worst_ns = 0;
	for (size_t i = 0; i < k->own_count; i++)
		k->own[i].worst_ns = 0;
}

int kernel_cpus(const struct kernel *k)
{
	return k->cpus;
}

uint64_t kernel_untaken(const struct kernel *k)
{
	uint64_t sum = 0;

	for (int i = 0; i < k->cpus; i++)
		sum += k->control[i].untaken;
	return sum;
}
