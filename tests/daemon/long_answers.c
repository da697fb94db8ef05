// SPDX-License-Identifier: MIT
/*
 * long_answers.c - an answer that takes long holds up no hand-over: the daemon's own handlers in
 * this process, 200 tasks, one of which gives its permit back while the daemon makes a list of them
 * all. And what a list has that is made in pieces, between which tasks begin and end.
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
#include "control_task.h"
#include "history.h"
#include "host.h"
#include "reply.h"
#include "series.h"
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

/* As client.c does it. */
static void ask(struct connection *c, const char *request)
{
	do {
		c->later = false;
		control_packet(c, request, strlen(request), -1);
		assert_false(c->closing);
	} while (c->later);
	if (c->pieces)
		c->drop_pieces(c->pieces);
	c->pieces = NULL;
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

/* --- pieces ----------------------------------------------------------------------------------- */

static void reopen(int i)
{
	client_drop(connections[i]);
	close(peers[i]);
	connections[i] = connect_one(&peers[i]);
	ask(connections[i], "{\"op\": \"open\"}");
	assert_non_null(connections[i]->task);
}

/* A list all of whose pieces are as short as can be, to be made with next_piece(). */
struct list {
	struct connection *viewer;
	int peer;
	struct reply_rows rows;
	struct backend_rows at;
};

static void begin(struct list *list)
{
	const struct request request = { .op = &(struct message_op){ .name = "task-list" } };

	*list = (struct list){ .viewer = connect_one(&list->peer), .at = { .out = &list->rows } };
	assert_int_equal(reply_rows_begin(&list->rows, &request), 0);
	reply_rows_list(&list->rows, "tasks");
}

static bool next_piece(struct list *list)
{
	struct backend_filter filter = { .viewer = list->viewer };

	return backend_tasks(&daemon_state, &filter, &list->at);
}

/* How often each task is in the list. */
static void end(struct list *list, unsigned int found[TASKS_MAX])
{
	json_t *reply, *row;
	size_t i;

	memset(found, 0, TASKS_MAX * sizeof(*found));
	reply_rows_put(&list->rows, "refused", json_array());
	fputc('}', list->rows.out);
	assert_int_equal(fflush(list->rows.out), 0);
	reply = json_loadb(list->rows.text, list->rows.size, 0, NULL);
	assert_non_null(reply);
	json_array_foreach (json_object_get(reply, "tasks"), i, row)
		found[json_integer_value(json_object_get(row, "task"))]++;
	json_decref(reply);
	backend_rows_drop(&list->at);
	reply_rows_drop(&list->rows);
	client_drop(list->viewer);
	close(list->peer);
}

static void test_a_list_goes_on_where_it_was(void **unused)
{
	static unsigned int found[TASKS_MAX];
	unsigned int pieces = 1;
	struct list list;

	begin(&list);
	while (!next_piece(&list))
		pieces++;
	end(&list, found);
	assert_true(pieces >= TASKS);
	for (int i = 0; i < TASKS; i++)
		assert_int_equal(found[connections[i]->task->id], 1);
}

static void count_slowly(struct daemon *d)
{
	uint64_t end = rtxg_now_ns() + CONTROL_PIECE_NS;

	(void)d;
	while (rtxg_now_ns() < end)
		;
}

/* To look at rtxg.ko may take longer than a piece: the list gets on, and is sent. */
static void test_a_list_ends_although_its_pieces_are_used_up_before_it(void **unused)
{
	static const char *const requests[] = { "{\"op\": \"task-list\"}",
						"{\"op\": \"stats\", \"tasks\": true}" };
	const struct host *host = daemon_state.host;
	struct host slow = *host;
	int peer;
	struct connection *c = connect_one(&peer);

	slow.count = count_slowly;
	daemon_state.host = &slow;
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		int pieces = 0;

		do {
			c->later = false;
			control_packet(c, requests[i], strlen(requests[i]), -1);
			assert_false(c->closing);
		} while (c->later && ++pieces <= TASKS + 1);
		assert_in_range(pieces, 0, TASKS + 1);
		assert_non_null(c->pieces);
		c->drop_pieces(c->pieces);
		c->pieces = NULL;
	}
	daemon_state.host = host;
	client_drop(c);
	close(peer);
}

/* Those that live all the time have one row each, and no number has two. */
static void test_tasks_that_begin_and_end_between_two_pieces(void **unused)
{
	static unsigned int found[TASKS_MAX];
	struct list list;

	begin(&list);
	/* Every other one goes, listed or not, and its number is given out again. */
	for (int i = 0; !next_piece(&list); i++)
		reopen((2 * i * 37 + 1) % TASKS);
	end(&list, found);
	for (uint32_t id = 0; id < TASKS_MAX; id++)
		assert_in_range(found[id], 0, 1);
	for (int i = 0; i < TASKS; i += 2)
		assert_int_equal(found[connections[i]->task->id], 1);
}

/* --- history ---------------------------------------------------------------------------------- */

#define GPUS 3

/* Each slot of the compute engine says its number. */
static void sample(void)
{
	struct daemon *d = &daemon_state;

	history_sample(d);
	for (uint32_t id = 0; id < ACCOUNTS_MAX; id++)
		if (d->accounts[id].used && d->accounts[id].slots)
			d->accounts[id].slots[(d->samples - 1) % SLOTS][0] =
				(struct slot){ .busy_ns = (uint32_t)d->samples - 1 };
}

/* Samples overtake it: it begins later then, and what it has is right. */
static void test_history_of_which_slots_are_lost_between_two_pieces(void **unused)
{
	struct daemon *d = &daemon_state;
	struct series_list list;
	struct connection *more[GPUS];
	int ends[GPUS], pieces = 0;
	uint64_t next;

	for (int i = 0; i < GPUS; i++) {
		char request[64];

		more[i] = connect_one(&ends[i]);
		snprintf(request, sizeof(request), "{\"op\": \"open\", \"gpu\": \"%d\"}", i + 1);
		ask(more[i], request);
		assert_non_null(more[i]->task);
	}
	for (uint32_t i = 0; i < SLOTS + 10; i++)
		sample();
	next = d->samples;
	series_begin(&list, d, history_oldest(d), "");
	while (!backend_history(d, &list)) {
		pieces++;
		sample();
		assert_true(pieces <= 100);
	}
	assert_true(pieces >= GPUS);
	assert_int_equal(list.next, next);
	assert_true(list.first > list.base && list.first <= history_oldest(d));
	pieces = 0;
	for (const struct series *one = list.head; one; one = one->following, pieces++)
		for (uint64_t n = list.first; n < next; n++)
			assert_int_equal(one->slots[n - list.base].busy_ns, n);
	assert_int_equal(pieces, GPUS + 1);
	/* None is left of one that takes longer than all slots. */
	for (uint32_t i = 0; i < SLOTS + 10; i++)
		sample();
	assert_int_equal(series_first(&list, d), next);
	series_drop(&list);
	for (int i = 0; i < GPUS; i++) {
		client_drop(more[i]);
		close(ends[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_list_of_tasks),
		cmocka_unit_test(test_statistics_with_tasks),
		cmocka_unit_test(test_history),
		cmocka_unit_test(test_a_list_goes_on_where_it_was),
		cmocka_unit_test(test_a_list_ends_although_its_pieces_are_used_up_before_it),
		cmocka_unit_test(test_tasks_that_begin_and_end_between_two_pieces),
		cmocka_unit_test(test_history_of_which_slots_are_lost_between_two_pieces),
	};

	return cmocka_run_group_tests_name("long answers", tests, start, NULL);
}
