// SPDX-License-Identifier: MIT
/*
 * t_cpu.c - CPU scheduling: parameters that are set, refused and restored. No test here depends on
 * how fast time passes. Tests of time stand in i_cpu.c, where time is the number of instructions.
 */
#include "rtxg_vm.h"

#include <rtxg/cpu.h>

#define MS 1000000ull

static struct rtxg_cpu_task task_params(uint32_t policy, uint64_t period)
{
	return (struct rtxg_cpu_task){ .size = sizeof(struct rtxg_cpu_task),
				       .policy = policy,
				       .period_ns = period };
}

static struct rtxg_cpu_stats stats_of(int fd, int pid)
{
	struct rtxg_cpu_stats stats = { .size = sizeof(stats), .pid = pid };
	int err = call(fd, RTXG_IOC_CPU_STATS, &stats);

	check(!err, "stats of %d: %d", pid, err);
	return stats;
}

static int policy_of(pid_t pid, int *priority)
{
	struct sched_param param;

	sched_getparam(pid, &param);
	*priority = param.sched_priority;
	return sched_getscheduler(pid) & ~SCHED_RESET_ON_FORK;
}

static void test_put_back(void)
{
	cpu_set_t two, now, one;
	pid_t child = idle_child(); /* before the file: a child would keep it open */
	int priority, fd = open_rtxg();
	struct sched_param rr = { .sched_priority = 7 };

	CPU_ZERO(&two);
	CPU_SET(0, &two);
	CPU_SET(1, &two);
	sched_setaffinity(child, sizeof(two), &two);
	sched_setscheduler(child, SCHED_RR, &rr);
	for (uint32_t policy = 0; policy < RTXG_CPU_POLICIES; policy++) {
		struct rtxg_cpu_task params = task_params(policy, 100 * MS);
		struct rtxg_cpu_pid who = { .size = sizeof(who), .pid = child };
		int err;

		params.pid = child;
		params.flags = RTXG_CPU_F_PARTITIONED | RTXG_CPU_F_CPU;
		params.cpu = 1;
		if (policy == RTXG_CPU_FP)
			params.priority = 42;
		if (policy == RTXG_CPU_DEADLINE)
			params.runtime_ns = 10 * MS;
		err = call(fd, RTXG_IOC_CPU_ATTACH, &params);
		check(!err, "policy %u: %d", policy, err);
		CPU_ZERO(&now);
		CPU_ZERO(&one);
		CPU_SET(1, &one);
		sched_getaffinity(child, sizeof(now), &now);
		check(CPU_EQUAL(&now, &one), "policy %u: not on CPU 1", policy);
		int now_policy = policy_of(child, &priority);

		if (policy == RTXG_CPU_DEADLINE)
			check(now_policy == SCHED_DEADLINE, "policy %d", now_policy);
		else
			check(now_policy == SCHED_FIFO && priority == (int)params.priority,
			      "policy %d priority %d, said %u", now_policy, priority,
			      params.priority);
		check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -EEXIST, "attached twice");
		if (policy % 2) {
			check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
			check(call(fd, RTXG_IOC_CPU_DETACH, &who) == -ENOENT, "detached twice");
		} else {
			close(fd);
			fd = open_rtxg();
		}
		now_policy = policy_of(child, &priority);
		check(now_policy == SCHED_RR && priority == 7,
		      "after policy %u: policy %d priority %d", policy, now_policy, priority);
		sched_getaffinity(child, sizeof(now), &now);
		check(CPU_EQUAL(&now, &two), "after policy %u: affinity not put back", policy);
	}
	end_child(child);
	close(fd);
}

/* The kernel's struct sched_attr. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

/* Reserves 30 % of a CPU for a process, as chrt -d does. 0 or negative errno. */
static int reserve_so(pid_t pid, uint64_t flags)
{
	const struct attributes attr = { .size = sizeof(attr),
					 .policy = SCHED_DEADLINE,
					 .flags = flags,
					 .runtime = 30 * MS,
					 .deadline = 100 * MS,
					 .period = 100 * MS };

	return syscall(SYS_sched_setattr, pid, &attr, 0) ? -errno : 0;
}

static int reserve(pid_t pid)
{
	return reserve_so(pid, 0);
}

static struct attributes attributes_of(pid_t pid)
{
	struct attributes attr = { 0 };

	check(!syscall(SYS_sched_getattr, pid, &attr, sizeof(attr), 0), "sched_getattr: %d", errno);
	return attr;
}

/* Attaches it under another policy, and detaches it. */
static void attach_and_detach(pid_t pid)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_FP, 100 * MS);
	struct rtxg_cpu_pid who = { .size = sizeof(who), .pid = pid };
	int priority, fd = open_rtxg();

	params.pid = pid;
	params.priority = 42;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	check(policy_of(pid, &priority) == SCHED_FIFO && priority == 42, "not FIFO 42");
	check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
	close(fd);
}

/*
 * What a reservation says besides its time: it reclaims, it is told of overruns, its children. The
 * child runs, since the kernel never takes a reservation back from a task that has not run with it.
 */
static void test_flags_of_a_reservation_are_put_back(void)
{
	pid_t child;

	fflush(NULL);
	/* the signal of an overrun ends no child */
	signal(SIGXCPU, SIG_IGN);
	child = fork();
	if (!child)
		for (;;)
			;
	signal(SIGXCPU, SIG_DFL);
	for (uint64_t flags = 0; flags < 8; flags++) {
		struct attributes now;

		check(!reserve_so(child, flags), "flags %d", (int)flags);
		attach_and_detach(child);
		now = attributes_of(child);
		check(now.policy == SCHED_DEADLINE && now.flags == flags &&
			      now.runtime == 30 * MS && now.period == 100 * MS,
		      "flags %d: policy %u, flags %d", (int)flags, now.policy, (int)now.flags);
	}
	end_child(child);
}

/* For how long at a time it runs, which an ordinary task may say from Linux 6.12 on. */
static void test_slice_is_put_back(void)
{
	struct attributes asked = { .size = sizeof(asked), .nice = 3, .runtime = 7 * MS }, now;
	pid_t child = idle_child(), other = idle_child();
	uint64_t usual = attributes_of(other).runtime;

	check(!syscall(SYS_sched_setattr, child, &asked, 0), "sched_setattr: %d", errno);
	bool can = attributes_of(child).runtime == 7 * MS;

	attach_and_detach(child);
	attach_and_detach(other);
	now = attributes_of(child);
	check(now.policy == SCHED_OTHER && now.nice == 3 && (!can || now.runtime == 7 * MS),
	      "policy %u, nice %d, %f ms", now.policy, now.nice, now.runtime / 1e6);
	now = attributes_of(other);
	check(now.runtime == usual, "that of another was %f ms, and is %f ms", usual / 1e6,
	      now.runtime / 1e6);
	end_child(child);
	end_child(other);
	if (!can)
		skip("tasks have no slices of their own here");
}

/*
 * Reserves all that is left, each part by a process of its own, and returns their number. Who has
 * changed its policy or has ended keeps its part until its zero-lag time, at most a period later:
 * all is taken only where nothing fits a period after the last one.
 */
static int reserve_all(pid_t *others, int most)
{
	int count = 0, err, fitted;

	do {
		fitted = count;
		usleep(2 * 100 * 1000);
		do {
			others[count] = idle_child();
			err = reserve(others[count++]);
		} while (!err && count < most);
		if (err)
			end_child(others[--count]);
		check(err == -EBUSY, "there is always room for another reservation: %d", err);
	} while (err == -EBUSY && count > fitted);
	return count;
}

/* What it had reserved before us is others' now: it does not stay with the priority of ours. */
static void test_put_back_without_its_reservation(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_FP, 100 * MS);
	pid_t child = idle_child(), others[8];
	int priority, count, policy, err, fd = open_rtxg();
	struct rtxg_cpu_pid who = { .size = sizeof(who), .pid = child };

	check(!reserve(child), "no reservation");
	params.pid = child;
	params.priority = 42;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	check(policy_of(child, &priority) == SCHED_FIFO && priority == 42, "not FIFO 42");
	count = reserve_all(others, 8);
	check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
	policy = policy_of(child, &priority);
	check(policy == SCHED_OTHER, "after: policy %d priority %d", policy, priority);
	while (count)
		end_child(others[--count]);

	/*
	 * With room it has it again. A dead task's part is kept until its zero-lag time, and so is
	 * its own when it is attached: for a moment there may be room for one part and not for two.
	 */
	policy = SCHED_OTHER;
	for (int tries = 0; policy != SCHED_DEADLINE && tries < 1000; tries++) {
		usleep(10000);
		err = reserve(child);
		if (err == -EBUSY)
			continue;
		check(!err, "no reservation: %d", err);
		check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
		check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
		policy = policy_of(child, &priority);
	}
	check(policy == SCHED_DEADLINE, "its reservation is not put back: %d", err);
	end_child(child);
	close(fd);
}

/* Says its number, then waits. */
static void *worker_thread(void *answers)
{
	pid_t self = gettid();

	if (write(*(int *)answers, &self, sizeof(self)) != sizeof(self))
		_exit(1);
	for (;;)
		pause();
	return NULL;
}

/* A process, and the ends of two pipes: orders to its first thread, and answers. */
struct crew {
	pid_t pid;
	int orders, answers;
};

static struct crew start_crew(void)
{
	int orders[2], answers[2];
	struct crew crew;
	pthread_t thread;
	char order;

	check(!pipe(orders) && !pipe(answers), "pipe");
	fflush(NULL);
	crew.pid = fork();
	if (!crew.pid) {
		close(orders[1]);
		while (read(orders[0], &order, 1) == 1 && order == 'w')
			if (pthread_create(&thread, NULL, worker_thread, &answers[1]))
				_exit(1);
		pthread_exit(NULL);
	}
	close(orders[0]);
	close(answers[1]);
	crew.orders = orders[1];
	crew.answers = answers[0];
	return crew;
}

/* One more thread, once it is attached as the process is. */
static pid_t attached_worker(int fd, struct crew *crew)
{
	struct rtxg_cpu_stats stats = { .size = sizeof(stats) };

	if (!check(write(crew->orders, "w", 1) == 1 &&
			   read(crew->answers, &stats.pid, sizeof(stats.pid)) == sizeof(stats.pid),
		   "no worker"))
		return -1;
	while (call(fd, RTXG_IOC_CPU_STATS, &stats) == -ENOENT)
		sleep_ns(MS);
	return stats.pid;
}

static void end_crew(struct crew *crew)
{
	close(crew->orders);
	close(crew->answers);
	end_child(crew->pid);
}

/* A thread that an attached thread makes goes back to what the process was before, not to that. */
static void test_new_threads_are_put_back(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_FP, 100 * MS);
	struct rtxg_cpu_stats stats = { .size = sizeof(stats) };
	struct rtxg_cpu_pid who = { .size = sizeof(who), .on = 1 };
	struct crew crew = start_crew(), slow = start_crew();
	int priority, fd = open_rtxg();
	cpu_set_t before, now;

	sched_getaffinity(crew.pid, sizeof(before), &before);
	params.pid = stats.pid = crew.pid;
	params.priority = 42;
	params.flags = RTXG_CPU_F_PROCESS | RTXG_CPU_F_PARTITIONED | RTXG_CPU_F_CPU;
	params.cpu = 1;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	who.pid = params.pid = attached_worker(fd, &crew);
	check(write(crew.orders, "e", 1) == 1, "end");
	while (call(fd, RTXG_IOC_CPU_STATS, &stats) != -ENOENT)
		sleep_ns(MS);
	/*
	 * the worker is the first thread now: what it could run on is what the task may be moved to
	 */
	params.cpu = 0;
	check(!call(fd, RTXG_IOC_CPU_SET, &params), "not moved once the first thread ended");
	check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
	sched_getaffinity(who.pid, sizeof(now), &now);
	check(CPU_EQUAL(&now, &before), "a new thread stays on the CPU of the attachment");

	params.pid = who.pid = slow.pid;
	params.flags = RTXG_CPU_F_PROCESS;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	check(!call(fd, RTXG_IOC_CPU_BACKGROUND, &who), "background");
	pid_t worker = attached_worker(fd, &slow);

	check(policy_of(worker, &priority) == SCHED_IDLE, "not in the background");
	check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
	check(policy_of(worker, &priority) == SCHED_OTHER, "stays in the background: policy %d",
	      policy_of(worker, &priority));
	end_crew(&crew);
	end_crew(&slow);
	close(fd);
}

static void test_rate_monotonic(void)
{
	const uint64_t periods[] = { 50 * MS, 10 * MS, 100 * MS, 10 * MS };
	int fd = open_rtxg(), priority[4];
	struct rtxg_cpu_pid who = { .size = sizeof(who) };
	pid_t child[4];

	for (int i = 0; i < 4; i++) {
		struct rtxg_cpu_task params = task_params(RTXG_CPU_RM, periods[i]);

		params.pid = child[i] = idle_child();
		check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach %d", i);
	}
	for (int i = 0; i < 4; i++)
		policy_of(child[i], &priority[i]);
	check(priority[1] == priority[3] && priority[1] > priority[0] && priority[0] > priority[2],
	      "periods 50 10 100 10 ms: priorities %d %d %d %d", priority[0], priority[1],
	      priority[2], priority[3]);
	/* a faster one comes, and one goes */
	struct rtxg_cpu_task params = task_params(RTXG_CPU_RM, 5 * MS);

	params.pid = child[2];
	check(!call(fd, RTXG_IOC_CPU_SET, &params), "set");
	for (int i = 0; i < 4; i++)
		policy_of(child[i], &priority[i]);
	check(priority[2] > priority[1] && priority[1] > priority[0],
	      "5 ms: %d, 10 ms: %d, 50 ms: %d", priority[2], priority[1], priority[0]);
	who.pid = child[1];
	check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
	policy_of(child[3], &priority[3]);
	policy_of(child[2], &priority[2]);
	check(priority[2] > priority[3], "after one went: %d %d", priority[2], priority[3]);
	for (int i = 0; i < 4; i++)
		end_child(child[i]);
	close(fd);
}

static void test_worst_fit(void)
{
	int fd = open_rtxg();
	uint32_t cpu[4];
	pid_t child[4];

	for (int i = 0; i < 4; i++) {
		struct rtxg_cpu_task params = task_params(RTXG_CPU_EDF, 100 * MS);

		params.pid = child[i] = idle_child();
		params.flags = RTXG_CPU_F_PARTITIONED;
		params.wcet_ns = i == 0 ? 50 * MS : 20 * MS;
		check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach %d", i);
		cpu[i] = params.cpu;
	}
	check(cpu[0] != cpu[1] && cpu[2] == cpu[1] && cpu[3] == cpu[1],
	      "50 20 20 20 %% went to CPUs %u %u %u %u", cpu[0], cpu[1], cpu[2], cpu[3]);
	for (int i = 0; i < 4; i++)
		end_child(child[i]);
	close(fd);
}

static uint32_t ask(int fd, struct rtxg_cpu_task *params, struct rtxg_cpu_admission *answer)
{
	*answer = (struct rtxg_cpu_admission){ .size = sizeof(*answer), .task = (uintptr_t)params };
	int err = call(fd, RTXG_IOC_CPU_ADMISSION, answer);

	check(!err, "admission: %d", err);
	return answer->test;
}

/*
 * tests/unit/test_cpu_admit.c tries the admission tests themselves. Here the module asks them, and
 * a refused call changes nothing.
 */
static void test_admission(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_RM, 50 * MS),
			     now = { .size = sizeof(now) };
	struct rtxg_cpu_admission answer;
	pid_t child[3] = { idle_child(), idle_child(), idle_child() };
	int fd = open_rtxg(), priority, err;

	params.flags = RTXG_CPU_F_PARTITIONED | RTXG_CPU_F_CPU;
	params.wcet_ns = 20 * MS;
	params.pid = child[0];
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "20 of 50 ms");
	/* 40/70 ms beside it: 80 ms under rate monotonic; EDF could, but not beside RM */
	params = task_params(RTXG_CPU_RM, 70 * MS);
	params.flags = RTXG_CPU_F_PARTITIONED | RTXG_CPU_F_CPU;
	params.wcet_ns = 38 * MS;
	params.pid = child[1];
	err = call(fd, RTXG_IOC_CPU_ATTACH, &params);
	check(err == -ENOSPC && policy_of(child[1], &priority) == SCHED_OTHER,
	      "38 of 70 ms: %d, policy %d", err, policy_of(child[1], &priority));
	check(ask(fd, &params, &answer) == RTXG_CPU_RESPONSE && answer.needed == 78 * MS &&
		      answer.there == 70 * MS && answer.cpu == 0,
	      "test %u: %llu of %llu on CPU %d", answer.test, (unsigned long long)answer.needed,
	      (unsigned long long)answer.there, answer.cpu);
	/* its GPU time counts: 20 + 11 ms do not fit into what 30 do */
	params.wcet_ns = 20 * MS;
	params.suspend_ns = 11 * MS;
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -ENOSPC, "20 ms and 11 on the GPU");
	params.suspend_ns = 10 * MS;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "20 ms and 10 on the GPU");
	/* where the CPU is left open the other one has room */
	params = task_params(RTXG_CPU_RM, 70 * MS);
	params.flags = RTXG_CPU_F_PARTITIONED;
	params.wcet_ns = 38 * MS;
	params.pid = child[2];
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params) && params.cpu == 1, "went to CPU %u",
	      params.cpu);
	/* a change that is refused leaves what was */
	params.wcet_ns = 69 * MS;
	params.flags |= RTXG_CPU_F_CPU;
	params.cpu = 0;
	check(call(fd, RTXG_IOC_CPU_SET, &params) == -ENOSPC, "69 of 70 ms on CPU 0");
	check(ask(fd, &params, &answer) == RTXG_CPU_CAPACITY && answer.there == 950000,
	      "test %u: of %llu", answer.test, (unsigned long long)answer.there);
	now.pid = child[2];
	check(!call(fd, RTXG_IOC_CPU_GET, &now) && now.cpu == 1 && now.wcet_ns == 38 * MS,
	      "CPU %u, wcet %llu", now.cpu, (unsigned long long)now.wcet_ns);
	/* the switch */
	check(!shell("echo 0 >/sys/module/rtxg/parameters/admission"), "off");
	check(!call(fd, RTXG_IOC_CPU_SET, &params), "69 of 70 ms without a test");
	check(!shell("echo 2 >/sys/module/rtxg/parameters/admission"), "strict");
	params.wcet_ns = 0;
	check(call(fd, RTXG_IOC_CPU_SET, &params) == -ENOSPC &&
		      ask(fd, &params, &answer) == RTXG_CPU_UNKNOWN,
	      "test %u", answer.test);
	check(!shell("echo 1 >/sys/module/rtxg/parameters/admission"), "on");
	for (int i = 0; i < 3; i++)
		end_child(child[i]);
	close(fd);
}

/* A cluster: some of the CPUs that a task may run on. Admission treats it as a separate machine. */
static void test_cluster(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_EDF, 100 * MS), now = params;
	uint64_t first = 1, second = 2, both = 3, none = 0, far[3] = { 2, 0, 1ull << 40 }, out[3];
	struct rtxg_cpu_pid who = { .size = sizeof(who) };
	pid_t child[3] = { idle_child(), idle_child(), idle_child() };
	cpu_set_t mask, before;
	int fd = open_rtxg(), err;

	sched_getaffinity(child[0], sizeof(before), &before);
	params.pid = now.pid = who.pid = child[0];
	params.flags = RTXG_CPU_F_CLUSTER;
	params.wcet_ns = 60 * MS;
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -EINVAL, "no set");
	params.set = (uintptr_t)&none;
	params.set_size = sizeof(none);
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -EINVAL, "an empty set");
	params.set = 8;
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -EFAULT, "a set nowhere");
	params.set = (uintptr_t)&second;
	params.set_size = 4;
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -EINVAL, "half a word");
	params.set = (uintptr_t)far;
	params.set_size = sizeof(far);
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -EINVAL, "a CPU that cannot be");
	params.set_size = 16; /* words of zero beyond are none */
	params.flags |= RTXG_CPU_F_PARTITIONED;
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -EINVAL, "on one CPU and in a cluster");
	params.flags = RTXG_CPU_F_CLUSTER;
	err = call(fd, RTXG_IOC_CPU_ATTACH, &params);
	check(!err, "attach: %d", err);
	sched_getaffinity(child[0], sizeof(mask), &mask);
	check(CPU_COUNT(&mask) == 1 && CPU_ISSET(1, &mask), "not on CPU 1 alone");
	now.set = (uintptr_t)out;
	now.set_size = sizeof(out);
	memset(out, 0xff, sizeof(out));
	check(!call(fd, RTXG_IOC_CPU_GET, &now) && out[0] == 2 && !out[1] && !out[2] &&
		      now.flags == RTXG_CPU_F_CLUSTER,
	      "set %llx, flags %x", (unsigned long long)out[0], now.flags);

	/* changed without a set, it stays where it is */
	params.set = params.set_size = 0;
	params.deadline_ns = 90 * MS;
	check(!call(fd, RTXG_IOC_CPU_SET, &params) &&
		      !sched_getaffinity(child[0], sizeof(mask), &mask) && CPU_COUNT(&mask) == 1 &&
		      CPU_ISSET(1, &mask),
	      "moved by a change of its deadline");
	/* a second task of 60 %: not beside it, but in the other cluster */
	params.pid = child[1];
	params.set_size = sizeof(second);
	params.set = (uintptr_t)&second;
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -ENOSPC, "1.2 CPUs' work in one");
	params.set = (uintptr_t)&first;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "in the other cluster");
	/* a third meets both, where either's deadlines would not be safe */
	params.pid = child[2];
	params.set = (uintptr_t)&both;
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -ENOSPC, "in both");
	params.wcet_ns = 0;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "in both, and says not what it needs");

	check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
	sched_getaffinity(child[0], sizeof(mask), &mask);
	check(CPU_EQUAL(&mask, &before), "affinity not put back");
	/* out of the cluster by SET */
	params = task_params(RTXG_CPU_EDF, 100 * MS);
	params.pid = child[1];
	check(!call(fd, RTXG_IOC_CPU_SET, &params), "set");
	sched_getaffinity(child[1], sizeof(mask), &mask);
	check(CPU_EQUAL(&mask, &before), "still in the cluster");
	for (int i = 0; i < 3; i++)
		end_child(child[i]);
	close(fd);
}

/* A policy moves no task to a forbidden CPU, and leaves later settings alone. */
static void test_affinity_of_others(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_RM, 100 * MS);
	struct rtxg_cpu_pid who = { .size = sizeof(who) };
	pid_t child = idle_child();
	cpu_set_t zero, now;
	int fd = open_rtxg();

	CPU_ZERO(&zero);
	CPU_SET(0, &zero);
	sched_setaffinity(child, sizeof(zero), &zero);
	params.pid = who.pid = child;
	params.flags = RTXG_CPU_F_PARTITIONED | RTXG_CPU_F_CPU;
	params.cpu = 1;
	check(call(fd, RTXG_IOC_CPU_ATTACH, &params) == -EINVAL, "taken to a CPU it may not use");
	sched_getaffinity(child, sizeof(now), &now);
	check(CPU_EQUAL(&now, &zero), "moved all the same");
	end_child(child);

	child = idle_child();
	params.pid = who.pid = child;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	sched_setaffinity(child, sizeof(zero), &zero);
	check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
	sched_getaffinity(child, sizeof(now), &now);
	check(CPU_EQUAL(&now, &zero), "what was set since is lost");
	end_child(child);
	close(fd);
}

/* A priority and a CPU that were set past the module are told as they are, and put right again. */
static void test_what_another_has_set(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_FP, 0);
	struct rtxg_cpu_pid who = { .size = sizeof(who), .on = 1 };
	struct sched_param ordinary = {};
	pid_t child = idle_child();
	int priority = 0, fd = open_rtxg();

	params.pid = who.pid = child;
	params.priority = 42;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	check(stats_of(fd, child).priority == 42, "attached with %u", stats_of(fd, child).priority);
	check(!sched_setscheduler(child, SCHED_OTHER, &ordinary), "made ordinary");
	check(!stats_of(fd, child).priority, "told %u of an ordinary task",
	      stats_of(fd, child).priority);
	/* the next change of its policy's */
	check(!call(fd, RTXG_IOC_CPU_BACKGROUND, &who), "background");
	who.on = 0;
	check(!call(fd, RTXG_IOC_CPU_BACKGROUND, &who), "no background");
	check(policy_of(child, &priority) == SCHED_FIFO && priority == 42, "left at %d", priority);
	check(!sched_setscheduler(child, SCHED_OTHER, &ordinary), "made ordinary");
	check(!call(fd, RTXG_IOC_CPU_SET, &params), "set");
	check(policy_of(child, &priority) == SCHED_FIFO && priority == 42, "set, and left at %d",
	      priority);
	end_child(child);
	close(fd);
}

/* A budget binds a task that has no privilege: it cannot take the budget off, nor itself out. */
static void test_unprivileged_task_keeps_its_budget(void)
{
	int fd = open_rtxg(), tell[2], status = -1;
	struct rtxg_cpu_task params = task_params(RTXG_CPU_FP, 100 * MS);
	char ready;

	params.priority = 50;
	params.runtime_ns = 10 * MS;
	check(!pipe(tell), "pipe");
	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		struct rtxg_cpu_pid who = { .size = sizeof(who) };
		struct rtxg_cpu_stats stats = { .size = sizeof(stats) };
		int bad = 0;

		if (setresuid(65534, 65534, 65534) || read(tell[0], &ready, 1) != 1)
			_exit(64);
		bad |= (call(fd, RTXG_IOC_CPU_RESERVE, &who) != -EPERM) << 0;
		bad |= (call(fd, RTXG_IOC_CPU_DETACH, &who) != -EPERM) << 1;
		who.on = 1;
		bad |= (call(fd, RTXG_IOC_CPU_BACKGROUND, &who) != -EPERM) << 2;
		who.on = 0;
		/* what takes nothing off stays free */
		bad |= (call(fd, RTXG_IOC_CPU_WAKE_UP, &who) != 0) << 3;
		bad |= (call(fd, RTXG_IOC_CPU_STATS, &stats) != 0) << 4;
		_exit(bad);
	}
	params.pid = child;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	check(write(tell[1], "", 1) == 1, "write");
	waitpid(child, &status, 0);
	check(!status, "allowed, by bits: RESERVE, DETACH, BACKGROUND; refused: WAKE_UP, STATS: %x",
	      WEXITSTATUS(status));
	close(tell[0]);
	close(tell[1]);
	close(fd);
}

static volatile int handler_priority;

static void note_priority(int signal)
{
	struct sched_param param;

	sched_getparam(0, &param);
	handler_priority = param.sched_priority;
}

/* Waits until a process sleeps at a priority, up to a long limit. */
static bool sleeps_at(pid_t pid, int wanted)
{
	char path[64], text[512];
	int priority;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (int i = 0; i < 3000; i++) {
		policy_of(pid, &priority);
		if (priority == wanted && read_text(path, text, sizeof(text)) &&
		    strstr(text, ") S "))
			return true;
		sleep_ns(10 * MS);
	}
	return false;
}

/* The priority of releases is for the wait alone: no code of the program ever runs at it. */
static void test_release_priority_is_for_the_wait(void)
{
	int status = -1, priority;
	struct sched_param own;

	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		struct rtxg_cpu_task params = task_params(RTXG_CPU_EDF, 3000 * 1000 * MS);
		struct rtxg_cpu_job job = { .size = sizeof(job) };
		struct sigaction action = { .sa_handler = note_priority };
		int fd = open_rtxg(), bad = 0;

		sigaction(SIGUSR1, &action, NULL);
		if (call(fd, RTXG_IOC_CPU_ATTACH, &params))
			_exit(64);
		sched_getparam(0, &own);
		bad |= (own.sched_priority != RTXG_CPU_BAND_LOW) << 0;
		if (call(fd, RTXG_IOC_CPU_RUN, &job))
			_exit(65);
		if (call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job) != -EINTR)
			_exit(66);
		bad |= (handler_priority < (int)RTXG_CPU_BAND_LOW ||
			handler_priority > (int)RTXG_CPU_BAND_HIGH)
		       << 1;
		sched_getparam(0, &own);
		bad |= (own.sched_priority > (int)RTXG_CPU_BAND_HIGH) << 2;
		/* and it may wait on, for the same release */
		if (call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job) != -EINTR)
			_exit(67);
		_exit(bad);
	}
	for (int i = 0; i < 2; i++) {
		check(sleeps_at(child, RTXG_CPU_BAND_HIGH + 1), "wait %d: priority %d", i,
		      (policy_of(child, &priority), priority));
		kill(child, SIGUSR1);
	}
	waitpid(child, &status, 0);
	check(!status,
	      "above the band, by bits: before RUN, in the handler, after it; or not done: %d",
	      WEXITSTATUS(status));
}

/* RUN ends the releases by the clock: the first release is the program's own. */
static void test_run_takes_a_server_over(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_EDF, 20 * MS);
	struct rtxg_cpu_job job = { .size = sizeof(job), .time_ns = 200 * MS };
	int fd = open_rtxg();
	uint64_t release;

	params.flags = RTXG_CPU_F_SERVER;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	check(!call(fd, RTXG_IOC_CPU_RUN, &job), "run");
	release = job.release_ns;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	check(release <= now.tv_sec * 1000000000ull + now.tv_nsec,
	      "the job began before its release");
	job.time_ns = 0;
	check(!call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job), "wait");
	check(job.release_ns == release + 20 * MS, "next release after %lld ns",
	      (long long)(job.release_ns - release));
	check(job.response_ns < 1000000 * MS, "response %llu", (unsigned long long)job.response_ns);
	close(fd);
}

static void test_bad_requests(void)
{
	struct rtxg_cpu_task good = task_params(RTXG_CPU_EDF, 10 * MS), bad;
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	struct rtxg_cpu_pid who = { .size = sizeof(who) };
	int fd = open_rtxg();

#define refused(change, err)                                  \
	do {                                                  \
		bad = good;                                   \
		change;                                       \
		int r_ = call(fd, RTXG_IOC_CPU_ATTACH, &bad); \
		check(r_ == (err), #change ": %d", r_);       \
	} while (0)
	refused(bad.size = 3, -EINVAL);
	refused(bad.policy = RTXG_CPU_POLICIES, -EINVAL);
	refused(bad.flags = 1u << 30, -EINVAL);
	refused(bad.reserved = 1, -EINVAL);
	refused(bad.period_ns = 1, -EINVAL);
	refused(bad.period_ns = UINT64_MAX, -EINVAL);
	refused(bad.deadline_ns = 11 * MS, -EINVAL);
	refused(bad.runtime_ns = 11 * MS, -EINVAL);
	refused(bad.policy = RTXG_CPU_DEADLINE, -EINVAL);
	refused(bad.policy = RTXG_CPU_FP, -EINVAL);
	refused(bad.policy = RTXG_CPU_FP; bad.priority = 98, -EINVAL);
	refused(bad.flags = RTXG_CPU_F_CPU, -EINVAL);
	refused(bad.flags = RTXG_CPU_F_CPU | RTXG_CPU_F_PARTITIONED; bad.cpu = 1u << 31, -EINVAL);
	refused(bad.pid = -4, -ESRCH);
	refused(bad.pid = 1 << 22, -ESRCH);
	refused(bad.pid = 2, -EPERM); /* kthreadd */
	check(call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job) == -ENOENT,
	      "wait_period of one not attached");
	check(call(fd, RTXG_IOC_CPU_WAKE_UP, &who) == -ENOENT, "wake_up of one not attached");
	check(call(fd, RTXG_IOC_CPU_GPU_WAIT, &who) == -ENOENT, "gpu_wait of one not attached");
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &good), "attach");
	check(call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job) == -EPERM, "wait_period before run");
	who = (struct rtxg_cpu_pid){ .size = sizeof(who), .pid = getpid() };
	check(call(fd, RTXG_IOC_CPU_GPU_WAIT, &who) == -EINVAL, "gpu_wait by number");
	who = (struct rtxg_cpu_pid){ .size = sizeof(who), .on = 2 };
	check(call(fd, RTXG_IOC_CPU_GPU_WAIT, &who) == -EINVAL, "gpu_wait neither on nor off");
	who.on = 0;
	check(!call(fd, RTXG_IOC_CPU_GPU_WAIT, &who), "gpu_wait ends without a beginning");
	who.on = 1;
	check(!call(fd, RTXG_IOC_CPU_GPU_WAIT, &who), "gpu_wait");
	check(call(fd, RTXG_IOC_CPU_RESERVE, &who) == -EINVAL, "reserve without a runtime");
	check(!call(fd, RTXG_IOC_CPU_RUN, &job), "run");
	check(call(fd, RTXG_IOC_CPU_RUN, &job) == -EALREADY, "run twice");
	close(fd);
	fd = open_rtxg();
	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		if (setresuid(65534, 65534, 65534))
			_exit(2);
		bad = good;
		bad.pid = 0;
		_exit(call(fd, RTXG_IOC_CPU_ATTACH, &bad) == -EPERM ? 0 : 1);
	}
	int status = -1;

	waitpid(child, &status, 0);
	check(!status, "an unprivileged caller: %d", status);
	close(fd);
}

static void *suspended(void *argument)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_FP, 10 * MS);
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	int *state = argument, fd = open_rtxg();

	params.priority = 20;
	if (call(fd, RTXG_IOC_CPU_ATTACH, &params)) {
		__atomic_store_n(&state[0], -1, __ATOMIC_RELEASE);
		return NULL;
	}
	__atomic_store_n(&state[0], gettid(), __ATOMIC_RELEASE);
	state[1] = call(fd, RTXG_IOC_CPU_SUSPEND, &job);
	__atomic_store_n(&state[2], 1, __ATOMIC_RELEASE);
	close(fd);
	return NULL;
}

static void test_suspend_and_wake_up(void)
{
	struct rtxg_cpu_pid who = { .size = sizeof(who) };
	int state[3] = {}, fd = open_rtxg();
	pthread_t thread;

	pthread_create(&thread, NULL, suspended, state);
	while (!__atomic_load_n(&state[0], __ATOMIC_ACQUIRE))
		sleep_ns(MS);
	if (!check(state[0] > 0, "attach"))
		return;
	sleep_ns(20 * MS);
	check(!__atomic_load_n(&state[2], __ATOMIC_ACQUIRE), "did not stay suspended");
	who.pid = state[0];
	check(!call(fd, RTXG_IOC_CPU_WAKE_UP, &who), "wake up");
	pthread_join(thread, NULL);
	check(!state[1], "suspend gave %d", state[1]);
	close(fd);
}

static volatile sig_atomic_t over_budget;

static void note_signal(int number)
{
	over_budget = number;
}

/* A job that goes on until it is told that its budget is used up: it ends, or the test hangs. */
static void test_budget_signal(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_FP, 1000 * MS);
	struct sigaction action = { .sa_handler = note_signal };
	int fd = open_rtxg();

	sigaction(SIGXCPU, &action, NULL);
	params.priority = 20;
	params.runtime_ns = 2 * MS;
	params.flags = RTXG_CPU_F_SIGNAL;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	while (!over_budget)
		;
	check(over_budget == SIGXCPU, "signal %d", (int)over_budget);
	check(stats_of(fd, 0).throttles >= 1 && stats_of(fd, 0).exec_ns >= 2 * MS,
	      "%" PRIu64 " throttles after %" PRIu64 " ns", (uint64_t)stats_of(fd, 0).throttles,
	      (uint64_t)stats_of(fd, 0).exec_ns);
	close(fd);
	signal(SIGXCPU, SIG_DFL);
}

static void test_death_in_every_state(void)
{
	/*
	 * a process is killed while: attached; in its job; waiting for its release; suspended; in
	 * the background; throttled
	 */
	for (int state = 0; state < 6; state++) {
		int pipes[2];

		if (pipe(pipes))
			return;
		fflush(NULL);
		pid_t child = fork();

		if (!child) {
			struct rtxg_cpu_task params =
				task_params(RTXG_CPU_EDF, state == 5 ? 1000 * MS : 200 * MS);
			struct rtxg_cpu_job job = { .size = sizeof(job) };
			struct rtxg_cpu_pid who = { .size = sizeof(who), .on = 1 };
			int fd = open_rtxg();

			if (state == 5)
				params.runtime_ns = MS;
			if (call(fd, RTXG_IOC_CPU_ATTACH, &params))
				_exit(1);
			if (state >= 1 && call(fd, RTXG_IOC_CPU_RUN, &job))
				_exit(2);
			if (state == 4 && call(fd, RTXG_IOC_CPU_BACKGROUND, &who))
				_exit(3);
			if (state == 5)
				for (struct rtxg_cpu_stats stats = { .size = sizeof(stats) };
				     !stats.throttles;)
					if (call(fd, RTXG_IOC_CPU_STATS, &stats))
						_exit(4);
			if (write(pipes[1], "x", 1) != 1)
				_exit(5);
			if (state == 2)
				call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job);
			if (state == 3)
				call(fd, RTXG_IOC_CPU_SUSPEND, &job);
			for (;;)
				pause();
		}
		close(pipes[1]);
		char byte;

		check(read(pipes[0], &byte, 1) == 1, "state %d was not reached", state);
		close(pipes[0]);
		sleep_ns(5 * MS);
		end_child(child);
	}
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "something is held after all died");
}

static void *job_thread(void *argument)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_EDF, 5 * MS);
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	int index = *(int *)argument, fd = open_rtxg();

	params.period_ns += index * MS;
	params.flags = index & 1 ? RTXG_CPU_F_PARTITIONED : 0;
	params.runtime_ns = index & 2 ? MS : 0;
	*(int *)argument = -1;
	if (!call(fd, RTXG_IOC_CPU_ATTACH, &params) && !call(fd, RTXG_IOC_CPU_RUN, &job)) {
		int err = 0;

		for (int i = 0; i < 60 && !err; i++)
			err = call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job);
		*(int *)argument = err ?: job.job == 61 ? 0 : 1000 + (int)job.job;
	}
	close(fd);
	return NULL;
}

/* Global and partitioned EDF jobs, some with budgets, while a CPU comes and goes. */
static void test_hotplug(void)
{
	enum { COUNT = 8 };
	pthread_t threads[COUNT];
	int state[COUNT];

	if (access("/sys/devices/system/cpu/cpu1/online", W_OK))
		skip("the guest has one CPU");
	for (int i = 0; i < COUNT; i++) {
		state[i] = i;
		pthread_create(&threads[i], NULL, job_thread, &state[i]);
	}
	for (int i = 0; i < 4; i++) {
		check(!shell("echo 0 >/sys/devices/system/cpu/cpu1/online"), "offline");
		sleep_ns(20 * MS);
		check(!shell("echo 1 >/sys/devices/system/cpu/cpu1/online"), "online");
		sleep_ns(20 * MS);
	}
	for (int i = 0; i < COUNT; i++) {
		pthread_join(threads[i], NULL);
		check(!state[i], "task %d: %d", i, state[i]);
	}
	/* a task of the CPU that goes moves, and stays managed */
	struct rtxg_cpu_task params = task_params(RTXG_CPU_EDF, 100 * MS);
	int fd = open_rtxg();

	params.pid = idle_child();
	params.flags = RTXG_CPU_F_PARTITIONED | RTXG_CPU_F_CPU;
	params.cpu = 1;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	check(!shell("echo 0 >/sys/devices/system/cpu/cpu1/online"), "offline");
	check(stats_of(fd, params.pid).cpu == 0, "still on CPU %u", stats_of(fd, params.pid).cpu);
	check(!shell("echo 1 >/sys/devices/system/cpu/cpu1/online"), "online");
	close(fd);
	end_child(params.pid);
}

/* Its tasks are no cluster's then: they compete with all that run where they ran before. */
static void test_the_last_cpu_of_a_cluster_goes(void)
{
	struct rtxg_cpu_task params = task_params(RTXG_CPU_EDF, 100 * MS), now = params;
	pid_t child = idle_child(), busy = idle_child();
	struct rtxg_cpu_pid who = { .size = sizeof(who) };
	uint64_t second = 2, both = 3, out = 0;
	cpu_set_t before, mask;
	int fd = open_rtxg();

	if (access("/sys/devices/system/cpu/cpu1/online", W_OK))
		skip("the guest has one CPU");
	sched_getaffinity(child, sizeof(before), &before);
	params.flags = RTXG_CPU_F_CLUSTER;
	params.set_size = now.set_size = sizeof(second);
	now.set = (uintptr_t)&out;
	now.pid = params.pid = child;
	params.set = (uintptr_t)&second;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	params.pid = busy;
	params.set = (uintptr_t)&both;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach to both");
	check(!shell("echo 0 >/sys/devices/system/cpu/cpu1/online"), "offline");
	check(!call(fd, RTXG_IOC_CPU_GET, &now), "get");
	check(out == 3, "competes for %llx", (unsigned long long)out);
	/* what a cluster without a CPU could not do */
	params.pid = child;
	params.set = params.set_size = 0;
	params.deadline_ns = 90 * MS;
	check(!call(fd, RTXG_IOC_CPU_SET, &params), "cannot be changed");
	check(!shell("echo 1 >/sys/devices/system/cpu/cpu1/online"), "online");
	for (int i = 0; i < 2; i++) {
		who.pid = i ? busy : child;
		sched_getaffinity(who.pid, sizeof(mask), &mask);
		check(CPU_EQUAL(&mask, &before), "task %d is held by a cluster that is none", i);
		check(!call(fd, RTXG_IOC_CPU_DETACH, &who), "detach");
		sched_getaffinity(who.pid, sizeof(mask), &mask);
		check(CPU_EQUAL(&mask, &before), "task %d: affinity not put back", i);
		end_child(who.pid);
	}
	close(fd);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "put_back", test_put_back },
		{ "put_back_without_its_reservation", test_put_back_without_its_reservation },
		{ "flags_of_a_reservation_are_put_back", test_flags_of_a_reservation_are_put_back },
		{ "slice_is_put_back", test_slice_is_put_back },
		{ "new_threads_are_put_back", test_new_threads_are_put_back },
		{ "rate_monotonic", test_rate_monotonic },
		{ "worst_fit", test_worst_fit },
		{ "admission", test_admission },
		{ "cluster", test_cluster },
		{ "affinity_of_others", test_affinity_of_others },
		{ "what_another_has_set", test_what_another_has_set },
		{ "unprivileged_task_keeps_its_budget", test_unprivileged_task_keeps_its_budget },
		{ "release_priority_is_for_the_wait", test_release_priority_is_for_the_wait },
		{ "run_takes_a_server_over", test_run_takes_a_server_over },
		{ "bad_requests", test_bad_requests },
		{ "suspend_and_wake_up", test_suspend_and_wake_up },
		{ "budget_signal", test_budget_signal },
		{ "death_in_every_state", test_death_in_every_state },
		{ "hotplug", test_hotplug },
		{ "the_last_cpu_of_a_cluster_goes", test_the_last_cpu_of_a_cluster_goes },
	};

	load_module();
	return RUN(cases);
}
