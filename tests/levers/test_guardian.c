// SPDX-License-Identifier: MIT
/*
 * test_guardian.c - the guardian: channels that a dead daemon has stopped are resumed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "act.h"
#include "contexts.h"
#include "guardian.h"
#include "fake_nvidiactl.h"
#include "journal.h"
#include "rig.h"

int guardian_main(int argc, char **argv);

static void the_guardian_lets_go_when_the_daemon_dies(void **state)
{
	struct nv_journal journal;
	struct nv_journal_slice slice = { .device = 0,
					  .client = 0xc1d00010,
					  .group = 0x5c000015,
					  .channel = 0x5c00001c,
					  .pid = 1,
					  .fd = 7 };
	static const int meant_for_all[] = { SIGTERM, SIGINT,  SIGHUP,	SIGQUIT, SIGUSR1,
					     SIGUSR2, SIGPIPE, SIGALRM, SIGXCPU };
	char j[16], d[16];
	pid_t daemon, guardian, self = getpid();
	int pidfd, status, i;

	assert_int_equal(nv_journal_create(&journal), 0);
	for (uint32_t c = 0; c < 100; c++) {
		fake_channel_add(0, 0xc1d00010, 0x1000 + c, 1);
		/* Some of them more than once: the driver counts. */
		fake->channel[c].stopped = 1 + c % 3;
		assert_int_equal(nv_journal_note(&journal, 0, 0xc1d00010, 0x1000 + c, 1 + c % 3),
				 0);
	}
	fake->channel[50].gone = true; /* it must not keep the others from being let go */
	fake->channel[50].stopped = false;
	fake->slice_us = 30;
	assert_int_equal(nv_journal_slice(&journal, &slice), 0);
	daemon = fork();
	if (!daemon) {
		die_with(self);
		pause();
		_exit(0);
	}
	setpgid(daemon, daemon); /* as a control group that gets every signal */
	pidfd = (int)syscall(SYS_pidfd_open, daemon, 0);
	assert_true(pidfd >= 0);
	snprintf(j, sizeof(j), "%d", journal.fd);
	snprintf(d, sizeof(d), "%d", pidfd);
	guardian = fork();
	if (!guardian) {
		char *argv[] = { "rtxg-guardian", j, d, NULL };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, daemon);
		_exit(guardian_main(3, argv));
	}
	while (!__atomic_load_n(&journal.page->guarded, __ATOMIC_ACQUIRE)) {
		assert_int_equal(waitpid(guardian, &status, WNOHANG), 0);
		usleep(1000);
	}
	assert_int_equal(__atomic_load_n(&journal.page->guarded, __ATOMIC_ACQUIRE), 1);
	assert_int_equal(fake_stopped(), 99); /* it does nothing while the daemon lives */
	for (i = 0; i < (int)(sizeof(meant_for_all) / sizeof(meant_for_all[0])); i++)
		kill(guardian, meant_for_all[i]); /* and does not leave its post */
	kill(-daemon, SIGABRT);			  /* a service manager's watchdog */
	waitpid(daemon, &status, 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	for (i = 0; i < 30000 && waitpid(guardian, &status, WNOHANG) == 0; i++)
		usleep(1000);
	assert_true(WIFEXITED(status));
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(fake->slice_us, NV_DRIVER_SLICE_US);
	assert_int_equal(nv_journal_count(&journal), 0);
	close(pidfd);
	nv_journal_close(&journal);
}

static void the_guardian_says_when_it_cannot(void **state)
{
	struct nv_journal journal;
	char j[16];
	char *argv[] = { "rtxg-guardian", j, "0", NULL };

	assert_int_equal(nv_journal_create(&journal), 0);
	snprintf(j, sizeof(j), "%d", journal.fd);
	fake->open_error = EACCES;
	assert_int_equal(guardian_main(3, argv), 1);
	assert_int_equal((int32_t)journal.page->guarded, -EACCES);
	journal.page->magic = 1;
	assert_int_equal(guardian_main(3, argv), 1);
	assert_int_equal(guardian_main(1, argv), 2);
	nv_journal_close(&journal);
}

static int starts, no_start; /* an errno: none is started */

/* As a host does it: the program's parent is another process, which reaps it. */
static int start_elsewhere(void *ctx, const char *path, const char *const words[],
			   const int files[2], pid_t *pid)
{
	int ends[2], opened[2], fd;
	pid_t parent, daemon = getpid();
	char end;

	starts++;
	if (no_start)
		return -no_start;
	assert_string_equal(path, "guardian");
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(opened), 0);
	parent = fork();
	if (!parent) {
		pid_t own = getpid(), child = fork();

		if (!child) {
			char *argv[] = { (char *)words[0], (char *)words[1], (char *)words[2],
					 NULL };

			die_with(own);
			if (dup2(files[0], 3) != 3 || dup2(files[1], 4) != 4)
				_exit(3);
			_exit(guardian_main(3, argv));
		}
		die_with(daemon);
		close(opened[1]);
		if (write(ends[1], &child, sizeof(child)) != sizeof(child))
			_exit(1);
		/* Once it is reaped, nothing can be opened of a program that ended at once. */
		_exit(read(opened[0], &end, 1) || waitpid(child, NULL, 0) != child);
	}
	assert_int_equal(read(ends[0], pid, sizeof(*pid)), sizeof(*pid));
	fd = (int)syscall(SYS_pidfd_open, *pid, 0);
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(opened[i]);
	}
	return fd < 0 ? -errno : fd;
}

static void a_host_may_start_it(void **state)
{
	pid_t pid = 0;
	const struct lever_nvidia_ops ops = { .size = sizeof(ops),
					      .start_program = start_elsewhere };
	struct nv_journal journal;
	int fd = -1;

	assert_int_equal(nv_journal_create(&journal), 0);
	assert_int_equal(nv_guardian_start(&ops, "guardian", &journal, &pid, &fd), 0);
	assert_true(pid > 0 && fd >= 0);
	assert_int_equal(journal.page->guarded, 1);
	nv_guardian_stop(&journal, pid, fd);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	assert_int_equal(kill(pid, 0), -1);
	/* It cannot begin: its error, not a wait for something that never comes. */
	fake->open_error = EACCES;
	assert_int_equal(nv_guardian_start(&ops, "guardian", &journal, &pid, &fd), -EACCES);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	nv_journal_close(&journal);
}

static bool guarded(struct lever_nvidia *l)
{
	struct lever_nvidia_stats stats;

	lever_nvidia_stats(l, &stats);
	return stats.guarded;
}

static int with_guardians(void **state)
{
	starts = no_start = 0;
	return before(state);
}

static const struct lever_nvidia_ops elsewhere = { .size = sizeof(elsewhere),
						   .start_program = start_elsewhere };

/* Two programs, of which one is stopped where it may be. */
static struct lever_nvidia *two_under_a_guardian(void)
{
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .guardian = "guardian",
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_lookout = true };
	struct rtxg_slice_tenant a = { .min_ppm = 800000 }, b = { .min_ppm = 200000 };
	struct lever_nvidia *l;

	assert_int_equal(lever_nvidia_open(&o, &elsewhere, &l, NULL, 0), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &a), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 2, &b), 0);
	cuda_process(into_lever, l, 100, FIRST, 100, 1);
	cuda_process(into_lever, l, 101, SECOND, 120, 2);
	l->probe[l->probes++] = (struct lever_nvidia_probe){ .name = "guardian" };
	return l;
}

static void kill_guardian(struct lever_nvidia *l)
{
	kill(l->guardian, SIGKILL);
	while (guarded(l)) {
		assert_int_equal(lever_nvidia_dispatch(l), 0);
		usleep(1000);
	}
}

static void shares_are_kept_by_slices(struct lever_nvidia *l)
{
	uint32_t stops = fake->disables;

	assert_int_equal(l->gpu[0].can & RTXG_SLICE_CAN_SUSPEND, 0);
	turn_for(l, 500 * MS);
	assert_int_equal(fake->disables, stops);
	assert_int_not_equal(fake_slice(FIRST), fake_slice(SECOND));
}

/* Not all the time meanwhile. */
static void it_is_tried_again_until_it_is_there(struct lever_nvidia *l)
{
	starts = 0;
	for (int i = 0; i < 6000; i++) {
		fake->now += 100 * MS;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
	}
	assert_in_range(starts, 5, 20);
	assert_false(guarded(l));
	fake->open_error = no_start = 0;
	for (int i = 0; i < 700 && !guarded(l); i++) {
		fake->now += 100 * MS;
		assert_int_equal(lever_nvidia_dispatch(l), 0);
	}
	assert_true(guarded(l));
	assert_int_equal(l->probe[0].error, 0);
}

static void end(struct lever_nvidia *l)
{
	lever_nvidia_close(l);
	assert_int_equal(fake_stopped(), 0);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

/* What a guardian needs may be missing for a while: descriptors, memory, its program. */
static void a_guardian_is_there_again_when_it_can_be(void **state)
{
	struct lever_nvidia *l = two_under_a_guardian();
	uint32_t can_then = l->gpu[0].can, stops = fake->disables;

	assert_true(guarded(l));
	turn_for(l, 500 * MS);
	assert_true(fake->disables > stops);
	/* it dies, and there is no other one */
	fake->open_error = EACCES;
	starts = 0;
	kill_guardian(l);
	assert_int_equal(starts, 1);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(l->gpu[0].can, can_then & ~RTXG_SLICE_CAN_SUSPEND);
	assert_int_equal(l->probe[0].error, -EACCES);
	assert_non_null(strstr(l->probe[0].detail, "Permission denied): nothing is stopped"));
	/* nothing is taken for stopped that runs */
	shares_are_kept_by_slices(l);
	it_is_tried_again_until_it_is_there(l);
	assert_int_equal(l->gpu[0].can, can_then);
	stops = fake->disables;
	turn_for(l, 500 * MS);
	assert_true(fake->disables > stops);
	end(l);
}

static void the_first_guardian_is_tried_again_too(void **state)
{
	struct lever_nvidia *l;
	uint32_t stops;

	no_start = EAGAIN;
	l = two_under_a_guardian();
	assert_int_equal(starts, 1);
	assert_false(guarded(l));
	shares_are_kept_by_slices(l);
	it_is_tried_again_until_it_is_there(l);
	assert_int_not_equal(l->gpu[0].can & RTXG_SLICE_CAN_SUSPEND, 0);
	stops = fake->disables;
	turn_for(l, 500 * MS);
	assert_true(fake->disables > stops);
	end(l);
}

/* The driver does not let it go at that moment, and does so later. */
static void what_is_stopped_when_the_guardian_dies_runs_again(void **state)
{
	struct lever_nvidia *l = two_under_a_guardian();
	uint32_t who;

	for (int i = 0; i < 1000 && !fake_stopped(); i++)
		turn_for(l, MS);
	who = stopped_on(0, FIRST) ? FIRST : SECOND;
	assert_true(stopped_on(0, who));
	fake_fail(NV2080_FIFO_DISABLE_CHANNELS, who, NV_STATUS_INVALID_STATE)->until_ns =
		fake->now + 300 * MS;
	no_start = EAGAIN;
	kill_guardian(l);
	assert_true(stopped_on(0, who));
	turn_for(l, 1000 * MS);
	assert_int_equal(fake_stopped(), 0);
	assert_int_equal(nv_journal_count(&l->journal), 0);
	shares_are_kept_by_slices(l);
	it_is_tried_again_until_it_is_there(l);
	for (int i = 0; i < 1000 && !stopped_on(0, who); i++)
		turn_for(l, MS);
	assert_true(stopped_on(0, who));
	end(l);
}

/* Passes on what a guardian would learn of the daemon's end by. */
static int pass_on(void *ctx, const char *path, const char *const words[], const int files[2],
		   pid_t *pid)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	char byte = '.';
	struct iovec io = { &byte, 1 };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	struct cmsghdr *m = CMSG_FIRSTHDR(&message);

	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(m), &files[1], sizeof(int));
	return sendmsg(*(int *)ctx, &message, 0) == 1 ? -ECANCELED : -EIO;
}

static void *stay(void *begun)
{
	if (!unshare(CLONE_FILES) && !close_range(3, ~0u, 0))
		__atomic_store_n((int *)begun, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
	return NULL;
}

static void a_thread_with_files_of_its_own_does_not_hide_the_end(void **state)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec io = { &byte, 1 };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	struct nv_journal journal;
	struct pollfd end = { .events = POLLIN }, whole = end;
	int ends[2], fd = -1, begun = 0;
	pid_t daemon, pid, self = getpid();
	pthread_t thread;

#ifdef __SANITIZE_THREAD__
	print_message("skipped: a thread of ThreadSanitizer's shares the files and stays\n");
	skip();
#endif
	assert_int_equal(nv_journal_create(&journal), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	daemon = fork();
	if (!daemon) {
		const struct lever_nvidia_ops ops = { .size = sizeof(ops),
						      .ctx = &ends[1],
						      .start_program = pass_on };

		die_with(self);
		if (nv_guardian_start(&ops, "guardian", &journal, &pid, &fd) != -ECANCELED ||
		    pthread_create(&thread, NULL, stay, &begun))
			_exit(1);
		while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
			usleep(1000);
		syscall(SYS_exit, 0); /* this thread's end only */
	}
	assert_int_equal(recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC), 1);
	memcpy(&end.fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	whole.fd = (int)syscall(SYS_pidfd_open, daemon, 0);
	assert_true(whole.fd >= 0);
	assert_int_equal(poll(&end, 1, -1), 1);
	assert_int_equal(poll(&whole, 1, 0), 0); /* the thread is still there */
	assert_int_equal(kill(daemon, SIGKILL), 0);
	waitpid(daemon, NULL, 0);
	close(whole.fd);
	close(end.fd);
	close(ends[0]);
	close(ends[1]);
	nv_journal_close(&journal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* The first: the pipe is made once in a process, and forks have copies. */
		cmocka_unit_test_setup(a_thread_with_files_of_its_own_does_not_hide_the_end,
				       before),
		cmocka_unit_test_setup(a_host_may_start_it, before),
		cmocka_unit_test_setup(a_guardian_is_there_again_when_it_can_be, with_guardians),
		cmocka_unit_test_setup(the_first_guardian_is_tried_again_too, with_guardians),
		cmocka_unit_test_setup(what_is_stopped_when_the_guardian_dies_runs_again,
				       with_guardians),
		cmocka_unit_test_setup(the_guardian_lets_go_when_the_daemon_dies, before),
		cmocka_unit_test_setup(the_guardian_says_when_it_cannot, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
