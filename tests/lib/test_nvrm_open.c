// SPDX-License-Identifier: MIT
/*
 * test_nvrm_open.c - GPUs that are not there are opened, closed and forked with: nothing leaks,
 * whichever step of the set-up is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "nvrm.h"
#include "nvrm_abi.h"
#include "nvrm_rig.h"
#include "rtxg_clock.h"

static int maps_before;

/* Maps of pages that the GPU is given. */
static int maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char mapped[512];
	int count = 0;

	assert_non_null(f);
	while (fgets(mapped, sizeof(mapped), f))
		count += strstr(mapped, "rtxg-words") || strstr(mapped, "/dev/zero");
	fclose(f);
	return count;
}

static void no_map_is_left(void)
{
	assert_int_equal(maps(), maps_before);
}

static int before(void **state)
{
	rig_reset();
	nothing_else_is_left = no_map_is_left;
	maps_before = maps();
	return 0;
}

static void a_child_has_none_of_it_and_harms_nothing(void **state)
{
	int status, event;
	pid_t child;

	up();
	event = fake_nvrm.fds;
	child = fork();
	if (!child) {
		/* every descriptor of the driver's is closed in it */
		int ok = fake_nvrm.fds == 0 &&
			 rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, 0) == -ECHILD;

		ok = ok && rtx_timeline_arm(line, 1) == -ECHILD && !rtx_timeline_word(line);
		ok = ok && rtx_nvrm_close(gpu) == -ECHILD;
		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(fake_nvrm.fds, event);
	set(line, 1);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	down();
}

/* The engine of the GPU that is not there is a thread, so the child has it start again. */
static void a_child_opens_its_own(void **state)
{
	int status;
	pid_t child;

	up();
	child = fork();
	if (!child) {
		rtx_nvrm_t own;
		rtx_timeline_t t;
		int ok;

		fake_nvrm_reset();
		ok = !rtx_nvrm_init(&own, NULL) && !rtx_nvrm_timeline(own, NULL, &t) &&
		     !rtx_timeline_arm(t, 1);
		if (!ok) {
			fprintf(stderr, "%s\n", rtx_strerror());
			_exit(1);
		}
		set(t, 1);
		ok = !rtx_timeline_wait(t, 1, RTX_SYNC_NOTIFY, UINT64_MAX);
		ok = ok && rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, 0) == -ECHILD;
		ok = ok && !rtx_nvrm_close(own) && !fake_nvrm.fds && !fake_nvrm.objects;
		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	down();
}

static pid_t forked;

static void fork_in_a_handler(int number)
{
	__atomic_store_n(&forked, fork(), __ATOMIC_SEQ_CST);
}

static void *wait_and_be_forked(void *arg)
{
	int ret = rtx_timeline_wait(line, 1, RTX_SYNC_FENCE, UINT64_MAX);

	if (!__atomic_load_n(&forked, __ATOMIC_SEQ_CST))
		_exit(ret == -ECANCELED ? 0 : 1);
	return (void *)(intptr_t)ret;
}

/*
 * The child comes back into the wait, for a word that it does not have. (One that sleeps ends by
 * the signal in both.)
 */
static void a_wait_that_is_forked_ends_in_the_child(void **state)
{
	struct sigaction action = { .sa_handler = fork_in_a_handler };

#ifdef __SANITIZE_THREAD__
	print_message("skipped: ThreadSanitizer keeps signals back in a loop without calls\n");
	skip();
#endif
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 20; i++) {
		struct rtx_timeline_stats s = RTX_INIT(struct rtx_timeline_stats);
		pthread_t thread;
		pid_t child;
		void *ret;
		int status;

		before(NULL);
		up();
		__atomic_store_n(&forked, -1, __ATOMIC_SEQ_CST);
		assert_int_equal(pthread_create(&thread, NULL, wait_and_be_forked, NULL), 0);
		while (!s.waits)
			assert_int_equal(rtx_timeline_stats(line, &s), 0);
		/* wherever it is by then */
		nanosleep(&(struct timespec){ .tv_nsec = i * 7919 % 100000 }, NULL);
		pthread_kill(thread, SIGUSR1);
		while ((child = __atomic_load_n(&forked, __ATOMIC_SEQ_CST)) <= 0)
			usleep(100);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		set(line, 1);
		pthread_join(thread, &ret);
		assert_null(ret);
		down();
	}
}

/* --- several handles of one GPU --------------------------------------------------------------- */

static void has_come(rtx_timeline_t t, uint32_t value)
{
	assert_int_equal(rtx_timeline_arm(t, value), 0);
	assert_false(rtx_timeline_reached(t, value));
	set(t, value);
	assert_int_equal(rtx_timeline_wait(t, value, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
}

static void handles_of_one_gpu_share_a_client(void **state)
{
	static const char *const names[] = { NULL, "0", "0000:40:01.0" };

	for (size_t first = 0; first < 2; first++)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			rtx_timeline_t others[RTX_TIMELINES_MAX];
			rtx_nvrm_t other;
			int calls, opens;

			up();
			calls = fake_nvrm.calls;
			opens = fake_nvrm.opens;
			assert_int_equal(rtx_nvrm_init(&other, names[i]), 0);
			assert_ptr_not_equal(other, gpu);
			for (size_t t = 0; t < RTX_TIMELINES_MAX; t++)
				assert_int_equal(rtx_nvrm_timeline(other, NULL, &others[t]), 0);
			assert_int_equal(fake_nvrm.clients, 1);
			assert_int_equal(fake_nvrm.opens, opens);
			assert_int_equal(fake_nvrm.calls,
					 calls + 2 + 3 * (int)RTX_TIMELINES_MAX + 2);
			has_come(line, 1);
			assert_int_equal(*rtx_timeline_word(others[0]), 0);
			has_come(others[0], 1);
			/* whichever goes first, the other one stays */
			assert_int_equal(rtx_nvrm_close(first ? other : gpu), 0);
			assert_int_equal(fake_nvrm.clients, 1);
			has_come(first ? line : others[15], 2);
			assert_int_equal(rtx_nvrm_close(first ? other : gpu), -EBADF);
			assert_int_equal(rtx_nvrm_close(first ? gpu : other), 0);
			nothing_is_left();
		}
}

static void gpus_that_differ_have_a_client_each(void **state)
{
	rtx_nvrm_t other;

	fake_nvrm.gpus = 2;
	up();
	assert_int_equal(rtx_nvrm_init(&other, "1"), 0);
	assert_int_equal(fake_nvrm.clients, 2);
	assert_int_equal(rtx_nvrm_init(&(rtx_nvrm_t){ NULL }, "2"), -ENODEV);
	assert_int_equal(fake_nvrm.clients, 2);
	assert_int_equal(rtx_nvrm_close(other), 0);
	assert_int_equal(fake_nvrm.clients, 1);
	has_come(line, 1);
	down();
}

static void a_second_that_is_refused_harms_no_first(void **state)
{
	int steps = 0;

	for (int step = 1;; step++) {
		rtx_nvrm_t other = NULL;
		rtx_timeline_t t;
		int ret, objects, fds;

		before(NULL);
		up();
		objects = fake_nvrm.objects;
		fds = fake_nvrm.fds;
		fake_nvrm.fail_call = fake_nvrm.calls + step;
		fake_nvrm.fail_status = NV_STATUS_NO_MEMORY;
		ret = rtx_nvrm_init(&other, NULL);
		if (!ret)
			ret = rtx_nvrm_timeline(other, NULL, &t);
		fake_nvrm.fail_call = 0;
		if (ret)
			assert_non_null(strstr(rtx_strerror(), "0x51"));
		if (other)
			assert_int_equal(rtx_nvrm_close(other), 0);
		assert_int_equal(fake_nvrm.objects, objects);
		assert_int_equal(fake_nvrm.fds, fds);
		has_come(line, 1);
		down();
		if (!ret)
			break;
		steps++;
	}
	assert_int_equal(steps, 5);
}

static bool ends;

static void *open_and_close(void *arg)
{
	bool *well = arg;

	for (int i = 0; i < 100 || (*well && !__atomic_load_n(&ends, __ATOMIC_RELAXED)); i++) {
		rtx_nvrm_t own;
		rtx_timeline_t t;

		*well = !rtx_nvrm_init(&own, i % 2 ? "0" : NULL) &&
			!rtx_nvrm_timeline(own, NULL, &t) && !rtx_timeline_arm(t, 1);
		if (!*well)
			break;
		set(t, 1);
		*well = !rtx_timeline_wait(t, 1, RTX_SYNC_NOTIFY, UINT64_MAX) &&
			!rtx_nvrm_close(own);
	}
	return NULL;
}

/* Descriptors of the words that this process has. */
static int words(void)
{
	char path[64], target[64];
	int count = 0;

	for (int fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		memset(target, 0, sizeof(target));
		count += readlink(path, target, sizeof(target) - 1) > 0 &&
			 strstr(target, "rtxg-words");
	}
	return count;
}

/* Wherever the others are, a child that is forked meanwhile has nothing of the driver's. */
static void threads_open_and_close_and_fork(void **state)
{
	bool well[4] = { true, true, true, true };
	pthread_t threads[4];

	__atomic_store_n(&ends, false, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, &well[i]), 0);
	for (int i = 0; i < 100; i++) {
		int status;
		pid_t child = fork();

		if (!child)
			_exit((fake_nvrm.fds ? 1 : 0) + (words() ? 2 : 0));
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	__atomic_store_n(&ends, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_true(well[i]);
	}
	nothing_is_left();
}

/* --- the set-up ------------------------------------------------------------------------------- */

static char why[256]; /* the last of these was refused */

/*
 * All that asks the driver for something: the GPU, a second timeline on a word of the program's, an
 * event, one for the host of the program's tasks, and, once both timelines have gone and with them
 * the last channel of the group, a third with its event. Called again after a refusal it begins
 * with what is not there.
 */
static int all_of_it(uint32_t *word)
{
	rtx_timeline_t second = NULL, third = NULL;
	struct timeline_share share;
	int ret = gpu ? 0 : rtx_nvrm_init(&gpu, NULL);

	if (!ret && !line)
		ret = rtx_nvrm_timeline(gpu, NULL, &line);
	if (!ret)
		ret = rtx_nvrm_timeline(gpu, word, &second);
	if (!ret)
		ret = rtx_timeline_arm(second, *word + 1);
	if (!ret) {
		set(second, *word + 1);
		ret = rtx_timeline_wait(second, *word, RTX_SYNC_NOTIFY, UINT64_MAX);
	}
	if (!ret) {
		ret = rtx_lib_timeline_share(line, &share);
		if (!ret)
			rtx_lib_timeline_leave(line);
	}
	snprintf(why, sizeof(why), "%s", rtx_strerror());
	if (second)
		assert_int_equal(rtx_timeline_close(second), 0);
	if (ret)
		return ret;
	assert_int_equal(rtx_timeline_close(line), 0);
	line = NULL;
	ret = rtx_nvrm_timeline(gpu, NULL, &third);
	if (!ret)
		ret = rtx_timeline_arm(third, 1);
	if (!ret) {
		set(third, 1);
		ret = rtx_timeline_wait(third, 1, RTX_SYNC_NOTIFY, UINT64_MAX);
	}
	snprintf(why, sizeof(why), "%s", rtx_strerror());
	if (third)
		assert_int_equal(rtx_timeline_close(third), 0);
	return ret;
}

/* A refusal: of the driver's, or the kernel's (a negative errno); the words for it. */
static const struct refusal {
	int64_t by;
	int error; /* of the call; 0: not of interest */
	const char *said;
} refusals[] = {
	{ NV_STATUS_NO_MEMORY, -ENOMEM, "0x51" },
	{ NV_STATUS_INVALID_STATE, 0, "0x40" },
	{ NV_STATUS_INSUFFICIENT_RESOURCES, 0, "0x1a" },
	{ NV_STATUS_GPU_IS_LOST, -ENODEV, "the GPU is lost" },
	{ -EINTR, 0, "Interrupted" },
	{ -ENOMEM, -ENOMEM, "memory" },
};

/*
 * Refuses one call after the other; returns how many there are. Whatever is refused is to be had
 * when it is asked for again, and leaves nothing.
 */
static int refuse_each(const struct refusal *refusal, bool beside_another)
{
	int steps = 0;

	for (int step = 1;; step++) {
		uint32_t word = 0; /* the engine looks at it until the handle is closed */
		rtx_timeline_t theirs = NULL;
		rtx_nvrm_t other = NULL;
		int ret, calls = 0;

		before(NULL);
		if (beside_another) {
			assert_int_equal(rtx_nvrm_init(&other, NULL), 0);
			assert_int_equal(rtx_nvrm_timeline(other, NULL, &theirs), 0);
			has_come(theirs, 1);
			calls = fake_nvrm.calls;
		}
		fake_nvrm.fail_call = calls + step;
		fake_nvrm.fail_status = refusal->by > 0 ? (uint32_t)refusal->by : 0;
		fake_nvrm.fail_errno = refusal->by < 0 ? (int)-refusal->by : 0;
		ret = all_of_it(&word);
		if (fake_nvrm.calls < calls + step) {
			assert_int_equal(ret, 0);
			assert_int_equal(rtx_nvrm_close(gpu), 0);
			if (other)
				assert_int_equal(rtx_nvrm_close(other), 0);
			nothing_is_left();
			return steps;
		}
		steps++;
		fake_nvrm.fail_call = 0;
		/* another doorbell, engine or call may do in the place of what was refused */
		if (ret &&
		    (!strstr(why, refusal->said) || (refusal->error && ret != refusal->error)))
			fail_msg("step %d: %d: %s", step, ret, why);
		if (theirs)
			has_come(theirs, 2);
		ret = all_of_it(&word);
		if (ret)
			fail_msg("after step %d: %d: %s", step, ret, why);
		assert_int_equal(rtx_nvrm_close(gpu), 0);
		if (theirs)
			has_come(theirs, 3);
		if (other)
			assert_int_equal(rtx_nvrm_close(other), 0);
		nothing_is_left();
	}
}

static void a_refusal_at_any_step_leaves_nothing_and_passes(void **state)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		/* the GPU; the second timeline and its event; the host's; the third with a group */
		assert_int_equal(refuse_each(&refusals[i], false), 14 + 7 + 2 + 2 + 4 + 2);
		/* beside another handle: memory and a channel; the group has another's */
		assert_int_equal(refuse_each(&refusals[i], true), 2 + 3 + 7 + 2 + 2 + 3 + 2);
	}
}

static void set_limit(rlim_t files)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = files;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The driver's two files and a third, for the words; then one for interrupts. */
static void too_few_descriptors_are_said_and_leave_nothing(void **state)
{
	int lowest = dup(0), refused = 0, ret;
	struct rlimit limit;

	assert_true(lowest > 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	for (rlim_t more = 0;; more++) {
		set_limit((rlim_t)lowest + more);
		ret = rtx_nvrm_init(&gpu, NULL);
		if (!ret)
			ret = rtx_nvrm_timeline(gpu, NULL, &line);
		if (!ret)
			ret = rtx_timeline_arm(line, 1);
		set_limit(limit.rlim_cur);
		if (!ret)
			break;
		assert_int_equal(ret, -EMFILE);
		assert_non_null(strstr(rtx_strerror(), ": Too many open files"));
		assert_null(strstr(rtx_strerror(), "status"));
		refused++;
		if (gpu)
			assert_int_equal(rtx_nvrm_close(gpu), 0);
		nothing_is_left();
	}
	down();
	assert_true(refused >= 4);
}

/* The words are a file's: beyond its limit a program would be ended by a signal. */
static void a_program_that_may_write_no_file_is_told(void **state)
{
	static const rlim_t least[] = { 0, 4095 };

	up();
	for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
		struct rlimit limit, less;
		rtx_nvrm_t other;
		int ret;

		assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
		less = limit;
		less.rlim_cur = least[i];
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
		ret = rtx_nvrm_init(&other, NULL);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		assert_int_equal(ret, -EFBIG);
		assert_non_null(strstr(rtx_strerror(), "for channels: File too large"));
		has_come(line, (uint32_t)i + 1);
	}
	down();
}

static void opening_takes_few_calls(void **state)
{
	int calls;

	up();
	calls = fake_nvrm.calls;
	assert_int_equal(calls, 14);
	assert_int_equal(fake_nvrm.opens, 2);
	/* the first wait by interrupts opens an event */
	set(line, 1);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	assert_int_equal(fake_nvrm.calls, calls);
	assert_int_equal(rtx_timeline_arm(line, 2), 0);
	assert_int_equal(fake_nvrm.opens, 3);
	assert_int_equal(fake_nvrm.calls, calls + 2);
	assert_int_equal(rtx_timeline_arm(line, 3), 0);
	assert_int_equal(fake_nvrm.calls, calls + 2);
	down();
}

static void an_engine_that_does_not_serve_is_passed_over(void **state)
{
	fake_nvrm.dead_engines = 1u << 2;
	fake_nvrm.runlist_0 = 1u << 3 | 1u << 0;
	up();
	set(line, 1);
	assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
	down();
	before(NULL);
	fake_nvrm.runlist_0 = UINT32_MAX;
	assert_int_equal(rtx_nvrm_init(&gpu, NULL), -EOPNOTSUPP);
	assert_non_null(strstr(rtx_strerror(), "does not serve channels"));
	nothing_is_left();
}

/* It says so with the token, or the channel is in another engine's queue. */
static void a_driver_that_wants_channels_bound_has_them_bound(void **state)
{
	for (int i = 0; i < 2; i++) {
		rtx_timeline_t others[3];

		before(NULL);
		fake_nvrm.needs_bind = !i;
		fake_nvrm.unbound_astray = i;
		up();
		has_come(line, 1);
		for (size_t k = 0; k < 3; k++) {
			assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &others[k]), 0);
			has_come(others[k], 1);
		}
		down();
	}
}

static void an_older_doorbell_and_a_newer_channel_do(void **state)
{
	static const uint32_t refused[] = { 0xc661, 0xc56f };

	for (int i = 0; i < 2; i++) {
		before(NULL);
		fake_nvrm.refuse_class = refused[i];
		up();
		set(line, 1);
		assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
		down();
	}
}

static void a_gpu_that_has_lost_the_older_classes_does(void **state)
{
	static const uint32_t oldest[] = { NV_CLASS_CHANNEL_HOPPER, NV_CLASS_CHANNEL_BLACKWELL,
					   NV_CLASS_CHANNEL_BLACKWELL_B };

	for (size_t i = 0; i < sizeof(oldest) / sizeof(oldest[0]); i++) {
		before(NULL);
		fake_nvrm.oldest_class = oldest[i];
		fake_nvrm.oldest_doorbell = NV_CLASS_USERMODE_BLACKWELL;
		up();
		set(line, 1);
		assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
		down();
	}
}

/* 610 has moved fields of a channel's parameters; 615 has made a group's longer. */
static void channels_are_made_for_the_release_of_the_driver(void **state)
{
	static const uint32_t releases[] = { 0, 580, 595, 610, 615, 640 };

	for (size_t i = 0; i < sizeof(releases) / sizeof(releases[0]); i++) {
		before(NULL);
		fake_nvrm.release = releases[i];
		up();
		set(line, 1);
		assert_int_equal(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, UINT64_MAX), 0);
		down();
	}
}

static void a_driver_that_is_too_old_is_named(void **state)
{
	fake_nvrm.release = 575;
	assert_int_equal(rtx_nvrm_init(&gpu, NULL), -EOPNOTSUPP);
	assert_non_null(strstr(rtx_strerror(), "of release 575, and this needs 580 or newer"));
	nothing_is_left();
}

/*
 * What stands behind the parameters is the caller's: a driver with longer ones must not write it.
 */
static void a_driver_with_longer_parameters_overwrites_nothing(void **state)
{
	struct {
		struct nvrm_group_alloc group;
		uint8_t behind[64];
	} mine = { .group = { .engine = NV_ENGINE_TYPE_COPY0 } };
	struct nv_rm rm;
	uint32_t group = 0;

	fake_nvrm.release = 615;
	assert_int_equal(nv_rm_open(&rm, &fake_nvrm_sys), 0);
	assert_int_equal(rm.release, 615);
	assert_int_equal(nv_rm_alloc(&rm, rm.client, &group, NV_CLASS_CHANNEL_GROUP, &mine.group,
				     sizeof(mine.group)),
			 0);
	for (size_t i = 0; i < sizeof(mine.behind); i++)
		assert_int_equal(mine.behind[i], 0);
	assert_int_equal(nv_rm_alloc(&rm, rm.client, &group, NV_CLASS_CHANNEL_GROUP, &mine,
				     RM_PARAMETERS_MAX + 1),
			 -EINVAL);
	nv_rm_close(&rm);
	nothing_is_left();
}

static void a_gpu_is_named_as_people_name_it(void **state)
{
	static const char *const wrong[] = { "2", "0000:3e:01.0", "GPU-none", "", "1x", "one" };
	static const struct {
		const char *name, *address;
	} right[] = { { "0", "0000:3f:01.0" },
		      { "1", "0000:40:01.0" },
		      { "0000:3f:01.0", "0000:3f:01.0" } };

	fake_nvrm.gpus = 2;
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		struct nvrm_channel first;
		struct nvrm_memory memory;
		struct nvrm_gpu g;

		assert_int_equal(rtx_lib_nvrm_open(&g, right[i].name, &memory, &first), 0);
		assert_string_equal(g.name, right[i].address);
		rtx_lib_nvrm_channel_close(&g, &first);
		rtx_lib_nvrm_close(&g, &memory);
		nothing_is_left();
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(rtx_nvrm_init(&gpu, wrong[i]), -ENODEV);
		assert_non_null(strstr(rtx_strerror(), "there is no NVIDIA GPU"));
		assert_non_null(strstr(rtx_strerror(), "the driver has 2"));
		nothing_is_left();
	}
}

static void without_a_driver_or_a_right_the_reason_is_said(void **state)
{
	fake_nvrm.open_error = ENOENT;
	assert_int_equal(rtx_nvrm_init(&gpu, NULL), -ENODEV);
	assert_non_null(strstr(rtx_strerror(), "is the NVIDIA driver loaded"));
	/* by the file's mode, and by a container's rules */
	for (int i = 0; i < 2; i++) {
		fake_nvrm.open_error = i ? EPERM : EACCES;
		assert_int_equal(rtx_nvrm_init(&gpu, NULL), -EACCES);
		assert_non_null(strstr(rtx_strerror(), "permission denied"));
	}
	nothing_is_left();
	/* The one file, and not the other. */
	fake_nvrm.open_error = 0;
	fake_nvrm.denied = "/dev/nvidia0";
	assert_int_equal(rtx_nvrm_init(&gpu, NULL), -EACCES);
	assert_non_null(strstr(rtx_strerror(), "GPU 0000:40:01.0: opening its device file"));
	nothing_is_left();
	assert_int_equal(rtx_nvrm_init(NULL, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_child_has_none_of_it_and_harms_nothing, before),
		cmocka_unit_test_setup(a_child_opens_its_own, before),
		cmocka_unit_test_setup(a_wait_that_is_forked_ends_in_the_child, before),
		cmocka_unit_test_setup(handles_of_one_gpu_share_a_client, before),
		cmocka_unit_test_setup(gpus_that_differ_have_a_client_each, before),
		cmocka_unit_test_setup(a_second_that_is_refused_harms_no_first, before),
		cmocka_unit_test_setup(threads_open_and_close_and_fork, before),
		cmocka_unit_test_setup(a_refusal_at_any_step_leaves_nothing_and_passes, before),
		cmocka_unit_test_setup(a_driver_that_wants_channels_bound_has_them_bound, before),
		cmocka_unit_test_setup(too_few_descriptors_are_said_and_leave_nothing, before),
		cmocka_unit_test_setup(a_program_that_may_write_no_file_is_told, before),
		cmocka_unit_test_setup(opening_takes_few_calls, before),
		cmocka_unit_test_setup(an_engine_that_does_not_serve_is_passed_over, before),
		cmocka_unit_test_setup(an_older_doorbell_and_a_newer_channel_do, before),
		cmocka_unit_test_setup(a_gpu_that_has_lost_the_older_classes_does, before),
		cmocka_unit_test_setup(channels_are_made_for_the_release_of_the_driver, before),
		cmocka_unit_test_setup(a_driver_that_is_too_old_is_named, before),
		cmocka_unit_test_setup(a_driver_with_longer_parameters_overwrites_nothing, before),
		cmocka_unit_test_setup(a_gpu_is_named_as_people_name_it, before),
		cmocka_unit_test_setup(without_a_driver_or_a_right_the_reason_is_said, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
