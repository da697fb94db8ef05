// SPDX-License-Identifier: MIT
/*
 * i_owner.c - what the priority of an interrupt's thread is worth: an owner that waits for it
 * beside a busy thread, and a busy thread beside an owner's completions. Run with counted
 * instructions on one CPU, so that the times are those of the schedule alone.
 */
#include "gpu.h"

static struct rtxg_irq_attach request;
static int fd;

static void as_fifo(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &param);
}

static void compute(uint64_t loops)
{
	for (volatile uint64_t i = 0; i < loops; i++)
		;
}

/*
 * Computes for so long where nothing interrupts it. By its clock it could not: a thread's clock
 * counts softirqs on its back as its own time.
 */
static void work(uint64_t ns)
{
	static uint64_t per_ms;

	if (!per_ms) {
		uint64_t start = rtxg_now_ns();

		compute(1000000);
		per_ms = 1000000ull * MS / (rtxg_now_ns() - start);
	}
	compute(per_ms * ns / MS);
}

/* What the driver leaves to its thread, or to a tasklet. */
static bool by_tasklet;

static void begin(uint32_t mode, uint32_t priority, pid_t owner)
{
	struct rtxg_irq_own own = { .size = sizeof(own),
				    .mode = mode,
				    .priority = priority,
				    .flags = by_tasklet ? RTXG_IRQ_TASKLETS : 0,
				    .pid = owner };
	int edu = open_edu(0);
	uint32_t form = by_tasklet ? RTXG_EDU_F_TOP : RTXG_EDU_F_THREADED;

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
	work(0);
	pthread_create(&threads[0], NULL, owner_thread, owner);
	pthread_create(&threads[1], NULL, busy_thread, busy);
	while (!__atomic_load_n(&owner->tid, __ATOMIC_SEQ_CST))
		sleep_ns(MS);
	begin(mode, priority, mode >= RTXG_IRQ_OWNER ? owner->tid : 0);
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
	      { "owner", RTXG_IRQ_OWNER, 2 },
	      { "aware", RTXG_IRQ_PAI, 2 } };
enum { KEPT, LOW, HIGH, OWNER, MODES, AWARE = MODES, TASKLET_MODES };

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

static void bottom_us(int us)
{
	char command[96];

	snprintf(command, sizeof(command), "echo %d >/sys/module/rtxg_edu/parameters/bottom_us",
		 us);
	check(!shell(command), "bottom half of %d us", us);
}

/* The two again, where the driver leaves 1 ms of each completion to a tasklet. */
static void test_tasklets(void)
{
	double owner_ms[TASKLET_MODES], job_ms[TASKLET_MODES];

	by_tasklet = true;
	bottom_us(1000);
	for (int i = 0; i < TASKLET_MODES; i++) {
		struct actor above = { .priority = 80, .kernels = 1, .kernel_ns = 5 * MS };
		struct actor below = { .priority = 10, .kernels = 20, .kernel_ns = MS };
		struct actor hog = { .priority = 60, .work_ns = 100 * MS };
		struct actor job = { .priority = 60, .work_ns = 40 * MS };
		char name[48];

		run_both(&above, &hog, modes[i].mode, modes[i].priority);
		owner_ms[i] = (above.ended_ns - above.started_ns) / 1e6;
		snprintf(name, sizeof(name), "owner_sees_its_tasklet_%s", modes[i].name);
		value(name, owner_ms[i], "ms");
		run_both(&below, &job, modes[i].mode, modes[i].priority);
		job_ms[i] = (job.ended_ns - job.started_ns) / 1e6;
		snprintf(name, sizeof(name), "job_beside_tasklets_%s", modes[i].name);
		value(name, job_ms[i], "ms");
	}
	bottom_us(0);
	by_tasklet = false;
	/* the job waits for tasklets of a lower owner, unless they have its priority */
	check(job_ms[HIGH] > 55, "the problem is not there: %.2f ms", job_ms[HIGH]);
	check(owner_ms[LOW] > 90, "the other problem is not there: %.2f ms", owner_ms[LOW]);
	if (kernel_with_checks())
		return;
	check(job_ms[OWNER] < 42 && job_ms[AWARE] < 42, "%.2f and %.2f ms", job_ms[OWNER],
	      job_ms[AWARE]);
	check(owner_ms[OWNER] < 8 && owner_ms[AWARE] < 8, "%.2f and %.2f ms", owner_ms[OWNER],
	      owner_ms[AWARE]);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "owner_beside_a_busy_thread", test_owner_beside_a_busy_thread },
		{ "busy_thread_beside_an_owner", test_busy_thread_beside_an_owner },
		{ "tasklets", test_tasklets },
	};

	load_module();
	return RUN(cases);
}
