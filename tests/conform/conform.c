// SPDX-License-Identifier: MIT
/*
 * conform.c - what every host of the scheduler must do, seen through librtxg alone.
 * RTXG_HOST=daemon (the default here: this program starts a daemon in a temporary folder) or
 * RTXG_HOST=module (/dev/rtxg: this program starts a daemon that speaks for the module). A test
 * that needs to see inside the host asks rtx_control. Such a test is skipped where no daemon
 * answers. No test depends on the speed of the machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "rtxg.h"
#include "rtxg/page.h"
#include "rtxg_clock.h"

#define FOREVER UINT64_MAX

static bool has_control;
static char no_control[256];

/* RTXG_CONFORM_SHORT: a tenth of the repetitions, for a machine that is emulated. */
static int repeats(int all)
{
	return getenv("RTXG_CONFORM_SHORT") ? all / 10 : all;
}

/* Memory that test processes share. */
struct shared {
	_Atomic int inside, overlaps, order[16], next, go, ready;
	_Atomic uint64_t busy[2], launches[2], late[2];
	_Atomic uint64_t since[4], jobs[4]; /* of launch_for_ever(): 0, nothing is launched */
};
static struct shared *shared;

static void nap(unsigned int usec)
{
	struct timespec t = { .tv_sec = usec / 1000000, .tv_nsec = usec % 1000000 * 1000l };

	while (nanosleep(&t, &t))
		;
}

static rtx_gpu_t open_in(const char *vgpu, unsigned int priority)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t gpu = NULL;
	int ret;

	options.vgpu = vgpu;
	options.priority = priority;
	ret = rtx_gpu_open(&gpu, &options);
	if (ret) {
		fprintf(stderr, "open: %s\n", rtx_strerror());
		return NULL;
	}
	return gpu;
}

static rtx_gpu_t open_one(void)
{
	rtx_gpu_t gpu = open_in(NULL, 0);

	assert_non_null(gpu);
	return gpu;
}

static char *control(const char *request)
{
	char *reply = NULL;
	int ret = rtx_control(request, &reply);

	if (ret)
		fprintf(stderr, "%s: %s\n", request, rtx_strerror());
	assert_int_equal(ret, 0);
	return reply;
}

static void say(const char *request)
{
	free(control(request));
}

/*
 * How long a holder may keep its permit while others wait. A test that looks at those who wait has
 * no end to it: a busy machine may look later than the 2 s after which the permit is taken by
 * force.
 */
static void patience(bool ends)
{
	if (has_control)
		say(ends ? "{\"op\":\"gpu-set\",\"revoke_timeout_ns\":2000000000}"
			 : "{\"op\":\"gpu-set\",\"revoke_timeout_ns\":-1}");
}

static int count_in(const char *request, const char *what)
{
	char *reply = control(request), *at = reply;
	int count = 0;

	while ((at = strstr(at, what))) {
		count++;
		at += strlen(what);
	}
	free(reply);
	return count;
}

static void until_waiting(int tasks)
{
	while (count_in("{\"op\":\"task-list\"}", "\"state\":\"waiting\"") != tasks)
		nap(1000);
}

static void until_tasks(int tasks)
{
	while (count_in("{\"op\":\"task-list\"}", "\"task\":") != tasks)
		nap(1000);
}

#define NEEDS_CONTROL()                                                                     \
	do {                                                                                \
		if (!has_control) {                                                         \
			print_message("no daemon answers for this host: %s\n", no_control); \
			skip();                                                             \
		}                                                                           \
	} while (0)

/* The exit status of a child is the number of the check that failed in it, 0 if none did. */
#define CHILD_CHECK(n, condition)                                                             \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			fprintf(stderr, "%s:%d: in the child: %s (%s)\n", __FILE__, __LINE__, \
				#condition, rtx_strerror());                                  \
			_exit(n);                                                             \
		}                                                                             \
	} while (0)

static void reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int setup(void **state)
{
	memset(shared, 0, sizeof(*shared));
	return 0;
}

/* --- misuse is an error ----------------------------------------------------------------------- */

static void launch_before_open(void **state)
{
	rtx_gpu_t gpu;

	assert_int_equal(rtx_gpu_launch(NULL, RTX_COMPUTE), -EINVAL);
	assert_int_equal(rtx_gpu_sync(NULL, RTX_COMPUTE), -EINVAL);
	assert_int_equal(rtx_gpu_notify(NULL, RTX_COMPUTE, NULL), -EINVAL);
	assert_int_equal(rtx_gpu_close(NULL), -EINVAL);
	assert_int_equal(rtx_gpu_open(NULL, NULL), -EINVAL);
	assert_true(rtx_strerror()[0]);
	gpu = open_one();
	assert_int_equal(rtx_gpu_launch(gpu, (enum rtx_engine)3), -EINVAL);
	assert_int_equal(rtx_gpu_launch(gpu, (enum rtx_engine) - 1), -EINVAL);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

static void sync_without_launch(void **state)
{
	rtx_gpu_t gpu = open_one();

	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -EPERM);
	assert_int_equal(rtx_gpu_complete(gpu, RTX_COMPUTE, 0), -EPERM);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COPY_IN), -EPERM);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -EPERM);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

static int no_wait(void *arg)
{
	return 0;
}

static void notify_misuse(void **state)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	rtx_gpu_t gpu = open_one();
	uint32_t words[2] = { 1, 1 };

	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, NULL), -EPERM);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	notify.how = RTX_SYNC_FENCE;
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EINVAL);
	notify.word = (uint32_t *)((char *)words + 1);
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EINVAL);
	notify.how = (enum rtx_sync)9;
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EINVAL);
	notify.how = RTX_SYNC_NOTIFY;
	notify.fd = 100000;
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EINVAL);
	notify.how = RTX_SYNC_WAIT;
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EINVAL);
	notify.wait = no_wait;
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), 0);
	/* Twice for the same launch; and after the sync there is none to notify. */
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EALREADY);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EPERM);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

static void bad_options(void **state)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct {
		struct rtx_gpu_options known;
		uint64_t newer;
	} grown = { .known = { .size = sizeof(grown) }, .newer = 1 };
	rtx_gpu_t gpu = (rtx_gpu_t)&options;

	options.priority = 100;
	assert_int_equal(rtx_gpu_open(&gpu, &options), -EINVAL);
	assert_null(gpu);
	assert_non_null(strstr(rtx_strerror(), "100"));
	options.priority = 0;
	options.vgpu = "no-such-vgpu";
	assert_int_equal(rtx_gpu_open(&gpu, &options), -ENOENT);
	assert_non_null(strstr(rtx_strerror(), "no-such-vgpu"));
	options.vgpu = "0123456789012345678901234567890123456789012345678901234567890123456789";
	assert_int_equal(rtx_gpu_open(&gpu, &options), -EINVAL);
	options.vgpu = NULL;
	options.flags = 1u << 31;
	assert_int_equal(rtx_gpu_open(&gpu, &options), -EINVAL);
	options.flags = 0;
	options.size = 0;
	assert_int_equal(rtx_gpu_open(&gpu, &options), -EINVAL);
	/* A runtime that does not fit into its deadline. */
	options.size = sizeof(options);
	options.runtime_ns = 2000000;
	options.deadline_ns = 1000000;
	assert_int_equal(rtx_gpu_open(&gpu, &options), -EINVAL);
	/* A struct of a later version is accepted unless it asks for what is unknown here. */
	assert_int_equal(rtx_gpu_open(&gpu, &grown.known), -E2BIG);
	grown.newer = 0;
	assert_int_equal(rtx_gpu_open(&gpu, &grown.known), 0);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

static void outstanding_limit(void **state)
{
	rtx_gpu_t gpu = open_one();

	for (int i = 0; i < 32; i++)
		assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), -EAGAIN);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COPY_IN), 0); /* engines are apart */
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	for (int i = 0; i < 32; i++)
		assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -EPERM);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

/* --- completion is seen as was asked ---------------------------------------------------------- */

struct writer {
	volatile uint32_t word;
	int fd;
};

static void *write_later(void *arg)
{
	struct writer *w = arg;
	uint64_t one = 1;

	nap(20000);
	__atomic_store_n(&w->word, 7, __ATOMIC_RELEASE);
	if (w->fd >= 0)
		assert_int_equal(write(w->fd, &one, sizeof(one)), sizeof(one));
	return NULL;
}

static void sync_as_notified(enum rtx_sync how, bool with_fd)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	struct writer writer = { .fd = with_fd ? eventfd(0, 0) : -1 };
	rtx_gpu_t gpu = open_one();
	pthread_t thread;

	notify.how = how;
	notify.word = &writer.word;
	notify.value = 7;
	notify.fd = writer.fd;
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), 0);
	assert_int_equal(pthread_create(&thread, NULL, write_later, &writer), 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	/* Sync has waited: the word was written before it returned. */
	assert_int_equal(__atomic_load_n(&writer.word, __ATOMIC_ACQUIRE), 7);
	pthread_join(thread, NULL);
	assert_int_equal(rtx_gpu_close(gpu), 0);
	if (writer.fd >= 0)
		close(writer.fd);
}

/* Work that failed writes no word: sync gives up when it was told to, and can be called again. */
static void sync_gives_up_in_time(void **state)
{
	static const enum rtx_sync how[] = { RTX_SYNC_FENCE, RTX_SYNC_NOTIFY, RTX_SYNC_NOTIFY };
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	rtx_gpu_t gpu = open_one();
	uint64_t one = 1;

	for (int i = 0; i < 3; i++) {
		volatile uint32_t word = 6;
		int fd = i == 2 ? eventfd(0, 0) : -1;

		notify.how = how[i];
		notify.word = &word;
		notify.value = 7;
		notify.fd = fd;
		notify.until_ns = rtxg_now_ns() + 20000000;
		assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
		assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), 0);
		for (int k = 0; k < 2; k++) {
			assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -ETIMEDOUT);
			assert_true(rtxg_now_ns() >= notify.until_ns);
		}
		/* It is outstanding still: what came late counts, and so does a caller's word. */
		if (i == 0) {
			assert_int_equal(rtx_gpu_complete(gpu, RTX_COMPUTE, 0), 0);
		} else {
			word = 7;
			if (fd >= 0)
				assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
			assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
		}
		assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -EPERM);
		if (fd >= 0)
			close(fd);
	}
	notify.how = RTX_SYNC_WAIT;
	notify.wait = no_wait;
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EINVAL);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

static void sync_fence(void **state)
{
	sync_as_notified(RTX_SYNC_FENCE, false);
}

static void sync_notify_word(void **state)
{
	sync_as_notified(RTX_SYNC_NOTIFY, false);
}

static void sync_notify_fd(void **state)
{
	sync_as_notified(RTX_SYNC_NOTIFY, true);
}

static int waits[2];

static int wait_result(void *arg)
{
	waits[0]++;
	return *(int *)arg;
}

static void sync_wait_function(void **state)
{
	struct rtx_gpu_notify notify = RTX_INIT(struct rtx_gpu_notify);
	rtx_gpu_t gpu = open_one();
	int result = -EINTR;

	notify.how = RTX_SYNC_WAIT;
	notify.wait = wait_result;
	notify.arg = &result;
	waits[0] = 0;
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), 0);
	/* Interrupted: stays outstanding, with its notify. */
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -EINTR);
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), -EALREADY);
	result = 0;
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(waits[0], 2);
	/* A GPU that failed: the error is handed on, and the launch is over. */
	result = -EIO;
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_notify(gpu, RTX_COMPUTE, &notify), 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -EIO);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -EPERM);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

/* --- one at a time ---------------------------------------------------------------------------- */

static void mutual_exclusion(void **state)
{
	pid_t pids[4];

	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			rtx_gpu_t gpu = open_in(NULL, 0);

			CHILD_CHECK(1, gpu);
			for (int k = 0; k < repeats(300); k++) {
				CHILD_CHECK(2, !rtx_gpu_launch(gpu, RTX_COMPUTE));
				if (shared->inside++)
					shared->overlaps++;
				if (k % 3 == 0)
					nap(50);
				shared->inside--;
				CHILD_CHECK(3, !rtx_gpu_sync(gpu, RTX_COMPUTE));
			}
			CHILD_CHECK(4, !rtx_gpu_close(gpu));
			_exit(0);
		}
	}
	for (int i = 0; i < 4; i++)
		reap(pids[i]);
	assert_int_equal(shared->overlaps, 0);
}

/* With permits that come early, a second one of the same vGPU may be in use, and no third. */
static void early_permits_are_two_at_most(void **state)
{
	pid_t pids[4];

	NEEDS_CONTROL();
	patience(false);
	say("{\"op\":\"gpu-set\",\"ahead_ns\":100000,\"early_ns\":100000}");
	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			rtx_gpu_t gpu = open_in(NULL, 0);

			CHILD_CHECK(1, gpu);
			for (int k = 0; k < repeats(200); k++) {
				CHILD_CHECK(2, !rtx_gpu_launch(gpu, RTX_COMPUTE));
				if (++shared->inside > 2)
					shared->overlaps++;
				nap(1000);
				shared->inside--;
				CHILD_CHECK(3, !rtx_gpu_sync(gpu, RTX_COMPUTE));
			}
			CHILD_CHECK(4, !rtx_gpu_close(gpu));
			_exit(0);
		}
	}
	for (int i = 0; i < 4; i++)
		reap(pids[i]);
	assert_int_equal(shared->overlaps, 0);
	say("{\"op\":\"gpu-set\",\"ahead_ns\":0,\"early_ns\":0}");
	patience(true);
}

/* A program in slot of the shared memory, until it is killed. */
static pid_t launch_for_ever(int slot)
{
	pid_t pid = fork();
	rtx_gpu_t gpu;

	if (pid)
		return pid;
	gpu = open_in(NULL, 0);
	CHILD_CHECK(1, gpu);
	for (;;) {
		CHILD_CHECK(2, !rtx_gpu_launch(gpu, RTX_COMPUTE));
		shared->since[slot] = rtxg_now_ns();
		nap(1000);
		shared->since[slot] = 0;
		CHILD_CHECK(3, !rtx_gpu_sync(gpu, RTX_COMPUTE));
		shared->jobs[slot]++;
	}
}

/* The program that launched first, and last; the same: no two have launched now. */
static void launched(int *first, int *last)
{
	uint64_t since[4];

	*first = *last = -1;
	for (int i = 0; i < 4; i++) {
		since[i] = shared->since[i];
		if (since[i] && (*first < 0 || since[i] < since[*first]))
			*first = i;
		if (since[i] && (*last < 0 || since[i] > since[*last]))
			*last = i;
	}
}

/*
 * Of two that have a permit, the one that had it first, or early; or one that waits. The others go
 * on, and so does the one that comes in its place.
 */
static void deaths_beside_early_permits(void **state)
{
	uint64_t end = rtxg_now_ns() + 20000000000ull, jobs[4];
	int first, last, both = 0;
	pid_t pids[4];

	NEEDS_CONTROL();
	patience(false);
	say("{\"op\":\"gpu-set\",\"early_ns\":500000}");
	for (int i = 0; i < 4; i++)
		pids[i] = launch_for_ever(i);
	for (int k = 0; k < repeats(60); k++) {
		int victim = k % 4;

		if (k % 3) {
			do {
				nap(20);
				launched(&first, &last);
			} while (first == last && rtxg_now_ns() < end);
			both += first != last;
			victim = first < 0 ? 0 : k % 3 == 1 ? first : last;
		}
		kill(pids[victim], SIGKILL);
		assert_int_equal(waitpid(pids[victim], NULL, 0), pids[victim]);
		shared->since[victim] = 0;
		pids[victim] = launch_for_ever(victim);
	}
	for (int i = 0; i < 4; i++)
		jobs[i] = shared->jobs[i];
	for (int i = 0; i < 4; i++)
		while (shared->jobs[i] < jobs[i] + 2)
			nap(1000);
	for (int i = 0; i < 4; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < 4; i++)
		waitpid(pids[i], NULL, 0);
	until_tasks(0);
	if (repeats(10) == 10)
		assert_true(both);
	say("{\"op\":\"gpu-set\",\"early_ns\":0}");
	patience(true);
}

static void engines_are_apart(void **state)
{
	rtx_gpu_t a = open_one(), b = open_one();

	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(b, RTX_COPY_IN), 0);
	assert_int_equal(rtx_gpu_launch_until(a, RTX_COPY_OUT, FOREVER), 0);
	assert_int_equal(rtx_gpu_launch_until(b, RTX_COMPUTE, rtxg_now_ns()), -ETIMEDOUT);
	assert_int_equal(rtx_gpu_sync(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(b, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
}

static void *thread_loop(void *arg)
{
	for (int i = 0; i < repeats(400); i++) {
		enum rtx_engine engine = (enum rtx_engine)(i % 3);

		if (rtx_gpu_launch(arg, engine) || rtx_gpu_notify(arg, engine, NULL) ||
		    rtx_gpu_sync(arg, engine))
			return arg;
	}
	return NULL;
}

static void threads_share_a_handle(void **state)
{
	struct rtx_gpu_stats stats = RTX_INIT(struct rtx_gpu_stats);
	rtx_gpu_t gpu = open_one();
	pthread_t threads[8];
	uint64_t launches = 0;
	pid_t pid = fork();

	/* Another task wants the engine too, so that permits come and go. */
	if (!pid) {
		rtx_gpu_t other = open_in(NULL, 0);

		CHILD_CHECK(1, other);
		for (int i = 0; i < repeats(300); i++) {
			CHILD_CHECK(2, !rtx_gpu_launch(other, RTX_COMPUTE));
			nap(20);
			CHILD_CHECK(3, !rtx_gpu_sync(other, RTX_COMPUTE));
		}
		_exit(0);
	}
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, thread_loop, gpu), 0);
	for (int i = 0; i < 8; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	reap(pid);
	for (int e = 0; e < 3; e++) {
		assert_int_equal(rtx_gpu_stats(gpu, (enum rtx_engine)e, &stats), 0);
		launches += stats.launches;
	}
	assert_int_equal(launches, 8 * repeats(400));
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void timeouts(void **state)
{
	rtx_gpu_t a = open_one(), b = open_one();
	uint64_t start;

	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch_until(b, RTX_COMPUTE, 1), -ETIMEDOUT);
	assert_int_equal(rtx_gpu_launch_until(b, RTX_COMPUTE, 0), -EAGAIN);
	start = rtxg_now_ns();
	assert_int_equal(rtx_gpu_launch_until(b, RTX_COMPUTE, start + 30000000), -ETIMEDOUT);
	assert_true(rtxg_now_ns() >= start + 30000000);
	/* A task that gave up blocks no other task and can wait again. */
	assert_int_equal(rtx_gpu_sync(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(b, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(b, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
}

static void on_alarm(int signal_number)
{
}

static void interrupted(void **state)
{
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0 } };
	struct sigaction action = { .sa_handler = on_alarm }, before;
	rtx_gpu_t a = open_one(), b = open_one();

	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	sigaction(SIGALRM, &action, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	assert_int_equal(rtx_gpu_launch(b, RTX_COMPUTE), -EINTR);
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	/* Nothing was taken. */
	assert_int_equal(rtx_gpu_sync(b, RTX_COMPUTE), -EPERM);
	assert_int_equal(rtx_gpu_sync(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(b, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
	assert_int_equal(rtx_gpu_close(a), 0);
}

static void *wait_for_launch(void *arg)
{
	return (void *)(intptr_t)rtx_gpu_launch(arg, RTX_COMPUTE);
}

static void close_sends_waiters_away(void **state)
{
	rtx_gpu_t a = open_one(), b = open_one();
	struct rtx_gpu_stats stats = RTX_INIT(struct rtx_gpu_stats);
	pthread_t thread;
	void *result;

	patience(false);
	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_launch, b), 0);
	if (has_control)
		until_waiting(1);
	else
		nap(200000);
	assert_int_equal(rtx_gpu_stats(b, RTX_COMPUTE, &stats), 0);
	assert_int_equal(stats.launches, 0);
	assert_int_equal(rtx_gpu_close(b), 0);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, -ECANCELED);
	assert_int_equal(rtx_gpu_close(a), 0);
	patience(true);
}

/* Waiters of different priority, queued in another order than they are to be served. */
static void priority_order(void **state)
{
	static const unsigned int priority[] = { 5, 50, 20, 99 };
	static const int expected[] = { 99, 50, 20, 5 };
	pid_t pids[4];
	rtx_gpu_t holder;

	NEEDS_CONTROL();
	say("{\"op\":\"vgpu-create\",\"vgpu\":\"fp\",\"policy\":\"fp\"}");
	patience(false);
	holder = open_in("fp", 1);
	assert_non_null(holder);
	assert_int_equal(rtx_gpu_launch(holder, RTX_COMPUTE), 0);
	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			rtx_gpu_t gpu = open_in("fp", priority[i]);

			CHILD_CHECK(1, gpu);
			CHILD_CHECK(2, !rtx_gpu_launch(gpu, RTX_COMPUTE));
			shared->order[shared->next++] = (int)priority[i];
			CHILD_CHECK(3, !rtx_gpu_sync(gpu, RTX_COMPUTE));
			_exit(0);
		}
		until_waiting(i + 1);
	}
	assert_int_equal(rtx_gpu_sync(holder, RTX_COMPUTE), 0);
	for (int i = 0; i < 4; i++)
		reap(pids[i]);
	for (int i = 0; i < 4; i++)
		assert_int_equal(shared->order[i], expected[i]);
	assert_int_equal(rtx_gpu_close(holder), 0);
	until_tasks(0);
	patience(true);
	say("{\"op\":\"vgpu-remove\",\"vgpu\":\"fp\"}");
}

static void *wait_revoked(void *arg)
{
	return (void *)(intptr_t)rtx_gpu_wait_revoked(arg, RTX_COMPUTE, FOREVER);
}

static void revocation_is_seen(void **state)
{
	rtx_gpu_t a = open_one(), b = open_one();
	pthread_t watcher, waiter;
	void *result;

	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	assert_false(rtx_gpu_revoked(a, RTX_COMPUTE));
	assert_false(rtx_gpu_awaited(a, RTX_COMPUTE));
	assert_int_equal(rtx_gpu_wait_revoked(a, RTX_COMPUTE, rtxg_now_ns() + 1000000), -ETIMEDOUT);
	assert_int_equal(pthread_create(&watcher, NULL, wait_revoked, a), 0);
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_launch, b), 0);
	pthread_join(watcher, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_true(rtx_gpu_revoked(a, RTX_COMPUTE));
	assert_true(rtx_gpu_awaited(a, RTX_COMPUTE));
	assert_int_equal(rtx_gpu_sync(a, RTX_COMPUTE), 0);
	pthread_join(waiter, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
}

/* --- death cleans up -------------------------------------------------------------------------- */

static void death_while_holding(void **state)
{
	rtx_gpu_t gpu = open_one();
	pid_t pid = fork();
	int status;

	if (!pid) {
		rtx_gpu_t other = open_in(NULL, 0);

		CHILD_CHECK(1, other);
		CHILD_CHECK(2, !rtx_gpu_launch(other, RTX_COMPUTE));
		shared->ready = 1;
		for (;;)
			pause();
	}
	while (!shared->ready)
		nap(1000);
	assert_int_equal(rtx_gpu_launch_until(gpu, RTX_COMPUTE, rtxg_now_ns()), -ETIMEDOUT);
	kill(pid, SIGKILL);
	/* Not reaped: a zombie holds nothing. */
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	waitpid(pid, &status, 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	if (has_control)
		assert_int_equal(count_in("{\"op\":\"stats\"}", "\"expelled\":0,"),
				 3 * count_in("{\"op\":\"stats\"}", "\"min_ppm\""));
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

static void death_while_waiting(void **state)
{
	rtx_gpu_t a = open_one(), b = open_one();
	pid_t pid;
	int status;

	patience(false);
	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	pid = fork();
	if (!pid) {
		rtx_gpu_t other = open_in(NULL, 0);

		CHILD_CHECK(1, other);
		shared->ready = 1;
		rtx_gpu_launch(other, RTX_COMPUTE);
		_exit(3);
	}
	while (!shared->ready)
		nap(1000);
	if (has_control)
		until_waiting(1);
	else
		nap(100000);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(rtx_gpu_sync(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(b, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(b, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
	patience(true);
}

static void close_with_outstanding(void **state)
{
	rtx_gpu_t a = open_one(), b = open_one();

	for (int i = 0; i < 5; i++)
		assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch_until(b, RTX_COMPUTE, rtxg_now_ns()), -ETIMEDOUT);
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_launch(b, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
}

static void forked_child(void **state)
{
	rtx_gpu_t gpu = open_one();
	pid_t pid;

	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	pid = fork();
	if (!pid) {
		rtx_gpu_t own;

		CHILD_CHECK(1, rtx_gpu_launch(gpu, RTX_COMPUTE) == -ECHILD);
		CHILD_CHECK(2, rtx_gpu_sync(gpu, RTX_COMPUTE) == -ECHILD);
		CHILD_CHECK(3, rtx_gpu_notify(gpu, RTX_COMPUTE, NULL) == -ECHILD);
		CHILD_CHECK(4, !rtx_gpu_managed(gpu));
		own = open_in(NULL, 0);
		CHILD_CHECK(5, own);
		CHILD_CHECK(6, rtx_gpu_launch(own, RTX_COPY_IN) == 0);
		CHILD_CHECK(7, rtx_gpu_sync(own, RTX_COPY_IN) == 0);
		/* The parent's launch is still in flight. */
		CHILD_CHECK(8, rtx_gpu_launch_until(own, RTX_COMPUTE, rtxg_now_ns()) == -ETIMEDOUT);
		CHILD_CHECK(9, rtx_gpu_close(gpu) == -ECHILD);
		CHILD_CHECK(10, rtx_gpu_close(own) == 0);
		_exit(0);
	}
	reap(pid);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* _Fork() calls no handler: the child has its parent's list of handles. */
static void child_of_bare_fork(void **state)
{
	enum { NUMBERS = 256 };
	bool librarys[NUMBERS];
	rtx_gpu_t first, second;
	pid_t pid;

#ifdef __SANITIZE_THREAD__
	print_message("ThreadSanitizer's own locks stay held in a child of _Fork()\n");
	skip();
#endif
	for (int fd = 0; fd < NUMBERS; fd++)
		librarys[fd] = !is_open(fd);
	first = open_one();
	second = open_one();
	assert_int_equal(rtx_gpu_launch(first, RTX_COMPUTE), 0);
	pid = _Fork();
	if (!pid) {
		int reused = -1;
		rtx_gpu_t own;

		/* What the program itself opens under a number of librtxg's stays open. */
		for (int fd = 0; fd < NUMBERS && reused < 0; fd++)
			if (librarys[fd] && is_open(fd))
				reused = dup2(STDERR_FILENO, fd);
		CHILD_CHECK(1, reused >= 0);
		CHILD_CHECK(2, rtx_gpu_close(second) == -ECHILD);
		for (int fd = 0; fd < NUMBERS; fd++)
			CHILD_CHECK(3, !librarys[fd] || is_open(fd) == (fd == reused));
		own = open_in(NULL, 0);
		CHILD_CHECK(4, own);
		/* The parent's launch is still in flight. */
		CHILD_CHECK(5, rtx_gpu_launch_until(own, RTX_COMPUTE, rtxg_now_ns()) == -ETIMEDOUT);
		CHILD_CHECK(6, rtx_gpu_close(first) == -ECHILD);
		CHILD_CHECK(7, !rtx_gpu_launch(own, RTX_COPY_IN));
		CHILD_CHECK(8, !rtx_gpu_close(own));
		_exit(0);
	}
	reap(pid);
	assert_int_equal(rtx_gpu_sync(first, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(second, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(second), 0);
	assert_int_equal(rtx_gpu_close(first), 0);
}

/* A child that lives on does not keep its dead parent's permit. */
static void parent_dies_child_lives(void **state)
{
	rtx_gpu_t gpu = open_one();
	pid_t pid = fork();

	if (!pid) {
		rtx_gpu_t own = open_in(NULL, 0);

		CHILD_CHECK(1, own);
		CHILD_CHECK(2, !rtx_gpu_launch(own, RTX_COMPUTE));
		if (!fork()) {
			shared->ready = getpid();
			for (;;)
				pause();
		}
		while (!shared->ready)
			nap(1000);
		_exit(0);
	}
	reap(pid);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(kill(shared->ready, SIGKILL), 0);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

/* --- many ------------------------------------------------------------------------------------- */

#define MANY repeats(1000)

static void thousand_tasks(void **state)
{
	struct rlimit files;
	rtx_gpu_t *gpus = calloc(MANY, sizeof(*gpus));

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur < 4 * MANY) {
		print_message("only %llu descriptors are allowed, %d are needed\n",
			      (unsigned long long)files.rlim_cur, 4 * MANY);
		free(gpus);
		skip();
	}
	for (int i = 0; i < MANY; i++)
		gpus[i] = open_one();
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < MANY; i++) {
			assert_int_equal(rtx_gpu_launch(gpus[i], RTX_COMPUTE), 0);
			assert_int_equal(rtx_gpu_launch_until(gpus[(i + 1) % MANY], RTX_COMPUTE,
							      rtxg_now_ns()),
					 -ETIMEDOUT);
			assert_int_equal(rtx_gpu_sync(gpus[i], RTX_COMPUTE), 0);
		}
	if (has_control)
		assert_int_equal(count_in("{\"op\":\"task-list\"}", "\"task\":"), MANY);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(rtx_gpu_close(gpus[i]), 0);
	free(gpus);
	if (has_control)
		until_tasks(0);
}

/* --- shares ----------------------------------------------------------------------------------- */

/*
 * One of two programs that always want the engine, until together they have used 3 s of it (1 s).
 */
static void use_engine(int side, const char *vgpu, unsigned int usec)
{
	rtx_gpu_t gpu = open_in(vgpu, 0);

	CHILD_CHECK(1, gpu);
	shared->ready++;
	while (shared->ready < 2)
		nap(500);
	/* a third of it in the short form: a tenth would say little about shares */
	while (shared->busy[0] + shared->busy[1] < (repeats(10) == 1 ? 1 : 3) * 1000000000ull) {
		uint64_t start;

		CHILD_CHECK(2, !rtx_gpu_launch(gpu, RTX_COMPUTE));
		start = rtxg_now_ns();
		nap(usec);
		shared->busy[side] += rtxg_now_ns() - start;
		shared->launches[side]++;
		CHILD_CHECK(3, !rtx_gpu_sync(gpu, RTX_COMPUTE));
		/*
		 * Beyond what it was to sleep it holds the engine, or does not ask for it, because
		 * the CPUs keep it from going on.
		 */
		shared->late[side] += rtxg_now_ns() - start - usec * 1000ull;
	}
	CHILD_CHECK(4, !rtx_gpu_close(gpu));
	_exit(0);
}

/* What the vGPU had of the compute engine by the host's count, in ns. */
static double used_by(const char *vgpu)
{
	char *reply = control("{\"op\":\"stats\"}"), name[32], *at;
	double used;

	snprintf(name, sizeof(name), "\"vgpu\":\"%s\"", vgpu);
	at = strstr(reply, name);
	assert_non_null(at);
	at = strstr(at, "\"busy_ns\":");
	assert_non_null(at);
	used = strtod(at + strlen("\"busy_ns\":"), NULL);
	free(reply);
	return used;
}

static void shares_40_60(void **state)
{
	pid_t pids[2];
	double share, own, late;

	NEEDS_CONTROL();
	say("{\"op\":\"vgpu-create\",\"vgpu\":\"forty\",\"min_ppm\":400000}");
	say("{\"op\":\"vgpu-create\",\"vgpu\":\"sixty\",\"min_ppm\":600000}");
	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		if (!pids[i])
			use_engine(i, i ? "sixty" : "forty", i ? 1000 : 1200);
	}
	for (int i = 0; i < 2; i++)
		reap(pids[i]);
	until_tasks(0);
	share = used_by("forty") / (used_by("forty") + used_by("sixty"));
	own = (double)shared->busy[0] / (double)(shared->busy[0] + shared->busy[1]);
	late = (double)(shared->late[0] + shared->late[1]) /
	       (double)(shared->busy[0] + shared->busy[1]);
	print_message("share of the 40 %% program: %.2f %%, by its own clock %.2f %%; %.1f %% of "
		      "the time was waking up late\n",
		      share * 100, own * 100, late * 100);
	say("{\"op\":\"vgpu-remove\",\"vgpu\":\"forty\"}");
	say("{\"op\":\"vgpu-remove\",\"vgpu\":\"sixty\"}");
	/*
	 * A share is of those who ask. Programs that get no CPU to ask with say nothing about the
	 * host.
	 */
	if (late > 0.3 && !(share > 0.37 && share < 0.43)) {
		print_message("skipped: the CPUs are too busy for a statement about shares (%.1f "
			      "%% late)\n",
			      late * 100);
		skip();
	}
	assert_true(share > 0.37 && share < 0.43);
}

static void over_reservation_is_refused(void **state)
{
	char *reply = NULL;

	NEEDS_CONTROL();
	say("{\"op\":\"vgpu-create\",\"vgpu\":\"big\",\"min_ppm\":700000}");
	assert_int_equal(
		rtx_control("{\"op\":\"vgpu-create\",\"vgpu\":\"more\",\"min_ppm\":300001}",
			    &reply),
		-ENOSPC);
	assert_non_null(reply);
	assert_non_null(strstr(reply, "300000")); /* what would have been accepted */
	assert_non_null(strstr(rtx_strerror(), "30.0001%; the limit is 30%"));
	free(reply);
	say("{\"op\":\"vgpu-remove\",\"vgpu\":\"big\"}");
}

/* --- own parameters, devices, pools ----------------------------------------------------------- */

static void set_own_parameters(void **state)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t gpu = open_one();

	options.priority = 1;
	options.period_ns = 20000000;
	options.runtime_ns = 5000000;
	assert_int_equal(rtx_gpu_set(gpu, &options), 0);
	if (has_control)
		assert_int_equal(count_in("{\"op\":\"task-list\"}", "\"runtime_ns\":5000000"), 1);
	options.priority = 100;
	assert_int_equal(rtx_gpu_set(gpu, &options), -EINVAL);
	options.priority = 0;
	options.deadline_ns = 1000000; /* shorter than the runtime */
	assert_int_equal(rtx_gpu_set(gpu, &options), -EINVAL);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

/*
 * A daemon of the host "daemon" to which ordinary users may speak; the module needs none. It stands
 * in *folder, and RTXG_SOCKET names it.
 */
static pid_t start_public_daemon(char *folder)
{
	char socket_path[64], ready[16], byte, *program = getenv("RTXG_DAEMON");
	int ends[2];
	pid_t pid;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(chmod(folder, 0755), 0);
	snprintf(socket_path, sizeof(socket_path), "%s/rtxgd.sock", folder);
	assert_int_equal(pipe(ends), 0);
	snprintf(ready, sizeof(ready), "%d", ends[1]);
	pid = fork();
	if (!pid) {
		close(ends[0]);
		execlp(program ? program : "rtxgd", "rtxgd", "--system", "--host", "daemon",
		       "--socket", socket_path, "--config-root", folder, "--ready-fd", ready, NULL);
		_exit(127);
	}
	close(ends[1]);
	/* Its end, too, ends this. */
	while (read(ends[0], &byte, 1) < 0)
		assert_int_equal(errno, EINTR);
	close(ends[0]);
	setenv("RTXG_SOCKET", socket_path, 1);
	return pid;
}

static void stop_public_daemon(pid_t pid, const char *folder)
{
	char *reply = NULL, path[64];

	rtx_control("{\"op\":\"shutdown\",\"force\":true}", &reply);
	free(reply);
	unsetenv("RTXG_SOCKET");
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (const char *const *name = (const char *const[]){ "rtxgd.sock", "rtxgd.sock.lock",
							      "rtxgd.sock.state", NULL };
	     *name; name++) {
		snprintf(path, sizeof(path), "%s/%s", folder, *name);
		unlink(path);
	}
	assert_int_equal(rmdir(folder), 0);
}

static int priority_set(rtx_gpu_t gpu, unsigned int priority)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);

	options.priority = priority;
	return rtx_gpu_set(gpu, &options);
}

/* The highest priority that an ordinary user may name there is `limit`. */
static void as_ordinary_user(const char *device, const char *vgpu, unsigned int limit)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	pid_t pid = fork();
	rtx_gpu_t gpu;

	if (pid) {
		reap(pid);
		return;
	}
	CHILD_CHECK(1, !setgroups(0, NULL) && !setgid(65534) && !setuid(65534));
	options.device = device;
	options.vgpu = vgpu;
	options.flags = RTX_OPEN_NO_SPAWN;
	options.priority = limit + 1;
	CHILD_CHECK(2, rtx_gpu_open(&gpu, &options) == -EPERM);
	options.priority = limit;
	CHILD_CHECK(3, !rtx_gpu_open(&gpu, &options));
	CHILD_CHECK(4, priority_set(gpu, limit + 1) == -EPERM);
	CHILD_CHECK(5, priority_set(gpu, 99) == -EPERM);
	CHILD_CHECK(6, !priority_set(gpu, 1));
	CHILD_CHECK(7, !priority_set(gpu, limit));
	CHILD_CHECK(8, !rtx_gpu_close(gpu));
	options.priority = 0;
	CHILD_CHECK(9, !rtx_gpu_open(&gpu, &options));
	CHILD_CHECK(10, priority_set(gpu, limit + 1) == -EPERM);
	CHILD_CHECK(11, !priority_set(gpu, limit));
	_exit(0);
}

/* A vGPU without a TaskPriority= has that of its tasks: 1, in every host. */
static void an_ordinary_user_names_no_priority_above_the_vgpus(void **state)
{
	bool daemon = !strcmp(getenv("RTXG_HOST"), "daemon");
	char folder[] = "/tmp/rtxg-public-XXXXXX";
	pid_t pid = 0;
	rtx_gpu_t gpu;

	if (geteuid()) {
		print_message("only root can become another user\n");
		skip();
	}
	if (daemon)
		pid = start_public_daemon(folder);
	as_ordinary_user(NULL, NULL, 1);
	/* The module makes a GPU that a program names, before its front has heard of it. */
	if (!daemon)
		as_ordinary_user("fresh", NULL, 1);
	if (has_control) {
		say("{\"op\":\"vgpu-create\",\"vgpu\":\"plain\"}");
		say("{\"op\":\"vgpu-create\",\"vgpu\":\"limited\",\"task_priority\":20}");
		as_ordinary_user(NULL, "plain", 1);
		as_ordinary_user(NULL, "limited", 20);
		until_tasks(0);
		say("{\"op\":\"vgpu-remove\",\"vgpu\":\"plain\"}");
		say("{\"op\":\"vgpu-remove\",\"vgpu\":\"limited\"}");
	}
	/* Root may raise. */
	gpu = open_in(NULL, 99);
	assert_non_null(gpu);
	assert_int_equal(priority_set(gpu, 50), 0);
	assert_int_equal(rtx_gpu_close(gpu), 0);
	if (daemon)
		stop_public_daemon(pid, folder);
}

static void device_advice(void **state)
{
	char name[64], small[1];
	rtx_gpu_t gpu;

	NEEDS_CONTROL();
	assert_int_equal(rtx_gpu_device_advice("no-such-pool", name, sizeof(name)), -ENOENT);
	assert_int_equal(rtx_gpu_device_advice(NULL, small, sizeof(small)), -ENOSPC);
	say("{\"op\":\"pool-create\",\"pool\":\"two\",\"gpus\":[\"first\",\"second\"]}");
	assert_int_equal(rtx_gpu_device_advice("two", name, sizeof(name)), 0);
	assert_string_equal(name, "first");
	gpu = open_one();
	assert_int_equal(rtx_gpu_pool_acquire(gpu, "two", name, sizeof(name)), 0);
	assert_string_equal(name, "first");
	assert_int_equal(rtx_gpu_device_advice("two", name, sizeof(name)), 0);
	assert_string_equal(name, "second");
	assert_int_equal(rtx_gpu_pool_acquire(gpu, "two", name, sizeof(name)), -EALREADY);
	assert_int_equal(rtx_gpu_pool_release(gpu, "two"), 0);
	assert_int_equal(rtx_gpu_pool_release(gpu, "two"), -EPERM);
	assert_int_equal(rtx_gpu_close(gpu), 0);
	say("{\"op\":\"pool-remove\",\"pool\":\"two\"}");
}

static void *acquire(void *arg)
{
	char name[64];
	int ret = rtx_gpu_pool_acquire(arg, "one", name, sizeof(name));

	return (void *)(intptr_t)(ret ? ret : !strcmp(name, "only") ? 0 : -EPROTO);
}

static void pool_is_exclusive(void **state)
{
	rtx_gpu_t a, b;
	char name[64];
	pthread_t thread;
	void *result;

	NEEDS_CONTROL();
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"only\"]}");
	a = open_one();
	b = open_one();
	assert_int_equal(rtx_gpu_pool_acquire(a, "one", name, sizeof(name)), 0);
	assert_int_equal(pthread_create(&thread, NULL, acquire, b), 0);
	while (count_in("{\"op\":\"pool-list\"}", "\"members\":2") != 1)
		nap(1000);
	/* Held by a until it lets go, here by dying in the host's eyes. */
	assert_int_equal(rtx_gpu_close(a), 0);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_int_equal(rtx_gpu_pool_release(b, "one"), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
}

/* The request goes with the thread, and the handle is of use to others. */
static void a_waiter_that_is_cancelled_leaves_the_pool(void **state)
{
	rtx_gpu_t a, b;
	char name[64];
	pthread_t thread;
	void *result;

	NEEDS_CONTROL();
	if (strcmp(getenv("RTXG_HOST"), "daemon")) {
		print_message("a thread is cancelled in no call of the module\n");
		skip();
	}
#ifdef __SANITIZE_THREAD__
	print_message("ThreadSanitizer sees no lock let go by a thread cancelled in its poll()\n");
	skip();
#endif
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"only\"]}");
	a = open_one();
	b = open_one();
	assert_int_equal(rtx_gpu_pool_acquire(a, "one", name, sizeof(name)), 0);
	assert_int_equal(pthread_create(&thread, NULL, acquire, b), 0);
	while (count_in("{\"op\":\"pool-list\"}", "\"members\":2") != 1)
		nap(1000);
	assert_int_equal(pthread_cancel(thread), 0);
	pthread_join(thread, &result);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(count_in("{\"op\":\"pool-list\"}", "\"members\":1"), 1);
	assert_int_equal(rtx_gpu_pool_release(b, "one"), -EPERM);
	assert_int_equal(rtx_gpu_pool_release(a, "one"), 0);
	assert_int_equal(rtx_gpu_pool_acquire(b, "one", name, sizeof(name)), 0);
	assert_int_equal(rtx_gpu_pool_release(b, "one"), 0);
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
}

static void move_to_another_vgpu(void **state)
{
	char request[128];
	rtx_gpu_t gpu, other;

	NEEDS_CONTROL();
	say("{\"op\":\"vgpu-create\",\"vgpu\":\"there\"}");
	gpu = open_one();
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	snprintf(request, sizeof(request), "{\"op\":\"task-set\",\"pid\":%d,\"vgpu\":\"there\"}",
		 getpid());
	say(request);
	other = open_one();
	/* Not while a launch is in flight. */
	assert_int_equal(count_in("{\"op\":\"task-list\",\"vgpu\":\"there\"}", "\"task\":"), 0);
	assert_int_equal(count_in("{\"op\":\"task-list\"}", "\"moving_to\":\"there\""), 1);
	assert_int_equal(rtx_gpu_launch_until(other, RTX_COMPUTE, rtxg_now_ns()), -ETIMEDOUT);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	while (count_in("{\"op\":\"task-list\",\"vgpu\":\"there\"}", "\"task\":") != 1)
		nap(1000);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_launch(other, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_close(gpu), 0);
	assert_int_equal(rtx_gpu_close(other), 0);
	until_tasks(0);
	say("{\"op\":\"vgpu-remove\",\"vgpu\":\"there\"}");
}

static void accounts_agree(void **state)
{
	struct rtx_gpu_stats stats = RTX_INIT(struct rtx_gpu_stats);
	rtx_gpu_t gpu = open_one();

	for (int i = 0; i < 10; i++) {
		assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
		nap(1000);
		assert_int_equal(rtx_gpu_complete(gpu, RTX_COMPUTE, 500000), 0);
	}
	assert_int_equal(rtx_gpu_account(gpu, RTX_COMPUTE, 1), 0);
	assert_int_equal(rtx_gpu_ungated(gpu), 0);
	assert_int_equal(rtx_gpu_ungated(NULL), -EINVAL);
	assert_int_equal(rtx_gpu_stats(gpu, RTX_COMPUTE, &stats), 0);
	assert_int_equal(stats.launches, 10);
	assert_int_equal(stats.device_ns, 5000001);
	assert_true(stats.busy_ns >= 10 * 1000000);
	if (has_control) {
		char *reply = control("{\"op\":\"task-list\"}"), *at;
		unsigned long long busy;

		/* It said so itself, and is listed as that. */
		assert_non_null(strstr(reply, "\"remedy\":\"in part: "));
		/*
		 * What the host charged for what it saw is what the task measured, to within what
		 * the host may see later.
		 */
		at = strstr(reply, "\"busy_ns\":");
		assert_non_null(at);
		busy = strtoull(at + strlen("\"busy_ns\":"), NULL, 10);
		assert_true(busy >= stats.busy_ns * 95 / 100 &&
			    busy <= stats.busy_ns * 105 / 100 + 100000);
		free(reply);
	}
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

/* --- hostile and stopped programs ------------------------------------------------------------- */

/* This process's view of the page of the one task that it has open. */
static struct rtxg_page *own_page(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from = 0, at;
	char line[512], rights[8];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%*x %7s", &at, rights) == 2 && !strcmp(rights, "rw-s") &&
		    (strstr(line, "rtxg-page") || strstr(line, "/dev/rtxg")))
			from = at;
	if (maps)
		fclose(maps);
	return (struct rtxg_page *)from;
}

static unsigned long long number_after(const char *reply, const char *member)
{
	const char *at = strstr(reply, member);

	return at ? strtoull(at + strlen(member), NULL, 10) : 0;
}

static unsigned long long expelled(void)
{
	char *reply = control("{\"op\":\"stats\"}");
	unsigned long long sum = 0;

	for (char *at = reply; (at = strstr(at, "\"expelled\":")); at++)
		sum += number_after(at, "\"expelled\":");
	free(reply);
	return sum;
}

static void launches_claimed_beyond_the_possible_are_not_counted(void **state)
{
	uint64_t before = rtxg_now_ns(), opened, asked, answered;
	unsigned long long was, launches;
	struct rtxg_page *page;
	rtx_gpu_t gpu;
	char *reply;

	NEEDS_CONTROL();
	say("{\"op\":\"vgpu-create\",\"vgpu\":\"liar\"}");
	gpu = open_in("liar", 0);
	assert_non_null(gpu);
	opened = rtxg_now_ns();
	page = own_page();
	assert_non_null(page);
	assert_int_equal(page->magic, RTXG_PAGE_MAGIC);
	was = page->lanes[RTX_COMPUTE].launches;
	page->lanes[RTX_COMPUTE].launches = UINT64_MAX;
	nap(200000);
	asked = rtxg_now_ns();
	reply = control("{\"op\":\"stats\"}");
	answered = rtxg_now_ns();
	assert_non_null(strstr(reply, "\"liar\""));
	launches = number_after(strstr(reply, "\"liar\""), "\"launches\":");
	free(reply);
	/* One in ten nanoseconds of the task's life, under every host. */
	assert_true(launches >= (asked - opened) / 10);
	assert_true(launches <= (answered - before) / 10);
	page->lanes[RTX_COMPUTE].launches = was;
	assert_int_equal(rtx_gpu_close(gpu), 0);
	say("{\"op\":\"vgpu-remove\",\"vgpu\":\"liar\"}");
}

static void *launch_again(void *arg)
{
	while (!shared->go)
		nap(1000);
	return (void *)(intptr_t)rtx_gpu_launch(arg, RTX_COMPUTE);
}

/* Its permit is called back while it computes, its next thread waits, and then it is stopped. */
static void a_stopped_program_delays_the_others_once(void **state)
{
	unsigned long long before;
	pthread_t waiter;
	rtx_gpu_t gpu;
	void *result;
	pid_t pid;

	NEEDS_CONTROL();
	before = expelled();
	patience(false);
	pid = fork();
	if (!pid) {
		rtx_gpu_t own = open_in(NULL, 0);
		pthread_t thread;

		CHILD_CHECK(1, own);
		CHILD_CHECK(2, !rtx_gpu_launch(own, RTX_COMPUTE));
		CHILD_CHECK(3, !pthread_create(&thread, NULL, launch_again, own));
		shared->ready = 1;
		while (shared->go < 2)
			nap(1000);
		CHILD_CHECK(4, !rtx_gpu_sync(own, RTX_COMPUTE));
		pthread_join(thread, &result);
		CHILD_CHECK(5, !result);
		CHILD_CHECK(6, !rtx_gpu_sync(own, RTX_COMPUTE));
		CHILD_CHECK(7, !rtx_gpu_close(own));
		_exit(0);
	}
	gpu = open_one();
	while (!shared->ready)
		nap(1000);
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_launch, gpu), 0);
	while (count_in("{\"op\":\"task-list\"}", "\"state\":\"revoked\"") != 1)
		nap(1000);
	shared->go = 1;
	nap(50000); /* for its thread to wait; if it comes later there is less to see */
	kill(pid, SIGSTOP);
	patience(true);
	pthread_join(waiter, &result); /* it is expelled */
	assert_int_equal((intptr_t)result, 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
		nap(2000);
		assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	}
	assert_int_equal(expelled() - before, 1);
	/* It goes on, and gets its turn. */
	shared->go = 2;
	kill(pid, SIGCONT);
	reap(pid);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

/* It is given a permit while it is stopped, and has launched nothing. */
static void a_stopped_waiter_delays_the_others_once(void **state)
{
	unsigned long long before;
	rtx_gpu_t gpu;
	pid_t pid;

	NEEDS_CONTROL();
	before = expelled();
	gpu = open_one();
	patience(false);
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	pid = fork();
	if (!pid) {
		rtx_gpu_t own = open_in(NULL, 0);

		CHILD_CHECK(1, own);
		CHILD_CHECK(2, !rtx_gpu_launch(own, RTX_COMPUTE));
		CHILD_CHECK(3, !rtx_gpu_sync(own, RTX_COMPUTE));
		CHILD_CHECK(4, !rtx_gpu_close(own));
		_exit(0);
	}
	until_waiting(1);
	kill(pid, SIGSTOP);
	patience(true);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
		nap(2000);
		assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	}
	assert_int_equal(expelled() - before, 1);
	kill(pid, SIGCONT);
	reap(pid);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

/* The waiter no longer wants what it is given, and its ring never comes. */
static void a_permit_given_in_vain_goes_on(void **state)
{
	unsigned long long before;
	rtx_gpu_t a, c;
	pthread_t waiter;
	void *result;
	pid_t pid;
	int status;

	NEEDS_CONTROL();
	before = expelled();
	patience(false);
	a = open_one();
	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	pid = fork();
	if (!pid) {
		rtx_gpu_t own = open_in(NULL, 0);
		struct rtxg_page *page = own_page();
		pthread_t thread;

		CHILD_CHECK(1, own && page);
		CHILD_CHECK(2, !pthread_create(&thread, NULL, wait_for_launch, own));
		while (!shared->go)
			nap(1000);
		/* the waiting thread uses the word too */
		__atomic_store_n(&page->lanes[RTX_COMPUTE].want, 0, __ATOMIC_SEQ_CST);
		shared->ready = 1;
		for (;;)
			pause();
	}
	until_waiting(1);
	shared->go = 1;
	while (!shared->ready)
		nap(1000);
	c = open_one();
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_launch, c), 0);
	until_waiting(2);
	assert_int_equal(rtx_gpu_sync(a, RTX_COMPUTE), 0);
	pthread_join(waiter, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_int_equal(expelled() - before, 0);
	patience(true);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(c), 0);
}

/*
 * A wait for a program that was just busy ends by itself, however long is allowed: nothing is known
 * of its pauses, so it is waited for no longer than the launches have taken.
 */
static void a_program_that_does_not_come_back_is_waited_for_in_bounds(void **state)
{
	rtx_gpu_t away, stays;
	pthread_t waiter;
	void *result;

	NEEDS_CONTROL();
	patience(false);
	say("{\"op\":\"gpu-set\",\"think_ns\":36000000000000}");
	say("{\"op\":\"vgpu-create\",\"vgpu\":\"away\",\"min_ppm\":300000}");
	away = open_in("away", 0);
	stays = open_one();
	assert_non_null(away);
	assert_int_equal(rtx_gpu_launch(away, RTX_COMPUTE), 0);
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_launch, stays), 0);
	until_waiting(1);
	assert_int_equal(rtx_gpu_sync(away, RTX_COMPUTE), 0);
	pthread_join(waiter, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_int_equal(rtx_gpu_close(away), 0);
	assert_int_equal(rtx_gpu_close(stays), 0);
	say("{\"op\":\"vgpu-remove\",\"vgpu\":\"away\"}");
	say("{\"op\":\"gpu-set\",\"think_ns\":2000000}");
	patience(true);
}

/* Called back before its first use, it is good for one launch: not in the vGPU that comes next. */
static void a_move_leaves_a_permit_called_back_behind(void **state)
{
	unsigned long long before;
	char request[128];
	pthread_t waiter;
	rtx_gpu_t a, c;
	void *result;
	pid_t pid;

	NEEDS_CONTROL();
	before = expelled();
	patience(false);
	say("{\"op\":\"vgpu-create\",\"vgpu\":\"there\"}");
	a = open_one();
	assert_int_equal(rtx_gpu_launch(a, RTX_COMPUTE), 0);
	pid = fork();
	if (!pid) {
		rtx_gpu_t own = open_in(NULL, 0);

		CHILD_CHECK(1, own);
		CHILD_CHECK(2, !rtx_gpu_launch(own, RTX_COMPUTE));
		CHILD_CHECK(3, !rtx_gpu_sync(own, RTX_COMPUTE));
		CHILD_CHECK(4, !rtx_gpu_close(own));
		_exit(0);
	}
	until_waiting(1);
	kill(pid, SIGSTOP);
	c = open_one();
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_launch, c), 0);
	until_waiting(2);
	assert_int_equal(rtx_gpu_sync(a, RTX_COMPUTE), 0); /* the stopped one is given a permit */
	snprintf(request, sizeof(request), "{\"op\":\"task-set\",\"pid\":%d,\"vgpu\":\"there\"}",
		 pid);
	say(request);
	assert_int_equal(count_in("{\"op\":\"task-list\",\"vgpu\":\"there\"}", "\"task\":"), 1);
	kill(pid, SIGCONT);
	pthread_join(waiter, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_int_equal(rtx_gpu_sync(c, RTX_COMPUTE), 0);
	reap(pid);
	assert_int_equal(expelled() - before, 0);
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(c), 0);
	until_tasks(0);
	say("{\"op\":\"vgpu-remove\",\"vgpu\":\"there\"}");
	patience(true);
}

/* --- one rule under every host ---------------------------------------------------------------- */

static void an_overrun_is_charged_back_on_a_gpu_without_configuration(void **state)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t gpu;

	NEEDS_CONTROL();
	options.device = "not-configured";
	assert_int_equal(rtx_gpu_open(&gpu, &options), 0);
	assert_int_equal(count_in("{\"op\":\"gpu-list\"}", "\"overrun\":\"forgive\""), 0);
	assert_int_equal(rtx_gpu_close(gpu), 0);
}

static rtx_gpu_t open_for(uint64_t runtime_ns)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t gpu = NULL;

	options.runtime_ns = runtime_ns;
	assert_int_equal(rtx_gpu_open(&gpu, &options), 0);
	return gpu;
}

static void a_pool_counts_the_runtime_of_its_tasks(void **state)
{
	char name[64];
	rtx_gpu_t a, b;

	NEEDS_CONTROL();
	say("{\"op\":\"pool-create\",\"pool\":\"two\",\"gpus\":[\"first\",\"second\"]}");
	a = open_for(10000000);
	b = open_for(3000000);
	assert_int_equal(rtx_gpu_pool_acquire(a, "two", name, sizeof(name)), 0);
	assert_string_equal(name, "first");
	assert_int_equal(rtx_gpu_pool_acquire(b, "two", name, sizeof(name)), 0);
	assert_string_equal(name, "second");
	/* Both queues are as short; the wait behind b is less. */
	assert_int_equal(rtx_gpu_device_advice("two", name, sizeof(name)), 0);
	assert_string_equal(name, "second");
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(b), 0);
	say("{\"op\":\"pool-remove\",\"pool\":\"two\"}");
}

static int own_priority(void)
{
	struct sched_param param;

	assert_int_equal(sched_getparam(0, &param), 0);
	return param.sched_priority;
}

/* Looks at the thread, and waits: a host may set the priority a moment after it answered. */
static void until_priority(int priority)
{
	while (own_priority() != priority)
		nap(1000);
}

/* A thread that waits for a GPU of a pool at that CPU priority; 0: as an ordinary thread. */
#define AS_DEADLINE (-1)
struct pool_wait {
	rtx_gpu_t gpu;
	const char *pool;
	int priority;
	pthread_t thread;
};

/* True if the calling thread is SCHED_DEADLINE now, false if it may not. */
static bool go_deadline(void)
{
	/* linux/sched/types.h; libc brings it from 2.41 on only */
	const struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { 48, 6, 1, 0, 0, 1000000, 100000000, 100000000 };

	if (!syscall(SYS_sched_setattr, 0, &attr, 0))
		return true;
	print_message("no right to SCHED_DEADLINE: %s\n", strerror(errno));
	return false;
}

static void *acquire_of(void *arg)
{
	struct pool_wait *wait = arg;
	char name[64];

	if (wait->priority == AS_DEADLINE && !go_deadline())
		return (void *)(intptr_t)-EPERM;
	return (void *)(intptr_t)rtx_gpu_pool_acquire(wait->gpu, wait->pool, name, sizeof(name));
}

static void start_wait(struct pool_wait *wait)
{
	struct sched_param param = { .sched_priority = wait->priority > 0 ? wait->priority : 0 };
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, wait->priority > 0 ? SCHED_FIFO : SCHED_OTHER);
	pthread_attr_setschedparam(&attr, &param);
	assert_int_equal(pthread_create(&wait->thread, &attr, acquire_of, wait), 0);
	pthread_attr_destroy(&attr);
}

static void end_wait(struct pool_wait *wait)
{
	void *result;

	pthread_join(wait->thread, &result);
	assert_int_equal((intptr_t)result, 0);
	assert_int_equal(rtx_gpu_pool_release(wait->gpu, wait->pool), 0);
	assert_int_equal(rtx_gpu_close(wait->gpu), 0);
}

/* True if the calling thread is SCHED_FIFO of that priority now, false if it may not. */
static bool go_real_time(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	if (!sched_setscheduler(0, SCHED_FIFO, &param))
		return true;
	print_message("no right to a real-time priority: %s\n", strerror(errno));
	return false;
}

static void go_ordinary(void)
{
	struct sched_param plain = { 0 };

	assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &plain), 0);
}

/* Forks and threads of a raised thread begin as ordinary ones; the thread's own wish comes back. */
static void a_holder_runs_at_the_priority_that_it_inherits(void **state)
{
	char name[64];
	rtx_gpu_t a;

	NEEDS_CONTROL();
	if (!go_real_time(10))
		skip();
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"only\"]}");
	for (int closes = 0; closes < 2; closes++) {
		struct pool_wait wait = { open_in(NULL, 5), "one", 60 };

		a = open_in(NULL, 70);
		assert_true(a && wait.gpu);
		assert_int_equal(rtx_gpu_pool_acquire(a, "one", name, sizeof(name)), 0);
		assert_int_equal(own_priority(), 10);
		start_wait(&wait);
		until_priority(60);
		assert_int_equal(sched_getscheduler(0), SCHED_FIFO | SCHED_RESET_ON_FORK);
		/* The thread keeps no task waiting any more, or its handle is gone. */
		if (closes)
			assert_int_equal(rtx_gpu_close(a), 0);
		else
			assert_int_equal(rtx_gpu_pool_release(a, "one"), 0);
		until_priority(10);
		assert_int_equal(sched_getscheduler(0), SCHED_FIFO);
		end_wait(&wait);
		if (!closes)
			assert_int_equal(rtx_gpu_close(a), 0);
	}
	go_ordinary();
	until_tasks(0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
}

static void until_in_pool(int tasks)
{
	while (count_in("{\"op\":\"task-list\"}", "\"pool\":\"one\"") != tasks)
		nap(1000);
}

/* A GPU priority gives no right to a CPU. No thread is raised as high as the kernel's own. */
static void a_gpu_priority_gives_the_holder_no_cpu_priority(void **state)
{
	struct pool_wait ordinary = { open_in(NULL, 99), "one", 0 };
	struct pool_wait low = { open_in(NULL, 98), "one", 30 };
	struct pool_wait highest = { open_in(NULL, 1), "one", 99 };
	rtx_gpu_t a = open_in(NULL, 5);
	char name[64];

	NEEDS_CONTROL();
	assert_true(a && ordinary.gpu && low.gpu && highest.gpu);
	if (!go_real_time(10))
		skip();
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"only\"]}");
	assert_int_equal(rtx_gpu_pool_acquire(a, "one", name, sizeof(name)), 0);
	start_wait(&ordinary);
	until_in_pool(2);
	assert_int_equal(own_priority(), 10);
	start_wait(&low);
	until_in_pool(3);
	until_priority(30);
	start_wait(&highest);
	until_in_pool(4);
	until_priority(97);
	assert_int_equal(rtx_gpu_pool_release(a, "one"), 0);
	until_priority(10);
	end_wait(&ordinary);
	end_wait(&low);
	end_wait(&highest);
	assert_int_equal(rtx_gpu_close(a), 0);
	go_ordinary();
	until_tasks(0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
}

/* SCHED_DEADLINE comes before all fixed priorities: the holder gets the highest that there is. */
static void a_deadline_waiter_gives_the_highest_priority(void **state)
{
	struct pool_wait low = { NULL, "one", 30 }, deadline = { NULL, "one", AS_DEADLINE };
	char name[64];
	rtx_gpu_t a;

	NEEDS_CONTROL();
	if (!go_deadline() || !go_real_time(10))
		skip();
	a = open_in(NULL, 5);
	low.gpu = open_in(NULL, 5);
	deadline.gpu = open_in(NULL, 5);
	assert_true(a && low.gpu && deadline.gpu);
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"only\"]}");
	assert_int_equal(rtx_gpu_pool_acquire(a, "one", name, sizeof(name)), 0);
	start_wait(&low);
	until_priority(30);
	start_wait(&deadline);
	until_priority(97);
	assert_int_equal(sched_getscheduler(0), SCHED_FIFO | SCHED_RESET_ON_FORK);
	assert_int_equal(rtx_gpu_pool_release(a, "one"), 0);
	until_priority(10);
	assert_int_equal(sched_getscheduler(0), SCHED_FIFO);
	end_wait(&low);
	end_wait(&deadline);
	assert_int_equal(rtx_gpu_close(a), 0);
	go_ordinary();
	until_tasks(0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
}

/* The kernel lets a raised thread set any priority up to the one that it inherits. */
static void a_raised_thread_keeps_no_priority_above_its_own(void **state)
{
	static const int sets[] = { 59, 4 }, gets[] = { 10, 4 };
	char name[64];

	NEEDS_CONTROL();
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"only\"]}");
	for (int i = 0; i < 2; i++) {
		struct pool_wait wait = { open_in(NULL, 5), "one", 60 };
		struct sched_param param = { .sched_priority = sets[i] };
		rtx_gpu_t a = open_in(NULL, 5);

		assert_true(a && wait.gpu);
		if (!go_real_time(10))
			skip();
		assert_int_equal(rtx_gpu_pool_acquire(a, "one", name, sizeof(name)), 0);
		start_wait(&wait);
		until_priority(60);
		assert_int_equal(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param),
				 0);
		assert_int_equal(rtx_gpu_pool_release(a, "one"), 0);
		until_priority(gets[i]);
		end_wait(&wait);
		assert_int_equal(own_priority(), gets[i]);
		assert_int_equal(rtx_gpu_close(a), 0);
	}
	go_ordinary();
	until_tasks(0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
}

/*
 * What a raised thread becomes by a right of its own is no more the host's: neither SCHED_DEADLINE,
 * nor what it sets after it.
 */
static void a_raised_thread_that_went_deadline_keeps_what_it_sets(void **state)
{
	struct pool_wait wait = { NULL, "one", 60 };
	struct sched_param param = { .sched_priority = 80 };
	char name[64];
	rtx_gpu_t a;

	NEEDS_CONTROL();
	if (!go_deadline() || !go_real_time(10))
		skip();
	a = open_in(NULL, 5);
	wait.gpu = open_in(NULL, 5);
	assert_true(a && wait.gpu);
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"only\"]}");
	assert_int_equal(rtx_gpu_pool_acquire(a, "one", name, sizeof(name)), 0);
	start_wait(&wait);
	until_priority(60);
	assert_true(go_deadline());
	assert_int_equal(rtx_gpu_pool_release(a, "one"), 0);
	/* The daemon has done all of that when it answers this. */
	say("{\"op\":\"task-list\"}");
	assert_int_equal(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param), 0);
	/* The pool changes hands: a host looks at its threads. */
	end_wait(&wait);
	say("{\"op\":\"task-list\"}");
	assert_int_equal(own_priority(), 80);
	assert_int_equal(sched_getscheduler(0), SCHED_FIFO | SCHED_RESET_ON_FORK);
	assert_int_equal(rtx_gpu_close(a), 0);
	go_ordinary();
	until_tasks(0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
}

/* In either order, the thread's own priority is the one before the first raise. */
static void a_thread_that_holds_two_gpus_gets_its_own_priority_back(void **state)
{
	static const char *const pools[] = { "one", "other" };
	static const int priorities[] = { 60, 80 };
	char name[64];

	NEEDS_CONTROL();
	if (!go_real_time(30))
		skip();
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"first\"]}");
	say("{\"op\":\"pool-create\",\"pool\":\"other\",\"gpus\":[\"second\"]}");
	for (int first = 0; first < 2; first++) {
		struct pool_wait waits[2];
		rtx_gpu_t holders[2];

		for (int i = 0; i < 2; i++) {
			holders[i] = open_in(NULL, 5);
			waits[i] = (struct pool_wait){ open_in(NULL, 5), pools[i], priorities[i] };
			assert_true(holders[i] && waits[i].gpu);
			assert_int_equal(
				rtx_gpu_pool_acquire(holders[i], pools[i], name, sizeof(name)), 0);
		}
		for (int i = 0; i < 2; i++) {
			start_wait(&waits[i]);
			until_priority(priorities[i]);
		}
		assert_int_equal(rtx_gpu_pool_release(holders[first], pools[first]), 0);
		until_priority(priorities[!first]);
		assert_int_equal(rtx_gpu_pool_release(holders[!first], pools[!first]), 0);
		until_priority(30);
		for (int i = 0; i < 2; i++) {
			end_wait(&waits[i]);
			assert_int_equal(rtx_gpu_close(holders[i]), 0);
		}
		assert_int_equal(own_priority(), 30);
	}
	go_ordinary();
	until_tasks(0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
	say("{\"op\":\"pool-remove\",\"pool\":\"other\"}");
}

/* A signal ends the wait for a GPU: the holder inherits nothing more, before any other call. */
static void a_waiter_that_a_signal_withdraws_gives_no_priority(void **state)
{
	const struct itimerval often = { { 0, 20000 }, { 0, 20000 } }, never = { 0 };
	struct pool_wait wait = { NULL, "one", 60 };
	struct sigaction action = { .sa_handler = on_alarm }, before;
	sigset_t alarm_set;
	char name[64];
	rtx_gpu_t a;
	void *result;

	NEEDS_CONTROL();
	if (!go_real_time(10))
		skip();
	say("{\"op\":\"pool-create\",\"pool\":\"one\",\"gpus\":[\"only\"]}");
	a = open_in(NULL, 5);
	wait.gpu = open_in(NULL, 60);
	assert_true(a && wait.gpu);
	assert_int_equal(rtx_gpu_pool_acquire(a, "one", name, sizeof(name)), 0);
	assert_int_equal(own_priority(), 10);
	start_wait(&wait);
	until_priority(60);
	/* The timer's signals go to the thread that does not keep them out: the waiter. */
	sigemptyset(&alarm_set);
	sigaddset(&alarm_set, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm_set, NULL);
	sigaction(SIGALRM, &action, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	pthread_join(wait.thread, &result);
	setitimer(ITIMER_REAL, &never, NULL);
	assert_int_equal((intptr_t)result, -EINTR);
	until_priority(10);
	/* One that was left over ends here. */
	signal(SIGALRM, SIG_IGN);
	sigaction(SIGALRM, &before, NULL);
	pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
	assert_int_equal(rtx_gpu_pool_release(a, "one"), 0);
	go_ordinary();
	assert_int_equal(rtx_gpu_close(a), 0);
	assert_int_equal(rtx_gpu_close(wait.gpu), 0);
	until_tasks(0);
	say("{\"op\":\"pool-remove\",\"pool\":\"one\"}");
}

static void advice_without_a_pool_is_the_gpu_with_the_fewest_tasks(void **state)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t gpus[16];
	char name[64], last[64] = "";
	int count = 0;

	NEEDS_CONTROL();
	/* Each goes where the advice says: no GPU is named again before all the others. */
	for (; count < 3; count++) {
		assert_int_equal(rtx_gpu_device_advice(NULL, name, sizeof(name)), 0);
		assert_string_not_equal(name, last);
		options.device = name;
		assert_int_equal(rtx_gpu_open(&gpus[count], &options), 0);
		strcpy(last, name);
	}
	while (count--)
		assert_int_equal(rtx_gpu_close(gpus[count]), 0);
}

/* --- no host ---------------------------------------------------------------------------------- */

static void unmanaged(void **state)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	const char *host = getenv("RTXG_HOST");
	char saved[32], *reply;
	rtx_gpu_t gpu;

	snprintf(saved, sizeof(saved), "%s", host ? host : "");
	setenv("RTXG_HOST", "daemon", 1);
	setenv("RTXG_SOCKET", "/nonexistent/rtxgd.sock", 1);
	options.flags = RTX_OPEN_NO_SPAWN;
	assert_int_equal(rtx_gpu_open(&gpu, &options), -ECONNREFUSED);
	assert_int_equal(rtx_control("{\"op\":\"hello\"}", &reply), -ECONNREFUSED);
	assert_null(reply);
	options.flags |= RTX_OPEN_UNMANAGED;
	assert_int_equal(rtx_gpu_open(&gpu, &options), 0);
	assert_false(rtx_gpu_managed(gpu));
	assert_int_equal(rtx_gpu_launch(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), 0);
	assert_int_equal(rtx_gpu_sync(gpu, RTX_COMPUTE), -EPERM);
	assert_int_equal(rtx_gpu_close(gpu), 0);
	unsetenv("RTXG_SOCKET");
	if (*saved)
		setenv("RTXG_HOST", saved, 1);
	else
		unsetenv("RTXG_HOST");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(launch_before_open, setup),
		cmocka_unit_test_setup(sync_without_launch, setup),
		cmocka_unit_test_setup(notify_misuse, setup),
		cmocka_unit_test_setup(bad_options, setup),
		cmocka_unit_test_setup(outstanding_limit, setup),
		cmocka_unit_test_setup(sync_fence, setup),
		cmocka_unit_test_setup(sync_notify_word, setup),
		cmocka_unit_test_setup(sync_notify_fd, setup),
		cmocka_unit_test_setup(sync_gives_up_in_time, setup),
		cmocka_unit_test_setup(sync_wait_function, setup),
		cmocka_unit_test_setup(mutual_exclusion, setup),
		cmocka_unit_test_setup(early_permits_are_two_at_most, setup),
		cmocka_unit_test_setup(deaths_beside_early_permits, setup),
		cmocka_unit_test_setup(engines_are_apart, setup),
		cmocka_unit_test_setup(threads_share_a_handle, setup),
		cmocka_unit_test_setup(timeouts, setup),
		cmocka_unit_test_setup(interrupted, setup),
		cmocka_unit_test_setup(close_sends_waiters_away, setup),
		cmocka_unit_test_setup(priority_order, setup),
		cmocka_unit_test_setup(revocation_is_seen, setup),
		cmocka_unit_test_setup(death_while_holding, setup),
		cmocka_unit_test_setup(death_while_waiting, setup),
		cmocka_unit_test_setup(close_with_outstanding, setup),
		cmocka_unit_test_setup(forked_child, setup),
		cmocka_unit_test_setup(child_of_bare_fork, setup),
		cmocka_unit_test_setup(parent_dies_child_lives, setup),
		cmocka_unit_test_setup(thousand_tasks, setup),
		cmocka_unit_test_setup(shares_40_60, setup),
		cmocka_unit_test_setup(over_reservation_is_refused, setup),
		cmocka_unit_test_setup(set_own_parameters, setup),
		cmocka_unit_test_setup(an_ordinary_user_names_no_priority_above_the_vgpus, setup),
		cmocka_unit_test_setup(device_advice, setup),
		cmocka_unit_test_setup(pool_is_exclusive, setup),
		cmocka_unit_test_setup(a_waiter_that_is_cancelled_leaves_the_pool, setup),
		cmocka_unit_test_setup(move_to_another_vgpu, setup),
		cmocka_unit_test_setup(accounts_agree, setup),
		cmocka_unit_test_setup(launches_claimed_beyond_the_possible_are_not_counted, setup),
		cmocka_unit_test_setup(a_stopped_program_delays_the_others_once, setup),
		cmocka_unit_test_setup(a_stopped_waiter_delays_the_others_once, setup),
		cmocka_unit_test_setup(a_permit_given_in_vain_goes_on, setup),
		cmocka_unit_test_setup(a_program_that_does_not_come_back_is_waited_for_in_bounds,
				       setup),
		cmocka_unit_test_setup(a_move_leaves_a_permit_called_back_behind, setup),
		cmocka_unit_test_setup(an_overrun_is_charged_back_on_a_gpu_without_configuration,
				       setup),
		cmocka_unit_test_setup(a_pool_counts_the_runtime_of_its_tasks, setup),
		cmocka_unit_test_setup(a_holder_runs_at_the_priority_that_it_inherits, setup),
		cmocka_unit_test_setup(a_gpu_priority_gives_the_holder_no_cpu_priority, setup),
		cmocka_unit_test_setup(a_deadline_waiter_gives_the_highest_priority, setup),
		cmocka_unit_test_setup(a_raised_thread_keeps_no_priority_above_its_own, setup),
		cmocka_unit_test_setup(a_raised_thread_that_went_deadline_keeps_what_it_sets,
				       setup),
		cmocka_unit_test_setup(a_thread_that_holds_two_gpus_gets_its_own_priority_back,
				       setup),
		cmocka_unit_test_setup(a_waiter_that_a_signal_withdraws_gives_no_priority, setup),
		cmocka_unit_test_setup(advice_without_a_pool_is_the_gpu_with_the_fewest_tasks,
				       setup),
		cmocka_unit_test_setup(unmanaged, setup),
	};
	const char *host = getenv("RTXG_HOST");
	char folder[] = "/tmp/rtxg-conform-XXXXXX", path[128];
	char *reply = NULL;
	int failed;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	unsetenv("RTXG_SOCKET");
	unsetenv("RTXG_VGPU");
	if (!host || !*host)
		host = "daemon";
	setenv("RTXG_HOST", host, 1);
	if (!strcmp(host, "module") && access("/dev/rtxg", F_OK)) {
		puts("skipped: RTXG_HOST=module, but /dev/rtxg is not there; load rtxg.ko");
		return 77;
	}
	if (!mkdtemp(folder))
		return 1;
	/* Not the machine's daemon, nor the user's: one of our own, which the library starts. */
	setenv("XDG_RUNTIME_DIR", folder, 1);
	has_control = !rtx_host_start();
	if (!has_control) {
		snprintf(no_control, sizeof(no_control), "%s", rtx_strerror());
		fprintf(stderr, "no daemon could be started: %s\n", no_control);
		if (strcmp(host, "module"))
			return 1;
	}
	if (has_control) {
		char *hello = control("{\"op\":\"hello\"}"), wanted[64];

		/*
		 * Whatever runs on this machine besides: what is tested is the host that was asked
		 * for.
		 */
		snprintf(wanted, sizeof(wanted), "\"host\":\"%s\"", host);
		if (!strstr(hello, wanted)) {
			fprintf(stderr,
				"the daemon that answers does not speak for the host %s: %s\n",
				host, hello);
			return 1;
		}
		free(hello);
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (has_control) {
		rtx_control("{\"op\":\"shutdown\",\"force\":true}", &reply);
		free(reply);
		snprintf(path, sizeof(path), "%s/rtxg/start.lock", folder);
		unlink(path);
		for (int i = 0; i < 1000; i++) {
			snprintf(path, sizeof(path), "%s/rtxg", folder);
			if (!rmdir(path))
				break;
			nap(1000);
		}
		rmdir(folder);
	}
	return failed ? 1 : 0;
}
