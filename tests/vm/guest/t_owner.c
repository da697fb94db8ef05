// SPDX-License-Identifier: MIT
/*
 * t_owner.c - the driver's threads of an interrupt run at their owner's priority, whichever way it
 * came to it, and get back what they had. What it is good for, in time, stands in i_owner.c.
 */
#include "gpu.h"
#include "owner.h"

#include "rtxg_core.h"

/*
 * Whether the module's parameter says that the interrupt of edu is served so; NULL: that it is not.
 */
static bool told(const struct watched *w, const char *mode)
{
	char text[4096] = "", want[32], irq[16];
	FILE *file = fopen("/sys/module/rtxg/parameters/irq_threads", "r");
	bool good = file && fgets(text, sizeof(text), file);

	if (file)
		fclose(file);
	snprintf(irq, sizeof(irq), "%u:", w->irq);
	snprintf(want, sizeof(want), "%u:%s\n", w->irq, mode ? mode : "");
	return check(good && (mode ? !strcmp(text, want) : !strstr(text, irq)), "irq_threads: %s",
		     text);
}

static void become(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	check(!pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &param),
	      "priority %d", priority);
}

static void one_interrupt(void)
{
	int edu = open_edu(0);

	check(!edu_sync(edu, edu_launch(edu, 50000)), "kernel");
	close(edu);
}

/* Which CPU the kernel has chosen for the interrupt depends on all that was requested before. */
static void steer_to_cpu(int cpu)
{
	char command[96];

	snprintf(command, sizeof(command), "echo %d >/proc/irq/%" PRIu64 "/smp_affinity_list", cpu,
		 (uint64_t)edu_stats(0).irq);
	check(!shell(command), "the interrupt stays");
	/* the first still comes where it came */
	one_interrupt();
	one_interrupt();
}

static void on_cpu(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	check(!sched_setaffinity(0, sizeof(one), &one), "CPU %d", cpu);
}

static void test_fixed_and_given_back(void)
{
	pid_t tids[2];
	int before[2], count;
	struct watched w;

	check(!edu_form(0, RTXG_EDU_F_THREADED), "form");
	count = irq_threads(tids);
	if (!check(count >= 1, "no thread"))
		return;
	for (int i = 0; i < count; i++)
		before[i] = priority_of(tids[i]);
	w = watch_edu(false);
	check(!own(&w, RTXG_IRQ_FIXED, 7, 0, 0), "own");
	all_at(tids, count, 7, "fixed");
	told(&w, "fixed");
	one_interrupt();
	check(owner_of(&w).now == 7 && owner_of(&w).runs >= 1 && !owner_of(&w).owner,
	      "told %u, %" PRIu64 " runs", owner_of(&w).now, (uint64_t)owner_of(&w).runs);
	check(!own(&w, RTXG_IRQ_FIXED, 8, 0, 0), "own again");
	all_at(tids, count, 8, "fixed again");
	check(!own(&w, RTXG_IRQ_KEPT, 0, 0, 0), "give back");
	told(&w, NULL);
	for (int i = 0; i < count; i++)
		check(priority_of(tids[i]) == before[i], "kept: %d instead of %d",
		      priority_of(tids[i]), before[i]);
	check(!own(&w, RTXG_IRQ_FIXED, 9, 0, 0), "own once more");
	all_at(tids, count, 9, "fixed once more");
	close(w.fd);
	told(&w, NULL);
	for (int i = 0; i < count; i++)
		check(priority_of(tids[i]) == before[i], "closed: %d instead of %d",
		      priority_of(tids[i]), before[i]);
	one_interrupt();
}

struct waiter {
	rtx_gpu_t handle;
	int priority, err;
};

static void *waits_for_engine(void *argument)
{
	struct waiter *w = argument;

	become(w->priority);
	w->err = rtx_gpu_launch(w->handle, RTX_COMPUTE);
	if (!w->err)
		rtx_gpu_sync(w->handle, RTX_COMPUTE);
	return NULL;
}

/* The threads of GPU 0's interrupt, which belong to who holds the engine; two vGPUs for tasks. */
static struct watched begin_owned(pid_t tids[2], int *count)
{
	struct watched w;

	check(make_patient_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("a", 0) && !make_vgpu("b", 0),
	      "objects");
	*count = irq_threads(tids);
	w = watch_edu(true);
	check(!own(&w, RTXG_IRQ_OWNER, 2, 0, 0), "own");
	all_at(tids, *count, 2, "without an owner");
	return w;
}

static rtx_gpu_t open_in(const char *vgpu)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t handle = NULL;

	options.vgpu = vgpu;
	check(!rtx_gpu_open(&handle, &options), "open in %s", vgpu);
	return handle;
}

/* Both tasks end, the second when it has had the engine in its turn. */
static void end_owned(rtx_gpu_t holder, pthread_t thread, const struct waiter *waiter)
{
	rtx_gpu_sync(holder, RTX_COMPUTE);
	pthread_join(thread, NULL);
	check(!waiter->err, "waiter: %d", waiter->err);
	rtx_gpu_close(holder);
	rtx_gpu_close(waiter->handle);
}

/* The holder's priority, the one of a task that waits for it, and none at the end. */
static void test_owner_is_the_holder(void)
{
	struct rtxg_host_stats stats;
	struct waiter waiter = { .priority = 70 };
	rtx_gpu_t holder;
	pthread_t thread;
	pid_t tids[2];
	int count;
	struct watched w = begin_owned(tids, &count);

	told(&w, "owner");
	holder = open_in("a");
	waiter.handle = open_in("b");
	become(30);
	check(!rtx_gpu_launch(holder, RTX_COMPUTE), "launch");
	all_at(tids, count, 30, "a holder of 30");
	check(owner_of(&w).owner == gettid() && owner_of(&w).since_ns, "owner %d",
	      owner_of(&w).owner);
	become(45);
	one_interrupt();
	all_at(tids, count, 45, "a holder that changed its priority");
	pthread_create(&thread, NULL, waits_for_engine, &waiter);
	do
		vgpu_stats("b", &stats);
	while (!stats.waiting && (sleep_ns(MS), true));
	all_at(tids, count, 70, "a task of 70 waits");
	become(0);
	end_owned(holder, thread, &waiter);
	one_interrupt();
	all_at(tids, count, 2, "the holder has gone");
	check(owner_of(&w).changes >= 4, "%" PRIu64 " changes", (uint64_t)owner_of(&w).changes);
	close(w.fd);
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
}

static void *opens_and_launches(void *argument)
{
	struct waiter *w = argument;

	become(w->priority);
	w->handle = open_in("a");
	w->err = rtx_gpu_launch(w->handle, RTX_COMPUTE);
	return NULL;
}

/* A program's thread that opened and launched has ended. The program still holds the engine. */
static void test_no_owner_when_the_holders_thread_has_ended(void)
{
	struct waiter holder = { .priority = 33 }, waiter = { .priority = 70 };
	pthread_t thread;
	pid_t tids[2];
	int count;
	struct watched w = begin_owned(tids, &count);

	waiter.handle = open_in("b");
	pthread_create(&thread, NULL, opens_and_launches, &holder);
	pthread_join(thread, NULL);
	check(!holder.err, "holder: %d", holder.err);
	one_interrupt();
	all_at(tids, count, 2, "a holder whose thread has ended");
	check(!owner_of(&w).owner, "owner %d", owner_of(&w).owner);
	/* it waits for what the engine does for the holder, all the same */
	pthread_create(&thread, NULL, waits_for_engine, &waiter);
	all_at(tids, count, 70, "a task of 70 waits");
	end_owned(holder.handle, thread, &waiter);
	close(w.fd);
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
}

/* Who has acquired the GPU as one of a pool owns what it does, launch or no launch. */
static void test_owner_is_the_holder_of_a_pool(void)
{
	struct rtxg_host_pool pool = { .size = sizeof(pool), .name = "all" };
	int number = make_gpu("0", RTXG_GPU_FIFO), fd = open_rtxg(), count;
	struct gpu_task task, dies;
	char device[64];
	struct watched w;
	pid_t tids[2];

	check(number >= 0, "gpu: %d", number);
	pool.mask = 1ull << number;
	check(!call(fd, RTXG_IOC_HOST_POOL, &pool), "pool");
	count = irq_threads(tids);
	w = watch_edu(true);
	check(!own(&w, RTXG_IRQ_OWNER, 2, 0, 0), "own");
	check(!gpu_task_open(&task, NULL, true, true) && !gpu_task_open(&dies, NULL, true, true),
	      "open");
	all_at(tids, count, 2, "without an owner");
	become(44);
	check(!rtx_gpu_pool_acquire(task.handle, "all", device, sizeof(device)), "acquire");
	all_at(tids, count, 44, "a GPU of a pool is acquired");
	check(owner_of(&w).owner == gettid(), "owner %d", owner_of(&w).owner);
	check(!rtx_gpu_pool_release(task.handle, "all"), "release");
	all_at(tids, count, 2, "it was released");
	become(0);
	check(!rtx_gpu_pool_acquire(dies.handle, "all", device, sizeof(device)), "acquire");
	all_at(tids, count, 1, "an ordinary one has it");
	gpu_task_close(&dies);
	all_at(tids, count, 2, "its holder has gone");
	gpu_task_close(&task);
	close(w.fd);
	pool.flags = RTXG_HOST_F_REMOVE;
	check(!call(fd, RTXG_IOC_HOST_POOL, &pool), "remove");
	close(fd);
}

static pthread_mutex_t inherited;

static void *wants_the_mutex(void *unused)
{
	become(80);
	pthread_mutex_lock(&inherited);
	pthread_mutex_unlock(&inherited);
	return NULL;
}

/* A named owner inherits a priority from the kernel: its thread has it without an interrupt. */
static void test_inherited_priority_at_once(void)
{
	pthread_mutexattr_t attr;
	pthread_t thread;
	struct watched w;
	pid_t tids[2];
	int count;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&inherited, &attr);
	count = irq_threads(tids);
	w = watch_edu(false);
	become(20);
	check(!own(&w, RTXG_IRQ_OWNER, 2, 0, gettid()), "own");
	all_at(tids, count, 20, "a named owner of 20");
	pthread_mutex_lock(&inherited);
	pthread_create(&thread, NULL, wants_the_mutex, NULL);
	all_at(tids, count, 80, "it inherits 80");
	pthread_mutex_unlock(&inherited);
	pthread_join(thread, NULL);
	all_at(tids, count, 20, "it inherits no more");
	become(0);
	one_interrupt();
	all_at(tids, count, 1, "an ordinary owner");
	close(w.fd);
}

/* An owner that has one CPU is never beside its thread; an asynchronous one may be. */
static void test_on_the_owners_cpu(void)
{
	cpu_set_t all, one, now;
	struct watched w;
	pid_t tids[2];

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&one);
	CPU_SET(1, &one);
	irq_threads(tids);
	steer_to_cpu(0);
	w = watch_edu(false);
	become(20);
	on_cpu(1);
	check(!own(&w, RTXG_IRQ_OWNER, 2, 0, gettid()), "own");
	sched_getaffinity(tids[0], sizeof(now), &now);
	check(CPU_EQUAL(&now, &one) && owner_of(&w).cpu == 1, "not on the owner's CPU");
	for (int i = 0; i < 50; i++)
		one_interrupt();
	check(owner_of(&w).runs >= 50 && !owner_of(&w).beside,
	      "%" PRIu64 " of %" PRIu64 " runs beside the owner", (uint64_t)owner_of(&w).beside,
	      (uint64_t)owner_of(&w).runs);
	check(!own(&w, RTXG_IRQ_OWNER, 2, RTXG_IRQ_BESIDE, gettid()), "asynchronous");
	sched_getaffinity(tids[0], sizeof(now), &now);
	check(!CPU_EQUAL(&now, &one) && owner_of(&w).cpu == -1, "held on the owner's CPU");
	become(0);
	sched_setaffinity(0, sizeof(all), &all);
	close(w.fd);
}

static bool stays_on(pid_t tid, int cpu)
{
	cpu_set_t now;

	sched_getaffinity(tid, sizeof(now), &now);
	return CPU_COUNT(&now) == 1 && CPU_ISSET(cpu, &now);
}

/* The kernel sets those of the thread where the interrupt is steered elsewhere. */
static void test_cpus_that_another_has_set_stay(void)
{
	struct watched w;
	cpu_set_t all;
	pid_t tids[2];

	sched_getaffinity(0, sizeof(all), &all);
	steer_to_cpu(0);
	if (!check(irq_threads(tids) >= 1 && stays_on(tids[0], 0), "a thread on CPU 0"))
		return;
	w = watch_edu(false);
	check(!own(&w, RTXG_IRQ_FIXED, 7, 0, 0), "own");
	steer_to_cpu(1);
	check(stays_on(tids[0], 1), "not where the interrupt went");
	check(!own(&w, RTXG_IRQ_FIXED, 8, 0, 0) && stays_on(tids[0], 1), "put back meanwhile");
	check(!own(&w, RTXG_IRQ_KEPT, 0, 0, 0) && stays_on(tids[0], 1), "put back at the end");
	on_cpu(1);
	check(!own(&w, RTXG_IRQ_OWNER, 2, 0, gettid()) && stays_on(tids[0], 1), "own");
	steer_to_cpu(0);
	check(!own(&w, RTXG_IRQ_KEPT, 0, 0, 0) && stays_on(tids[0], 0),
	      "not where the interrupt went while it had an owner");
	/* what it had before is put back where no other has set it since */
	check(!own(&w, RTXG_IRQ_OWNER, 2, 0, gettid()) && stays_on(tids[0], 1), "own again");
	check(!own(&w, RTXG_IRQ_KEPT, 0, 0, 0) && stays_on(tids[0], 0), "not put back");
	sched_setaffinity(0, sizeof(all), &all);
	close(w.fd);
}

/* An owner that dies, and a driver that frees its interrupt: the next to ask begins as ever. */
static void test_owner_and_driver_go(void)
{
	struct watched w, other;
	pid_t tids[2], owner;
	int count;

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	w = watch_edu(false);
	fflush(NULL);
	owner = fork();
	if (!owner) {
		become(33);
		for (;;)
			pause();
	}
	while (priority_of(owner) != 33)
		sleep_ns(MS);
	count = irq_threads(tids);
	check(!own(&w, RTXG_IRQ_OWNER, 5, 0, owner), "own");
	all_at(tids, count, 33, "an owner of 33");
	other = watch_edu(false);
	check(own(&other, RTXG_IRQ_FIXED, 5, 0, 0) == -EBUSY, "two rules for one thread");
	close(other.fd);
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	one_interrupt();
	all_at(tids, count, 5, "an owner that has died");
	check(own(&w, RTXG_IRQ_OWNER, 5, 0, owner) == -ESRCH, "an owner that is dead");
	check(!own(&w, RTXG_IRQ_OWNER, 5, 0, getpid()), "own");
	check(!edu_form(0, RTXG_EDU_F_OTHER), "the driver asks again");
	check(own(&w, RTXG_IRQ_FIXED, 5, 0, 0) == -ENODEV, "a freed interrupt");
	close(w.fd);
	check(!edu_form(0, RTXG_EDU_F_THREADED), "form");
	count = irq_threads(tids);
	check(priority_of(tids[0]) == 50, "a new thread has %d", priority_of(tids[0]));
	one_interrupt();
}

/* When it returns no tasklet is due: one has run for this interrupt, and for each one before. */
static void one_served(void)
{
	one_interrupt();
	while (edu_stats(0).served != edu_stats(0).interrupts)
		sleep_ns(MS);
}

/* A thread of the module's, by its number. */
static bool is_ours(pid_t tid)
{
	char name[64], line[64];

	snprintf(name, sizeof(name), "/proc/%d/comm", tid);
	return tid > 0 && read_text(name, line, sizeof(line)) && !strncmp(line, "rtxg_irq/", 9);
}

/* What the handler leaves to a tasklet runs in a thread of the module, at its owner's priority. */
static void test_tasklets_at_their_owners_priority(void)
{
	struct rtxg_irq_owner now;
	struct watched w;
	pid_t tasklets, tids[2];
	uint64_t before, ran;
	cpu_set_t all;

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	check(!edu_form(0, RTXG_EDU_F_TOP), "form");
	/* what is interrupted is not the owner, which has just launched */
	sched_getaffinity(0, sizeof(all), &all);
	steer_to_cpu(0);
	on_cpu(1);
	one_served();
	w = watch_edu(false);
	become(33);
	check(!own(&w, RTXG_IRQ_OWNER, 2, RTXG_IRQ_TASKLETS, gettid()), "own");
	tasklets = owner_of(&w).tasklets;
	check(is_ours(tasklets), "its thread is %d", tasklets);
	all_at(&tasklets, 1, 33, "tasklets of an owner of 33");
	before = edu_stats(0).bottom;
	for (int i = 0; i < 50; i++)
		one_served();
	now = owner_of(&w);
	ran = edu_stats(0).bottom - before;
	check(now.redirected == 50 && ran == 50, "%" PRIu64 " redirected, %" PRIu64 " ran",
	      (uint64_t)now.redirected, ran);
	check(now.runs >= now.redirected, "%" PRIu64 " runs", (uint64_t)now.runs);
	become(12);
	one_served();
	all_at(&tasklets, 1, 12, "tasklets of an owner of 12");
	/* process-aware: beside a task below the owner they run at once */
	check(!own(&w, RTXG_IRQ_PAI, 2, RTXG_IRQ_TASKLETS, gettid()), "process-aware");
	before = edu_stats(0).bottom;
	for (int i = 0; i < 50; i++)
		one_served();
	now = owner_of(&w);
	ran = edu_stats(0).bottom - before;
	/* where the kernel forces threads, one with its owner's priority queues a tasklet */
	check((now.at_once || irq_threads(tids)) && now.at_once + now.redirected == 50 && ran == 50,
	      "%" PRIu64 " at once, %" PRIu64 " in the thread, of %" PRIu64, (uint64_t)now.at_once,
	      (uint64_t)now.redirected, ran);
	become(0);
	check(!own(&w, RTXG_IRQ_KEPT, 0, 0, 0), "give back");
	sched_setaffinity(0, sizeof(all), &all);
	check(!is_ours(tasklets) && priority_of(tasklets) == -1, "its thread is left");
	/* and the kernel runs them again */
	one_served();
	close(w.fd);
}

/* A driver goes while its tasklets are redirected, and comes again. */
static void test_driver_goes_with_its_tasklets(void)
{
	uint32_t count = 50;
	struct watched w;
	int edu;

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	for (int round = 0; round < 3; round++) {
		w = watch_edu(false);
		check(!own(&w, RTXG_IRQ_FIXED, 5, RTXG_IRQ_TASKLETS, 0), "own");
		edu = open_edu(0);
		check(!ioctl(edu, RTXG_EDU_STORM, &count), "storm");
		close(edu);
		/* its end waits for its tasklet, which is ours to run */
		check(!shell("rmmod rtxg_edu"), "the driver does not go");
		check(!shell("insmod /modules/rtxg_edu.ko mode=0"), "the driver does not come");
		close(w.fd);
	}
	one_interrupt();
	check(!edu_form(0, RTXG_EDU_F_THREADED), "form");
}

static void *storm_thread(void *stop)
{
	int edu = open_edu(0);
	uint32_t count = 20;

	while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
		ioctl(edu, RTXG_EDU_STORM, &count);
		edu_launch(edu, 50000);
	}
	close(edu);
	return NULL;
}

/* Rules come, change and go under load, with the module unloaded at the end. */
static void test_unloaded_under_load(void)
{
	bool stop = false;
	pid_t tids[2];
	pthread_t thread;
	int count = irq_threads(tids);

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	pthread_create(&thread, NULL, storm_thread, &stop);
	for (int i = 0; i < 12; i++) {
		struct watched w = watch_edu(i % 2);

		check(!own(&w, i % 3 ? RTXG_IRQ_OWNER : RTXG_IRQ_FIXED, 1 + 5 * i,
			   i % 4 < 2 ? RTXG_IRQ_TASKLETS : 0, i % 3 == 1 ? gettid() : 0),
		      "own %d", i);
		sleep_ns(2 * MS);
		close(w.fd);
		check(priority_of(tids[0]) == 50, "round %d left %d", i, priority_of(tids[0]));
	}
	check(!shell("rmmod rtxg"), "the module does not go");
	for (int i = 0; i < count; i++)
		check(priority_of(tids[i]) >= 49, "unloading left %d", priority_of(tids[i]));
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	one_interrupt();
	check(!shell("insmod /modules/rtxg.ko"), "load");
}

/* The module's thread that sets priorities. */
static pid_t setter(void)
{
	char name[300], line[64];
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	pid_t found = -1;

	while (folder && found < 0 && (entry = readdir(folder))) {
		snprintf(name, sizeof(name), "/proc/%s/comm", entry->d_name);
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
		    read_text(name, line, sizeof(line)) && !strcmp(line, "rtxg_owner"))
			found = atoi(entry->d_name);
	}
	if (folder)
		closedir(folder);
	return found;
}

/* The CPU of the module's thread is another's for most of the time. */
static void *hogs_cpu_1(void *stop)
{
	on_cpu(1);
	become(50);
	while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
		uint64_t end = rtxg_now_ns() + 100 * MS;

		while (rtxg_now_ns() < end)
			;
		sleep_ns(3 * MS);
	}
	return NULL;
}

struct changer {
	rtx_gpu_t handle;
	pthread_t thread;
	const bool *stop;
	int err;
};

/* One of two, that wait for each other: the holder changes all the time, and with it the owner. */
static void *changes_holder(void *argument)
{
	struct changer *changer = argument;

	on_cpu(0);
	while (!__atomic_load_n(changer->stop, __ATOMIC_RELAXED) && !changer->err) {
		changer->err = rtx_gpu_launch(changer->handle, RTX_COMPUTE);
		sleep_ns(MS / 10);
		rtx_gpu_sync(changer->handle, RTX_COMPUTE);
	}
	return NULL;
}

/* The thread that sets priorities is held up at it, and one that it sets ends with the rule. */
static void test_rule_ends_while_priorities_are_set(void)
{
	struct sched_param idle = {}, highest = { .sched_priority = 98 };
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct changer changers[2];
	pid_t thread = setter();
	cpu_set_t all, one;
	struct watched w;
	bool stop = false;
	pthread_t hog;

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	check(make_patient_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("a", 0), "objects");
	options.vgpu = "a";
	w = watch_edu(true);
	sched_getaffinity(thread, sizeof(all), &all);
	CPU_ZERO(&one);
	CPU_SET(1, &one);
	check(!sched_setaffinity(thread, sizeof(one), &one) &&
		      !sched_setscheduler(thread, SCHED_IDLE, &idle),
	      "the module's thread");
	shell("echo -1 >/proc/sys/kernel/sched_rt_runtime_us");
	pthread_create(&hog, NULL, hogs_cpu_1, &stop);
	for (int i = 0; i < 2; i++) {
		changers[i] = (struct changer){ .stop = &stop };
		check(!rtx_gpu_open(&changers[i].handle, &options), "open");
		pthread_create(&changers[i].thread, NULL, changes_holder, &changers[i]);
	}
	for (int i = 0; i < repeats(8, 30); i++) {
		check(!own(&w, RTXG_IRQ_FIXED, 70, RTXG_IRQ_TASKLETS, 0), "own");
		sleep_ns(3 * MS);
		check(!own(&w, RTXG_IRQ_KEPT, 0, 0, 0), "give back");
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(hog, NULL);
	for (int i = 0; i < 2; i++) {
		pthread_join(changers[i].thread, NULL);
		check(!changers[i].err, "task %d: %d", i, changers[i].err);
		rtx_gpu_close(changers[i].handle);
	}
	shell("echo 950000 >/proc/sys/kernel/sched_rt_runtime_us");
	check(!sched_setscheduler(thread, SCHED_FIFO, &highest) &&
		      !sched_setaffinity(thread, sizeof(all), &all),
	      "the module's thread again");
	close(w.fd);
	check(!remove_vgpu("a"), "remove");
	one_interrupt();
}

static int own_server(const struct watched *w, uint64_t runtime, uint64_t period, pid_t pid)
{
	struct rtxg_irq_own request = { .size = sizeof(request),
					.id = w->id,
					.mode = RTXG_IRQ_OWNER,
					.priority = 40,
					.flags = RTXG_IRQ_TASKLETS,
					.pid = pid,
					.runtime_ns = runtime,
					.period_ns = period };

	return call(w->fd, RTXG_IOC_IRQ_OWN, &request);
}

/* Work without an owner has a budget, and runs in the background when that is used up. */
static void test_bandwidth_server_without_an_owner(void)
{
	bool stop = false, background = false;
	struct rtxg_irq_owner now;
	uint64_t exhausted, ran;
	pthread_t thread;
	struct watched w;
	pid_t tid;

	if (!function_tracer())
		skip(NO_FUNCTION_TRACER);
	check(!edu_form(0, RTXG_EDU_F_TOP), "form");
	shell("echo 3000 >/sys/module/rtxg_edu/parameters/bottom_us");
	w = watch_edu(false);
	check(!own_server(&w, 5 * MS, 500 * MS, 0), "own");
	tid = owner_of(&w).tasklets;
	all_at(&tid, 1, 40, "in its server");
	pthread_create(&thread, NULL, storm_thread, &stop);
	for (int i = 0; i < 60000 && (!background || owner_of(&w).exhausted < 3); i++) {
		background |= !priority_of(tid);
		sleep_ns(MS);
	}
	exhausted = owner_of(&w).exhausted;
	check(exhausted >= 3, "used up %" PRIu64 " times", exhausted);
	check(background, "it was never in the background");
	/* between two rules the kernel runs them: with PREEMPT_RT above all, a storm for ever */
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	/* lent to an owner, it costs the server nothing */
	become(33);
	check(!own_server(&w, 5 * MS, 500 * MS, gettid()), "own, with an owner");
	tid = owner_of(&w).tasklets;
	all_at(&tid, 1, 33, "an owner of 33");
	one_served();
	ran = owner_of(&w).redirected;
	for (int i = 0; i < 20; i++)
		one_served();
	now = owner_of(&w);
	check(now.redirected == ran + 20 && !now.exhausted,
	      "%" PRIu64 " ran, used up %" PRIu64 " times", (uint64_t)now.redirected - ran,
	      (uint64_t)now.exhausted);
	check(priority_of(tid) == 33, "its thread has %d", priority_of(tid));
	become(0);
	shell("echo 0 >/sys/module/rtxg_edu/parameters/bottom_us");
	check(own_server(&w, 5 * MS, 4 * MS, 0) == -EINVAL, "a budget above its period");
	check(own_server(&w, 0, 4 * MS, 0) == -EINVAL, "a period without a budget");
	check(own_server(&w, 1000, 2000, 0) == -EINVAL, "a period of 2 us");
	shell("echo 100000 >/sys/module/rtxg/parameters/cpu_capacity_ppm");
	check(own_server(&w, 300 * MS, 500 * MS, 0) == -ENOSPC, "more than the CPUs have");
	shell("echo 950000 >/sys/module/rtxg/parameters/cpu_capacity_ppm");
	close(w.fd);
	check(!edu_form(0, RTXG_EDU_F_THREADED), "form");
	one_interrupt();
}

static int owns(const struct watched *w)
{
	if (setresuid(65534, 65534, 65534))
		return 2;
	return own(w, RTXG_IRQ_FIXED, 5, 0, 0) == -EPERM ? 0 : 1;
}

static void test_bad_requests(void)
{
	struct rtxg_irq_own request = { .size = sizeof(request), .mode = RTXG_IRQ_FIXED };
	struct rtxg_irq_owner answer = { .size = sizeof(answer) };
	struct watched w = watch_edu(false);
	int status = -1;
	pid_t child;

	check(own(&w, RTXG_IRQ_FIXED, 0, 0, 0) == -EINVAL, "priority 0");
	check(own(&w, RTXG_IRQ_FIXED, 98, 0, 0) == -EINVAL, "priority 98");
	check(own(&w, 4, 5, 0, 0) == -EINVAL, "mode 4");
	check(own(&w, RTXG_IRQ_KEPT, 5, 0, 0) == -EINVAL, "kept at a priority");
	check(own(&w, RTXG_IRQ_FIXED, 5, 0, getpid()) == -EINVAL, "a fixed one with an owner");
	check(own(&w, RTXG_IRQ_FIXED, 5, RTXG_IRQ_BESIDE, 0) == -EINVAL, "a fixed one beside");
	check(own(&w, RTXG_IRQ_OWNER, 5, 4, 0) == -EINVAL, "flags");
	check(own(&w, RTXG_IRQ_KEPT, 0, RTXG_IRQ_TASKLETS, 0) == -EINVAL, "kept tasklets");
	check(own(&w, RTXG_IRQ_PAI, 5, 0, 0) == -EINVAL, "process-aware without tasklets");
	check(own(&w, RTXG_IRQ_OWNER, 5, 0, -1) == -EINVAL, "pid -1");
	check(own(&w, RTXG_IRQ_OWNER, 5, 0, 4000000) == -ESRCH, "no such thread");
	request.id = 99;
	request.priority = 5;
	check(call(w.fd, RTXG_IOC_IRQ_OWN, &request) == -ENOENT, "attachment 99");
	answer.id = w.id;
	check(call(w.fd, RTXG_IOC_IRQ_OWNER, &answer) == -ENOENT, "no rule");
	fflush(NULL);
	child = fork();
	if (!child)
		_exit(owns(&w));
	waitpid(child, &status, 0);
	check(!status, "an unprivileged caller: %d", status);
	close(w.fd);
	check(!edu_form(0, RTXG_EDU_F_TOP), "form");
	w = watch_edu(false);
	if (!irq_threads((pid_t[2]){}))
		check(own(&w, RTXG_IRQ_FIXED, 5, 0, 0) == -EOPNOTSUPP, "no thread");
	close(w.fd);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "fixed_and_given_back", test_fixed_and_given_back },
		{ "owner_is_the_holder", test_owner_is_the_holder },
		{ "no_owner_when_the_holders_thread_has_ended",
		  test_no_owner_when_the_holders_thread_has_ended },
		{ "owner_is_the_holder_of_a_pool", test_owner_is_the_holder_of_a_pool },
		{ "inherited_priority_at_once", test_inherited_priority_at_once },
		{ "on_the_owners_cpu", test_on_the_owners_cpu },
		{ "cpus_that_another_has_set_stay", test_cpus_that_another_has_set_stay },
		{ "owner_and_driver_go", test_owner_and_driver_go },
		{ "tasklets_at_their_owners_priority", test_tasklets_at_their_owners_priority },
		{ "driver_goes_with_its_tasklets", test_driver_goes_with_its_tasklets },
		{ "rule_ends_while_priorities_are_set", test_rule_ends_while_priorities_are_set },
		{ "bandwidth_server_without_an_owner", test_bandwidth_server_without_an_owner },
		{ "unloaded_under_load", test_unloaded_under_load },
		{ "bad_requests", test_bad_requests },
	};

	load_module();
	return RUN(cases);
}
