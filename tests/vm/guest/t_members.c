// SPDX-License-Identifier: MIT
/*
 * t_members.c - all of a program: the threads that it makes are governed from their first
 * instruction, and a hard budget holds for those beyond the limit of threads and for its children.
 */
#include "rtxg_vm.h"

#include <rtxg/cpu.h>

#define MS     1000000ull
#define MANY   200 /* threads that are made, one after the other */
#define BEYOND 560 /* more than a policy gives a priority */

/* What the processes of a test tell each other. */
struct shared {
	int go, done;
	int policy[MANY], priority[MANY];
	pid_t spinner;
};

static struct shared *shared;

static void begin_shared(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
}

static void tell(int *what)
{
	__atomic_add_fetch(what, 1, __ATOMIC_SEQ_CST);
}

static void await(int *what, int count)
{
	while (__atomic_load_n(what, __ATOMIC_SEQ_CST) < count)
		sleep_ns(MS);
}

static void *first_words(void *argument)
{
	/* the very first thing that it does */
	long policy = syscall(SYS_sched_getscheduler, 0);
	struct sched_param param;
	int i = (int)(intptr_t)argument;

	sched_getparam(0, &param);
	shared->policy[i] = (int)policy & ~SCHED_RESET_ON_FORK;
	shared->priority[i] = param.sched_priority;
	return NULL;
}

static void make_threads(void)
{
	pthread_t thread;

	await(&shared->go, 1);
	for (int i = 0; i < MANY; i++) {
		pthread_create(&thread, NULL, first_words, (void *)(intptr_t)i);
		pthread_join(thread, NULL);
	}
	tell(&shared->done);
	for (;;)
		pause();
}

static void *spin(void *unused)
{
	__atomic_store_n(&shared->spinner, gettid(), __ATOMIC_SEQ_CST);
	for (;;)
		;
	return NULL;
}

static void *pauses(void *unused)
{
	for (;;)
		pause();
	return NULL;
}

/* Its last thread is far beyond the limit, and never stops. */
static void make_too_many(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	for (int i = 0; i < BEYOND; i++)
		if (pthread_create(&thread, &attr, pauses, NULL))
			break;
	tell(&shared->done);
	await(&shared->go, 1);
	pthread_create(&thread, &attr, spin, NULL);
	for (;;)
		pause();
}

/* As a daemon begins: the one that was started ends, and its child's child never stops. */
static void make_a_daemon(void)
{
	await(&shared->go, 1);
	if (fork())
		_exit(0);
	if (fork())
		for (;;)
			pause();
	first_words(0);
	tell(&shared->done);
	spin(NULL);
}

/* Children that come and go as fast as they can. */
static void make_a_storm(void)
{
	await(&shared->go, 1);
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 10; i++) {
			pthread_t thread;

			if (!fork())
				_exit(0);
			if (!pthread_create(&thread, NULL, first_words, (void *)(intptr_t)i))
				pthread_join(thread, NULL);
		}
		while (waitpid(-1, NULL, 0) > 0)
			;
	}
	tell(&shared->done);
	for (;;)
		pause();
}

static pid_t start(void (*program)(void))
{
	pid_t child;

	begin_shared();
	fflush(NULL);
	child = fork();
	if (!child) {
		program();
		_exit(0);
	}
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	munmap(shared, sizeof(*shared));
}

static int attach(int fd, pid_t pid, uint32_t flags, uint64_t runtime, uint64_t period)
{
	struct rtxg_cpu_task params = { .size = sizeof(params),
					.flags = flags,
					.pid = pid,
					.policy = RTXG_CPU_FP,
					.priority = 42,
					.runtime_ns = runtime,
					.period_ns = period };

	return call(fd, RTXG_IOC_CPU_ATTACH, &params);
}

/* CPU time of a thread of another process, in ticks of 10 ms; -1: it is not there. */
static long ticks_of(pid_t tid)
{
	char path[64], text[512], *at;
	unsigned long user, system;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", tid, tid);
	if (!read_text(path, text, sizeof(text)) &&
	    snprintf(path, sizeof(path), "/proc/%d/stat", tid) &&
	    !read_text(path, text, sizeof(text)))
		return -1;
	at = strrchr(text, ')');
	if (!at || sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			  &system) != 2)
		return -1;
	return (long)(user + system);
}

/* Whether a thread that never stops by itself was stopped: its CPU time stands still. */
static bool stands_still(pid_t tid)
{
	for (int i = 0; i < 100; i++) {
		long before = ticks_of(tid);

		sleep_ns(300 * MS);
		if (before >= 0 && ticks_of(tid) == before)
			return true;
	}
	return false;
}

static void test_governed_from_the_first_instruction(void)
{
	pid_t child = start(make_threads);
	int fd = open_rtxg(), wrong = 0;

	check(!attach(fd, child, RTXG_CPU_F_PROCESS, 0, 0), "attach");
	tell(&shared->go);
	await(&shared->done, 1);
	for (int i = 0; i < MANY; i++)
		wrong += shared->policy[i] != SCHED_FIFO || shared->priority[i] != 42;
	check(!wrong, "%d of %d threads began as something else", wrong, MANY);
	end(child);
	close(fd);
}

static void test_hard_budget_holds_beyond_the_limit(void)
{
	struct rtxg_cpu_task now = { .size = sizeof(now) };
	pid_t child = start(make_too_many);
	int fd = open_rtxg();

	now.pid = child;
	await(&shared->done, 1);
	check(!attach(fd, child, RTXG_CPU_F_PROCESS | RTXG_CPU_F_HARD, 300 * MS, 3000000 * MS),
	      "attach");
	tell(&shared->go);
	while (!__atomic_load_n(&shared->spinner, __ATOMIC_SEQ_CST))
		sleep_ns(MS);
	check(stands_still(shared->spinner), "a thread beyond the limit goes on");
	check(!call(fd, RTXG_IOC_CPU_GET, &now) && now.threads > RTXG_CPU_THREADS_MAX, "%u threads",
	      now.threads);
	check((sched_getscheduler(shared->spinner) & ~SCHED_RESET_ON_FORK) == SCHED_OTHER,
	      "beyond the limit it has a priority");
	end(child);
	close(fd);
}

static void test_hard_budget_holds_for_children(void)
{
	const uint32_t all = RTXG_CPU_F_PROCESS | RTXG_CPU_F_CHILDREN | RTXG_CPU_F_HARD;
	struct rtxg_cpu_task now = { .size = sizeof(now) };
	pid_t child = start(make_a_daemon);
	int fd = open_rtxg();

	check(attach(fd, child, RTXG_CPU_F_CHILDREN, 0, 0) == -EINVAL, "children of one thread");
	check(!attach(fd, child, all, 300 * MS, 3000000 * MS), "attach");
	tell(&shared->go);
	await(&shared->done, 1);
	check(shared->policy[0] == SCHED_FIFO && shared->priority[0] == 42,
	      "it began with policy %d, priority %d", shared->policy[0], shared->priority[0]);
	while (!__atomic_load_n(&shared->spinner, __ATOMIC_SEQ_CST))
		sleep_ns(MS);
	check(stands_still(shared->spinner), "a child's child goes on");
	/* its budget is the one that was given, though none of the first process is left */
	now.pid = shared->spinner;
	check(!call(fd, RTXG_IOC_CPU_GET, &now) && now.runtime_ns == 300 * MS, "not a member");
	close(fd);
	/* let go, it runs again */
	for (long before = ticks_of(shared->spinner), n = 0; n < 100; n++) {
		sleep_ns(100 * MS);
		if (ticks_of(shared->spinner) > before)
			break;
		check(n < 99, "it stays stopped without its budget");
	}
	kill(shared->spinner, SIGKILL);
	end(child);
}

static void test_storm_of_children(void)
{
	const uint32_t all = RTXG_CPU_F_PROCESS | RTXG_CPU_F_CHILDREN;
	struct rtxg_cpu_task now = { .size = sizeof(now) };
	pid_t child = start(make_a_storm);
	int fd = open_rtxg(), err = 0;

	check(!attach(fd, child, all, 0, 0), "attach");
	tell(&shared->go);
	await(&shared->done, 1);
	now.pid = child;
	for (int i = 0; i < 5000; i++) {
		err = call(fd, RTXG_IOC_CPU_GET, &now);
		if (err || now.threads == 1)
			break;
		sleep_ns(MS);
	}
	check(!err && now.threads == 1, "%u threads are left, error %d", now.threads, err);
	end(child);
	close(fd);
	for (int i = 0; i < 6000 && shell("rmmod rtxg 2>/dev/null"); i++)
		sleep_ns(10 * MS);
	check(access("/sys/module/rtxg", F_OK), "the module does not go");
	load_module();
}

#define WINDOW "/sys/module/rtxg_window/parameters/"

/* Both threads of a program: one that sleeps, and one that exits with a file that is its alone. */
static void *exits(void *unused)
{
	const struct sched_param lowest = { .sched_priority = 1 };

	shared->spinner = gettid();
	tell(&shared->done);
	await(&shared->go, 1);
	/*
	 * It leaves the run queue whenever it sleeps. Since 6.12 an ordinary thread may stay there,
	 * by which its CPU seems to have work to spare: the other one then waits for that run
	 * queue's lock, which a held switch has, and the keeper cannot run.
	 */
	if (sched_setscheduler(0, SCHED_FIFO, &lowest))
		shared->policy[0] = errno;
	if (unshare(CLONE_FILES) || open("/dev/rtxg_window", O_RDONLY | O_CLOEXEC) < 0)
		shared->policy[0] = errno;
	/* not pthread_exit(), which would unload what it has loaded */
	syscall(SYS_exit, 0);
	return NULL;
}

static void make_one_that_exits(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, exits, NULL);
	for (;;)
		pause();
}

/* Open from the start: while a switch is held, whatever wakes a thread of that CPU waits for it. */
static int window_state = -1, window_go = -1;

static void open_window(void)
{
	check(!shell("insmod /modules/rtxg_window.ko"), "insmod rtxg_window.ko");
	window_state = open(WINDOW "state", O_RDONLY | O_CLOEXEC);
	window_go = open(WINDOW "go", O_WRONLY | O_CLOEXEC);
	check(window_state >= 0 && window_go >= 0, "open: %d", errno);
}

static void close_window(void)
{
	close(window_state);
	close(window_go);
	check(!shell("rmmod rtxg_window"), "rmmod rtxg_window");
}

static bool window_is(const char *word)
{
	char text[32];
	ssize_t n = pread(window_state, text, sizeof(text) - 1, 0);

	text[n > 0 ? n - 1 : 0] = 0;
	return !strcmp(text, word);
}

static int pid_of(const char *name)
{
	char path[64], text[64];

	for (int pid = 2; pid < 32768; pid++) {
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		if (read_text(path, text, sizeof(text)) && !strcmp(text, name))
			return pid;
	}
	return 0;
}

/* On no CPU but those from the first to the last. */
static void stay_on(pid_t thread, int first, int last)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = first; cpu <= last; cpu++)
		CPU_SET(cpu, &set);
	check(!sched_setaffinity(thread, sizeof(set), &set), "thread %d cannot stay on CPU %d",
	      thread, first);
}

static void run_above_all(int priority)
{
	const struct sched_param param = { .sched_priority = priority };

	check(!sched_setscheduler(0, priority ? SCHED_FIFO : SCHED_OTHER, &param), "priority %d",
	      priority);
}

/*
 * The keeper takes a thread that has exited out of its task, while a task switch on another CPU has
 * found the thread and not yet locked its task. False: the switch was held for too short a time.
 */
static bool let_go_in_a_switch(int fd, pid_t child)
{
	struct rtxg_cpu_task now = { .size = sizeof(now), .pid = child };
	bool met = false;
	int err = 0;

	/* what became of the try before is not this one's state */
	check(pwrite(window_go, "0", 1, 0) == 1 && window_is("idle"), "state: %d", errno);
	/* the keeper is not above this priority, and cannot run before the switch has found it */
	run_above_all(99);
	tell(&shared->go);
	while (!window_is("held") && !window_is("expired"))
		;
	run_above_all(0);
	while (!err && !met && window_is("held")) {
		err = call(fd, RTXG_IOC_CPU_GET, &now);
		met = now.threads == 1 && window_is("held");
	}
	check(pwrite(window_go, "1", 1, 0) == 1, "go: %d", errno);
	check(!err && !shared->policy[0], "errors %d, %d", err, shared->policy[0]);
	return met;
}

static void test_let_go_in_a_switch(void)
{
	struct rtxg_cpu_stats before = { .size = sizeof(before) },
			      after = { .size = sizeof(after) };
	int fd = open_rtxg(), keeper = pid_of("rtxg_keeper"), err = ENOTSUP;
	char path[64];
	bool held = false;
	pid_t child;

	/* insmod says no more than that it failed */
	if (access("/sys/kernel/debug/kprobes", F_OK))
		skip("this kernel has no probes (CONFIG_KPROBES)");
	open_window();
	shell("echo -1 >/proc/sys/kernel/sched_rt_runtime_us");
	stay_on(0, 0, 0);
	stay_on(keeper, 0, 0);
	for (int i = 0; i < 10 && !held; i++) {
		child = start(make_one_that_exits);
		await(&shared->done, 1);
		stay_on(shared->spinner, 1, 1);
		err = attach(fd, child, RTXG_CPU_F_PROCESS, 0, 0);
		check(!err, "attach");
		held = !err && let_go_in_a_switch(fd, child);
		/* until the thread is gone; the other sleeps */
		snprintf(path, sizeof(path), "/proc/%d/task/%d", child, shared->spinner);
		while (!access(path, F_OK))
			sleep_ns(MS);
		before.pid = after.pid = child;
		check(!call(fd, RTXG_IOC_CPU_STATS, &before), "stats");
		sleep_ns(100 * MS);
		check(!call(fd, RTXG_IOC_CPU_STATS, &after), "stats");
		check(after.exec_ns == before.exec_ns, "%" PRIu64 " ns booked for none that runs",
		      after.exec_ns - before.exec_ns);
		end(child);
	}
	stay_on(0, 0, 1);
	stay_on(keeper, 0, 1);
	shell("echo 950000 >/proc/sys/kernel/sched_rt_runtime_us");
	close_window();
	close(fd);
	/*
	 * This program may wait for the CPU of the held switch, too, until that is held no longer,
	 * as in one of five tries. Then nothing was tried.
	 */
	if (!held && !ktap_failed)
		skip("the switch could not be held until the thread was let go");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "governed_from_the_first_instruction", test_governed_from_the_first_instruction },
		{ "hard_budget_holds_beyond_the_limit", test_hard_budget_holds_beyond_the_limit },
		{ "hard_budget_holds_for_children", test_hard_budget_holds_for_children },
		{ "storm_of_children", test_storm_of_children },
		{ "let_go_in_a_switch", test_let_go_in_a_switch },
	};

	load_module();
	return RUN(cases);
}
