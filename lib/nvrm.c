// SPDX-License-Identifier: MIT
/*
 * nvrm.c - timelines: which values are armed, who waits for them, and how (rtxg_nvrm.h). May not:
 * speak to the driver (nvrm_gpu.c does), or touch a page of a host.
 *
 * Of a word that the GPU writes nothing is believed but its value: whoever waits reads it again after
 * each interrupt and after each LOOK_AGAIN_MS, so that a lost interrupt costs time and nothing else.
 */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_pages.h"
#include "errors.h"
#include "foresee.h"
#include "nvrm.h"
#include "nvrm_gpu.h"
#include "rtxg_nvrm.h"
#include "sys.h"

#define LOOK_AGAIN_MS	10
#define ASK_AFTER_NS	(1000 * NS_PER_MS) /* without progress: does the GPU still live? */
#define DEADLINE_NAP_NS (50 * 1000ull)
#define WORD_BYTES	64u /* each word of ours has a cache line */

struct rtx_timeline {
	struct rtx_nvrm *nvrm; /* NULL: not open */
	unsigned int number;
	volatile uint32_t *word;
	uint64_t word_at;  /* for the GPU */
	uint32_t imported; /* handle of a page that is not ours */
	struct cuda_page page;
	struct nvrm_channel channel;

	pthread_mutex_t lock; /* of what follows, and of the channel's ring */
	uint32_t next;	      /* what rtx_lib_timeline_next() gave last */
	bool any_armed;
	uint32_t armed;			 /* last one */
	uint32_t armed_at[NVRM_ENTRIES]; /* by place: the value; its fence has the payload below */
	uint64_t payload[NVRM_ENTRIES];
	uint64_t begun[NVRM_ENTRIES]; /* when its work was given to the stream, or it was armed */
	uint64_t payloads;
	uint64_t next_at; /* when next was given */

	/* The last wait, whose stamp may come after the word; and what is foreseen of the next one. */
	struct foresee foresee;
	struct foresee_use last;
	uint32_t last_place;
	uint64_t last_payload; /* 0: there is none */
	bool foresees;

	/* One waiter sleeps in the driver, the others on a futex that it rings. */
	uint32_t leader, turn;
	uint32_t users;
	bool closing;
	uint64_t counted_armed, waits, wakes, missed, looks, hits;
};

struct rtx_nvrm {
	pid_t pid;
	bool closed;
	struct nvrm_gpu gpu;
	struct nvrm_channel first; /* until a timeline takes it */
	bool first_taken;
	pthread_mutex_t lock; /* of the list, and of all that is opened and closed */
	struct rtx_timeline timelines[RTX_TIMELINES_MAX];
	struct rtx_nvrm *later;
};

_Static_assert(RTX_TIMELINES_MAX == NVRM_CHANNELS, "a channel each");
_Static_assert(RTX_TIMELINE_ARMED_MAX == NVRM_ENTRIES - 1, "a place each");

/* --- a process, and its children -------------------------------------------------------------- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rtx_nvrm *all;
/* Closed ones, for those that are opened next: a handle that is used too late finds it closed. */
static struct rtx_nvrm *spare;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int atfork_error;

static void fork_prepare(void)
{
	pthread_mutex_lock(&all_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&all_lock);
}

/*
 * The driver frees a client with the last copy of its descriptor: a child that kept one would keep
 * the channels of a dead parent.
 */
static void fork_child(void)
{
	const struct nv_sys *sys = rtx_lib_nvrm_sys;

	for (struct rtx_nvrm *n = all; n; n = n->later) {
		for (unsigned int i = 0; i < RTX_TIMELINES_MAX; i++)
			if (n->timelines[i].nvrm && n->timelines[i].channel.event >= 0)
				sys->close(sys->ctx, n->timelines[i].channel.event);
		rtx_lib_nvrm_abandon(&n->gpu);
	}
	all = NULL;
	pthread_mutex_init(&all_lock, NULL);
	rtx_lib_cuda_fork_child();
}

static void watch_forks(void)
{
	atfork_error = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static int check(const struct rtx_nvrm *nvrm)
{
	if (!nvrm)
		return rtx_lib_failed(-EINVAL, "the handle is NULL; rtx_nvrm_init gives one");
	if (load(&nvrm->closed))
		return rtx_lib_failed(-EBADF,
				      "the GPU's handle is closed; rtx_nvrm_init gives one");
	if (nvrm->pid != getpid())
		return rtx_lib_failed(-ECHILD, "the GPU was opened by the parent process; a forked "
					       "child calls rtx_nvrm_init itself");
	return 0;
}

int rtx_lib_timeline_check(rtx_timeline_t t)
{
	const struct rtx_nvrm *n;

	if (!t)
		return rtx_lib_failed(-EINVAL, "the timeline is NULL; rtx_nvrm_timeline gives one");
	n = load(&t->nvrm);
	if (!n || load(&t->closing))
		return rtx_lib_failed(-EBADF, "timeline %u is closed", t->number);
	return check(n);
}

static uint64_t now_ns(const struct rtx_timeline *t)
{
	const struct nv_sys *sys = t->nvrm->gpu.sys;

	return sys->now_ns(sys->ctx);
}

/* --- opening and closing ---------------------------------------------------------------------- */

static struct rtx_nvrm *take_memory(void)
{
	struct rtx_nvrm *n;

	pthread_mutex_lock(&all_lock);
	n = spare;
	if (n)
		spare = n->later;
	pthread_mutex_unlock(&all_lock);
	if (n)
		memset(n, 0, sizeof(*n));
	return n ? n : calloc(1, sizeof(*n));
}

static void keep_memory(struct rtx_nvrm *n)
{
	store(&n->closed, true);
	pthread_mutex_lock(&all_lock);
	n->later = spare;
	spare = n;
	pthread_mutex_unlock(&all_lock);
}

int rtx_nvrm_init(rtx_nvrm_t *nvrm, const char *device)
{
	struct rtx_nvrm *n;
	int ret;

	rtx_lib_forget_error();
	if (!nvrm)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the handle: the pointer is NULL");
	*nvrm = NULL;
	pthread_once(&once, watch_forks);
	n = atfork_error ? NULL : take_memory();
	if (!n)
		return rtx_lib_failed(-ENOMEM, "there is no memory for a GPU's channels");
	n->first.event = -1;
	ret = rtx_lib_nvrm_open(&n->gpu, device, &n->first);
	if (ret) {
		keep_memory(n);
		return ret;
	}
	n->pid = getpid();
	pthread_mutex_init(&n->lock, NULL);
	pthread_mutex_lock(&all_lock);
	n->later = all;
	all = n;
	pthread_mutex_unlock(&all_lock);
	*nvrm = n;
	return 0;
}

static struct rtx_timeline *free_place(struct rtx_nvrm *n)
{
	for (unsigned int i = 0; i < RTX_TIMELINES_MAX; i++)
		if (!n->timelines[i].nvrm) {
			n->timelines[i].number = i;
			return &n->timelines[i];
		}
	return NULL;
}

static int open_timeline(struct rtx_nvrm *n, struct rtx_timeline *t, volatile uint32_t *word)
{
	int ret = 0;

	if (word) {
		t->word = word;
		ret = rtx_lib_nvrm_import(&n->gpu, word, &t->imported, &t->word_at);
	} else {
		t->word = (volatile uint32_t *)(n->gpu.pages + t->number * WORD_BYTES);
		t->word_at = n->gpu.pages_at + t->number * WORD_BYTES;
		*t->word = 0;
	}
	if (ret)
		return ret;
	/* Channel 0 is there from the beginning. */
	if (!t->number && !n->first_taken) {
		t->channel = n->first;
		n->first_taken = true;
		return 0;
	}
	ret = rtx_lib_nvrm_channel(&n->gpu, t->number, &t->channel);
	if (ret && t->imported)
		rtx_lib_nvrm_forget(&n->gpu, t->imported);
	return ret;
}

int rtx_nvrm_timeline(rtx_nvrm_t nvrm, volatile uint32_t *word, rtx_timeline_t *timeline)
{
	struct rtx_timeline *t;
	int ret;

	rtx_lib_forget_error();
	ret = check(nvrm);
	if (ret)
		return ret;
	if (!timeline)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the timeline: the pointer is NULL");
	*timeline = NULL;
	if ((uintptr_t)word & 3u)
		return rtx_lib_failed(-EINVAL, "%p is not the address of an aligned 32-bit word",
				      (void *)(uintptr_t)word);
	pthread_mutex_lock(&nvrm->lock);
	t = free_place(nvrm);
	if (!t) {
		ret = rtx_lib_failed(
			-ENOSPC, "%u timelines are open on GPU %s, which is the most; close one",
			RTX_TIMELINES_MAX, nvrm->gpu.name);
	} else {
		unsigned int number = t->number;

		memset(t, 0, sizeof(*t));
		t->number = number;
		t->channel.event = -1;
		ret = open_timeline(nvrm, t, word);
		if (!ret) {
			pthread_mutex_init(&t->lock, NULL);
			t->next = t->armed = *t->word;
			store(&t->nvrm, nvrm);
			*timeline = t;
		}
	}
	pthread_mutex_unlock(&nvrm->lock);
	return ret;
}

/* Sends waiters away, then gives back what the timeline has. Called with nvrm->lock held. */
static void close_timeline(struct rtx_nvrm *n, struct rtx_timeline *t)
{
	store(&t->closing, true);
	while (load(&t->users)) {
		__atomic_fetch_add(&t->turn, 1, __ATOMIC_SEQ_CST);
		rtx_lib_futex_wake(&t->turn, false);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	rtx_lib_nvrm_channel_close(&n->gpu, &t->channel);
	if (!rtx_lib_cuda_forget(&t->page) && !t->imported)
		n->gpu.words_stay = true;
	if (t->imported)
		rtx_lib_nvrm_forget(&n->gpu, t->imported);
	pthread_mutex_destroy(&t->lock);
	store(&t->nvrm, NULL);
}

int rtx_timeline_close(rtx_timeline_t t)
{
	struct rtx_nvrm *n;
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_timeline_check(t);
	if (ret)
		return ret;
	n = t->nvrm;
	pthread_mutex_lock(&n->lock);
	close_timeline(n, t);
	pthread_mutex_unlock(&n->lock);
	return 0;
}

int rtx_nvrm_close(rtx_nvrm_t nvrm)
{
	int ret;

	rtx_lib_forget_error();
	ret = check(nvrm);
	if (ret == -ECHILD)
		keep_memory(nvrm);
	if (ret)
		return ret;
	pthread_mutex_lock(&all_lock);
	for (struct rtx_nvrm **p = &all; *p; p = &(*p)->later)
		if (*p == nvrm) {
			*p = nvrm->later;
			break;
		}
	pthread_mutex_unlock(&all_lock);
	pthread_mutex_lock(&nvrm->lock);
	for (unsigned int i = 0; i < RTX_TIMELINES_MAX; i++)
		if (nvrm->timelines[i].nvrm)
			close_timeline(nvrm, &nvrm->timelines[i]);
	if (!nvrm->first_taken)
		rtx_lib_nvrm_channel_close(&nvrm->gpu, &nvrm->first);
	pthread_mutex_unlock(&nvrm->lock);
	rtx_lib_nvrm_close(&nvrm->gpu);
	pthread_mutex_destroy(&nvrm->lock);
	keep_memory(nvrm);
	return 0;
}

/* --- values ----------------------------------------------------------------------------------- */

volatile uint32_t *rtx_timeline_word(rtx_timeline_t t)
{
	rtx_lib_forget_error();
	return rtx_lib_timeline_check(t) ? NULL : t->word;
}

static uint32_t word_of(const struct rtx_timeline *t)
{
	return __atomic_load_n(t->word, __ATOMIC_ACQUIRE);
}

static bool reached(const struct rtx_timeline *t, uint32_t value)
{
	return (int32_t)(word_of(t) - value) >= 0;
}

bool rtx_timeline_reached(rtx_timeline_t t, uint32_t value)
{
	return !rtx_lib_timeline_check(t) && reached(t, value);
}

struct cuda_page *rtx_lib_timeline_page(rtx_timeline_t t)
{
	return &t->page;
}

uint32_t rtx_lib_timeline_next(rtx_timeline_t t)
{
	uint32_t next;

	pthread_mutex_lock(&t->lock);
	next = ++t->next;
	t->next_at = now_ns(t);
	pthread_mutex_unlock(&t->lock);
	return next;
}

int rtx_timeline_foresee(rtx_timeline_t t, bool on)
{
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_timeline_check(t);
	if (ret)
		return ret;
	pthread_mutex_lock(&t->lock);
	t->foresees = on;
	t->foresee = (struct foresee){ 0 };
	t->last_payload = 0;
	pthread_mutex_unlock(&t->lock);
	return 0;
}

int rtx_lib_timeline_share(rtx_timeline_t t, struct timeline_share *share)
{
	struct rtx_nvrm *n;
	int ret = rtx_lib_timeline_check(t);

	if (ret)
		return ret;
	if (t->imported)
		return rtx_lib_failed(-EOPNOTSUPP, "timeline %u has a word of the program's own",
				      t->number);
	n = t->nvrm;
	pthread_mutex_lock(&n->lock);
	ret = rtx_lib_nvrm_host_event(&n->gpu);
	pthread_mutex_unlock(&n->lock);
	*share = (struct timeline_share){ .memory = n->gpu.words_fd,
					  .event = n->gpu.host_event,
					  .offset = t->number * WORD_BYTES };
	return ret;
}

/* Interrupts are asked for from now on. Called with t->lock held. */
static int have_event(struct rtx_timeline *t)
{
	return load(&t->channel.event) >= 0 ? 0 : rtx_lib_nvrm_event(&t->nvrm->gpu, &t->channel);
}

/* -EAGAIN: no place in the ring. -ERANGE: an earlier one than the last. Called with t->lock held. */
static int arm(struct rtx_timeline *t, uint32_t value)
{
	int place;

	if (t->any_armed && value == t->armed)
		return 0;
	if (t->any_armed && (int32_t)(value - t->armed) < 0)
		return reached(t, value) ? 0 : -ERANGE;
	place = rtx_lib_nvrm_submit(&t->nvrm->gpu, &t->channel, t->word_at, value, t->payloads + 1);
	if (place < 0)
		return place;
	t->payload[place] = ++t->payloads;
	t->armed_at[place] = value;
	t->begun[place] = t->next_at && value == t->next ? t->next_at : now_ns(t);
	t->armed = value;
	t->any_armed = true;
	t->counted_armed++;
	return 0;
}

int rtx_timeline_arm(rtx_timeline_t t, uint32_t value)
{
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_timeline_check(t);
	if (ret)
		return ret;
	pthread_mutex_lock(&t->lock);
	ret = have_event(t);
	if (ret) {
		pthread_mutex_unlock(&t->lock);
		return ret;
	}
	ret = arm(t, value);
	if (ret == -ERANGE)
		rtx_lib_failed(ret,
			       "value %u lies before %u, which is armed already; values go forward",
			       value, t->armed);
	pthread_mutex_unlock(&t->lock);
	if (ret == -EAGAIN)
		rtx_lib_failed(ret,
			       "%u values are armed and have not been reached, which is the most; "
			       "wait for one",
			       RTX_TIMELINE_ARMED_MAX);
	return ret;
}

int rtx_timeline_stamp(rtx_timeline_t t, uint32_t value, uint64_t *gpu_ns)
{
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_timeline_check(t);
	if (ret)
		return ret;
	if (!gpu_ns)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the time: the pointer is NULL");
	pthread_mutex_lock(&t->lock);
	ret = rtx_lib_failed(-ENOENT, "value %u is not armed, or is not kept any more", value);
	for (unsigned int i = 0; i < NVRM_ENTRIES; i++) {
		volatile struct nvrm_fence *fence = &t->channel.fences[i];

		if (!t->payload[i] || t->armed_at[i] != value)
			continue;
		if (__atomic_load_n(&fence->payload, __ATOMIC_ACQUIRE) != t->payload[i]) {
			ret = rtx_lib_failed(-EAGAIN, "value %u has not been reached", value);
			continue;
		}
		*gpu_ns = fence->stamp;
		rtx_lib_forget_error();
		ret = 0;
		break;
	}
	pthread_mutex_unlock(&t->lock);
	return ret;
}

int rtx_timeline_stats(rtx_timeline_t t, struct rtx_timeline_stats *stats)
{
	struct rtx_timeline_stats all_stats = { 0 };
	size_t size;
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_timeline_check(t);
	if (ret)
		return ret;
	if (!stats || stats->size < sizeof(size_t) + sizeof(uint64_t))
		return rtx_lib_failed(
			-EINVAL,
			"stats.size is not set; set it to sizeof(struct rtx_timeline_stats)");
	size = stats->size;
	all_stats.size = size;
	pthread_mutex_lock(&t->lock);
	all_stats.armed = t->counted_armed;
	pthread_mutex_unlock(&t->lock);
	all_stats.waits = load_relaxed(&t->waits);
	all_stats.wakes = load_relaxed(&t->wakes);
	all_stats.missed = load_relaxed(&t->missed);
	all_stats.looks = load_relaxed(&t->looks);
	all_stats.hits = load_relaxed(&t->hits);
	if (size > sizeof(all_stats))
		memset((char *)stats + sizeof(all_stats), 0, size - sizeof(all_stats));
	memcpy(stats, &all_stats, size < sizeof(all_stats) ? size : sizeof(all_stats));
	return 0;
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* A wait of this thread: what it was told, and what it has seen. */
struct wait {
	uint32_t value, seen;
	uint64_t until;
	const bool *stop;

	uint32_t place; /* in the channel's ring, if this wait is to teach us something */
	uint64_t payload;
	uint64_t wake; /* when to look for the end that is foreseen; 0: not */
	struct foresee_use use;
};

/*
 * A word that has gone back may have passed the value meanwhile, and then no one would write it
 * again.
 */
static int went_back(const struct rtx_timeline *t, struct wait *w)
{
	uint32_t word = word_of(t), before = w->seen;

	w->seen = word;
	if ((int32_t)(word - before) >= 0)
		return 0;
	return rtx_lib_failed(
		-ERANGE,
		"the word of timeline %u went back from %u to %u; numbers go forward, "
		"and each stream has a timeline of its own",
		t->number, before, word);
}

static int ended(const struct rtx_timeline *t, const bool *stop, uint64_t now, uint64_t until)
{
	if (load(&t->closing) || (stop && load(stop)))
		return rtx_lib_failed(-ECANCELED, "timeline %u was closed by another thread",
				      t->number);
	if (now >= until)
		return rtx_lib_not_yet(-ETIMEDOUT, "the word did not reach its value in time");
	return 0;
}

static int interrupted(void)
{
	return rtx_lib_failed(-EINTR, "a signal came while waiting for the GPU");
}

/* FENCE: the word alone. */
static int wait_looking(struct rtx_timeline *t, struct wait *w)
{
	bool naps = rtx_lib_yield_costs_budget();
	uint64_t asked = now_ns(t);

	while (!reached(t, w->value)) {
		uint64_t now;
		int ret;

		/* Looking costs less than a clock: some looks to each. */
		for (int i = 0; i < 64 && !reached(t, w->value); i++)
			if (!naps)
				rtx_lib_relax();
		if (reached(t, w->value))
			break;
		if (naps && clock_nanosleep(CLOCK_MONOTONIC, 0,
					    &(struct timespec){ .tv_nsec = DEADLINE_NAP_NS },
					    NULL) == EINTR)
			return interrupted();
		now = now_ns(t);
		ret = ended(t, w->stop, now, w->until);
		if (!ret)
			ret = went_back(t, w);
		if (!ret && now - asked > ASK_AFTER_NS) {
			asked = now;
			ret = rtx_lib_nvrm_alive(&t->nvrm->gpu);
		}
		if (ret)
			return ret;
		if (!naps)
			sched_yield();
	}
	return 0;
}

/*
 * One sleep until an interrupt, another's wake-up, or the time to look again. exact: until a time
 * that counts.
 */
static int sleep_once(struct rtx_timeline *t, uint64_t now, uint64_t until, bool exact, bool *woken)
{
	uint32_t turn = load(&t->turn);
	int ret;

	if (__atomic_exchange_n(&t->leader, 1, __ATOMIC_SEQ_CST)) {
		uint64_t again = now + LOOK_AGAIN_MS * NS_PER_MS;

		ret = rtx_lib_futex_wait(&t->turn, turn, until < again ? until : again, false);
		*woken = !ret;
		return ret == -EINTR ? ret : 0;
	}
	ret = 1;
	if (!load(&t->closing)) {
		const struct nv_sys *sys = t->nvrm->gpu.sys;
		uint64_t again = LOOK_AGAIN_MS * NS_PER_MS;

		ret = sys->poll(sys->ctx, t->channel.event,
				until - now < again ? until - now : again, exact);
	}
	store(&t->leader, 0);
	__atomic_fetch_add(&t->turn, 1, __ATOMIC_SEQ_CST);
	if (load(&t->users) > 1)
		rtx_lib_futex_wake(&t->turn, false);
	if (ret > 0)
		__atomic_fetch_add(&t->wakes, 1, __ATOMIC_RELAXED);
	*woken = ret > 0;
	return ret < 0 ? ret : 0;
}

/*
 * Gives the last wait to what is foreseen, now that its stamp is there, and asks when to look for
 * this one. Called with t->lock held.
 */
static void foresee(struct rtx_timeline *t, struct wait *w, uint64_t now)
{
	uint32_t place = (t->channel.put + NVRM_ENTRIES - 1) % NVRM_ENTRIES;
	volatile struct nvrm_fence *fence = &t->channel.fences[t->last_place];

	if (t->last_payload &&
	    __atomic_load_n(&fence->payload, __ATOMIC_ACQUIRE) == t->last_payload) {
		t->last.stamp = fence->stamp;
		rtx_lib_foresee_note(&t->foresee, &t->last);
	}
	t->last_payload = 0;
	/* Of several, one sleeps in the driver and wakes the others: none of them looks. */
	if (load(&t->users) > 1 || !t->any_armed || t->armed != w->value)
		return;
	w->use.begun = t->begun[place];
	w->place = place;
	w->payload = t->payload[place];
	w->wake = rtx_lib_foresee_wake(&t->foresee, w->use.begun, now);
	w->use.end = w->wake ? FORESEE_LATE : FORESEE_SLEPT;
}

/* Looks at the word, for so long as a wake-up would cost. */
static void look(struct rtx_timeline *t, struct wait *w, uint64_t from)
{
	uint64_t end = from + FORESEE_LOOK_NS, now = from;

	w->wake = 0;
	__atomic_fetch_add(&t->looks, 1, __ATOMIC_RELAXED);
	while (!reached(t, w->value) && now < end && now < w->until) {
		rtx_lib_relax();
		now = now_ns(t);
	}
	w->use.looked = now - from;
	w->use.end = reached(t, w->value) ? FORESEE_HIT : FORESEE_VAIN;
	if (w->use.end == FORESEE_HIT)
		__atomic_fetch_add(&t->hits, 1, __ATOMIC_RELAXED);
}

static void remember(struct rtx_timeline *t, struct wait *w)
{
	if (!w->payload)
		return;
	w->use.seen = now_ns(t);
	pthread_mutex_lock(&t->lock);
	t->last = w->use;
	t->last_place = w->place;
	t->last_payload = w->payload;
	pthread_mutex_unlock(&t->lock);
}

/* NOTIFY: sleeps. */
static int wait_asleep(struct rtx_timeline *t, struct wait *w)
{
	uint64_t asked = now_ns(t);
	bool woken = true, first = true;

	while (!reached(t, w->value)) {
		uint64_t now = now_ns(t);
		int ret = ended(t, w->stop, now, w->until);

		if (!ret)
			ret = went_back(t, w);
		if (!ret) {
			/*
			 * -EAGAIN: those that are armed wake us, too, and then there is a place.
			 * -ERANGE: a later value is armed, so look.
			 */
			pthread_mutex_lock(&t->lock);
			ret = have_event(t);
			if (!ret)
				arm(t, w->value);
			if (!ret && first && t->foresees)
				foresee(t, w, now);
			first = false;
			pthread_mutex_unlock(&t->lock);
			if (ret)
				return ret;
			if (w->wake && now >= w->wake) {
				look(t, w, now);
				woken = true;
				continue;
			}
			ret = sleep_once(t, now, w->wake && w->wake < w->until ? w->wake : w->until,
					 w->wake, &woken);
			if (ret == -EINTR)
				return interrupted();
			if (ret)
				return rtx_lib_failed(ret,
						      "waiting for GPU %s's interrupt failed: %s",
						      t->nvrm->gpu.name, rtx_lib_error_name(-ret));
			if (!woken && now - asked > ASK_AFTER_NS) {
				asked = now;
				ret = rtx_lib_nvrm_alive(&t->nvrm->gpu);
			}
		}
		if (ret)
			return ret;
	}
	remember(t, w);
	if (!woken && w->use.end != FORESEE_LATE)
		__atomic_fetch_add(&t->missed, 1, __ATOMIC_RELAXED);
	return 0;
}

int rtx_lib_timeline_wait(rtx_timeline_t t, uint32_t value, enum rtx_sync how, uint64_t until,
			  const bool *stop)
{
	struct wait w = { .value = value, .until = until, .stop = stop };
	int ret = rtx_lib_timeline_check(t);

	if (ret)
		return ret;
	w.seen = word_of(t);
	if ((int32_t)(w.seen - value) >= 0)
		return 0;
	if (how != RTX_SYNC_FENCE && how != RTX_SYNC_NOTIFY)
		return rtx_lib_failed(-EINVAL,
				      "a timeline is waited for by RTX_SYNC_FENCE or "
				      "RTX_SYNC_NOTIFY, not %d",
				      (int)how);
	__atomic_fetch_add(&t->users, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&t->waits, 1, __ATOMIC_RELAXED);
	ret = how == RTX_SYNC_FENCE ? wait_looking(t, &w) : wait_asleep(t, &w);
	__atomic_fetch_sub(&t->users, 1, __ATOMIC_SEQ_CST);
	return ret;
}

int rtx_timeline_wait(rtx_timeline_t t, uint32_t value, enum rtx_sync how, uint64_t until)
{
	rtx_lib_forget_error();
	return rtx_lib_timeline_wait(t, value, how, until, NULL);
}
