// SPDX-License-Identifier: MIT
/*
 * t_handover.c - the completion interrupt gives the next task its permit, whatever keeps the holder
 * from running. Nothing else does: the core's patience with the holder has no end on these GPUs,
 * and the kernel ends when the next task is seen to wait.
 */
#include "gpu.h"

#include "rtxg_core.h"

#include <rtxg/page.h>

/*
 * The accelerator's interrupt is GPU 0's. The test's driver writes the fence itself: hence after.
 */
static int bind_interrupt(const char *gpu, uint32_t engine)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach),
					  .flags = RTXG_IRQ_F_BY_NAME | RTXG_IRQ_F_SOURCE |
						   RTXG_IRQ_F_AFTER,
					  .name = "rtxg_edu0",
					  .offset = RTXG_EDU_REG_IRQ_STATUS,
					  .mask = RTXG_EDU_IRQ_COMPLETE,
					  .width = 4 };
	struct rtxg_irq_bind bind = { .size = sizeof(bind), .engine = engine };
	int fd = open_rtxg(), err;

	find_pci(0x1234, 0x11e8, 0, &attach.bus, &attach.devfn);
	err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
	bind.id = attach.id;
	snprintf(bind.gpu, sizeof(bind.gpu), "%s", gpu);
	err = err ?: call(fd, RTXG_IOC_IRQ_BIND, &bind);
	check(!err, "bind: %d", err);
	return fd;
}

static void objects(int gpu)
{
	check(gpu >= 0 && !make_vgpu("a", 0) && !make_vgpu("b", 0), "objects");
}

static void no_objects(void)
{
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
}

static void pin_to(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* A kernel that stays on the device until the test ends it. */
static int launch_with_fence(rtx_gpu_t handle, int edu, volatile uint64_t *fence)
{
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	int err = rtx_gpu_launch(handle, RTX_COMPUTE);

	how.how = RTX_SYNC_FENCE;
	how.word = (volatile uint32_t *)fence;
	if (!err)
		how.value = (uint32_t)edu_launch(edu, 0);
	return err ?: how.value ? rtx_gpu_notify(handle, RTX_COMPUTE, &how) : -EIO;
}

enum holder { STOPPED, STARVED, SILENT };

struct control {
	int launched[2], go[2];
};

/* A process that launches a kernel and then does not run until it is told to. */
static pid_t fork_holder(struct control *control, enum holder how)
{
	int status = 0;
	char byte = 'x';
	pid_t child;

	if (pipe(control->launched) || pipe(control->go))
		return -1;
	fflush(NULL);
	child = fork();
	if (child) {
		close(control->launched[1]);
		check(read(control->launched[0], &byte, 1) == 1, "no holder");
		/* to be continued it must have stopped */
		if (how == STOPPED)
			check(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status),
			      "the holder does not stop: %x", status);
		return child;
	}
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	int edu = open_edu(0);
	volatile uint64_t *fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, edu, 0);
	rtx_gpu_t handle;

	options.vgpu = "a";
	if (rtx_gpu_open(&handle, &options) || launch_with_fence(handle, edu, fence))
		_exit(1);
	if (write(control->launched[1], &byte, 1) != 1)
		_exit(2);
	/* the parent's thread has that CPU already, and does not give it away */
	if (how == STARVED)
		pin_to(0);
	if (how == STOPPED)
		raise(SIGSTOP);
	if (how == SILENT && read(control->go[0], &byte, 1) != 1)
		_exit(3);
	_exit(rtx_gpu_sync(handle, RTX_COMPUTE) || rtx_gpu_launch(handle, RTX_COMPUTE) ||
			      rtx_gpu_sync(handle, RTX_COMPUTE)
		      ? 4
		      : 0);
}

static void end_kernel(void)
{
	int edu = open_edu(0);

	check(!call(edu, RTXG_EDU_END, NULL), "no kernel to end");
	close(edu);
}

static void end_holder(pid_t holder, struct control *control)
{
	int status = -1;

	kill(holder, SIGCONT);
	check(write(control->go[1], "x", 1) == 1, "go");
	waitpid(holder, &status, 0);
	check(!status, "the holder cannot go on: %x", status);
	close(control->launched[0]);
	close(control->go[0]);
	close(control->go[1]);
}

struct hog {
	pthread_t thread;
	bool runs, stop;
};

static void *hog_thread(void *argument)
{
	struct sched_param param = { .sched_priority = 40 };
	struct hog *hog = argument;

	pin_to(0);
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
	__atomic_store_n(&hog->runs, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&hog->stop, __ATOMIC_RELAXED))
		;
	return NULL;
}

/* It has CPU 0 when this returns; real-time throttling would hand that CPU to the holder. */
static void start_hog(struct hog *hog)
{
	check(!shell("echo -1 >/proc/sys/kernel/sched_rt_runtime_us"), "throttling");
	pthread_create(&hog->thread, NULL, hog_thread, hog);
	while (!__atomic_load_n(&hog->runs, __ATOMIC_ACQUIRE))
		sleep_ns(MS);
}

static void end_hog(struct hog *hog)
{
	__atomic_store_n(&hog->stop, true, __ATOMIC_RELAXED);
	pthread_join(hog->thread, NULL);
	check(!shell("echo 950000 >/proc/sys/kernel/sched_rt_runtime_us"), "throttling");
}

struct contender {
	rtx_gpu_t handle;
	pthread_t thread;
	uint64_t launched_ns;
	int err;
};

static void *contend(void *argument)
{
	struct contender *c = argument;

	c->err = rtx_gpu_launch(c->handle, RTX_COMPUTE);
	__atomic_store_n(&c->launched_ns, rtxg_now_ns(), __ATOMIC_RELAXED);
	if (!c->err)
		rtx_gpu_sync(c->handle, RTX_COMPUTE);
	return NULL;
}

/* It is b's so-many-th task that waits when this returns, or it has waited. */
static void begin_contender(struct contender *c, uint32_t priority, uint32_t waiting)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtxg_host_stats stats;

	options.vgpu = "b";
	options.priority = priority;
	check(!rtx_gpu_open(&c->handle, &options), "open: %s", rtx_strerror());
	pthread_create(&c->thread, NULL, contend, c);
	do
		check(!vgpu_stats("b", &stats), "stats");
	while (stats.waiting != waiting && !__atomic_load_n(&c->launched_ns, __ATOMIC_RELAXED) &&
	       (sleep_ns(MS), true));
}

static void end_contender(struct contender *c)
{
	pthread_join(c->thread, NULL);
	check(!c->err, "the next task got no permit: %d", c->err);
}

/* It ends in an interrupt that comes for something else, and is not seen in the register. */
static void end_kernel_unseen(void)
{
	int edu = open_edu(0);
	uint32_t other = 1;

	check(!call(edu, RTXG_EDU_JOIN, NULL) && !call(edu, RTXG_EDU_STORM, &other),
	      "no kernel to end");
	close(edu);
}

/* The next task launches while the holder does not run. */
static void next_starts_when(enum holder how, void (*end)(void))
{
	struct rtxg_host_stats stats;
	struct contender next = {};
	struct control control;
	struct hog hog = {};
	pid_t holder;
	int irq;

	objects(make_patient_gpu("0", RTXG_GPU_FIFO));
	irq = bind_interrupt("0", RTX_COMPUTE);
	pin_to(1);
	if (how == STARVED)
		start_hog(&hog);
	holder = fork_holder(&control, how);
	begin_contender(&next, 0, 1);
	end();
	end_contender(&next);
	check(!vgpu_stats("a", &stats), "stats");
	check(!stats.stats.expelled && stats.stats.completions == 1,
	      "the holder was expelled %" PRIu64 " times, completed %" PRIu64,
	      (uint64_t)stats.stats.expelled, (uint64_t)stats.stats.completions);
	/* it pays from when the next task waited, so for less than its kernel lasts */
	check(stats.stats.busy_ns > 0, "the holder paid nothing");
	if (how == STARVED)
		end_hog(&hog);
	end_holder(holder, &control);
	rtx_gpu_close(next.handle);
	close(irq);
	no_objects();
}

static void next_starts(enum holder how)
{
	next_starts_when(how, end_kernel);
}

static void test_end_is_not_seen(void)
{
	next_starts_when(STOPPED, end_kernel_unseen);
}

static void test_holder_is_stopped(void)
{
	next_starts(STOPPED);
}

static void test_holder_is_starved(void)
{
	next_starts(STARVED);
}

static void test_holder_does_something_else(void)
{
	next_starts(SILENT);
}

/* Without the interrupt, only the end of the core's patience does it: the tests above can fail. */
static void test_without_binding_patience_ends(void)
{
	struct rtxg_host_stats stats;
	struct contender next = {};
	struct control control;
	pid_t holder;

	objects(make_gpu("0", RTXG_GPU_FIFO));
	holder = fork_holder(&control, STOPPED);
	begin_contender(&next, 0, 1);
	end_kernel();
	end_contender(&next);
	check(!vgpu_stats("a", &stats), "stats");
	check(stats.stats.expelled == 1, "expelled %" PRIu64 " times",
	      (uint64_t)stats.stats.expelled);
	end_holder(holder, &control);
	rtx_gpu_close(next.handle);
	no_objects();
}

/* Of those who wait, the interrupt chooses the one with the highest priority. */
static void test_next_is_the_highest_priority(void)
{
	static const uint32_t priorities[] = { 10, 30, 20 };
	struct rtxg_host_vgpu vgpu = { .size = sizeof(vgpu),
				       .name = "b",
				       .policy = RTXG_TASK_FP,
				       .group = RTXG_HOST_EVERYBODY };
	struct contender c[3] = {};
	struct rtxg_host_stats stats;
	struct control control;
	pid_t holder;
	int irq, fd = open_rtxg();

	objects(make_patient_gpu("0", RTXG_GPU_FIFO));
	check(!call(fd, RTXG_IOC_HOST_VGPU, &vgpu), "priorities");
	close(fd);
	irq = bind_interrupt("0", RTX_COMPUTE);
	holder = fork_holder(&control, STOPPED);
	for (uint32_t i = 0; i < 3; i++)
		begin_contender(&c[i], priorities[i], i + 1);
	end_kernel();
	for (int i = 0; i < 3; i++)
		end_contender(&c[i]);
	check(c[1].launched_ns < c[2].launched_ns && c[2].launched_ns < c[0].launched_ns,
	      "not in the order of priority");
	check(!vgpu_stats("a", &stats), "stats");
	check(!stats.stats.expelled, "expelled");
	end_holder(holder, &control);
	for (int i = 0; i < 3; i++)
		rtx_gpu_close(c[i].handle);
	close(irq);
	no_objects();
}

/*
 * Many hand-overs between tasks that all wait by sleeping, each of whom loses no kernel to another.
 */
static void test_no_overlap_under_load(void)
{
	enum { TASKS = 3, JOBS = 60 };
	pid_t children[TASKS];
	struct {
		int inside, overlaps;
	} *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int irq, status;

	objects(make_patient_gpu("0", RTXG_GPU_FIFO));
	irq = bind_interrupt("0", RTX_COMPUTE);
	fflush(NULL);
	for (int i = 0; i < TASKS; i++) {
		children[i] = fork();
		if (children[i])
			continue;
		struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
		int edu = open_edu(0);
		volatile uint64_t *fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, edu, 0);
		struct rtxg_edu_stats edu_stats;
		rtx_gpu_t handle;

		options.vgpu = i % 2 ? "a" : "b";
		if (rtx_gpu_open(&handle, &options))
			_exit(1);
		for (int job = 0; job < JOBS; job++) {
			if (rtx_gpu_launch(handle, RTX_COMPUTE))
				_exit(2);
			/* what is on the device now is ours alone, from here to its end */
			struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);

			call(edu, RTXG_EDU_STATS, &edu_stats);
			if (edu_stats.launched != edu_stats.completed)
				__atomic_fetch_add(&shared->overlaps, 1, __ATOMIC_SEQ_CST);
			how.how = RTX_SYNC_FENCE;
			how.word = (volatile uint32_t *)fence;
			how.value = (uint32_t)edu_launch(edu, 200000);
			if (rtx_gpu_notify(handle, RTX_COMPUTE, &how) ||
			    rtx_gpu_sync(handle, RTX_COMPUTE))
				_exit(3);
		}
		_exit(0);
	}
	for (int i = 0; i < TASKS; i++) {
		waitpid(children[i], &status, 0);
		check(!status, "task %d: %x", i, status);
	}
	check(!shared->overlaps, "%d kernels were launched beside another's", shared->overlaps);
	munmap(shared, 4096);
	close(irq);
	no_objects();
}

/* A holder that dies with a fence named, and a word whose memory is gone. */
static void test_words_outlive_their_mapping(void)
{
	struct rtxg_host_fence fence = { .size = sizeof(fence) };
	struct rtxg_host_sync sync = { .size = sizeof(sync), .until_ns = UINT64_MAX };
	struct rtxg_host_open request = { .size = sizeof(request) };
	int fd = open_rtxg(), irq, edu = open_edu(0);
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rtxg_page *page;

	objects(make_patient_gpu("0", RTXG_GPU_FIFO));
	irq = bind_interrupt("0", RTX_COMPUTE);
	check(call(fd, RTXG_IOC_HOST_FENCE, &fence) == -EBADFD, "no task");
	check(call(fd, RTXG_IOC_HOST_SYNC, &sync) == -EBADFD, "no task to sync");
	check(!call(fd, RTXG_IOC_HOST_OPEN, &request), "open");
	check(call(fd, RTXG_IOC_HOST_SYNC, &sync) == -EOPNOTSUPP, "sync without a fence");
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fence.word = (uintptr_t)memory + 4092;
	check(!call(fd, RTXG_IOC_HOST_FENCE, &fence), "a word");
	check(!call(fd, RTXG_IOC_HOST_SYNC, &sync), "sync with a word that has passed");
	sync.value = 1;
	sync.until_ns = rtxg_now_ns() + MS;
	check(call(fd, RTXG_IOC_HOST_SYNC, &sync) == -ETIMEDOUT, "sync with one that has not");
	sync.lane = 3;
	check(call(fd, RTXG_IOC_HOST_SYNC, &sync) == -EINVAL, "sync of lane 3");
	sync.lane = 0;
	sync.reserved[2] = 1;
	check(call(fd, RTXG_IOC_HOST_SYNC, &sync) == -EINVAL, "sync, reserved");
	fence.word = (uintptr_t)memory + 4096;
	check(!call(fd, RTXG_IOC_HOST_FENCE, &fence), "another word");
	munmap(memory, 8192);
	check(call(fd, RTXG_IOC_HOST_FENCE, &fence) == -EFAULT, "a word that is gone");
	fence.word = UINT64_MAX - 3;
	check(call(fd, RTXG_IOC_HOST_FENCE, &fence) == -EFAULT, "a word of the kernel's");
	fence.word = 2;
	check(call(fd, RTXG_IOC_HOST_FENCE, &fence) == -EINVAL, "half a word");
	fence.word = 0;
	fence.lane = 3;
	check(call(fd, RTXG_IOC_HOST_FENCE, &fence) == -EINVAL, "lane 3");
	fence.lane = 0;
	fence.reserved[1] = 1;
	check(call(fd, RTXG_IOC_HOST_FENCE, &fence) == -EINVAL, "reserved");
	/* the page says what it likes, and interrupts come */
	page->lanes[0].want = 1;
	call(fd, RTXG_IOC_HOST_RING, NULL);
	page->lanes[0].in_flight = page->lanes[0].fenced = 5;
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	fence.reserved[1] = 0;
	check(!call(fd, RTXG_IOC_HOST_FENCE, &fence), "none");
	check(!edu_sync(edu, edu_launch(edu, 100000)), "kernel");
	munmap(page, 4096);
	close(fd);
	close(irq);
	close(edu);
	no_objects();
}

struct sleeper {
	pthread_t thread;
	int fd, result;
	bool ended;
};

static void *syncs_for_ever(void *argument)
{
	struct rtxg_host_sync sync = { .size = sizeof(sync), .until_ns = UINT64_MAX, .value = 1 };
	struct sleeper *sleeper = argument;

	sleeper->result = call(sleeper->fd, RTXG_IOC_HOST_SYNC, &sync);
	__atomic_store_n(&sleeper->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* It sleeps, or will before anything else is done. */
static void begin_sleeper(struct sleeper *sleeper, int fd)
{
	*sleeper = (struct sleeper){ .fd = fd };
	pthread_create(&sleeper->thread, NULL, syncs_for_ever, sleeper);
	sleep_ns(100 * MS);
	check(!__atomic_load_n(&sleeper->ended, __ATOMIC_ACQUIRE), "it did not sleep: %d",
	      sleeper->result);
}

/* One that is not told sleeps on, until it is told by hand. */
static void end_sleeper(struct sleeper *sleeper, const char *why)
{
	bool ended = false;

	for (int i = 0; i < 300 && !ended; i++) {
		sleep_ns(10 * MS);
		ended = __atomic_load_n(&sleeper->ended, __ATOMIC_ACQUIRE);
	}
	check(ended, "%s, and nothing tells it", why);
	call(sleeper->fd, RTXG_IOC_HOST_WAKE, NULL);
	pthread_join(sleeper->thread, NULL);
	check(sleeper->result == -EOPNOTSUPP, "%s: %d", why, sleeper->result);
}

/* What a thread waits for cannot come any more: the last binding goes, or the word. */
static void test_sleepers_are_told_of_the_end(void)
{
	struct rtxg_host_open request = { .size = sizeof(request) };
	struct rtxg_host_fence fence = { .size = sizeof(fence) };
	int fd = open_rtxg(), irq, second;
	struct sleeper sleeper;
	uint32_t word = 0;

	objects(make_patient_gpu("0", RTXG_GPU_FIFO));
	irq = bind_interrupt("0", RTX_COMPUTE);
	second = bind_interrupt("0", RTX_COMPUTE);
	check(!call(fd, RTXG_IOC_HOST_OPEN, &request), "open");
	fence.word = (uintptr_t)&word;
	check(!call(fd, RTXG_IOC_HOST_FENCE, &fence), "a word");
	begin_sleeper(&sleeper, fd);
	close(irq);
	sleep_ns(20 * MS);
	check(!__atomic_load_n(&sleeper.ended, __ATOMIC_ACQUIRE), "told while one is bound: %d",
	      sleeper.result);
	close(second);
	end_sleeper(&sleeper, "the last binding has gone");
	irq = bind_interrupt("0", RTX_COMPUTE);
	begin_sleeper(&sleeper, fd);
	fence.word = 0;
	check(!call(fd, RTXG_IOC_HOST_FENCE, &fence), "no word");
	end_sleeper(&sleeper, "the word has gone");
	close(irq);
	close(fd);
	no_objects();
}

static int binds(void *argument)
{
	struct rtxg_irq_bind bind = { .size = sizeof(bind), .id = 1 };

	return call(*(int *)argument, RTXG_IOC_IRQ_BIND, &bind) == -EPERM ? 0 : 1;
}

static void test_bad_bindings(void)
{
	struct rtxg_irq_bind bind = { .size = sizeof(bind), .gpu = "bound" };
	struct rtxg_irq_attach attach = { .size = sizeof(attach),
					  .flags = RTXG_IRQ_F_BY_NAME,
					  .name = "rtxg_edu0" };
	struct rtxg_host_gpu gpu = { .size = sizeof(gpu),
				     .flags = RTXG_HOST_F_REMOVE,
				     .name = "bound" };
	int fd = open_rtxg(), status = -1;
	pid_t child;

	check(call(fd, RTXG_IOC_IRQ_BIND, &bind) == -ENOENT, "no attachment");
	check(!call(fd, RTXG_IOC_HOST_GPU, &gpu), "a GPU stays bound by a call that failed");
	check(!call(fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
	bind.id = attach.id;
	bind.engine = 3;
	check(call(fd, RTXG_IOC_IRQ_BIND, &bind) == -EINVAL, "engine 3");
	bind.engine = 0;
	bind.reserved[0] = 1;
	check(call(fd, RTXG_IOC_IRQ_BIND, &bind) == -EINVAL, "reserved");
	bind.reserved[0] = 0;
	strcpy(bind.gpu, "a/b");
	check(call(fd, RTXG_IOC_IRQ_BIND, &bind) == -EINVAL, "no name");
	strcpy(bind.gpu, "bound");
	check(!call(fd, RTXG_IOC_IRQ_BIND, &bind), "bind");
	check(!call(fd, RTXG_IOC_IRQ_BIND, &bind), "bind again");
	check(call(fd, RTXG_IOC_HOST_GPU, &gpu) == -EBUSY, "removed while bound");
	bind.engine = RTXG_IRQ_UNBOUND;
	check(!call(fd, RTXG_IOC_IRQ_BIND, &bind), "unbind");
	check(!call(fd, RTXG_IOC_HOST_GPU, &gpu), "not removed when it is not bound any more");
	bind.engine = 1;
	check(!call(fd, RTXG_IOC_IRQ_BIND, &bind), "bind");
	fflush(NULL);
	child = fork();
	if (!child) {
		if (setresuid(65534, 65534, 65534))
			_exit(2);
		_exit(binds(&fd));
	}
	waitpid(child, &status, 0);
	check(!status, "an unprivileged caller: %d", status);
	close(fd);
	fd = open_rtxg();
	check(!call(fd, RTXG_IOC_HOST_GPU, &gpu), "bound after its file has closed");
	close(fd);
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module does not go");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "without_binding_patience_ends", test_without_binding_patience_ends },
		{ "holder_is_stopped", test_holder_is_stopped },
		{ "holder_is_starved", test_holder_is_starved },
		{ "holder_does_something_else", test_holder_does_something_else },
		{ "end_is_not_seen", test_end_is_not_seen },
		{ "next_is_the_highest_priority", test_next_is_the_highest_priority },
		{ "no_overlap_under_load", test_no_overlap_under_load },
		{ "words_outlive_their_mapping", test_words_outlive_their_mapping },
		{ "sleepers_are_told_of_the_end", test_sleepers_are_told_of_the_end },
		{ "bad_bindings", test_bad_bindings },
	};

	load_module();
	return RUN(cases);
}
