// SPDX-License-Identifier: MIT
/*
 * t_order.c - the six prototypes of thread order in the kernel: each access comes after what it
 * needs, the calls are as many as the paper counts, the death of a thread or a process lets all
 * others go, several orders live beside each other, and a hostile caller gets an error.
 */
#include "rtxg_vm.h"

#include <rtxg/task.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "order_fibonacci.h"

enum { THREADS = 4, ACCESSES = 400, PLACES = 3 };

static uint64_t seed = 7;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

/* --- following -------------------------------------------------------------------------------- */

static struct rtx_order *random_order(uint32_t prototype, uint32_t made[THREADS])
{
	static struct rtxg_order_access access[ACCESSES];
	static struct rtxg_order_entry entries[ACCESSES];
	static struct rtxg_order_need needs[2 * ACCESSES];
	static uint32_t reads[ACCESSES];
	struct rtxg_order_place_state places[PLACES];
	uint32_t entry_count = ACCESSES, need_count = 2 * ACCESSES;

	memset(made, 0, THREADS * sizeof(*made));
	for (uint32_t i = 0; i < ACCESSES; i++) {
		uint32_t thread = draw(THREADS);

		access[i] = (struct rtxg_order_access){ thread, made[thread]++, draw(PLACES),
							draw(3) == 0, i };
	}
	rtxg_order_derive(access, ACCESSES, THREADS, places, PLACES, reads, entries, &entry_count,
			  needs, &need_count);
	return start_order(prototype, THREADS, made, entry_count, entries, need_count, needs);
}

struct follower {
	struct rtx_order *order;
	uint32_t thread, accesses;
	uint32_t early;
	int ret;
	bool leaves;
	pthread_t pthread;
};

static uint32_t clocks[THREADS];

static void *follow(void *argument)
{
	struct follower *f = argument;
	const struct rtxg_order *core = &f->order->core;

	f->ret = rtx_order_join(f->order, f->thread + 1);
	for (uint32_t n = 0; !f->ret && n < f->accesses; n++) {
		uint32_t entry = rtxg_order_next(core, f->thread, n);

		f->ret = rtx_order_before(f->order, f->thread + 1);
		if (f->ret)
			break;
		for (uint32_t i = 0; entry != RTXG_ORDER_NO_ENTRY &&
				     core->entry[entry].number == n && i < core->entry[entry].count;
		     i++) {
			const struct rtxg_order_need *need =
				&core->need[core->entry[entry].first + i];

			f->early += __atomic_load_n(&clocks[need->thread], __ATOMIC_SEQ_CST) <
				    need->clock;
		}
		__atomic_fetch_add(&clocks[f->thread], 1, __ATOMIC_SEQ_CST);
		f->ret = rtx_order_after(f->order, f->thread + 1);
	}
	if (f->leaves)
		rtx_order_leave(f->order, f->thread + 1);
	return NULL;
}

static void follow_all(struct rtx_order *order, struct follower *followers, uint32_t threads,
		       const uint32_t *made, bool leaves)
{
	for (uint32_t t = 0; t < threads; t++) {
		clocks[t] = 0;
		followers[t] = (struct follower){
			.order = order, .thread = t, .accesses = made[t], .leaves = leaves
		};
	}
	for (uint32_t t = 0; t < threads; t++)
		pthread_create(&followers[t].pthread, NULL, follow, &followers[t]);
	for (uint32_t t = 0; t < threads; t++)
		pthread_join(followers[t].pthread, NULL);
}

static void test_each_access_comes_after_what_it_needs(void)
{
	struct follower followers[THREADS];
	uint32_t made[THREADS];

	for (uint32_t prototype = 1; prototype <= 6; prototype++) {
		struct rtx_order *order = random_order(prototype, made);
		struct rtx_order_counts counts = { .size = sizeof(counts) };

		if (!check(order != NULL, "prototype %u: no order", prototype))
			continue;
		follow_all(order, followers, THREADS, made, true);
		for (uint32_t t = 0; t < THREADS; t++)
			check(!followers[t].ret && !followers[t].early,
			      "prototype %u, thread %u: %d, %u accesses too early", prototype, t,
			      followers[t].ret, followers[t].early);
		rtx_order_count(order, &counts);
		check(counts.accesses == ACCESSES, "prototype %u: %llu accesses", prototype,
		      (unsigned long long)counts.accesses);
		rtx_order_close(order);
	}
}

/* --- the counts of the paper ------------------------------------------------------------------ */

/*
 * Thread 1 first, on one CPU, each thread until it must wait: what happens is the same each time.
 */
static struct rtx_order_counts count_calls(uint32_t prototype, uint32_t length, int first_priority)
{
	struct rtx_order_counts counts = { .size = sizeof(counts) };
	struct rtx_order *order = fibonacci_order(prototype, length);
	struct follower followers[2];
	struct sched_param low = { .sched_priority = 5 }, none = { 0 };
	cpu_set_t one, before;

	if (!check(order != NULL, "prototype %u: no order", prototype))
		return counts;
	/* Below both: thread 1 runs until it must wait before there is a thread 2. */
	sched_getaffinity(0, sizeof(before), &before);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	sched_setscheduler(0, SCHED_FIFO, &low);
	for (uint32_t t = 0; t < 2; t++) {
		pthread_attr_t attributes;
		struct sched_param parameter = { .sched_priority = t ? 10 : first_priority };

		clocks[t] = 0;
		followers[t] = (struct follower){
			.order = order, .thread = t, .accesses = FIBONACCI, .leaves = true
		};
		pthread_attr_init(&attributes);
		pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
		pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
		pthread_attr_setschedparam(&attributes, &parameter);
		pthread_attr_setaffinity_np(&attributes, sizeof(one), &one);
		pthread_create(&followers[t].pthread, &attributes, follow, &followers[t]);
		pthread_attr_destroy(&attributes);
	}
	for (uint32_t t = 0; t < 2; t++) {
		pthread_join(followers[t].pthread, NULL);
		check(!followers[t].ret && !followers[t].early, "prototype %u, thread %u: %d",
		      prototype, t, followers[t].ret);
	}
	sched_setscheduler(0, SCHED_OTHER, &none);
	sched_setaffinity(0, sizeof(before), &before);
	rtx_order_count(order, &counts);
	rtx_order_close(order);
	return counts;
}

static uint64_t all_calls(const struct rtx_order_counts *counts)
{
	return counts->context_switches + counts->signals + counts->clocks;
}

/*
 * Tables "Number of IOCTL calls" and "Number of context switch calls". Prototypes 1 to 4 call
 * around each access, whatever happens. 5 and 6 call when a thread must wait, and that depends on
 * who runs when: the two tables, 175 calls and 27 of them waits beside 150 clocks, are not those of
 * one run. With both threads of one priority there are 27 waits; with the first one above, 25.
 */
static void test_calls_are_those_of_the_paper(void)
{
	static const uint32_t lengths[3] = { 98, 44, 24 };
	static const uint64_t calls[3] = { 175, 150, 150 }, switches[3] = { 27, 0, 0 };

	for (uint32_t prototype = 1; prototype <= 6; prototype++)
		for (int i = 0; i < 3; i++) {
			struct rtx_order_counts even = count_calls(prototype, lengths[i], 10);
			struct rtx_order_counts above = count_calls(prototype, lengths[i], 20);
			bool page = prototype >= 5;

			check(even.context_switches == (page ? switches[i] : 150),
			      "prototype %u, order %d: %llu context switches", prototype, i + 1,
			      (unsigned long long)even.context_switches);
			check(all_calls(&above) == (page ? calls[i] : 300),
			      "prototype %u, order %d: %llu calls", prototype, i + 1,
			      (unsigned long long)all_calls(&above));
			check(even.signals + even.clocks == 150 &&
				      (even.signals == 150 || even.clocks == 150),
			      "prototype %u, order %d: %llu signals, %llu clocks", prototype, i + 1,
			      (unsigned long long)even.signals, (unsigned long long)even.clocks);
		}
}

/* --- ends ------------------------------------------------------------------------------------- */

/* A thread that ends without a word: the kernel tells, and all others go, with the reason. */
static void test_a_thread_that_dies_lets_all_others_go(void)
{
	struct follower followers[THREADS];
	uint32_t made[THREADS];
	char text[300];

	for (uint32_t prototype = 1; prototype <= 6; prototype++) {
		struct rtx_order *order = random_order(prototype, made);

		if (!check(order != NULL, "prototype %u: no order", prototype))
			continue;
		made[1] /= 2;
		follow_all(order, followers, THREADS, made, false);
		check(rtx_order_broken(order, text, sizeof(text)) &&
			      order->broken.kind == RTXG_ORDER_BREAK_ENDED &&
			      order->broken.step.need.thread == 1,
		      "prototype %u: not broken by thread 2", prototype);
		rtx_order_close(order);
	}
}

static int load_two(uint32_t prototype, uint32_t clock)
{
	struct rtxg_order_entry entry = { .thread = 0, .number = 0, .count = 1, .mark = 1 };
	struct rtxg_order_need need = { .thread = 1, .clock = clock };
	struct rtxg_order_load load_call = { .size = sizeof(load_call),
					     .prototype = prototype,
					     .threads = 2,
					     .entries = 1,
					     .needs = 1,
					     .entry = (uintptr_t)&entry,
					     .need = (uintptr_t)&need };
	int device = open_rtxg(), fd = ioctl(device, RTXG_IOC_ORDER_LOAD, &load_call);

	close(device);
	return fd < 0 ? -errno : fd;
}

static int thread_call(int fd, unsigned long command, uint32_t thread)
{
	struct rtxg_order_thread_call one = { .size = sizeof(one), .thread = thread };

	return call(fd, command, &one);
}

static int wait_turn(int fd, uint32_t thread, uint64_t patience_ns)
{
	struct rtxg_order_wait wait = { .size = sizeof(wait),
					.thread = thread,
					.patience_ns = patience_ns };

	return call(fd, RTXG_IOC_ORDER_CONTEXT_SWITCH, &wait);
}

/* Another process has the descriptor, and dies inside of the access that this one waits for. */
static void test_a_killed_process_lets_the_other_go(void)
{
	struct rtxg_order_stats stats = { .size = sizeof(stats) };

	for (uint32_t prototype = 1; prototype <= 6; prototype++) {
		int fd = load_two(prototype, 1), ready[2], status, ret;
		char byte = 0;
		pid_t child;

		ret = pipe(ready);
		check(fd >= 0 && !ret, "prototype %u: %d", prototype, fd);
		child = fork();
		if (!child) {
			byte = thread_call(fd, RTXG_IOC_ORDER_JOIN, 1) ||
			       wait_turn(fd, 1, 1000000000);
			ret = write(ready[1], &byte, 1);
			for (;;)
				pause();
		}
		ret = read(ready[0], &byte, 1);
		check(ret == 1 && !byte, "prototype %u: the child did not join", prototype);
		check(!thread_call(fd, RTXG_IOC_ORDER_JOIN, 0), "join");
		kill(child, SIGKILL);
		ret = wait_turn(fd, 0, 60000000000ull);
		check(ret == -EPIPE, "prototype %u: %d", prototype, ret);
		waitpid(child, &status, 0);
		call(fd, RTXG_IOC_ORDER_STATS, &stats);
		check(stats.broken.kind == RTXG_ORDER_BREAK_ENDED && stats.broken.ended &&
			      stats.joined == 1,
		      "prototype %u: kind %u, %u joined", prototype, stats.broken.kind,
		      stats.joined);
		close(fd);
		close(ready[0]);
		close(ready[1]);
	}
}

static void test_a_thread_that_never_comes_is_not_waited_for(void)
{
	for (uint32_t prototype = 1; prototype <= 6; prototype++) {
		struct rtxg_order_stats stats = { .size = sizeof(stats) };
		int fd = load_two(prototype, 3), ret;

		check(!thread_call(fd, RTXG_IOC_ORDER_JOIN, 0), "join");
		ret = wait_turn(fd, 0, 20000000);
		check(ret == -EPIPE, "prototype %u: %d", prototype, ret);
		call(fd, RTXG_IOC_ORDER_STATS, &stats);
		check(stats.broken.kind == RTXG_ORDER_BREAK_STALLED &&
			      stats.broken.step.need.clock == 3,
		      "prototype %u: kind %u", prototype, stats.broken.kind);
		close(fd);
	}
}

/* --- limits ----------------------------------------------------------------------------------- */

static void become(uid_t uid)
{
	check(!setresuid(uid, uid, 0), "user %u", uid);
}

/* Each has a thread of the kernel, which RLIMIT_NPROC knows nothing of. */
static void test_orders_with_a_scheduler_are_limited(void)
{
	static int fds[RTXG_ORDER_SCHEDULERS + 1];
	struct rlimit before, few;
	int count = 0, own = 0, fd;

	for (uid_t uid = 1000; count < (int)RTXG_ORDER_SCHEDULERS; uid++) {
		become(uid);
		for (own = 0; count < (int)RTXG_ORDER_SCHEDULERS; own++, count++) {
			fds[count] = load_two(own % 2 ? 2 : 4, 1);
			if (fds[count] < 0)
				break;
		}
		if (!check(own == (int)RTXG_ORDER_SCHEDULERS_OF_A_USER, "user %u has %d, then %d",
			   uid, own, fds[count]))
			break;
		fd = load_two(2, 1);
		check(fd == -EDQUOT, "one more of user %u: %d", uid, fd);
		fd = load_two(1, 1);
		check(fd >= 0, "one without a scheduler, of user %u: %d", uid, fd);
		close(fd);
		become(0);
	}
	become(2000);
	fd = load_two(4, 1);
	check(fd == -ENOSPC, "one more than all may have: %d", fd);
	become(0);
	fd = load_two(2, 1);
	check(fd >= 0, "an administrator's: %d", fd);
	close(fd);
	/* what has ended counts no longer */
	close(fds[--count]);
	become(2000);
	fd = load_two(2, 1);
	check(fd >= 0, "in place of one that has ended: %d", fd);
	close(fd);
	become(0);
	while (count > 0)
		close(fds[--count]);
	/* nor does one that found no room for its descriptor */
	fd = open_rtxg();
	close(fd);
	getrlimit(RLIMIT_NOFILE, &before);
	few = (struct rlimit){ fd + 1, before.rlim_max };
	become(1000);
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < 2 * (int)RTXG_ORDER_SCHEDULERS_OF_A_USER; i++) {
		fd = load_two(2, 1);
		if (!check(fd == -EMFILE, "without room for a descriptor: %d", fd))
			break;
	}
	setrlimit(RLIMIT_NOFILE, &before);
	fd = load_two(2, 1);
	check(fd >= 0, "after those: %d", fd);
	close(fd);
	become(0);
}

static int load_many(uint32_t threads)
{
	struct rtxg_order_load load_call = { .size = sizeof(load_call),
					     .prototype = 1,
					     .threads = threads };
	int device = open_rtxg(), fd = ioctl(device, RTXG_IOC_ORDER_LOAD, &load_call);

	close(device);
	return fd < 0 ? -errno : fd;
}

static void *join_one(void *argument)
{
	const int *fd = argument;

	check(!thread_call(*fd, RTXG_IOC_ORDER_JOIN, 20), "another thread joins");
	return NULL;
}

/* The end of a task looks at each of its places, with interrupts off. */
static void test_a_task_joins_so_many_times(void)
{
	int first = load_many(32), second = load_many(32), ret = 0;
	pthread_t other;
	uint32_t count;

	/* in one order and in the other by turns */
	for (count = 0; count < 64; count++) {
		ret = thread_call(count % 2 ? first : second, RTXG_IOC_ORDER_JOIN, count / 2);
		if (ret)
			break;
	}
	check(count == RTXG_ORDER_PLACES_MAX && ret == -EUSERS, "joined %u times, then %d", count,
	      ret);
	pthread_create(&other, NULL, join_one, &first);
	pthread_join(other, NULL);
	/* a place that was left is free again, and so are those of an order that has ended */
	check(!thread_call(first, RTXG_IOC_ORDER_LEAVE, 0), "leave");
	check(!thread_call(first, RTXG_IOC_ORDER_JOIN, 30), "after leaving one");
	ret = thread_call(first, RTXG_IOC_ORDER_JOIN, 31);
	check(ret == -EUSERS, "and another: %d", ret);
	close(second);
	ret = thread_call(first, RTXG_IOC_ORDER_JOIN, 31);
	check(!ret, "after an order has ended: %d", ret);
	close(first);
}

/* --- callers that mean no good ---------------------------------------------------------------- */

static void test_wrong_calls_get_an_error(void)
{
	struct rtxg_task task = { .size = sizeof(task), .cpu_file = -1 };
	struct rtxg_order_load wrong = { .size = sizeof(wrong), .prototype = 1, .threads = 2 };
	struct rtxg_order_entry circle[2] = { { 0, 0, 0, 1, 5, 0 }, { 1, 0, 1, 1, 6, 0 } };
	struct rtxg_order_need needs[2] = { { 1, 1 }, { 0, 1 } };
	int device = open_rtxg(), fd = load_two(5, 1), other = load_two(1, 1), ret;
	struct rtxg_order_page *page;

	check(fd >= 0 && other >= 0 && fd != other, "two orders at once: %d, %d", fd, other);
	check(call(device, RTXG_IOC_ORDER_JOIN, &task) == -ENOTTY, "a call on the device");
	check(call(fd, RTXG_IOC_ORDER_LOAD, &wrong) == -ENOTTY, "loading into an order");
	check(thread_call(fd, RTXG_IOC_ORDER_JOIN, 2) == -ENXIO, "thread 2 of 2");
	check(thread_call(fd, RTXG_IOC_ORDER_SET_CLOCK, 0) == -EPERM, "before joining");
	check(!thread_call(fd, RTXG_IOC_ORDER_JOIN, 0), "join");
	check(thread_call(fd, RTXG_IOC_ORDER_JOIN, 0) == -EBUSY, "joining twice");
	check(thread_call(fd, RTXG_IOC_ORDER_SIGNAL_ALL, 0) == -EOPNOTSUPP, "a call of others");
	/* prototype 5 starts accesses by itself, but not one that may not begin */
	check(thread_call(fd, RTXG_IOC_ORDER_SET_CLOCK, 0) == -EBADFD, "an access out of turn");
	check(wait_turn(fd, 0, 0) == -EINVAL && wait_turn(fd, 0, UINT64_MAX) == -EINVAL,
	      "no patience, and too much");
	check(wait_turn(fd, RTXG_ORDER_MANY, 1000000) == -ENXIO, "no such thread");
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(page == MAP_FAILED && errno == EPERM, "a page to write to");
	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	check(page != MAP_FAILED && page->threads == 2 && page->size == 64 + 2 * 64, "the page");
	check(mprotect(page, 4096, PROT_READ | PROT_WRITE) < 0 && errno == EACCES,
	      "made writable afterwards");
	check(mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, "beyond the page");
	check(!thread_call(fd, RTXG_IOC_ORDER_LEAVE, RTXG_ORDER_MANY) && page->broken == 1,
	      "given up");
	munmap(page, 4096);
	/* an order is no file of the device, though it is the module's */
	task.cpu_file = fd;
	ret = call(device, RTXG_IOC_TASK, &task);
	check(ret < 0, "an order taken for a file of the device: %d", ret);
	wrong.entries = 2;
	wrong.needs = 2;
	wrong.entry = (uintptr_t)circle;
	wrong.need = (uintptr_t)needs;
	check(call(device, RTXG_IOC_ORDER_LOAD, &wrong) == -EINVAL &&
		      wrong.fault.kind == RTXG_ORDER_FAULT_CYCLE && wrong.fault.cycle == 2 &&
		      wrong.fault.steps[0].mark + wrong.fault.steps[1].mark == 11,
	      "a circle: kind %u of %u", wrong.fault.kind, wrong.fault.cycle);
	wrong.need = 8;
	check(call(device, RTXG_IOC_ORDER_LOAD, &wrong) == -EFAULT, "needs at address 8");
	wrong.entries = RTXG_ORDER_KERNEL_ENTRIES_MAX + 1;
	check(call(device, RTXG_IOC_ORDER_LOAD, &wrong) == -E2BIG, "too many entries");
	wrong.entries = 0;
	wrong.prototype = 7;
	check(call(device, RTXG_IOC_ORDER_LOAD, &wrong) == -EINVAL, "prototype 7");
	close(fd);
	close(other);
	close(device);
}

struct changing {
	struct rtxg_order_entry *entries;
	struct rtxg_order_need *needs;
	_Atomic int end;
};

/* Two threads in turn, 32 entries each. */
static void make_good(struct changing *c)
{
	for (uint32_t e = 0; e < 64; e++) {
		c->entries[e] = (struct rtxg_order_entry){ e % 2, e / 2 + 1 - e % 2, e, 1, e, 0 };
		c->needs[e] = (struct rtxg_order_need){ 1 - e % 2, e / 2 + 1 };
	}
}

/* Threads that are none, needs beyond all, circles; and now and then what is good again. */
static void *change(void *argument)
{
	struct changing *c = argument;
	uint64_t state = 1;

	while (!c->end) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		uint32_t at = (uint32_t)(state >> 40) % 64, word = (uint32_t)(state >> 33) % 5;
		uint32_t value = word == 0 ? 300 : word == 1 ? RTXG_ORDER_MANY : word - 2;

		((volatile uint32_t *)&c->entries[at])[word] = value;
		((volatile uint32_t *)&c->needs[at])[word % 2] = value;
		if (!(state >> 61))
			make_good(c);
	}
	return NULL;
}

/*
 * Pages that change while the module reads them, that end in the middle of an array, and that are
 * no memory. What was checked is what is followed: an order that was taken lets its threads go.
 */
static void test_pages_that_change_or_end_do_no_harm(void)
{
	char *pages =
		mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct changing c = { .entries = (void *)pages, .needs = (void *)(pages + 4096) };
	struct rtxg_order_load load_call = { .size = sizeof(load_call),
					     .prototype = 5,
					     .threads = 2,
					     .entries = 64,
					     .needs = 64,
					     .entry = (uintptr_t)c.entries,
					     .need = (uintptr_t)c.needs };
	int device = open_rtxg(), taken = 0, refused = 0, ret;
	pthread_t thread;

	make_good(&c);
	ret = ioctl(device, RTXG_IOC_ORDER_LOAD, &load_call);
	check(ret >= 0, "what is good: %d", errno);
	close(ret);
	pthread_create(&thread, NULL, change, &c);
	for (int i = 0; i < 4000; i++) {
		struct rtxg_order_load one = load_call;
		int fd = ioctl(device, RTXG_IOC_ORDER_LOAD, &one);

		taken += fd >= 0;
		refused += fd < 0 && errno == EINVAL;
		/* thread 1 may wait for a need that thread 2 never meets: for 1 ms */
		if (fd >= 0) {
			check(!thread_call(fd, RTXG_IOC_ORDER_JOIN, 0), "join");
			ret = wait_turn(fd, 0, 1000000);
			check(!ret || ret == -EPIPE, "a turn: %d", ret);
			close(fd);
		}
	}
	c.end = 1;
	pthread_join(thread, NULL);
	check(taken + refused == 4000, "%d taken, %d refused", taken, refused);
	/* the array of needs goes over the end of what is mapped, or is no memory to read */
	munmap(pages + 2 * 4096, 4096);
	load_call.need = (uintptr_t)(pages + 2 * 4096 - 8 * 63);
	check(call(device, RTXG_IOC_ORDER_LOAD, &load_call) == -EFAULT, "half an array");
	mprotect(pages + 4096, 4096, PROT_NONE);
	load_call.need = (uintptr_t)c.needs;
	check(call(device, RTXG_IOC_ORDER_LOAD, &load_call) == -EFAULT, "no memory to read");
	load_call.need = (uintptr_t)-4096;
	check(call(device, RTXG_IOC_ORDER_LOAD, &load_call) == -EFAULT, "the kernel's memory");
	load_call.accesses = 1;
	check(call(device, RTXG_IOC_ORDER_LOAD, &load_call) == -EFAULT, "accesses at address 1");
	load_call.size = 3;
	check(call(device, RTXG_IOC_ORDER_LOAD, &load_call) == -EINVAL, "a call of 3 bytes");
	load_call.size = 1u << 30;
	ret = call(device, RTXG_IOC_ORDER_LOAD, &load_call);
	check(ret == -EINVAL, "a call of 1 GiB: %d", ret);
	check(ioctl(device, RTXG_IOC_ORDER_LOAD, pages + 4096) < 0 && errno == EFAULT,
	      "a call that is no memory");
	munmap(pages, 2 * 4096);
	close(device);
}

/* Random calls on orders of random shape, until the process is killed in the middle of one. */
static void make_noise(uint64_t start_seed)
{
	static const unsigned long commands[] = {
		RTXG_IOC_ORDER_JOIN,	   RTXG_IOC_ORDER_CONTEXT_SWITCH, RTXG_IOC_ORDER_SET_CLOCK,
		RTXG_IOC_ORDER_SIGNAL_ALL, RTXG_IOC_ORDER_LEAVE,	  RTXG_IOC_ORDER_STATS
	};
	static struct rtxg_order_entry entries[64];
	static struct rtxg_order_need needs[128];

	seed = start_seed;
	for (;;) {
		uint32_t threads = 1 + draw(5), used = 0;
		struct rtxg_order_load load_call = { .size = sizeof(load_call),
						     .prototype = 1 + draw(6),
						     .threads = threads,
						     .entries = draw(64),
						     .entry = (uintptr_t)entries,
						     .need = (uintptr_t)needs };
		int device = open_rtxg(), fd;

		for (uint32_t e = 0; e < load_call.entries; e++) {
			entries[e] = (struct rtxg_order_entry){ draw(threads), e / 2, used,
								draw(2),       e,     0 };
			for (uint32_t i = 0; i < entries[e].count; i++)
				needs[used + i] =
					(struct rtxg_order_need){ draw(threads), 1 + draw(8) };
			used += entries[e].count;
		}
		load_call.needs = draw(20) ? used : draw(128);
		fd = ioctl(device, RTXG_IOC_ORDER_LOAD, &load_call);
		for (uint32_t i = 0; fd >= 0 && i < 300; i++) {
			uint64_t words[24] = { 0 };
			uint32_t *head = (uint32_t *)words;

			head[0] = draw(8) ? 16 : draw(400);
			head[1] = draw(10) ? draw(threads) : draw(0x7fffffff);
			words[1] = draw(6) ? 1000000 + draw(3000000) * (draw(2) + 0ull) : 0;
			unsigned long command = commands[draw(6)];
			if (command == RTXG_IOC_ORDER_CONTEXT_SWITCH)
				head[0] = 24;
			else if (draw(12))
				words[1] = 0;
			if (command == RTXG_IOC_ORDER_STATS)
				head[0] = sizeof(struct rtxg_order_stats);
			ioctl(fd, command, words);
		}
		if (fd >= 0)
			close(fd);
		close(device);
	}
}

static void test_noise_and_sudden_ends_do_no_harm(void)
{
	for (int round = 0; round < 6; round++) {
		pid_t children[4];
		int status;

		for (int i = 0; i < 4; i++) {
			children[i] = fork();
			if (!children[i]) {
				make_noise(1 + round * 4 + i);
				_exit(0);
			}
		}
		sleep_ns(300000000);
		for (int i = 0; i < 4; i++) {
			kill(children[i], SIGKILL);
			waitpid(children[i], &status, 0);
			check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
			      "child %d ended by itself: %d", i, status);
		}
	}
	test_each_access_comes_after_what_it_needs();
	check(!shell("rmmod rtxg"), "rmmod");
	load_module();
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "each access comes after what it needs",
		  test_each_access_comes_after_what_it_needs },
		{ "calls are those of the paper", test_calls_are_those_of_the_paper },
		{ "a thread that dies lets all others go",
		  test_a_thread_that_dies_lets_all_others_go },
		{ "a killed process lets the other go", test_a_killed_process_lets_the_other_go },
		{ "a thread that never comes is not waited for",
		  test_a_thread_that_never_comes_is_not_waited_for },
		{ "orders with a scheduler are limited", test_orders_with_a_scheduler_are_limited },
		{ "a task joins so many times", test_a_task_joins_so_many_times },
		{ "wrong calls get an error", test_wrong_calls_get_an_error },
		{ "pages that change or end do no harm", test_pages_that_change_or_end_do_no_harm },
		{ "noise and sudden ends do no harm", test_noise_and_sudden_ends_do_no_harm },
	};

	load_module();
	return RUN(cases);
}
