/* SPDX-License-Identifier: MIT */
/*
 * t_front.c - looking at the module's tasks and changing them: first by ioctl, then through rtxgd,
 * which speaks for the module. Permissions, bounds, moves, and the state after rtxgd was killed.
 */
#include "gpu.h"

#include "rtxg_core.h"

#include <sys/prctl.h>
#include <sys/stat.h>

#define NOBODY 65534

/* ---- by ioctl ---- */

static int list(int fd, uint32_t what, uint32_t from, uint32_t count, uint32_t entry, void *rows,
		uint32_t *next)
{
	struct rtxg_host_list request = { .size = sizeof(request),
					  .what = what,
					  .from = from,
					  .count = count,
					  .entry = entry,
					  .entries = (uintptr_t)rows };
	int err = call(fd, RTXG_IOC_HOST_LIST, &request);

	if (next)
		*next = request.from;
	return err ?: (int)request.count;
}

/* The task of that number, by a walk in small steps as a front does it. */
static bool find_task(uint32_t number, struct rtxg_host_task *task)
{
	struct rtxg_host_task rows[3];
	uint32_t from = 0;
	int fd = open_rtxg(), n;
	bool found = false;

	while ((n = list(fd, RTXG_HOST_LIST_TASKS, from, 3, sizeof(rows[0]), rows, &from)) > 0)
		for (int i = 0; i < n; i++)
			if (rows[i].number == number) {
				*task = rows[i];
				found = true;
			}
	close(fd);
	return found;
}

static int open_in(int *fd, struct rtxg_host_open *open_task, const char *vgpu)
{
	*fd = open_rtxg();
	*open_task = (struct rtxg_host_open){ .size = sizeof(*open_task) };
	strcpy(open_task->vgpu, vgpu);
	return call(*fd, RTXG_IOC_HOST_OPEN, open_task);
}

static int change(const struct rtxg_host_task *task, const char *vgpu, uint32_t priority)
{
	struct rtxg_host_change request = { .size = sizeof(request),
					    .serial = task->serial,
					    .number = task->number,
					    .priority = priority };
	int fd = open_rtxg(), err;

	request.flags = (vgpu ? RTXG_HOST_F_MOVE : 0) | (priority ? RTXG_HOST_F_PARAMS : 0);
	if (vgpu)
		strcpy(request.vgpu, vgpu);
	err = call(fd, RTXG_IOC_HOST_TASK, &request);
	close(fd);
	return err;
}

/* Runs a function as another user. Returns the exit status: a mask of the failed checks. */
static int as_user(unsigned int uid, int (*run)(void *argument), void *argument)
{
	int status = -1;

	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
			_exit(255);
		_exit(run(argument));
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

static int look_at_others(void *argument)
{
	struct rtxg_host_front front = { .size = sizeof(front) };
	struct rtxg_host_info info = { .size = sizeof(info) };
	struct rtxg_host_task row;
	int fd = open_rtxg(), wrong = 0;

	for (uint32_t what = RTXG_HOST_LIST_GPUS; what <= RTXG_HOST_LIST_TASKS; what++)
		wrong |= list(fd, what, 0, 1, sizeof(row), &row, NULL) == -EPERM ? 0 : 1;
	wrong |= change(argument, "there", 0) == -EPERM ? 0 : 2;
	wrong |= change(argument, NULL, 5) == -EPERM ? 0 : 4;
	wrong |= call(fd, RTXG_IOC_HOST_FRONT, &front) == -EPERM ? 0 : 8;
	/* facts that any process may ask for */
	wrong |= !call(fd, RTXG_IOC_HOST_INFO, &info) && info.max_tasks == 1024 && info.tasks >= 1
			 ? 0
			 : 16;
	return wrong;
}

static void test_lists(void)
{
	static struct rtxg_host_task rows[RTXG_HOST_LIST_MAX];
	struct rtxg_host_account account[8];
	struct rtxg_host_open tasks[7];
	struct rtxg_host_task task = {};
	struct {
		struct rtxg_host_task known;
		uint64_t later;
	} grown;
	struct {
		uint32_t number, flags;
		uint64_t serial;
	} first;
	int fds[7], fd = open_rtxg(), n;
	uint32_t next;

	check(make_gpu("0", RTXG_GPU_CBS) >= 0 && !make_vgpu("here", 20) && !make_vgpu("there", 0),
	      "objects");
	for (int i = 0; i < 7; i++)
		check(!open_in(&fds[i], &tasks[i], i % 2 ? "here" : "there"), "open %d", i);
	n = list(fd, RTXG_HOST_LIST_TASKS, 0, RTXG_HOST_LIST_MAX, sizeof(rows[0]), rows, &next);
	check(n == 7 && next == 1024, "%d tasks, next %u", n, next);
	for (int i = 0; i < n; i++) {
		check(rows[i].number == tasks[i].task && rows[i].pid == (uint32_t)getpid() &&
			      !rows[i].uid,
		      "row %d: task %u of %u", i, rows[i].number, rows[i].pid);
		check(!strcmp(rows[i].comm, "t_front") && !strcmp(rows[i].gpu, "0") &&
			      !strcmp(rows[i].vgpu, i % 2 ? "here" : "there"),
		      "row %d: %s %s %s", i, rows[i].comm, rows[i].gpu, rows[i].vgpu);
		check(i == 0 || rows[i].serial > rows[i - 1].serial, "serial");
	}
	/* in steps, from the middle, from beyond */
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, 2, sizeof(rows[0]), rows, &next) == 2 &&
		      next == tasks[1].task + 1,
	      "two: next %u", next);
	check(list(fd, RTXG_HOST_LIST_TASKS, tasks[6].task, 2, sizeof(rows[0]), rows, &next) == 1,
	      "the last");
	check(list(fd, RTXG_HOST_LIST_TASKS, UINT32_MAX, 2, sizeof(rows[0]), rows, &next) == 0,
	      "beyond");
	/* callers that know less, and more, than the module */
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, 1, sizeof(first), &first, NULL) == 1 &&
		      first.number == tasks[0].task,
	      "a short row");
	memset(&grown, 0xff, sizeof(grown));
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, 1, sizeof(grown), &grown, NULL) == 1 &&
		      !grown.later && grown.known.serial == first.serial,
	      "a long row");
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, 0, sizeof(rows[0]), rows, NULL) == -EINVAL,
	      "no room");
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, RTXG_HOST_LIST_MAX + 1, sizeof(rows[0]), rows,
		   NULL) == -EINVAL,
	      "too many");
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, 1, 4, rows, NULL) == -EINVAL, "rows of 4 bytes");
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, 1, 8192, rows, NULL) == -EINVAL,
	      "rows of 8192 bytes");
	check(list(fd, 4, 0, 1, sizeof(rows[0]), rows, NULL) == -EINVAL,
	      "a list that there is not");
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, 1, sizeof(rows[0]), (void *)8, NULL) == -EFAULT,
	      "nowhere");
	n = list(fd, RTXG_HOST_LIST_VGPUS, 0, 8, sizeof(account[0]), account, NULL);
	check(n == 2 && !strcmp(account[0].vgpu.name, "here") &&
		      account[0].vgpu.min_ppm == 200000 && account[0].tasks == 3 &&
		      account[1].tasks == 4,
	      "%d vGPUs, %s, %u ppm, %u and %u tasks", n, account[0].vgpu.name,
	      account[0].vgpu.min_ppm, account[0].tasks, account[1].tasks);
	check(find_task(tasks[0].task, &task), "task %u", tasks[0].task);
	n = as_user(NOBODY, look_at_others, &task);
	check(!n, "an unprivileged user: %x", n);
	for (int i = 0; i < 7; i++)
		close(fds[i]);
	check(list(fd, RTXG_HOST_LIST_TASKS, 0, 1, sizeof(rows[0]), rows, NULL) == 0,
	      "tasks are left");
	close(fd);
	check(!remove_vgpu("here") && !remove_vgpu("there"), "remove");
}

static void *wait_for_permit(void *argument)
{
	return (void *)(intptr_t)rtx_gpu_launch(argument, RTX_COMPUTE);
}

static rtx_gpu_t open_handle(const char *vgpu, uint32_t *number)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	static struct rtxg_host_task rows[RTXG_HOST_LIST_MAX];
	int fd = open_rtxg(), n;
	rtx_gpu_t handle = NULL;
	uint64_t newest = 0;

	options.vgpu = vgpu;
	check(!rtx_gpu_open(&handle, &options), "open: %s", rtx_strerror());
	n = list(fd, RTXG_HOST_LIST_TASKS, 0, RTXG_HOST_LIST_MAX, sizeof(rows[0]), rows, NULL);
	for (int i = 0; i < n; i++)
		if (rows[i].serial > newest) {
			newest = rows[i].serial;
			*number = rows[i].number;
		}
	close(fd);
	return handle;
}

/*
 * A move works as in the daemon: not while a launch is in flight; a task that waits goes on waiting
 * in the new vGPU; a task keeps the account of the time that it used.
 */
static void test_move(void)
{
	struct rtxg_host_stats stats;
	struct rtxg_host_task task = {}, stale = {};
	uint32_t a_number = 0, b_number = 0;
	rtx_gpu_t a, b;
	pthread_t thread;
	void *result;

	check(make_patient_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("from", 0) &&
		      !make_vgpu("to", 30),
	      "objects");
	a = open_handle("from", &a_number);
	b = open_handle("from", &b_number);
	/* idle with a permit: at once */
	check(!rtx_gpu_launch(a, RTX_COMPUTE) && !rtx_gpu_sync(a, RTX_COMPUTE), "launch");
	check(find_task(a_number, &task) && task.lanes[0].state == RTXG_HOST_HOLDS, "state %u",
	      task.lanes[0].state);
	uint64_t grants = task.lanes[0].stats.grants;

	check(grants >= 1 && !change(&task, "to", 0), "move");
	check(find_task(a_number, &task) && !strcmp(task.vgpu, "to") && !task.moving_to[0] &&
		      task.lanes[0].stats.grants == grants,
	      "%s, %" PRIu64 " grants", task.vgpu, (uint64_t)task.lanes[0].stats.grants);
	check(!rtx_gpu_launch(a, RTX_COMPUTE), "launch after the move");
	check(find_task(a_number, &task) && task.lanes[0].stats.grants == grants + 1,
	      "counters begin at 0 again");
	/* in flight: not yet; and neither vGPU can go meanwhile */
	check(!change(&task, "from", 0) && find_task(a_number, &task), "move back");
	check(!strcmp(task.vgpu, "to") && !strcmp(task.moving_to, "from"), "%s, moving to \"%s\"",
	      task.vgpu, task.moving_to);
	check(remove_vgpu("to") == -EBUSY, "a vGPU in use went");
	/* another changes its mind: where it is going last counts */
	check(!change(&task, "to", 7) && find_task(a_number, &task) &&
		      !strcmp(task.moving_to, "to") && task.priority == 7,
	      "again: %s", task.moving_to);
	check(!change(&task, "from", 0), "and back");
	/* another task waits behind it */
	pthread_create(&thread, NULL, wait_for_permit, b);
	do
		vgpu_stats("from", &stats);
	while (!stats.waiting && (sleep_ns(MS), true));
	check(find_task(b_number, &stale) && !change(&stale, "to", 0), "a waiting task");
	check(find_task(b_number, &stale) && !strcmp(stale.vgpu, "to") &&
		      stale.lanes[0].state == RTXG_HOST_WAITING,
	      "%s, state %u", stale.vgpu, stale.lanes[0].state);
	check(!rtx_gpu_sync(a, RTX_COMPUTE), "sync");
	pthread_join(thread, &result);
	check(!result, "the waiting task: %d", (int)(intptr_t)result);
	for (int i = 0; i < 60000 && find_task(a_number, &task) && task.moving_to[0]; i++)
		sleep_ns(MS);
	check(!strcmp(task.vgpu, "from") && !task.moving_to[0], "%s", task.vgpu);
	check(!rtx_gpu_sync(b, RTX_COMPUTE) && !rtx_gpu_launch(a, RTX_COMPUTE) &&
		      !rtx_gpu_sync(a, RTX_COMPUTE),
	      "both go on");
	check(change(&task, "nowhere", 0) == -ENOENT && change(&task, NULL, 100) == -EINVAL,
	      "bad changes");
	check(find_task(a_number, &task) && task.priority == 7, "priority %u", task.priority);
	/* dies on its way */
	check(!rtx_gpu_launch(a, RTX_COMPUTE) && !change(&task, "to", 0), "on its way");
	rtx_gpu_close(a);
	check(change(&task, "to", 0) == -ESRCH, "a task that has ended");
	rtx_gpu_close(b);
	check(!remove_vgpu("from") && !remove_vgpu("to"), "the vGPUs are still used");
}

/*
 * Tasks that launch without end are moved to and fro all the time, and one is killed: two tasks
 * never run at once, and all others go on.
 */
static void test_moves_under_load(void)
{
	enum { TASKS = 3, MOVES = 400 };
	static const char *const vgpus[] = { "first", "second", "third" };
	struct shared {
		int inside, overlaps, stop;
		uint64_t launches[TASKS];
	} *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	struct rtxg_host_task rows[RTXG_HOST_LIST_MAX];
	uint64_t state = 7, before[TASKS];
	int fd = open_rtxg(), moved = 0, early = 0, status;
	pid_t child[TASKS];

	check(make_gpu("0", RTXG_GPU_CBS) >= 0 && !make_vgpu("first", 50) &&
		      !make_vgpu("second", 20) && !make_vgpu("third", 0),
	      "objects");
	fflush(NULL);
	for (int i = 0; i < TASKS; i++) {
		child[i] = fork();
		if (child[i])
			continue;
		struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
		rtx_gpu_t handle;

		options.vgpu = vgpus[i];
		if (rtx_gpu_open(&handle, &options))
			_exit(1);
		while (!__atomic_load_n(&shared->stop, __ATOMIC_SEQ_CST)) {
			if (rtx_gpu_launch(handle, RTX_COMPUTE))
				_exit(2);
			if (__atomic_fetch_add(&shared->inside, 1, __ATOMIC_SEQ_CST))
				__atomic_fetch_add(&shared->overlaps, 1, __ATOMIC_SEQ_CST);
			if (shared->launches[i] % 4 == 0)
				sleep_ns(50000);
			__atomic_fetch_sub(&shared->inside, 1, __ATOMIC_SEQ_CST);
			shared->launches[i]++;
			if (rtx_gpu_sync(handle, RTX_COMPUTE))
				_exit(3);
		}
		_exit(rtx_gpu_close(handle) ? 4 : 0);
	}
	for (int i = 0; i < MOVES; i++) {
		int n = list(fd, RTXG_HOST_LIST_TASKS, 0, RTXG_HOST_LIST_MAX, sizeof(rows[0]), rows,
			     NULL);

		state = state * 6364136223846793005ull + 1442695040888963407ull;
		if (n > 0)
			moved += !change(&rows[(state >> 33) % n], vgpus[(state >> 40) % 3], 0);
		if (i == MOVES / 2) {
			/* with whatever it holds just then; what it was inside of ends with it */
			kill(child[0], SIGSTOP);
			sleep_ns(5 * MS);
			early = shared->overlaps;
			if (__atomic_load_n(&shared->inside, __ATOMIC_SEQ_CST))
				/* the count means nothing from here on */
				__atomic_store_n(&shared->inside, -1000, __ATOMIC_SEQ_CST);
			kill(child[0], SIGKILL);
			waitpid(child[0], &status, 0);
		}
		sleep_ns(MS);
	}
	check(moved > MOVES / 2, "%d of %d moves", moved, MOVES);
	for (int i = 1; i < TASKS; i++)
		before[i] = shared->launches[i];
	for (int i = 0; i < 60000 && (shared->launches[1] < before[1] + 5 ||
				      shared->launches[2] < before[2] + 5);
	     i++)
		sleep_ns(MS);
	for (int i = 1; i < TASKS; i++)
		check(shared->launches[i] >= before[i] + 5,
		      "task %d does not go on after %" PRIu64 " launches", i, before[i]);
	__atomic_store_n(&shared->stop, 1, __ATOMIC_SEQ_CST);
	for (int i = 1; i < TASKS; i++) {
		waitpid(child[i], &status, 0);
		check(!status, "task %d: %x", i, status);
	}
	check(!early && (!shared->overlaps || shared->inside < 0), "%d times two at once",
	      shared->overlaps);
	note("%d moves, %" PRIu64 " launches", moved,
	     shared->launches[0] + shared->launches[1] + shared->launches[2]);
	for (int i = 0; i < 3; i++)
		check(!remove_vgpu(vgpus[i]), "%s is still used", vgpus[i]);
	munmap(shared, sizeof(*shared));
	close(fd);
}

static int open_four(void *argument)
{
	struct rtxg_host_open task;
	int fds[4], wrong = 0;

	for (int i = 0; i < 4; i++) {
		int err = open_in(&fds[i], &task, "");

		wrong |= err == (i < 3 ? 0 : -EDQUOT) ? 0 : 1 << i;
	}
	/* librtxg says it as the daemon does */
	rtx_gpu_t handle;

	wrong |= rtx_gpu_open(&handle, NULL) == -ENOSPC && strstr(rtx_strerror(), "TasksPerUser")
			 ? 0
			 : 16;
	close(fds[1]);
	wrong |= open_in(&fds[1], &task, "") ? 32 : 0;
	/*
	 * passing a file on does not make room, and who opened it is who is charged: root here has
	 * none of ours
	 */
	return wrong;
}

static void test_limit_of_a_user(void)
{
	struct rtxg_host_open task;
	int fds[5], wrong;

	check(!shell("echo 3 >/sys/module/rtxg/parameters/tasks_per_user"), "the parameter");
	/* root has CAP_SYS_RESOURCE */
	for (int i = 0; i < 5; i++)
		check(!open_in(&fds[i], &task, ""), "root's task %d", i);
	wrong = as_user(NOBODY, open_four, NULL);
	check(!wrong, "user %u: %x", NOBODY, wrong);
	wrong = as_user(4243, open_four, NULL);
	check(!wrong, "another user: %x", wrong);
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	check(!shell("echo 512 >/sys/module/rtxg/parameters/tasks_per_user"), "the parameter");
}

/*
 * As one of the users of a user namespace that another process describes: a mask of what was open.
 */
static int open_as_many(int ready, int mapped)
{
	int fds[4], opened = 0;
	char byte = 'x';

	if (unshare(CLONE_NEWUSER) || write(ready, &byte, 1) != 1 || read(mapped, &byte, 1) != 1)
		return 255;
	for (unsigned int uid = 1; uid <= 4; uid++) {
		struct rtxg_host_open task;

		/* the next one keeps what the one before has opened */
		if (setresuid(uid, uid, 0))
			return 254;
		opened += !open_in(&fds[uid - 1], &task, "");
		if (setresuid(0, 0, 0))
			return 253;
	}
	return opened;
}

/* Whoever a user becomes in a namespace of its own: its limit is one. */
static void test_limit_of_a_user_namespace(void)
{
	int ready[2], mapped[2], status = -1;
	char path[64], byte = 'x';
	pid_t child;
	FILE *map;

	check(!shell("echo 3 >/sys/module/rtxg/parameters/tasks_per_user"), "the parameter");
	if (!check(!pipe(ready) && !pipe(mapped), "pipe"))
		return;
	fflush(NULL);
	child = fork();
	if (!child) {
		if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
			_exit(252);
		/* or root may not write its map */
		prctl(PR_SET_DUMPABLE, 1);
		_exit(open_as_many(ready[1], mapped[0]));
	}
	if (check(read(ready[0], &byte, 1) == 1, "no namespace")) {
		snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
		map = fopen(path, "w");
		check(map && fprintf(map, "0 %u 1\n1 100000 10\n", NOBODY) > 0 && !fclose(map),
		      "no map: %d", errno);
		check(write(mapped[1], &byte, 1) == 1, "write");
	}
	waitpid(child, &status, 0);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 3, "%x instead of 3 tasks of one user",
	      status);
	for (int i = 0; i < 2; i++) {
		close(ready[i]);
		close(mapped[i]);
	}
	check(!shell("echo 512 >/sys/module/rtxg/parameters/tasks_per_user"), "the parameter");
}

static int name_many(void *unused)
{
	int made = 0;

	for (int i = 0; i < 40; i++) {
		struct rtxg_host_open task = { .size = sizeof(task) };

		snprintf(task.gpu, sizeof(task.gpu), "invented%d", i);
		made += !call(open_rtxg(), RTXG_IOC_HOST_OPEN, &task);
	}
	return made;
}

static int name_one(const char *name)
{
	struct rtxg_host_open task = { .size = sizeof(task) };
	int fd = open_rtxg(), err;

	snprintf(task.gpu, sizeof(task.gpu), "%s", name);
	err = call(fd, RTXG_IOC_HOST_OPEN, &task);
	close(fd);
	return err;
}

static int names_its_own(void *name)
{
	return name_one(name) ? 1 : 0;
}

/* Holds its GPUs until it is killed; writes how many it got. */
static pid_t namer(unsigned int uid, int *made)
{
	int pipes[2], n = -1;
	pid_t child;

	if (pipe(pipes))
		return -1;
	fflush(NULL);
	child = fork();
	if (!child) {
		if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
			_exit(1);
		n = name_many(NULL);
		if (write(pipes[1], &n, sizeof(n)) != sizeof(n))
			_exit(1);
		for (;;)
			pause();
	}
	check(read(pipes[0], made, sizeof(*made)) == sizeof(*made), "no answer");
	close(pipes[0]);
	close(pipes[1]);
	return child;
}

/* A user that invents GPUs takes no place from others, and no name that a terminal would obey. */
static void test_invented_names(void)
{
	int made = -1;
	pid_t child = namer(NOBODY, &made);

	check(made == 8, "one user has %d GPUs that it invented", made);
	check(!as_user(4242, names_its_own, "1"), "another user cannot name GPU 1");
	check(!name_one("2"), "root cannot name GPU 2");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	check(name_one("a\033[2J") == -EINVAL, "an escape sequence");
	check(name_one("a\nb") == -EINVAL, "two lines");
	check(name_one("a/b") == -EINVAL, "a path");
	check(name_one("..") == -EINVAL, "a folder");
	check(!name_one("0000:01:00.0") && !name_one("gpu \303\244#1"), "good names");
}

static int count_gpus(void)
{
	struct rtxg_host_gpu rows[32];
	int fd = open_rtxg(), count;

	count = list(fd, RTXG_HOST_LIST_GPUS, 0, 32, sizeof(rows[0]), rows, NULL);
	close(fd);
	return count;
}

/* The GPU that a task names goes with the task, also where no vGPU is left for it. */
static void test_a_refused_task_leaves_no_gpu(void)
{
	int made = 0, before, after, err = 0;
	char name[16];

	for (; made < 1024 && !err; made += !err) {
		snprintf(name, sizeof(name), "full%d", made);
		err = make_vgpu(name, 0);
	}
	check(made > 0 && err == -ENOSPC, "vGPU %d: %d", made, err);
	before = count_gpus();
	err = name_one("elsewhere");
	check(err == -ENOSPC, "a task: %d", err);
	after = count_gpus();
	check(before > 0 && after == before, "%d GPUs became %d", before, after);
	while (made--) {
		snprintf(name, sizeof(name), "full%d", made);
		check(!remove_vgpu(name), "remove");
	}
}

static int use_limited(void *argument)
{
	struct rtxg_host_open task;
	struct rtxg_host_set set = { .size = sizeof(set), .priority = 20 };
	int fd, wrong = 0;

	wrong |= open_in(&fd, &task, "limited") == 0 ? 0 : 1;
	wrong |= call(fd, RTXG_IOC_HOST_SET, &set) == 0 ? 0 : 2;
	set.priority = 21;
	wrong |= call(fd, RTXG_IOC_HOST_SET, &set) == -EPERM ? 0 : 4;
	close(fd);
	fd = open_rtxg();
	task = (struct rtxg_host_open){ .size = sizeof(task), .vgpu = "limited", .priority = 21 };
	wrong |= call(fd, RTXG_IOC_HOST_OPEN, &task) == -EPERM ? 0 : 8;
	close(fd);
	return wrong;
}

static int is_kept_out(void *argument)
{
	struct rtxg_host_open task;
	struct rtxg_host_stats stats;
	int fd;

	return (open_in(&fd, &task, "limited") == -EACCES ? 0 : 1) |
	       (vgpu_stats("limited", &stats) == -EACCES ? 0 : 2);
}

static void test_who_may(void)
{
	struct rtxg_host_vgpu vgpu = { .size = sizeof(vgpu),
				       .name = "limited",
				       .group = RTXG_HOST_EVERYBODY,
				       .task_priority = 20,
				       .users_count = 2,
				       .users = { 4242, NOBODY } };
	struct rtxg_host_task task = {};
	struct rtxg_host_open open_task;
	int fd = open_rtxg(), own, wrong;

	check(!call(fd, RTXG_IOC_HOST_VGPU, &vgpu), "vGPU");
	wrong = as_user(NOBODY, use_limited, NULL);
	check(!wrong, "one of its users: %x", wrong);
	check(!as_user(4243, is_kept_out, NULL), "another user came in");
	check(!open_in(&own, &open_task, "limited"), "root is kept out");
	check(find_task(open_task.task, &task) && task.priority == 20 && task.priority_limit == 20,
	      "priority %u of %u", task.priority, task.priority_limit);
	close(own);
	/* the number of no user lets no user in */
	vgpu.users_count = 1;
	vgpu.users[0] = UINT32_MAX;
	check(!call(fd, RTXG_IOC_HOST_VGPU, &vgpu) && !as_user(NOBODY, is_kept_out, NULL),
	      "the number of no user lets a user in");
	vgpu.users_count = RTXG_HOST_USERS + 1;
	check(call(fd, RTXG_IOC_HOST_VGPU, &vgpu) == -EINVAL, "too many users");
	vgpu.users_count = 0;
	vgpu.task_priority = 100;
	check(call(fd, RTXG_IOC_HOST_VGPU, &vgpu) == -EINVAL, "task priority 100");
	close(fd);
	check(!remove_vgpu("limited"), "remove");
}

static void test_refusal_is_explained(void)
{
	struct rtxg_host_vgpu vgpu = { .size = sizeof(vgpu),
				       .name = "most",
				       .group = RTXG_HOST_EVERYBODY,
				       .min_ppm = 700000 };
	struct rtxg_host_refusal why = { .size = sizeof(why) };
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	int fd = open_rtxg(), other = open_rtxg();
	rtx_gpu_t handle;

	check(!call(fd, RTXG_IOC_HOST_VGPU, &vgpu), "70 %%");
	strcpy(vgpu.name, "more");
	vgpu.min_ppm = 300001;
	check(call(fd, RTXG_IOC_HOST_VGPU, &vgpu) == -ENOSPC, "100.0001 %%");
	check(!call(fd, RTXG_IOC_HOST_REFUSAL, &why) && strstr(why.what, "left to reserve") &&
		      why.value == 300001 && why.limit == 300000,
	      "\"%s\" %" PRIu64 " %" PRIu64, why.what, (uint64_t)why.value, (uint64_t)why.limit);
	check(!call(other, RTXG_IOC_HOST_REFUSAL, &why) && !why.what[0] && !why.value,
	      "another file was told \"%s\"", why.what);
	vgpu.min_ppm = 300000;
	check(!call(fd, RTXG_IOC_HOST_VGPU, &vgpu) && !call(fd, RTXG_IOC_HOST_REFUSAL, &why) &&
		      !why.what[0],
	      "refused though accepted");
	options.runtime_ns = 2000000;
	options.deadline_ns = 1000000;
	check(rtx_gpu_open(&handle, &options) == -EINVAL &&
		      strstr(rtx_strerror(),
			     "does not fit into the deadline (2000000; the limit is 1000000)"),
	      "%s", rtx_strerror());
	close(fd);
	close(other);
	check(!remove_vgpu("most") && !remove_vgpu("more"), "remove");
}

/* ---- through rtxgd ---- */

static char *say(const char *format, ...)
{
	static char request[512];
	char *reply = NULL;
	va_list args;

	va_start(args, format);
	vsnprintf(request, sizeof(request), format, args);
	va_end(args);
	int err = rtx_control(request, &reply);

	check(!err, "%s: %s", request, rtx_strerror());
	return reply ?: strdup("");
}

static int count_in(char *reply, const char *what)
{
	int count = 0;

	for (char *at = reply; (at = strstr(at, what)); at += strlen(what))
		count++;
	free(reply);
	return count;
}

static pid_t start_front(const char *config)
{
	int ready[2];
	char byte, fd[12];
	FILE *file;

	mkdir("/run/rtxg", 0755);
	mkdir("/tmp/root", 0755);
	mkdir("/tmp/root/etc", 0755);
	mkdir("/tmp/root/etc/rtxg", 0755);
	file = fopen("/tmp/root/etc/rtxg/rtxg.conf", "w");
	if (file) {
		fputs(config, file);
		fclose(file);
	}
	if (pipe(ready))
		return -1;
	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		snprintf(fd, sizeof(fd), "%d", ready[1]);
		close(ready[0]);
		unsetenv("RTXG_HOST"); /* what it finds decides */
		execl("/tests/w_rtxgd", "rtxgd", "--system", "--config-root", "/tmp/root",
		      "--ready-fd", fd, NULL);
		_exit(127);
	}
	close(ready[1]);
	check(read(ready[0], &byte, 1) == 1, "rtxgd did not get ready");
	close(ready[0]);
	return child;
}

static void stop_front(pid_t front)
{
	int status = -1;

	kill(front, SIGTERM);
	waitpid(front, &status, 0);
	check(!status, "rtxgd ended with %x", status);
}

#define NEEDS_DAEMON()                                      \
	do {                                                \
		if (access("/tests/w_rtxgd", X_OK))         \
			skip("rtxgd was not built (make)"); \
	} while (0)

static const char config[] =
	"[VGPU default]\nGPUQuota=60%\n[VGPU camera]\nGPUMin=40%\nTaskPriority=20\n"
	"[VGPU closed]\nUsers=4242\n"
	"[Match]\nUser=65534\nVGPU=camera\n"
	"[Daemon]\nTasksPerUser=2\n";

static int as_matched_user(void *argument)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t one, two, three;
	char *reply = NULL, request[128];
	int wrong = 0;

	/* by the rule; the vGPU's share is made on a GPU that no task has named so far */
	wrong |= rtx_gpu_open(&one, &options) ? 1 : 0;
	wrong |= count_in(say("{\"op\":\"task-list\",\"vgpu\":\"camera\",\"pid\":%d}", getpid()),
			  "\"task\":") == 1
			 ? 0
			 : 2;
	options.device = "second";
	options.vgpu = "camera";
	wrong |= rtx_gpu_open(&two, &options) ? 4 : 0;
	wrong |= rtx_gpu_open(&three, &options) == -ENOSPC && strstr(rtx_strerror(), "TasksPerUser")
			 ? 0
			 : 8;
	if (!(wrong & 4))
		rtx_gpu_close(two);
	options.vgpu = "closed";
	wrong |= rtx_gpu_open(&three, &options) == -EACCES ? 0 : 16;
	/*
	 * any user may look; a change, another user's task and a priority above the configured
	 * one are refused
	 */
	wrong |= rtx_control("{\"op\":\"vgpu-create\",\"vgpu\":\"mine\"}", &reply) == -EPERM ? 0
											     : 32;
	free(reply);
	snprintf(request, sizeof(request), "{\"op\":\"task-set\",\"pid\":%d,\"vgpu\":\"camera\"}",
		 *(pid_t *)argument);
	wrong |= rtx_control(request, &reply) == -EACCES ? 0 : 64;
	free(reply);
	snprintf(request, sizeof(request), "{\"op\":\"task-set\",\"pid\":%d,\"priority\":21}",
		 getpid());
	wrong |= rtx_control(request, &reply) == -EPERM ? 0 : 128;
	free(reply);
	return wrong;
}

/* A task opens, works and ends between two requests: the history has it all the same. */
static void work_unseen(const char *vgpu)
{
	uint32_t number;
	rtx_gpu_t handle = open_handle(vgpu, &number);

	check(!rtx_gpu_launch(handle, RTX_COMPUTE), "launch");
	sleep_ns(400 * MS);
	check(!rtx_gpu_sync(handle, RTX_COMPUTE), "sync");
	rtx_gpu_close(handle);
	sleep_ns(400 * MS);
}

static int start_own(void *argument)
{
	/*
	 * an ordinary user's daemon must not host beside the module: nor does the library start
	 * one, nor the daemon begin
	 */
	if (rtx_host_start() != -EHOSTDOWN || !strstr(rtx_strerror(), "systemctl start rtxgd"))
		return 1;
	return shell("RTXG_HOST=auto /tests/w_rtxgd --user --socket /tmp/own.sock 2>/tmp/own.err; "
		     "s=$?; "
		     "grep -q 'needs CAP_SYS_NICE' /tmp/own.err && exit $s; exit 9") == 1
		       ? 0
		       : 2;
}

static void test_configuration_and_rules(void)
{
	struct rtxg_host_stats stats;
	struct rtxg_host_info info = { .size = sizeof(info) };
	struct rtxg_host_front other = { .size = sizeof(other) };
	uint32_t number = 0;
	pid_t front, me = getpid();
	rtx_gpu_t handle;
	char *reply = NULL;
	int fd = open_rtxg(), wrong;

	NEEDS_DAEMON();
	wrong = as_user(NOBODY, start_own, NULL);
	check(!wrong, "an ordinary user's daemon: %d", wrong);
	check(rtx_control("{\"op\":\"hello\"}", &reply) == -EHOSTDOWN &&
		      strstr(rtx_strerror(), "systemctl start rtxgd"),
	      "%s", rtx_strerror());
	front = start_front(config);
	check(!call(fd, RTXG_IOC_HOST_INFO, &info) && info.has_front &&
		      info.front == (uint32_t)front && info.tasks_per_user == 2,
	      "front %u, %u tasks a user", info.front, info.tasks_per_user);
	check(call(fd, RTXG_IOC_HOST_FRONT, &other) == -EBUSY, "a second front");
	check(!vgpu_stats("camera", &stats), "the configured vGPU is not in the module");
	check(count_in(say("{\"op\":\"hello\"}"), "\"host\":\"module\"") == 1, "hello");
	/* twice: the second time after samples have stopped */
	work_unseen("camera");
	work_unseen("closed");
	check(count_in(say("{\"op\":\"history\"}"), "\"vgpu\":\"camera\",\"engine\":\"compute\"") ==
		      1,
	      "history of the first");
	check(count_in(say("{\"op\":\"history\"}"), "\"vgpu\":\"closed\",\"engine\":\"compute\"") ==
		      1,
	      "history of the second");
	handle = open_handle(NULL, &number);
	wrong = as_user(NOBODY, as_matched_user, &me);
	check(!wrong, "a user with a rule: %x", wrong);
	/*
	 * what is configured of the vGPU of those who name none holds on a GPU that a task makes up
	 * past rtxgd
	 */
	struct rtxg_host_open made_up = { .size = sizeof(made_up), .gpu = "made-up" };
	struct rtxg_host_account accounts[16];
	int past = open_rtxg(), n, capped = 0;

	check(!call(past, RTXG_IOC_HOST_OPEN, &made_up), "a made-up GPU");
	free(say("{\"op\":\"task-list\"}"));
	n = list(fd, RTXG_HOST_LIST_VGPUS, 0, 16, sizeof(accounts[0]), accounts, NULL);
	for (int i = 0; i < n; i++)
		capped += !strcmp(accounts[i].vgpu.gpu, "made-up") &&
			  !strcmp(accounts[i].vgpu.name, "default") &&
			  accounts[i].vgpu.max_ppm == 600000;
	check(capped == 1, "of %d vGPUs %d", n, capped);
	close(past);
	/* admission: the words and numbers of the core, through both */
	check(rtx_control("{\"op\":\"vgpu-create\",\"vgpu\":\"more\",\"min_ppm\":600001}",
			  &reply) == -ENOSPC,
	      "60.0001 %% of 60");
	check(reply && strstr(reply, "\"value\":600001") && strstr(reply, "\"limit\":600000") &&
		      strstr(reply, "left to reserve"),
	      "%s", reply);
	free(reply);
	/* the module does not go while it is spoken for */
	check(shell("rmmod rtxg 2>/dev/null"), "rmmod under rtxgd");
	/* descriptors may be few here */
	check(count_in(say("{\"op\":\"doctor\"}"), "\"ok\":false") <= 1, "doctor");
	rtx_gpu_close(handle);
	stop_front(front);
	close(fd);
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module does not go");
}

/* A launch holds the task where it is while it is sent to "high" and called back. */
static int there_and_back(void *argument)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t gpu;
	int wrong = 0;

	options.vgpu = "low";
	wrong |= rtx_gpu_open(&gpu, &options) || rtx_gpu_launch(gpu, RTX_COMPUTE) ? 1 : 0;
	free(say("{\"op\":\"task-set\",\"pid\":%d,\"vgpu\":\"high\",\"priority\":50}", getpid()));
	free(say("{\"op\":\"task-set\",\"pid\":%d,\"vgpu\":\"low\"}", getpid()));
	wrong |= rtx_gpu_sync(gpu, RTX_COMPUTE) ? 2 : 0;
	while (count_in(say("{\"op\":\"task-list\"}"), "\"moving_to\""))
		sleep_ns(MS);
	wrong |= count_in(say("{\"op\":\"task-list\",\"vgpu\":\"low\"}"), "\"task\":") == 1 ? 0 : 4;
	wrong |=
		count_in(say("{\"op\":\"task-list\",\"pid\":%d}", getpid()), "\"priority\":5,") == 1
			? 0
			: 8;
	options.priority = 6;
	options.vgpu = NULL;
	wrong |= rtx_gpu_set(gpu, &options) == -EPERM ? 0 : 16;
	rtx_gpu_close(gpu);
	return wrong;
}

/*
 * A user who sends a task to a vGPU of a higher priority, and takes the move back before it has
 * happened, has no more than before. What root has given it keeps.
 */
static void test_a_move_taken_back_brings_no_priority(void)
{
	struct rtxg_host_task task = {};
	uint32_t number = 0;
	rtx_gpu_t gpu;
	pid_t front;
	int wrong;

	NEEDS_DAEMON();
	front = start_front("[VGPU high]\nTaskPriority=50\n[VGPU low]\nTaskPriority=5\n");
	wrong = as_user(NOBODY, there_and_back, NULL);
	check(!wrong, "there and back: %x", wrong);
	gpu = open_handle("low", &number);
	free(say("{\"op\":\"task-set\",\"pid\":%d,\"priority\":30}", getpid()));
	free(say("{\"op\":\"task-set\",\"pid\":%d,\"priority\":1}", getpid()));
	check(!rtx_gpu_launch(gpu, RTX_COMPUTE), "launch");
	free(say("{\"op\":\"task-set\",\"pid\":%d,\"vgpu\":\"high\"}", getpid()));
	free(say("{\"op\":\"task-set\",\"pid\":%d,\"vgpu\":\"low\"}", getpid()));
	check(!rtx_gpu_sync(gpu, RTX_COMPUTE), "sync");
	for (int i = 0; i < 60000 && find_task(number, &task) && task.moving_to[0]; i++)
		sleep_ns(MS);
	check(!strcmp(task.vgpu, "low") && task.priority == 1 && task.priority_limit == 30,
	      "in %s, priority %u of %u", task.vgpu, task.priority, task.priority_limit);
	rtx_gpu_close(gpu);
	stop_front(front);
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module does not go");
}

/*
 * rtxgd is killed at any moment: programs go on, no object is lost, and the next rtxgd carries on
 * with the objects that it finds.
 */
static void test_front_is_killed(void)
{
	struct rtxg_host_task before = {}, after = {};
	struct rtxg_host_stats stats;
	uint32_t number = 0;
	pid_t front, creator;
	rtx_gpu_t handle;
	int status, pipes[2];
	char byte;

	NEEDS_DAEMON();
	front = start_front(config);
	free(say("{\"op\":\"vgpu-create\",\"vgpu\":\"made\",\"min_ppm\":100000,\"task_priority\":"
		 "9}"));
	free(say("{\"op\":\"pool-create\",\"pool\":\"both\",\"gpus\":[\"0\",\"other\"]}"));
	/*
	 * a vGPU that goes with its maker; the maker ends while no daemon runs
	 */
	if (pipe(pipes))
		return;
	fflush(NULL);
	creator = fork();
	if (!creator) {
		char *reply = NULL;

		if (rtx_control("{\"op\":\"vgpu-create\",\"vgpu\":\"passing\",\"transient\":true}",
				&reply) ||
		    write(pipes[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	check(read(pipes[0], &byte, 1) == 1 && !vgpu_stats("passing", &stats), "a transient vGPU");
	handle = open_handle("made", &number);
	check(!rtx_gpu_launch(handle, RTX_COMPUTE), "launch");
	check(count_in(say("{\"op\":\"task-list\",\"vgpu\":\"made\"}"), "\"state\":\"running\"") ==
		      1,
	      "task-list");
	check(find_task(number, &before) && before.priority == 9, "priority %u", before.priority);
	/*
	 * a stopped daemon answers no request: programs that ask it for their place go on without
	 * an answer after a while
	 */
	rtx_gpu_t other = NULL;
	uint64_t start = rtxg_now_ns();

	kill(front, SIGSTOP);
	check(!rtx_gpu_open(&other, NULL), "with a front that is stopped: %s", rtx_strerror());
	check(rtxg_now_ns() - start < 30000 * MS, "%" PRIu64 " ms", (rtxg_now_ns() - start) / MS);
	if (other)
		rtx_gpu_close(other);
	kill(front, SIGKILL);
	waitpid(front, &status, 0);
	kill(creator, SIGKILL);
	waitpid(creator, &status, 0);
	/* no program was harmed */
	check(!rtx_gpu_sync(handle, RTX_COMPUTE), "sync");
	for (int i = 0; i < 20; i++)
		check(!rtx_gpu_launch(handle, RTX_COMPUTE) && !rtx_gpu_sync(handle, RTX_COMPUTE),
		      "launch without a front");
	check(rtx_gpu_managed(handle) && find_task(number, &after) && after.serial == before.serial,
	      "the task");
	check(!vgpu_stats("passing", &stats), "gone before anybody saw its creator's end");
	front = start_front("[VGPU camera]\nGPUMin=50%\n");
	check(count_in(say("{\"op\":\"vgpu-list\",\"vgpu\":\"made\"}"), "\"min_ppm\":100000") == 1,
	      "made");
	check(count_in(say("{\"op\":\"vgpu-list\",\"vgpu\":\"made\"}"), "\"origin\":\"runtime\"") ==
		      1,
	      "made at run time");
	check(count_in(say("{\"op\":\"vgpu-list\",\"vgpu\":\"camera\"}"), "\"min_ppm\":500000") ==
		      1,
	      "the new configuration");
	check(count_in(say("{\"op\":\"vgpu-list\"}"), "\"vgpu\":\"closed\"") == 0,
	      "configured no longer, and still there");
	check(count_in(say("{\"op\":\"vgpu-list\"}"), "\"vgpu\":\"passing\"") == 0,
	      "its creator has ended");
	check(count_in(say("{\"op\":\"pool-list\"}"), "\"gpus\":[\"0\",\"other\"]") == 1, "pool");
	check(count_in(say("{\"op\":\"task-list\",\"vgpu\":\"made\"}"), "\"priority\":9") == 1,
	      "task-list");
	/* moved by the new one, seen in its history */
	free(say("{\"op\":\"task-set\",\"pid\":%d,\"vgpu\":\"camera\"}", getpid()));
	check(!rtx_gpu_launch(handle, RTX_COMPUTE), "launch");
	sleep_ns(250 * MS);
	check(!rtx_gpu_sync(handle, RTX_COMPUTE), "sync");
	sleep_ns(150 * MS);
	check(count_in(say("{\"op\":\"history\"}"), "\"vgpu\":\"camera\",\"engine\":\"compute\"") ==
		      1,
	      "history");
	rtx_gpu_close(handle);
	/* killed while a client storms it, started again, three times over */
	for (int round = 0; round < 3; round++) {
		fflush(NULL);
		pid_t client = fork();

		if (!client) {
			for (int i = 0;; i++) {
				char request[128], *reply = NULL;
				rtx_gpu_t own;

				snprintf(request, sizeof(request),
					 "{\"op\":\"vgpu-%s\",\"vgpu\":\"storm%d\"}",
					 i & 1 ? "remove" : "create", i / 2 % 5);
				rtx_control(request, &reply);
				free(reply);
				if (!rtx_gpu_open(&own, NULL))
					rtx_gpu_close(own);
			}
		}
		sleep_ns(100 * MS);
		kill(front, SIGKILL);
		waitpid(front, &status, 0);
		front = start_front(config);
		kill(client, SIGKILL);
		waitpid(client, &status, 0);
	}
	for (int i = 0; i < 60000 && count_in(say("{\"op\":\"task-list\"}"), "\"task\":"); i++)
		sleep_ns(MS);
	for (int i = 0; i < 5; i++) {
		char request[128], *reply = NULL;

		snprintf(request, sizeof(request), "{\"op\":\"vgpu-remove\",\"vgpu\":\"storm%d\"}",
			 i);
		rtx_control(request, &reply);
		free(reply);
	}
	free(say("{\"op\":\"vgpu-remove\",\"vgpu\":\"made\"}"));
	/* what is configured, and what is always there */
	check(count_in(say("{\"op\":\"vgpu-list\"}"), "\"origin\":") == 3, "vGPUs are left");
	stop_front(front);
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module does not go");
}

/*
 * The module is loaded under a daemon that hosts tasks itself. That daemon goes on and says so. The
 * next daemon speaks for the module.
 */
static void test_module_comes_later(void)
{
	struct rtxg_host_info info = { .size = sizeof(info) };
	uint32_t number = 0;
	pid_t front;
	rtx_gpu_t in_daemon, in_module;
	int fd;

	NEEDS_DAEMON();
	check(!shell("rmmod rtxg"), "rmmod");
	front = start_front("[VGPU camera]\nGPUMin=40%\n");
	check(count_in(say("{\"op\":\"hello\"}"), "\"host\":\"daemon\"") == 1, "hello");
	setenv("RTXG_HOST", "daemon", 1);
	check(!rtx_gpu_open(&in_daemon, NULL), "open: %s", rtx_strerror());
	setenv("RTXG_HOST", "module", 1);
	check(count_in(say("{\"op\":\"doctor\"}"), "was loaded after this daemon") == 0,
	      "doctor, before");
	check(!shell("insmod /modules/rtxg.ko"), "insmod");
	fd = open_rtxg();
	check(count_in(say("{\"op\":\"doctor\"}"), "was loaded after this daemon") == 1, "doctor");
	check(!call(fd, RTXG_IOC_HOST_INFO, &info) && !info.has_front, "it claims the module");
	in_module = open_handle(NULL, &number);
	check(!rtx_gpu_launch(in_daemon, RTX_COMPUTE) && !rtx_gpu_sync(in_daemon, RTX_COMPUTE),
	      "the daemon's task: %s", rtx_strerror());
	check(!rtx_gpu_launch(in_module, RTX_COMPUTE) && !rtx_gpu_sync(in_module, RTX_COMPUTE),
	      "the module's task");
	check(count_in(say("{\"op\":\"task-list\"}"), "\"task\":") == 1, "tasks of the daemon");
	rtx_gpu_close(in_daemon);
	stop_front(front);
	front = start_front("[VGPU camera]\nGPUMin=40%\n");
	check(!call(fd, RTXG_IOC_HOST_INFO, &info) && info.has_front &&
		      info.front == (uint32_t)front,
	      "the next one");
	check(count_in(say("{\"op\":\"task-list\"}"), "\"task\":") == 1 &&
		      find_task(number, &(struct rtxg_host_task){}),
	      "tasks of the module");
	rtx_gpu_close(in_module);
	stop_front(front);
	close(fd);
	/* what it made stays in the module; other tests begin with an empty one */
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module does not go");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "lists", test_lists },
		{ "move", test_move },
		{ "moves_under_load", test_moves_under_load },
		{ "limit_of_a_user", test_limit_of_a_user },
		{ "limit_of_a_user_namespace", test_limit_of_a_user_namespace },
		{ "invented_names", test_invented_names },
		{ "a_refused_task_leaves_no_gpu", test_a_refused_task_leaves_no_gpu },
		{ "who_may", test_who_may },
		{ "refusal_is_explained", test_refusal_is_explained },
		{ "configuration_and_rules", test_configuration_and_rules },
		{ "a_move_taken_back_brings_no_priority",
		  test_a_move_taken_back_brings_no_priority },
		{ "front_is_killed", test_front_is_killed },
		{ "module_comes_later", test_module_comes_later },
	};

	load_module();
	unsetenv("XDG_RUNTIME_DIR");
	setenv("RTXG_HOST", "module", 1);
	return RUN(cases);
}
