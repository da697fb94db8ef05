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
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
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
#define NUMBER	   20011      /* of a process; most likely none has it */
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

/* Its own id becomes that of another user there, which a service has lent to it. */
static bool enter_namespace(int ready, int go)
{
	char byte;

	return !unshare(CLONE_NEWUSER) && write(ready, ".", 1) == 1 && read(go, &byte, 1) == 1 &&
	       !setuid(0);
}

static bool lend(pid_t pid, uint32_t uid)
{
	char path[32];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	f = fopen(path, "we");
	if (!f)
		return false;
	fprintf(f, "0 %u 1\n", uid);
	return !fclose(f);
}

/*
 * A process of another user, which forks once it has been told to. lent: the id that it has in a
 * user namespace which that user has made; 0: in none. 0: it may make none.
 */
static pid_t other_user(uint32_t uid, uint32_t lent, int go[2])
{
	pid_t self = getpid(), pid;
	int ready[2];
	char byte;

	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		close(ready[0]);
		if (setuid(uid) || (lent && !enter_namespace(ready[1], go[0])) ||
		    write(ready[1], ".", 1) != 1)
			_exit(1);
		die_with(self);
		if (read(go[0], &byte, 1) == 1)
			child(false);
		_exit(0);
	}
	close(ready[1]);
	if (lent && (read(ready[0], &byte, 1) != 1 || !lend(pid, lent))) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return 0;
	}
	if (lent)
		assert_int_equal(write(go[1], ".", 1), 1);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* Whether a child of such a process is followed; -1: there cannot be such a process here. */
static int is_followed(struct discovery *d, uint32_t uid, uint32_t lent)
{
	int go[2];
	pid_t pid = other_user(uid, lent, go);
	struct seen seen = { .parent = (uint32_t)pid };

	if (!pid)
		return -1;
	/* The process itself has a place of another's, so that all that are left are counted on. */
	assert_int_equal(discovery_watch_of(d, 0, (uint32_t)pid, TAG), 0);
	assert_int_equal(write(go[1], ".", 1), 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(discovery_read(d, UINT64_MAX, see, &seen));
	assert_int_equal(seen.forks + seen.unwatched, 1);
	close(go[0]);
	close(go[1]);
	return (int)seen.forks;
}

/* Of many processes of these ids, by turns, how many are followed? */
static uint32_t fill(struct discovery *d, uint32_t from, uint32_t ids, uint32_t first)
{
	uint32_t n = 0;

	while (n < DISCOVER_WATCHED && !discovery_watch_of(d, first + n % ids, from + n, TAG))
		n++;
	return n;
}

static void change_file(int fd, const char *text)
{
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* The file of subordinate ids, for this process and its children. */
static bool put_file(const char *text)
{
	char name[] = "/tmp/rtxg-ring-XXXXXX";
	int fd = mkstemp(name);
	bool put;

	if (fd < 0)
		return false;
	put = !fchmod(fd, 0644) && !unshare(CLONE_NEWNS) &&
	      !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	      !mount(name, "/etc/subuid", NULL, MS_BIND, NULL);
	if (put)
		change_file(fd, text);
	else
		close(fd);
	unlink(name);
	return put;
}

/* Their ids differ by a multiple of what there are places for. */
static void users_take_no_places_of_each_other(void **state)
{
	int error;
	struct discovery *d = discovery_open(0, &error);

	assert_non_null(d);
	assert_int_equal(fill(d, NO_PID, 1, OTHER_USER), DISCOVER_WATCHED / 2);
	assert_int_equal(is_followed(d, OTHER_USER, 0), 0);
	assert_int_equal(is_followed(d, OTHER_USER + DISCOVER_USERS, 0), 1);
	discovery_close(d);
}

/* Such a user may be each of the ids that the file gives. */
static void one_user_of_many_ids_leaves_places_to_others(void **state)
{
	uint32_t all = DISCOVER_WATCHED, n;
	struct discovery *d;
	int error;

	if (!put_file("attacker:500000:65536\nattacker:700000:1000\nroot:900000:131072\n"))
		skip();
	d = discovery_open(0, &error);
	assert_non_null(d);
	n = fill(d, NO_PID, 60000, 500000);
	assert_int_equal(n, all / 2);
	assert_int_equal(is_followed(d, 565535, 0), 0);
	assert_int_equal(is_followed(d, 700999, 0), 0);
	assert_int_equal(is_followed(d, 499999, 0), 1);
	assert_int_equal(is_followed(d, 701000, 0), 1);
	/* Root's are for containers: each block of ids is a user. */
	assert_int_equal(fill(d, NO_PID + n, 60000, 900000), all / 4);
	assert_int_equal(is_followed(d, 965535, 0), 0);
	assert_int_equal(is_followed(d, 965536, 0), 1);
	/* Another file holds for what comes then. */
	change_file(open("/etc/subuid", O_WRONLY | O_CLOEXEC), "other:499990:20\n");
	while (!is_followed(d, 700999, 0))
		usleep(10000);
	assert_int_equal(is_followed(d, 500009, 0), 1);
	discovery_close(d);
}

/* In a user namespace such a user has ids that no file gives. */
static void one_user_of_namespaces_leaves_places_to_others(void **state)
{
	int error, followed;
	struct discovery *d = discovery_open(0, &error);

	assert_non_null(d);
	assert_int_equal(fill(d, NO_PID, 1, OTHER_USER), DISCOVER_WATCHED / 2);
	followed = is_followed(d, OTHER_USER, 600000000);
	if (followed < 0)
		skip();
	assert_int_equal(followed, 0);
	assert_int_equal(is_followed(d, OTHER_USER + 1, 600000001), 1);
	/* Those that root has made are not root's. */
	assert_int_equal(is_followed(d, 0, 600000002), 1);
	discovery_close(d);
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
	other = other_user(OTHER_USER, 0, go);
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

/* Numbers of processes are those of a namespace of their own there, with a /proc of its own. */
static int in_namespace(int (*fn)(struct discovery *d))
{
	int status, error;
	struct discovery *d;
	pid_t self = getpid(), pid = fork();

	if (!pid) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS) ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
			_exit(77);
		pid = fork();
		if (pid) {
			die_with(self);
			waitpid(pid, &status, 0);
			_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
		}
		if (mount("proc", "/proc", "proc", 0, NULL))
			_exit(77);
		d = discovery_open(0, &error);
		_exit(d ? fn(d) : 98);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A child is in a namespace below. */
static int below(struct discovery *d)
{
	struct seen seen = { .parent = (uint32_t)getpid() };

	if (discovery_watch(d, (uint32_t)getpid(), TAG) || unshare(CLONE_NEWPID))
		return 77;
	child(false);
	discovery_read(d, UINT64_MAX, see, &seen);
	return seen.forks == 1 && seen.ends == 1 ? 0 : 1;
}

static void ends_in_namespaces_below_are_told(void **state)
{
	int said = in_namespace(below);

	if (said == 77)
		skip();
	assert_int_equal(said, 0);
}

/* The next process of the caller's namespace has that number, if it is free. */
static bool next_is(pid_t number)
{
	FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "we");

	if (!f)
		return false;
	fprintf(f, "%d", number - 1);
	return !fclose(f);
}

/* The number of a process that has ended unseen is another one's. */
static int again(struct discovery *d)
{
	struct seen seen = { 0 };

	if (discovery_watch(d, NUMBER, TAG) || !next_is(NUMBER) || child(false) != NUMBER)
		return 77;
	discovery_read(d, UINT64_MAX, see, &seen);
	return seen.ends ? 1 : 0;
}

static void a_process_has_nothing_of_its_numbers_last_one(void **state)
{
	int said = in_namespace(again);

	if (said == 77)
		skip();
	assert_int_equal(said, 0);
}

static int to_outside[2], to_inside[2];

/* Outside the namespace: a process of that number comes, and one of its own, and both end. */
static void outside(void)
{
	char said = 'x';
	pid_t pid;

	if (read(to_outside[0], &said, 1) != 1)
		_exit(1);
	pid = next_is(NUMBER) ? fork() : -1;
	if (!pid) {
		child(false);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	said = pid == NUMBER ? '.' : 'x';
	_exit(write(to_inside[1], &said, 1) != 1);
}

/* A process of that number is watched in the namespace meanwhile, and has a child afterwards. */
static int beside_outside(struct discovery *d)
{
	struct seen seen = { .parent = NUMBER };
	pid_t pid = next_is(NUMBER) ? fork() : -1;
	int status;
	char said;

	if (!pid) {
		if (read(to_inside[0], &said, 1) != 1 || said != '.')
			_exit(77);
		child(false);
		_exit(0);
	}
	if (pid != NUMBER || discovery_watch(d, NUMBER, TAG) || write(to_outside[1], ".", 1) != 1)
		return 77;
	if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status))
		return 77;
	discovery_read(d, UINT64_MAX, see, &seen);
	return seen.forks == 1 && seen.ends == 2 ? 0 : 1;
}

static void processes_outside_are_not_those_of_their_number(void **state)
{
	pid_t self = getpid(), pid;
	int said;

	assert_int_equal(pipe(to_outside), 0);
	assert_int_equal(pipe(to_inside), 0);
	pid = fork();
	if (!pid) {
		die_with(self);
		outside();
	}
	said = in_namespace(beside_outside);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(to_outside[i]);
		close(to_inside[i]);
	}
	if (said == 77) {
		print_message("no pid namespace, or a process has the number %d\n", NUMBER);
		skip();
	}
	assert_int_equal(said, 0);
}

static void what_has_ended_unseen_keeps_no_place(void **state)
{
	struct seen seen = { .parent = (uint32_t)getpid() };
	int error, pieces = 1;
	struct discovery *d = discovery_open(0, &error);

	assert_non_null(d);
	assert_int_equal(discovery_watch(d, (uint32_t)getpid(), TAG), 0);
	assert_int_equal(fill(d, NO_PID, 1, OTHER_USER), DISCOVER_WATCHED / 2);
	assert_int_equal(is_followed(d, OTHER_USER, 0), 0);
	/* Its time is over before it begins: a few at a time. */
	for (; discovery_sweep(d, 0); pieces++)
		;
	assert_in_range(pieces, DISCOVER_WATCHED / 2 / 64, DISCOVER_WATCHED);
	assert_int_equal(is_followed(d, OTHER_USER, 0), 1);
	assert_int_equal(fill(d, NO_PID, 1, OTHER_USER), DISCOVER_WATCHED / 2);
	/* Who lives is followed still. */
	child(false);
	assert_false(discovery_read(d, UINT64_MAX, see, &seen));
	assert_int_equal(seen.forks, 1);
	discovery_close(d);
}

/* For so long, with the discovery program in this machine's kernel, and all else the fake's. */
static void lever_goes_on(struct lever_nvidia *l, uint64_t ns)
{
	for (uint64_t end = fake->now + ns; fake->now < end; fake->now += 250 * MS)
		assert_int_equal(lever_nvidia_dispatch(l), 0);
}

static void a_lever_lets_go_of_what_has_ended_unseen(void **state)
{
	struct lever_nvidia *l = lever_up();
	int error;

	l->discovery = discovery_open(0, &error);
	assert_non_null(l->discovery);
	fill(l->discovery, NO_PID, 1, OTHER_USER);
	assert_int_equal(is_followed(l->discovery, OTHER_USER, 0), 0);
	lever_goes_on(l, 11000 * MS);
	while (l->sweeping)
		lever_goes_on(l, 1000 * MS);
	assert_int_equal(is_followed(l->discovery, OTHER_USER, 0), 1);
	lever_nvidia_close(l);
}

static unsigned int warnings;

static void hear(void *ctx, enum lever_nvidia_log level, const char *line)
{
	(void)ctx;
	(void)level;
	warnings += strstr(line, "not followed") != NULL;
}

/* Forks that are not followed make no record, and nothing else happens: the watch tells of them. */
static void forks_alone_are_told_of(void **state)
{
	struct lever_nvidia *l = lever_up();
	int error;

	l->ops.log = hear;
	l->discovery = discovery_open(0, &error);
	assert_non_null(l->discovery);
	assert_int_equal(discovery_watch(l->discovery, (uint32_t)getpid(), TAG), 0);
	fill(l->discovery, NO_PID, 1, 0);
	lever_goes_on(l, 1000 * MS);
	assert_int_equal(warnings, 0);
	child(false);
	lever_goes_on(l, 6000 * MS);
	assert_int_equal(warnings, 1);
	lever_nvidia_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reading_ends_with_its_time),
		cmocka_unit_test(a_birth_is_told_as_proc_tells_it),
		cmocka_unit_test(one_user_leaves_places_to_others),
		cmocka_unit_test(ends_in_namespaces_below_are_told),
		cmocka_unit_test(a_process_has_nothing_of_its_numbers_last_one),
		cmocka_unit_test(processes_outside_are_not_those_of_their_number),
		cmocka_unit_test(what_has_ended_unseen_keeps_no_place),
		cmocka_unit_test_setup(a_lever_lets_go_of_what_has_ended_unseen, before),
		cmocka_unit_test_setup(forks_alone_are_told_of, before),
		cmocka_unit_test(users_take_no_places_of_each_other),
		cmocka_unit_test(one_user_of_namespaces_leaves_places_to_others),
		cmocka_unit_test(one_user_of_many_ids_leaves_places_to_others),
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
