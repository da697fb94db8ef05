// SPDX-License-Identifier: MIT
/*
 * i_klmirqd.c - task sets on one CPU whose GPUs' interrupts are handled in one way or another
 * (klmirqd: Elliott and Anderson 2012, sections V and VI): which deadlines are missed, and with a
 * meter, how long the priority inversions are. bench/klmirqd.py puts the sets into the guest and
 * reads what comes of them; without, a small one shows that the ways differ.
 *
 * A set is text, times in microseconds:
 *   run NAME HOW POLICY LENGTH BOTTOM_HALF
 *   task NAME PRIORITY COST HELD GPU CALLS PERIOD DEVICE      (DEVICE -1: it uses no GPU)
 *   end
 * HOW: stock (no module), a number (the same, with the drivers' threads at that priority), kept,
 * owner or aware (the module, as in rtxg irq -o). POLICY: fifo, or the module's rm or edf. A line
 * "meter" begins a meter, and "told NAME" ends it.
 */
#include "meter.h"

#include "rtxg_core.h"

#include <rtxg/cpu.h>

#include <dirent.h>
#include <semaphore.h>

#define TASKS	16
#define DEVICES 2
#define SETS	"/tests/w_sets"

struct run;

struct task {
	char name[32];
	struct run *run;
	int priority, calls, device;
	uint64_t cost_us, held_us, gpu_us, period_us;
	pthread_t thread;
	pid_t tid;
	sem_t warm;
	int edu;
	rtx_gpu_t handle;
	uint64_t sequence;
	uint64_t completed, met, response_ns, longest_ns;
	int err;
};

struct run {
	char name[32], how[16], policy[8];
	uint64_t length_us, start_ns;
	int bottom_us, count;
	struct task tasks[TASKS];
	sem_t gpus[DEVICES];
	sem_t warmed, go, worked, leave;
};

static uint32_t mode_of(const struct run *run)
{
	return !strcmp(run->how, "owner")   ? RTXG_IRQ_OWNER
	       : !strcmp(run->how, "aware") ? RTXG_IRQ_PAI
					    : RTXG_IRQ_KEPT;
}

static bool by_module(const struct run *run)
{
	return mode_of(run) != RTXG_IRQ_KEPT || !strcmp(run->how, "kept");
}

/* How many tasks use a device. */
static int users_of(const struct run *run, int device)
{
	int users = 0;

	for (int i = 0; i < run->count; i++)
		users += run->tasks[i].device == device;
	return users;
}

static int await_driver(void *argument)
{
	struct task *task = argument;

	return edu_sync(task->edu, task->sequence);
}

/*
 * All calls are queued, and waited for at the end: the paper's tasks do their GPU work
 * asynchronously.
 */
static void use_gpu(struct task *task)
{
	struct run *run = task->run;
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);

	if (task->handle)
		task->err |= rtx_gpu_launch(task->handle, RTX_COMPUTE);
	else
		sem_wait(&run->gpus[task->device]);
	for (int i = 0; i < task->calls; i++)
		task->sequence = edu_launch(task->edu, task->gpu_us * 1000 / task->calls);
	compute(loops_of(task->held_us * 1000));
	if (task->handle) {
		how.how = RTX_SYNC_WAIT;
		how.wait = await_driver;
		how.arg = task;
		task->err |= rtx_gpu_notify(task->handle, RTX_COMPUTE, &how);
		task->err |= rtx_gpu_sync(task->handle, RTX_COMPUTE);
	} else {
		task->err |= edu_sync(task->edu, task->sequence);
		sem_post(&run->gpus[task->device]);
	}
}

static void do_job(struct task *task)
{
	uint64_t outside = (task->cost_us - task->held_us) * 1000;

	compute(loops_of(outside / 2));
	if (task->device >= 0)
		use_gpu(task);
	compute(loops_of(outside / 2));
}

static void ended(struct task *task, uint64_t release_ns)
{
	uint64_t response = rtxg_now_ns() - release_ns;

	task->completed++;
	task->met += response <= task->period_us * 1000;
	task->response_ns += response;
	if (response > task->longest_ns)
		task->longest_ns = response;
}

/* Releases of a late job's successors are shifted, as in the paper. */
static void by_priority(struct task *task)
{
	const struct run *run = task->run;
	uint64_t end = run->start_ns + run->length_us * 1000, next = run->start_ns;

	while (next + task->period_us * 1000 <= end) {
		struct timespec at = { (time_t)(next / 1000000000), (long)(next % 1000000000) };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		do_job(task);
		ended(task, next);
		next += task->period_us * 1000;
		if (rtxg_now_ns() > next)
			next = rtxg_now_ns();
	}
}

/* Releases are the module's. */
static void by_modules_policy(struct task *task)
{
	const struct run *run = task->run;
	uint64_t end = run->start_ns + run->length_us * 1000;
	struct rtxg_cpu_job job = { .size = sizeof(job), .start_ns = run->start_ns };
	struct rtxg_cpu_task how = {
		.size = sizeof(how),
		.policy = strcmp(run->policy, "rm") ? RTXG_CPU_EDF : RTXG_CPU_RM,
		.flags = RTXG_CPU_F_NO_GPU_CHARGE,
		.period_ns = task->period_us * 1000,
	};
	int fd = open_rtxg();

	task->err |= call(fd, RTXG_IOC_CPU_ATTACH, &how);
	task->err |= call(fd, RTXG_IOC_CPU_RUN, &job);
	while (!task->err && job.release_ns + task->period_us * 1000 <= end) {
		do_job(task);
		ended(task, job.release_ns);
		job = (struct rtxg_cpu_job){ .size = sizeof(job) };
		task->err |= call(fd, RTXG_IOC_CPU_WAIT_PERIOD, &job);
	}
	close(fd);
}

static void *task_thread(void *argument)
{
	struct task *task = argument;
	struct run *run = task->run;

	as_fifo(task->priority);
	if (task->device >= 0)
		task->edu = open_edu(task->device);
	if (task->device >= 0 && by_module(run) && users_of(run, task->device) > 1) {
		struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);

		options.vgpu = "tasks";
		task->err |= rtx_gpu_open(&task->handle, &options);
	}
	__atomic_store_n(&task->tid, gettid(), __ATOMIC_SEQ_CST);
	sem_wait(&task->warm);
	/* a first launch, so that a meter learns for which thread the interrupt works */
	if (task->device >= 0 && !task->handle)
		task->err |= edu_sync(task->edu, edu_launch(task->edu, MS));
	sem_post(&run->warmed);
	sem_wait(&run->go);
	if (strcmp(run->policy, "fifo"))
		by_modules_policy(task);
	else
		by_priority(task);
	/* until the handling ends: what an interrupt has still to do is for the task, as ever */
	sem_post(&run->worked);
	sem_wait(&run->leave);
	if (task->handle)
		rtx_gpu_close(task->handle);
	if (task->device >= 0)
		close(task->edu);
	return NULL;
}

/* The threads that the kernel made for the drivers' interrupts, as chrt would set them. */
static void set_threads(int priority)
{
	struct sched_param param = { .sched_priority = priority };
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	char path[64], name[32];
	int set = 0;

	while (proc && (entry = readdir(proc))) {
		snprintf(path, sizeof(path), "/proc/%.20s/comm", entry->d_name);
		if (atoi(entry->d_name) && read_text(path, name, sizeof(name)) &&
		    !strncmp(name, "irq/", 4) && strstr(name, "rtxg_edu"))
			set += !sched_setscheduler(atoi(entry->d_name), SCHED_FIFO, &param);
	}
	closedir(proc);
	check(set == DEVICES,
	      "%d threads of interrupts set: the kernel makes them where it forces "
	      "threads",
	      set);
}

/* The interrupts' owners: the holder of the GPU where several tasks use it, else its one task. */
static int own_interrupts(const struct run *run)
{
	int fd = open_rtxg();

	for (int device = 0; device < DEVICES; device++) {
		struct rtxg_irq_attach attach = { .size = sizeof(attach),
						  .flags = RTXG_IRQ_F_BY_NAME };
		struct rtxg_irq_bind bind = { .size = sizeof(bind), .engine = RTX_COMPUTE };
		struct rtxg_irq_own own = { .size = sizeof(own),
					    .mode = mode_of(run),
					    .priority = 1,
					    .flags = RTXG_IRQ_TASKLETS };
		int users = users_of(run, device);

		if (!users)
			continue;
		check(users == 1 || !device, "only the first device can be shared");
		snprintf(attach.name, sizeof(attach.name), "rtxg_edu%d", device);
		check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
		bind.id = own.id = attach.id;
		if (users > 1)
			check(!call(fd, RTXG_IOC_IRQ_BIND, &bind), "bind");
		for (int i = 0; users == 1 && i < run->count; i++)
			if (run->tasks[i].device == device)
				own.pid = run->tasks[i].tid;
		check(own.mode == RTXG_IRQ_KEPT || !call(fd, RTXG_IOC_IRQ_OWN, &own), "own");
	}
	return fd;
}

static void tell(const struct run *run)
{
	printf("    # run {\"set\":\"%s\",\"how\":\"%s\",\"policy\":\"%s\",\"tasks\":[", run->name,
	       run->how, run->policy);
	for (int i = 0; i < run->count; i++) {
		const struct task *t = &run->tasks[i];

		printf("%s{\"name\":\"%s\",\"tid\":%d,\"gpu\":%s,\"period_us\":%" PRIu64
		       ",\"released\":%" PRIu64 ",\"completed\":%" PRIu64 ",\"met\":%" PRIu64
		       ",\"response_ns\":%" PRIu64 ",\"longest_ns\":%" PRIu64 "}",
		       i ? "," : "", t->name, t->tid, t->device >= 0 ? "true" : "false",
		       t->period_us, run->length_us / t->period_us, t->completed, t->met,
		       t->response_ns, t->longest_ns);
	}
	printf("]}\n");
}

static void set_bottom_half(int us)
{
	char command[96];

	snprintf(command, sizeof(command), "echo %d >/sys/module/rtxg_edu/parameters/bottom_us",
		 us);
	check(!shell(command), "bottom half of %d us", us);
}

static void do_run(struct run *run)
{
	int fd = -1;

	set_bottom_half(run->bottom_us);
	as_fifo(95);
	loops_of(MS);
	for (int i = 0; i < DEVICES; i++)
		sem_init(&run->gpus[i], 0, 1);
	if (atoi(run->how))
		set_threads(atoi(run->how));
	if (by_module(run) && users_of(run, 0) > 1)
		check(make_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("tasks", 0), "the GPU");
	sem_init(&run->warmed, 0, 0);
	sem_init(&run->go, 0, 0);
	sem_init(&run->worked, 0, 0);
	sem_init(&run->leave, 0, 0);
	for (int i = 0; i < run->count; i++) {
		run->tasks[i].run = run;
		sem_init(&run->tasks[i].warm, 0, 0);
		pthread_create(&run->tasks[i].thread, NULL, task_thread, &run->tasks[i]);
		while (!__atomic_load_n(&run->tasks[i].tid, __ATOMIC_SEQ_CST))
			sleep_ns(MS);
	}
	if (by_module(run))
		fd = own_interrupts(run);
	/* one at a time: who is awake beside it would be kept waiting, which a meter counts */
	for (int i = 0; i < run->count; i++) {
		sem_post(&run->tasks[i].warm);
		sem_wait(&run->warmed);
	}
	run->start_ns = rtxg_now_ns() + 10 * MS;
	for (int i = 0; i < run->count; i++)
		sem_post(&run->go);
	for (int i = 0; i < run->count; i++)
		sem_wait(&run->worked);
	/* the last bottom half may come after the last job */
	sleep_ns(20 * MS);
	close(fd);
	for (int i = 0; i < run->count; i++)
		sem_post(&run->leave);
	for (int i = 0; i < run->count; i++) {
		pthread_join(run->tasks[i].thread, NULL);
		check(!run->tasks[i].err, "%s: %d", run->tasks[i].name, run->tasks[i].err);
	}
	as_fifo(0);
	/* the tests that follow have a driver without one */
	set_bottom_half(0);
	if (by_module(run) && users_of(run, 0) > 1)
		check(!remove_vgpu("tasks"), "the vGPU stays");
	tell(run);
}

static uint64_t response_of(const struct run *run, const char *name)
{
	for (int i = 0; i < run->count; i++)
		if (!strcmp(run->tasks[i].name, name))
			return run->tasks[i].longest_ns;
	return 0;
}

/* Carries out a text; where the longest responses of a task are wanted, one for each run. */
static int carry_out(FILE *file, const char *name, uint64_t *longest)
{
	static struct run run;
	char line[160], word[32];
	int runs = 0;

	while (fgets(line, sizeof(line), file)) {
		struct task *t = &run.tasks[run.count];

		if (sscanf(line, "run %31s %15s %7s %" SCNu64 " %d", word, run.how, run.policy,
			   &run.length_us, &run.bottom_us) == 5) {
			snprintf(run.name, sizeof(run.name), "%s", word);
		} else if (run.count < TASKS &&
			   sscanf(line,
				  "task %31s %d %" SCNu64 " %" SCNu64 " %" SCNu64 " %d %" SCNu64
				  " %d",
				  t->name, &t->priority, &t->cost_us, &t->held_us, &t->gpu_us,
				  &t->calls, &t->period_us, &t->device) == 8) {
			run.count++;
		} else if (!strcmp(line, "meter\n")) {
			check(begin_meter(0), "no meter");
		} else if (sscanf(line, "told %31s", word) == 1) {
			end_meter();
			note("meter %s %s", word, meter.text);
		} else if (!strcmp(line, "end\n")) {
			do_run(&run);
			if (name)
				longest[runs] = response_of(&run, name);
			runs++;
			run = (struct run){};
		} else {
			check(false, "not understood: %s", line);
		}
	}
	return runs;
}

/*
 * The lowest task's kernels end while the middle one has its next job, and leave 1 ms each. The
 * urgent one shares its GPU.
 */
#define SMALL(how)                                \
	"run small " how " fifo 96000 1000\n"     \
	"task urgent 30 500 0 500 1 24000 0\n"    \
	"task middle 20 5000 0 0 0 12000 -1\n"    \
	"task relaxed 10 1000 0 9000 9 48000 0\n" \
	"end\n"

static void test_owners_priority_spares_the_middle(void)
{
	static const char text[] = SMALL("kept") SMALL("owner") SMALL("aware");
	uint64_t longest[3] = {};
	FILE *file = fmemopen((void *)text, sizeof(text) - 1, "r");

	check(carry_out(file, "middle", longest) == 3, "three runs");
	fclose(file);
	note("longest response of the middle task: %.2f, %.2f and %.2f ms", longest[0] / 1e6,
	     longest[1] / 1e6, longest[2] / 1e6);
	check(longest[1] + MS < longest[0] && longest[2] + MS < longest[0],
	      "%.2f ms with bottom halves on its back, %.2f and %.2f at their owner's priority",
	      longest[0] / 1e6, longest[1] / 1e6, longest[2] / 1e6);
}

static void test_sets_of_the_host(void)
{
	FILE *file = fopen(SETS, "r");

	if (!file)
		skip("the host has given no sets: see bench/klmirqd.py");
	check(carry_out(file, NULL, NULL) > 0, "no runs");
	fclose(file);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "owners_priority_spares_the_middle", test_owners_priority_spares_the_middle },
		{ "sets_of_the_host", test_sets_of_the_host, .slow = true },
	};
	char limit[32], command[96];
	int failed;

	load_module();
	if (!read_text("/proc/sys/kernel/sched_rt_runtime_us", limit, sizeof(limit)) ||
	    shell("echo -1 >/proc/sys/kernel/sched_rt_runtime_us"))
		return 1;
	failed = RUN(cases);
	snprintf(command, sizeof(command), "echo %s >/proc/sys/kernel/sched_rt_runtime_us", limit);
	return shell(command) || failed;
}
