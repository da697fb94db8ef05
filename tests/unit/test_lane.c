// SPDX-License-Identifier: MIT
/*
 * test_lane.c - what is ready is never left to a thread that sleeps: all states of one engine of
 * the OpenCL layer, with a program, a host and an OpenCL that do the worst they may.
 *
 * The decisions are those of core/gate/lane.c. Around them stands what the layer does with them
 * (the lists, the callback, the helper's sleep), as small as can be: up to three batches. From each
 * state that can be reached, all that is ready must come to run and all that has ended must be
 * noticed without the program's doing anything more. What can be depended on is: commands end, a
 * callback that was set comes, a call returns, a short sleep ends, and the host grants the permit
 * to who asks for it once nothing is in flight. The long limit on waiting for the host is not: it
 * is a net.
 *
 * Each decision is also undone, and then there must be a state that is stuck: the walk finds hangs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "lane.h"

#define BATCHES_MOST 3
#define AHEAD	     4
#define NOW	     10000000000ull
#define NOT_YET	     UINT32_MAX
#define QUIET_LOOKS  8 /* as in lane.c */

static const uint64_t est[BATCHES_MOST] = { AHEAD, AHEAD, 1 };

enum batch { NONE, BLOCKED, READY, RUNS, ENDED };
/* what tells of its end: its event; nothing; nothing, and the call under way is to put a marker */
enum tells { EVENT, BARE, WANTED };
enum place { LOOKS, ASKS, ASKS_AND_DRAINS, NAPS, LISTENS, SLEEPS, WAKES };

struct model {
	struct lane lane;
	enum batch batch[BATCHES_MOST];
	enum tells tells[BATCHES_MOST];
	bool entering[BATCHES_MOST]; /* its call is under way */
	enum place helper;
	bool granted;
	bool awaited; /* the host says that others wait for our ends */
	/* 0; or the batch, from 1, whose end is told of; or COMES: it will be at any moment */
	unsigned int armed;
	bool woken; /* by what is just being done */
};

#define COMES (BATCHES_MOST + 1)

/* the decisions that are undone */
enum undone {
	NOTHING,
	LOOK_AGAIN,	/* what ended between two looks is looked at again */
	FORGET_MISSED,	/* a permit that nothing waits for is not waited for */
	WAKE_ADMITTED,	/* the helper is woken for what is admitted */
	WAKE_MISSED,	/* and for a permit that was missed */
	MARKERS,	/* what nothing tells of gets a marker */
	WANTED_MARKERS, /* also where a call is under way */
	NAP_UNTOLD,	/* the host is not waited for while nothing tells of an end */
	CONTENDED_ASK,	/* an engine that drains is contended, however long that takes */
	DECISIONS,
};

static enum undone undone;
static bool platform_deaf;
static int batches;

/* ---- the layer around its decisions ---- */

static void wake(struct model *m)
{
	m->woken = true;
	if (m->helper == SLEEPS)
		m->helper = WAKES;
	else if (m->helper == NAPS)
		m->helper = LOOKS;
}

static bool admitted(const struct model *m, int i)
{
	return m->batch[i] == RUNS || m->batch[i] == ENDED;
}

/* Who wants the permit back waits for our ends, too. */
static bool awaited(const struct model *m)
{
	return m->lane.contended && (m->awaited || !m->granted);
}

/* The first in that state; `batches`: none. */
static int first(const struct model *m, enum batch state)
{
	int i = 0;

	while (i < batches && m->batch[i] != state)
		i++;
	return i;
}

static void end(struct model *m, int i)
{
	m->batch[i] = ENDED;
	if (m->armed == (unsigned int)i + 1)
		m->armed = COMES;
}

static void admit(struct model *m, int i)
{
	if (m->batch[i] == READY)
		m->lane.ready--;
	m->batch[i] = RUNS;
	if (lane_admit(&m->lane, est[i]) && undone != WAKE_ADMITTED)
		wake(m);
}

static bool try_permit(struct model *m)
{
	if (m->granted)
		return true;
	if (lane_missed(&m->lane, NOW) && undone != WAKE_MISSED)
		wake(m);
	return false;
}

static bool reap(struct model *m)
{
	bool found = false;

	for (int i = 0; i < batches; i++)
		if (m->batch[i] == ENDED && !m->entering[i] && m->tells[i] == EVENT) {
			m->batch[i] = NONE;
			lane_finish(&m->lane, est[i]);
			found = true;
		}
	return found;
}

static void report(struct model *m, bool found)
{
	if (found && lane_reported(&m->lane))
		wake(m);
}

/* Returns whether to look again. */
static bool arm(struct model *m)
{
	enum lane_oldest seen = LANE_SILENT;
	int i = 0;

	while (i < batches && !admitted(m, i))
		i++;
	if (i == batches)
		return false;
	if (!m->entering[i] && m->tells[i] == EVENT)
		seen = m->batch[i] == ENDED ? LANE_ENDED : LANE_TELLS;
	switch (lane_arming(m->armed, seen)) {
	case LANE_LEAVE:
		return false;
	case LANE_LOOK_AGAIN:
		return undone != LOOK_AGAIN;
	case LANE_ARM:
		if (!platform_deaf)
			m->armed = (unsigned int)i + 1;
		break;
	}
	return false;
}

/* A look at the lane; a command may end in its midst. */
static void run(struct model *m, int ends)
{
	bool found = reap(m), more = true;

	if (ends >= 0 && m->batch[ends] == RUNS)
		end(m, ends);
	while (more) {
		int i = first(m, READY);

		switch (lane_admission(&m->lane, i < batches ? est[i] : 0, AHEAD, !m->granted)) {
		case LANE_STOP:
			more = false;
			break;
		case LANE_ASK_EARLY:
			if (lane_missed(&m->lane, NOW) && undone != WAKE_MISSED)
				wake(m);
			more = false;
			break;
		case LANE_TRY:
			more = try_permit(m);
			if (more)
				admit(m, i);
			break;
		}
	}
	report(m, found);
	for (int i = 0; i < batches && m->lane.closed; i++)
		if (m->batch[i] == READY) {
			m->batch[i] = NONE;
			m->entering[i] = false;
			m->lane.ready--;
		}
	if (lane_watches(&m->lane, awaited(m)) && arm(m))
		run(m, -1);
}

static void put_marker(struct model *m, int i)
{
	m->tells[i] = EVENT;
	run(m, -1);
}

/* The helper's look, up to where it sleeps again. */
static void look(struct model *m, int ends)
{
	unsigned int markers = 0;
	bool missed, drains, expired;

	m->woken = false;
	lane_look(&m->lane);
	run(m, ends);
	lane_look_ends(&m->lane);
	for (int i = 0; i < batches && undone != MARKERS; i++) {
		if (!admitted(m, i) || m->tells[i] != BARE || !lane_marks(&m->lane, !m->granted))
			continue;
		if (!m->entering[i])
			markers |= 1u << i;
		else if (undone != WANTED_MARKERS)
			m->tells[i] = WANTED;
	}
	if (markers) {
		for (int i = 0; i < batches; i++)
			if (markers & 1u << i)
				put_marker(m, i);
		return;
	}
	missed = m->lane.missed;
	expired = m->lane.contended && !m->lane.contended_at;
	drains = m->lane.admitted;
	switch (lane_next(&m->lane, NOW, !m->granted)) {
	case LANE_ASK:
		m->helper = drains ? ASKS_AND_DRAINS : ASKS;
		if (!lane_asks(drains, m->armed || undone == NAP_UNTOLD))
			m->helper = NAPS;
		if (undone == CONTENDED_ASK && expired)
			m->lane.contended = false;
		break;
	case LANE_DRAIN:
		m->helper = NAPS;
		if (arm(m))
			run(m, -1);
		break;
	case LANE_LISTEN:
	case LANE_LISTEN_ON:
		m->helper = LISTENS;
		break;
	case LANE_SLEEP:
		m->helper = SLEEPS;
		break;
	}
	if (undone == FORGET_MISSED && !m->lane.ready)
		m->lane.missed = missed;
	if (m->woken)
		wake(m); /* since it began to look: it does not fall asleep */
}

/* ---- what can happen ---- */

enum what {
	/* can be depended on */
	COMMAND_ENDS,
	CALLBACK_COMES,
	CALL_RETURNS,
	HELPER_GOES_ON,
	HOST_GRANTS,
	/* cannot */
	HELPER_LOOKS_MEANWHILE, /* a command ends in the midst of the look */
	CALLBACK_MEANWHILE,
	CALL_FAILS,
	COMMAND_ENTERS,
	COMMAND_ENTERS_BARE,
	COMMAND_JOINS,
	COMMAND_JOINS_BARE,
	COMMAND_BLOCKS,
	EVENT_IS_SET,
	PROGRAM_LOOKS,
	HOST_REVOKES,
	HOST_GRANTS_UNASKED,
	HOST_AWAITS,
	HOST_INTERRUPTS,
	HOST_CLOSES,
	TIME_PASSES,
	WHATS,
};

static const char *const names[WHATS] = {
	"command ends",
	"callback comes",
	"call returns",
	"helper goes on",
	"host grants",
	"helper looks, ends",
	"callback, ends",
	"call fails",
	"command enters",
	"command enters, bare",
	"command joins",
	"command joins, bare",
	"blocked",
	"event is set",
	"program looks",
	"host revokes",
	"host grants, unasked",
	"host awaits",
	"host interrupts",
	"host closes",
	"time passes",
};

static void answer(struct model *m, int err)
{
	switch (lane_answered(&m->lane, err, m->awaited || !m->granted, NOW)) {
	case LANE_GRANTED:
		admit(m, first(m, READY));
		break;
	case LANE_GIVE_BACK:
	case LANE_AGAIN:
	case LANE_CLOSED:
		break;
	}
	m->helper = LOOKS;
}

static void call_returns(struct model *m, int i, bool failed)
{
	bool marker = m->tells[i] == WANTED;

	m->entering[i] = false;
	if (failed && m->batch[i] == READY) {
		m->batch[i] = NONE;
		m->lane.ready--;
	} else if (failed && admitted(m, i)) {
		end(m, i);
		m->tells[i] = EVENT;
		marker = false;
	}
	if (lane_due(&m->lane, failed, awaited(m))) {
		run(m, -1);
		if (lane_leaves(&m->lane))
			wake(m);
	}
	if (marker)
		put_marker(m, i);
}

static void enters(struct model *m, int i, bool bare)
{
	bool found = false, now;

	m->entering[i] = true;
	m->tells[i] = bare ? BARE : EVENT;
	if (!m->lane.ready && !lane_room(&m->lane, est[i], AHEAD))
		found = reap(m);
	now = lane_at_once(&m->lane, est[i], AHEAD) && try_permit(m);
	if (now)
		admit(m, i);
	report(m, found);
	if (now)
		return;
	m->tells[i] = EVENT;
	m->batch[i] = READY;
	m->lane.ready++;
	run(m, -1);
}

static bool asks(const struct model *m)
{
	return m->helper == ASKS || m->helper == ASKS_AND_DRAINS;
}

/* Whether it can happen to that batch, and then what is of it. */
static bool happens(struct model *m, enum what what, int i)
{
	bool bare = what == COMMAND_ENTERS_BARE || what == COMMAND_JOINS_BARE;

	m->woken = false;
	switch (what) {
	case COMMAND_ENDS:
		if (m->batch[i] != RUNS)
			return false;
		end(m, i);
		return true;
	case CALLBACK_COMES:
	case CALLBACK_MEANWHILE:
		if (m->armed != COMES)
			return false;
		m->armed = 0;
		run(m, what == CALLBACK_COMES ? -1 : i);
		return true;
	case CALL_RETURNS:
	case CALL_FAILS:
		if (!m->entering[i])
			return false;
		call_returns(m, i, what == CALL_FAILS);
		return true;
	case HELPER_GOES_ON:
	case HELPER_LOOKS_MEANWHILE:
		if (m->helper == LOOKS) {
			look(m, what == HELPER_GOES_ON ? -1 : i);
			return true;
		}
		if (what == HELPER_LOOKS_MEANWHILE || m->helper == SLEEPS || asks(m))
			return false;
		if (m->helper == WAKES)
			lane_woken(&m->lane);
		m->helper = LOOKS;
		return true;
	case HOST_GRANTS:
		if (!asks(m) || (!m->granted && m->lane.admitted))
			return false;
		m->granted = true;
		answer(m, 0);
		return true;
	case COMMAND_ENTERS:
	case COMMAND_ENTERS_BARE:
		if (m->batch[i] != NONE || m->entering[i] || (m->lane.closed && !m->lane.admitted))
			return false;
		if (bare && (m->lane.contended || m->lane.ready || m->lane.admitted))
			return false;
		enters(m, i, bare);
		return true;
	case COMMAND_JOINS:
	case COMMAND_JOINS_BARE:
		if (!admitted(m, i) || m->entering[i] || (bare && m->lane.contended))
			return false;
		if (!lane_join(&m->lane, 0, AHEAD, !m->granted))
			return false;
		if (m->armed == (unsigned int)i + 1)
			m->armed = COMES; /* what it is set on ends earlier */
		m->batch[i] = RUNS;
		m->tells[i] = bare ? BARE : EVENT;
		m->entering[i] = true;
		return true;
	case COMMAND_BLOCKS:
		if (m->batch[i] != NONE || m->entering[i])
			return false;
		m->batch[i] = BLOCKED;
		m->tells[i] = EVENT;
		return true;
	case EVENT_IS_SET:
		if (m->batch[i] != BLOCKED)
			return false;
		m->batch[i] = READY;
		m->lane.ready++;
		run(m, -1);
		return true;
	case PROGRAM_LOOKS:
		for (int k = 0; k < batches; k++)
			if (admitted(m, k) && !m->entering[k]) {
				end(m, k);
				m->tells[k] = EVENT;
			}
		if (m->lane.admitted)
			run(m, -1);
		return true;
	case HOST_REVOKES:
		m->granted = false;
		return true;
	case HOST_GRANTS_UNASKED:
		if (m->lane.admitted)
			return false;
		m->granted = true;
		return true;
	case HOST_AWAITS:
		m->awaited = !m->awaited;
		return true;
	case HOST_INTERRUPTS:
	case HOST_CLOSES:
		if (!asks(m))
			return false;
		answer(m, what == HOST_CLOSES ? -EPIPE : -EINTR);
		return true;
	case TIME_PASSES:
		m->lane.contended_at = 0;
		return true;
	case WHATS:
		break;
	}
	return false;
}

/* ---- states as numbers ---- */

static void put(uint64_t *word, unsigned int bits, uint64_t value)
{
	*word = *word << bits | value;
}

static uint64_t get(uint64_t *word, unsigned int bits)
{
	uint64_t value = *word & ((1ull << bits) - 1);

	*word >>= bits;
	return value;
}

/*
 * `vain` only says how long to listen, and the looks between the first quiet one and the last are
 * alike.
 */
static uint64_t packed(const struct model *m)
{
	const struct lane *l = &m->lane;
	uint64_t w = 1;

	put(&w, 8,
	    (uint64_t)(l->launched | l->missed << 1 | l->closed << 2 | l->contended << 3 |
		       (l->contended && l->contended_at) << 4 | l->asleep << 5 | l->begun << 6 |
		       l->progressed << 7));
	put(&w, 2, l->quiet == 0 ? 0 : l->quiet < QUIET_LOOKS ? 1 : 2);
	for (int i = 0; i < batches; i++) {
		put(&w, 3, m->batch[i]);
		put(&w, 2, admitted(m, i) ? m->tells[i] : EVENT);
		put(&w, 1, m->entering[i]);
	}
	put(&w, 3, m->helper);
	put(&w, 2, (uint64_t)(m->granted | m->awaited << 1));
	put(&w, 3, m->armed);
	return w;
}

static struct model unpacked(uint64_t w)
{
	struct model m = { 0 };
	struct lane *l = &m.lane;
	uint64_t bits;

	m.armed = (unsigned int)get(&w, 3);
	bits = get(&w, 2);
	m.granted = bits & 1;
	m.awaited = bits & 2;
	m.helper = (enum place)get(&w, 3);
	for (int i = batches - 1; i >= 0; i--) {
		m.entering[i] = get(&w, 1);
		m.tells[i] = (enum tells)get(&w, 2);
		m.batch[i] = (enum batch)get(&w, 3);
		l->ready += m.batch[i] == READY;
		l->admitted += admitted(&m, i);
		l->outstanding_ns += admitted(&m, i) ? est[i] : 0;
	}
	bits = get(&w, 2);
	l->quiet = bits == 0 ? 0 : bits == 1 ? QUIET_LOOKS - 1 : QUIET_LOOKS;
	bits = get(&w, 8);
	l->launched = bits & 1;
	l->missed = bits & 2;
	l->closed = bits & 4;
	l->contended = bits & 8;
	l->contended_at = bits & 16 ? NOW : 0;
	l->asleep = bits & 32;
	l->begun = bits & 64;
	l->progressed = bits & 128;
	return m;
}

/* Nothing is ready, and nothing under a permit is not known to have ended. */
static bool done(const struct model *m)
{
	return !m->lane.ready && !m->lane.admitted;
}

/* ---- the walk ---- */

static struct {
	uint64_t *state;
	uint32_t *parent;
	uint8_t *how;
	uint32_t n, cap;
	uint32_t *slot; /* NOT_YET: free */
	uint32_t slots;
	struct {
		uint32_t from, to;
	} * edge; /* by what can be depended on */
	size_t edges, edges_cap;
} walk;

static void *grown(void *at, size_t bytes)
{
	void *more = realloc(at, bytes);

	assert_non_null(more);
	return more;
}

static uint32_t slot_of(uint64_t state)
{
	uint32_t s = (uint32_t)(state * 0x9e3779b97f4a7c15ull >> 32) & (walk.slots - 1);

	while (walk.slot[s] != NOT_YET && walk.state[walk.slot[s]] != state)
		s = (s + 1) & (walk.slots - 1);
	return s;
}

static uint32_t id_of(uint64_t state, uint32_t parent, unsigned int how)
{
	uint32_t s;

	if (walk.n * 2 >= walk.slots) {
		walk.slots = walk.slots ? 2 * walk.slots : 1 << 16;
		walk.slot = grown(walk.slot, walk.slots * sizeof(*walk.slot));
		memset(walk.slot, 0xff, walk.slots * sizeof(*walk.slot));
		for (uint32_t i = 0; i < walk.n; i++)
			walk.slot[slot_of(walk.state[i])] = i;
	}
	s = slot_of(state);
	if (walk.slot[s] != NOT_YET)
		return walk.slot[s];
	if (walk.n == walk.cap) {
		walk.cap = walk.cap ? 2 * walk.cap : 1 << 16;
		walk.state = grown(walk.state, walk.cap * sizeof(*walk.state));
		walk.parent = grown(walk.parent, walk.cap * sizeof(*walk.parent));
		walk.how = grown(walk.how, walk.cap);
	}
	walk.state[walk.n] = state;
	walk.parent[walk.n] = parent;
	walk.how[walk.n] = (uint8_t)how;
	walk.slot[s] = walk.n;
	return walk.n++;
}

static void edge(uint32_t from, uint32_t to)
{
	if (walk.edges == walk.edges_cap) {
		walk.edges_cap = walk.edges_cap ? 2 * walk.edges_cap : 1 << 16;
		walk.edge = grown(walk.edge, walk.edges_cap * sizeof(*walk.edge));
	}
	walk.edge[walk.edges].from = from;
	walk.edge[walk.edges++].to = to;
}

static void tell(uint32_t id)
{
	struct model m = unpacked(walk.state[id]);

	if (walk.parent[id] != NOT_YET)
		tell(walk.parent[id]);
	print_message("%-24s helper %d, granted %d, missed %d, batches",
		      walk.parent[id] == NOT_YET ? "at first" : names[walk.how[id]], m.helper,
		      m.granted, m.lane.missed);
	for (int i = 0; i < batches; i++)
		print_message(" %d%s%s", m.batch[i], m.tells[i] != EVENT ? "b" : "",
			      m.entering[i] ? "e" : "");
	print_message(", armed %u\n", m.armed);
}

/* How many states are stuck when that decision is undone; the first of them is told of. */
static uint32_t stuck(enum undone what, int most, bool deaf)
{
	struct model first_of_all = { .helper = LOOKS };
	uint32_t count = 0;
	bool changed = true;
	uint8_t *good;

	undone = what;
	platform_deaf = deaf;
	batches = most;
	walk.n = 0;
	walk.edges = 0;
	if (walk.slot)
		memset(walk.slot, 0xff, walk.slots * sizeof(*walk.slot));
	id_of(packed(&first_of_all), NOT_YET, 0);
	for (uint32_t at = 0; at < walk.n; at++)
		for (unsigned int w = 0; w < WHATS; w++)
			for (int i = 0; i < batches; i++) {
				struct model m = unpacked(walk.state[at]);
				uint32_t to;

				if (!happens(&m, (enum what)w, i))
					continue;
				to = id_of(packed(&m), at, w);
				if (w <= HOST_GRANTS && to != at)
					edge(at, to);
			}
	good = calloc(walk.n, 1);
	assert_non_null(good);
	for (uint32_t i = 0; i < walk.n; i++) {
		struct model m = unpacked(walk.state[i]);

		good[i] = done(&m);
	}
	while (changed) {
		changed = false;
		for (size_t e = walk.edges; e-- > 0;)
			if (good[walk.edge[e].to] && !good[walk.edge[e].from]) {
				good[walk.edge[e].from] = 1;
				changed = true;
			}
	}
	for (uint32_t i = 0; i < walk.n; i++) {
		if (!good[i] && !count++ && what == NOTHING)
			tell(i);
	}
	print_message("%u states, %zu steps to depend on, %u stuck\n", walk.n, walk.edges, count);
	free(good);
	return count;
}

static void test_what_is_ready_comes_to_run_and_what_has_ended_is_noticed(void **unused)
{
	assert_int_equal(stuck(NOTHING, 3, false), 0);
}

static void test_the_same_where_the_platform_refuses_callbacks(void **unused)
{
	assert_int_equal(stuck(NOTHING, 3, true), 0);
}

static void test_no_decision_can_be_left_out(void **unused)
{
	for (enum undone what = NOTHING + 1; what < DECISIONS; what++) {
		print_message("without decision %d: ", what);
		assert_int_not_equal(stuck(what, 2, what == NAP_UNTOLD), 0);
	}
}

static int forget(void **unused)
{
	free(walk.state);
	free(walk.parent);
	free(walk.how);
	free(walk.slot);
	free(walk.edge);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_ready_comes_to_run_and_what_has_ended_is_noticed),
		cmocka_unit_test(test_the_same_where_the_platform_refuses_callbacks),
		cmocka_unit_test(test_no_decision_can_be_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, forget);
}
