// SPDX-License-Identifier: MIT
/*
 * recorder.c - keeps what led to late wake-ups. A measuring thread that was later than before has
 * its CPU's recorder kept at once, by memory that it shares with the kernel, and the main thread
 * copies it. A thread that is later still before that takes its recording back. May not: sleep in a
 * function that a measuring thread calls.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "culprit.h"
#include "recorder.h"
#include "show.h"

/* A measuring thread's own. */
struct recorder_thread {
	struct recorder *recorder;
	int index;
	struct histogram
		switches; /* from the kernel's switch to the thread's reading of the clock */
	struct latency_late late[2]; /* what the thread hands over */
	struct kernel_capture capture;
	bool found; /* the capture holds the worst */
};

struct recorder {
	struct kernel *kernel;
	struct probe *probes;
	int count, cpus;
	int event, poll;
	struct recorder_thread *threads;
	struct kernel_capture *others; /* of each CPU */
	struct symbols *symbols;
	bool symbols_sought;
};

static void woken(struct probe *p, uint64_t expected_ns, uint64_t ran_ns)
{
	struct recorder_thread *t = p->context;
	const struct latency_wake *wake = kernel_wake(t->recorder->kernel, t->index, expected_ns);

	if (wake->due_ns == expected_ns && wake->switch_ns > wake->waking_ns &&
	    wake->switch_ns <= ran_ns)
		histogram_add(&t->switches, ran_ns - wake->switch_ns);
}

static void late(struct probe *p, const struct probe_worst *worst)
{
	struct recorder_thread *t = p->context;
	const struct latency_wake *wake =
		kernel_wake(t->recorder->kernel, t->index, worst->expected_ns);
	/* where no timer woke it, it had not slept */
	struct latency_wake self = { .pid = p->tid,
				     .cpu = sched_getcpu(),
				     .other = -1,
				     .prio = EVENT_NO_PRIO,
				     .other_prio = EVENT_NO_PRIO };
	uint64_t one = 1;

	memcpy(self.comm, wake->comm, sizeof(self.comm));
	kernel_keep(t->recorder->kernel, t->late, wake->due_ns == worst->expected_ns ? wake : &self,
		    worst->expected_ns, worst->ran_ns);
	if (write(t->recorder->event, &one, sizeof(one)) < 0)
		return; /* the counter is full: it is readable */
}

static bool watch(struct recorder *r, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return fd >= 0 && !epoll_ctl(r->poll, EPOLL_CTL_ADD, fd, &event);
}

/* Is it the only thread of the CPU that it is bound to? */
static bool sole(const struct probe *probes, int count, int number)
{
	int others = 0;

	for (int i = 0; i < count; i++)
		others += i != number && probes[i].cpu == probes[number].cpu;
	return probes[number].cpu >= 0 && !others;
}

struct recorder *recorder_open(struct kernel *k, struct probe *probes, int count, bool every_task)
{
	struct recorder *r = calloc(1, sizeof(*r));
	int ret = 0;

	if (!r)
		return NULL;
	r->kernel = k;
	r->probes = probes;
	r->count = count;
	r->cpus = kernel_cpus(k);
	r->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->poll = epoll_create1(EPOLL_CLOEXEC);
	r->threads = calloc((size_t)count, sizeof(*r->threads));
	r->others = calloc((size_t)r->cpus, sizeof(*r->others));
	if (!r->threads || !r->others || !watch(r, r->event) || !watch(r, kernel_fd(k)))
		ret = -ENOMEM;
	for (int i = 0; !ret && i < count; i++) {
		struct recorder_thread *t = &r->threads[i];

		t->recorder = r;
		t->index = i;
		ret = histogram_open(&t->switches, probes[i].observed.bins);
		probes[i].context = t;
		probes[i].expected = kernel_expected(k, i);
		probes[i].woken = woken;
		probes[i].late = late;
		if (!every_task && sole(probes, count, i))
			probes[i].begins = kernel_begins(k, probes[i].cpu, i);
	}
	if (!ret)
		return r;
	recorder_close(r);
	return NULL;
}

void recorder_close(struct recorder *r)
{
	for (int i = 0; r->threads && i < r->count; i++) {
		histogram_close(&r->threads[i].switches);
		kernel_capture_close(&r->threads[i].capture);
	}
	for (int i = 0; r->others && i < r->cpus; i++)
		kernel_capture_close(&r->others[i]);
	free(r->threads);
	free(r->others);
	symbols_close(r->symbols);
	close(r->event);
	close(r->poll);
	free(r);
}

void recorder_threads(struct recorder *r)
{
	char name[EVENT_COMM];

	for (int i = 0; i < r->count; i++)
		kernel_thread(r->kernel, i, r->probes[i].tid,
			      probe_name(&r->probes[i], name, sizeof(name)));
}

int recorder_fd(struct recorder *r)
{
	return r->poll;
}

/* In the order of their times: what was late beside another thread needs the recording of that. */
static struct recorder_thread *next_ready(struct recorder *r)
{
	struct recorder_thread *first = NULL;
	uint64_t first_ns = 0, ns;

	for (int i = 0; i < r->count; i++) {
		ns = kernel_ready_ns(r->threads[i].late);
		if (ns && (!first || ns < first_ns)) {
			first = &r->threads[i];
			first_ns = ns;
		}
	}
	return first;
}

void recorder_collect(struct recorder *r)
{
	struct recorder_thread *t;
	uint64_t many;

	if (read(r->event, &many, sizeof(many)) < 0)
		many = 0; /* the others' may have been told alone */
	kernel_told(r->kernel);
	while ((t = next_ready(r)))
		if (kernel_take(r->kernel, t->late, &t->capture)) {
			t->capture.wake.syscall = SYS_clock_nanosleep;
			t->found = true;
		}
	for (int cpu = 0; cpu < r->cpus; cpu++)
		kernel_take(r->kernel, kernel_others(r->kernel, cpu), &r->others[cpu]);
}

void recorder_forget(struct recorder *r)
{
	for (int i = 0; i < r->count; i++)
		r->threads[i].found = false;
	for (int i = 0; i < r->cpus; i++)
		r->others[i].ran_ns = 0;
	kernel_forget(r->kernel);
}

/*
 * Names for the stacks of a recording. Without any, the kernel is not asked for them: that takes
 * long.
 */
static const struct symbols *symbols(struct recorder *r, const struct kernel_capture *capture)
{
	bool stacks = false;

	for (int i = 0; capture->taken && i < capture->count; i++)
		stacks |= capture->events[i].stack >= 0;
	if (stacks && !r->symbols_sought) {
		r->symbols = symbols_open();
		r->symbols_sought = true;
	}
	return r->symbols;
}

static uint64_t lateness(const struct kernel_capture *capture)
{
	return capture->ran_ns - capture->expected_ns;
}

static void show_one(struct recorder *r, FILE *out, const char *title,
		     const struct kernel_capture *capture)
{
	struct culprit c;

	if (!capture || culprit_find(&c, capture, symbols(r, capture)))
		return;
	fprintf(out, "# %s, on CPU %d:\n", title, capture->wake.cpu);
	culprit_show(out, &c);
}

/* The latest of the threads' own; `taken`: of those with a recording. */
static const struct kernel_capture *latest(const struct recorder *r, bool taken)
{
	const struct kernel_capture *worst = NULL;

	for (int i = 0; i < r->count; i++) {
		const struct recorder_thread *t = &r->threads[i];

		if (t->found && (t->capture.taken || !taken) &&
		    (!worst || lateness(&t->capture) > lateness(worst)))
			worst = &t->capture;
	}
	return worst;
}

void recorder_show(struct recorder *r, FILE *out)
{
	const struct kernel_capture *worst = latest(r, false), *worst_other = NULL;

	for (int i = 0; i < r->cpus; i++)
		if (r->others[i].ran_ns &&
		    (!worst_other || lateness(&r->others[i]) > lateness(worst_other)))
			worst_other = &r->others[i];
	show_one(r, out, "The latest wake-up", worst);
	/* of many threads that are late at once, some have none: another's says what it was */
	if (worst && !worst->taken)
		show_one(r, out, "The latest wake-up that could be recorded", latest(r, true));
	show_one(r, out, "The latest wake-up of another real-time task", worst_other);
	if (kernel_untaken(r->kernel))
		fprintf(out, "# Of %llu late wake-ups no recording could be kept\n",
			(unsigned long long)kernel_untaken(r->kernel));
}

static void append(struct recorder *r, json_t *list, const struct kernel_capture *capture,
		   int index)
{
	struct culprit c;
	json_t *one;

	if (culprit_find(&c, capture, symbols(r, capture)))
		return;
	one = culprit_json(&c);
	if (index >= 0)
		json_object_set_new(one, "thread", json_integer(index));
	json_array_append_new(list, one);
}

json_t *recorder_worst_json(struct recorder *r)
{
	json_t *own = json_array(), *others = json_array();

	for (int i = 0; i < r->count; i++)
		if (r->threads[i].found)
			append(r, own, &r->threads[i].capture, i);
	for (int i = 0; i < r->cpus; i++)
		if (r->others[i].ran_ns)
			append(r, others, &r->others[i], -1);
	return json_pack("{s:o, s:o}", "own", own, "others", others);
}

/* The counts of a class, each kind; a CPU without any is left out. */
static json_t *class_json(struct recorder *r, int cpu, enum latency_class of)
{
	static const char *const names[] = { "timer", "wakeup", "total" };
	json_t *record = json_object();

	for (int kind = 0; kind < LATENCY_KINDS; kind++) {
		struct histogram h;

		if (histogram_open(&h, r->probes[0].observed.bins))
			break;
		kernel_histogram(r->kernel, cpu, of, (enum latency_kind)kind, &h);
		if (h.total)
			json_object_set_new(record, names[kind], show_histogram_json(&h));
		histogram_close(&h);
	}
	return record;
}

json_t *recorder_kernel_json(struct recorder *r)
{
	json_t *cpus = json_array(), *own;
	struct histogram switches;

	own = class_json(r, -1, LATENCY_OWN);
	if (!histogram_open(&switches, r->probes[0].observed.bins)) {
		for (int i = 0; i < r->count; i++)
			histogram_merge(&switches, &r->threads[i].switches);
		json_object_set_new(own, "switch", show_histogram_json(&switches));
		histogram_close(&switches);
	}
	for (int cpu = 0; cpu < r->cpus; cpu++) {
		json_t *mine = class_json(r, cpu, LATENCY_OWN);
		json_t *others = class_json(r, cpu, LATENCY_ALL);

		if (json_object_size(mine) || json_object_size(others))
			json_array_append_new(cpus, json_pack("{s:i, s:O, s:O}", "cpu", cpu, "own",
							      mine, "others", others));
		json_decref(mine);
		json_decref(others);
	}
	return json_pack("{s:o, s:o, s:o, s:I}", "own", own, "others",
			 class_json(r, -1, LATENCY_ALL), "cpus", cpus, "untaken",
			 (json_int_t)kernel_untaken(r->kernel));
}
