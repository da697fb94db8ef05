// SPDX-License-Identifier: MIT
/*
 * lever.c - the NVIDIA lever's host side: it turns what discovery and the context-switch log say
 * into events of the slice policy, and the policy's actions into calls of the driver. It holds no
 * policy: nothing here decides who runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include "../../bpf/discovery.h"
#include "act.h"
#include "adopt.h"
#include "fecs.h"
#include "guardian.h"
#include "internal.h"
#include "lever_nvidia.h"
#include "probe.h"

/* what is used unless asked otherwise */
#define NV_CAN	       (RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND)
#define NV_CAN_ALL     (NV_CAN | RTXG_SLICE_CAN_LEAVE)
#define NEAR_NS	       4000000ull
#define ACTIONS	       64
#define LOG_RECORDS    16384
#define WATCH_NS       250000000ull
#define CALIBRATE_NS   10000000000ull
#define ADOPT_AGAIN_NS 1000000000ull

void lever_log(struct lever_nvidia *l, enum lever_nvidia_log level, const char *format, ...)
{
	char line[400];
	va_list args;

	if (!l->ops.log)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	l->ops.log(l->ops.ctx, level, line);
}

static uint64_t now_of(const struct lever_nvidia *l)
{
	return l->sys->now_ns(l->sys->ctx);
}

static void beat(struct lever_nvidia *l)
{
	if (l->journal.page)
		__atomic_store_n(&l->journal.page->heartbeat_ns, now_of(l), __ATOMIC_RELEASE);
}

/* Contexts */

static struct slot *slot_of(struct gpu *g, const struct nv_process *p)
{
	for (uint32_t i = 0; i < g->high; i++)
		if (g->slot[i].process == p)
			return &g->slot[i];
	return NULL;
}

static void cid_forget(struct gpu *g, uint32_t slot)
{
	for (uint32_t i = 0; i < CID_TABLE; i++)
		if (g->cid[i].cid && g->cid[i].slot == slot)
			g->cid[i].cid = 0;
}

/* The context that a log record is about: by channel number if it is known, else by process. */
static struct slot *slot_by_record(struct lever_nvidia *l, struct gpu *g, uint32_t cid,
				   uint32_t pid)
{
	uint32_t h = cid * 2654435761u >> 20 & (CID_TABLE - 1);
	struct nv_process *p;
	struct slot *s;

	if (cid && g->cid[h].cid == cid && g->slot[g->cid[h].slot].process)
		return &g->slot[g->cid[h].slot];
	p = nv_registry_by_cid(&l->registry, g->rm.device_instance, cid);
	if (!p)
		p = nv_registry_process(&l->registry, pid);
	s = p ? slot_of(g, p) : NULL;
	if (s && cid) {
		g->cid[h].cid = cid;
		g->cid[h].slot = (uint32_t)(s - g->slot);
	}
	return s;
}

static bool has_compute(const struct nv_process *p, uint32_t device)
{
	for (unsigned int i = 0; i < p->group_count; i++)
		if (p->groups[i].device == device && nv_group_is_compute(&p->groups[i]) &&
		    p->groups[i].count)
			return true;
	return false;
}

/* Acting */

static void give_up(struct lever_nvidia *l, struct gpu *g, const char *why)
{
	if (g->lost)
		return;
	g->lost = true;
	lever_log(l, LEVER_NVIDIA_ERROR,
		  "gpu %u: %s: the lever lets go of it; programs run as if rtxg were not there",
		  (unsigned int)(g - l->gpu), why);
	for (uint32_t i = 0; i < g->high; i++)
		if (g->slot[i].process && g->slot[i].stopped) {
			struct nv_batch b = { 0 };

			if (!nv_batch_add(&b, g->slot[i].process, g->rm.device_instance))
				nv_resume(&g->rm, &l->journal, &b);
			nv_batch_free(&b);
			g->slot[i].stopped = false;
		}
}

static void acted(struct lever_nvidia *l, struct gpu *g, struct slot *s, uint64_t began,
		  uint64_t what)
{
	if (l->ops.acted)
		l->ops.acted(l->ops.ctx, (uint32_t)(g - l->gpu), s->process->pid, began,
			     now_of(l) - began, what);
}

static void failed(struct lever_nvidia *l, struct gpu *g, struct slot *s, const char *what,
		   int err);

static int stop_or_go(struct lever_nvidia *l, struct gpu *g, struct slot **slots,
		      unsigned int count, bool stop, bool leave)
{
	struct nv_batch b = { 0 };
	uint64_t began = now_of(l);
	unsigned int i;
	int err = 0;

	for (i = 0; i < count && !err; i++)
		err = nv_batch_add(&b, slots[i]->process, g->rm.device_instance);
	if (!err && b.count)
		err = stop ? nv_suspend(&g->rm, &l->journal, &b, leave)
			   : nv_resume(&g->rm, &l->journal, &b);
	nv_batch_free(&b);
	if (err)
		return err;
	for (i = 0; i < count; i++) {
		slots[i]->stopped = stop;
		acted(l, g, slots[i], began, stop ? 0 : UINT64_MAX);
	}
	if (stop) {
		l->stats.suspends += count;
		l->stats.suspend_ns += now_of(l) - began;
	} else {
		l->stats.resumes += count;
		l->stats.resume_ns += now_of(l) - began;
	}
	return 0;
}

/*
 * Neighbours of one kind go to the driver in one call; if that fails, each alone, so that one bad
 * apple is found.
 */
static void stop_or_go_all(struct lever_nvidia *l, struct gpu *g, struct slot **slots,
			   unsigned int count, bool stop, bool leave)
{
	unsigned int i;
	int err;

	if (!count)
		return;
	err = stop_or_go(l, g, slots, count, stop, leave);
	if (!err)
		return;
	for (i = 0; i < count && !g->lost; i++) {
		if (!slots[i]->process)
			continue;
		err = stop_or_go(l, g, &slots[i], 1, stop, leave);
		if (err)
			failed(l, g, slots[i], stop ? "stop" : "resume", err);
	}
}

static void carry_out(struct lever_nvidia *l, struct gpu *g, const struct rtxg_slice_action *a,
		      int n)
{
	struct slot *group[ACTIONS];
	unsigned int count = 0;
	bool leave = false;
	uint32_t kind = 0;

	for (int i = 0; i <= n; i++) {
		uint32_t type = i < n ? a[i].type : 0;
		struct slot *s = i < n && a[i].context < LEVER_NVIDIA_CONTEXTS
					 ? &g->slot[a[i].context]
					 : NULL;

		if (count &&
		    (type != kind || (type == RTXG_SLICE_SUSPEND && leave != (a[i].ns != 0)))) {
			stop_or_go_all(l, g, group, count, kind == RTXG_SLICE_SUSPEND, leave);
			count = 0;
		}
		if (type == RTXG_SLICE_ARM) {
			g->timer = a[i].ns;
			continue;
		}
		if (!s || !s->process || g->lost || !l->enabled)
			continue;
		if (type == RTXG_SLICE_SUSPEND || type == RTXG_SLICE_RESUME) {
			if (type == RTXG_SLICE_SUSPEND && !l->guarded &&
			    !l->options.allow_unguarded)
				continue;
			kind = type;
			leave = type == RTXG_SLICE_SUSPEND && a[i].ns;
			group[count++] = s;
		} else if (type == RTXG_SLICE_SET) {
			uint64_t began = now_of(l);
			int err = nv_set_slice(&g->rm, &l->journal, s->process,
					       g->rm.device_instance, (uint32_t)(a[i].ns / 1000));

			if (err) {
				failed(l, g, s, "set the slice of", err);
				continue;
			}
			s->slice_ns = a[i].ns;
			l->stats.slices++;
			l->stats.slice_ns += now_of(l) - began;
			acted(l, g, s, began, a[i].ns);
		}
	}
	beat(l);
}

static void decide(struct lever_nvidia *l, struct gpu *g, const struct rtxg_slice_event *e)
{
	struct rtxg_slice_action a[ACTIONS];
	uint64_t now = now_of(l);
	int n;

	if (now < g->stepped)
		now = g->stepped;
	g->stepped = now;
	n = rtxg_slice_step(g->slice, now, e, a, ACTIONS);
	if (n < 0) {
		if (e->type != RTXG_SLICE_EV_START && e->type != RTXG_SLICE_EV_END)
			lever_log(l, LEVER_NVIDIA_WARNING, "policy refused event %u: %s", e->type,
				  strerror(-n));
		return;
	}
	for (;;) {
		carry_out(l, g, a, n);
		if (n < ACTIONS)
			return;
		now = now_of(l);
		g->stepped = now > g->stepped ? now : g->stepped;
		n = rtxg_slice_step(g->slice, g->stepped, NULL, a, ACTIONS);
		if (n < 0)
			return;
	}
}

static void failed(struct lever_nvidia *l, struct gpu *g, struct slot *s, const char *what, int err)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_FAILED,
				      .context = (uint32_t)(s - g->slot) };

	l->stats.failures++;
	if (err == -ENODEV) {
		give_up(l, g, "the device is lost");
		return;
	}
	/* A process that is just ending answers in many ways; its end will be reported. */
	if (err == -ESRCH || err == -ENOENT || err == -EBADF || err == -EMFILE)
		lever_log(l, LEVER_NVIDIA_DEBUG, "could not %s pid %u: %s (is it ending?)", what,
			  s->process->pid, strerror(-err));
	else
		lever_log(l, LEVER_NVIDIA_WARNING,
			  "could not %s pid %u (%s): %s, driver status 0x%x %s; it is left alone",
			  what, s->process->pid, s->process->comm, strerror(-err), l->rm.status,
			  rm_status_name(l->rm.status));
	s->unmanaged = "the driver refused to act on it; see the log";
	decide(l, g, &e);
}

/* Processes come and go */

static uint32_t belongs(struct lever_nvidia *l, const struct nv_process *p)
{
	const struct nv_assigned_one *e = p->tag ? NULL : nv_assigned_find(&l->assigned, p->pid);

	return e && e->tag != NV_ASSIGNED_NONE ? e->tag : p->tag;
}

static uint32_t vgpu_of(const struct gpu *g, uint32_t tag)
{
	return tag < LEVER_NVIDIA_VGPUS && g->vgpu[tag] ? tag : 0;
}

static void look_for_warm(struct lever_nvidia *l);

static void context_add(struct lever_nvidia *l, struct gpu *g, struct nv_process *p)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_ADD };
	struct slot *s = NULL;
	uint32_t i;

	if (slot_of(g, p))
		return;
	for (i = 0; i < LEVER_NVIDIA_CONTEXTS && !s; i++)
		if (!g->slot[i].process)
			s = &g->slot[i];
	if (!s) {
		lever_log(l, LEVER_NVIDIA_WARNING,
			  "pid %u is UNMANAGED: more than %u processes on one GPU", p->pid,
			  LEVER_NVIDIA_CONTEXTS);
		return;
	}
	i = (uint32_t)(s - g->slot);
	memset(s, 0, sizeof(*s));
	s->process = p;
	s->known = now_of(l);
	p->tag = belongs(l, p);
	s->vgpu = vgpu_of(g, p->tag);
	if (i >= g->high)
		g->high = i + 1;
	e.context = i;
	e.tenant = s->vgpu;
	decide(l, g, &e);
	if (l->ops.context)
		l->ops.context(l->ops.ctx, (uint32_t)(g - l->gpu), p->pid, p->comm, s->vgpu, true);
	if (p->mps_server)
		lever_log(l, LEVER_NVIDIA_WARNING,
			  "pid %u is an MPS server: all of its clients are one context and share "
			  "one vGPU; "
			  "stop MPS to govern them one by one",
			  p->pid);
}

static void context_remove(struct lever_nvidia *l, struct gpu *g, struct nv_process *p)
{
	struct slot *s = slot_of(g, p);
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_REMOVE };
	bool elsewhere = false;

	if (!s)
		return;
	e.context = (uint32_t)(s - g->slot);
	if (s->stopped) {
		/* its channels go with it, but a child may hold them a little longer */
		struct nv_batch b = { 0 };

		if (!nv_batch_add(&b, p, g->rm.device_instance) && b.count)
			nv_resume(&g->rm, &l->journal, &b);
		nv_batch_free(&b);
	}
	/* its contexts on other GPUs stay as they are */
	for (uint32_t i = 0; i < l->gpus; i++)
		elsewhere = elsewhere || (&l->gpu[i] != g && slot_of(&l->gpu[i], p));
	if (!elsewhere)
		nv_journal_slice_remove(&l->journal, p->pid, 0, 0);
	cid_forget(g, e.context);
	if (l->ops.context)
		l->ops.context(l->ops.ctx, (uint32_t)(g - l->gpu), p->pid, p->comm, s->vgpu, false);
	memset(s, 0, sizeof(*s));
	decide(l, g, &e);
}

static void on_record(void *ctx, const struct discover_record *r)
{
	struct lever_nvidia *l = ctx;
	struct nv_what what;
	bool fresh = false;
	int err;

	if (r->pid == l->self || (l->guardian > 0 && r->pid == (uint32_t)l->guardian))
		return;
	if (r->kind == DISCOVER_FREE && nv_registry_process(&l->registry, r->pid)) {
		/* A stopped channel that is being freed: its journal entry goes too. */
		for (uint32_t i = 0; i < l->gpus; i++)
			nv_journal_remove(&l->journal, l->gpu[i].rm.device_instance, r->client,
					  r->object);
	}
	err = nv_registry_feed(&l->registry, r, &what);
	if (err == -EPERM)
		lever_log(l, LEVER_NVIDIA_WARNING,
			  "pid %u named client 0x%x, which is another process's: ignored", r->pid,
			  r->client);
	else if (err)
		lever_log(l, LEVER_NVIDIA_ERROR,
			  "out of memory for the registry: pid %u is UNMANAGED", r->pid);
	if (l->options.assigned) {
		if (r->kind == DISCOVER_FORK && r->tag)
			nv_assigned_put(&l->assigned, r->pid, r->tag, true);
		else if (r->kind == DISCOVER_EXIT)
			nv_assigned_remove(&l->assigned, r->pid);
		else if (r->kind == DISCOVER_LOST)
			nv_assigned_inherit(&l->assigned);
	}
	if (r->kind == DISCOVER_LOST)
		lever_log(l, LEVER_NVIDIA_WARNING,
			  "%u discovery records were lost; looking for new contexts by hand",
			  r->object);
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct gpu *g = &l->gpu[i];

		switch (what.change) {
		case NV_NEW_CHANNEL:
			if (what.group->device != g->rm.device_instance ||
			    !nv_group_is_compute(what.group))
				break;
			if (!slot_of(g, what.process)) {
				context_add(l, g, what.process);
				fresh = true;
			} else if (slot_of(g, what.process)->stopped) {
				/*
				 * A context more of a process that is stopped: stop it as well, by
				 * stopping all anew.
				 */
				struct slot *s = slot_of(g, what.process);

				stop_or_go_all(l, g, &s, 1, true, false);
			}
			break;
		case NV_GONE_CHANNEL:
			if (slot_of(g, what.process) &&
			    !has_compute(what.process, g->rm.device_instance))
				context_remove(l, g, what.process);
			break;
		case NV_GONE_PROCESS:
			context_remove(l, g, what.process);
			break;
		case NV_NOTHING:
			break;
		}
	}
	/* a periodic program is to be told of its releases from the first one on */
	if (fresh)
		look_for_warm(l);
	if (what.change == NV_GONE_PROCESS)
		nv_registry_drop(&l->registry, what.process);
}

void lever_nvidia_feed(struct lever_nvidia *l, const struct discover_record *r)
{
	on_record(l, r);
}

/* The log */

static void adopt_unknown(struct lever_nvidia *l, uint32_t pid)
{
	struct nv_adopt_stats st;
	struct nv_process *p;
	uint32_t i;
	int n;

	if (!pid || pid == NV_FECS_KERNEL_PID || pid == l->self ||
	    (l->guardian > 0 && pid == (uint32_t)l->guardian))
		return;
	for (i = 0; i < UNKNOWN; i++)
		if (l->unknown[i].pid == pid && now_of(l) < l->unknown[i].again)
			return;
	i = l->unknown_next++ % UNKNOWN;
	l->unknown[i].pid = pid;
	l->unknown[i].again = now_of(l) + ADOPT_AGAIN_NS;
	n = nv_adopt_all(l, pid, &st);
	if (n == -ENOENT || n == -ESRCH || (n <= 0 && !nv_uses_driver(l->sys, pid))) {
		l->unknown[i].pid = 0; /* the log is read late: it has ended meanwhile */
		return;
	}
	if (n <= 0) {
		l->unknown[i].again = now_of(l) + 30 * ADOPT_AGAIN_NS;
		lever_log(l, LEVER_NVIDIA_WARNING,
			  "pid %u is UNMANAGED: it has a context that nobody saw, and it could not "
			  "be adopted (%s); "
			  "restart that program to govern it",
			  pid, n ? strerror(-n) : "no channel found");
		return;
	}
	p = nv_registry_process(&l->registry, pid);
	lever_log(l, LEVER_NVIDIA_INFO, "adopted pid %u (%s): %d channels found in %llu ms", pid,
		  p ? p->comm : "?", n, (unsigned long long)st.ns / 1000000);
}

int nv_adopt_all(struct lever_nvidia *l, uint32_t pid, struct nv_adopt_stats *st)
{
	struct rm_gpu gpus[RM_GPUS_MAX];
	struct nv_process *p;
	uint32_t i;
	int n;

	for (i = 0; i < l->gpus; i++)
		gpus[i] = l->gpu[i].rm;
	n = nv_adopt(gpus, (int)l->gpus, &l->registry, pid, st);
	if (n <= 0)
		return n;
	p = nv_registry_process(&l->registry, pid);
	if (!p)
		return -ESRCH;
	p->tag = belongs(l, p);
	if (l->discovery)
		discovery_watch(l->discovery, pid, p->tag);
	for (i = 0; i < l->gpus; i++) {
		struct gpu *g = &l->gpu[i];
		struct nv_batch b = { 0 };

		if (!has_compute(p, g->rm.device_instance))
			continue;
		/* A daemon that died together with its guardian may have left it stopped. */
		if (!nv_batch_add(&b, p, g->rm.device_instance) && b.count)
			nv_resume(&g->rm, &l->journal, &b);
		nv_batch_free(&b);
		nv_set_slice(&g->rm, &l->journal, p, g->rm.device_instance, NV_DRIVER_SLICE_US);
		context_add(l, g, p);
	}
	return n;
}

static void pump_discovery(struct lever_nvidia *l)
{
	if (l->discovery)
		discovery_read(l->discovery, on_record, l);
}

static void read_log(struct lever_nvidia *l, struct gpu *g)
{
	struct fecs_event ev[256];
	int n, i;

	if (!g->has_log)
		return;
	while ((n = fecs_read(&g->fecs, ev, 256)) > 0)
		for (i = 0; i < n; i++) {
			uint64_t at = (uint64_t)((int64_t)ev[i].gpu_ns + g->fecs.offset_ns);
			struct slot *s = slot_by_record(l, g, ev[i].context, ev[i].pid);
			struct rtxg_slice_event e = { .at_ns = at };

			if (!s && ev[i].start && l->enabled && ev[i].pid != l->self) {
				pump_discovery(l); /* it may be waiting there */
				s = slot_by_record(l, g, ev[i].context, ev[i].pid);
				if (!s) {
					adopt_unknown(l, ev[i].pid);
					s = slot_by_record(l, g, ev[i].context, ev[i].pid);
				}
			}
			if (s) {
				if (ev[i].start) {
					s->since = at;
				} else if (s->since) {
					if (l->ops.stay)
						l->ops.stay(l->ops.ctx, (uint32_t)(g - l->gpu),
							    s->process->pid, s->vgpu, s->since, at);
					s->since = 0;
				}
				e.type = ev[i].start ? RTXG_SLICE_EV_START : RTXG_SLICE_EV_END;
				e.context = (uint32_t)(s - g->slot);
			} else if (ev[i].start) {
				e.type = RTXG_SLICE_EV_OTHER;
			} else {
				continue;
			}
			decide(l, g, &e);
		}
	if (n < 0)
		give_up(l, g, "the context-switch log does not read as it should");
	l->stats.log_lost += g->fecs.lost - g->lost_before;
	g->lost_before = g->fecs.lost;
}

/* The host's loop */

static void arm(struct lever_nvidia *l)
{
	struct itimerspec t = { 0 };
	uint64_t at = l->next_watch;

	for (uint32_t i = 0; i < l->gpus; i++)
		if (!l->gpu[i].lost && l->gpu[i].timer < at)
			at = l->gpu[i].timer;
	t.it_value.tv_sec = (time_t)(at / 1000000000u);
	t.it_value.tv_nsec = (long)(at % 1000000000u);
	if (!t.it_value.tv_sec && !t.it_value.tv_nsec)
		t.it_value.tv_nsec = 1;
	timerfd_settime(l->timerfd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void again_after_hang(struct lever_nvidia *l)
{
	uint32_t let_go =
		l->journal.page ? __atomic_load_n(&l->journal.page->let_go, __ATOMIC_ACQUIRE) : 0;

	if (let_go == l->let_go)
		return;
	l->let_go = let_go;
	lever_log(l, LEVER_NVIDIA_WARNING,
		  "the guardian resumed everything while the daemon hung; stopping anew what ought "
		  "to be");
	for (uint32_t i = 0; i < l->gpus; i++)
		for (uint32_t k = 0; k < l->gpu[i].high; k++) {
			struct slot *s = &l->gpu[i].slot[k];

			if (s->process && s->stopped)
				stop_or_go_all(l, &l->gpu[i], &s, 1, true, false);
		}
}

/*
 * Where a helper program is: beside the running one, where it is built, where it is installed; else
 * PATH decides.
 */
const char *lever_helper(const char *name, char *path, size_t size)
{
	static const char *const places[] = { "%s/%s", "%s/../levers/nvidia/%s",
					      "%s/../libexec/rtxg/%s" };
	char own[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

	if (n <= 0)
		return name;
	own[n] = '\0';
	*strrchr(own, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (snprintf(path, size, places[i], own, name) < (int)size && !access(path, X_OK))
			return path;
	}
	return name;
}

static void guard(struct lever_nvidia *l)
{
	const char *path = l->options.guardian;
	char own[PATH_MAX];
	int err;

	if (l->options.no_guardian)
		return;
	if (!path)
		path = lever_helper("rtxg-guardian", own, sizeof(own));
	err = guardian_start(path, &l->journal, &l->guardian, &l->guardian_fd);
	l->guarded = !err;
	l->guardian_error = err;
	if (err) {
		l->guardian = -1;
		lever_log(l, LEVER_NVIDIA_ERROR,
			  "cannot start the guardian (%s): %s; nothing will be stopped, shares are "
			  "kept by slices alone",
			  path, strerror(-err));
		return;
	}
	struct epoll_event e = { .events = EPOLLIN, .data.u32 = SOURCE_GUARDIAN };

	epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->guardian_fd, &e);
}

static void guardian_died(struct lever_nvidia *l)
{
	lever_log(l, LEVER_NVIDIA_ERROR,
		  "the guardian has died; resuming everything, then starting another");
	l->guarded = false;
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, l->guardian_fd, NULL);
	for (uint32_t i = 0; i < l->gpus; i++)
		for (uint32_t k = 0; k < l->gpu[i].high; k++) {
			struct slot *s = &l->gpu[i].slot[k];

			if (s->process && s->stopped)
				stop_or_go_all(l, &l->gpu[i], &s, 1, false, false);
		}
	guardian_stop(&l->journal, l->guardian, l->guardian_fd);
	guard(l);
}

/* Kernel log: an Xid is the driver's word for "something went wrong on this GPU". */
static void read_kmsg(struct lever_nvidia *l)
{
	char buf[2048];
	ssize_t n;

	while ((n = read(l->kmsg, buf, sizeof(buf) - 1)) > 0 || (n < 0 && errno == EPIPE)) {
		char *xid, *end;
		unsigned int domain = 0, bus = 0, slot = 0;
		int number;

		if (n < 0)
			continue;
		buf[n] = '\0';
		xid = strstr(buf, "NVRM: Xid");
		if (!xid)
			continue;
		end = strchr(xid, '\n');
		if (end)
			*end = '\0';
		l->stats.xids++;
		lever_log(l, LEVER_NVIDIA_ERROR, "%s", xid);
		if (sscanf(xid, "NVRM: Xid (PCI:%x:%x:%x): %d", &domain, &bus, &slot, &number) != 4)
			continue;
		/*
		 * Faults of a program end that program; the others are the GPU's, and then the
		 * lever does not stand in the way.
		 */
		if (number == 13 || number == 31 || number == 43 || number == 45 || number == 68 ||
		    number == 69)
			continue;
		for (uint32_t i = 0; i < l->gpus; i++)
			if (l->gpu[i].rm.pci_domain == domain && l->gpu[i].rm.pci_bus == bus)
				give_up(l, &l->gpu[i], "an Xid was reported");
	}
}

/*
 * CUDA sets a slice of its own while it builds a context, and a program may do so later: what was
 * decided is set anew.
 */
static void check_slices(struct lever_nvidia *l, struct gpu *g)
{
	for (uint32_t i = 0; i < g->high && !g->lost; i++) {
		struct slot *s = &g->slot[i];
		uint32_t us;

		if (!s->process || !s->slice_ns || s->stopped || s->unmanaged)
			continue;
		if (nv_get_slice(&g->rm, s->process, g->rm.device_instance, &us) ||
		    us == s->slice_ns / 1000)
			continue;
		l->stats.slices_lost++;
		nv_set_slice(&g->rm, &l->journal, s->process, g->rm.device_instance,
			     (uint32_t)(s->slice_ns / 1000));
	}
}

static void save_assigned(struct lever_nvidia *l);
static void tell_releases(struct lever_nvidia *l);

/*
 * What is not urgent takes the driver a millisecond, and must not fall where the others have to be
 * stopped just ahead of a release.
 */
static bool release_near(const struct lever_nvidia *l, uint64_t now)
{
	for (uint32_t i = 0; i < l->gpus; i++)
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			uint64_t at =
				l->gpu[i].vgpu[v] && l->gpu[i].params[v].period_ns > 2 * NEAR_NS
					? rtxg_slice_next_release(l->gpu[i].slice, v)
					: RTXG_SLICE_NEVER;

			if (at != RTXG_SLICE_NEVER && at + NEAR_NS / 4 > now && at < now + NEAR_NS)
				return true;
		}
	return false;
}

static void watch_again(struct lever_nvidia *l)
{
	uint64_t now = now_of(l);

	beat(l);
	if (release_near(l, now)) {
		l->next_watch = now + NEAR_NS / 2;
		return;
	}
	look_for_warm(l);
	again_after_hang(l);
	if (now >= l->next_calibrate) {
		l->next_calibrate = now + CALIBRATE_NS;
		nv_assigned_prune(&l->assigned);
		for (uint32_t i = 0; i < l->gpus; i++)
			if (l->gpu[i].has_log && !l->gpu[i].lost)
				fecs_calibrate(&l->gpu[i].fecs);
	}
	if (l->enabled)
		for (uint32_t i = 0; i < l->gpus; i++)
			check_slices(l, &l->gpu[i]);
	save_assigned(l);
	l->next_watch = now + WATCH_NS;
}

int lever_nvidia_dispatch(struct lever_nvidia *l)
{
	struct epoll_event ev[8];
	int n = epoll_wait(l->epoll, ev, 8, 0), i;
	uint64_t now, expirations;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (i = 0; i < n; i++)
		switch (ev[i].data.u32) {
		case SOURCE_DISCOVERY:
			discovery_read(l->discovery, on_record, l);
			break;
		case SOURCE_TIMER:
			if (read(l->timerfd, &expirations, sizeof(expirations)) < 0)
				break;
			break;
		case SOURCE_KMSG:
			read_kmsg(l);
			break;
		case SOURCE_GUARDIAN:
			guardian_died(l);
			break;
		}
	now = now_of(l);
	for (uint32_t k = 0; k < l->gpus; k++) {
		struct gpu *g = &l->gpu[k];
		struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TIMER };
		int err;

		if (g->lost || now < g->timer)
			continue;
		g->timer = UINT64_MAX;
		if (g->has_log) {
			err = fecs_flush(&g->fecs);
			if (err == -ENODEV)
				give_up(l, g, "the device is lost");
			read_log(l, g);
		}
		decide(l, g, &e);
	}
	if (now_of(l) >= l->next_watch)
		watch_again(l);
	tell_releases(l);
	arm(l);
	for (uint32_t k = 0; k < l->gpus; k++)
		if (!l->gpu[k].lost)
			return 0;
	return -ENODEV;
}

int lever_nvidia_fd(const struct lever_nvidia *l)
{
	return l->epoll;
}

uint32_t lever_nvidia_gpus(const struct lever_nvidia *l)
{
	return l->gpus;
}

/*
 * Does the program bring its context in by itself when it is told to? It says so by having the
 * library that does it.
 */
static bool has_warm_library(uint32_t pid)
{
	char path[64], line[600];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/maps", pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "/librtxg-warm.so") != NULL;
	if (f)
		fclose(f);
	return found;
}

/* A periodic vGPU counts on it only if each of its processes does. */
static uint64_t warm_of(const struct gpu *g, uint32_t vgpu, const struct rtxg_slice_tenant *t)
{
	bool any = false;

	if (t->class_id != RTXG_SLICE_CRITICAL || t->period_ns < 8 * LEVER_NVIDIA_WARM_NS)
		return 0;
	for (uint32_t i = 0; i < g->high; i++)
		if (g->slot[i].process && g->slot[i].vgpu == vgpu) {
			if (!g->slot[i].warms)
				return 0;
			any = true;
		}
	return any ? LEVER_NVIDIA_WARM_NS : 0;
}

static void look_for_warm(struct lever_nvidia *l)
{
	for (uint32_t k = 0; k < l->gpus && l->releases; k++) {
		struct gpu *g = &l->gpu[k];

		for (uint32_t i = 0; i < g->high; i++) {
			struct slot *s = &g->slot[i];

			if (s->process && !s->warms &&
			    g->params[s->vgpu].class_id == RTXG_SLICE_CRITICAL &&
			    g->params[s->vgpu].period_ns)
				s->warms = has_warm_library(s->process->pid);
		}
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++)
			if (g->vgpu[v] && g->params[v].warm_ns != warm_of(g, v, &g->params[v]))
				lever_nvidia_vgpu_set(l, k, v, &g->params[v]);
	}
}

/* Programs are told when to bring their contexts in. */
static void tell_releases(struct lever_nvidia *l)
{
	uint32_t n = 0;

	if (!l->releases)
		return;
	for (uint32_t k = 0; k < l->gpus; k++) {
		struct gpu *g = &l->gpu[k];

		for (uint32_t i = 0; i < g->high && n < NV_RELEASES; i++) {
			struct nv_release r = { .pci_domain = g->rm.pci_domain,
						.pci_bus = g->rm.pci_bus,
						.pci_slot = g->rm.pci_slot };

			if (!g->slot[i].process || !g->slot[i].warms)
				continue;
			r.pid = g->slot[i].process->pid;
			r.warm_ns = g->lost || !l->enabled
					    ? RTXG_SLICE_NEVER
					    : rtxg_slice_next_warm(g->slice, g->slot[i].vgpu);
			nv_releases_set(l->releases, n++, &r);
		}
	}
	for (; n < NV_RELEASES && l->releases->entry[n].pid; n++) {
		struct nv_release none = { .warm_ns = RTXG_SLICE_NEVER };

		nv_releases_set(l->releases, n, &none);
	}
	__atomic_store_n(&l->releases->heartbeat_ns, now_of(l), __ATOMIC_RELAXED);
}

/* Who is in which vGPU */

static bool label_of(void *ctx, uint32_t vgpu, char *text)
{
	struct lever_nvidia *l = ctx;

	if (l->ops.label)
		return l->ops.label(l->ops.ctx, vgpu, text, NV_ASSIGNED_LABEL);
	snprintf(text, NV_ASSIGNED_LABEL, "%u", vgpu);
	return true;
}

static uint32_t number_of(const struct lever_nvidia *l, const char *label)
{
	char *end;
	long number;

	if (l->ops.number) {
		number = l->ops.number(l->ops.ctx, label);
	} else {
		number = strtol(label, &end, 10);
		if (*end)
			number = -1;
	}
	return number >= 0 && number < (long)LEVER_NVIDIA_VGPUS ? (uint32_t)number
								: NV_ASSIGNED_NONE;
}

static void save_assigned(struct lever_nvidia *l)
{
	int err;

	if (!l->options.assigned || !l->assigned.dirty)
		return;
	err = nv_assigned_save(&l->assigned, l->options.assigned, label_of, l);
	if (err && err != l->assigned_error)
		lever_log(l, LEVER_NVIDIA_WARNING,
			  "%s: %s: after a restart of the daemon all programs will be in the "
			  "default vGPU",
			  l->options.assigned, strerror(-err));
	l->assigned_error = err;
}

static int put_into(struct lever_nvidia *l, uint32_t pid, uint32_t vgpu)
{
	struct nv_process *p = nv_registry_process(&l->registry, pid);
	int err = l->discovery ? discovery_watch(l->discovery, pid, vgpu) : 0;

	if (err || !p)
		return err;
	p->tag = vgpu;
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct gpu *g = &l->gpu[i];
		struct slot *s = slot_of(g, p);
		struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_MOVE };

		if (!s || s->vgpu == vgpu_of(g, vgpu))
			continue;
		s->vgpu = vgpu_of(g, vgpu);
		e.context = (uint32_t)(s - g->slot);
		e.tenant = s->vgpu;
		decide(l, g, &e);
	}
	return 0;
}

void lever_nvidia_restore(struct lever_nvidia *l)
{
	struct nv_assigned *a = &l->assigned;
	bool any = false;

	/*
	 * First those that are known, so that what they fork from now on is followed; then what
	 * they have forked before.
	 */
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < a->count; i++) {
			uint32_t vgpu = a->one[i].tag == NV_ASSIGNED_NONE
						? number_of(l, a->one[i].label)
						: NV_ASSIGNED_NONE;

			if (vgpu == NV_ASSIGNED_NONE)
				continue;
			a->one[i].tag = vgpu;
			free(a->one[i].label);
			a->one[i].label = NULL;
			a->dirty = any = true;
			put_into(l, a->one[i].pid, vgpu);
		}
		if (!any)
			return;
		if (!round)
			nv_assigned_inherit(a);
	}
	for (uint32_t i = 0; i < a->count; i++)
		if (a->one[i].tag != NV_ASSIGNED_NONE)
			put_into(l, a->one[i].pid, a->one[i].tag);
	save_assigned(l);
	arm(l);
}

static void read_assigned(struct lever_nvidia *l)
{
	int err = nv_assigned_load(&l->assigned, l->options.assigned);

	if (err && err != -ENOENT)
		lever_log(
			l, LEVER_NVIDIA_WARNING,
			"%s: %s: programs that an earlier daemon had put into vGPUs are in the "
			"default one%s",
			l->options.assigned, strerror(-err),
			err == -EPERM
				? "; the file must be the daemon's own and writable by nobody else"
				: "");
	nv_assigned_inherit(&l->assigned);
}

int lever_nvidia_vgpu_set(struct lever_nvidia *l, uint32_t gpu, uint32_t vgpu,
			  const struct rtxg_slice_tenant *tenant)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_SET,
				      .tenant = vgpu,
				      .tenant_params = *tenant };
	struct rtxg_slice_action a[ACTIONS];
	struct gpu *g;
	int n;

	if (gpu >= l->gpus || vgpu >= LEVER_NVIDIA_VGPUS)
		return -EINVAL;
	g = &l->gpu[gpu];
	g->stepped = now_of(l) > g->stepped ? now_of(l) : g->stepped;
	e.tenant_params.warm_ns = warm_of(g, vgpu, tenant);
	n = rtxg_slice_step(g->slice, g->stepped, &e, a, ACTIONS);
	if (n < 0)
		return n;
	g->vgpu[vgpu] = true;
	g->params[vgpu] = e.tenant_params;
	carry_out(l, g, a, n);
	/* Processes that were put in it before it existed */
	for (uint32_t i = 0; i < g->high; i++)
		if (g->slot[i].process && g->slot[i].process->tag == vgpu &&
		    g->slot[i].vgpu != vgpu)
			put_into(l, g->slot[i].process->pid, vgpu);
	arm(l);
	return 0;
}

int lever_nvidia_vgpu_remove(struct lever_nvidia *l, uint32_t gpu, uint32_t vgpu)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_REMOVE, .tenant = vgpu };
	struct rtxg_slice_action a[ACTIONS];
	bool elsewhere = false;
	struct gpu *g;
	int n;

	if (gpu >= l->gpus || !vgpu || vgpu >= LEVER_NVIDIA_VGPUS)
		return -EINVAL;
	g = &l->gpu[gpu];
	g->stepped = now_of(l) > g->stepped ? now_of(l) : g->stepped;
	n = rtxg_slice_step(g->slice, g->stepped, &e, a, ACTIONS);
	if (n < 0)
		return n;
	g->vgpu[vgpu] = false;
	memset(&g->before[vgpu], 0, sizeof(g->before[vgpu]));
	carry_out(l, g, a, n);
	for (uint32_t i = 0; i < l->gpus; i++)
		elsewhere = elsewhere || l->gpu[i].vgpu[vgpu];
	/*
	 * Whoever was put there and has no context as yet must not land in the next vGPU of that
	 * number.
	 */
	for (uint32_t i = l->assigned.count; i-- > 0 && !elsewhere;)
		if (l->assigned.one[i].tag == vgpu) {
			put_into(l, l->assigned.one[i].pid, 0);
			nv_assigned_remove(&l->assigned, l->assigned.one[i].pid);
		}
	save_assigned(l);
	return 0;
}

int lever_nvidia_assign(struct lever_nvidia *l, uint32_t pid, uint32_t vgpu)
{
	bool any = vgpu == 0;
	int err;

	if (vgpu >= LEVER_NVIDIA_VGPUS)
		return -EINVAL;
	for (uint32_t i = 0; i < l->gpus; i++)
		any = any || l->gpu[i].vgpu[vgpu];
	if (!any)
		return -ENOENT;
	err = put_into(l, pid, vgpu);
	if (err)
		return err;
	if (l->options.assigned) {
		nv_assigned_put(&l->assigned, pid, vgpu, false);
		save_assigned(l);
	}
	arm(l);
	return 0;
}

int lever_nvidia_release(struct lever_nvidia *l, uint32_t gpu, uint32_t vgpu, uint64_t at_ns)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_RELEASE,
				      .tenant = vgpu,
				      .at_ns = at_ns };

	if (gpu >= l->gpus || vgpu >= LEVER_NVIDIA_VGPUS || !l->gpu[gpu].vgpu[vgpu])
		return -ENOENT;
	decide(l, &l->gpu[gpu], &e);
	arm(l);
	return 0;
}

int lever_nvidia_gpu(const struct lever_nvidia *l, uint32_t gpu, struct lever_nvidia_gpu *view)
{
	const struct gpu *g;

	if (gpu >= l->gpus)
		return -EINVAL;
	g = &l->gpu[gpu];
	memset(view, 0, sizeof(*view));
	snprintf(view->pci, sizeof(view->pci), "%04x:%02x:%02x.0", g->rm.pci_domain, g->rm.pci_bus,
		 g->rm.pci_slot);
	view->lost = g->lost;
	view->mig = g->rm.mig == 1;
	view->turns = rtxg_slice_turns(g->slice);
	view->log_error = g->log_error;
	view->log_lost = g->fecs.lost;
	for (uint32_t i = 0; i < g->high; i++)
		view->contexts += g->slot[i].process ? 1 : 0;
	return 0;
}

int lever_nvidia_vgpu_view(const struct lever_nvidia *l, uint32_t gpu, uint32_t vgpu,
			   struct rtxg_slice_view *view)
{
	const struct rtxg_slice_view *b;
	int err;

	if (gpu >= l->gpus)
		return -EINVAL;
	err = rtxg_slice_tenant_view(l->gpu[gpu].slice, vgpu, view);
	if (err)
		return err;
	b = &l->gpu[gpu].before[vgpu];
	view->work_ns += b->work_ns;
	view->stay_ns += b->stay_ns;
	view->stays += b->stays;
	view->suspended += b->suspended;
	view->stopped_ns += b->stopped_ns;
	view->wanted_ns += b->wanted_ns;
	return 0;
}

static bool has_slot(const struct lever_nvidia *l, uint32_t pid)
{
	for (uint32_t k = 0; k < l->gpus; k++)
		for (uint32_t i = 0; i < l->gpu[k].high; i++)
			if (l->gpu[k].slot[i].process && l->gpu[k].slot[i].process->pid == pid)
				return true;
	return false;
}

int lever_nvidia_processes(const struct lever_nvidia *l, struct lever_nvidia_process *list, int cap)
{
	uint32_t users[256];
	int n = 0, found, i;

	for (uint32_t k = 0; k < l->gpus; k++)
		for (uint32_t i2 = 0; i2 < l->gpu[k].high; i2++) {
			const struct slot *s = &l->gpu[k].slot[i2];
			struct rtxg_slice_context_view v;
			struct lever_nvidia_process *o;

			if (!s->process)
				continue;
			if (n++ >= cap)
				continue;
			o = &list[n - 1];
			memset(o, 0, sizeof(*o));
			o->pid = s->process->pid;
			o->vgpu = s->vgpu;
			o->gpu = k;
			memcpy(o->comm, s->process->comm, sizeof(o->comm));
			o->managed = !s->unmanaged;
			o->remedy = s->unmanaged;
			o->mps = s->process->mps_server;
			o->adopted = s->process->adopted;
			o->stopped = s->stopped;
			o->warms = s->warms;
			o->slice_ns = s->slice_ns;
			o->since_ns = s->known;
			if (!rtxg_slice_context_view(l->gpu[k].slice, i2, &v)) {
				o->state = v.state;
				o->work_ns = v.work_ns + s->before.work_ns;
				o->stay_ns = v.stay_ns + s->before.stay_ns;
				o->stays = v.stays + s->before.stays;
				o->stopped_ns = v.stopped_ns + s->before.stopped_ns;
			}
			for (unsigned int g = 0; g < s->process->group_count; g++)
				if (s->process->groups[g].device == l->gpu[k].rm.device_instance)
					o->channels += s->process->groups[g].count;
		}
	/* Those that have the driver open and an unknown context */
	found = nv_users(l->sys, users, 256);
	for (i = 0; i < found && i < 256; i++) {
		bool unknown = false;

		for (uint32_t k = 0; k < UNKNOWN; k++)
			unknown = unknown || (l->unknown[k].pid == users[i]);
		if (!unknown || has_slot(l, users[i]))
			continue;
		if (n++ < cap) {
			struct lever_nvidia_process *o = &list[n - 1];

			memset(o, 0, sizeof(*o));
			o->pid = users[i];
			nv_process_name(users[i], o->comm, sizeof(o->comm));
			o->remedy =
				"it is older than the daemon and could not be adopted: restart it";
		}
	}
	return n;
}

void lever_nvidia_stats(const struct lever_nvidia *l, struct lever_nvidia_stats *stats)
{
	*stats = l->stats;
	stats->refused_records = l->registry.refused;
}

int lever_nvidia_enable(struct lever_nvidia *l, bool on)
{
	if (on == l->enabled)
		return 0;
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct gpu *g = &l->gpu[i];

		for (uint32_t k = 0; k < g->high && !g->lost; k++) {
			struct slot *s = &g->slot[k];

			if (!s->process)
				continue;
			if (s->stopped)
				stop_or_go_all(l, g, &s, 1, false, false);
			if (s->slice_ns)
				nv_set_slice(&g->rm, &l->journal, s->process, g->rm.device_instance,
					     NV_DRIVER_SLICE_US);
			s->slice_ns = 0;
		}
	}
	l->enabled = on;
	if (on)
		return lever_restart_policy(l);
	return 0;
}

/* What was counted up to now, before the policy forgets it. */
static void keep_accounts(struct gpu *g)
{
	struct rtxg_slice_context_view c;
	struct rtxg_slice_view t;

	if (!g->slice)
		return;
	for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++)
		if (g->vgpu[v] && !rtxg_slice_tenant_view(g->slice, v, &t)) {
			g->before[v].work_ns += t.work_ns;
			g->before[v].stay_ns += t.stay_ns;
			g->before[v].stays += t.stays;
			g->before[v].suspended += t.suspended;
			g->before[v].stopped_ns += t.stopped_ns;
			g->before[v].wanted_ns += t.wanted_ns;
		}
	for (uint32_t k = 0; k < g->high; k++)
		if (g->slot[k].process && !rtxg_slice_context_view(g->slice, k, &c)) {
			g->slot[k].before.work_ns += c.work_ns;
			g->slot[k].before.stay_ns += c.stay_ns;
			g->slot[k].before.stays += c.stays;
			g->slot[k].before.stopped_ns += c.stopped_ns;
		}
}

/* A policy that knows nothing of the past, with the vGPUs and contexts that there are. */
int lever_restart_policy(struct lever_nvidia *l)
{
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct gpu *g = &l->gpu[i];
		struct rtxg_slice_params params = l->options.slice;
		struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TENANT_SET };

		keep_accounts(g);
		params.can = (params.can ? params.can : NV_CAN) & g->can;
		g->stepped = now_of(l);
		g->slice = rtxg_slice_init(
			g->mem, rtxg_slice_size(LEVER_NVIDIA_VGPUS, LEVER_NVIDIA_CONTEXTS),
			LEVER_NVIDIA_VGPUS, LEVER_NVIDIA_CONTEXTS, &params, g->stepped);
		if (!g->slice)
			return -EINVAL;
		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++)
			if (g->vgpu[v]) {
				e.tenant = v;
				e.tenant_params = g->params[v];
				decide(l, g, &e);
			}
		for (uint32_t k = 0; k < g->high; k++)
			if (g->slot[k].process) {
				struct rtxg_slice_event a = { .type = RTXG_SLICE_EV_ADD,
							      .context = k,
							      .tenant = g->slot[k].vgpu };

				decide(l, g, &a);
			}
	}
	arm(l);
	return 0;
}

void lever_nvidia_close(struct lever_nvidia *l)
{
	if (!l)
		return;
	if (l->gpus)
		lever_nvidia_enable(l, false);
	if (l->guardian > 0)
		guardian_stop(&l->journal, l->guardian, l->guardian_fd);
	discovery_close(l->discovery);
	for (uint32_t i = 0; i < l->gpus; i++) {
		if (l->gpu[i].has_log)
			fecs_close(&l->gpu[i].fecs);
		rm_gpu_close(&l->gpu[i].rm);
		free(l->gpu[i].mem);
	}
	save_assigned(l);
	nv_assigned_free(&l->assigned);
	nv_releases_close(l->options.releases, l->releases);
	nv_registry_free(&l->registry);
	nv_journal_close(&l->journal);
	if (l->kmsg >= 0)
		close(l->kmsg);
	if (l->timerfd >= 0)
		close(l->timerfd);
	if (l->epoll >= 0)
		close(l->epoll);
	rm_close(&l->rm);
	free(l);
}

static int source(struct lever_nvidia *l, int fd, uint32_t id)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u32 = id };

	return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

int lever_nvidia_open(const struct lever_nvidia_options *options,
		      const struct lever_nvidia_ops *ops, struct lever_nvidia **lever, char *reason,
		      size_t reason_size)
{
	static const struct rtxg_slice_tenant standard = { 0 };
	struct lever_nvidia *l = calloc(1, sizeof(*l));
	struct rm_gpu gpus[RM_GPUS_MAX];
	const char *why = "out of memory";
	uint32_t users[256];
	int err = -ENOMEM, n;

	*lever = NULL;
	if (!l)
		goto fail;
	l->journal.fd = l->timerfd = l->epoll = l->kmsg = l->guardian_fd = -1;
	l->guardian = -1;
	l->rm.ctl = -1;
	if (options)
		memcpy(&l->options, options,
		       options->size < sizeof(l->options) ? options->size : sizeof(l->options));
	if (ops)
		memcpy(&l->ops, ops, ops->size < sizeof(l->ops) ? ops->size : sizeof(l->ops));
	l->sys = l->options.sys ? l->options.sys : &nv_sys_linux;
	l->self = (uint32_t)getpid();
	l->enabled = true;
	nv_registry_init(&l->registry);
	why = "cannot open /dev/nvidiactl: is NVIDIA's driver loaded, and are you root?";
	err = rm_open(&l->rm, l->sys);
	if (err)
		goto fail;
	why = "no GPU could be opened: MIG mode, or a driver whose interface differs";
	n = rm_gpus_open(&l->rm, gpus, RM_GPUS_MAX);
	err = n < 0 ? n : 0;
	if (err)
		goto fail;
	why = "cannot make the event loop";
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (l->epoll < 0 || l->timerfd < 0) {
		err = -errno;
		goto fail;
	}
	err = source(l, l->timerfd, SOURCE_TIMER);
	if (err)
		goto fail;
	why = "cannot make the journal";
	err = nv_journal_create(&l->journal);
	if (err)
		goto fail;
	for (int i = 0; i < n; i++) {
		struct gpu *g = &l->gpu[i];

		g->rm = gpus[i];
		g->rm.rm = &l->rm;
		g->timer = UINT64_MAX;
		g->mem = calloc(1, rtxg_slice_size(LEVER_NVIDIA_VGPUS, LEVER_NVIDIA_CONTEXTS));
		why = "out of memory";
		err = -ENOMEM;
		if (!g->mem)
			goto fail;
		l->gpus = (uint32_t)i + 1;
		g->vgpu[0] = true;
		g->params[0] = standard;
		g->can = NV_CAN_ALL;
		g->log_error =
			g->rm.mig == 1 ? -EOPNOTSUPP : fecs_open(&g->fecs, &g->rm, LOG_RECORDS);
		g->has_log = !g->log_error;
		if (g->has_log)
			g->log_error = fecs_calibrate(&g->fecs);
		if (g->rm.mig == 1)
			lever_log(l, LEVER_NVIDIA_ERROR,
				  "gpu %d is in MIG mode, in which the driver gives out no log of "
				  "the whole GPU: "
				  "nothing is governed on it; \"nvidia-smi -i %d -mig 0\" ends "
				  "that mode",
				  i, i);
		else if (g->log_error)
			lever_log(l, LEVER_NVIDIA_ERROR,
				  "gpu %d: no context-switch log: %s (driver 0x%x %s, reason %u); "
				  "shares cannot be measured, so nothing is governed",
				  i, strerror(-g->log_error), l->rm.status,
				  rm_status_name(l->rm.status), g->fecs.reason);
		if (g->log_error)
			g->can = 0;
	}
	if (!l->options.no_discovery) {
		why = "cannot load the discovery program: root, and a kernel with BTF, are needed";
		l->discovery = discovery_open(&err);
		if (!l->discovery)
			goto fail;
		err = source(l, discovery_fd(l->discovery), SOURCE_DISCOVERY);
		if (err)
			goto fail;
		l->kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (l->kmsg >= 0) {
			lseek(l->kmsg, 0, SEEK_END);
			source(l, l->kmsg, SOURCE_KMSG);
		}
	}
	guard(l);
	if (!l->guarded && !l->options.allow_unguarded)
		for (uint32_t i = 0; i < l->gpus; i++)
			l->gpu[i].can &= ~RTXG_SLICE_CAN_SUSPEND;
	why = "the slice policy refused its parameters";
	err = lever_restart_policy(l);
	if (err)
		goto fail;
	if (l->options.probe)
		lever_probe(l);
	if (l->options.assigned)
		read_assigned(l);
	/* Contexts that are older than we are */
	if (!l->options.no_adoption) {
		n = nv_users(l->sys, users, 256);
		for (int i = 0; i < n && i < 256; i++) {
			struct nv_adopt_stats st;

			if (users[i] == l->self ||
			    (l->guardian > 0 && users[i] == (uint32_t)l->guardian) ||
			    nv_registry_process(&l->registry, users[i]))
				continue;
			err = nv_adopt_all(l, users[i], &st);
			if (err > 0)
				lever_log(l, LEVER_NVIDIA_INFO,
					  "adopted pid %u: %d channels found in %llu ms", users[i],
					  err, (unsigned long long)st.ns / 1000000);
			else if (err < 0) {
				uint32_t k = l->unknown_next++ % UNKNOWN;

				l->unknown[k].pid = users[i];
				l->unknown[k].again = now_of(l) + 30 * ADOPT_AGAIN_NS;
				lever_log(l, LEVER_NVIDIA_WARNING,
					  "pid %u is UNMANAGED: older than the daemon, and %s; "
					  "restart it to govern it",
					  users[i], strerror(-err));
			}
		}
	}
	if (l->options.releases) {
		err = nv_releases_open(l->options.releases, &l->releases);
		if (err)
			lever_log(l, LEVER_NVIDIA_WARNING,
				  "%s: %s: librtxg-warm.so is told nothing", l->options.releases,
				  strerror(-err));
	}
	if (!l->ops.number)
		lever_nvidia_restore(l);
	l->next_calibrate = now_of(l) + CALIBRATE_NS;
	l->next_watch = now_of(l) + WATCH_NS;
	beat(l);
	arm(l);
	*lever = l;
	return 0;
fail:
	if (reason && reason_size)
		snprintf(reason, reason_size, "%s (%s; driver status 0x%x %s)", why, strerror(-err),
			 l ? l->rm.status : 0, l ? rm_status_name(l->rm.status) : "");
	lever_nvidia_close(l);
	return err;
}
