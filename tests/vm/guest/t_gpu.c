// SPDX-License-Identifier: MIT
/*
 * t_gpu.c - GPU tasks hosted by the module: the calls and their order, waiting, deaths, pools,
 * hostile pages. Shares and costs stand in i_gpu.c, where time is the number of instructions.
 */
#include "gpu.h"

#include <rtxg/page.h>

#include "rtxg_core.h"

static void test_calls_and_order(void)
{
	struct gpu_task task;
	int err = gpu_task_open(&task, NULL, true, true);

	if (!check(!err, "open: %d %s", err, rtx_strerror()))
		return;
	check(rtx_gpu_sync(task.handle, RTX_COMPUTE) == -EPERM, "sync before launch");
	check(rtx_gpu_notify(task.handle, RTX_COMPUTE, NULL) == -EPERM, "notify before launch");
	for (int i = 0; i < 50; i++) {
		err = gpu_job(&task, 50000);
		check(!err, "job %d: %d %s", i, err, rtx_strerror());
	}
	check(rtx_gpu_sync(task.handle, RTX_COMPUTE) == -EPERM, "second sync");
	check(!rtx_gpu_launch(task.handle, RTX_COPY_IN), "another engine");
	check(!rtx_gpu_sync(task.handle, RTX_COPY_IN), "another engine's sync");
	/*
	 * one interrupt, one wake-up: it sleeps once for each kernel, or not at all if the kernel
	 * was faster
	 */
	check(task.waits <= 50, "50 kernels, %" PRIu64 " waits", task.waits);
	struct rtx_gpu_stats stats = RTX_INIT(struct rtx_gpu_stats);

	check(!rtx_gpu_stats(task.handle, RTX_COMPUTE, &stats) && stats.launches == 50,
	      "%" PRIu64 " launches, %" PRIu64 " waits", stats.launches, stats.waits);
	gpu_task_close(&task);
}

static int fork_holder(int pipes[2], const char *vgpu, bool launch, bool in_flight)
{
	if (pipe(pipes))
		return -1;
	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		struct gpu_task task;

		if (gpu_task_open(&task, vgpu, true, true))
			_exit(1);
		if (launch && rtx_gpu_launch(task.handle, RTX_COMPUTE))
			_exit(2);
		if (in_flight)
			gpu_vendor_launch(&task, 20 * MS);
		if (write(pipes[1], "x", 1) != 1)
			_exit(3);
		for (;;)
			pause();
	}
	close(pipes[1]);
	return child;
}

/* A task dies, in each of its states: the others go on at once. */
static void test_death_in_every_state(void)
{
	struct rtxg_host_stats stats;

	check(make_gpu("0", RTXG_GPU_FIFO) >= 0, "gpu");
	check(!make_vgpu("dead", 0) && !make_vgpu("alive", 0), "vgpus");
	for (int state = 0; state < 4; state++) {
		/*
		 * 0: open; 1: holds a permit; 2: holds one with a kernel in flight; 3: waits for
		 * one that another holds
		 */
		struct gpu_task task;
		int pipes[2], err;
		char byte;
		pid_t child, holder = -1;

		if (state == 3) {
			int other[2];

			holder = fork_holder(other, "alive", true, false);
			check(read(other[0], &byte, 1) == 1, "holder");
			close(other[0]);
			fflush(NULL);
			child = fork();
			if (!child) {
				if (!gpu_task_open(&task, "dead", true, true))
					rtx_gpu_launch(task.handle, RTX_COMPUTE);
				_exit(9);
			}
			for (int i = 0; i < 5000; i++) {
				check(!vgpu_stats("dead", &stats), "stats");
				if (stats.waiting)
					break;
				sleep_ns(MS);
			}
			check(stats.waiting == 1, "%u wait", stats.waiting);
		} else {
			child = fork_holder(pipes, "dead", state >= 1, state == 2);
			check(read(pipes[0], &byte, 1) == 1, "state %d was not reached", state);
			close(pipes[0]);
		}
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		if (holder > 0) {
			kill(holder, SIGKILL);
			waitpid(holder, NULL, 0);
		}
		err = gpu_task_open(&task, "alive", true, true);
		check(!err, "open: %d", err);
		err = rtx_gpu_launch_until(task.handle, RTX_COMPUTE, rtxg_now_ns() + 10000 * MS);
		check(!err, "after state %d: launch %d", state, err);
		rtx_gpu_sync(task.handle, RTX_COMPUTE);
		gpu_task_close(&task);
		check(!vgpu_stats("dead", &stats) && !stats.waiting && !stats.tasks,
		      "state %d left %u waiting, %u tasks", state, stats.waiting, stats.tasks);
	}
	check(!remove_vgpu("dead") && !remove_vgpu("alive"), "vGPUs are still used");
}

struct launcher {
	struct gpu_task *task;
	int priority, err;
	uint64_t launched_ns;
};

static void *launcher_thread(void *argument)
{
	struct launcher *l = argument;
	struct sched_param param = { .sched_priority = l->priority };

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
	l->err = rtx_gpu_launch(l->task->handle, RTX_COMPUTE);
	l->launched_ns = rtxg_now_ns();
	if (!l->err)
		rtx_gpu_sync(l->task->handle, RTX_COMPUTE);
	return NULL;
}

/* Threads that wait for a permit are woken in order of priority. */
static void test_waiters_woken_by_priority(void)
{
	enum { COUNT = 5 };
	struct launcher l[COUNT];
	struct gpu_task holder, task;
	pthread_t threads[COUNT];
	cpu_set_t one, all;

	check(make_patient_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("a", 0) && !make_vgpu("b", 0),
	      "objects");
	check(!gpu_task_open(&holder, "a", true, true) && !gpu_task_open(&task, "b", true, true),
	      "open");
	check(!rtx_gpu_launch(holder.handle, RTX_COMPUTE), "holder");
	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	for (int i = 0; i < COUNT; i++) {
		struct rtxg_host_stats stats;

		l[i] = (struct launcher){ .task = &task, .priority = 10 + i };
		pthread_create(&threads[i], NULL, launcher_thread, &l[i]);
		for (int j = 0; j < 60000; j++) {
			vgpu_stats("b", &stats);
			if (stats.waiting)
				break;
			sleep_ns(MS);
		}
		/*
		 * on this CPU a thread of a higher priority has gone as far as it can before we run
		 * again
		 */
		sleep_ns(5 * MS);
	}
	rtx_gpu_sync(holder.handle, RTX_COMPUTE);
	for (int i = 0; i < COUNT; i++)
		pthread_join(threads[i], NULL);
	sched_setaffinity(0, sizeof(all), &all);
	for (int i = 0; i < COUNT; i++) {
		check(!l[i].err, "thread %d: %d", i, l[i].err);
		if (i)
			check(l[i].launched_ns <= l[i - 1].launched_ns,
			      "priority %d launched after %d", 10 + i, 9 + i);
	}
	gpu_task_close(&task);
	gpu_task_close(&holder);
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
}

struct crowd {
	int fd;
	const struct rtxg_page *page;
	unsigned int refused, woken;
};

static void *raw_waiter(void *argument)
{
	struct crowd *crowd = argument;
	struct rtxg_host_wait wait = { .size = sizeof(wait),
				       .value = crowd->page->lanes[0].permit,
				       .until_ns = UINT64_MAX };
	int err = call(crowd->fd, RTXG_IOC_HOST_WAIT, &wait);

	if (err == -EAGAIN)
		__atomic_fetch_add(&crowd->refused, 1, __ATOMIC_SEQ_CST);
	else if (!err)
		__atomic_fetch_add(&crowd->woken, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Of a hundred threads that wait for a lane 64 sleep in the kernel, and the others are told so. */
static void test_waiters_are_limited(void)
{
	enum { COUNT = 100 };
	struct rtxg_host_open request = { .size = sizeof(request) };
	struct crowd crowd = { .fd = open_rtxg() };
	pthread_t threads[COUNT];

	check(!call(crowd.fd, RTXG_IOC_HOST_OPEN, &request), "open");
	crowd.page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, crowd.fd, 0);
	if (!check(crowd.page != MAP_FAILED, "map"))
		return;
	for (int i = 0; i < COUNT; i++)
		pthread_create(&threads[i], NULL, raw_waiter, &crowd);
	for (int i = 0; i < 60000 && __atomic_load_n(&crowd.refused, __ATOMIC_SEQ_CST) <
					     COUNT - RTXG_HOST_WAITERS;
	     i++)
		sleep_ns(MS);
	check(!call(crowd.fd, RTXG_IOC_HOST_WAKE, NULL), "wake");
	for (int i = 0; i < COUNT; i++)
		pthread_join(threads[i], NULL);
	check(crowd.refused == COUNT - RTXG_HOST_WAITERS && crowd.woken == RTXG_HOST_WAITERS,
	      "%u refused, %u woken", crowd.refused, crowd.woken);
	munmap((void *)crowd.page, 4096);
	close(crowd.fd);
}

static void *patient_thread(void *argument)
{
	struct launcher *l = argument;

	do
		l->err = rtx_gpu_launch(l->task->handle, RTX_COMPUTE);
	while (l->err == -EAGAIN && !sched_yield()); /* too many in flight */
	if (!l->err)
		rtx_gpu_sync(l->task->handle, RTX_COMPUTE);
	return NULL;
}

/* A program may have more threads wait for a permit than the module lets sleep. */
static void test_a_crowd_gets_its_permits(void)
{
	enum { COUNT = 100 };
	struct launcher l[COUNT];
	struct gpu_task holder, task;
	struct rtxg_host_stats stats;
	pthread_t threads[COUNT];

	check(make_patient_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("a", 0) && !make_vgpu("b", 0),
	      "objects");
	check(!gpu_task_open(&holder, "a", true, true) && !gpu_task_open(&task, "b", true, true),
	      "open");
	check(!rtx_gpu_launch(holder.handle, RTX_COMPUTE), "holder");
	for (int i = 0; i < COUNT; i++) {
		l[i] = (struct launcher){ .task = &task };
		pthread_create(&threads[i], NULL, patient_thread, &l[i]);
	}
	do
		vgpu_stats("b", &stats);
	while (!stats.waiting && (sleep_ns(MS), true));
	sleep_ns(50 * MS); /* so that many of them wait at once */
	rtx_gpu_sync(holder.handle, RTX_COMPUTE);
	for (int i = 0; i < COUNT; i++) {
		pthread_join(threads[i], NULL);
		check(!l[i].err, "thread %d: %d", i, l[i].err);
	}
	gpu_task_close(&task);
	gpu_task_close(&holder);
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
}

static void nothing(int signal)
{
}

static void *interrupted_thread(void *argument)
{
	struct launcher *l = argument;

	l->err = rtx_gpu_launch(l->task->handle, RTX_COMPUTE);
	return NULL;
}

static void test_waiting_is_interruptible(void)
{
	struct sigaction action = { .sa_handler = nothing };
	struct rtxg_host_stats stats;
	struct gpu_task holder, task;
	struct launcher l = { .task = &task };
	pthread_t thread;

	sigaction(SIGUSR1, &action, NULL);
	check(make_patient_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("a", 0) && !make_vgpu("b", 0),
	      "objects");
	check(!gpu_task_open(&holder, "a", true, true) && !gpu_task_open(&task, "b", true, true),
	      "open");
	check(!rtx_gpu_launch(holder.handle, RTX_COMPUTE), "holder");
	check(rtx_gpu_launch_until(task.handle, RTX_COMPUTE, rtxg_now_ns() + 5 * MS) == -ETIMEDOUT,
	      "no timeout");
	pthread_create(&thread, NULL, interrupted_thread, &l);
	do
		vgpu_stats("b", &stats);
	while (!stats.waiting && (sleep_ns(MS), true));
	sleep_ns(20 * MS);
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
	check(l.err == -EINTR, "a signal gave %d", l.err);
	vgpu_stats("b", &stats);
	check(!stats.waiting, "still waits after the signal");
	rtx_gpu_sync(holder.handle, RTX_COMPUTE);
	check(!rtx_gpu_launch(task.handle, RTX_COMPUTE), "launch after the signal");
	rtx_gpu_sync(task.handle, RTX_COMPUTE);
	gpu_task_close(&task);
	gpu_task_close(&holder);
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
}

/*
 * A task that writes garbage all over its page, at random and all the time, harms only itself.
 */
static void test_hostile_page(void)
{
	struct gpu_task task;
	int pipes[2], err;
	char byte;

	check(make_gpu("0", RTXG_GPU_CBS) >= 0 && !make_vgpu("bad", 10) && !make_vgpu("good", 40),
	      "objects");
	if (pipe(pipes))
		return;
	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		struct rtxg_host_open open_task = { .size = sizeof(open_task), .vgpu = "bad" };
		int fd = open_rtxg();
		uint64_t state = 20261121;
		uint32_t *page;

		if (call(fd, RTXG_IOC_HOST_OPEN, &open_task))
			_exit(1);
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (page == MAP_FAILED || write(pipes[1], "x", 1) != 1)
			_exit(2);
		for (;;) {
			for (int i = 0; i < 200; i++) {
				state = state * 6364136223846793005ull + 1442695040888963407ull;
				page[(state >> 33) % 1024] =
					state >> 40 & 7 ? state >> 13 : state >> 60;
			}
			call(fd, RTXG_IOC_HOST_RING, NULL);
		}
	}
	check(read(pipes[0], &byte, 1) == 1, "the hostile task did not start");
	err = gpu_task_open(&task, "good", true, true);
	check(!err, "open: %d", err);
	for (int i = 0; i < 100; i++) {
		err = gpu_job(&task, 20000);
		check(!err, "job %d: %d %s", i, err, rtx_strerror());
	}
	gpu_task_close(&task);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(pipes[0]);
	close(pipes[1]);
	check(!remove_vgpu("bad") && !remove_vgpu("good"), "remove");
}

static void *pool_thread(void *argument)
{
	struct launcher *l = argument;
	char device[64];

	l->err = rtx_gpu_pool_acquire(l->task->handle, "both", device, sizeof(device));
	if (!l->err) {
		l->launched_ns = rtxg_now_ns();
		l->err = rtx_gpu_pool_release(l->task->handle, "both");
	}
	return NULL;
}

static void test_pool(void)
{
	struct rtxg_host_pool pool = { .size = sizeof(pool), .name = "both" };
	int one = make_gpu("one", RTXG_GPU_CBS), two = make_gpu("two", RTXG_GPU_CBS),
	    fd = open_rtxg();
	struct gpu_task task[3];
	char device[3][64] = {};
	struct launcher l;
	pthread_t thread;

	check(one >= 0 && two >= 0, "gpus: %d %d", one, two);
	pool.mask = 1ull << one | 1ull << two;
	check(!call(fd, RTXG_IOC_HOST_POOL, &pool), "pool");
	check(call(fd, RTXG_IOC_HOST_POOL, &pool) == -EEXIST, "pool twice");
	for (int i = 0; i < 3; i++)
		check(!gpu_task_open(&task[i], NULL, true, true), "open");
	check(!rtx_gpu_pool_acquire(task[0].handle, "both", device[0], 64), "first");
	check(!call(fd, RTXG_IOC_HOST_ADVICE, &pool) && strcmp(pool.gpu, device[0]),
	      "advice %s, %s is taken", pool.gpu, device[0]);
	check(!rtx_gpu_pool_acquire(task[1].handle, "both", device[1], 64), "second");
	check(strcmp(device[0], device[1]), "both got %s", device[0]);
	l = (struct launcher){ .task = &task[2] };
	pthread_create(&thread, NULL, pool_thread, &l);
	sleep_ns(20 * MS);
	uint64_t released = rtxg_now_ns();

	check(!l.launched_ns, "a third got a GPU of two");
	check(!rtx_gpu_pool_release(task[0].handle, "both"), "release");
	pthread_join(thread, NULL);
	check(!l.err && l.launched_ns >= released, "third: %d", l.err);
	/* task 1 holds its GPU still when it dies */
	for (int i = 0; i < 3; i++)
		gpu_task_close(&task[i]);
	pool.flags = RTXG_HOST_F_REMOVE;
	check(!call(fd, RTXG_IOC_HOST_POOL, &pool), "the pool is still used");
	close(fd);
}

static void test_bad_requests(void)
{
	struct rtxg_host_open good = { .size = sizeof(good) }, bad;
	struct rtxg_host_vgpu vgpu = { .size = sizeof(vgpu),
				       .name = "v",
				       .group = RTXG_HOST_EVERYBODY };
	struct rtxg_host_wait wait = { .size = sizeof(wait), .lane = 3 };
	struct rtxg_host_set set = { .size = sizeof(set), .priority = 100 };
	int fd = open_rtxg();

	struct rtxg_host_gpu gone = { .size = sizeof(gone),
				      .flags = RTXG_HOST_F_REMOVE,
				      .name = "refused" };
	struct rtxg_host_vgpu much = vgpu;

	check(make_gpu_with("refused", 99, 0) == -EINVAL, "a policy that does not exist");
	check(call(fd, RTXG_IOC_HOST_GPU, &gone) == -ENOENT, "the refused GPU is there");
	much.min_ppm = 2000000;
	snprintf(much.gpu, sizeof(much.gpu), "refused");
	check(call(fd, RTXG_IOC_HOST_VGPU, &much) < 0, "a vGPU with 200 %% of a GPU");
	check(call(fd, RTXG_IOC_HOST_GPU, &gone) == -ENOENT, "the refused vGPU's GPU is there");
	check(call(fd, RTXG_IOC_HOST_RING, NULL) == -EBADFD, "ring before open");
	check(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, "mapped before open");
#define refused(change, err)                                 \
	do {                                                 \
		bad = good;                                  \
		change;                                      \
		int r_ = call(fd, RTXG_IOC_HOST_OPEN, &bad); \
		check(r_ == (err), #change ": %d", r_);      \
	} while (0)
	refused(bad.size = 4, -EINVAL);
	refused(bad.flags = 1, -EINVAL);
	refused(bad.reserved[3] = 1, -EINVAL);
	refused(bad.priority = 100, -EINVAL);
	refused(memset(bad.gpu, 'x', sizeof(bad.gpu)), -EINVAL);
	/* a byte that is not UTF-8, a control of terminals, a mark of direction, a cut character */
	refused(strcpy(bad.gpu, "g\xff"), -EINVAL);
	refused(strcpy(bad.gpu, "g\xc2\x9b"), -EINVAL);
	refused(strcpy(bad.gpu, "g\xe2\x80\xae"), -EINVAL);
	refused(strcpy(bad.gpu, "g\xc3"), -EINVAL);
	refused(strcpy(bad.vgpu, "nobody"), -ENOENT);
	check(!call(fd, RTXG_IOC_HOST_OPEN, &good), "open");
	check(call(fd, RTXG_IOC_HOST_OPEN, &good) == -EALREADY, "open twice");
	check(call(fd, RTXG_IOC_HOST_WAIT, &wait) == -EINVAL, "wait on lane 3");
	check(call(fd, RTXG_IOC_HOST_WAKE, (void *)7) == -EINVAL, "wake lane 7");
	check(call(fd, RTXG_IOC_HOST_SET, &set) == -EINVAL, "priority 100");
	check(mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, "two pages");
	check(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED, "second page");
	check(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED,
	      "private");
	check(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) == MAP_FAILED,
	      "executable");
	vgpu.min_ppm = 1000001;
	check(call(fd, RTXG_IOC_HOST_VGPU, &vgpu) == -EINVAL, "more than all");
	vgpu.min_ppm = 700000;
	check(!call(fd, RTXG_IOC_HOST_VGPU, &vgpu), "70 %%");
	strcpy(vgpu.name, "w");
	check(call(fd, RTXG_IOC_HOST_VGPU, &vgpu) == -ENOSPC, "140 %% promised");
	strcpy(vgpu.name, "v");
	/* a page that outlives its file is only memory */
	uint32_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	check(page != MAP_FAILED, "map");
	if (page != MAP_FAILED) {
		memset(page, 0xff, 4096);
		munmap(page, 4096);
	}
	check(!remove_vgpu("v"), "remove");
	/*
	 * names that tasks think up go with them: there is room for the sixteenth as for the first
	 */
	for (int i = 0; i < 40; i++) {
		int other = open_rtxg();

		memset(&bad, 0, sizeof(bad));
		bad.size = sizeof(bad);
		snprintf(bad.gpu, sizeof(bad.gpu), "made-up-%d", i);
		int err = call(other, RTXG_IOC_HOST_OPEN, &bad);

		check(!err, "GPU %s: %d", bad.gpu, err);
		close(other);
	}
	/* the group of a vGPU is checked; administration needs privilege */
	fd = open_rtxg();
	vgpu.group = 4242;
	vgpu.min_ppm = 0;
	check(!call(fd, RTXG_IOC_HOST_VGPU, &vgpu), "a group's vGPU");
	close(fd);
	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		int ours = 0;

		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(2);
		fd = open_rtxg();
		strcpy(good.vgpu, "v");
		ours |= call(fd, RTXG_IOC_HOST_OPEN, &good) == -EACCES ? 0 : 4;
		ours |= call(fd, RTXG_IOC_HOST_VGPU, &vgpu) == -EPERM ? 0 : 8;
		strcpy(good.vgpu, "");
		ours |= call(fd, RTXG_IOC_HOST_OPEN, &good) == 0 ? 0 : 16;
		_exit(ours);
	}
	int status = -1;

	waitpid(child, &status, 0);
	check(!status, "an unprivileged caller: %x", status);
	check(!remove_vgpu("v"), "remove");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "calls_and_order", test_calls_and_order },
		{ "bad_requests", test_bad_requests },
		{ "death_in_every_state", test_death_in_every_state },
		{ "waiters_woken_by_priority", test_waiters_woken_by_priority },
		{ "waiters_are_limited", test_waiters_are_limited },
		{ "a_crowd_gets_its_permits", test_a_crowd_gets_its_permits },
		{ "waiting_is_interruptible", test_waiting_is_interruptible },
		{ "hostile_page", test_hostile_page },
		{ "pool", test_pool },
	};

	load_module();
	setenv("RTXG_HOST", "module", 1);
	return RUN(cases);
}
