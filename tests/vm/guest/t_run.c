// SPDX-License-Identifier: MIT
/*
 * t_run.c - `rtxg run`, `set` and `get` with the module's CPU policies, as a person types them.
 * rtxg runs this program again, with a word that names its part. The program then prints its
 * scheduling parameters in one line.
 */
#include "gpu.h"

#include <sys/prctl.h>
#include <sys/stat.h>

#include <rtxg/cpu.h>
#include <rtxg_cpu.h>

#define SELF "/tests/t_run"
#define RTXG "/tests/w_rtxg "

/* ---- the program ---- */

static struct rtxg_cpu_task task_of(int fd, int pid, int *err)
{
	struct rtxg_cpu_task task = { .size = sizeof(task), .pid = pid };

	*err = call(fd, RTXG_IOC_CPU_GET, &task);
	return task;
}

static struct rtxg_cpu_stats stats_of(int fd, int pid)
{
	struct rtxg_cpu_stats stats = { .size = sizeof(stats), .pid = pid };

	call(fd, RTXG_IOC_CPU_STATS, &stats);
	return stats;
}

static void say(const char *who)
{
	struct sched_param param = {};
	int err, fd = open_rtxg(), policy = sched_getscheduler(0);
	struct rtxg_cpu_task task = task_of(fd, 0, &err);

	sched_getparam(0, &param);
	printf("%s sched %d reset %d priority %d get %d policy %u flags 0x%x threads %u period "
	       "%llu runtime %llu suspend %llu\n",
	       who, policy & ~SCHED_RESET_ON_FORK, !!(policy & SCHED_RESET_ON_FORK),
	       param.sched_priority, err, task.policy, task.flags, task.threads,
	       (unsigned long long)task.period_ns, (unsigned long long)task.runtime_ns,
	       (unsigned long long)task.suspend_ns);
	fflush(stdout);
	close(fd);
}

static void *idle_thread(void *unused)
{
	for (;;)
		pause();
	return NULL;
}

static void *spin_thread(void *unused)
{
	for (;;)
		;
	return NULL;
}

/* Until the module has taken in so many threads; it does so as soon as its own thread runs. */
static bool threads_become(int fd, int pid, unsigned int count)
{
	for (int i = 0; i < 400; i++) {
		int err;

		if (task_of(fd, pid, &err).threads == count)
			return true;
		sleep_ns(5 * MS);
	}
	return false;
}

static void *exec_thread(void *unused)
{
	execl(SELF, SELF, "later", NULL);
	_exit(9);
}

static int be_threads(void)
{
	int fd = open_rtxg(), policy[3], err[3];
	pthread_t threads[3];
	pid_t child;

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, idle_thread, NULL);
	printf("took %d\n", threads_become(fd, 0, 4));
	/*
	 * the first thread's number is the process's; the others follow in order of creation here
	 */
	for (int i = 0; i < 3; i++) {
		pid_t tid = getpid() + 1 + i;

		policy[i] = sched_getscheduler(tid) & ~SCHED_RESET_ON_FORK;
		task_of(fd, tid, &err[i]);
	}
	printf("threads %d %d %d get %d %d %d\n", policy[0], policy[1], policy[2], err[0], err[1],
	       err[2]);
	for (int i = 0; i < 3; i++) {
		pthread_cancel(threads[i]);
		pthread_join(threads[i], NULL);
	}
	printf("gone %d\n", threads_become(fd, 0, 1));
	fflush(stdout);
	child = fork();
	if (!child) {
		say("child");
		_exit(0);
	}
	waitpid(child, NULL, 0);
	/* execve by another thread: it goes on as the process */
	pthread_create(&threads[0], NULL, exec_thread, NULL);
	for (;;)
		pause();
}

/* Two threads that never stop, with one budget. */
static int be_busy(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, spin_thread, NULL);
	spin_thread(NULL);
	return 0;
}

/* A program that knows of jobs itself: rtxg run's parameters hold, and it begins its own jobs. */
static int be_jobs(void)
{
	struct rtx_cpu_stats stats = { .size = sizeof(stats) };
	int err = rtx_cpu_init();

	err = err ?: rtx_cpu_set_period(500 * MS) ?: rtx_cpu_run(0);
	for (int i = 0; i < 4 && !err; i++)
		err = rtx_cpu_wait_period(NULL);
	err = err ?: rtx_cpu_stats(&stats);
	printf("jobs err %d jobs %llu\n", err, (unsigned long long)stats.jobs);
	err = rtx_cpu_exit();
	say("after");
	return err;
}

/* ---- the person ---- */

static char output[4096];
static int status;

/* Runs a command line; its words are in output, its exit status in status. */
static const char *type(const char *format, ...)
{
	char command[1024];
	size_t length;
	va_list args;
	FILE *pipe;
	int raw;

	va_start(args, format);
	vsnprintf(command, sizeof(command) - 6, format, args);
	va_end(args);
	strcat(command, " 2>&1");
	fflush(NULL);
	pipe = popen(command, "r");
	length = fread(output, 1, sizeof(output) - 1, pipe);
	output[length] = 0;
	raw = pclose(pipe);
	status = WIFEXITED(raw) ? WEXITSTATUS(raw) : -1;
	return output;
}

#define says(text) check(strstr(output, (text)) != NULL, "\"%s\" is not in: %s", (text), output)

static bool no_command(void)
{
	return access("/tests/w_rtxg", X_OK);
}

/* What a program had goes a moment after it: the module's own thread puts it away. */
static void nothing_is_held(void)
{
	int ret = 1;

	for (int i = 0; i < 6000 && ret; i++) {
		ret = shell("rmmod rtxg 2>/dev/null");
		if (ret)
			sleep_ns(10 * MS);
	}
	check(!ret && !shell("insmod /modules/rtxg.ko"),
	      "something is held after the programs ended");
}

static void test_policies(void)
{
	if (no_command())
		skip("the command rtxg was not built (make)");
	type(RTXG "run --no-layer --cpu-policy edf -P 1s -T 3ms --cpu-runtime 900ms -- " SELF
		  " say");
	check(!status, "exit %d", status);
	says("sched 1 reset 1");
	says("get 0 policy 2 flags 0x70 threads 1 period 1000000000 runtime 900000000 suspend "
	     "3000000");
	type(RTXG "run --no-layer --cpu-policy rm -P 20ms --cpu-wcet 2ms --cpu-partition 1 -- " SELF
		  " say");
	says("sched 1 reset 1 priority 89 get 0 policy 1 flags 0x73 threads 1 period 20000000 "
	     "runtime 0");
	type(RTXG "run --no-layer --cpu-policy fp --cpu-priority 33 --cpu-threads first -- " SELF
		  " say");
	says("sched 1 reset 1 priority 33 get 0 policy 0 flags 0x10 threads 1 period 0");
	/* with the module there is room for what the kernel's own call refuses: one CPU of two */
	type(RTXG "run --no-layer --cpu-policy deadline -P 20ms --cpu-runtime 5ms --cpu-partition "
		  "auto -- " SELF " say");
	says("sched 6 reset 1");
	says("get 0 policy 3 flags 0x11");
	/* and those that every kernel has stay the kernel's */
	type(RTXG "run --no-layer --cpu-policy fifo --cpu-priority 7 -- " SELF " say");
	says("sched 1 reset 0 priority 7 get -2");
	nothing_is_held();
}

static void test_threads_and_children(void)
{
	if (no_command())
		skip("the command rtxg was not built (make)");
	type(RTXG "run --no-layer --cpu-policy rm -P 20ms -- " SELF " threads");
	check(!status, "exit %d", status);
	says("took 1");
	says("threads 1 1 1 get 0 0 0");
	says("gone 1");
	says("child sched 0 reset 0 priority 0 get -2");
	says("self sched 1 reset 1 priority 89 get 0 policy 1 flags 0x70 threads 1");
	/* one thread only: what it makes is ordinary */
	type(RTXG "run --no-layer --cpu-policy rm -P 20ms --cpu-threads first -- " SELF " threads");
	says("took 0");
	says("threads 0 0 0 get -2 -2 -2");
	nothing_is_held();
}

static void test_program_with_jobs(void)
{
	if (no_command())
		skip("the command rtxg was not built (make)");
	type(RTXG "run --no-layer --cpu-policy edf -P 10ms -- " SELF " jobs");
	check(!status, "exit %d", status);
	says("jobs err 0 jobs 5");
	says("after sched 1 reset 1");
	says("get 0 policy 2 flags 0x70 threads 1 period 10000000");
}

static pid_t start(const char *options, const char *what)
{
	char command[256];
	pid_t child;

	snprintf(command, sizeof(command), "exec " RTXG "run --no-layer %s -- " SELF " %s", options,
		 what);
	fflush(NULL);
	child = fork();
	if (!child) {
		/* its own group: nothing that the test gets */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(9);
	}
	for (int i = 0; i < 400; i++) {
		int err, fd = open_rtxg();

		task_of(fd, child, &err);
		close(fd);
		if (!err)
			break;
		sleep_ns(5 * MS);
	}
	return child;
}

static void stop(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static void test_set_and_get(void)
{
	int fd = open_rtxg(), err;
	struct rtxg_cpu_task task;
	pid_t child;

	if (no_command())
		skip("the command rtxg was not built (make)");
	child = start("--cpu-policy edf -P 20ms --cpu-runtime 5ms", "idle");
	type(RTXG "get -n -o CPUPOLICY,CPURUNTIME,CPUPERIOD,CPUTHREADS,CPUHARD %d", child);
	check(!status && strstr(output, "edf") && strstr(output, "5ms") && strstr(output, "20ms") &&
		      strstr(output, "no"),
	      "%s", output);
	/* a parameter that is not named stays */
	type(RTXG "set -p %d --cpu-runtime 7ms", child);
	check(!status, "set: exit %d: %s", status, output);
	task = task_of(fd, child, &err);
	check(!err && task.policy == RTXG_CPU_EDF && task.runtime_ns == 7 * MS &&
		      task.period_ns == 20 * MS && task.flags == 0x70,
	      "policy %u runtime %llu flags 0x%x", task.policy, (unsigned long long)task.runtime_ns,
	      task.flags);
	type(RTXG "set -p %d --cpu-policy rm -P 40ms --cpu-runtime 7ms --cpu-hard", child);
	check(!status, "set: exit %d: %s", status, output);
	task = task_of(fd, child, &err);
	check(!err && task.policy == RTXG_CPU_RM && task.period_ns == 40 * MS &&
		      task.flags == 0x2f0,
	      "policy %u flags 0x%x", task.policy, task.flags);
	/* refused by the kernel, on one side or the other: nothing has changed */
	type(RTXG "set -p %d --cpu-policy rm -P 40ms --cpu-partition 63", child);
	check(status == 1, "CPU 63: exit %d", status);
	says("is CPU 63 there and online?");
	type(RTXG "set -p %d --priority 7 --cpu-runtime 9ms", child);
	check(status == 1, "a priority on the GPU without a GPU task: exit %d: %s", status, output);
	task = task_of(fd, child, &err);
	check(!err && task.policy == RTXG_CPU_RM && task.period_ns == 40 * MS &&
		      task.runtime_ns == 7 * MS && task.flags == 0x2f0,
	      "after refusals: policy %u runtime %llu flags 0x%x", task.policy,
	      (unsigned long long)task.runtime_ns, task.flags);
	/* away from the module */
	type(RTXG "set -p %d --cpu-policy other", child);
	check(!status, "set: exit %d: %s", status, output);
	task_of(fd, child, &err);
	check(err == -ENOENT && sched_getscheduler(child) == SCHED_OTHER, "err %d, policy %d", err,
	      sched_getscheduler(child));
	/* and to it: a process that runs already */
	type(RTXG "set -p %d --cpu-policy fp --cpu-priority 5", child);
	check(!status && (sched_getscheduler(child) & ~SCHED_RESET_ON_FORK) == SCHED_FIFO,
	      "exit %d, policy %d", status, sched_getscheduler(child));
	stop(child);
	close(fd);
	nothing_is_held();
}

/*
 * Two threads on two CPUs share a budget of 20 of 100 ms. Hard: that is all they get, although
 * no other thread wants the CPUs. A thread may run past the budget on its way out of the kernel.
 * That time is charged to the next period, so that it does not add up.
 */
static void test_hard_budget(void)
{
	struct rtxg_cpu_stats first, last;
	int fd = open_rtxg();
	uint64_t used, budget;
	pid_t child;

	if (no_command())
		skip("the command rtxg was not built (make)");
	child = start("--cpu-policy rm -P 100ms --cpu-runtime 20ms --cpu-hard", "busy");
	check(threads_become(fd, child, 2), "the second thread was not taken in");
	first = stats_of(fd, child);
	do {
		sleep_ns(20 * MS);
		last = stats_of(fd, child);
	} while (last.replenishments < first.replenishments + 10);
	used = last.exec_ns - first.exec_ns;
	budget = (last.replenishments - first.replenishments) * 20 * MS;
	note("2 threads, 20 of 100 ms, hard, 2 idle CPUs: used %.1f ms in %llu periods, throttled "
	     "%llu times",
	     used / 1e6, (unsigned long long)(last.replenishments - first.replenishments),
	     (unsigned long long)(last.throttles - first.throttles));
	/*
	 * the emulator lets the CPUs take turns of 100 ms: a thread may run that long before it
	 * hears of it, once. i_cpu.c measures
	 */
	check(used <= budget + 210 * MS, "used %.1f ms of %.1f", used / 1e6, budget / 1e6);
	check(last.throttles > first.throttles, "throttled %llu times",
	      (unsigned long long)(last.throttles - first.throttles));
	/* it can be killed while it is stopped, and changed: without a budget it runs on */
	type(RTXG "set -p %d --cpu-policy other", child);
	check(!status, "set: exit %d: %s", status, output);
	stop(child);
	child = start("--cpu-policy rm -P 1min --cpu-runtime 1ms --cpu-hard", "busy");
	for (int i = 0; i < 400 && !stats_of(fd, child).throttles; i++)
		sleep_ns(5 * MS);
	check(stats_of(fd, child).throttles == 1, "not throttled");
	stop(child);
	check(true, "killed");
	close(fd);
	nothing_is_held();
}

static void test_refusals(void)
{
	if (no_command())
		skip("the command rtxg was not built (make)");
	type(RTXG "run --no-layer --cpu-policy edf -- " SELF " say");
	check(status == 125, "exit %d", status);
	says("--cpu-policy edf needs --period");
	type(RTXG "run --no-layer --cpu-policy fp --cpu-priority 98 -- " SELF " say");
	check(status == 125, "exit %d", status);
	says("needs --cpu-priority 1..97");
	type(RTXG "run --no-layer --cpu-policy edf -P 10ms --cpu-hard -- " SELF " say");
	says("--cpu-hard goes with a budget: --cpu-runtime");
	type("/tests/t_run nobody " RTXG "run --no-layer --cpu-policy edf -P 10ms -- " SELF " say");
	check(status == 125, "exit %d", status);
	says("policy edf needs CAP_SYS_NICE");
	type(RTXG "run --no-layer --cpu-policy edf -P 100ms --cpu-runtime 60ms -T 40ms "
		  "--cpu-partition 0 -- " SELF " say");
	check(status == 125, "exit %d", status);
	says("on CPU 0 the tasks with deadlines would use 1.000 CPUs, and 0.950 are for them");
	nothing_is_held();
	check(!shell("rmmod rtxg"), "rmmod");
	type(RTXG "run --no-layer --cpu-policy edf -P 10ms -- " SELF " say");
	check(status == 125, "exit %d", status);
	says("/dev/rtxg is not there; load the module");
	type(RTXG "run --no-layer --cpu-policy deadline -P 20ms --cpu-runtime 5ms -- " SELF " say");
	check(!status, "deadline without the module: exit %d: %s", status, output);
	says("sched 6 reset 1");
	check(!shell("insmod /modules/rtxg.ko"), "insmod");
}

int main(int argc, char **argv)
{
	static const struct ktap_case cases[] = {
		{ "policies", test_policies },
		{ "threads_and_children", test_threads_and_children },
		{ "program_with_jobs", test_program_with_jobs },
		{ "set_and_get", test_set_and_get },
		{ "hard_budget", test_hard_budget },
		{ "refusals", test_refusals },
	};

	if (argc > 1 && !strcmp(argv[1], "say"))
		return say("self"), 0;
	if (argc > 1 && !strcmp(argv[1], "later")) {
		/*
		 * a new thread is taken in a moment after it was made, and this one may have been
		 * faster
		 */
		int fd = open_rtxg();

		threads_become(fd, 0, 1);
		close(fd);
		return say("self"), 0;
	}
	if (argc > 1 && !strcmp(argv[1], "idle"))
		idle_thread(NULL);
	if (argc > 1 && !strcmp(argv[1], "threads"))
		return be_threads();
	if (argc > 1 && !strcmp(argv[1], "busy"))
		return be_busy();
	if (argc > 1 && !strcmp(argv[1], "jobs"))
		return be_jobs();
	if (argc > 2 && !strcmp(argv[1], "nobody")) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			return 9;
		execv(argv[2], argv + 2);
		return 9;
	}
	load_module();
	/* a daemon started by the program would only stand in the way */
	setenv("RTXG_SOCKET", "/tmp/nobody.sock", 1);
	return RUN(cases);
}
