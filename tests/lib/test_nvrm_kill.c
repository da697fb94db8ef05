// SPDX-License-Identifier: MIT
/*
 * test_nvrm_kill.c - processes that are killed while they open, use and close a GPU that is not
 * there, at each system call: the driver has nothing of them any more, and another process's waits
 * go on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "fake_nvrm.h"
#include "far_nvrm.h"
#include "nvrm.h"
#include "nvrm_gpu.h"
#include "rtxg_clock.h"
#include "rtxg_nvrm.h"

#define LONG_NS	  60000000000ull /* no wait of these tests takes longer */
#define STOPS_MAX 20000

static rtx_nvrm_t gpu;
static rtx_timeline_t line;

/* --- in a child ------------------------------------------------------------------------------- */

/* A child of the test's, in which 9 is an error that is none of librtxg's. */
static pid_t start_child(void (*body)(int in, int out), int *in, int *out)
{
	int to[2], from[2];
	pid_t child;

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		rtx_lib_nvrm_sys = &far_nvrm_sys;
		body(to[0], from[1]);
		_exit(0);
	}
	assert_true(child > 0);
	close(to[0]);
	close(from[1]);
	*in = to[1];
	*out = from[0];
	return child;
}

static void must(int ret)
{
	if (ret)
		_exit(1);
}

static void has_come(rtx_timeline_t t, uint32_t value)
{
	must(rtx_timeline_arm(t, value));
	__atomic_store_n(rtx_timeline_word(t), value, __ATOMIC_RELEASE);
	must(rtx_timeline_wait(t, value, RTX_SYNC_NOTIFY, rtxg_now_ns() + LONG_NS));
}

/*
 * All that there is to be killed in: two timelines, one on a word of its own, with interrupts; an
 * event for the host of its tasks; a new group of channels; a value that does not come; the close.
 */
static void live(int in, int out)
{
	static uint32_t words[1024] __attribute__((aligned(4096)));
	struct timeline_share share;
	rtx_timeline_t second;

	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	must(rtx_nvrm_init(&gpu, NULL));
	must(rtx_nvrm_timeline(gpu, NULL, &line));
	must(rtx_nvrm_timeline(gpu, words, &second));
	has_come(second, 1);
	must(rtx_lib_timeline_share(line, &share));
	rtx_lib_timeline_leave(line);
	must(rtx_timeline_close(second));
	must(rtx_timeline_close(line));
	must(rtx_nvrm_timeline(gpu, NULL, &line));
	has_come(line, 1);
	must(rtx_timeline_arm(line, 2));
	must(rtx_nvrm_close(gpu));
}

/* Has a value armed all the while, and waits for it when it is told to. */
static void stand_by(int in, int out)
{
	uint32_t value = 1;
	char byte = 0;

	must(rtx_nvrm_init(&gpu, NULL));
	must(rtx_nvrm_timeline(gpu, NULL, &line));
	must(rtx_timeline_arm(line, value));
	must(write(out, &byte, 1) != 1);
	while (read(in, &byte, 1) == 1) {
		if (rtx_timeline_reached(line, value))
			_exit(2);
		has_come(line, value);
		must(rtx_timeline_arm(line, ++value));
		must(write(out, &byte, 1) != 1);
	}
	must(rtx_nvrm_close(gpu));
}

/* --- the test --------------------------------------------------------------------------------- */

static struct {
	pid_t pid;
	int in, out, files, pinned, objects;
} other;

static int counted(const int *count)
{
	return __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

/* Until the driver has what it had before, which it comes to in its own time. */
static bool comes_to(int files, int pinned, int clients, int objects)
{
	struct fake_nvrm seen = { 0 };

	for (uint64_t until = rtxg_now_ns() + LONG_NS; rtxg_now_ns() < until;) {
		seen = fake_nvrm_seen();
		if (counted(&far_nvrm.files) == files && counted(&far_nvrm.pinned) == pinned &&
		    seen.clients == clients && seen.objects == objects)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
	print_error("%d files, %d pieces of memory, %d clients, %d objects\n",
		    counted(&far_nvrm.files), counted(&far_nvrm.pinned), seen.clients,
		    seen.objects);
	return false;
}

static void other_goes_on(void)
{
	char byte = 0;

	assert_int_equal(write(other.in, &byte, 1), 1);
	assert_int_equal(read(other.out, &byte, 1), 1);
}

static int before(void **state)
{
	char byte;

	other.pid = start_child(stand_by, &other.in, &other.out);
	if (read(other.out, &byte, 1) != 1)
		return -1;
	other.files = counted(&far_nvrm.files);
	other.pinned = counted(&far_nvrm.pinned);
	other.objects = fake_nvrm_seen().objects;
	return other.files == 3 && other.pinned == 1 ? 0 : -1;
}

static int after(void **state)
{
	int status;

	close(other.in);
	if (waitpid(other.pid, &status, 0) != other.pid || status)
		return -1;
	close(other.out);
	return comes_to(0, 0, 0, 0) && !fake_nvrm_seen().wild ? 0 : -1;
}

/* Lets the child go on to its next system call, or out of it. False: it has ended. */
static bool next_stop(pid_t child, int *status)
{
	int passed = 0;

	do {
		assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, (void *)(intptr_t)passed), 0);
		assert_int_equal(waitpid(child, status, 0), child);
		if (!WIFSTOPPED(*status))
			return false;
		passed = WSTOPSIG(*status); /* a signal of its own */
	} while (passed != (SIGTRAP | 0x80));
	return true;
}

/* Kills a process after so many stops. Returns how many there were. */
static int kill_after(int stops)
{
	int in, out, status, done = 0;
	pid_t child = start_child(live, &in, &out);
	bool lives = true;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, child, NULL,
				(void *)(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD)),
			 0);
	while (lives && done < stops) {
		lives = next_stop(child, &status);
		done += lives;
	}
	if (lives) {
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	} else {
		assert_int_equal(status, 0);
	}
	close(in);
	close(out);
	return done;
}

static void killed_at_any_system_call_leaves_nothing(void **state)
{
	int stops = 0, done;

	do {
		done = kill_after(++stops);
		if (!comes_to(other.files, other.pinned, 1, other.objects))
			fail_msg("killed at stop %d", stops);
		other_goes_on();
		assert_int_equal(fake_nvrm_seen().wild, 0);
	} while (done == stops && stops < STOPS_MAX);
	print_message("%d stops\n", stops);
	/* the way in and out of each call of the driver, and of what lies between */
	assert_in_range(stops, 2 * 2 * (14 + 7 + 2 + 2 + 4 + 2), STOPS_MAX - 1);
}

/* Opens the GPU, forks, and waits for its end. */
static void fork_and_stay(int in, int out)
{
	pid_t child;

	must(rtx_nvrm_init(&gpu, NULL));
	must(rtx_nvrm_timeline(gpu, NULL, &line));
	must(rtx_timeline_arm(line, 1));
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, 0);
		must(rtx_timeline_wait(line, 1, RTX_SYNC_NOTIFY, 0) != -ECHILD);
		child = getpid();
		must(write(out, &child, sizeof(child)) != sizeof(child));
	}
	for (;;)
		pause();
}

/* The driver frees a client with the last copy of its descriptor: a child has none. */
static void what_a_killed_process_has_forked_holds_nothing(void **state)
{
	int in, out, status;
	pid_t child = start_child(fork_and_stay, &in, &out), its;

	assert_int_equal(read(out, &its, sizeof(its)), sizeof(its));
	assert_int_equal(counted(&far_nvrm.files), other.files + 3);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(comes_to(other.files, other.pinned, 1, other.objects));
	assert_int_equal(kill(its, 0), 0);
	other_goes_on();
	kill(its, SIGKILL);
	close(in);
	close(out);
}

/* May a process trace its child here? */
static bool can_trace(void)
{
	int status = 0;
	pid_t child = fork();

	if (!child)
		_exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? 1 : 0);
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_a_killed_process_has_forked_holds_nothing,
						before, after),
		cmocka_unit_test_setup_teardown(killed_at_any_system_call_leaves_nothing, before,
						after),
	};

	if (!can_trace()) {
		puts("skipped: a process may not trace its child here (ptrace)");
		return 77;
	}
	fake_nvrm_reset();
	far_nvrm_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
