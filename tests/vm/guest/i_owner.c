// SPDX-License-Identifier: MIT
/*
 * i_owner.c - what the priority of an interrupt's thread is worth: an owner that waits for it beside
 * a busy thread, and a busy thread beside an owner's completions. Run with counted instructions on
 * one CPU, so that the times are those of the schedule alone.
 */
#include "gpu.h"

static struct rtxg_irq_attach request;
static int fd;

static void as_fifo(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &param);
}

/* Uses the CPU for that long, however often it is interrupted. */
static void work(uint64_t ns)
{
	uint64_t end = thread_cpu_ns() + ns;

	while (thread_cpu_ns() < end)
		;
}

static void begin(uint32_t mode, uint32_t priority, pid_t owner)
{
	struct rtxg_irq_own own = {
		.size = sizeof(own), .mode = mode, .priority = priority, .pid = owner
	};
	int edu = open_edu(0);
	uint32_t form = RTXG_EDU_F_THREADED;

	check(!call(edu, RTXG_EDU_REQUEST, &form), "form");
	close(edu);
	request = (struct rtxg_irq_attach){ .size = sizeof(request),
					    .flags = RTXG_IRQ_F_BY_NAME,
					    .name = "rtxg_edu0" };
	fd = open_rtxg();
	check(!call(fd, RTXG_IOC_IRQ_ATTACH, &request), "attach");
	own.id = request.id;
	check(mode == RTXG_IRQ_KEPT || !call(fd, RTXG_IOC_IRQ_OWN, &own), "own");
}

static void end(void)
{
	int edu = open_edu(0);
	uint32_t form = RTXG_EDU_F_TOP;

	close(fd);
	check(!call(edu, RTXG_EDU_REQUEST, &form), "form");
	close(edu);
}

struct actor {
	int priority, kernels;
	uint64_t kernel_ns, work_ns, started_ns, ended_ns;
	pid_t tid;
	bool go;
};

static void *owner_thread(void *argument)
{
	struct actor *a = argument;
	int edu = open_edu(0);
	uint64_t last = 0;

	as_fifo(a->priority);
	__atomic_store_n(&a->tid, gettid(), __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&a->go, __ATOMIC_SEQ_CST))
		sleep_ns(MS / 10);
	a->started_ns = rtxg_now_ns();
	/* launched ahead: the device goes on while the owner does not run */
	for (int i = 0; i < a->kernels; i++)
		last = edu_launch(edu, a->kernel_ns);
	edu_sync(edu, last);
	a->ended_ns = rtxg_now_ns();
	close(edu);
	return NULL;
}

static void *busy_thread(void *argument)
{
	struct actor *a = argument;

	as_fifo(a->priority);
	while (!__atomic_load_n(&a->go, __ATOMIC_SEQ_CST))
		sleep_ns(MS / 10);
	a->started_ns = rtxg_now_ns();
	work(a->work_ns);
	a->ended_ns = rtxg_now_ns();
	return NULL;
}

static void run_both(struct actor *owner, struct actor *busy, uint32_t mode, uint32_t priority)
{
	pthread_t threads[2];

	as_fifo(90);
	pthread_create(&threads[0], NULL, owner_thread, owner);
	pthread_create(&threads[1], NULL, busy_thread, busy);
	while (!__atomic_load_n(&owner->tid, __ATOMIC_SEQ_CST))
		sleep_ns(MS);
	begin(mode, priority, mode == RTXG_IRQ_OWNER ? owner->tid : 0);
	__atomic_store_n(&owner->go, true, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&owner->started_ns, __ATOMIC_SEQ_CST))
		sleep_ns(MS / 10);
	__atomic_store_n(&busy->go, true, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	as_fifo(0);
	end();
}

static const struct {
	const char *name;
	uint32_t mode, priority;
} modes[] = { { "kept", RTXG_IRQ_KEPT, 0 },
	      { "low", RTXG_IRQ_FIXED, 2 },
	      { "high", RTXG_IRQ_FIXED, 95 },
	      { "owner", RTXG_IRQ_OWNER, 2 } };
enum { KEPT, LOW, HIGH, OWNER, MODES };

/* A FIFO 80 owner with a kernel of 5 ms, while a FIFO 60 thread computes for 100 ms. */
static void test_owner_beside_a_busy_thread(void)
{
	double ms[MODES];

	for (int i = 0; i < MODES; i++) {
		struct actor owner = { .priority = 80, .kernels = 1, .kernel_ns = 5 * MS };
		struct actor busy = { .priority = 60, .work_ns = 100 * MS };
		char name[48];

		run_both(&owner, &busy, modes[i].mode, modes[i].priority);
		ms[i] = (owner.ended_ns - owner.started_ns) / 1e6;
		snprintf(name, sizeof(name), "owner_sees_its_kernel_%s", modes[i].name);
		value(name, ms[i], "ms");
	}
	check(ms[KEPT] > 90 && ms[LOW] > 90, "the problem is not there: %.2f and %.2f ms", ms[KEPT],
	      ms[LOW]);
	check(kernel_with_checks() || ms[OWNER] < 7, "%.2f ms at the owner's priority", ms[OWNER]);
}

/* A FIFO 60 job of 40 ms, while a FIFO 10 owner's 20 kernels of 1 ms complete. */
static void test_busy_thread_beside_an_owner(void)
{
	double ms[MODES];

	for (int i = 0; i < MODES; i++) {
		struct actor owner = { .priority = 10, .kernels = 20, .kernel_ns = MS };
		struct actor busy = { .priority = 60, .work_ns = 40 * MS };
		char name[48];

		run_both(&owner, &busy, modes[i].mode, modes[i].priority);
		ms[i] = (busy.ended_ns - busy.started_ns) / 1e6;
		snprintf(name, sizeof(name), "job_beside_completions_%s", modes[i].name);
		value(name, ms[i], "ms");
	}
	check(ms[OWNER] <= ms[HIGH], "%.3f ms beside threads at their owner's priority, %.3f at 95",
	      ms[OWNER], ms[HIGH]);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "owner_beside_a_busy_thread", test_owner_beside_a_busy_thread },
		{ "busy_thread_beside_an_owner", test_busy_thread_beside_an_owner },
	};

	load_module();
	return RUN(cases);
}
