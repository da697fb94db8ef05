// SPDX-License-Identifier: MIT
/*
 * long_answers.c - an answer that takes long holds up no hand-over: the daemon's own handlers in
 * this process, 200 tasks, one of which gives its permit back while the daemon makes a list of them
 * all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend.h"
#include "client.h"
#include "config_apply.h"
#include "control.h"
#include "history.h"
#include "host.h"
#include "task.h"

#define TASKS 200

static struct daemon daemon_state;
static struct connection *connections[TASKS];
static int peers[TASKS];

static struct connection *connect_one(int *peer)
{
	struct ucred self = { .pid = getpid(), .uid = geteuid(), .gid = getegid() };
	int pair[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	*peer = pair[1];
	return client_add(&daemon_state, pair[0], -1, &self);
}

static void ask(struct connection *c, const char *request)
{
	control_packet(c, request, strlen(request), -1);
	assert_false(c->closing);
}

static int start(void **unused)
{
	struct daemon *d = &daemon_state;

	d->config_root = "/nonexistent";
	d->group = (gid_t)-1;
	d->spare = -1;
	d->generation = 1;
	d->fast = epoll_create1(EPOLL_CLOEXEC);
	d->backends = backends;
	assert_int_equal(host_init(d, &task_news), 0);
	assert_true(sd_event_new(&d->event) >= 0);
	config_load(d, NULL, NULL);
	for (int i = 0; i < TASKS; i++) {
		connections[i] = connect_one(&peers[i]);
		ask(connections[i], "{\"op\": \"open\"}");
		assert_non_null(connections[i]->task);
	}
	return 0;
}

static struct rtxg_lane *lane(int i)
{
	return &connections[i]->task->permit.page->lanes[0];
}

static bool has(int i)
{
	return lane(i)->permit & RTXG_PERMIT_GRANTED;
}

/* The first task has launched and the second waits; then the first completes, and rings. */
static void hand_over_during(const char *request)
{
	uint64_t one = 1;
	int peer;
	struct connection *other = connect_one(&peer);

	lane(0)->want = 1;
	host_event(&daemon_state, connections[0]->task);
	assert_true(has(0));
	lane(0)->in_flight = 1;
	lane(0)->want = 0;
	lane(0)->launches++;
	usleep(2000); /* longer than a permit is kept from a waiter of the same rank */
	lane(1)->want = 1;
	host_event(&daemon_state, connections[1]->task);
	assert_false(has(0));
	lane(0)->in_flight = 0;
	lane(0)->completions++;
	assert_int_equal(write(connections[0]->task->doorbell, &one, sizeof(one)), sizeof(one));
	assert_false(has(1));
	usleep(1000);
	ask(other, request);
	assert_true(has(1));
	lane(1)->want = 0;
	lane(1)->launches++;
	host_event(&daemon_state, connections[1]->task);
	client_drop(other);
	close(peer);
}

static void test_a_list_of_tasks(void **unused)
{
	hand_over_during("{\"op\": \"task-list\"}");
}

static void test_statistics_with_tasks(void **unused)
{
	hand_over_during("{\"op\": \"stats\", \"tasks\": true}");
}

static void test_history(void **unused)
{
	for (int i = 0; i < 500; i++)
		history_sample(&daemon_state);
	hand_over_during("{\"op\": \"history\"}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_list_of_tasks),
		cmocka_unit_test(test_statistics_with_tasks),
		cmocka_unit_test(test_history),
	};

	return cmocka_run_group_tests_name("long answers", tests, start, NULL);
}
