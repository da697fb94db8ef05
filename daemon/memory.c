// SPDX-License-Identifier: MIT
/*
 * memory.c - limits on GPU memory of vGPUs: which cgroup is to have which limit on which GPU, and
 * what became of it. A driver limits cgroups, so a vGPU is limited in the cgroups that are bound to
 * it. rtxg-gpumem (levers/memory) sets the limits, in a process of its own; one runs at a time, and
 * what changes meanwhile is for the next. One that hangs inside a driver is killed, and the next
 * one waits until it has come out: else an old limit could be set after a new one.
 *
 * May not: call a driver's library or write a file of a cgroup; wait for the program.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend.h"
#include "binding.h"
#include "memory.h"
#include "program.h"

#define HELPER	     "rtxg-gpumem"
#define TRY_USEC     5000000ull
#define OVERDUE_USEC 60000000ull
#define LOOKS	     32u   /* cgroups that are looked at with a sample */
#define AGAIN	     50u   /* looks after which a unit that was not there is looked for again */
#define CHAINS	     1024u /* of limits whose names have the same sum */
#define NO_LIMIT     UINT64_MAX
#define ANSWER_MAX   (PATH_MAX + 700)
#define NO_ANSWER    HELPER " gave no answer; the driver hangs, or the program was killed"

/* A GPU with a place on the PCI bus. */
struct memory_gpu {
	char gpu[RTXG_NAME_MAX + 1], pci[32];
	bool asked, tried, can; /* asked: the program that runs tries it */
	char words[300];	/* by what it is limited, or why it is not */
};

enum memory_state { MEMORY_NEW, MEMORY_HELD, MEMORY_GONE, MEMORY_REFUSED };

/* A cgroup's limit on a GPU. */
struct memory_limit {
	const struct vgpu *vgpu; /* NULL: the limit is to be taken back */
	char *cgroup, *folder;	 /* folder: NULL before the limit was set */
	char pci[32];
	uint64_t bytes;
	ino_t inode; /* of the folder that has the limit */
	enum memory_state state;
	bool due, sent;	  /* sent: to the program that runs */
	bool asked;	  /* the driver was, and may have set a limit */
	uint32_t chained; /* the next of its chain, from 1; 0: it is the last */
	uint32_t looks;
	char words[300];
};

static struct {
	struct daemon *daemon;
	struct memory_gpu gpus[GPUS_MAX];
	uint32_t gpus_count;
	struct memory_limit *limits;
	uint32_t count, next;
	uint32_t chains[CHAINS]; /* the first of each, from 1; 0: there is none */
	bool late;		 /* it tries GPUs for longer than TRY_USEC */
	bool killed;		 /* it has been, and has not ended yet */
	bool changed;		 /* since compare() */
	void (*take)(FILE *answers);
	int in, out, pidfd; /* of the program; below 0: none runs */
	struct watch ended; /* its pidfd */
	sd_event_source *overdue, *soon;
	char no_helper[160];
} memory = { .in = -1, .out = -1, .pidfd = -1 };

/* --- the program ------------------------------------------------------------------------------ */

static bool find_helper(char path[512])
{
	static const char *const places[] = { "%s/../levers/memory/" HELPER,
					      "%s/../../levers/memory/" HELPER,
					      "%s/../libexec/rtxg/" HELPER };
	char own[400];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

	if (n <= 0)
		return false;
	own[n] = 0;
	*strrchr(own, '/') = 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, 512, places[i], own);
		if (!access(path, X_OK))
			return true;
	}
	return false;
}

static void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void end_helper(void)
{
	if (memory.pidfd >= 0)
		syscall(SYS_pidfd_send_signal, memory.pidfd, SIGKILL, NULL, 0u);
}

/* The program has ended, or is not wanted any more. */
static void reap(void)
{
	watch_off(memory.daemon, &memory.ended);
	memory.overdue = sd_event_source_disable_unref(memory.overdue);
	end_helper();
	memory.late = memory.killed = false;
	shut(&memory.in);
	shut(&memory.out);
	shut(&memory.pidfd);
}

/* With the requests in memory.in. 0 or a negative errno; the answers will be in memory.out. */
static int start_helper(void)
{
	const char *root = secure_getenv("RTXG_CGROUP_ROOT");
	char path[512];
	struct program helper = { .files = { { memory.in, 0 }, { memory.out, 1 } }, .count = 2 };

	if (!find_helper(path)) {
		snprintf(memory.no_helper, sizeof(memory.no_helper),
			 HELPER " is not beside rtxgd; install rtxg as a whole");
		return -ENOENT;
	}
	helper.path = path;
	helper.words[0] = HELPER;
	helper.words[1] = root;
	memory.pidfd = program_start(&helper, NULL);
	return memory.pidfd < 0 ? memory.pidfd : 0;
}

static bool prepare(void)
{
	memory.in = memfd_create("rtxg-limits", MFD_CLOEXEC);
	memory.out = memfd_create("rtxg-answers", MFD_CLOEXEC);
	return memory.in >= 0 && memory.out >= 0;
}

/* The answers, to be freed; NULL: none. */
static FILE *answers(void)
{
	FILE *f = lseek(memory.out, 0, SEEK_SET) ? NULL : fdopen(memory.out, "r");

	if (f)
		memory.out = -1;
	return f;
}

/* An answer's kind, and what follows it. False: there are no more. */
static bool next_answer(FILE *f, char line[ANSWER_MAX], char **rest)
{
	if (!f || !fgets(line, ANSWER_MAX, f))
		return false;
	line[strcspn(line, "\n")] = 0;
	*rest = strchr(line, ' ');
	if (*rest)
		*(*rest)++ = 0;
	else
		*rest = line + strlen(line);
	return true;
}

/* --- GPUs ------------------------------------------------------------------------------------- */

/* A GPU's place on the PCI bus: what its backend says, or its name. NULL: it has none. */
static const char *pci_of(const json_t *gpu)
{
	const char *name = json_string_value(json_object_get(gpu, "gpu"));
	const char *pci = json_string_value(json_object_get(gpu, "pci"));
	unsigned int domain, bus, slot, function;
	int end = 0;

	if (pci)
		return pci;
	if (name && sscanf(name, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) == 4 &&
	    !name[end])
		return name;
	return NULL;
}

/* GPUs come with the first program that opens them. What was tried stays. */
static void list_gpus(struct daemon *d)
{
	json_t *list = json_array();
	const json_t *gpu;
	size_t i;

	backend_gpus(d, list);
	json_array_foreach (list, i, gpu) {
		const char *name = json_string_value(json_object_get(gpu, "gpu")),
			   *pci = pci_of(gpu);
		struct memory_gpu *g = &memory.gpus[memory.gpus_count];
		bool known = false;

		for (uint32_t k = 0; pci && k < memory.gpus_count; k++)
			known |= !strcmp(memory.gpus[k].gpu, name);
		if (!pci || known || memory.gpus_count == GPUS_MAX)
			continue;
		*g = (struct memory_gpu){ 0 };
		snprintf(g->gpu, sizeof(g->gpu), "%s", name);
		snprintf(g->pci, sizeof(g->pci), "%s", pci);
		memory.gpus_count++;
	}
	json_decref(list);
}

/* A driver may take long to start: its answer counts when it comes, but requests know by now. */
static void miss_tries(void)
{
	for (uint32_t i = 0; i < memory.gpus_count; i++) {
		struct memory_gpu *g = &memory.gpus[i];

		if (!g->asked)
			continue;
		g->tried = true;
		snprintf(g->words, sizeof(g->words), NO_ANSWER "; restart rtxgd to ask again");
	}
}

/* f: NULL = the program gave no answers. What it was asked for is not tried again. */
static void take_tries(FILE *f)
{
	char line[ANSWER_MAX], *rest;

	miss_tries();
	for (uint32_t i = 0; i < memory.gpus_count; i++) {
		struct memory_gpu *g = &memory.gpus[i];

		if (!g->asked)
			continue;
		g->asked = false;
		if (next_answer(f, line, &rest)) {
			g->can = !strcmp(line, "ok");
			snprintf(g->words, sizeof(g->words), "%.299s", rest);
		}
	}
	if (f)
		fclose(f);
	reap();
}

/* Asks for the GPUs that have come. False: there are none. */
static bool send_tries(void)
{
	bool any = false;

	for (uint32_t i = 0; i < memory.gpus_count; i++) {
		struct memory_gpu *g = &memory.gpus[i];

		if (g->tried)
			continue;
		g->asked = any = true;
		dprintf(memory.in, "%s try\n", g->pci);
	}
	lseek(memory.in, 0, SEEK_SET);
	return any;
}

static bool applies(const struct vgpu *vgpu, const struct memory_gpu *gpu)
{
	return !vgpu->gpu[0] || !strcmp(vgpu->gpu, gpu->gpu);
}

static const char *why_not(const struct memory_gpu *gpu)
{
	return memory.no_helper[0] ? memory.no_helper
	       : gpu->tried	   ? gpu->words
				   : "it was not tried yet";
}

int memory_admit(struct daemon *d, const struct vgpu *wanted, char *why, size_t size)
{
	const struct memory_gpu *last = NULL;

	if (!wanted->memory_bytes || !d->governing)
		return 0;
	list_gpus(d);
	for (uint32_t i = 0; i < memory.gpus_count; i++) {
		if (!applies(wanted, &memory.gpus[i]))
			continue;
		/* Of one that is being tried it is said later: no request waits for a driver. */
		if (memory.gpus[i].can || !memory.gpus[i].tried)
			return 0;
		last = &memory.gpus[i];
	}
	if (last)
		snprintf(why, size, "memory of GPU %s cannot be limited: %s", last->gpu,
			 why_not(last));
	else
		snprintf(why, size,
			 "memory of GPU %s cannot be limited: it has no place on the PCI bus, by "
			 "which a driver is asked for a limit",
			 wanted->gpu[0] ? wanted->gpu : "0");
	return -EOPNOTSUPP;
}

/* --- limits ----------------------------------------------------------------------------------- */

/* FNV-1a, as of the two names behind each other. */
static uint32_t *chain_of(const char *cgroup, const char *pci)
{
	uint32_t sum = 2166136261u;

	for (const char *at = cgroup; *at; at++)
		sum = (sum ^ (unsigned char)*at) * 16777619u;
	for (const char *at = pci; *at; at++)
		sum = (sum ^ (unsigned char)*at) * 16777619u;
	return &memory.chains[sum % CHAINS];
}

static void chain(uint32_t i)
{
	struct memory_limit *limit = &memory.limits[i];
	uint32_t *first = chain_of(limit->cgroup, limit->pci);

	limit->chained = *first;
	*first = i + 1;
}

static void unchain(uint32_t i)
{
	const struct memory_limit *limit = &memory.limits[i];
	uint32_t *at = chain_of(limit->cgroup, limit->pci);

	while (*at != i + 1)
		at = &memory.limits[*at - 1].chained;
	*at = limit->chained;
}

static void drop(uint32_t i)
{
	uint32_t last = memory.count - 1;

	unchain(i);
	free(memory.limits[i].cgroup);
	free(memory.limits[i].folder);
	if (i != last) {
		unchain(last);
		memory.limits[i] = memory.limits[last];
		chain(i);
	}
	memory.count--;
}

/* There may be one for each cgroup on each GPU, and all are looked for with each change. */
static struct memory_limit *find(const char *cgroup, const char *pci)
{
	for (uint32_t n = *chain_of(cgroup, pci); n; n = memory.limits[n - 1].chained)
		if (!strcmp(memory.limits[n - 1].cgroup, cgroup) &&
		    !strcmp(memory.limits[n - 1].pci, pci))
			return &memory.limits[n - 1];
	return NULL;
}

static struct memory_limit *add(const char *cgroup, const char *pci)
{
	char *name = strdup(cgroup);
	struct memory_limit *more =
		name ? realloc(memory.limits, (memory.count + 1) * sizeof(*more)) : NULL;

	if (!more) {
		free(name);
		return NULL;
	}
	memory.limits = more;
	more[memory.count] = (struct memory_limit){ .cgroup = name };
	snprintf(more[memory.count].pci, sizeof(more->pci), "%s", pci);
	chain(memory.count);
	return &more[memory.count++];
}

static void want(const struct vgpu *vgpu, const char *cgroup, const char *pci)
{
	struct memory_limit *limit = find(cgroup, pci);

	if (!limit)
		limit = add(cgroup, pci);
	if (!limit)
		return;
	if (limit->bytes != vgpu->memory_bytes) {
		limit->state = MEMORY_NEW;
		limit->due = true;
	}
	limit->vgpu = vgpu;
	limit->bytes = vgpu->memory_bytes;
}

/* What all vGPUs want now; a limit that none wants is taken back. */
static void compare(const struct daemon *d)
{
	memory.changed = false;
	for (uint32_t i = 0; i < memory.count; i++)
		memory.limits[i].vgpu = NULL;
	for (uint32_t i = 0; i < d->bindings_count; i++) {
		const struct binding *b = &d->bindings[i];

		for (uint32_t g = 0; b->vgpu->memory_bytes && g < memory.gpus_count; g++)
			if (memory.gpus[g].can && applies(b->vgpu, &memory.gpus[g]))
				want(b->vgpu, b->cgroup, memory.gpus[g].pci);
	}
	for (uint32_t i = memory.count; i-- > 0;) {
		struct memory_limit *limit = &memory.limits[i];

		if (limit->vgpu || limit->bytes == NO_LIMIT)
			continue;
		limit->bytes = NO_LIMIT;
		limit->due = true;
		if (!limit->asked)
			drop(i);
	}
}

static void note(struct memory_limit *limit, const char *kind, const char *rest)
{
	const char *folder = strchr(rest, ' ');
	struct stat st;

	snprintf(limit->words, sizeof(limit->words), "%.299s", rest);
	if (!strcmp(kind, "gone")) {
		limit->state = MEMORY_GONE;
		limit->asked = false;
		free(limit->folder);
		limit->folder = NULL;
	} else if (!strcmp(kind, "ok") && folder && folder - rest < (long)sizeof(limit->words)) {
		limit->words[folder - rest] = 0;
		free(limit->folder);
		limit->folder = strdup(folder + 1);
		limit->inode = limit->folder && !stat(limit->folder, &st) ? st.st_ino : 0;
		limit->state = MEMORY_HELD;
	} else {
		if (limit->state != MEMORY_REFUSED)
			fprintf(stderr, "rtxgd: memory is %s limited in cgroup %s: %s\n",
				limit->bytes == NO_LIMIT ? "still" : "not", limit->cgroup, rest);
		limit->state = MEMORY_REFUSED;
	}
}

/* In the order of the requests. f: NULL = the program gave none. */
static void take_answers(FILE *f)
{
	char line[ANSWER_MAX], *rest;

	for (uint32_t i = 0; i < memory.count; i++) {
		struct memory_limit *limit = &memory.limits[i];

		if (!limit->sent)
			continue;
		limit->sent = false;
		if (next_answer(f, line, &rest))
			note(limit, line, rest);
		else
			note(limit, "no", NO_ANSWER);
	}
	/* A limit that is there and was not taken back stays: the next change asks for it again. */
	for (uint32_t i = memory.count; i-- > 0;)
		if (memory.limits[i].bytes == NO_LIMIT && !memory.limits[i].due &&
		    !(memory.limits[i].state == MEMORY_REFUSED && memory.limits[i].folder))
			drop(i);
	if (f)
		fclose(f);
	reap();
}

static void run(struct daemon *d);

static void on_ended(struct daemon *d, struct watch *watch, uint32_t events)
{
	memory.take(answers());
	run(d);
}

/* It is killed, and may stay inside the driver for long: on_ended() when it comes out. */
static int on_overdue(sd_event_source *s, uint64_t usec, void *data)
{
	if (memory.take == take_tries && !memory.late) {
		memory.late = true;
		miss_tries();
		sd_event_source_set_time_relative(s, OVERDUE_USEC);
		sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
		return 0;
	}
	end_helper();
	memory.killed = true;
	return 0;
}

static bool send_due(void)
{
	bool any = false;

	for (uint32_t i = 0; i < memory.count; i++) {
		struct memory_limit *limit = &memory.limits[i];

		if (!limit->due)
			continue;
		limit->due = false;
		limit->sent = any = true;
		limit->asked |= limit->bytes != NO_LIMIT;
		if (limit->bytes == NO_LIMIT)
			dprintf(memory.in, "%s max %s\n", limit->pci, limit->cgroup);
		else
			dprintf(memory.in, "%s %llu %s\n", limit->pci,
				(unsigned long long)limit->bytes, limit->cgroup);
	}
	lseek(memory.in, 0, SEEK_SET);
	return any;
}

/* Brings what is set to what is wanted. GPUs that have come are tried first. */
static void run(struct daemon *d)
{
	uint64_t limit = TRY_USEC;
	bool ready;

	/* What has changed meanwhile is for when the program has ended. */
	if (memory.pidfd >= 0)
		return;
	list_gpus(d);
	ready = prepare();
	memory.take = take_tries;
	if (!send_tries()) {
		limit = OVERDUE_USEC;
		memory.take = take_answers;
		compare(d);
		if (!send_due()) {
			reap();
			return;
		}
	}
	if (!ready || start_helper() || watch_on(d, &memory.ended, memory.pidfd, EPOLLIN) < 0 ||
	    sd_event_add_time_relative(d->event, &memory.overdue, CLOCK_MONOTONIC, limit, 0,
				       on_overdue, d) < 0) {
		memory.take(NULL);
		if (memory.take == take_tries)
			memory_changed(d);
	}
}

static int on_soon(sd_event_source *s, void *data)
{
	memory.soon = sd_event_source_disable_unref(memory.soon);
	run(data);
	return 0;
}

void memory_changed(struct daemon *d)
{
	if (!memory.daemon)
		return;
	memory.changed = true;
	/* Another one may come to its place. */
	for (uint32_t i = 0; i < memory.count; i++)
		if (memory.limits[i].vgpu && !memory.limits[i].vgpu->used)
			memory.limits[i].vgpu = NULL;
	if (memory.soon)
		return;
	/* What could not be done may be possible by now. */
	for (uint32_t i = 0; i < memory.count; i++)
		memory.limits[i].due |= memory.limits[i].state != MEMORY_HELD;
	sd_event_add_defer(d->event, &memory.soon, on_soon, d);
}

/* --- cgroups come and go ---------------------------------------------------------------------- */

/* Is another folder there than the one that has the limit? */
static bool came(struct memory_limit *limit)
{
	static const char *const roots[] = { "/sys/fs/cgroup/unified", "/sys/fs/cgroup" };
	const char *root = secure_getenv("RTXG_CGROUP_ROOT");
	char path[2 * RTXG_CGROUP_MAX];
	struct stat st;

	if (limit->folder)
		return !stat(limit->folder, &st) && st.st_ino != limit->inode;
	for (size_t i = 0; *limit->cgroup == '/' && i < (root ? 1 : 2); i++) {
		snprintf(path, sizeof(path), "%s%s", root ? root : roots[i], limit->cgroup);
		if (!stat(path, &st))
			return true;
	}
	/* Where a unit will be is not known before it is there. */
	return *limit->cgroup != '/' && ++limit->looks % AGAIN == 0;
}

void memory_next(struct daemon *d)
{
	bool any = false;

	for (uint32_t i = 0; i < memory.count && i < LOOKS; i++) {
		struct memory_limit *limit = &memory.limits[memory.next++ % memory.count];

		if (limit->sent || limit->bytes == NO_LIMIT || limit->state == MEMORY_REFUSED ||
		    !came(limit))
			continue;
		limit->due = any = true;
	}
	if (any)
		run(d);
}

/* --- the daemon's life ------------------------------------------------------------------------ */

void memory_start(struct daemon *d)
{
	memory.daemon = d;
	memory.ended.ready = on_ended;
	memory_changed(d);
}

void memory_stop(void)
{
	/* The limits stay: the programs go on, and the next daemon finds both. */
	memory.soon = sd_event_source_disable_unref(memory.soon);
	reap();
	while (memory.count)
		drop(memory.count - 1);
	free(memory.limits);
	memory.limits = NULL;
	memory.daemon = NULL;
}

/* --- what is said of it ----------------------------------------------------------------------- */

static json_t *state(const char *word, const char *why)
{
	return json_pack("{s:s, s:s}", "state", word, "why", why);
}

/* Is there something that the driver was not asked yet, or has not answered? */
static bool unsettled(const struct vgpu *vgpu)
{
	const struct daemon *d = memory.daemon;

	for (uint32_t i = 0; i < memory.count; i++)
		if (memory.limits[i].vgpu == vgpu &&
		    (memory.limits[i].due || memory.limits[i].sent))
			return true;
	for (uint32_t i = 0; d && memory.changed && i < d->bindings_count; i++) {
		for (uint32_t g = 0; d->bindings[i].vgpu == vgpu && g < memory.gpus_count; g++) {
			const struct memory_limit *limit;

			if (!memory.gpus[g].can || !applies(vgpu, &memory.gpus[g]))
				continue;
			limit = find(d->bindings[i].cgroup, memory.gpus[g].pci);
			if (!limit || limit->bytes != vgpu->memory_bytes)
				return true;
		}
	}
	return false;
}

json_t *memory_report(const struct vgpu *vgpu)
{
	const struct memory_limit *worst = NULL;
	uint32_t held = 0, can = 0, untried = 0;
	const char *no = NULL;
	char why[500];

	if (!vgpu->memory_bytes)
		return NULL;
	for (uint32_t i = 0; i < memory.gpus_count; i++) {
		if (!applies(vgpu, &memory.gpus[i]))
			continue;
		can += memory.gpus[i].can;
		untried += !memory.gpus[i].tried;
		if (!memory.gpus[i].can)
			no = why_not(&memory.gpus[i]);
	}
	if ((!can && untried) || (can && unsettled(vgpu)))
		return memory.killed ? state("refused", NO_ANSWER)
				     : state("trying", "the driver is being asked");
	if (!can)
		return state("refused", no ? no
					   : "no GPU that it applies to has a driver that "
					     "limits memory");
	for (uint32_t i = 0; i < memory.count; i++) {
		const struct memory_limit *limit = &memory.limits[i];

		if (limit->vgpu != vgpu)
			continue;
		held += limit->state == MEMORY_HELD;
		if (limit->state != MEMORY_HELD && (!worst || limit->state > worst->state))
			worst = limit;
	}
	if (worst && worst->state == MEMORY_REFUSED) {
		snprintf(why, sizeof(why), "cgroup %.150s: %s", worst->cgroup, worst->words);
		return state("refused", why);
	}
	if (worst) /* it holds as soon as there is something to be held */
		return state("waiting", worst->words);
	if (!held)
		return state("refused", "a driver limits cgroups, and none is bound to the vGPU; "
					"\"rtxg vgpu set NAME --cgroup PATH\" binds one");
	return state("held", held > 1 ? "each of its cgroups on each GPU has the limit" : "");
}

void memory_doctor(struct daemon *d, json_t *checks,
		   void (*say)(json_t *list, const char *name, bool ok, const char *remedy,
			       const char *format, ...))
{
	char name[RTXG_NAME_MAX + 20];

	for (uint32_t i = 0; i < memory.gpus_count; i++) {
		const struct memory_gpu *gpu = &memory.gpus[i];

		snprintf(name, sizeof(name), "memory %s", gpu->gpu);
		/* Without a wish for a limit there is nothing to be put right. */
		say(checks, name, true, "", "%s%.400s",
		    gpu->can ? "limits (--memory) are kept by " : "no limits (--memory): ",
		    gpu->can ? gpu->words : why_not(gpu));
	}
	for (uint32_t i = 0; i < VGPUS_MAX; i++) {
		json_t *o = d->vgpus[i].used ? memory_report(&d->vgpus[i]) : NULL;

		if (!o)
			continue;
		snprintf(name, sizeof(name), "memory of %s", d->vgpus[i].name);
		say(checks, name,
		    strcmp(json_string_value(json_object_get(o, "state")), "refused") != 0,
		    "see rtxg-vgpu(1), --memory; \"rtxg vgpu set NAME --memory default\" "
		    "takes the limit back",
		    "%llu bytes, %s%s%.400s", (unsigned long long)d->vgpus[i].memory_bytes,
		    json_string_value(json_object_get(o, "state")),
		    *json_string_value(json_object_get(o, "why")) ? ": " : "",
		    json_string_value(json_object_get(o, "why")));
		json_decref(o);
	}
}
