// SPDX-License-Identifier: MIT
/*
 * i_chain.c - an interrupt's thread whose owner is a SCHED_DEADLINE task: what the module gives it,
 * and what the kernel's own inheritance would. For the second, the tests' driver holds a lock
 * between the runs of its thread, and who waits in it waits for that lock. Counted instructions on
 * one CPU, so that the times are those of the schedule alone.
 */
#include "deadline.h"

#define CHAIN "/sys/module/rtxg_edu/parameters/chain"

/* What another computes for, and how much of its period it may: nothing else runs meanwhile. */
#define BUSY_NS	  (200 * MS)
#define KERNEL_NS (5 * MS)

/* As the kernel's; the C library may have it or not. */
struct attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

#define DEADLINE_POLICY 6

static bool as_deadline(uint64_t runtime_ns, uint64_t deadline_ns)
{
	const struct attr attr = { .size = sizeof(attr),
				   .policy = DEADLINE_POLICY,
				   .runtime = runtime_ns,
				   .deadline = deadline_ns,
				   .period = deadline_ns };

	return !syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void as_fifo(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &param);
}

static struct {
	uint64_t busy_deadline_ns; /* 0: it is a real-time task of priority 90 */
	pid_t owner;
	bool go, launched, failed;
	uint64_t job_ns;
} run;

static void await(const bool *flag)
{
	while (!__atomic_load_n(flag, __ATOMIC_SEQ_CST))
		sleep_ns(MS / 10);
}

static void *owner_thread(void *unused)
{
	uint64_t start, sequence;
	int edu = open_edu(0);

	run.failed |= !as_deadline(20 * MS, 100 * MS);
	__atomic_store_n(&run.owner, gettid(), __ATOMIC_SEQ_CST);
	await(&run.go);
	start = rtxg_now_ns();
	sequence = edu_launch(edu, KERNEL_NS);
	__atomic_store_n(&run.launched, true, __ATOMIC_SEQ_CST);
	run.failed |= edu_sync(edu, sequence) != 0;
	run.job_ns = rtxg_now_ns() - start;
	close(edu);
	return NULL;
}

static void *busy_thread(void *unused)
{
	if (run.busy_deadline_ns)
		run.failed |= !as_deadline(BUSY_NS, run.busy_deadline_ns);
	else
		as_fifo(90);
	await(&run.launched);
	for (uint64_t end = thread_cpu_ns() + BUSY_NS; thread_cpu_ns() < end;)
		;
	return NULL;
}

static void set_chain(bool on)
{
	check(!shell(on ? "echo 1 >" CHAIN : "echo 0 >" CHAIN), "the driver's lock");
}

static void request(uint32_t form)
{
	int edu = open_edu(0);

	check(!call(edu, RTXG_EDU_REQUEST, &form), "form");
	close(edu);
}

/*
 * One interrupt that completes nothing, after which the driver's thread holds its lock or does not.
 */
static void run_driver_once(void)
{
	struct rtxg_edu_stats stats = {};
	int edu = open_edu(0);
	uint32_t one = 1;

	check(!call(edu, RTXG_EDU_STORM, &one), "interrupt");
	do {
		sleep_ns(MS);
		check(!call(edu, RTXG_EDU_STATS, &stats), "stats");
	} while (stats.served < stats.interrupts);
	/* it takes the lock after it has counted */
	sleep_ns(5 * MS);
	close(edu);
}

/* A deadline task's kernel of 5 ms beside the busy one; ms. */
static double job_beside(uint64_t busy_deadline_ns, bool chain)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach),
					  .flags = RTXG_IRQ_F_BY_NAME,
					  .name = "rtxg_edu0" };
	struct rtxg_irq_own own = { .size = sizeof(own), .mode = RTXG_IRQ_OWNER, .priority = 2 };
	struct rtxg_irq_owner told = { .size = sizeof(told) };
	pthread_t threads[2];
	int fd = open_rtxg();

	run = (typeof(run)){ .busy_deadline_ns = busy_deadline_ns };
	as_fifo(95);
	request(RTXG_EDU_F_THREADED);
	set_chain(chain);
	pthread_create(&threads[0], NULL, owner_thread, NULL);
	pthread_create(&threads[1], NULL, busy_thread, NULL);
	while (!__atomic_load_n(&run.owner, __ATOMIC_SEQ_CST))
		sleep_ns(MS);
	check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
	own.id = told.id = attach.id;
	own.pid = run.owner;
	check(!call(fd, RTXG_IOC_IRQ_OWN, &own), "own");
	run_driver_once();
	check(!call(fd, RTXG_IOC_IRQ_OWNER, &told) && told.owner == run.owner && told.now == 97,
	      "the thread's priority is %u for owner %d, and not 97 for %d", told.now, told.owner,
	      run.owner);
	__atomic_store_n(&run.go, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	/* a thread that holds a lock must not end */
	set_chain(false);
	run_driver_once();
	close(fd);
	request(RTXG_EDU_F_TOP);
	as_fifo(0);
	check(!run.failed, "a task could not be a deadline task, or not wait");
	return run.job_ns / 1e6;
}

/* At FIFO 97 the thread comes before all real-time tasks, and after all tasks with a deadline. */
static void test_deadline_owner_by_the_module(void)
{
	double fifo = job_beside(0, false), later = job_beside(400 * MS, false);

	value("deadline_owner_beside_fifo", fifo, "ms");
	value("deadline_owner_beside_a_later_deadline", later, "ms");
	check(kernel_with_checks() || fifo < 8, "%.2f ms beside a real-time task", fifo);
	check(later > BUSY_NS / 1e6, "%.2f ms beside a task with a later deadline", later);
}

/* An owner that waits for a lock of the thread's lends it its deadline, and to no other thread. */
static void test_deadline_owner_by_the_kernel(void)
{
	double later = job_beside(400 * MS, true);

	value("deadline_owner_by_chain_beside_a_later_deadline", later, "ms");
	if (kernel_with_checks())
		return;
	if (forced_threads())
		/* the handler is in a thread of its own then, before this one, and holds nothing */
		check(later > BUSY_NS / 1e6, "%.2f ms where threads are forced", later);
	else
		check(later < 8, "%.2f ms beside a task with a later deadline", later);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "deadline_owner_by_the_module", test_deadline_owner_by_the_module },
		{ "deadline_owner_by_the_kernel", test_deadline_owner_by_the_kernel },
	};

	load_module();
	return RUN(cases);
}
