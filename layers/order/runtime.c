// SPDX-License-Identifier: MIT
/*
 * runtime.c - begins with the program if `rtxg order` asks for it, knows the program's threads, and
 * sends their accesses to the record or to the order. May not: change what the program computes, or
 * end it.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record.h"
#include "runtime.h"
#include "sys.h"

__thread __attribute__((tls_model("initial-exec"))) struct runtime_self runtime_self;
struct area *runtime_area;
struct rtx_order *runtime_order;

static struct area_range range[RTX_ORDER_VARIABLES];
static uint32_t ranges;
static uint64_t lowest = UINT64_MAX, highest;
static bool all;

/* --- what the kernel says of a thread --------------------------------------------------------- */

static ssize_t read_task(int32_t tid, const char *file, char *text, size_t size)
{
	char path[64];
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	length = read(fd, text, size - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	return length;
}

/* Whether the thread is still one of this process. */
static bool runtime_there(int32_t tid)
{
	char text[16];

	return read_task(tid, "comm", text, sizeof(text)) > 0;
}

bool runtime_asleep(int32_t tid)
{
	char text[256];
	const char *name_end;

	/* A thread that is gone makes no access any more. */
	if (read_task(tid, "stat", text, sizeof(text)) <= 0)
		return true;
	name_end = strrchr(text, ')');
	return name_end && name_end[1] == ' ' && strchr("SZX", name_end[2]);
}

uint64_t runtime_cpu_ns(int32_t tid)
{
	char text[64];

	return read_task(tid, "schedstat", text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : 0;
}

/* --- following an order ----------------------------------------------------------------------- */

/* CPU time in which a thread has made the access that is under way for sure. */
#define MADE_NS (2 * NS_PER_MS)

/*
 * The needed thread is inside of an access, as it says: it says more only at its next access. If it
 * sleeps in the kernel, or has run for long since, it has made that access.
 */
static bool has_made(const struct rtx_order_thread *needed, uint32_t clock)
{
	struct runtime_watch *watch = &runtime_self.watch;
	uint64_t now;

	if (load(&needed->under_way) != clock + 1)
		return false;
	if (runtime_asleep(needed->tid))
		return true;
	now = runtime_cpu_ns(needed->tid);
	if (watch->thread != needed->index || watch->clock != clock || !watch->cpu_ns)
		*watch = (struct runtime_watch){ needed->index, clock, now };
	return now - watch->cpu_ns > MADE_NS;
}

/* It may have moved meanwhile, and says what it makes now: then there is nothing to complete. */
static bool complete_for(struct rtx_order *order, struct rtx_order_thread *needed)
{
	uint32_t clock = load(&needed->clock);

	if (has_made(needed, clock))
		return __atomic_compare_exchange_n(&needed->clock, &clock, clock + 1, false,
						   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	/* It ended without a word, by a call of the kernel: it makes no more accesses. */
	if (load(&needed->state) == RTX_ORDER_JOINED && needed->tid && !runtime_there(needed->tid))
		rtx_order_leave(order, needed->index + 1);
	return false;
}

static void give_up(struct area *area, const char *words)
{
	uint32_t whole = 0;

	if (__atomic_compare_exchange_n(&area->broken, &whole, 1, false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		snprintf(area->words, sizeof(area->words), "%s", words);
	store(&runtime_area, NULL);
}

static void broken(void)
{
	struct area *area = runtime_area;
	char words[400];

	if (area && rtx_order_broken(runtime_order, words, sizeof(words)))
		give_up(area, words);
}

/* The words first: threads that are let go have none so good. */
static void give_up_extra(struct area *area, const char *words)
{
	give_up(area, words);
	rtx_lib_order_break(runtime_order,
			    &(struct rtxg_order_break){ .kind = RTXG_ORDER_BREAK_EXTRA });
}

/* A thread that has yet to make what the order has of it; NULL: none. */
static const struct rtx_order_thread *unfinished(const struct area *area)
{
	for (uint32_t t = 0; t < runtime_order->core.shape.threads; t++) {
		const struct rtx_order_thread *thread = &runtime_order->thread[t];
		uint32_t most = area->thread[t].most - area->thread[t].cut;
		uint32_t clock = load(&thread->clock);

		if (most != RTXG_ORDER_MANY && clock < most &&
		    load(&thread->state) != RTX_ORDER_ENDED &&
		    !(clock + 1 == most && has_made(thread, clock)))
			return thread;
	}
	return NULL;
}

/*
 * The record was cut short before this thread made an access: its accesses come after all that the
 * order has. There is no hurry by then: the program that was recorded had died.
 */
static void follow_last(struct area *area)
{
	const struct timespec look = { .tv_nsec = (long)NS_PER_MS };
	uint64_t moved = rtx_lib_order_moved(runtime_order), since = rtxg_now_ns();
	const struct rtx_order_thread *late;

	while ((late = unfinished(area)) && !rtx_lib_order_is_broken(runtime_order)) {
		nanosleep(&look, NULL);
		if (moved != rtx_lib_order_moved(runtime_order)) {
			moved = rtx_lib_order_moved(runtime_order);
			since = rtxg_now_ns();
		} else if (rtxg_now_ns() - since >= runtime_order->patience_ns) {
			char words[300];

			snprintf(words, sizeof(words),
				 "nothing moved: thread %s, which the order does not have, comes "
				 "after all %u accesses of thread %u (%s), which made %u",
				 runtime_self.name,
				 area->thread[late->index].most - area->thread[late->index].cut,
				 late->index + 1, area->thread[late->index].name,
				 load(&late->clock));
			give_up_extra(area, words);
		}
	}
}

/* An access of a thread that the order does not have. */
static void follow_unlisted(struct area *area)
{
	char words[200];

	if (!area || area->others_free)
		return;
	if (area->others_last) {
		follow_last(area);
		return;
	}
	snprintf(words, sizeof(words),
		 "thread %s made an access, and the order has no such thread; record the order "
		 "again, or say 'others free' in it",
		 runtime_self.name);
	give_up_extra(area, words);
}

static void follow_before(void)
{
	struct rtx_order_thread *thread = runtime_self.thread;

	if (!thread) {
		follow_unlisted(runtime_area);
		return;
	}
	if (runtime_order->ops->before(runtime_order, thread) == -EPIPE)
		broken();
	store_relaxed(&thread->under_way, thread->made + 1);
	runtime_self.inside = true;
}

static void follow_after(void)
{
	store_relaxed(&runtime_self.thread->under_way, 0);
	runtime_order->ops->after(runtime_order, runtime_self.thread);
}

/* --- accesses --------------------------------------------------------------------------------- */

bool runtime_counts(uint64_t address, size_t size)
{
	if (all)
		return address - runtime_self.stack_low >=
		       runtime_self.stack_high - runtime_self.stack_low;
	if (address >= highest || address + size <= lowest)
		return false;
	for (uint32_t i = 0; i < ranges; i++)
		if (address < range[i].high && address + size > range[i].low)
			return true;
	return false;
}

void runtime_before(uint64_t address, size_t size, enum area_kind kind, uint64_t code)
{
	runtime_self.busy = true;
	if (runtime_order) {
		follow_before();
	} else {
		record_access(address, size, kind, code);
		runtime_self.inside = true;
	}
	runtime_self.busy = false;
}

void runtime_before_lock(const void *address, const void *other, enum area_kind kind, uint64_t code)
{
	runtime_before((uint64_t)(uintptr_t)address, 8, kind, code);
	if (!runtime_order && other)
		record_more((uint64_t)(uintptr_t)other, kind, code);
}

void runtime_after(void)
{
	bool was_busy = runtime_self.busy;

	runtime_self.busy = true;
	runtime_self.inside = false;
	if (runtime_order)
		follow_after();
	else
		record_release();
	runtime_self.busy = was_busy;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void find_stack(void)
{
	pthread_attr_t attributes;
	void *low;
	size_t size;

	if (pthread_getattr_np(pthread_self(), &attributes))
		return;
	if (!pthread_attr_getstack(&attributes, &low, &size)) {
		runtime_self.stack_low = (uintptr_t)low;
		runtime_self.stack_high = runtime_self.stack_low + size;
	}
	pthread_attr_destroy(&attributes);
}

static void join_order(void)
{
	for (uint32_t t = 0; t < runtime_order->core.shape.threads; t++) {
		if (strcmp(runtime_area->thread[t].name, runtime_self.name) != 0)
			continue;
		/* A second thread of that name is none of the order's. */
		if (rtx_order_join(runtime_order, t + 1))
			return;
		runtime_self.index = t;
		runtime_self.thread = &runtime_order->thread[t];
		return;
	}
}

void runtime_begin(const char *name)
{
	runtime_self = (struct runtime_self){ .index = RUNTIME_NO_THREAD, .busy = true };
	snprintf(runtime_self.name, sizeof(runtime_self.name), "%s", name);
	if (all)
		find_stack();
	if (runtime_order && runtime_area)
		join_order();
	runtime_self.known = true;
	runtime_self.busy = false;
}

void runtime_child(char name[RTX_ORDER_NAME])
{
	struct area *area = load(&runtime_area);

	snprintf(name, RTX_ORDER_NAME, "%.50s.%u", runtime_self.name, ++runtime_self.children);
	if (area)
		__atomic_fetch_add(&area->running, 1, __ATOMIC_RELAXED);
}

void runtime_no_child(void)
{
	struct area *area = load(&runtime_area);

	if (area)
		__atomic_fetch_sub(&area->running, 1, __ATOMIC_RELAXED);
}

/* For the record: whoever is not here when the program ends would have gone on. */
static void note_end(struct area *area)
{
	if (runtime_self.index != RUNTIME_NO_THREAD)
		store(&area->thread[runtime_self.index].ended, 1);
	__atomic_fetch_sub(&area->running, 1, __ATOMIC_RELAXED);
}

void runtime_end(void)
{
	struct area *area = runtime_area;

	runtime_flush();
	runtime_self.busy = true;
	if (area && runtime_order && runtime_self.thread)
		store_relaxed(&area->thread[runtime_self.index].accesses,
			      runtime_self.thread->clock);
	if (runtime_order && runtime_self.thread)
		rtx_order_leave(runtime_order, runtime_self.index + 1);
	if (area && !runtime_order)
		note_end(area);
	runtime_self.known = false;
}

/* --- the beginning and the end ---------------------------------------------------------------- */

static int note_module(struct dl_phdr_info *info, size_t size, void *context)
{
	struct area *area = context;

	if (area->modules == AREA_MODULES)
		return 1;
	area->module[area->modules].base = info->dlpi_addr;
	snprintf(area->module[area->modules].path, sizeof(area->module[0].path), "%s",
		 info->dlpi_name);
	area->modules++;
	return 0;
}

/* The order's tables, in memory of the library. */
static int start_order(struct area *area)
{
	struct rtx_order_options options = { .size = sizeof(options),
					     .host = area->host,
					     .patience_ns = area->patience_ns };
	uint32_t accesses[RTXG_ORDER_THREADS_MAX];
	char(*names)[RTX_ORDER_NAME] = calloc(area->shape.threads + 1, sizeof(*names));
	void *memory = calloc(1, rtxg_order_size(&area->shape) + 1);
	struct rtxg_order_fault fault;
	struct rtxg_order core;
	int err;

	if (!names || !memory)
		return -ENOMEM;
	for (uint32_t t = 0; t < area->shape.threads; t++) {
		memcpy(names[t], area->thread[t].name, RTX_ORDER_NAME);
		accesses[t] = area->thread[t].most;
	}
	rtxg_order_place(&core, &area->shape, memory);
	err = rtxg_order_load(&core, (void *)((char *)area + area->entry_at),
			      (void *)((char *)area + area->need_at), accesses, &fault);
	if (err)
		return err;
	err = rtx_lib_order_start(&runtime_order, &core, memory, names, &options);
	if (!err)
		runtime_order->stuck = complete_for;
	return err;
}

static struct area *take_area(void)
{
	const char *text = secure_getenv(AREA_ENVIRONMENT);
	struct stat program, file;
	struct area *area;
	int fd;

	if (!text)
		return NULL;
	fd = atoi(text);
	if (fd < 3 || fstat(fd, &file) || (size_t)file.st_size < sizeof(*area) ||
	    stat("/proc/self/exe", &program))
		return NULL;
	area = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (area == MAP_FAILED)
		return NULL;
	if (area->magic != AREA_MAGIC || area->version != AREA_VERSION ||
	    area->size != (uint64_t)file.st_size || area->device != program.st_dev ||
	    area->inode != program.st_ino || area->attached) {
		munmap(area, (size_t)file.st_size);
		return NULL;
	}
	close(fd);
	unsetenv(AREA_ENVIRONMENT);
	return area;
}

/* A child by fork is another program. */
static void forget(void)
{
	runtime_area = NULL;
	runtime_self.known = false;
	runtime_self.inside = false;
}

__attribute__((constructor(101))) static void begin(void)
{
	struct area *area = take_area();

	if (!area)
		return;
	store(&area->attached, (uint32_t)getpid());
	dl_iterate_phdr(note_module, area);
	for (ranges = 0; ranges < area->ranges && ranges < RTX_ORDER_VARIABLES; ranges++) {
		range[ranges].low = area->range[ranges].low + area->module[0].base;
		range[ranges].high = area->range[ranges].high + area->module[0].base;
		if (range[ranges].low < lowest)
			lowest = range[ranges].low;
		if (range[ranges].high > highest)
			highest = range[ranges].high;
	}
	all = area->all;
	pthread_atfork(NULL, NULL, forget);
	runtime_self.busy = true;
	if (area->mode == AREA_RUN && start_order(area)) {
		give_up(area, rtx_strerror());
		return;
	}
	store_relaxed(&area->running, 1);
	store(&runtime_area, area);
	runtime_begin("main");
}

/* What came of it. A program that dies leaves what was there before. */
__attribute__((destructor)) static void end(void)
{
	struct rtx_order_counts counts = { .size = sizeof(counts) };
	struct area *area = runtime_area;

	if (!area || !runtime_self.known)
		return;
	runtime_flush();
	if (!runtime_order) {
		note_end(area);
		return;
	}
	rtx_order_count(runtime_order, &counts);
	area->restricted = counts.restricted;
	area->waits = counts.waits;
	area->sleeps = counts.sleeps;
	area->context_switches = counts.context_switches;
	area->signals = counts.signals;
	area->clocks = counts.clocks;
	for (uint32_t t = 0; t < runtime_order->core.shape.threads; t++)
		area->thread[t].accesses = load(&runtime_order->thread[t].clock);
}
