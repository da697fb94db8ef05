// SPDX-License-Identifier: MIT
/*
 * nvrm.c - GPUs and timelines that are open, and which values are armed (rtxg_nvrm.h). May not:
 * wait, speak to the driver (nvrm_gpu.c does), or touch a page of a host.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_pages.h"
#include "errors.h"
#include "mutex.h"
#include "nvrm.h"
#include "nvrm_clients.h"
#include "nvrm_gpu.h"
#include "nvrm_timeline.h"
#include "own_file.h"
#include "process.h"
#include "rtxg_nvrm.h"
#include "sys.h"

#define WORD_BYTES 64u /* each word of ours has a cache line */

/* --- a process, and its children -------------------------------------------------------------- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rtx_nvrm *all;
/* Closed ones, for those that are opened next: a handle that is used too late finds it closed. */
static struct rtx_nvrm *spare;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t opened; /* timelines, so far */
static int atfork_error;

/*
 * The driver frees a client with the last copy of its descriptor: a child that kept one would keep
 * the channels of a dead parent.
 */
static void let_go_of_parent(void)
{
	/* Of a thread that is cancelled, fork() makes a child that is to be cancelled, too. */
	not_cancelled();
	const struct nv_sys *sys = rtx_lib_nvrm_sys;

	for (struct rtx_nvrm *n = all; n; n = n->later) {
		bool used = false;

		for (unsigned int i = 0; i < RTX_TIMELINES_MAX; i++) {
			struct rtx_timeline *t = &n->timelines[i];

			if (!t->nvrm)
				continue;
			if (own_file_is_ours(t->channel.event))
				sys->close(sys->ctx, t->channel.event);
			/*
			 * A handler of signals may have forked: the child is in that call, too.
			 */
			used = used || load(&t->inside);
			t->closing = true;
		}
		rtx_lib_nvrm_memory_abandon(&n->memory, used);
	}
	all = NULL;
	pthread_mutex_init(&all_lock, NULL);
	rtx_lib_nvrm_fork_child();
	rtx_lib_cuda_fork_child();
}

/* A child that _Fork() or clone() made has been told nothing, and has its parent's lists. */
static void forget_parent(void)
{
	rtx_lib_process_forget(PROCESS_TIMELINES, let_go_of_parent);
}

/* No GPU, event or memory is opened or closed meanwhile. */
static void fork_prepare(void)
{
	/* The locks of a child that was told nothing may be held by threads of its parent. */
	forget_parent();
	rtx_lib_nvrm_fork_prepare();
	pthread_mutex_lock(&all_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&all_lock);
	rtx_lib_nvrm_fork_parent();
}

static void fork_child(void)
{
	rtx_lib_process_forget_now(PROCESS_TIMELINES, let_go_of_parent);
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
	if (nvrm->generation != rtx_lib_process_generation())
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
	if (n && n->generation != rtx_lib_process_generation())
		return check(n);
	if (!n || load(&t->closing))
		return rtx_lib_failed(-EBADF, "timeline %u is closed", t->number);
	return check(n);
}

int rtx_lib_timeline_enter(rtx_timeline_t t)
{
	int ret;

	/* First, so that a close that is not seen here waits for us. */
	if (t)
		__atomic_fetch_add(&t->inside, 1, __ATOMIC_SEQ_CST);
	ret = rtx_lib_timeline_check(t);
	if (ret && t)
		rtx_lib_timeline_leave(t);
	return ret;
}

void rtx_lib_timeline_leave(rtx_timeline_t t)
{
	__atomic_fetch_sub(&t->inside, 1, __ATOMIC_SEQ_CST);
}

/* --- opening and closing ---------------------------------------------------------------------- */

/* All but what outlives it. */
static void clear_timeline(struct rtx_timeline *t)
{
	memset((char *)t + offsetof(struct rtx_timeline, word), 0,
	       sizeof(*t) - offsetof(struct rtx_timeline, word));
	t->channel.event = -1;
	store(&t->closing, false);
}

static void init_locks(struct rtx_nvrm *n)
{
	rtx_lib_mutex_init(&n->lock);
	for (unsigned int i = 0; i < RTX_TIMELINES_MAX; i++) {
		n->timelines[i].number = i;
		n->timelines[i].inside = 0;
		n->timelines[i].nvrm = NULL;
		rtx_lib_mutex_init(&n->timelines[i].lock);
	}
}

/* Of a handle that is still closed. */
static struct rtx_nvrm *take_memory(void)
{
	uint32_t generation = rtx_lib_process_generation();
	struct rtx_nvrm *n;
	bool fresh;

	pthread_mutex_lock(&all_lock);
	n = spare;
	if (n)
		spare = n->later;
	pthread_mutex_unlock(&all_lock);
	fresh = !n;
	if (fresh)
		n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	/* A fork may have come while a thread that the child does not have was inside. */
	if (fresh || n->generation != generation) {
		init_locks(n);
		n->generation = generation;
	}
	store(&n->closed, true);
	n->gpu = NULL;
	memset(&n->memory, 0, sizeof(n->memory));
	memset(&n->first, 0, sizeof(n->first));
	n->first_taken = false;
	n->later = NULL;
	for (unsigned int i = 0; i < RTX_TIMELINES_MAX; i++)
		clear_timeline(&n->timelines[i]);
	return n;
}

static void keep_memory(struct rtx_nvrm *n)
{
	store(&n->closed, true);
	pthread_mutex_lock(&all_lock);
	n->later = spare;
	spare = n;
	pthread_mutex_unlock(&all_lock);
}

static void enlist(struct rtx_nvrm *n)
{
	pthread_mutex_lock(&all_lock);
	n->later = all;
	all = n;
	pthread_mutex_unlock(&all_lock);
}

static void strike(struct rtx_nvrm *n)
{
	pthread_mutex_lock(&all_lock);
	for (struct rtx_nvrm **p = &all; *p; p = &(*p)->later)
		if (*p == n) {
			*p = n->later;
			break;
		}
	pthread_mutex_unlock(&all_lock);
}

int rtx_nvrm_init(rtx_nvrm_t *nvrm, const char *device)
{
	not_cancelled();
	struct rtx_nvrm *n;
	int ret;

	rtx_lib_forget_error();
	if (!nvrm)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the handle: the pointer is NULL");
	*nvrm = NULL;
	/* First, so that a fork finds the process's word. */
	ret = rtx_lib_process_init();
	if (ret)
		return ret;
	pthread_once(&once, watch_forks);
	forget_parent();
	n = atfork_error ? NULL : take_memory();
	if (!n)
		return rtx_lib_failed(-ENOMEM, "there is no memory for a GPU's channels");
	n->first.event = n->memory.words_fd = n->memory.host_event = -1;
	/* A child of a fork that comes now is to find what is open. */
	enlist(n);
	ret = rtx_lib_nvrm_take(device, &n->gpu, &n->memory, &n->first);
	if (ret) {
		strike(n);
		keep_memory(n);
		return ret;
	}
	n->first_taken = !n->first.handle;
	store(&n->closed, false);
	*nvrm = n;
	return 0;
}

static struct rtx_timeline *free_place(struct rtx_nvrm *n)
{
	for (unsigned int i = 0; i < RTX_TIMELINES_MAX; i++)
		if (!n->timelines[i].nvrm)
			return &n->timelines[i];
	return NULL;
}

static int open_timeline(struct rtx_nvrm *n, struct rtx_timeline *t, volatile uint32_t *word)
{
	int ret = 0;

	if (word) {
		t->word = word;
		ret = rtx_lib_nvrm_import(n->gpu, word, &t->imported, &t->word_at);
	} else {
		t->word = (volatile uint32_t *)(n->memory.pages + t->number * WORD_BYTES);
		t->word_at = n->memory.first.at + t->number * WORD_BYTES;
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
	ret = rtx_lib_nvrm_channel(n->gpu, &n->memory, t->number, &t->channel);
	if (ret && t->imported)
		rtx_lib_nvrm_forget(n->gpu, t->imported);
	return ret;
}

int rtx_nvrm_timeline(rtx_nvrm_t nvrm, volatile uint32_t *word, rtx_timeline_t *timeline)
{
	not_cancelled();
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
	ret = check(nvrm); /* it may have been closed meanwhile */
	t = ret ? NULL : free_place(nvrm);
	if (ret) {
		;
	} else if (!t) {
		ret = rtx_lib_failed(
			-ENOSPC, "%u timelines are open on GPU %s, which is the most; close one",
			RTX_TIMELINES_MAX, nvrm->gpu->name);
	} else {
		clear_timeline(t);
		ret = open_timeline(nvrm, t, word);
		if (!ret) {
			t->next = t->armed = *t->word;
			store_relaxed(&t->opened, __atomic_add_fetch(&opened, 1, __ATOMIC_RELAXED));
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
	while (load(&t->inside)) {
		__atomic_fetch_add(&t->turn, 1, __ATOMIC_SEQ_CST);
		rtx_lib_futex_wake(&t->turn, false);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	rtx_lib_nvrm_channel_close(n->gpu, &t->channel);
	if (!rtx_lib_cuda_forget(&t->page) && !t->imported)
		n->memory.words_stay = true;
	if (t->imported)
		rtx_lib_nvrm_forget(n->gpu, t->imported);
	store(&t->nvrm, NULL);
}

/* The handle of a timeline that is open, locked, so that it stays open; NULL: *ret says why. */
static struct rtx_nvrm *lock_handle(rtx_timeline_t t, int *ret)
{
	struct rtx_nvrm *n;

	*ret = rtx_lib_timeline_check(t);
	if (*ret)
		return NULL;
	n = load(&t->nvrm);
	if (n) {
		pthread_mutex_lock(&n->lock);
		if (load(&t->nvrm) == n) {
			*ret = rtx_lib_timeline_check(t);
			if (!*ret)
				return n;
		}
		pthread_mutex_unlock(&n->lock);
	}
	*ret = rtx_lib_failed(-EBADF, "timeline %u is closed", t->number);
	return NULL;
}

int rtx_timeline_close(rtx_timeline_t t)
{
	not_cancelled();
	struct rtx_nvrm *n;
	int ret;

	rtx_lib_forget_error();
	n = lock_handle(t, &ret);
	if (!n)
		return ret;
	close_timeline(n, t);
	pthread_mutex_unlock(&n->lock);
	return 0;
}

int rtx_nvrm_close(rtx_nvrm_t nvrm)
{
	not_cancelled();
	int ret;

	rtx_lib_forget_error();
	ret = check(nvrm);
	if (ret == -ECHILD) {
		/* Its place in the list of the parent's handles is used for another list. */
		forget_parent();
		keep_memory(nvrm);
	}
	if (ret)
		return ret;
	if (__atomic_exchange_n(&nvrm->closed, true, __ATOMIC_SEQ_CST))
		return rtx_lib_failed(-EBADF, "the GPU's handle is closed by another thread");
	pthread_mutex_lock(&nvrm->lock);
	for (unsigned int i = 0; i < RTX_TIMELINES_MAX; i++)
		if (nvrm->timelines[i].nvrm)
			close_timeline(nvrm, &nvrm->timelines[i]);
	if (!nvrm->first_taken)
		rtx_lib_nvrm_channel_close(nvrm->gpu, &nvrm->first);
	pthread_mutex_unlock(&nvrm->lock);
	rtx_lib_nvrm_give(nvrm->gpu, &nvrm->memory);
	strike(nvrm);
	keep_memory(nvrm);
	return 0;
}

/* --- values ----------------------------------------------------------------------------------- */

volatile uint32_t *rtx_timeline_word(rtx_timeline_t t)
{
	rtx_lib_forget_error();
	return rtx_lib_timeline_check(t) ? NULL : t->word;
}

bool rtx_timeline_reached(rtx_timeline_t t, uint32_t value)
{
	bool reached;

	if (rtx_lib_timeline_enter(t))
		return false;
	reached = timeline_reached(t, value);
	rtx_lib_timeline_leave(t);
	return reached;
}

volatile uint32_t *rtx_lib_timeline_word(rtx_timeline_t t)
{
	return t->word;
}

uint64_t rtx_lib_timeline_opened(rtx_timeline_t t)
{
	return load_relaxed(&t->opened);
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
	t->next_at = timeline_now(t);
	pthread_mutex_unlock(&t->lock);
	return next;
}

int rtx_timeline_foresee(rtx_timeline_t t, enum rtx_foresee how)
{
	int ret;

	rtx_lib_forget_error();
	if (how != RTX_FORESEE_OFF && how != RTX_FORESEE_LOOK && how != RTX_FORESEE_SLEEP)
		return rtx_lib_failed(-EINVAL, "there is no way %d to foresee", (int)how);
	ret = rtx_lib_timeline_enter(t);
	if (ret)
		return ret;
	pthread_mutex_lock(&t->lock);
	t->foresees = how != RTX_FORESEE_OFF;
	t->foresee = (struct foresee){ .sleeps = how == RTX_FORESEE_SLEEP };
	t->last_payload = 0;
	pthread_mutex_unlock(&t->lock);
	rtx_lib_timeline_leave(t);
	return 0;
}

int rtx_lib_timeline_share(rtx_timeline_t t, struct timeline_share *share)
{
	not_cancelled();
	int ret;
	struct rtx_nvrm *n = lock_handle(t, &ret);

	if (!n)
		return ret;
	ret = t->imported ? rtx_lib_failed(-EOPNOTSUPP,
					   "timeline %u has a word of the program's own", t->number)
			  : rtx_lib_nvrm_host_event(n->gpu, &n->memory);
	*share = (struct timeline_share){ .memory = n->memory.words_fd,
					  .event = n->memory.host_event,
					  .offset = t->number * WORD_BYTES };
	/* While the lock is held no close has begun, and one that begins now waits for us. */
	if (!ret)
		__atomic_fetch_add(&t->inside, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&n->lock);
	return ret;
}

int rtx_lib_timeline_event(struct rtx_timeline *t)
{
	return load(&t->channel.event) >= 0 ? 0 : rtx_lib_nvrm_event(t->nvrm->gpu, &t->channel);
}

static int put(struct rtx_timeline *t, uint32_t value, uint64_t begun, bool quiet)
{
	int place = rtx_lib_nvrm_submit(t->nvrm->gpu, &t->channel, t->word_at, value,
					t->payloads + 1, !quiet);

	if (place < 0)
		return place;
	t->places[place] =
		(struct armed_place){ .payload = ++t->payloads, .begun = begun, .value = value };
	t->armed = value;
	t->any_armed = true;
	t->quiet = quiet;
	t->counted_armed += !quiet;
	return 0;
}

int rtx_lib_timeline_loud(struct rtx_timeline *t)
{
	uint32_t last = (t->channel.put + NVRM_ENTRIES - 1) % NVRM_ENTRIES;

	if (!t->any_armed || !t->quiet || timeline_reached(t, t->armed))
		return 0;
	return put(t, t->armed, t->places[last].begun, false);
}

/* Has the GPU passed all that was armed? */
static bool passed_all(const struct rtx_timeline *t)
{
	uint32_t last = (t->channel.put + NVRM_ENTRIES - 1) % NVRM_ENTRIES;

	return __atomic_load_n(&t->channel.fences[last].payload, __ATOMIC_ACQUIRE) == t->payloads;
}

int rtx_lib_timeline_arm(struct rtx_timeline *t, uint32_t value, bool quiet)
{
	int ret;

	/* Numbers go round, and may have done so by FENCE, which arms none. */
	if (t->any_armed && passed_all(t) && !timeline_reached(t, value))
		t->any_armed = false;
	if (t->any_armed && value == t->armed)
		return quiet ? 0 : rtx_lib_timeline_loud(t);
	if (t->any_armed && (int32_t)(value - t->armed) < 0)
		return timeline_reached(t, value) ? 0 : -ERANGE;
	/* Of several that are outstanding each raises its interrupt: another may wait for it. */
	ret = rtx_lib_timeline_loud(t);
	if (ret)
		return ret;
	quiet = quiet && (!t->any_armed || timeline_reached(t, t->armed));
	return put(t, value, t->next_at && value == t->next ? t->next_at : timeline_now(t), quiet);
}

void rtx_lib_timeline_learn(struct rtx_timeline *t)
{
	volatile struct nvrm_fence *fence = &t->channel.fences[t->last_place];

	if (!t->last_payload ||
	    __atomic_load_n(&fence->payload, __ATOMIC_ACQUIRE) != t->last_payload)
		return;
	t->last.stamp = fence->stamp;
	rtx_lib_foresee_note(&t->foresee, &t->last);
	t->last_payload = 0;
}

bool rtx_lib_timeline_quiet(struct rtx_timeline *t)
{
	/* The host of the program's tasks sleeps until an interrupt, too. */
	if (!t->foresees || load(&t->users) > 1 || load(&t->nvrm->memory.host_event) >= 0)
		return false;
	rtx_lib_timeline_learn(t);
	return rtx_lib_foresee_can(&t->foresee);
}

/* Values that are armed and not reached: one may have two places. */
static unsigned int outstanding(const struct rtx_timeline *t)
{
	uint32_t word = timeline_word(t);
	unsigned int count = 0;

	for (uint32_t i = 0; i < NVRM_ENTRIES; i++) {
		const struct armed_place *p = &t->places[i],
					 *next = &t->places[(i + 1) % NVRM_ENTRIES];

		count += p->payload && (int32_t)(p->value - word) > 0 &&
			 !(next->payload > p->payload && next->value == p->value);
	}
	return count;
}

static int arm(rtx_timeline_t t, uint32_t value, bool always)
{
	not_cancelled();
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_timeline_enter(t);
	if (ret)
		return ret;
	pthread_mutex_lock(&t->lock);
	ret = rtx_lib_timeline_event(t);
	if (ret)
		goto out;
	ret = rtx_lib_timeline_arm(t, value, !always && rtx_lib_timeline_quiet(t));
	if (ret == -ERANGE)
		rtx_lib_failed(ret,
			       "value %u lies before %u, which is armed already; values go forward",
			       value, t->armed);
	if (ret == -EAGAIN)
		rtx_lib_failed(ret,
			       "%u values are armed and have not been reached, which is the most; "
			       "wait for one",
			       outstanding(t));
out:
	pthread_mutex_unlock(&t->lock);
	rtx_lib_timeline_leave(t);
	return ret;
}

int rtx_timeline_arm(rtx_timeline_t t, uint32_t value)
{
	return arm(t, value, false);
}

int rtx_lib_timeline_ask(rtx_timeline_t t, uint32_t value)
{
	return arm(t, value, true);
}

int rtx_timeline_stamp(rtx_timeline_t t, uint32_t value, uint64_t *gpu_ns)
{
	not_cancelled();
	int ret;

	rtx_lib_forget_error();
	if (!gpu_ns)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the time: the pointer is NULL");
	ret = rtx_lib_timeline_enter(t);
	if (ret)
		return ret;
	pthread_mutex_lock(&t->lock);
	ret = rtx_lib_failed(-ENOENT, "value %u is not armed, or is not kept any more", value);
	for (unsigned int i = 0; i < NVRM_ENTRIES; i++) {
		volatile struct nvrm_fence *fence = &t->channel.fences[i];

		if (!t->places[i].payload || t->places[i].value != value)
			continue;
		if (__atomic_load_n(&fence->payload, __ATOMIC_ACQUIRE) != t->places[i].payload) {
			ret = rtx_lib_failed(-EAGAIN, "value %u has not been reached", value);
			continue;
		}
		*gpu_ns = fence->stamp;
		rtx_lib_forget_error();
		ret = 0;
		break;
	}
	pthread_mutex_unlock(&t->lock);
	rtx_lib_timeline_leave(t);
	return ret;
}

int rtx_timeline_stats(rtx_timeline_t t, struct rtx_timeline_stats *stats)
{
	struct rtx_timeline_stats all_stats = { 0 };
	size_t size;
	int ret;

	rtx_lib_forget_error();
	if (!stats || stats->size < sizeof(size_t) + sizeof(uint64_t))
		return rtx_lib_failed(
			-EINVAL,
			"stats.size is not set; set it to sizeof(struct rtx_timeline_stats)");
	ret = rtx_lib_timeline_enter(t);
	if (ret)
		return ret;
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
	rtx_lib_timeline_leave(t);
	if (size > sizeof(all_stats))
		memset((char *)stats + sizeof(all_stats), 0, size - sizeof(all_stats));
	memcpy(stats, &all_stats, size < sizeof(all_stats) ? size : sizeof(all_stats));
	return 0;
}
