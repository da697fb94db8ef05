// SPDX-License-Identifier: MIT
/*
 * i_deadline.c - SCHED_DEADLINE tasks that wait for their GPU: what their waits cost them, in
 * counted instructions.
 */
#include "gpu.h"

#include <sys/utsname.h>

#include <rtxg_cpu.h>

#include <rtxg/cpu.h>

struct other {
	rtx_gpu_t handle;
	int go[2], launched[2];
};

/* Launches a kernel of 60 ms each time that it is told to. */
static void *other_thread(void *argument)
{
	struct other *o = argument;
	int edu = open_edu(0);
	char byte;

	while (read(o->go[0], &byte, 1) == 1) {
		uint64_t sequence;

		rtx_gpu_launch(o->handle, RTX_COMPUTE);
		sequence = edu_launch(edu, 60 * MS);
		if (write(o->launched[1], &byte, 1) != 1)
			break;
		edu_sync(edu, sequence);
		rtx_gpu_sync(o->handle, RTX_COMPUTE);
	}
	close(edu);
	return NULL;
}

struct periodic {
	struct other other;
	struct gpu_task task;
	struct rtxg_cpu_stats stats;
	uint32_t misses;
	uint64_t max_response_ns;
	int err;
};

static void *deadline_thread(void *argument)
{
	struct rtxg_cpu_task params = { .size = sizeof(params),
					.policy = RTXG_CPU_DEADLINE,
					.period_ns = 100 * MS,
					.runtime_ns = 20 * MS };
	struct rtxg_cpu_job job = { .size = sizeof(job), .time_ns = 20 * MS };
	struct periodic *p = argument;
	int fd = open_rtxg();
	char byte = 'x';

	p->err = call(fd, RTXG_IOC_CPU_ATTACH, &params) ?: call(fd, RTXG_IOC_CPU_RUN, &job);
	job.time_ns = 0;
	for (int i = 0; i < 10 && !p->err; i++) {
		uint64_t end;

		/* the other's kernel is on the device before ours is wanted */
		if (write(p->other.go[1], &byte, 1) != 1 ||
		    read(p->other.launched[0], &byte, 1) != 1)
			p->err = -EIO;
		end = thread_cpu_ns() + 10 * MS;
		while (thread_cpu_ns() < end)
			;
		p->err = p->err ?: gpu_job(&p->task, 5 * MS);
		p->err = p->err ?: call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job);
		p->misses += job.missed;
		if (job.response_ns > p->max_response_ns)
			p->max_response_ns = job.response_ns;
	}
	p->stats = (struct rtxg_cpu_stats){ .size = sizeof(p->stats) };
	p->err = p->err ?: call(fd, RTXG_IOC_CPU_STATS, &p->stats);
	close(fd);
	return NULL;
}

/*
 * 10 ms of CPU and 5 ms of GPU in 100 ms, 20 ms reserved, and another's kernel of 60 ms before its
 * own: it is charged for its own kernel, and its jobs end in time.
 */
static void test_deadline_is_not_charged_for_others(void)
{
	struct periodic p = {};
	pthread_t threads[2];

	check(!gpu_task_open(&p.task, NULL, true, false) && !rtx_gpu_open(&p.other.handle, NULL) &&
		      !pipe(p.other.go) && !pipe(p.other.launched),
	      "open: %s", rtx_strerror());
	pthread_create(&threads[0], NULL, other_thread, &p.other);
	pthread_create(&threads[1], NULL, deadline_thread, &p);
	pthread_join(threads[1], NULL);
	close(p.other.go[1]);
	pthread_join(threads[0], NULL);
	check(!p.err, "%d %s", p.err, rtx_strerror());
	note("%u of 10 deadlines missed, longest response %.1f ms of 100, %.1f ms charged",
	     p.misses, p.max_response_ns / 1e6, p.stats.gpu_charged_ns / 1e6);
	value("deadline_beside_others_misses", p.misses, "of_10");
	check(!p.misses, "%u misses", p.misses);
	/* its own 50 ms, less what the driver and the interrupt took */
	check(p.stats.gpu_charged_ns > 30 * MS && p.stats.gpu_charged_ns < 70 * MS,
	      "%.1f ms charged", p.stats.gpu_charged_ns / 1e6);
	gpu_task_close(&p.task);
	rtx_gpu_close(p.other.handle);
	close(p.other.go[0]);
	close(p.other.launched[0]);
	close(p.other.launched[1]);
}

/* ---- SCHED_DEADLINE and rtx_gpu_sync ---- */

#define SYNC_JOBS repeats(4, 10)

/* How a job waits for its GPU. */
enum sync_by { BY_LIBRARY, BY_DRIVER, BY_ITSELF, UNSAID };

struct sync_load {
	enum rtx_sync how;
	enum sync_by by;
	int edu;
	uint64_t sequence;
	uint64_t start_ns;
	uint32_t misses;
	uint64_t max_response_ns;
	struct rtxg_cpu_stats stats;
	int err;
};

static void use_cpu(uint64_t ns)
{
	uint64_t end = thread_cpu_ns() + ns;

	while (thread_cpu_ns() < end)
		;
}

static bool forced_threads(void)
{
	struct utsname names;

	uname(&names);
	return strstr(names.version, "PREEMPT_RT") != NULL;
}

static int deadline_begin(int fd, uint64_t runtime_ns, uint32_t flags, uint64_t start_ns)
{
	struct rtxg_cpu_task params = { .size = sizeof(params),
					.policy = RTXG_CPU_DEADLINE,
					.flags = flags,
					.period_ns = 100 * MS,
					.runtime_ns = runtime_ns };
	struct rtxg_cpu_job job = { .size = sizeof(job), .start_ns = start_ns };

	return call(fd, RTXG_IOC_CPU_ATTACH, &params) ?: call(fd, RTXG_IOC_CPU_RUN, &job);
}

/* The vendor's own way: it sleeps in its driver. */
static int wait_in_driver(void *argument)
{
	struct sync_load *load = argument;

	return edu_sync(load->edu, load->sequence);
}

/* As a program that librtxg knows nothing of, or its OpenCL layer. */
static int wait_by_itself(struct sync_load *load)
{
	int err = rtx_cpu_wait_for_gpu(true);

	err = err ?: wait_in_driver(load);
	return err ?: rtx_cpu_wait_for_gpu(false);
}

static void *sync_thread(void *argument)
{
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	struct sync_load *load = argument;
	int fd = open_rtxg(), edu = open_edu(0);
	volatile uint64_t *fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, edu, 0);
	rtx_gpu_t handle;

	load->edu = edu;
	how.how = load->how;
	how.word = load->by == BY_LIBRARY ? (volatile uint32_t *)fence : NULL;
	how.fd = -1;
	how.wait = wait_in_driver;
	how.arg = load;
	load->err = rtx_gpu_open(&handle, NULL) ?: deadline_begin(fd, 80 * MS, 0, load->start_ns);
	for (int i = 0; i < SYNC_JOBS && !load->err; i++) {
		use_cpu(5 * MS);
		load->err = rtx_gpu_launch(handle, RTX_COMPUTE);
		load->sequence = edu_launch(edu, 45 * MS);
		how.value = (uint32_t)load->sequence;
		load->err = load->err ?: rtx_gpu_notify(handle, RTX_COMPUTE, &how);
		if (load->by == BY_ITSELF)
			load->err = load->err ?: wait_by_itself(load);
		if (load->by == UNSAID)
			load->err = load->err ?: wait_in_driver(load);
		load->err = load->err ?: rtx_gpu_sync(handle, RTX_COMPUTE);
		use_cpu(20 * MS);
		load->err = load->err ?: call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job);
		load->misses += job.missed;
		if (job.response_ns > load->max_response_ns)
			load->max_response_ns = job.response_ns;
	}
	load->stats = (struct rtxg_cpu_stats){ .size = sizeof(load->stats) };
	load->err = load->err ?: call(fd, RTXG_IOC_CPU_STATS, &load->stats);
	rtx_gpu_close(handle);
	munmap((void *)fence, 4096);
	close(edu);
	close(fd);
	return NULL;
}

static void *between_thread(void *start)
{
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	int fd = open_rtxg(), err;

	err = deadline_begin(fd, 42 * MS, RTXG_CPU_F_NO_GPU_CHARGE, *(uint64_t *)start);
	for (int i = 0; i < SYNC_JOBS && !err; i++) {
		use_cpu(40 * MS);
		err = call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job);
	}
	close(fd);
	return NULL;
}

/*
 * A wait that is said is charged, for about the 45 ms that the kernel takes, and longer if the task
 * is woken late. While a fence is looked at every 50 us, the looks are the task's own work and only
 * the sleeps between them are charged.
 */
static void check_charges(const char *name, const struct sync_load *load, bool looks, bool late)
{
	uint64_t least = SYNC_JOBS * (looks ? 10 : 40) * MS;
	uint64_t most = SYNC_JOBS * (late && !looks ? 100 : 50) * MS;
	uint64_t charges = load->stats.gpu_charges, charged = load->stats.gpu_charged_ns;

	if (load->by == UNSAID)
		check(!charges, "%s: %" PRIu64 " charges", name, charges);
	else
		check(charges >= (uint64_t)SYNC_JOBS && charged > least && charged < most,
		      "%s: %" PRIu64 " charges, %.1f ms", name, charges, charged / 1e6);
}

/*
 * The kernel's wake-up rule (equation 1 of Linux-RTXG), as i_cpu has it for IRQ_WAIT: 5 ms, 45 ms on
 * the GPU, 20 ms, with 80 of 100 reserved, and another task whose deadline falls in between.
 */
static void test_deadline_in_sync(void)
{
	static const struct {
		const char *name;
		enum rtx_sync how;
		enum sync_by by;
		bool bound;
	} cases[] = { { "unsaid", RTX_SYNC_CALLER, UNSAID, false },
		      { "fence", RTX_SYNC_FENCE, BY_LIBRARY, true },
		      { "notify", RTX_SYNC_NOTIFY, BY_LIBRARY, true },
		      { "wait", RTX_SYNC_WAIT, BY_DRIVER, false },
		      { "itself", RTX_SYNC_CALLER, BY_ITSELF, false },
		      { "fence_unbound", RTX_SYNC_FENCE, BY_LIBRARY, false },
		      { "notify_unbound", RTX_SYNC_NOTIFY, BY_LIBRARY, false } };
	char limit[32], command[160];

	check(read_text("/proc/sys/kernel/sched_rt_runtime_us", limit, sizeof(limit)) &&
		      !shell("echo -1 >/proc/sys/kernel/sched_rt_runtime_us; "
			     "echo 0 >/sys/module/rtxg/parameters/admission"),
	      "admission cannot be switched off");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rtxg_irq_attach attach = { .size = sizeof(attach),
						  .flags = RTXG_IRQ_F_BY_NAME,
						  .name = "rtxg_edu0" };
		struct rtxg_irq_bind bind = { .size = sizeof(bind) };
		struct sync_load load = { .how = cases[i].how, .by = cases[i].by };
		bool looks, late;
		pthread_t threads[2];
		uint64_t between;
		char name[64];
		int irq = open_rtxg();

		check(!call(irq, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
		bind.id = attach.id;
		check(!cases[i].bound || !call(irq, RTXG_IOC_IRQ_BIND, &bind), "bind");
		load.start_ns = rtxg_now_ns() + 50 * MS;
		between = load.start_ns + 49 * MS;
		pthread_create(&threads[0], NULL, sync_thread, &load);
		pthread_create(&threads[1], NULL, between_thread, &between);
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
		check(!load.err, "%s: %d %s", cases[i].name, load.err, rtx_strerror());
		note("%s: %u of %d deadlines missed, longest response %.1f ms, %.0f ms charged",
		     cases[i].name, load.misses, SYNC_JOBS, load.max_response_ns / 1e6,
		     load.stats.gpu_charged_ns / 1e6);
		snprintf(name, sizeof(name), "deadline_sync_misses_%s", cases[i].name);
		value(name, load.misses * 10.0 / SYNC_JOBS, "of_10");
		looks = load.by == BY_LIBRARY && !cases[i].bound;
		/*
		 * PREEMPT_RT handles the driver's interrupt in a thread below SCHED_DEADLINE: what it
		 * wakes is late, whatever it is charged. How much of its own budget a task needs to
		 * look at a fence every 50 us is the machine's.
		 */
		late = looks || (load.by != BY_LIBRARY && forced_threads());
		check_charges(cases[i].name, &load, looks, late);
		if (load.by == UNSAID)
			check(load.misses, "the problem is not there");
		else if (!late)
			check(!load.misses, "%s: %u misses", cases[i].name, load.misses);
		close(irq);
	}
	snprintf(command, sizeof(command),
		 "echo %s >/proc/sys/kernel/sched_rt_runtime_us; "
		 "echo 1 >/sys/module/rtxg/parameters/admission",
		 limit);
	check(!shell(command), "admission cannot be switched on again");
}
int main(void)
{
	static const struct ktap_case cases[] = {
		{ "deadline_is_not_charged_for_others", test_deadline_is_not_charged_for_others },
		{ "deadline_in_sync", test_deadline_in_sync },
	};

	load_module();
	setenv("RTXG_HOST", "module", 1);
	return RUN(cases);
}
