// SPDX-License-Identifier: MIT
/*
 * i_gpu.c - shares of the tests' accelerator and the cost of scheduling it. Run with counted
 * instructions on one CPU: a kernel takes exactly the time that was asked for, and the rest is
 * instructions of kernel, driver, module and library.
 */
#include <sys/stat.h>

#include "gpu.h"

#include <rtxg_cpu.h>

#include "rtxg_core.h"

#include <rtxg/cpu.h>

struct shared {
	pthread_mutex_t mutex;
	uint64_t begin_ns, end_ns;
	uint64_t ground_ns[8]; /* durations of the kernels that a task completed in time */
	uint64_t done_ns[8];
	int err[8];
};

static struct shared *shared;

static void new_shared(void)
{
	pthread_mutexattr_t attr;

	if (!shared)
		shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(shared, 0, sizeof(*shared));
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&shared->mutex, &attr);
}

static void sleep_until_ns(uint64_t ns)
{
	struct timespec t = { ns / 1000000000ull, ns % 1000000000ull };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/*
 * Tasks launch one kernel after the other for some seconds; the error of each one's share in
 * points, the largest.
 */
static double share_error(uint32_t policy, int count, const unsigned int *percent,
			  const uint64_t *kernel_ns, double *shares)
{
	double worst = 0, total = 0;
	pid_t child[8];
	char name[16];

	new_shared();
	check(make_gpu("0", policy) >= 0, "gpu");
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "v%d", i);
		check(!make_vgpu(name, percent[i]), "vGPU %s", name);
	}
	shared->begin_ns = rtxg_now_ns() + 300 * MS;
	shared->end_ns = shared->begin_ns + 5000 * MS;
	fflush(NULL);
	for (int i = 0; i < count; i++) {
		child[i] = fork();
		if (!child[i]) {
			struct gpu_task task;
			uint64_t now;

			snprintf(name, sizeof(name), "v%d", i);
			shared->err[i] = gpu_task_open(&task, name, true, false);
			sleep_until_ns(shared->begin_ns);
			while (!shared->err[i] && (now = rtxg_now_ns()) < shared->end_ns) {
				shared->err[i] = gpu_job(&task, kernel_ns[i]);
				shared->ground_ns[i] += kernel_ns[i];
			}
			gpu_task_close(&task);
			_exit(0);
		}
	}
	for (int i = 0; i < count; i++) {
		waitpid(child[i], NULL, 0);
		check(!shared->err[i], "task %d: %d", i, shared->err[i]);
		total += shared->ground_ns[i];
	}
	for (int i = 0; i < count; i++) {
		double error;

		shares[i] = 100.0 * shared->ground_ns[i] / total;
		error = shares[i] > percent[i] ? shares[i] - percent[i] : percent[i] - shares[i];
		if (error > worst)
			worst = error;
		snprintf(name, sizeof(name), "v%d", i);
		check(!remove_vgpu(name), "remove %s", name);
	}
	/* the engine was kept busy: what the tasks used is what there was */
	note("%s: %d tasks, engine in use %.1f %% of the time",
	     policy == RTXG_GPU_FIFO   ? "fifo"
	     : policy == RTXG_GPU_BAND ? "band"
				       : "cbs",
	     count, 100 * total / (shared->end_ns - shared->begin_ns));
	return worst;
}

static void test_shares_of_two(void)
{
	static const unsigned int percent[] = { 40, 60 };
	/* the smaller share has 1.2 times the work, as in the paper */
	static const uint64_t kernel_ns[] = { 6 * MS, 5 * MS };
	static const struct {
		uint32_t policy;
		const char *name;
		double most;
	} policies[] = {
		{ RTXG_GPU_FIFO, "fifo", 0 },
		{ RTXG_GPU_BAND, "band", 5 },
		{ RTXG_GPU_CBS, "cbs", 1 },
	};

	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		double shares[2],
			error = share_error(policies[i].policy, 2, percent, kernel_ns, shares);
		char name[48];

		note("%s: asked 40 and 60 %%, got %.2f and %.2f", policies[i].name, shares[0],
		     shares[1]);
		snprintf(name, sizeof(name), "gpu_share_error_two_%s", policies[i].name);
		value(name, error, "points");
		if (policies[i].most)
			check(error <= policies[i].most * (kernel_with_checks() ? 3 : 1),
			      "%s: %.2f points off", policies[i].name, error);
		else
			/*
			 * without reservations the engine is shared by the size of the kernels
			 * (54.5 to 45.5), or by who asks first
			 */
			check(shares[0] > 50 && shares[0] < 62,
			      "fifo gave %.2f %% to the task with 6/11 of the work", shares[0]);
	}
}

static void test_shares_of_four(void)
{
	static const unsigned int percent[] = { 25, 25, 25, 25 };
	static const uint64_t kernel_ns[] = { 5 * MS, 5 * MS, 5 * MS, 5 * MS };
	double shares[4], error = share_error(RTXG_GPU_CBS, 4, percent, kernel_ns, shares);

	note("cbs: asked 25 %% each, got %.2f %.2f %.2f %.2f", shares[0], shares[1], shares[2],
	     shares[3]);
	value("gpu_share_error_four_cbs", error, "points");
	check(error <= 1, "%.2f points off", error);
	error = share_error(RTXG_GPU_BAND, 4, percent, kernel_ns, shares);
	note("band: asked 25 %% each, got %.2f %.2f %.2f %.2f", shares[0], shares[1], shares[2],
	     shares[3]);
	value("gpu_share_error_four_band", error, "points");
	check(error <= 9, "%.2f points off", error);
}

enum how { VANILLA, MUTEX, RTX_ONE, RTX_EACH, HOWS };

static const char *const how_names[] = { "vanilla", "mutex", "rtx_one_vgpu_band",
					 "rtx_vgpu_each_cbs" };

/* count tasks of 10 jobs, a job is a kernel of 2 ms; from the start to the end of the last. */
static uint64_t run_tasks(enum how how, int count)
{
	const bool managed = how >= RTX_ONE;
	struct sched_param param = { .sched_priority = 20 };
	uint64_t last = 0;
	pid_t child[8];
	char name[16];

	new_shared();
	check(make_gpu("0", how == RTX_EACH ? RTXG_GPU_CBS : RTXG_GPU_BAND) >= 0, "gpu");
	for (int i = 0; i < count && managed; i++) {
		snprintf(name, sizeof(name), "v%d", i);
		if (how == RTX_EACH || !i)
			check(!make_vgpu(name, how == RTX_EACH ? 96 / count : 96), "vGPU");
	}
	shared->begin_ns = rtxg_now_ns() + 200 * MS;
	fflush(NULL);
	for (int i = 0; i < count; i++) {
		child[i] = fork();
		if (!child[i]) {
			struct gpu_task task;

			snprintf(name, sizeof(name), "v%d", how == RTX_EACH ? i : 0);
			shared->err[i] = gpu_task_open(&task, name, managed, false);
			sched_setscheduler(0, SCHED_FIFO, &param);
			sleep_until_ns(shared->begin_ns);
			for (int job = 0; job < 10 && !shared->err[i]; job++) {
				if (managed) {
					shared->err[i] = gpu_job(&task, 2 * MS);
					continue;
				}
				if (how == MUTEX)
					pthread_mutex_lock(&shared->mutex);
				shared->err[i] =
					gpu_vendor_launch(&task, 2 * MS) ?: gpu_wait(&task);
				if (how == MUTEX)
					pthread_mutex_unlock(&shared->mutex);
			}
			shared->done_ns[i] = rtxg_now_ns();
			gpu_task_close(&task);
			_exit(0);
		}
	}
	for (int i = 0; i < count; i++) {
		waitpid(child[i], NULL, 0);
		check(!shared->err[i], "%s, task %d of %d: %d", how_names[how], i, count,
		      shared->err[i]);
		if (shared->done_ns[i] > last)
			last = shared->done_ns[i];
	}
	for (int i = 0; i < count && managed; i++) {
		snprintf(name, sizeof(name), "v%d", i);
		if (how == RTX_EACH || !i)
			check(!remove_vgpu(name), "remove");
	}
	return last - shared->begin_ns;
}

static void test_overhead(void)
{
	for (int count = 1; count <= 8; count *= 2) {
		uint64_t time[HOWS];
		char name[64];

		for (enum how how = 0; how < HOWS; how++)
			time[how] = run_tasks(how, count);
		note("%d tasks of 10 kernels of 2 ms: vanilla %.2f ms, mutex %.2f, one vGPU under "
		     "band %.2f, one each under cbs %.2f",
		     count, time[VANILLA] / 1e6, time[MUTEX] / 1e6, time[RTX_ONE] / 1e6,
		     time[RTX_EACH] / 1e6);
		for (enum how how = RTX_ONE; how < HOWS; how++) {
			double over = 100.0 * time[how] / time[MUTEX] - 100,
			       vanilla = 100.0 * time[how] / time[VANILLA] - 100;

			snprintf(name, sizeof(name), "gpu_overhead_%d_tasks_%s_to_mutex", count,
				 how_names[how]);
			value(name, over, "percent");
			snprintf(name, sizeof(name), "gpu_overhead_%d_tasks_%s_to_vanilla", count,
				 how_names[how]);
			value(name, vanilla, "percent");
			check(over < 10, "%s, %d tasks: %.1f %% over a mutex", how_names[how],
			      count, over);
		}
	}
}

/*
 * What calls cost that do not wait: in guest nanoseconds, of which each instruction takes 4 (2**2).
 */
static void test_cost_of_calls(void)
{
	enum { ROUNDS = 2000 };
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	struct gpu_task task;
	uint64_t start, bare, launch = 0, notify = 0, sync = 0, ring;
	int fd;

	check(make_gpu("0", RTXG_GPU_CBS) >= 0, "gpu");
	check(!gpu_task_open(&task, NULL, true, false), "open");
	fd = task.irq_fd;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t a = rtxg_now_ns(), b, c, d;

		rtx_gpu_launch(task.handle, RTX_COMPUTE);
		b = rtxg_now_ns();
		rtx_gpu_notify(task.handle, RTX_COMPUTE, &how);
		c = rtxg_now_ns();
		rtx_gpu_sync(task.handle, RTX_COMPUTE);
		d = rtxg_now_ns();
		if (i >= ROUNDS / 2) {
			launch += b - a;
			notify += c - b;
			sync += d - c;
		}
	}
	start = rtxg_now_ns();
	for (int i = 0; i < ROUNDS / 2; i++)
		ioctl(fd, _IO('x', 0xff)); /* as far as the module's table of calls */
	bare = rtxg_now_ns() - start;
	start = rtxg_now_ns();
	for (int i = 0; i < ROUNDS / 2; i++)
		rtxg_now_ns();
	uint64_t clock = (rtxg_now_ns() - start) / (ROUNDS / 2);
	struct rtxg_host_open other = { .size = sizeof(other) };
	int second = open_rtxg();

	check(!call(second, RTXG_IOC_HOST_OPEN, &other), "second");
	start = rtxg_now_ns();
	for (int i = 0; i < ROUNDS / 2; i++)
		ioctl(second, RTXG_IOC_HOST_RING);
	ring = rtxg_now_ns() - start;
	close(second);
	note("uncontended, in ns at 4 ns an instruction: launch %.0f, notify %.0f, sync %.0f; a "
	     "bare ioctl %.0f, ringing %.0f; clock %.0f",
	     launch * 2.0 / ROUNDS - clock, notify * 2.0 / ROUNDS - clock,
	     sync * 2.0 / ROUNDS - clock, bare * 2.0 / ROUNDS, ring * 2.0 / ROUNDS, (double)clock);
	value("gpu_launch_instructions", (launch * 2.0 / ROUNDS - clock) / 4, "instructions");
	value("gpu_notify_instructions", (notify * 2.0 / ROUNDS - clock) / 4, "instructions");
	value("gpu_sync_instructions", (sync * 2.0 / ROUNDS - clock) / 4, "instructions");
	value("bare_ioctl_instructions", bare * 2.0 / ROUNDS / 4, "instructions");
	value("ring_ioctl_instructions", ring * 2.0 / ROUNDS / 4, "instructions");
	/* the point of the page: an uncontended launch costs less than entering the kernel */
	check(launch < bare, "launch %.0f ns, a bare ioctl %.0f", launch * 2.0 / ROUNDS,
	      bare * 2.0 / ROUNDS);
	gpu_task_close(&task);
}

/*
 * Two tasks of one vGPU that both want the engine all the time and use it for nothing: instructions
 * for each launch and sync.
 */
static double contended(uint64_t *waits)
{
	enum { ROUNDS = 400 };
	pid_t child[2];

	new_shared();
	shared->begin_ns = rtxg_now_ns() + 500 * MS;
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		child[i] = fork();
		if (!child[i]) {
			struct rtx_gpu_stats stats = RTX_INIT(struct rtx_gpu_stats);
			rtx_gpu_t handle;

			shared->err[i] = rtx_gpu_open(&handle, NULL);
			sleep_until_ns(shared->begin_ns);
			for (int round = 0; round < ROUNDS && !shared->err[i]; round++) {
				shared->err[i] = rtx_gpu_launch(handle, RTX_COMPUTE);
				/* the other one comes to wait while we hold it */
				sched_yield();
				if (!shared->err[i])
					shared->err[i] = rtx_gpu_sync(handle, RTX_COMPUTE);
			}
			shared->done_ns[i] = rtxg_now_ns();
			if (!shared->err[i] && !rtx_gpu_stats(handle, RTX_COMPUTE, &stats))
				shared->ground_ns[i] = stats.waits;
			_exit(0);
		}
	}
	for (int i = 0; i < 2; i++) {
		waitpid(child[i], NULL, 0);
		check(!shared->err[i], "task %d: %d", i, shared->err[i]);
	}
	*waits = shared->ground_ns[0] + shared->ground_ns[1];
	uint64_t end =
		shared->done_ns[0] > shared->done_ns[1] ? shared->done_ns[0] : shared->done_ns[1];

	return (end - shared->begin_ns) / (2.0 * ROUNDS) / 4;
}

/*
 * The same core behind an ioctl and behind a daemon: what a hand-over between two programs costs on
 * the same machine.
 */
static void test_module_and_daemon(void)
{
	uint64_t waits[2];
	double per[2];

	if (access("/tests/w_rtxgd", X_OK))
		skip("the daemon was not built (make), so that there is nothing to compare with");
	check(make_gpu("0", RTXG_GPU_CBS) >= 0, "gpu");
	per[0] = contended(&waits[0]);
	mkdir("/tmp/run", 0700);
	setenv("XDG_RUNTIME_DIR", "/tmp/run", 1);
	setenv("RTXG_DAEMON", "/tests/w_rtxgd", 1);
	setenv("RTXG_HOST", "daemon", 1);
	per[1] = contended(&waits[1]);
	setenv("RTXG_HOST", "module", 1);
	note("a launch and sync that contend: module %.0f instructions (%" PRIu64
	     " of 800 waited), daemon %.0f (%" PRIu64 "): %.2f times",
	     per[0], waits[0], per[1], waits[1], per[1] / per[0]);
	value("gpu_contended_module", per[0], "instructions");
	value("gpu_contended_daemon", per[1], "instructions");
	value("gpu_contended_daemon_to_module", per[1] / per[0], "times");
	/* the module looks at pages by itself: a burst of tiny launches waits once */
	check(waits[0] && waits[1] > 200, "nothing contended: %" PRIu64 " and %" PRIu64 " waits",
	      waits[0], waits[1]);
	check(per[0] < per[1], "the module is not faster than the daemon");
}

/* ---- the completion interrupt and a busy CPU ---- */

struct actor {
	rtx_gpu_t handle;
	int edu;
	volatile uint64_t *fence;
	uint64_t launched_ns;
	int err;
};

static void as_fifo(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &param);
}

static void *low_thread(void *argument)
{
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	struct actor *a = argument;

	as_fifo(0);
	a->err = rtx_gpu_launch(a->handle, RTX_COMPUTE);
	how.how = RTX_SYNC_FENCE;
	how.word = (volatile uint32_t *)a->fence;
	how.value = (uint32_t)edu_launch(a->edu, 5 * MS);
	rtx_gpu_notify(a->handle, RTX_COMPUTE, &how);
	__atomic_store_n(&a->launched_ns, rtxg_now_ns(), __ATOMIC_SEQ_CST);
	rtx_gpu_sync(a->handle, RTX_COMPUTE);
	return NULL;
}

static void *busy_thread(void *unused)
{
	uint64_t end;

	as_fifo(50);
	end = rtxg_now_ns() + 100 * MS;
	while (rtxg_now_ns() < end)
		;
	return NULL;
}

static void *high_thread(void *argument)
{
	struct actor *a = argument;

	as_fifo(80);
	a->err = rtx_gpu_launch(a->handle, RTX_COMPUTE);
	a->launched_ns = rtxg_now_ns();
	rtx_gpu_sync(a->handle, RTX_COMPUTE);
	return NULL;
}

/* From the holder's launch of a 5 ms kernel to the launch of a FIFO 80 task, in ms. */
static double next_launch(bool bound)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach),
					  .flags = RTXG_IRQ_F_BY_NAME | RTXG_IRQ_F_SOURCE,
					  .name = "rtxg_edu0",
					  .offset = RTXG_EDU_REG_IRQ_STATUS,
					  .mask = RTXG_EDU_IRQ_COMPLETE,
					  .width = 4 };
	struct rtxg_irq_bind bind = { .size = sizeof(bind) };
	struct actor low = { .edu = open_edu(0) }, high = {};
	int irq = open_rtxg();
	pthread_t threads[3];

	find_pci(0x1234, 0x11e8, 0, &attach.bus, &attach.devfn);
	check(!call(irq, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
	bind.id = attach.id;
	check(!bound || !call(irq, RTXG_IOC_IRQ_BIND, &bind), "bind");
	low.fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, low.edu, 0);
	check(!rtx_gpu_open(&low.handle, NULL) && !rtx_gpu_open(&high.handle, NULL), "open");
	as_fifo(90);
	pthread_create(&threads[0], NULL, low_thread, &low);
	while (!__atomic_load_n(&low.launched_ns, __ATOMIC_SEQ_CST))
		sleep_ns(MS / 10);
	pthread_create(&threads[1], NULL, busy_thread, NULL);
	pthread_create(&threads[2], NULL, high_thread, &high);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	as_fifo(0);
	check(!low.err && !high.err, "%d %d", low.err, high.err);
	munmap((void *)low.fence, 4096);
	rtx_gpu_close(low.handle);
	rtx_gpu_close(high.handle);
	close(low.edu);
	close(irq);
	return (high.launched_ns - low.launched_ns) / 1e6;
}

/*
 * An ordinary thread holds the engine with a kernel of 5 ms, a FIFO 50 thread computes for 100 ms
 * on the only CPU, a FIFO 80 thread waits for the engine: it launches when the kernel has ended,
 * and not when the holder gets the CPU.
 */
static void test_next_past_a_busy_cpu(void)
{
	double before = next_launch(false), after = next_launch(true);

	note("the next launch comes %.2f ms after one of 5 ms; without the interrupt %.2f ms",
	     after, before);
	value("gpu_next_past_busy_before", before, "ms");
	value("gpu_next_past_busy_after", after, "ms");
	check(before > 90, "the problem is not there: %.2f ms", before);
	check(after > 4 && (kernel_with_checks() || after < 6), "%.2f ms", after);
}

/* ---- SCHED_DEADLINE and the kernels of others ---- */

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "shares_of_two", test_shares_of_two },
		{ "shares_of_four", test_shares_of_four },
		{ "overhead", test_overhead, .slow = true },
		{ "cost_of_calls", test_cost_of_calls },
		{ "next_past_a_busy_cpu", test_next_past_a_busy_cpu },
		{ "module_and_daemon", test_module_and_daemon, .slow = true },
	};

	load_module();
	setenv("RTXG_HOST", "module", 1);
	return RUN(cases);
}
