// SPDX-License-Identifier: MIT
/*
 * task.c - handles, launches and completions: the client's side of the shared page's protocol
 * (rtxg/page.h). While nothing contends none of it enters the kernel; the clock is read only when
 * the first launch goes out and the last comes back. May not decide anything: who launches is the
 * host's business.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

int rtx_lib_futex_wait(volatile uint32_t *word, uint32_t value, uint64_t until, bool shared)
{
	struct timespec t = { .tv_sec = (time_t)(until / NS_PER_S),
			      .tv_nsec = (long)(until % NS_PER_S) };
	int saved = errno, ret;

	/* The bitset form takes an absolute CLOCK_MONOTONIC time. */
	ret = (int)syscall(SYS_futex, word, FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG),
			   value, until == NEVER ? NULL : &t, NULL, FUTEX_BITSET_MATCH_ANY);
	ret = ret < 0 ? -errno : 0;
	errno = saved;
	return ret == -EAGAIN ? 0 : ret;
}

void rtx_lib_futex_wake(volatile uint32_t *word, bool shared)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), INT_MAX, NULL,
		NULL, 0);
	errno = saved;
}

int rtx_lib_check_handle(struct rtx_gpu *h, unsigned int engine)
{
	if (!h)
		return rtx_lib_failed(-EINVAL, "the handle is NULL; rtx_gpu_open gives one");
	if (h->generation != load_relaxed(rtx_lib_generation))
		return rtx_lib_failed(
			-ECHILD,
			"the handle belongs to the parent process; a forked child opens its own");
	if (engine >= LANES)
		return rtx_lib_failed(
			-EINVAL,
			"engine %u does not exist; there are RTX_COMPUTE, RTX_COPY_IN and "
			"RTX_COPY_OUT",
			engine);
	return 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* A handle that no host manages: its own private page, every permit given. */
static int none_open(struct rtx_gpu *h)
{
	h->page = mmap(NULL, RTXG_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	if (h->page == MAP_FAILED) {
		h->page = NULL;
		return rtx_lib_failed(-errno, "there is no memory for librtxg");
	}
	for (unsigned int i = 0; i < LANES; i++)
		h->page->lanes[i].permit = RTXG_PERMIT_GRANTED;
	return 0;
}

static void none_close(struct rtx_gpu *h)
{
	munmap(h->page, RTXG_PAGE_SIZE);
}

static void none_abandon(struct rtx_gpu *h)
{
	munmap(h->page, RTXG_PAGE_SIZE);
}

static void none_ring(struct rtx_gpu *h)
{
}

static int none_wait(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until)
{
	return rtx_lib_futex_wait(&h->page->lanes[lane].permit, value, until, false);
}

static void none_wake(struct rtx_gpu *h, unsigned int lane)
{
	rtx_lib_futex_wake(&h->page->lanes[lane].permit, false);
}

static bool none_alive(struct rtx_gpu *h)
{
	return true;
}

const struct transport rtx_lib_transport_none = {
	.name = "none",
	.open = none_open,
	.close = none_close,
	.abandon = none_abandon,
	.ring = none_ring,
	.wait = none_wait,
	.wake = none_wake,
	.alive = none_alive,
};

static int copy_name(char *to, const char *from, const char *what)
{
	size_t length;

	if (!from)
		return 0;
	length = strlen(from);
	if (!length || length > RTXG_NAME_MAX)
		return rtx_lib_failed(-EINVAL,
				      "%s name \"%.80s\" has %zu bytes; 1 to %u are accepted", what,
				      from, length, RTXG_NAME_MAX);
	memcpy(to, from, length + 1);
	return 0;
}

static int check_options(const struct rtx_gpu_options *in, struct rtx_gpu_options *out)
{
	static const unsigned int known = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;

	*out = RTX_INIT(struct rtx_gpu_options);
	if (!in)
		return 0;
	if (in->size < offsetof(struct rtx_gpu_options, device) + sizeof(in->device))
		return rtx_lib_failed(
			-EINVAL, "options.size is %zu; set it to sizeof(struct rtx_gpu_options)",
			in->size);
	/*
	 * A newer program's larger struct is welcome as long as it asks for nothing that we do not
	 * know.
	 */
	for (size_t i = sizeof(*out); i < in->size; i++)
		if (((const unsigned char *)in)[i])
			return rtx_lib_failed(
				-E2BIG,
				"options has a member that this librtxg does not know (byte "
				"%zu is not 0)",
				i);
	memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
	out->size = sizeof(*out);
	if (out->priority > 99)
		return rtx_lib_failed(
			-EINVAL,
			"priority %u is out of range; 1 to 99 are accepted, 0 = as configured",
			out->priority);
	if (out->flags & ~known)
		return rtx_lib_failed(-EINVAL, "options.flags has unknown bits (0x%x)",
				      out->flags & ~known);
	return 0;
}

/* What `rtxg run` asks for on behalf of a program that asks for nothing itself. */
static int options_from_environment(struct rtx_gpu_options *out)
{
	uint64_t priority = out->priority;
	const struct {
		const char *name;
		uint64_t *value;
		uint64_t max;
	} variables[] = {
		{ "RTXG_PRIORITY", &priority, 99 },
		{ "RTXG_RUNTIME_NS", &out->runtime_ns, INT64_MAX },
		{ "RTXG_DEADLINE_NS", &out->deadline_ns, INT64_MAX },
		{ "RTXG_PERIOD_NS", &out->period_ns, INT64_MAX },
	};

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *text = secure_getenv(variables[i].name);
		unsigned long long value;
		char *end;

		if (*variables[i].value || !text || !*text)
			continue;
		errno = 0;
		value = strtoull(text, &end, 10);
		if (errno || *end || *text < '0' || *text > '9' || value > variables[i].max)
			return rtx_lib_failed(
				-EINVAL, "%s is \"%s\"; a whole number up to %llu is accepted",
				variables[i].name, text, (unsigned long long)variables[i].max);
		*variables[i].value = value;
	}
	out->priority = (unsigned int)priority;
	return 0;
}

static const char *host_wanted(void)
{
	const char *host = secure_getenv("RTXG_HOST");

	return host && *host ? host : "auto";
}

/* The module if it is loaded, else the daemon; RTXG_HOST=module|daemon insists on one. */
static int open_host(struct rtx_gpu *h)
{
	const char *wanted = host_wanted();
	bool any = !strcmp(wanted, "auto");
	int ret = -ECONNREFUSED;

	if (!any && strcmp(wanted, "module") && strcmp(wanted, "daemon"))
		return rtx_lib_failed(
			-EINVAL,
			"RTXG_HOST is \"%s\"; \"module\", \"daemon\" and \"auto\" are accepted",
			wanted);
	if (rtx_lib_module_hosts()) {
		h->transport = &rtx_lib_transport_module;
		ret = h->transport->open(h);
		if (!any || ret != -ENOTSUP)
			return ret;
	}
	h->transport = &rtx_lib_transport_daemon;
	return h->transport->open(h);
}

int rtx_lib_open(rtx_gpu_t *handle, const struct rtx_gpu_options *options, struct cpu_request *cpu)
{
	pthread_mutexattr_t inherit;
	struct rtx_gpu *h;
	const char *vgpu;
	int ret;

	rtx_lib_forget_error();
	if (!handle)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the handle: the pointer is NULL");
	*handle = NULL;
	ret = rtx_lib_process_init();
	if (ret)
		return ret;
	h = calloc(1, sizeof(*h));
	if (!h)
		return rtx_lib_failed(-ENOMEM, "there is no memory for a handle");
	h->socket = h->doorbell = h->page_fd = -1;
	ret = check_options(options, &h->options);
	if (!ret)
		ret = options_from_environment(&h->options);
	if (ret)
		goto fail;
	vgpu = h->options.vgpu ? h->options.vgpu : secure_getenv("RTXG_VGPU");
	if (vgpu && !*vgpu)
		vgpu = NULL;
	ret = copy_name(h->device, h->options.device, "device");
	if (!ret)
		ret = copy_name(h->vgpu, vgpu, "vGPU");
	if (ret)
		goto fail;
	h->options.device = h->options.vgpu = NULL; /* the copies count from here on */
	pthread_mutexattr_init(&inherit);
	pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&h->control, &inherit);
	for (unsigned int i = 0; i < LANES; i++)
		pthread_mutex_init(&h->lanes[i].lock, &inherit);
	pthread_mutexattr_destroy(&inherit);

	h->cpu = cpu;
	ret = open_host(h);
	h->cpu = NULL;
	h->managed = !ret;
	if (ret == -ECONNREFUSED && (h->options.flags & RTX_OPEN_UNMANAGED)) {
		h->transport = &rtx_lib_transport_none;
		ret = h->transport->open(h);
	}
	if (ret)
		goto fail;
	/* A child shall not even be able to touch the page. */
	madvise(h->page, RTXG_PAGE_SIZE, MADV_DONTFORK);
	h->page_flags = h->page->flags;
	h->checked_ns = rtxg_now_ns();
	rtx_lib_handle_register(h);
	*handle = h;
	return 0;
fail:
	free(h);
	return ret;
}

int rtx_gpu_open(rtx_gpu_t *handle, const struct rtx_gpu_options *options)
{
	return rtx_lib_open(handle, options, NULL);
}

int rtx_gpu_close(rtx_gpu_t h)
{
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_check_handle(h, 0);
	if (ret == -ECHILD) {
		free(h);
		return ret;
	}
	if (ret)
		return ret;
	rtx_lib_handle_unregister(h);
	/* Threads that still wait in it are sent away first, with -ECANCELED. */
	store(&h->closing, true);
	while (load(&h->users)) {
		for (unsigned int i = 0; i < LANES; i++)
			h->transport->wake(h, i);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	h->transport->close(h);
	for (unsigned int i = 0; i < LANES; i++)
		pthread_mutex_destroy(&h->lanes[i].lock);
	pthread_mutex_destroy(&h->control);
	free(h);
	return 0;
}

/* --- launching -------------------------------------------------------------------------------- */

/* The client's half of "launch" in page.h. Called with the lane locked and room for a record. */
static bool try_launch(struct rtx_gpu *h, struct task_lane *lane, struct rtxg_lane *p,
		       uint64_t *now, bool waited)
{
	uint32_t permit = load_relaxed(&p->permit);
	uint32_t before;

	if (!(permit & RTXG_PERMIT_GRANTED))
		return false;
	before = p->in_flight;
	if (!before) {
		*now = rtxg_now_ns();
		store_relaxed(&p->busy_since, *now);
	}
	store(&p->in_flight, before + 1);
	permit = load(&p->permit);
	while (permit & RTXG_PERMIT_GRANTED) {
		if (permit & RTXG_PERMIT_ONESHOT &&
		    !__atomic_compare_exchange_n(&p->permit, &permit, permit & ~RTXG_PERMIT_GRANTED,
						 false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		/*
		 * Before the launch counts, so that a host which sees it counted does not take its
		 * want for another's.
		 */
		if (waited)
			__atomic_fetch_sub(&p->want, 1, __ATOMIC_SEQ_CST);
		store_relaxed(&p->launches, p->launches + 1);
		lane->records[lane->tail++ % LAUNCHES].state = RECORD_LAUNCHED;
		return true;
	}
	/*
	 * Called back in between; whoever fails rings afterwards, so the host learns that nothing
	 * is in flight.
	 */
	if (!before)
		store_relaxed(&p->busy_since, 0);
	store(&p->in_flight, before);
	return false;
}

static int full(unsigned int engine)
{
	return rtx_lib_failed(
		-EAGAIN,
		"%u launches are outstanding on engine %u, which is the most; sync one first",
		LAUNCHES, engine);
}

static int wait_and_launch(struct rtx_gpu *h, unsigned int engine, uint64_t until)
{
	struct task_lane *lane = &h->lanes[engine];
	struct rtxg_lane *p = &h->page->lanes[engine];
	uint64_t start = rtxg_now_ns(), now = start;
	int ret;

	__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&p->want, 1, __ATOMIC_SEQ_CST);
	h->transport->ring(h);
	for (;;) {
		uint32_t permit = load(&p->permit);
		bool launched = false, room = true;

		if (load(&h->closing)) {
			ret = rtx_lib_failed(-ECANCELED, "the handle was closed by another thread");
			break;
		}
		if (permit & RTXG_PERMIT_CLOSED) {
			uint32_t why = load(&h->page->closed_errno);

			ret = rtx_lib_failed(
				why && why < 4096 ? -(int)why : -EPIPE,
				"the host has closed this task: %s",
				rtx_lib_error_name(why && why < 4096 ? (int)why : EPIPE));
			break;
		}
		if (permit & RTXG_PERMIT_GRANTED) {
			pthread_mutex_lock(&lane->lock);
			room = lane->tail - lane->head < LAUNCHES;
			if (room)
				launched = try_launch(h, lane, p, &now, true);
			pthread_mutex_unlock(&lane->lock);
			if (!room) {
				ret = full(engine);
				break;
			}
			if (launched) {
				ret = 0;
				break;
			}
			/*
			 * Another thread of ours was faster, or it was called back: say again that
			 * we want it.
			 */
			h->transport->ring(h);
			continue;
		}
		now = rtxg_now_ns();
		if (now >= until) {
			ret = rtx_lib_failed(-ETIMEDOUT, "no permit came in time");
			break;
		}
		/* Bounded, because nobody wakes us if the host is killed. */
		ret = h->transport->wait(h, engine, permit,
					 until < now + HOST_CHECK_NS ? until : now + HOST_CHECK_NS);
		if (ret == -EINTR) {
			rtx_lib_failed(ret, "a signal came while waiting for the permit");
			break;
		}
		now = rtxg_now_ns();
		if (ret == -ETIMEDOUT && now - load_relaxed(&h->checked_ns) >= HOST_CHECK_NS)
			rtx_lib_host_check(h, now);
	}
	if (ret) {
		__atomic_fetch_sub(&p->want, 1, __ATOMIC_SEQ_CST);
		h->transport->ring(h);
	}
	now = rtxg_now_ns();
	__atomic_fetch_add(&lane->waits, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&lane->wait_ns, now - start, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&h->users, 1, __ATOMIC_SEQ_CST);
	return ret;
}

int rtx_gpu_launch_until(rtx_gpu_t h, enum rtx_engine engine, uint64_t until)
{
	struct task_lane *lane;
	struct rtxg_lane *p;
	uint64_t now = 0;
	bool room, launched = false;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	lane = &h->lanes[engine];
	p = &h->page->lanes[engine];
	pthread_mutex_lock(&lane->lock);
	room = lane->tail - lane->head < LAUNCHES;
	if (room)
		launched = try_launch(h, lane, p, &now, false);
	pthread_mutex_unlock(&lane->lock);
	if (!room)
		return full(engine);
	if (!launched) {
		if (until)
			return wait_and_launch(h, engine, until);
		/*
		 * Without waiting for others; but the host must be asked, and that takes a moment.
		 */
		ret = wait_and_launch(h, engine, rtxg_now_ns() + HOST_ANSWER_NS);
		return ret == -ETIMEDOUT ? rtx_lib_failed(-EAGAIN, "others use the engine now")
					 : ret;
	}
	if (now && now - load_relaxed(&h->checked_ns) >= HOST_CHECK_NS)
		rtx_lib_host_check(h, now);
	return 0;
}

int rtx_gpu_launch(rtx_gpu_t h, enum rtx_engine engine)
{
	return rtx_gpu_launch_until(h, engine, NEVER);
}

/* --- completing ------------------------------------------------------------------------------- */

/*
 * The client's half of "complete" in page.h. Called with the lane locked; returns whether to ring.
 */
static bool complete_one(struct rtxg_lane *p)
{
	uint32_t left = p->in_flight - 1, permit;

	if (left) {
		store(&p->in_flight, left);
		return false;
	}
	store_relaxed(&p->busy_ns, p->busy_ns + (rtxg_now_ns() - p->busy_since));
	store_relaxed(&p->busy_since, 0);
	store_relaxed(&p->completions, p->completions + 1);
	store(&p->in_flight, 0);
	permit = load(&p->permit);
	return !(permit & RTXG_PERMIT_GRANTED) || permit & RTXG_PERMIT_REPORT;
}

/*
 * Ends the record at that position and counts its launch as complete. Called with the lane locked;
 * returns whether to ring.
 */
static bool finish_record(struct rtx_gpu *h, unsigned int engine, uint32_t at, uint64_t device_ns)
{
	struct task_lane *lane = &h->lanes[engine];
	struct rtxg_lane *p = &h->page->lanes[engine];

	lane->records[at % LAUNCHES].state = RECORD_DONE;
	while (lane->head != lane->tail &&
	       lane->records[lane->head % LAUNCHES].state == RECORD_DONE)
		lane->head++;
	if (device_ns)
		__atomic_fetch_add(&p->device_ns, device_ns, __ATOMIC_RELAXED);
	return complete_one(p);
}

int rtx_gpu_complete(rtx_gpu_t h, enum rtx_engine engine, uint64_t device_ns)
{
	struct task_lane *lane;
	bool ring = false;
	uint32_t at;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	lane = &h->lanes[engine];
	pthread_mutex_lock(&lane->lock);
	for (at = lane->head; at != lane->tail; at++)
		if (lane->records[at % LAUNCHES].state < RECORD_SYNCING)
			break;
	if (at == lane->tail)
		ret = -EPERM;
	else
		ring = finish_record(h, engine, at, device_ns);
	pthread_mutex_unlock(&lane->lock);
	if (ring)
		h->transport->ring(h);
	return ret ? rtx_lib_failed(
			     ret,
			     "nothing is outstanding on engine %u: complete comes after launch, "
			     "once for each",
			     engine)
		   : 0;
}

int rtx_gpu_account(rtx_gpu_t h, enum rtx_engine engine, uint64_t device_ns)
{
	int ret = rtx_lib_check_handle(h, engine);

	if (!ret)
		__atomic_fetch_add(&h->page->lanes[engine].device_ns, device_ns, __ATOMIC_RELAXED);
	return ret;
}

int rtx_gpu_notify(rtx_gpu_t h, enum rtx_engine engine, const struct rtx_gpu_notify *notify)
{
	struct task_lane *lane;
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	uint32_t at;
	bool launched = false;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	ret = rtx_lib_sync_check(notify, &how);
	if (ret)
		return ret;
	lane = &h->lanes[engine];
	pthread_mutex_lock(&lane->lock);
	for (at = lane->head; at != lane->tail; at++) {
		struct record *record = &lane->records[at % LAUNCHES];

		launched |= record->state != RECORD_DONE;
		if (record->state == RECORD_LAUNCHED)
			break;
	}
	if (at != lane->tail) {
		lane->records[at % LAUNCHES].how = how;
		lane->records[at % LAUNCHES].state = RECORD_NOTIFIED;
	}
	ret = at != lane->tail ? 0 : launched ? -EALREADY : -EPERM;
	pthread_mutex_unlock(&lane->lock);
	if (ret == -EALREADY)
		return rtx_lib_failed(ret, "every launch on engine %u has its notify already",
				      engine);
	if (ret)
		return rtx_lib_failed(
			ret, "nothing is outstanding on engine %u: notify comes after launch",
			engine);
	return 0;
}

int rtx_gpu_sync(rtx_gpu_t h, enum rtx_engine engine)
{
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	enum record_state before = RECORD_LAUNCHED;
	struct task_lane *lane;
	bool ring = false;
	uint32_t at;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	lane = &h->lanes[engine];
	pthread_mutex_lock(&lane->lock);
	for (at = lane->head; at != lane->tail; at++)
		if (lane->records[at % LAUNCHES].state < RECORD_SYNCING)
			break;
	if (at == lane->tail) {
		pthread_mutex_unlock(&lane->lock);
		return rtx_lib_failed(
			-EPERM,
			"nothing is outstanding on engine %u: sync comes after launch, once "
			"for each",
			engine);
	}
	before = lane->records[at % LAUNCHES].state;
	if (before == RECORD_NOTIFIED)
		how = lane->records[at % LAUNCHES].how;
	if (how.how == RTX_SYNC_CALLER) {
		ring = finish_record(h, engine, at, 0);
		pthread_mutex_unlock(&lane->lock);
	} else {
		/* Others may launch, notify and sync meanwhile: this launch is ours. */
		lane->records[at % LAUNCHES].state = RECORD_SYNCING;
		pthread_mutex_unlock(&lane->lock);
		__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
		ret = rtx_lib_sync_wait(h, &how);
		pthread_mutex_lock(&lane->lock);
		/*
		 * Interrupted: the work goes on, so the launch stays outstanding. Any other failure
		 * of the caller's function (a GPU that has gone) ends it: an engine must not stay
		 * blocked by work that cannot be waited for.
		 */
		if (ret == -EINTR || ret == -ECANCELED)
			lane->records[at % LAUNCHES].state = before;
		else
			ring = finish_record(h, engine, at, 0);
		pthread_mutex_unlock(&lane->lock);
		if (ring)
			h->transport->ring(h);
		__atomic_fetch_sub(&h->users, 1, __ATOMIC_SEQ_CST);
		return ret;
	}
	if (ring)
		h->transport->ring(h);
	return ret;
}

/* --- looking ---------------------------------------------------------------------------------- */

bool rtx_gpu_revoked(rtx_gpu_t h, enum rtx_engine engine)
{
	if (rtx_lib_check_handle(h, engine))
		return true;
	return !(load(&h->page->lanes[engine].permit) & RTXG_PERMIT_GRANTED);
}

int rtx_gpu_wait_revoked(rtx_gpu_t h, enum rtx_engine engine, uint64_t until)
{
	struct rtxg_lane *p;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	p = &h->page->lanes[engine];
	__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&p->watch, 1, __ATOMIC_SEQ_CST);
	for (;;) {
		uint32_t permit = load(&p->permit);
		uint64_t now;

		if (!(permit & RTXG_PERMIT_GRANTED)) {
			ret = 0;
			break;
		}
		now = rtxg_now_ns();
		if (load(&h->closing)) {
			ret = rtx_lib_failed(-ECANCELED, "the handle was closed by another thread");
			break;
		}
		if (now >= until) {
			ret = rtx_lib_failed(-ETIMEDOUT, "the permit was not called back in time");
			break;
		}
		ret = h->transport->wait(h, engine, permit, until);
		if (ret == -EINTR) {
			rtx_lib_failed(ret, "a signal came while waiting");
			break;
		}
	}
	__atomic_fetch_sub(&p->watch, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&h->users, 1, __ATOMIC_SEQ_CST);
	return ret;
}

int rtx_gpu_stats(rtx_gpu_t h, enum rtx_engine engine, struct rtx_gpu_stats *stats)
{
	struct rtx_gpu_stats full_stats = { 0 };
	struct rtxg_lane *p;
	size_t size;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	if (!stats || stats->size < sizeof(size_t) + sizeof(uint64_t))
		return rtx_lib_failed(
			-EINVAL, "stats.size is not set; set it to sizeof(struct rtx_gpu_stats)");
	size = stats->size;
	p = &h->page->lanes[engine];
	pthread_mutex_lock(&h->lanes[engine].lock);
	full_stats.size = size;
	full_stats.launches = p->launches;
	full_stats.waits = load_relaxed(&h->lanes[engine].waits);
	full_stats.wait_ns = load_relaxed(&h->lanes[engine].wait_ns);
	full_stats.busy_ns = p->busy_ns + (p->in_flight ? rtxg_now_ns() - p->busy_since : 0);
	full_stats.device_ns = load_relaxed(&p->device_ns);
	pthread_mutex_unlock(&h->lanes[engine].lock);
	if (size > sizeof(full_stats))
		memset((char *)stats + sizeof(full_stats), 0, size - sizeof(full_stats));
	memcpy(stats, &full_stats, size < sizeof(full_stats) ? size : sizeof(full_stats));
	return 0;
}

bool rtx_gpu_managed(rtx_gpu_t h)
{
	return !rtx_lib_check_handle(h, 0) && load_relaxed(&h->managed);
}

/* --- control of one's own task ---------------------------------------------------------------- */

int rtx_lib_set(rtx_gpu_t h, const struct rtx_gpu_options *options, struct cpu_request *cpu)
{
	struct rtx_gpu_options asked;
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_check_handle(h, 0);
	if (!ret)
		ret = check_options(options, &asked);
	if (ret)
		return ret;
	if (!load_relaxed(&h->managed) || !h->transport->set)
		return rtx_lib_failed(-ENOTCONN, "no host manages this task now");
	pthread_mutex_lock(&h->control);
	h->cpu = cpu;
	if (cpu) {
		/* what stays as it is counts for the CPU's side, too */
		struct rtx_gpu_options both = h->options;

		both.runtime_ns = asked.runtime_ns ? asked.runtime_ns : both.runtime_ns;
		both.deadline_ns = asked.deadline_ns ? asked.deadline_ns : both.deadline_ns;
		both.period_ns = asked.period_ns ? asked.period_ns : both.period_ns;
		rtx_lib_cpu_complete(cpu->task, &both);
	}
	if (cpu && h->transport != &rtx_lib_transport_module) {
		/* two hosts: first the one whose change we can take back */
		ret = rtx_lib_cpu_change(cpu->task);
		cpu->refused = ret;
		if (!ret) {
			ret = h->transport->set(h, &asked);
			if (ret)
				rtx_lib_cpu_change(cpu->before);
		}
	} else {
		ret = h->transport->set(h, &asked);
	}
	h->cpu = NULL;
	if (!ret) {
		/* Remembered, for a host that takes over after this one. */
		if (asked.priority)
			h->options.priority = asked.priority;
		if (asked.runtime_ns)
			h->options.runtime_ns = asked.runtime_ns;
		if (asked.deadline_ns)
			h->options.deadline_ns = asked.deadline_ns;
		if (asked.period_ns)
			h->options.period_ns = asked.period_ns;
	}
	pthread_mutex_unlock(&h->control);
	return ret;
}

int rtx_gpu_set(rtx_gpu_t h, const struct rtx_gpu_options *options)
{
	return rtx_lib_set(h, options, NULL);
}

int rtx_gpu_pool_acquire(rtx_gpu_t h, const char *pool, char *device, size_t size)
{
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_check_handle(h, 0);
	if (ret)
		return ret;
	if (!pool || !device || !size)
		return rtx_lib_failed(-EINVAL,
				      "a pool's name and room for a device's name are needed");
	if (!load_relaxed(&h->managed) || !h->transport->pool_acquire)
		return rtx_lib_failed(-ENOTCONN, "no host manages this task now");
	pthread_mutex_lock(&h->control);
	ret = h->transport->pool_acquire(h, pool, device, size);
	pthread_mutex_unlock(&h->control);
	return ret;
}

int rtx_gpu_pool_release(rtx_gpu_t h, const char *pool)
{
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_check_handle(h, 0);
	if (ret)
		return ret;
	if (!pool)
		return rtx_lib_failed(-EINVAL, "a pool's name is needed");
	if (!load_relaxed(&h->managed) || !h->transport->pool_release)
		return rtx_lib_failed(-ENOTCONN, "no host manages this task now");
	pthread_mutex_lock(&h->control);
	ret = h->transport->pool_release(h, pool);
	pthread_mutex_unlock(&h->control);
	return ret;
}
