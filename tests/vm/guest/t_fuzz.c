// SPDX-License-Identifier: MIT
/*
 * t_fuzz.c - hostile callers: random ioctls with a fixed seed and count, processes killed in the
 * middle of them, interrupt storms. The host searches the kernel's log afterwards. The tests here
 * show that the module still works and can still be unloaded.
 */
#include "gpu.h"

#include "rtxg_core.h"

#include <rtxg/cpu.h>
#include <rtxg/task.h>
#include <sys/time.h>

enum { CHILDREN = 4 };
#define CALLS repeats(4000, 12000)

static const unsigned long commands[] = {
	RTXG_IOC_HOST_OPEN,    RTXG_IOC_HOST_RING,	 RTXG_IOC_HOST_WAIT,
	RTXG_IOC_HOST_WAKE,    RTXG_IOC_HOST_SET,	 RTXG_IOC_HOST_ADVICE,
	RTXG_IOC_HOST_ACQUIRE, RTXG_IOC_HOST_RELEASE,	 RTXG_IOC_HOST_GPU,
	RTXG_IOC_HOST_VGPU,    RTXG_IOC_HOST_POOL,	 RTXG_IOC_HOST_STATS,
	RTXG_IOC_HOST_INFO,    RTXG_IOC_HOST_FRONT,	 RTXG_IOC_HOST_REFUSAL,
	RTXG_IOC_HOST_LIST,    RTXG_IOC_HOST_TASK,	 RTXG_IOC_IRQ_ATTACH,
	RTXG_IOC_IRQ_DETACH,   RTXG_IOC_IRQ_WAIT,	 RTXG_IOC_IRQ_STATS,
	RTXG_IOC_CPU_ATTACH,   RTXG_IOC_CPU_SET,	 RTXG_IOC_CPU_DETACH,
	RTXG_IOC_CPU_RUN,      RTXG_IOC_CPU_WAIT_PERIOD, RTXG_IOC_CPU_WAIT_INTERVAL,
	RTXG_IOC_CPU_SUSPEND,  RTXG_IOC_CPU_WAKE_UP,	 RTXG_IOC_CPU_BACKGROUND,
	RTXG_IOC_CPU_RESERVE,  RTXG_IOC_CPU_GPU_WAIT,	 RTXG_IOC_CPU_STATS,
	RTXG_IOC_CPU_GET,      RTXG_IOC_CPU_ADMISSION,	 RTXG_IOC_TASK,
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

struct tally {
	unsigned long calls, good, refused, fault;
	bool called[COMMANDS], succeeded[COMMANDS];
};

static uint64_t random_state;

static uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* A value that programs get wrong: nothing, one, all, a boundary, a plausible one, or noise. */
static uint64_t random_value(void)
{
	static const uint64_t some[] = { 0,
					 1,
					 2,
					 3,
					 4,
					 7,
					 63,
					 64,
					 98,
					 99,
					 100,
					 4096,
					 40000,
					 1000000,
					 1000001,
					 5000000,
					 0x7fffffff,
					 0x80000000,
					 0xffffffff,
					 0x7fffffffffffffff,
					 0x8000000000000000,
					 0xffffffffffffffff };

	return random_next() % 4 ? some[random_next() % (sizeof(some) / sizeof(some[0]))]
				 : random_next() >> random_next() % 64;
}

/*
 * Parameters that may be taken, with all flags, for the caller. Periods are short and the budget is
 * half of the CPU at least: a stopped caller makes no call until the next period, and a caller with
 * a budget below the time of one call stays stopped.
 */
static struct rtxg_cpu_task plausible_cpu(void)
{
	uint64_t period = (4 + random_next() % 16) * MS;

	return (struct rtxg_cpu_task){
		.size = sizeof(struct rtxg_cpu_task),
		.flags = random_next() % 3 ? random_next() & RTXG_CPU_F_ALL : 0,
		.policy = random_next() % 5,
		.priority = random_next() % 3 ? random_next() % 100 : 0,
		.cpu = random_next() % 3,
		.period_ns = period,
		.runtime_ns = random_next() % 2 ? period / 2 + random_next() % (period / 2) : 0,
		.wcet_ns = random_next() % 3 ? 0 : MS,
		.suspend_ns = random_next() % 3 ? 0 : random_next() % period,
	};
}

static void fill(unsigned char *memory, size_t size)
{
	static const char *const names[] = { "",	  "0",	     "default", "fuzz",
					     "rtxg_edu0", "nvme0q1", "both" };

	memset(memory, 0, 512);
	for (size_t at = 4; at + 8 <= size; at += random_next() % 2 ? 4 : 8) {
		uint64_t v = random_next() % 3 ? 0 : random_value();

		memcpy(memory + at, &v, random_next() % 2 ? 4 : 8);
	}
	/* now and then a name where one may stand */
	if (random_next() % 2 && size >= 136) {
		strcpy((char *)memory + 8, names[random_next() % 7]);
		strcpy((char *)memory + 72, names[random_next() % 7]);
	}
	uint32_t length = random_next() % 16 ? size : random_value();

	memcpy(memory, &length, 4);
}

static void nothing(int signal)
{
}

/* One hostile process: three files, one page mapped, every wait cut short by an alarm. */
static void hostile(uint64_t seed, struct tally *tally, bool privileged)
{
	struct itimerval alarm_clock = { .it_interval.tv_usec = 3000, .it_value.tv_usec = 3000 };
	struct sigaction action = { .sa_handler = nothing }; /* no SA_RESTART */
	unsigned char *memory =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fds[3] = { open_rtxg(), open_rtxg(), open_rtxg() };

	random_state = seed;
	mprotect(memory + 4096, 4096, PROT_NONE);
	if (!privileged && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
		_exit(3);
	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGXCPU, &action, NULL);
	setitimer(ITIMER_REAL, &alarm_clock, NULL);
	for (int i = 0; i < CALLS; i++) {
		unsigned int which = random_next() % COMMANDS;
		unsigned long command = commands[which];
		size_t size = _IOC_SIZE(command);
		int at = random_next() % 3, err;
		void *argument = memory;

		/* neither other processes' scheduling nor other drivers' registers are the point */
		fill(memory, size ?: 8);
		if (command == RTXG_IOC_CPU_ATTACH || command == RTXG_IOC_CPU_SET) {
			struct rtxg_cpu_task cpu = plausible_cpu();

			if (random_next() % 2)
				memcpy(memory, &cpu, sizeof(cpu));
			memset(memory + 8, random_next() % 8 ? 0 : 0xff, 4);
			((struct rtxg_cpu_task *)memory)->flags &=
				cpu.period_ns == ((struct rtxg_cpu_task *)memory)->period_ns
					? ~0u
					: ~RTXG_CPU_F_HARD;
		}
		if (command == RTXG_IOC_TASK || command == RTXG_IOC_CPU_ADMISSION) {
			struct rtxg_host_open gpu = { .size = sizeof(gpu),
						      .priority = random_next() % 128,
						      .period_ns = random_value() };
			struct rtxg_host_set set = { .size = sizeof(set),
						     .priority = random_next() % 128,
						     .runtime_ns = random_value() };
			struct rtxg_task request = { .size = sizeof(request),
						     .flags = random_next() % 2,
						     .gpu = (uintptr_t)memory + 1024,
						     .cpu = (uintptr_t)memory + 2048,
						     .cpu_file = random_next() % 2
									 ? -1
									 : fds[random_next() % 3] };
			struct rtxg_cpu_admission question = { .size = sizeof(question),
							       .task = (uintptr_t)memory + 2048 };
			struct rtxg_cpu_task cpu = plausible_cpu();

			memcpy(memory + 2048, &cpu, sizeof(cpu));
			if (request.flags)
				memcpy(memory + 1024, &set, sizeof(set));
			else
				memcpy(memory + 1024, &gpu, sizeof(gpu));
			if (command == RTXG_IOC_CPU_ADMISSION)
				memcpy(memory, &question, sizeof(question));
			else if (random_next() % 4)
				memcpy(memory, &request, sizeof(request));
		}
		if (command == RTXG_IOC_IRQ_ATTACH && random_next() % 2) {
			struct rtxg_irq_attach attach = { .size = sizeof(attach),
							  .name = "rtxg_edu1",
							  .flags = random_next() & 0x1f };

			memcpy(memory, &attach, sizeof(attach));
		}
		/*
		 * a list with somewhere to go, and a task that may exist: past the checks of form,
		 * to where the work is
		 */
		if (command == RTXG_IOC_HOST_LIST && random_next() % 4) {
			struct rtxg_host_list request = {
				.size = sizeof(request),
				.flags = random_next() % 2,
				.what = random_next() % 5,
				.from = random_next() % 3 ? 0 : random_value(),
				.count = random_next() % 80,
				.entry = random_next() % 1000,
				.entries = (uintptr_t)memory + (random_next() % 2 ? 512 : 4000)
			};

			memcpy(memory, &request, sizeof(request));
		}
		if (command == RTXG_IOC_HOST_TASK && random_next() % 2) {
			struct rtxg_host_change request = { .size = sizeof(request),
							    .flags = random_next() % 4,
							    .serial = random_next() % 400,
							    .number = random_next() % 8,
							    .priority = random_next() % 128,
							    .vgpu = "default" };

			memcpy(memory, &request, sizeof(request));
		}
		switch (random_next() % 24) {
		case 0:
			argument = NULL;
			break;
		case 1: /* ends in the middle of the structure */
			argument = memory + 4096 - size / 2;
			break;
		case 2:
			argument = (void *)random_next();
			break;
		case 3: /* an unknown command, or one with another size */
			command ^= 1ul << random_next() % 32;
			break;
		case 4:
			argument = (void *)0xffffffff81000000ul;
			break;
		}
		err = call(fds[at], command, argument);
		tally->calls++;
		tally->called[which] = true;
		tally->good += !err;
		tally->refused += err < 0;
		tally->fault += err == -EFAULT;
		if (!err && command == commands[which])
			tally->succeeded[which] = true;
		if (random_next() % 200 == 0) {
			close(fds[at]);
			fds[at] = open_rtxg();
			void *page =
				mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[at], 0);

			if (page != MAP_FAILED)
				munmap(page, 4096);
		}
	}
	_exit(0);
}

static void still_works(void)
{
	struct gpu_task task;
	int err;

	/* the fuzzer may make vGPUs, so it may have capped the default one at next to nothing */
	check(make_gpu("0", RTXG_GPU_CBS) >= 0 && !make_vgpu("default", 0), "gpu 0");
	err = gpu_task_open(&task, NULL, true, true);
	check(!err, "open: %d %s", err, rtx_strerror());
	if (!err)
		for (int i = 0; i < 10; i++)
			check(!gpu_job(&task, 20000), "job: %s", rtx_strerror());
	gpu_task_close(&task);
	/* what stays with a task goes a moment after it */
	err = 1;
	for (int i = 0; i < 6000 && err; i++) {
		err = shell("rmmod rtxg 2>/dev/null");
		if (err)
			sleep_ns(10 * MS);
	}
	check(!err && !shell("insmod /modules/rtxg.ko"), "the module does not go");
}

static void fuzz(bool privileged, bool killed)
{
	struct tally *tally = mmap(NULL, sizeof(*tally) * CHILDREN, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned long calls = 0, good = 0, faults = 0;
	unsigned int succeeded = 0;
	pid_t child[CHILDREN];

	fflush(NULL);
	for (int i = 0; i < CHILDREN; i++) {
		child[i] = fork();
		if (!child[i])
			hostile(20261121 + i + 100 * privileged + 1000 * killed, &tally[i],
				privileged);
	}
	if (killed)
		for (int i = 0; i < CHILDREN; i++) {
			sleep_ns(300 * MS);
			kill(child[i], SIGKILL);
		}
	for (int i = 0; i < CHILDREN; i++) {
		int status;

		waitpid(child[i], &status, 0);
		if (killed)
			check(WIFSIGNALED(status) || !status, "child %d: %x", i, status);
		else
			check(!status && tally[i].calls == (unsigned long)CALLS,
			      "child %d: %x, %lu calls", i, status, tally[i].calls);
		calls += tally[i].calls;
		good += tally[i].good;
		faults += tally[i].fault;
	}
	for (unsigned int c = 0; c < COMMANDS; c++) {
		bool any = false;

		for (int i = 0; i < CHILDREN; i++)
			any |= tally[i].succeeded[c];
		succeeded += any;
	}
	note("%lu calls, %lu accepted, %lu faults; %u of %u kinds of call were accepted at least "
	     "once",
	     calls, good, faults, succeeded, COMMANDS);
	/* a fuzzer that is always refused at the door tests the door only */
	if (privileged && !killed)
		check(succeeded >= 16, "only %u kinds of call went through", succeeded);
	check(good > 0 && faults > 0, "%lu accepted, %lu faults", good, faults);
	munmap(tally, sizeof(*tally) * CHILDREN);
	still_works();
}

static void test_fuzz_privileged(void)
{
	fuzz(true, false);
}

static void test_fuzz_unprivileged(void)
{
	fuzz(false, false);
}

static void test_fuzz_killed(void)
{
	fuzz(true, true);
}

struct storm {
	int device;
	bool *stop;
};

static void *storm_thread(void *argument)
{
	struct storm *storm = argument;
	int edu = open_edu(storm->device);
	uint32_t count = 100;

	while (!__atomic_load_n(storm->stop, __ATOMIC_RELAXED))
		ioctl(edu, RTXG_EDU_STORM, &count);
	close(edu);
	return NULL;
}

static void *storm_waiter(void *argument)
{
	struct gpu_task *task = argument;
	uint64_t last = 0;

	task->sequence = 0;
	for (;;) {
		task->wait.until_ns = UINT64_MAX;
		if (call(task->irq_fd, RTXG_IOC_IRQ_WAIT, &task->wait))
			return NULL;
		if (task->wait.seen <= last)
			task->sequence++; /* went backwards */
		last = task->wait.seen;
		task->waits++;
	}
}

/*
 * Both accelerators raise interrupts as fast as they can while files come, wait and go; not one is
 * lost or counted twice.
 */
static void test_interrupt_storm(void)
{
	struct rtxg_irq_stats stats = { .size = sizeof(stats) };
	bool stop = false;
	struct storm storms[2] = { { 0, &stop }, { 1, &stop } };
	pthread_t storm[2], waiter[2];
	struct gpu_task watch[2];
	long long before, after;

	for (int i = 0; i < 2; i++) {
		char name[16];

		watch[i] = (struct gpu_task){ .irq_fd = open_rtxg(),
					      .attach = { .size = sizeof(watch[i].attach),
							  .flags = RTXG_IRQ_F_BY_NAME } };
		snprintf(name, sizeof(name), "rtxg_edu%d", i);
		strcpy(watch[i].attach.name, name);
		check(!call(watch[i].irq_fd, RTXG_IOC_IRQ_ATTACH, &watch[i].attach), "attach %d",
		      i);
		watch[i].wait = (struct rtxg_irq_wait){ .size = sizeof(watch[i].wait),
							.id = watch[i].attach.id };
	}
	before = interrupt_count(watch[0].attach.irq);
	for (int i = 0; i < 2; i++) {
		pthread_create(&waiter[i], NULL, storm_waiter, &watch[i]);
		pthread_create(&storm[i], NULL, storm_thread, &storms[i]);
	}
	for (int round = 0; round < 20; round++) {
		struct rtxg_irq_attach attach = { .size = sizeof(attach),
						  .flags = RTXG_IRQ_F_BY_NAME,
						  .name = "rtxg_edu0" };
		int fd = open_rtxg();

		check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach under the storm");
		sleep_ns(5 * MS);
		close(fd);
	}
	stats.id = watch[0].attach.id;
	while (stats.entries < 500 && !call(watch[0].irq_fd, RTXG_IOC_IRQ_STATS, &stats))
		sleep_ns(MS);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(storm[i], NULL);
	/*
	 * the two counts are compared for a moment at which no interrupt came between the one and
	 * the other
	 */
	for (int i = 0; i < 2000; i++) {
		long long again;

		after = interrupt_count(watch[0].attach.irq);
		check(!call(watch[0].irq_fd, RTXG_IOC_IRQ_STATS, &stats), "stats");
		again = interrupt_count(watch[0].attach.irq);
		if (after == again && stats.entries == stats.exits &&
		    stats.thread_entries == stats.thread_exits &&
		    (long long)stats.entries >= after - before)
			break;
		sleep_ns(MS);
	}
	note("%lld interrupts of one device in the storm, %" PRIu64 " entries, %" PRIu64
	     " exits, %" PRIu64 " wake-ups",
	     after - before, (uint64_t)stats.entries, (uint64_t)stats.exits,
	     (uint64_t)stats.wakeups);
	check(stats.entries == (uint64_t)(after - before) && stats.entries == stats.exits,
	      "entries %" PRIu64 ", the kernel counted %lld", (uint64_t)stats.entries,
	      after - before);
	check(stats.entries >= 500 && stats.wakeups > 0, "no storm");
	for (int i = 0; i < 2; i++) {
		struct rtxg_irq_detach detach = { .size = sizeof(detach),
						  .id = watch[i].attach.id };

		check(!call(watch[i].irq_fd, RTXG_IOC_IRQ_DETACH, &detach), "detach");
		pthread_join(waiter[i], NULL);
		check(!watch[i].sequence, "the count of events went backwards");
		close(watch[i].irq_fd);
	}
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "interrupt_storm", test_interrupt_storm },
		{ "fuzz_privileged", test_fuzz_privileged },
		{ "fuzz_unprivileged", test_fuzz_unprivileged },
		{ "fuzz_killed", test_fuzz_killed },
	};

	load_module();
	setenv("RTXG_HOST", "module", 1);
	return RUN(cases);
}
