// SPDX-License-Identifier: MIT
/*
 * probe.c - see probe.h. A capability counts as there only if its effect was seen: two helper
 * processes run a kernel that counts, and the count stands still while it is stopped and goes on
 * when it is resumed; the stays in the context-switch log get as long as the slice that was set.
 * What cannot be tried (no CUDA driver library, say) is reported as not tried, and the policy does
 * without.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>
#include "act.h"
#include "contexts.h"
#include "fecs.h"
#include "helper.h"
#include "needs.h"
#include "nvprobe.h"
#include "policy.h"
#include "probe.h"
#include "pump.h"
#include "sight.h"
#include "state.h"

#define START_NS 20000000000ull /* a first CUDA context may take seconds */

struct helper {
	pid_t pid;
	int fd;
	struct nvprobe_page *page;
};

static void result(struct lever_nvidia *l, const char *name, int error, const char *format, ...)
{
	struct lever_nvidia_probe *p;
	va_list args;

	for (int i = 0; i < l->probes; i++)
		if (!strcmp(l->probe[i].name, name)) {
			p = &l->probe[i];
			goto fill;
		}
	if (l->probes >= 8)
		return;
	p = &l->probe[l->probes++];
fill:
	p->name = name;
	p->error = error;
	va_start(args, format);
	vsnprintf(p->detail, sizeof(p->detail), format, args);
	va_end(args);
	nv_log(l, error ? LEVER_NVIDIA_WARNING : LEVER_NVIDIA_INFO, "probe: %s: %s: %s", name,
	       error ? "no" : "yes", p->detail);
}

/* Now, and when there is a guardian again. */
static void cannot(struct nv_gpu *g, uint32_t what)
{
	g->can &= ~what;
	g->cannot_now &= ~what;
}

static void none_can(struct lever_nvidia *l)
{
	for (uint32_t k = 0; k < l->gpus; k++)
		cannot(&l->gpu[k], ~0u);
}

static int helper_start(struct helper *h)
{
	char own[PATH_MAX], fd[16];
	const char *path = nv_helper_path("rtxg-nvprobe", own, sizeof(own));

	h->fd = memfd_create("rtxg-nvprobe", MFD_CLOEXEC);
	if (h->fd < 0 || ftruncate(h->fd, NVPROBE_SIZE))
		return -errno;
	h->page = mmap(NULL, NVPROBE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, h->fd, 0);
	if (h->page == MAP_FAILED)
		return -errno;
	h->pid = fork();
	if (h->pid < 0)
		return -errno;
	if (!h->pid) {
		fcntl(h->fd, F_SETFD, 0);
		snprintf(fd, sizeof(fd), "%d", h->fd);
		execlp(path, "rtxg-nvprobe", fd, (char *)NULL);
		_exit(127);
	}
	return 0;
}

static void helper_stop(struct helper *h)
{
	if (h->page && h->page != MAP_FAILED) {
		__atomic_store_n(&h->page->stop, 1, __ATOMIC_RELEASE);
		if (h->pid > 0) {
			for (int i = 0; i < 100 && waitpid(h->pid, NULL, WNOHANG) == 0; i++)
				usleep(10000);
			kill(h->pid, SIGKILL);
			waitpid(h->pid, NULL, 0);
		}
		munmap(h->page, NVPROBE_SIZE);
	}
	if (h->fd >= 0)
		close(h->fd);
}

static int wait_ready(struct lever_nvidia *l, struct helper *h)
{
	uint64_t end = nv_now(l) + START_NS;

	while (!__atomic_load_n(&h->page->ready, __ATOMIC_ACQUIRE)) {
		int status;

		nv_pump(l);
		if (waitpid(h->pid, &status, WNOHANG) == h->pid) {
			h->pid = -1;
			return -ENOENT;
		}
		if (nv_now(l) > end)
			return -ETIMEDOUT;
		usleep(2000);
	}
	/* What it has made may wait behind the records of others. */
	nv_pump_all(l);
	return 0;
}

static uint64_t progress_over(struct helper *h, unsigned int us)
{
	uint64_t before = __atomic_load_n(&h->page->count, __ATOMIC_ACQUIRE);

	usleep(us);
	return __atomic_load_n(&h->page->count, __ATOMIC_ACQUIRE) - before;
}

/* Mean stay of a process on the engine, in ns, over some time; 0 if it was not seen. */
static uint64_t mean_stay(struct nv_gpu *g, uint32_t pid, unsigned int us)
{
	struct nv_fecs_event ev[256];
	uint64_t since = 0, sum = 0, n = 0;
	int k;

	nv_fecs_flush(&g->fecs);
	while (nv_fecs_read(&g->fecs, ev, 256) > 0)
		;
	usleep(us);
	nv_fecs_flush(&g->fecs);
	while ((k = nv_fecs_read(&g->fecs, ev, 256)) > 0)
		for (int i = 0; i < k; i++) {
			if (ev[i].pid != pid)
				continue;
			if (ev[i].start) {
				since = ev[i].gpu_ns;
			} else if (since) {
				sum += ev[i].gpu_ns - since;
				n++;
				since = 0;
			}
		}
	return n ? sum / n : 0;
}

/* All logs in one line: the first that is missing, else how large they are. */
static void say_logs(struct lever_nvidia *l)
{
	for (uint32_t k = 0; k < l->gpus; k++) {
		const struct nv_gpu *g = &l->gpu[k];

		if (!g->log_error)
			continue;
		if (g->rm.mig == 1)
			result(l, "log", g->log_error,
			       "gpu %u is in MIG mode: no log of the whole GPU, nothing is "
			       "governed on it",
			       k);
		else
			result(l, "log", g->log_error,
			       "gpu %u: no context-switch log (%s, reason %u)", k,
			       strerror(-g->log_error), g->fecs.reason);
		return;
	}
	result(l, "log", 0, "context-switch log, %u records", l->gpu[0].fecs.count);
}

static void keep_first(void *ctx, const struct nv_need *need)
{
	const struct nv_need **first = ctx;

	if (!*first)
		*first = need;
}

/* What the driver does not know at all: then nothing else has to be tried to say why. */
static void probe_interface(struct lever_nvidia *l)
{
	const struct nv_need *first = NULL;
	struct nv_gpu *g = &l->gpu[0];
	unsigned int asked = 0;
	int lacking =
		nv_needs_ask(&g->rm, g->has_log ? &g->fecs : NULL, keep_first, &first, &asked);
	char release[32] = "the driver";

	if (l->rm.release)
		snprintf(release, sizeof(release), "release %u", l->rm.release);
	if (lacking < 0)
		result(l, "interface", lacking, "%s could not be asked: %s", release,
		       strerror(-lacking));
	else if (first)
		result(l, "interface", -EOPNOTSUPP,
		       "%s does not know %d of %u controls, as %s (for: %s); rtxg-channels needs "
		       "names all",
		       release, lacking, asked, first->name, first->what_for);
	else
		result(l, "interface", 0, "%s knows the %u controls that were asked", release,
		       asked);
}

/* Are the fields of what a program allocates where discovery reads them? */
static void probe_number(struct lever_nvidia *l, struct nv_gpu *g, const struct nv_process *p)
{
	uint32_t seen, said;

	if (nv_needs_number(&g->rm, p, &seen, &said) == -EPROTO)
		result(l, "interface", -EPROTO,
		       "release %u: a channel was seen as number %u and the driver says %u: it has "
		       "a channel's parameters at other places; tools/nvidia-needs tells which",
		       l->rm.release, seen, said);
}

/* The GPU that our own helper works on: CUDA's first, whichever that is. */
static struct nv_gpu *gpu_of(struct lever_nvidia *l, uint32_t pid)
{
	struct nv_process *p = nv_registry_process(&l->registry, pid);

	for (uint32_t k = 0; p && k < l->gpus; k++) {
		struct nv_batch b = { 0 };
		bool there = !nv_batch_add(&b, p, l->gpu[k].rm.device_instance, NV_ALL) && b.count;

		nv_batch_free(&b);
		if (there)
			return &l->gpu[k];
	}
	return &l->gpu[0];
}

/*
 * What it costs to stop and to let go: one process, and one more in the same call. Medians of a few
 * rounds, for the policy to reckon with.
 */
static uint64_t median_of_3(const uint64_t *v)
{
	uint64_t low = v[0] < v[1] ? v[0] : v[1], high = v[0] < v[1] ? v[1] : v[0];

	return v[2] < low ? low : v[2] > high ? high : v[2];
}

static int measure_costs(struct lever_nvidia *l, struct nv_gpu *g, struct nv_process **p)
{
	uint64_t stop[2][3], go[2][3], more;

	for (int n = 0; n < 2; n++)
		for (int i = 0; i < 3; i++) {
			struct nv_batch b = { 0 };
			uint64_t t0;
			int err = nv_batch_add(&b, p[0], g->rm.device_instance, NV_ALL);

			if (!err && n)
				err = nv_batch_add(&b, p[1], g->rm.device_instance, NV_ALL);
			t0 = nv_now(l);
			if (!err)
				err = nv_suspend(&g->rm, &l->journal, &b, false);
			stop[n][i] = nv_now(l) - t0;
			usleep(2000);
			t0 = nv_now(l);
			if (!err)
				err = nv_resume(&g->rm, &l->journal, &b);
			go[n][i] = nv_now(l) - t0;
			nv_batch_free(&b);
			if (err)
				return err;
			usleep(5000);
		}
	l->costs.stop_ns = median_of_3(stop[0]);
	more = median_of_3(stop[1]);
	l->costs.stop_more_ns = more > l->costs.stop_ns ? more - l->costs.stop_ns : 0;
	l->costs.resume_ns = median_of_3(go[0]);
	more = median_of_3(go[1]);
	l->costs.resume_more_ns = more > l->costs.resume_ns ? more - l->costs.resume_ns : 0;
	return 0;
}

/*
 * Queues, by whether they move when something is launched and only then. What is launched waits
 * behind the running kernel, so nothing takes from the queue meanwhile.
 */
static void probe_demand(struct lever_nvidia *l, struct nv_gpu *g, struct nv_process *p,
			 struct helper *h)
{
	struct nv_context *c = nv_context_of(g, p);
	uint64_t before = 0, still = 0, after = 0, t0 = 0, ns = 0;
	int n, err;

	usleep(50000); /* its channels have been made */
	n = c ? nv_sight_sum(l, g, c, &before) : -ENOENT;
	err = n < 0 ? n : 0;

	if (!err) {
		usleep(20000);
		t0 = nv_now(l);
		nv_sight_sum(l, g, c, &still);
		ns = (nv_now(l) - t0) / (uint64_t)n;
		__atomic_store_n(&h->page->wanted, 1, __ATOMIC_RELEASE);
		for (int i = 0; i < 500 && !__atomic_load_n(&h->page->kicked, __ATOMIC_ACQUIRE);
		     i++)
			usleep(1000);
		usleep(5000);
		nv_sight_sum(l, g, c, &after);
		if (before != still || after == still)
			err = -EOPNOTSUPP;
	}
	if (err && n < 0)
		result(l, "demand", err, "queues cannot be seen: %s (driver 0x%x %s)",
		       strerror(-err), l->rm.status, nv_rm_status_name(l->rm.status));
	else
		result(l, "demand", err,
		       err ? "queues do not move as they should (%d channels, %llu ns a look)"
			   : "a launch was seen in a queue: %d channels, %llu ns a look at one",
		       n, (unsigned long long)ns);
	if (err)
		cannot(g, RTXG_SLICE_CAN_DEMAND);
}

static void say_guardian(struct lever_nvidia *l)
{
	int err = l->guarded ? 0 : l->guardian_error ? l->guardian_error : -ENOENT;

	if (err)
		result(l, "guardian", err,
		       "not running (%s): nothing is stopped, shares are kept by slices alone%s",
		       strerror(-err), l->options.no_guardian ? "" : "; it is tried again");
	else
		result(l, "guardian", 0, "rtxg-guardian watches");
}

void nv_probe_guardian(struct lever_nvidia *l)
{
	if (l->probes)
		say_guardian(l);
}

void nv_probe(struct lever_nvidia *l)
{
	struct helper h[2] = { { .pid = -1, .fd = -1 }, { .pid = -1, .fd = -1 } };
	struct nv_gpu *g = &l->gpu[0];
	struct nv_process *p[2];
	struct nv_batch b = { 0 };
	uint64_t before, stopped, after, t0, t1, t2, stay, stay2;
	int err = 0, i;

	probe_interface(l);
	say_logs(l);
	say_guardian(l);
	for (i = 0; i < 2 && !err; i++)
		err = helper_start(&h[i]);
	for (i = 0; i < 2 && !err; i++)
		err = wait_ready(l, &h[i]);
	if (err) {
		const char *why = h[0].page && h[0].page != MAP_FAILED && h[0].page->error[0]
					  ? h[0].page->error
					  : strerror(-err);

		/*
		 * Nothing was tried, so nothing is known: neither stop nor slice is used on
		 * programs that matter.
		 */
		result(l, "discovery", err, "not tried: no context of our own (%s)", why);
		result(l, "suspend", err, "not tried: no context of our own (%s)", why);
		result(l, "slice", err, "not tried: no context of our own (%s)", why);
		result(l, "demand", err, "not tried: no context of our own (%s)", why);
		none_can(l);
		goto out;
	}
	g = gpu_of(l, (uint32_t)h[0].pid);
	for (i = 0; i < 2; i++) {
		p[i] = nv_registry_process(&l->registry, (uint32_t)h[i].pid);
		if (!p[i] || nv_batch_add(&b, p[i], g->rm.device_instance, NV_ALL) || !b.count) {
			result(l, "discovery", -ENOENT, "our own context was not seen being made");
			none_can(l);
			goto out;
		}
	}
	nv_batch_free(&b);
	result(l, "discovery", 0, "our own contexts were seen being made");
	nv_sight_show(l, p[0]);
	probe_number(l, g, p[0]);
	/* Stop and resume, by what the kernel counts */
	nv_batch_add(&b, p[0], g->rm.device_instance, NV_ALL);
	before = progress_over(&h[0], 20000);
	t0 = nv_now(l);
	err = nv_suspend(&g->rm, &l->journal, &b, false);
	t1 = nv_now(l);
	stopped = err ? 1 : progress_over(&h[0], 20000);
	t2 = nv_now(l);
	if (!err)
		err = nv_resume(&g->rm, &l->journal, &b);
	after = nv_now(l) - t2;
	if (!err && (!before || stopped || !progress_over(&h[0], 50000)))
		err = -EOPNOTSUPP;
	result(l, "suspend", err,
	       err ? "no effect (%llu counts before, %llu while stopped): %s"
		   : "stopped in %llu us, resumed in %llu us",
	       err ? (unsigned long long)before : (unsigned long long)(t1 - t0) / 1000,
	       err ? (unsigned long long)stopped : (unsigned long long)after / 1000,
	       strerror(-err));
	if (err)
		cannot(g, RTXG_SLICE_CAN_SUSPEND);
	else
		measure_costs(l, g, p);
	probe_demand(l, g, p[0], &h[0]);
	/* Slices, by how long the stays are */
	if (g->has_log) {
		stay = mean_stay(g, (uint32_t)h[0].pid, 60000);
		/* some drivers want the runlist to be restarted, which costs as much again */
		for (i = 0; i < 2; i++) {
			g->rm.slice_at_once = !i;
			err = nv_set_slice(&g->rm, &l->journal, p[0], g->rm.device_instance, 500);
			stay2 = err ? 0 : mean_stay(g, (uint32_t)h[0].pid, 60000);
			if (!err && stay && stay2 && stay2 <= 1000000 && stay >= 3 * stay2 / 2)
				break;
		}
		if (!err && (!stay || !stay2 || stay2 > 1000000 || stay < 3 * stay2 / 2))
			err = -EOPNOTSUPP;
		result(l, "slice", err,
		       err ? "no effect (stays of %llu us, then %llu us): %s"
			   : "stays of %llu us became %llu us with a slice of 500 us, %s",
		       (unsigned long long)stay / 1000, (unsigned long long)stay2 / 1000,
		       err		     ? strerror(-err)
		       : g->rm.slice_at_once ? "at once"
					     : "after a restart of the runlist");
		if (err)
			cannot(g, RTXG_SLICE_CAN_SLICE);
	} else {
		cannot(g, RTXG_SLICE_CAN_SLICE);
	}
	/* cards of one machine are taken to be alike */
	for (uint32_t k = 0; k < l->gpus; k++) {
		cannot(&l->gpu[k], ~(g->can | g->cannot_now));
		l->gpu[k].rm.slice_at_once = g->rm.slice_at_once;
	}
out:
	nv_batch_free(&b);
	for (i = 0; i < 2; i++)
		helper_stop(&h[i]);
	usleep(20000);
	nv_pump_all(l);
	nv_restart_policy(l);
}

int lever_nvidia_probes(const struct lever_nvidia *l, struct lever_nvidia_probe *list, int cap)
{
	for (int i = 0; i < l->probes && i < cap; i++)
		list[i] = l->probe[i];
	return l->probes;
}
