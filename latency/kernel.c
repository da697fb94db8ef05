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
#include <sys/utsname.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "kernel.h"
#include "latency.skel.h"
#include "order.h"
#include "symbols.h"
#include "wakeup.h"

#define LINKS 64

struct kernel {
	struct latency *program;
	struct bpf_link *links[LINKS];
	int link_count;
	struct ring_buffer *notices;
	int cpus;
	uint32_t bins, banks;
	struct latency_control *control;
	struct latency_record *ring;
	struct latency_stack *stacks;
	struct latency_own *own;
	struct latency_fold *folds;
	unsigned long long *histograms;
	size_t histograms_size, control_size, ring_size, stacks_size, own_size, own_count,
		folds_size;
	int *alone;		       /* the CPU of a thread that is its only one; -1 */
	bool by_itself;		       /* each thread is the only one of its CPU */
	bool timer_ends;	       /* the end of the local timer's interrupt is seen */
	struct kernel_capture *before; /* of each CPU: the recording that was copied last */
	unsigned int *before_order;    /* and the number of its bank */
};

/* Interrupts that x86 counts by itself, with the names of their tracepoints. */
static const struct {
	const char *name;
	int number;
} vectors[] = {
	{ "local_timer", LATENCY_LOCAL_TIMER },
	{ "reschedule", 0xfd },
	{ "call_function_single", 0xfb },
	{ "call_function", 0xfc },
	{ "irq_work", 0xf6 },
	{ "x86_platform_ipi", 0xf7 },
	{ "thermal_apic", 0xfa },
	{ "threshold_apic", 0xf9 },
	{ "deferred_error_apic", 0xf4 },
	{ "error_apic", 0xfe },
	{ "spurious_apic", 0xff },
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
	(void)context;
	(void)data;
	(void)size;
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
		/* the first timer tells when the local timer's interrupt began */
		if (strcmp(vectors[i].name, "local_timer") &&
		    !keep_link(k,
			       bpf_program__attach_raw_tracepoint(k->program->progs.vector, name)))
			continue;
		if (vectors[i].number == LATENCY_LOCAL_TIMER && !k->timer_ends)
			continue;
		snprintf(name, sizeof(name), "%s_exit", vectors[i].name);
		keep_link(k,
			  bpf_program__attach_raw_tracepoint(k->program->progs.vector_end, name));
	}
	bpf_object__for_each_program(program, k->program->obj)
	{
		bool need = false;

		if (program == k->program->progs.vector ||
		    program == k->program->progs.vector_end || !bpf_program__autoload(program))
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

static bool watches(const struct kernel_wants *wants, int cpu)
{
	return cpu >= CPU_SETSIZE || wants->every_task || CPU_ISSET(cpu, &wants->cpus);
}

/*
 * One is written and one copied, and each thread of a CPU may have kept one meanwhile, as well as
 * the other tasks.
 */
static uint32_t banks_of(const struct kernel_wants *wants, size_t watched)
{
	size_t each = watched ? ((size_t)wants->threads + watched - 1) / watched : 1;
	size_t banks = 2 + each + (wants->every_task ? 1 : 0);

	return banks < LATENCY_BANKS ? (uint32_t)banks : LATENCY_BANKS;
}

struct kernel *kernel_open(const struct kernel_wants *wants, const char **reason)
{
	struct kernel *k = calloc(1, sizeof(*k));
	struct latency *p;
	struct utsname system;
	struct symbols_range ranges[] = { { .name = "asm_sysvec_apic_timer_interrupt" },
					  { .name = "hrtimer_wakeup" } };
	const struct symbols_range *entry = &ranges[0], *wakeup = &ranges[1];
	size_t cpus, watched = 0;
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
	for (int cpu = 0; cpu < k->cpus; cpu++)
		watched += watches(wants, cpu);
	k->banks = banks_of(wants, watched);
	p->rodata->own_tgid = getpid();
	p->rodata->every_task = wants->every_task;
	p->rodata->bins = wants->bins;
	p->rodata->banks = k->banks;
	p->rodata->break_ns = wants->break_ns;
	symbols_ranges(ranges, 2);
	if (entry->to) {
		p->rodata->entry_from = entry->from;
		p->rodata->entry_to = entry->to;
	}
	/* who is woken by other things than a timer is known at the wake-up alone */
	if (wants->by_timers)
		p->rodata->sleeper = wakeup->from;
	p->rodata->preemptible = !uname(&system) && strstr(system.version, "PREEMPT_RT");
	/* the timer of an ordinary task fires in a softirq there */
	k->by_itself =
		wants->alone && p->rodata->sleeper && (wants->real_time || !p->rodata->preemptible);
	/*
	 * A program at the end of the timer's interrupt makes each wake-up later. With a threshold
	 * the one that passes it is the last, and to know what made it late is all.
	 */
	k->timer_ends = !k->by_itself || wants->break_ns;
	p->rodata->timer_ends = k->timer_ends;
	bpf_program__set_autoload(p->progs.wakes, !p->rodata->sleeper);
	bpf_program__set_autoload(p->progs.timer_fired, wants->every_task);
	if (wants->break_ns && wants->break_ns < 20000)
		p->rodata->stack_ns = wants->break_ns / 2;
	bpf_map__set_max_entries(p->maps.histograms,
				 LATENCY_BIN((uint32_t)cpus, 0, 0, wants->bins));
	bpf_map__set_max_entries(p->maps.control, (unsigned int)cpus);
	bpf_map__set_max_entries(p->maps.ring, (unsigned int)watched * k->banks * LATENCY_RING);
	bpf_map__set_max_entries(p->maps.stacks, (unsigned int)watched * k->banks * LATENCY_STACKS);
	bpf_map__set_max_entries(p->maps.folds, (unsigned int)watched * k->banks);
	bpf_map__set_max_entries(p->maps.own,
				 wants->threads > 0 ? (unsigned int)wants->threads : 1);
	ret = latency__load(p);
	if (!ret) {
		k->control =
			map_memory(p->maps.control, sizeof(*k->control), cpus, &k->control_size);
		k->ring = map_memory(p->maps.ring, sizeof(*k->ring),
				     watched * k->banks * LATENCY_RING, &k->ring_size);
		k->stacks = map_memory(p->maps.stacks, sizeof(*k->stacks),
				       watched * k->banks * LATENCY_STACKS, &k->stacks_size);
		k->folds = map_memory(p->maps.folds, sizeof(*k->folds), watched * k->banks,
				      &k->folds_size);
		k->before = calloc(cpus, sizeof(*k->before));
		k->before_order = calloc(cpus, sizeof(*k->before_order));
		k->own_count = (size_t)wants->threads;
		k->alone = calloc(k->own_count + 1, sizeof(*k->alone));
		k->own = map_memory(p->maps.own, sizeof(*k->own), k->own_count, &k->own_size);
		k->histograms =
			map_memory(p->maps.histograms, sizeof(*k->histograms),
				   bpf_map__max_entries(p->maps.histograms), &k->histograms_size);
		k->notices = ring_buffer__new(bpf_map__fd(p->maps.notices), notice, k, NULL);
		if (!k->control || !k->ring || !k->stacks || !k->folds || !k->own ||
		    !k->histograms || !k->notices || !k->before || !k->before_order || !k->alone)
			ret = -ENOMEM;
	}
	if (!ret) {
		unsigned int place = 0;

		for (int cpu = 0; cpu < k->cpus; cpu++) {
			struct latency_control *c = &k->control[cpu];

			c->cpu = (unsigned int)cpu;
			c->own_pid = -1;
			/* With a threshold the stack of the one that passes it is wanted. */
			c->quiet_ns = wants->break_ns && !p->rodata->preemptible
					      ? 0
					      : p->rodata->stack_ns;
			c->kept_ns = wants->break_ns / 8 * 7;
			c->watched = watches(wants, cpu);
			c->place = c->watched ? place++ : 0;
			c->used[0] = 1; /* bank 0 is written first */
		}
		for (size_t i = 0; i < k->own_count; i++)
			k->alone[i] = -1;
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
	if (k->folds)
		munmap(k->folds, k->folds_size);
	if (k->own)
		munmap(k->own, k->own_size);
	if (k->histograms)
		munmap(k->histograms, k->histograms_size);
	for (int cpu = 0; k->before && cpu < k->cpus; cpu++)
		kernel_capture_close(&k->before[cpu]);
	free(k->before);
	free(k->before_order);
	free(k->alone);
	latency__destroy(k->program);
	free(k);
}

int kernel_thread(struct kernel *k, int index, int tid, const char *name)
{
	uint32_t value = (uint32_t)index;

	if (!index)
		k->program->bss->own_first = tid;
	k->own[index].last.pid = tid;
	k->own[index].number = value;
	k->own[index].counted = 1; /* none to count so far */
	snprintf(k->own[index].last.comm, EVENT_COMM, "%s", name);
	if (k->alone[index] >= 0 && k->by_itself) {
		struct latency_control *c = &k->control[k->alone[index]];

		memcpy(c->wake.comm, k->own[index].last.comm, EVENT_COMM);
		c->wake.pid = tid;
		c->wake.cpu = k->alone[index];
		c->wake.timer_cpu = k->alone[index];
		c->own_pid = tid;
	}
	return bpf_map_update_elem(bpf_map__fd(k->program->maps.own_index), &tid, &value, BPF_ANY)
		       ? -errno
		       : 0;
}

unsigned long long *kernel_begins(struct kernel *k, int cpu, int index)
{
	k->control[cpu].own = (unsigned int)index;
	k->alone[index] = cpu;
	return &k->control[cpu].expected_ns;
}

unsigned long long *kernel_expected(struct kernel *k, int index)
{
	return &k->own[index].last.expected_ns;
}

const struct latency_wake *kernel_wake(struct kernel *k, int index, uint64_t expected_ns)
{
	const struct latency_wake *wake =
		k->alone[index] >= 0 ? &k->control[k->alone[index]].wake : NULL;

	/* one that was moved to another CPU has the other */
	if (wake && wake->due_ns == expected_ns)
		return wake;
	return &k->own[index].last;
}

static struct latency_control *control_of(struct kernel *k, int cpu)
{
	return cpu >= 0 && cpu < k->cpus && k->control[cpu].watched ? &k->control[cpu] : NULL;
}

static void free_bank(struct kernel *k, const struct latency_late *late, int bank)
{
	struct latency_control *c = control_of(k, late->wake.cpu);

	if (c && bank >= 0)
		__atomic_store_n(&c->used[bank], 0, __ATOMIC_RELEASE);
}

void kernel_keep(struct kernel *k, struct latency_late *late, const struct latency_wake *wake,
		 uint64_t expected_ns, uint64_t ran_ns)
{
	struct latency_control *c = control_of(k, wake->cpu);
	struct latency_late *place;
	int back;

	place = latency_late_place(late, &back);
	if (!place)
		return;
	free_bank(k, place, back);
	place->bank = c ? latency_keep(c, k->banks) : -1;
	place->wake = *wake;
	place->expected_ns = expected_ns;
	place->ran_ns = ran_ns;
	__atomic_store_n(&place->state, LATENCY_READY, __ATOMIC_RELEASE);
}

void kernel_vector(int number, char *name)
{
	strcpy(name, "vector");
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
		if (vectors[i].number == number)
			strcpy(name, vectors[i].name);
	for (char *c = name; *c; c++)
		if (*c == '_')
			*c = ' ';
}

/*
 * Makes events of a record: an interrupt has two, and so has a wake-up by a timer. Returns how
 * many.
 */
static int decode(const struct latency_record *r, struct event *e)
{
	*e = (struct event){ .ns = r->ns,
			     .type = r->type,
			     .context = r->context,
			     .context_prio = r->context_prio,
			     .pid = -1,
			     .prio = EVENT_NO_PRIO,
			     .other = -1,
			     .other_prio = EVENT_NO_PRIO,
			     .syscall = r->syscall,
			     .stack = r->stack };
	switch (r->type) {
	case EVENT_SWITCH:
		e->pid = r->pid;
		e->prio = r->prio;
		e->other = r->context;
		e->other_prio = r->context_prio;
		memcpy(e->name, r->comm, EVENT_COMM);
		memcpy(e->other_name, r->other_comm, EVENT_COMM);
		break;
	case EVENT_WAKING:
		e->pid = r->pid;
		e->prio = r->prio;
		e->arg = r->arg;
		memcpy(e->name, r->waking_comm, EVENT_COMM);
		if (r->from)
			e->other = r->from;
		if (!r->due_ns)
			break;
		e[1] = e[0];
		e->type = EVENT_TIMER;
		e->arg = (long long)r->due_ns;
		e->stack = -1;
		return 2;
	case EVENT_PRIO:
		e->pid = r->pid;
		e->prio = r->prio;
		break;
	case EVENT_IRQ_DONE:
	case EVENT_VECTOR_DONE:
	case EVENT_SOFTIRQ_DONE:
		e->arg = r->pid;
		if (!r->arg)
			return 1;
		e[1] = e[0];
		e->ns = (uint64_t)r->arg;
		e->type = r->type - 1; /* what it is the end of */
		if (e->type == EVENT_VECTOR)
			kernel_vector(r->pid, e->name);
		else if (e->type == EVENT_IRQ)
			memcpy(e->name, r->name, EVENT_NAME);
		return 2;
	default:
		e->arg = r->arg;
		break;
	}
	return 1;
}

static bool capture_open(struct kernel_capture *capture)
{
	if (!capture->events)
		capture->events = malloc(KERNEL_EVENTS * sizeof(*capture->events));
	if (!capture->stacks)
		capture->stacks = malloc(KERNEL_STACKS * sizeof(*capture->stacks));
	return capture->events && capture->stacks;
}

/* What a bank has. Returns its number in the order of those of the CPU; 0 where it is not whole. */
static unsigned int copy_bank(struct kernel *k, const struct latency_control *c, int bank,
			      struct kernel_capture *capture)
{
	size_t at = (size_t)c->place * k->banks + (size_t)bank;
	unsigned long long head = c->head[bank];

	unsigned long long first;
	struct latency_record quiet[LATENCY_WAKE_RECORDS] = { 0 };
	const struct latency_wake *wake = &capture->wake;
	bool alone = c->expected_ns != 0;

	/*
	 * what the recorder has is of a cycle before: nothing happened in this one but its wake-up
	 */
	if (alone && c->begun_ns[bank] != capture->expected_ns)
		head = 0;
	first = head < LATENCY_RING ? 0 : head - LATENCY_RING;
	capture->count = 0;
	if (alone && !head && wake->waking_ns && wake->due_ns == capture->expected_ns) {
		int count = latency_wake_records(wake, wake->other, wake->other_prio, quiet);

		for (int i = 0; i < count; i++)
			capture->count += decode(&quiet[i], &capture->events[capture->count]);
	} else if (alone && !head && !wake->waking_ns) {
		capture->events[capture->count++] = wakeup_awake(wake, capture->expected_ns);
	}
	for (unsigned long long i = first; i < head; i++)
		capture->count += decode(&k->ring[at * LATENCY_RING + (i & (LATENCY_RING - 1))],
					 &capture->events[capture->count]);
	/*
	 * an interrupt between the taking of a place and of the time; and the begins of interrupts
	 */
	order_events(capture->events, capture->count);
	capture->alone = alone || c->begun_ns[bank] != 0;
	capture->whole =
		!first && capture->alone && (!head || c->begun_ns[bank] == capture->expected_ns);
	if (alone && !k->timer_ends && wake->irq_ns)
		capture->count = wakeup_interrupt(capture->events, capture->count, wake,
						  c->sums[LATENCY_OWN][LATENCY_WAKEUP].min_ns);
	if (first)
		capture->fold = k->folds[at];
	else
		capture->fold.from_ns = 0;
	capture->stack_count = LATENCY_STACKS;
	memcpy(capture->stacks, &k->stacks[at * LATENCY_STACKS],
	       LATENCY_STACKS * sizeof(*capture->stacks));
	return head <= LATENCY_RING ? c->order[bank] : 0;
}

/* Puts the recording before in front: a thread that was late beside another one has two. */
static void join(struct kernel_capture *capture, const struct kernel_capture *before)
{
	int events = KERNEL_EVENTS - capture->count, stacks = KERNEL_STACKS - capture->stack_count;
	int skip, moved;

	if (events > before->count)
		events = before->count;
	if (stacks > before->stack_count)
		stacks = before->stack_count;
	skip = before->stack_count - stacks;
	moved = stacks;
	memmove(capture->events + events, capture->events,
		(size_t)capture->count * sizeof(*capture->events));
	memcpy(capture->events, before->events + before->count - events,
	       (size_t)events * sizeof(*capture->events));
	memmove(capture->stacks + stacks, capture->stacks,
		(size_t)capture->stack_count * sizeof(*capture->stacks));
	memcpy(capture->stacks, before->stacks + skip, (size_t)stacks * sizeof(*capture->stacks));
	capture->count += events;
	capture->stack_count += stacks;
	capture->fold = before->fold;
	for (int i = 0; i < capture->count; i++) {
		int *stack = &capture->events[i].stack;

		if (*stack >= 0)
			*stack = i >= events ? *stack + moved : *stack >= skip ? *stack - skip : -1;
	}
}

static void copy_capture(struct kernel_capture *to, const struct kernel_capture *from)
{
	memcpy(to->events, from->events, (size_t)from->count * sizeof(*to->events));
	memcpy(to->stacks, from->stacks, (size_t)from->stack_count * sizeof(*to->stacks));
	to->fold = from->fold;
	to->count = from->count;
	to->stack_count = from->stack_count;
}

bool kernel_take(struct kernel *k, struct latency_late *late, struct kernel_capture *capture)
{
	struct latency_late *place = late;
	struct kernel_capture *before;
	struct latency_control *c;
	unsigned int order;

	while (place < late + 2 && __sync_val_compare_and_swap(&place->state, LATENCY_READY,
							       LATENCY_READ) != LATENCY_READY)
		place++;
	if (place == late + 2)
		return false;
	capture->wake = place->wake;
	capture->expected_ns = place->expected_ns;
	capture->ran_ns = place->ran_ns;
	c = control_of(k, place->wake.cpu);
	capture->taken = c && place->bank >= 0 && capture_open(capture);
	if (capture->taken) {
		before = &k->before[c->cpu];
		order = copy_bank(k, c, place->bank, capture);
		if (order && !capture->alone && before->taken &&
		    k->before_order[c->cpu] + 1 == order &&
		    (!capture->count || capture->events[0].ns > capture->expected_ns))
			join(capture, before);
		before->taken = capture_open(before);
		if (before->taken)
			copy_capture(before, capture);
		k->before_order[c->cpu] = c->order[place->bank];
	}
	free_bank(k, place, place->bank);
	__atomic_store_n(&place->state, LATENCY_NONE, __ATOMIC_RELEASE);
	return true;
}

uint64_t kernel_ready_ns(const struct latency_late *late)
{
	for (int i = 0; i < 2; i++)
		if (__atomic_load_n(&late[i].state, __ATOMIC_ACQUIRE) == LATENCY_READY)
			return late[i].ran_ns;
	return 0;
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

void kernel_told(struct kernel *k)
{
	ring_buffer__consume(k->notices);
}

struct latency_late *kernel_others(struct kernel *k, int cpu)
{
	return k->control[cpu].late;
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
	for (int cpu = 0; cpu < k->cpus; cpu++) {
		k->control[cpu].worst_ns = 0;
		k->control[cpu].wake.worst_ns = 0;
		k->control[cpu].kept_ns = k->program->rodata->break_ns / 8 * 7;
	}
	for (size_t i = 0; i < k->own_count; i++)
		k->own[i].last.worst_ns = 0;
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
