// SPDX-License-Identifier: MIT
/*
 * i_deadline.c - SCHED_DEADLINE tasks that wait for their GPU: what their waits cost them, in
 * counted instructions.
 */
#include "deadline.h"

#include <rtxg_cpu.h>

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

/* How a job waits for its GPU. */
enum sync_by { BY_LIBRARY, BY_DRIVER, BY_ITSELF, UNSAID };

struct sync_load {
	struct deadline_load load;
	enum rtx_sync how;
	enum sync_by by;
	rtx_gpu_t handle;
	int edu;
	volatile uint64_t *fence;
	uint64_t sequence;
};

/* The vendor's own way: it sleeps in its driver. */
static int wait_in_driver(void *argument)
{
	struct sync_load *load = argument;

	return edu_sync(load->edu, load->sequence);
}

/* As a program that librtxg knows nothing of; its OpenCL layer does the same (i_opencl.c). */
static int wait_by_itself(struct sync_load *load)
{
	int err = rtx_cpu_wait_for_gpu(true);

	err = err ?: wait_in_driver(load);
	return err ?: rtx_cpu_wait_for_gpu(false);
}

static int launch_and_sync(void *argument)
{
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	struct sync_load *load = argument;
	int err;

	how.how = load->how;
	how.word = load->by == BY_LIBRARY ? (volatile uint32_t *)load->fence : NULL;
	how.fd = -1;
	how.wait = wait_in_driver;
	how.arg = load;
	err = rtx_gpu_launch(load->handle, RTX_COMPUTE);
	load->sequence = edu_launch(load->edu, DEADLINE_GPU_NS);
	how.value = (uint32_t)load->sequence;
	err = err ?: rtx_gpu_notify(load->handle, RTX_COMPUTE, &how);
	if (load->by == BY_ITSELF)
		err = err ?: wait_by_itself(load);
	if (load->by == UNSAID)
		err = err ?: wait_in_driver(load);
	return err ?: rtx_gpu_sync(load->handle, RTX_COMPUTE);
}

static void *sync_thread(void *argument)
{
	struct sync_load *load = argument;

	load->edu = open_edu(0);
	load->fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, load->edu, 0);
	load->load.err = rtx_gpu_open(&load->handle, NULL);
	deadline_jobs(&load->load, launch_and_sync, load);
	rtx_gpu_close(load->handle);
	munmap((void *)load->fence, 4096);
	close(load->edu);
	return NULL;
}

/*
 * A wait that is said is charged, for about the 45 ms that the kernel takes, and longer if the task
 * is woken late. While a fence is looked at every 50 us, the looks are the task's own work and only
 * the sleeps between them are charged.
 */
static void check_charges(const char *name, const struct sync_load *load, bool looks, bool late)
{
	if (load->by == UNSAID)
		check_unsaid(name, &load->load);
	else
		check_charged(name, &load->load, (looks ? 10 : 40) * MS,
			      (late && !looks ? 100 : 50) * MS);
}

/*
 * The kernel's wake-up rule (equation 1 of Linux-RTXG), as i_cpu has it for IRQ_WAIT: 5 ms, 45 ms
 * on the GPU, 20 ms, with 80 of 100 reserved, and another task whose deadline falls in between.
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
	char limit[32];

	admission_off(limit);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rtxg_irq_attach attach = { .size = sizeof(attach),
						  .flags = RTXG_IRQ_F_BY_NAME,
						  .name = "rtxg_edu0" };
		struct rtxg_irq_bind bind = { .size = sizeof(bind) };
		struct sync_load load = { .how = cases[i].how, .by = cases[i].by };
		bool looks, late;
		int irq = open_rtxg();

		check(!call(irq, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
		bind.id = attach.id;
		check(!cases[i].bound || !call(irq, RTXG_IOC_IRQ_BIND, &bind), "bind");
		deadline_set(cases[i].name, &load.load, sync_thread, &load);
		looks = load.by == BY_LIBRARY && !cases[i].bound;
		/*
		 * How much of its own budget a task needs to look at a fence every 50 us is the
		 * machine's.
		 */
		late = looks || (load.by != BY_LIBRARY && forced_threads());
		check_charges(cases[i].name, &load, looks, late);
		if (load.by != UNSAID && !late)
			check(!load.load.misses, "%s: %u misses", cases[i].name, load.load.misses);
		close(irq);
	}
	admission_on(limit);
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
