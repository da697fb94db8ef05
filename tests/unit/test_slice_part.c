// SPDX-License-Identifier: MIT
/*
 * test_slice_part.c - which queues of a context are stopped with it, on contexts that are not
 * there: whatever their queues do, what is left alone has carried no work for long, and runs for a
 * bounded time where it begins to.
 */
#include "check.h"

#include "rtxg_slice_part.h"

#define QUEUES_MOST 24u
#define SETS	    400u
#define STOPS	    40u

static uint64_t seed;

static uint64_t random_below(uint64_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 20) % n;
}

/* A context, and what a lever sees of it. */
static struct {
	unsigned int count, turn;
	uint64_t now, since, looked;
	struct {
		struct rtxg_slice_queue seen;
		uint64_t every;	     /* how often something is put into it; 0: hardly ever */
		uint64_t next, last; /* when again, and when last */
		bool unread;	     /* something was put into it since it was read */
		bool stopped;
	} queue[QUEUES_MOST];
} w;

static void start(void)
{
	w.count = 2 + (unsigned int)random_below(QUEUES_MOST - 1);
	w.turn = 0;
	w.now = w.since = 5 * SEC + random_below(SEC);
	w.looked = 0;
	for (unsigned int i = 0; i < w.count; i++) {
		w.queue[i].seen = (struct rtxg_slice_queue){ 0 };
		w.queue[i].every = i && random_below(4) ? 0 : 1 + random_below(30 * MS);
		w.queue[i].next = w.now + random_below(30 * SEC);
		if (w.queue[i].every)
			w.queue[i].next = w.now + random_below(w.queue[i].every);
		w.queue[i].last = 0;
		w.queue[i].unread = w.queue[i].stopped = false;
	}
}

static void pass_to(uint64_t at)
{
	w.now = at;
	for (unsigned int i = 0; i < w.count; i++)
		while (w.queue[i].next <= at) {
			w.queue[i].last = w.queue[i].next;
			w.queue[i].next +=
				1 + (w.queue[i].every ? w.queue[i].every : random_below(60 * SEC));
			w.queue[i].unread = true;
		}
}

static void read_queue(unsigned int i)
{
	rtxg_slice_queue_looked(&w.queue[i].seen, w.now, w.queue[i].unread);
	w.queue[i].unread = false;
}

/* As the lever does it: all that carry work, and of the others one in turn. */
static void look(void)
{
	unsigned int hot = 0;

	w.looked = w.now;
	for (unsigned int i = 0; i < w.count; i++)
		if (w.queue[i].seen.hot) {
			read_queue(i);
			hot++;
		}
	for (unsigned int i = 0; i < w.count; i++) {
		w.turn = (w.turn + 1) % w.count;
		if (w.queue[w.turn].seen.hot)
			continue;
		read_queue(w.turn);
		if (hot)
			break;
	}
}

static bool known(void)
{
	struct rtxg_slice_queues all = {
		.count = w.count, .looks = UINT32_MAX, .since_ns = w.since, .looked_ns = w.looked
	};

	for (unsigned int i = 0; i < w.count; i++) {
		all.hot += w.queue[i].seen.hot;
		if (w.queue[i].seen.looks < all.looks)
			all.looks = w.queue[i].seen.looks;
	}
	return rtxg_slice_queues_known(&all);
}

/* Stops it; returns how many queues were left alone. */
static unsigned int stop(void)
{
	bool part = known();
	unsigned int left = 0;

	if (part)
		assert_true(w.looked >= w.since + RTXG_SLICE_KNOWN_NS);
	for (unsigned int i = 0; i < w.count; i++) {
		w.queue[i].stopped = !part || w.queue[i].seen.hot;
		if (w.queue[i].stopped)
			continue;
		left++;
		assert_true(w.queue[i].seen.looks >= RTXG_SLICE_KNOWN_LOOKS);
		if (w.queue[i].seen.moved_ns)
			assert_true(w.looked - w.queue[i].seen.moved_ns > RTXG_SLICE_COLD_NS);
	}
	assert_true(left < w.count); /* what carries work is stopped in any case */
	return left;
}

/*
 * Stopped for so long: the lever wakes up for the looks as late as it may. Returns for how long,
 * at most, a queue had work on the engine though its context was stopped.
 */
static uint64_t stay_stopped(uint64_t length, unsigned int *left)
{
	struct rtxg_slice_rest rest = { 0 };
	uint64_t begin = w.now, most = 0;

	rtxg_slice_rest_stopped(&rest, w.now, *left);
	while (*left && rtxg_slice_rest_latest(&rest) < begin + length) {
		uint64_t early = rtxg_slice_rest_latest(&rest) - rest.due_ns;
		bool any = false;

		assert_true(rest.due_ns >= w.now);
		pass_to(rest.due_ns + random_below(early + 1));
		for (unsigned int i = 0; i < w.count; i++) {
			if (w.queue[i].stopped)
				continue;
			if (w.queue[i].unread && w.queue[i].last >= begin &&
			    w.now - w.queue[i].last > most)
				most = w.now - w.queue[i].last;
			any |= w.queue[i].unread;
			read_queue(i);
		}
		for (unsigned int i = 0; any && i < w.count; i++)
			w.queue[i].stopped = true;
		*left = any ? 0 : *left;
		rtxg_slice_rest_looked(&rest, w.now, *left);
	}
	return most;
}

static void test_what_is_left_alone_runs_for_a_bounded_time(void **unused)
{
	unsigned int parts = 0, whole = 0, found = 0;
	uint64_t most = 0;

	for (unsigned int set = 1; set <= SETS; set++) {
		seed = set;
		start();
		for (unsigned int n = 0; n < STOPS; n++) {
			uint64_t until = w.now + random_below(n % 8 ? 200 * MS : 15 * SEC), ran;
			unsigned int left, before;

			while (w.now < until) {
				pass_to(w.now + 1 + random_below(5 * MS));
				look();
			}
			left = before = stop();
			parts += left != 0;
			whole += !left;
			ran = stay_stopped(random_below(SEC), &left);
			found += left < before;
			most = ran > most ? ran : most;
			assert_true(ran <= RTXG_SLICE_REST_MOST_NS);
		}
	}
	/* The bound is a bound, and the test has come near it. */
	assert_true(parts > SETS && whole > SETS && found > 20);
	assert_true(most > RTXG_SLICE_REST_MOST_NS / 2);
}

static void test_a_queue_is_hot_for_ten_seconds(void **unused)
{
	struct rtxg_slice_queue queue = { 0 };

	rtxg_slice_queue_looked(&queue, SEC, false);
	assert_false(queue.hot);
	rtxg_slice_queue_looked(&queue, 2 * SEC, true);
	assert_true(queue.hot);
	rtxg_slice_queue_looked(&queue, 2 * SEC + RTXG_SLICE_COLD_NS, false);
	assert_true(queue.hot);
	rtxg_slice_queue_looked(&queue, 2 * SEC + RTXG_SLICE_COLD_NS + 1, false);
	assert_false(queue.hot);
	assert_int_equal(queue.looks, 4);
}

static void test_nothing_is_left_alone_before_all_is_known(void **unused)
{
	const struct rtxg_slice_queues enough = { .count = 8,
						  .hot = 1,
						  .looks = RTXG_SLICE_KNOWN_LOOKS,
						  .since_ns = SEC,
						  .looked_ns = SEC + RTXG_SLICE_KNOWN_NS };
	struct rtxg_slice_queues q = enough;

	assert_true(rtxg_slice_queues_known(&q));
	q.hot = 0; /* then nothing would be stopped */
	assert_false(rtxg_slice_queues_known(&q));
	q.hot = 8; /* then nothing is left */
	assert_false(rtxg_slice_queues_known(&q));
	q = enough;
	q.looks--;
	assert_false(rtxg_slice_queues_known(&q));
	q = enough;
	q.looked_ns--;
	assert_false(rtxg_slice_queues_known(&q));
	q = enough;
	q.since_ns = 0; /* some are not seen */
	assert_false(rtxg_slice_queues_known(&q));
}

/* The times of the looks, as they were measured to be cheap enough. */
static void test_looks_come_further_and_further_apart(void **unused)
{
	struct rtxg_slice_rest rest = { 0 };

	assert_int_equal(rtxg_slice_rest_latest(&rest), UINT64_MAX);
	rtxg_slice_rest_stopped(&rest, SEC, true);
	assert_int_equal(rest.due_ns, SEC + 2 * MS);
	assert_int_equal(rtxg_slice_rest_latest(&rest), SEC + 6 * MS);
	rtxg_slice_rest_looked(&rest, SEC, true);
	assert_int_equal(rest.due_ns, SEC + 8 * MS);
	for (int i = 0; i < 3; i++) {
		rtxg_slice_rest_looked(&rest, SEC, true);
		assert_int_equal(rest.due_ns, SEC + 16 * MS);
	}
	rtxg_slice_rest_looked(&rest, SEC, false);
	assert_int_equal(rtxg_slice_rest_latest(&rest), UINT64_MAX);
	rtxg_slice_rest_stopped(&rest, SEC, false);
	assert_int_equal(rtxg_slice_rest_latest(&rest), UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_left_alone_runs_for_a_bounded_time),
		cmocka_unit_test(test_a_queue_is_hot_for_ten_seconds),
		cmocka_unit_test(test_nothing_is_left_alone_before_all_is_known),
		cmocka_unit_test(test_looks_come_further_and_further_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
