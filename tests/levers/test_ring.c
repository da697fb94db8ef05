// SPDX-License-Identifier: MIT
/*
 * test_ring.c - the discovery program in this machine's kernel, and the ring that it is read from,
 * with processes that fork. It needs root.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../bpf/discovery.h"
#include "assigned.h"
#include "contexts.h"
#include "rig.h"

#define TAG	 3
#define CHILDREN 50

#define OTHER_USER 4242u
#define NO_PID	   (1u << 23) /* above all that there are */

static struct discovery *discovery;
static struct discover_record last_fork;
static unsigned int forks, ends, others;

static void count(void *ctx, const struct discover_record *r)
{
	bool fork = r->kind == DISCOVER_FORK && r->ppid == (uint32_t)getpid();

	if (fork)
		last_fork = *r;
	forks += fork;
	ends += r->kind == DISCOVER_EXIT && r->tag == TAG;
	others++;
}

static pid_t child(bool lives)
{
	pid_t pid = lives ? sleeper() : fork();

	if (!pid)
		_exit(0);
	if (!lives)
		waitpid(pid, NULL, 0);
	return pid;
}

static void reading_ends_with_its_time(void **state)
{
	bool more = true;
	int reads = 0;

	assert_int_equal(discovery_watch(discovery, (uint32_t)getpid(), TAG), 0);
	for (int i = 0; i < CHILDREN; i++)
		child(false);
	/* Its time was over before it began: one record, and what is lost by no means. */
	for (; more; reads++) {
		unsigned int before = others;

		more = discovery_read(discovery, 0, count, NULL);
		assert_in_range(others - before, 0, 1);
	}
	assert_int_equal(forks, CHILDREN);
	assert_int_equal(ends, CHILDREN);
	assert_in_range(reads, 2 * CHILDREN, 100 * CHILDREN);
	for (int i = 0; i < CHILDREN; i++)
		child(false);
	assert_false(discovery_read(discovery, UINT64_MAX, count, NULL));
	assert_int_equal(forks, 2 * CHILDREN);
	assert_int_equal(ends, 2 * CHILDREN);
}

static void a_birth_is_told_as_proc_tells_it(void **state)
{
	struct nv_assigned asked = { 0 }, told = { 0 };
	pid_t pid = child(true);

	assert_false(discovery_read(discovery, UINT64_MAX, count, NULL));
	assert_int_equal(last_fork.pid, pid);
	assert_int_equal(nv_assigned_put(&asked, (uint32_t)pid, TAG, true), 0);
	if (!last_fork.value) /* before Linux 5.5 */
		skip();
	/* The first one is asked for, and found to be the same. */
	assert_int_equal(nv_assigned_born(&told, (uint32_t)pid, TAG, last_fork.value), 0);
	assert_true(told.births_told);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	nv_assigned_remove(&told, (uint32_t)pid);
	assert_int_equal(nv_assigned_born(&told, (uint32_t)pid, TAG, last_fork.value), 0);
	assert_int_equal(told.one[0].start, asked.one[0].start);
	nv_assigned_free(&asked);
	nv_assigned_free(&told);
}

struct seen {
	uint32_t parent;
	unsigned int forks, ends, unwatched;
};

static void see(void *ctx, const struct discover_record *r)
{
	struct seen *seen = ctx;

	seen->forks += r->kind == DISCOVER_FORK && r->ppid == seen->parent && r->tag == TAG;
	seen->ends += r->kind == DISCOVER_EXIT && r->tag == TAG;
	if (r->kind == DISCOVER_LOST && r->value == DISCOVER_UNWATCHED)
		seen->unwatched += r->object;
}

/* A process of another user, which forks once it has been told to. */
static pid_t other_user(int go[2])
{
	pid_t self = getpid(), pid;
	int ready[2];
	char byte;

	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		if (setuid(OTHER_USER) || write(ready[1], ".", 1) != 1)
			_exit(1);
		die_with(self);
		if (read(go[0], &byte, 1) == 1)
			child(false);
		_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* As one who forks without end does. */
static void one_user_leaves_places_to_others(void **state)
{
	struct seen seen = { .parent = (uint32_t)getpid() };
	int error, go[2];
	struct discovery *d = discovery_open(0, &error);
	pid_t one = child(true), other;
	uint32_t n = 0;

	assert_non_null(d);
	assert_int_equal(discovery_watch(d, (uint32_t)getpid(), TAG), 0);
	assert_int_equal(discovery_watch(d, (uint32_t)one, TAG), 0);
	while (n < DISCOVER_WATCHED && !(error = discovery_watch(d, NO_PID + n, TAG)))
		n++;
	assert_int_equal(n, DISCOVER_WATCHED / 2 - 2);
	assert_int_equal(error, -ENOSPC);
	/* What is there already may be changed. */
	assert_int_equal(discovery_watch(d, NO_PID, TAG), 0);
	/* A child more is not followed, and that is told. */
	child(false);
	assert_false(discovery_read(d, UINT64_MAX, see, &seen));
	assert_int_equal(seen.forks, 0);
	assert_int_equal(seen.unwatched, 1);
	/* Those of another user are. */
	other = other_user(go);
	assert_false(discovery_read(d, UINT64_MAX, see, &seen));
	seen = (struct seen){ .parent = (uint32_t)other };
	assert_int_equal(discovery_watch(d, (uint32_t)other, TAG), 0);
	assert_int_equal(write(go[1], ".", 1), 1);
	assert_int_equal(waitpid(other, NULL, 0), other);
	assert_false(discovery_read(d, UINT64_MAX, see, &seen));
	assert_int_equal(seen.forks, 1);
	assert_int_equal(seen.ends, 2);
	assert_int_equal(seen.unwatched, 0);
	/* One that ends gives its place back. */
	assert_int_equal(discovery_watch(d, NO_PID + n, TAG), -ENOSPC);
	kill(one, SIGKILL);
	waitpid(one, NULL, 0);
	assert_int_equal(discovery_watch(d, NO_PID + n, TAG), 0);
	assert_int_equal(discovery_watch(d, NO_PID + n + 1, TAG), -ENOSPC);
	close(go[0]);
	close(go[1]);
	discovery_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reading_ends_with_its_time),
		cmocka_unit_test(a_birth_is_told_as_proc_tells_it),
		cmocka_unit_test(one_user_leaves_places_to_others),
	};
	int error, failed;

	discovery = discovery_open(0, &error);
	if (!discovery) {
		printf("skipped: the discovery program cannot be loaded: %s\n", strerror(-error));
		return 77;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	discovery_close(discovery);
	return failed;
}
