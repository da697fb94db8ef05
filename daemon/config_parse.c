// SPDX-License-Identifier: MIT
/*
 * config_parse.c - the sections of the configuration and their lines. A line that cannot be read is
 * named with file and line and left out; the rest counts. May not change the daemon: config_apply.c
 * does; nor open a file: config_files.c does.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "config_parse.h"
#include "config_values.h"
#include "rtxg_slice.h"

/* --- saying what is wrong --------------------------------------------------------------------- */

void config_say(struct config *c, bool error, const char *format, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	fprintf(stderr, "rtxgd: %s\n", text);
	if (c->messages)
		json_array_append_new(c->messages, message_string(text));
	if (error && !c->errors++)
		snprintf(c->daemon->config_fail, sizeof(c->daemon->config_fail), "%s", text);
}

static void wrong(struct config *c, const char *key, const char *value, const char *accepted)
{
	config_say(c, true, "%s:%u: %s=%s is not accepted; %s", c->path, c->line, key, value,
		   accepted);
}

/* --- sections --------------------------------------------------------------------------------- */

static struct wanted_vgpu *want_vgpu(struct config *c, const char *name)
{
	struct wanted_vgpu *w;

	for (uint32_t i = 0; i < c->vgpus_count; i++)
		if (!strcmp(c->vgpus[i].vgpu.name, name))
			return &c->vgpus[i];
	if (c->vgpus_count == VGPUS_MAX)
		return NULL;
	w = &c->vgpus[c->vgpus_count++];
	strcpy(w->vgpu.name, name);
	snprintf(w->vgpu.source, sizeof(w->vgpu.source), "%s:%u", c->path, c->header);
	return w;
}

/* "Users=": names or numbers of users, with spaces between. */
static void users_line(struct config *c, struct wanted_vgpu *w, const char *key, const char *value)
{
	char list[1024];

	if (!config_copy(list, sizeof(list), value)) {
		wrong(c, key, value, "names or numbers of users, with spaces between, are");
		return;
	}
	w->vgpu.users_count = 0;
	for (char *at = strtok(list, " ,"); at; at = strtok(NULL, " ,"))
		if (w->vgpu.users_count == USERS_MAX ||
		    !config_copy(w->vgpu.users[w->vgpu.users_count++], 64, at)) {
			wrong(c, key, value, "at most 16 users, each of at most 63 bytes, are");
			break;
		}
	w->set |= SET(V_USERS);
}

/* "Cgroup=": a line for each cgroup. */
static void cgroup_line(struct config *c, const struct wanted_vgpu *w, const char *key,
			const char *value)
{
	struct wanted_cgroup *g = &c->cgroups[c->cgroups_count];
	char clean[CGROUP_MAX + 1];
	const char *why = cgroup_clean(value, clean);

	if (why) {
		wrong(c, key, value, why);
	} else if (c->cgroups_count == BINDINGS_MAX) {
		config_say(c, true, "%s:%u: there are more than %u Cgroup= lines", c->path, c->line,
			   BINDINGS_MAX);
	} else if (config_copy(g->name, sizeof(g->name), clean)) {
		g->vgpu = (uint32_t)(w - c->vgpus);
		c->cgroups_count++;
	}
}

/* How a value is written, and the type that it is kept in. */
enum form {
	GPU_NAME,
	SHARE,	/* uint32_t */
	NUMBER, /* uint32_t */
	/* the same; "default" is 0: as if it had not been given */
	NUMBER_OR_NONE,
	TIME,	      /* uint64_t */
	TIME_OR_NONE, /* the same, as NUMBER_OR_NONE */
	SIZE_OR_NONE, /* uint64_t, bytes */
	TASK_WORD
};

static bool read_value(enum form form, const char *value, uint64_t min, uint64_t max, void *to)
{
	uint64_t n;

	switch (form) {
	case GPU_NAME:
		return !message_name_wrong(value, strlen(value), false) && strcpy(to, value);
	case SHARE:
		return !config_share(value, to) && *(uint32_t *)to >= min;
	case NUMBER_OR_NONE:
		if (!strcmp(value, "default")) {
			*(uint32_t *)to = 0;
			return true;
		}
		/* fall through */
	case NUMBER:
		if (!config_number(value, min, max, &n))
			return false;
		*(uint32_t *)to = (uint32_t)n;
		return true;
	case TIME_OR_NONE:
		if (!strcmp(value, "default")) {
			*(uint64_t *)to = 0;
			return true;
		}
		/* fall through */
	case TIME:
		if (config_duration(value, &n) || n < min || n > max)
			return false;
		*(uint64_t *)to = n;
		return true;
	case SIZE_OR_NONE:
		return !strcmp(value, "default") ? !(*(uint64_t *)to = 0)
						 : config_size(value, min, max, to);
	case TASK_WORD:
		return config_word(value, rtxg_task_policy_name, to);
	}
	return false;
}

static void vgpu_line(struct config *c, struct wanted_vgpu *w, const char *key, const char *value)
{
#define AT(member) offsetof(struct vgpu, member)
#define PRIORITIES RTXG_PRIORITY_MIN, RTXG_PRIORITY_MAX, "a priority from 1 to 99 is"
#define PERIODS	   RTXG_PERIOD_MIN_NS, RTXG_PERIOD_MAX_NS, "a time from 100us to 10s is"
#define SHARES	   0, 0, "a share from 0% to 100%, with the percent sign, is"
	static const struct {
		const char *key;
		enum vgpu_key bit;
		enum form form;
		size_t at;
		uint64_t min, max;
		const char *accepted;
	} keys[] = {
		{ "GPU", V_GPU, GPU_NAME, AT(gpu), 0, 0, "a GPU's name is" },
		{ "GPUMin", V_MIN, SHARE, AT(params.min_ppm), SHARES },
		{ "GPUQuota", V_MAX, SHARE, AT(params.max_ppm), 1, 0,
		  "a share from 0.0001% to 100%, with the percent sign, is (" MESSAGE_NO_CAP_OF_0
		  ")" },
		{ "GPUWeight", V_WEIGHT, NUMBER_OR_NONE, AT(params.weight), RTXG_WEIGHT_MIN,
		  RTXG_WEIGHT_MAX, "a weight from 1 to 10000, or default, is" },
		{ "GPUPriority", V_PRIORITY, NUMBER, AT(params.priority), PRIORITIES },
		{ "TaskPriority", V_TASK_PRIORITY, NUMBER, AT(task_priority), PRIORITIES },
		{ "GPUPeriodSec", V_PERIOD, TIME, AT(params.period_ns), PERIODS },
		{ "GPUQuotaPeriodSec", V_PERIOD, TIME, AT(params.period_ns), PERIODS },
		{ "GPULatencySec", V_LATENCY, TIME_OR_NONE, AT(latency_ns), RTXG_SLICE_LATENCY_MIN,
		  RTXG_SLICE_LATENCY_MAX, "a time from 100us to 10s, or default, is" },
		{ "GPUQuantumSec", V_QUANTUM, TIME_OR_NONE, AT(quantum_ns), RTXG_SLICE_QUANTUM_MIN,
		  RTXG_SLICE_QUANTUM_MAX, "a time from 1ms to 1s, or default, is" },
		{ "GPUMemoryMax", V_MEMORY, SIZE_OR_NONE, AT(memory_bytes), MESSAGE_MEMORY_MIN,
		  MESSAGE_MEMORY_MAX, "a size from 1M to 1024T, or default, is" },
		{ "TaskPolicy", V_POLICY, TASK_WORD, AT(params.policy), 0, 0,
		  "fifo, fp and edf are" },
	};
#undef SHARES
#undef PERIODS
#undef PRIORITIES
#undef AT

	if (!strcmp(key, "Users")) {
		users_line(c, w, key, value);
		return;
	}
	if (!strcmp(key, "Cgroup")) {
		cgroup_line(c, w, key, value);
		return;
	}
	if (!strcmp(key, "GPU") && !strcmp(w->vgpu.name, "default")) {
		wrong(c, key, value,
		      "in vGPU default, where programs of all GPUs go that name none, no GPU is");
		return;
	}
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		if (strcmp(key, keys[i].key))
			continue;
		if (read_value(keys[i].form, value, keys[i].min, keys[i].max,
			       (char *)&w->vgpu + keys[i].at))
			w->set |= SET(keys[i].bit);
		else
			wrong(c, key, value, keys[i].accepted);
		return;
	}
	config_say(c, true,
		   "%s:%u: [VGPU] has no %s=; GPU, GPUMin, GPUQuota, GPUWeight, GPUPriority, "
		   "GPUPeriodSec, GPULatencySec, GPUQuantumSec, GPUMemoryMax, TaskPolicy, "
		   "TaskPriority, Users and Cgroup are accepted",
		   c->path, c->line, key);
}

static struct wanted_gpu *want_gpu(struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->gpus_count; i++)
		if (!strcmp(c->gpus[i].name, name))
			return &c->gpus[i];
	if (c->gpus_count == GPUS_MAX)
		return NULL;
	strcpy(c->gpus[c->gpus_count].name, name);
	return &c->gpus[c->gpus_count++];
}

static void gpu_line(struct config *c, struct wanted_gpu *w, const char *key, const char *value)
{
	static const struct {
		const char *key;
		enum gpu_key bit;
		size_t at;
		bool never;
	} times[] = {
		{ "PeriodSec", G_PERIOD, offsetof(struct rtxg_gpu_params, period_ns), false },
		{ "WindowSec", G_WINDOW, offsetof(struct rtxg_gpu_params, window_ns), false },
		{ "BandWaitSec", G_BAND_WAIT, offsetof(struct rtxg_gpu_params, band_wait_ns),
		  false },
		{ "ThinkSec", G_THINK, offsetof(struct rtxg_gpu_params, think_ns), true },
		{ "RevokeTimeoutSec", G_REVOKE, offsetof(struct rtxg_gpu_params, revoke_timeout_ns),
		  true },
	};
	uint64_t n;

	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
		if (strcmp(key, times[i].key))
			continue;
		if (times[i].never && !strcmp(value, "infinity")) {
			n = RTXG_TIME_NEVER;
		} else if (config_duration(value, &n) || !n) {
			wrong(c, key, value,
			      times[i].never ? "a time such as 500us, or infinity, is"
					     : "a time such as 30ms is");
			return;
		}
		*(uint64_t *)((char *)&w->params + times[i].at) = n;
		w->set |= SET(times[i].bit);
		return;
	}
	if (!strcmp(key, "Policy")) {
		n = rtxg_gpu_policy_find(value);
		if (n == RTXG_NONE) {
			char accepted[256];

			snprintf(accepted, sizeof(accepted), "any of %s is",
				 rtxg_gpu_policy_names());
			wrong(c, key, value, accepted);
		} else {
			w->params.policy = (uint32_t)n;
			w->set |= SET(G_POLICY);
		}
	} else if (!strcmp(key, "Overrun")) {
		if (strcmp(value, "charge") && strcmp(value, "forgive")) {
			wrong(c, key, value, "charge and forgive are");
		} else {
			w->params.overrun =
				*value == 'c' ? RTXG_OVERRUN_CHARGE : RTXG_OVERRUN_FORGIVE;
			w->set |= SET(G_OVERRUN);
		}
	} else if (!strcmp(key, "AheadSec") || !strcmp(key, "EarlySec")) {
		if (config_duration(value, &n) || n > RTXG_AHEAD_MAX_NS) {
			wrong(c, key, value, "a time from 0 to 1ms, such as 60us, is");
		} else if (*key == 'A') {
			w->params.ahead_ns = (uint32_t)n;
			w->set |= SET(G_AHEAD);
		} else {
			w->params.early_ns = (uint32_t)n;
			w->set |= SET(G_EARLY);
		}
	} else if (!strcmp(key, "SwitchCost")) {
		if (config_share(value, &w->params.switch_ppm) || w->params.switch_ppm >= RTXG_PPM)
			wrong(c, key, value,
			      "a share from 0% to below 100%, with the percent sign, is");
		else
			w->set |= SET(G_SWITCH);
	} else {
		config_say(c, true,
			   "%s:%u: [GPU] has no %s=; Policy, Overrun, PeriodSec, WindowSec, "
			   "BandWaitSec, ThinkSec, RevokeTimeoutSec, AheadSec, EarlySec and "
			   "SwitchCost are accepted",
			   c->path, c->line, key);
	}
}

static void words_line(struct config *c, const char *key, const char *value,
		       struct config_words *words)
{
	const char *bad = config_words_read(words, value);

	if (bad)
		wrong(c, key, bad, "at most 8 names, of at most 31 characters, are");
}

static void daemon_line(struct config *c, const char *key, const char *value)
{
	uint64_t n;

	if (!strcmp(key, "FailPolicy")) {
		if (strcmp(value, "open") && strcmp(value, "closed"))
			wrong(c, key, value, "open (go on unmanaged) and closed (wait) are");
		else
			c->fail_closed = *value == 'c';
	} else if (!strcmp(key, "TasksPerUser")) {
		if (!config_number(value, 1, TASKS_MAX, &n))
			wrong(c, key, value, "a number from 1 to 4096 is");
		else
			c->tasks_per_user = n;
	} else if (!strcmp(key, "GPUNames")) {
		c->gpus_by_claim = !strcmp(value, "any");
		if (!c->gpus_by_claim && strcmp(value, "devices"))
			wrong(c, key, value, "devices and any are");
	} else if (!strcmp(key, "IdleExitSec")) {
		if (config_duration(value, &c->idle_exit_ns))
			wrong(c, key, value, "a time such as 60s, or 0 for never, is");
	} else if (!strcmp(key, "CeilingThreads")) {
		words_line(c, key, value, &c->ceilings);
	} else if (!strcmp(key, "KeepOffInterrupts")) {
		words_line(c, key, value, &c->interrupts.names);
	} else if (!strcmp(key, "KeepOffCPUs")) {
		if (affinity_parse(value, &c->interrupts.off)) {
			c->interrupts.off = (struct rtxg_keepoff_cpus){ { 0 } };
			wrong(c, key, value, "CPUs from 0 to 1023, as 2,4-7, are");
		}
	} else {
		config_say(c, true,
			   "%s:%u: [Daemon] has no %s=; FailPolicy, TasksPerUser, GPUNames, "
			   "IdleExitSec, CeilingThreads, KeepOffInterrupts and KeepOffCPUs are "
			   "accepted",
			   c->path, c->line, key);
	}
}

static void match_line(struct config *c, const char *key, const char *value)
{
	char clean[CGROUP_MAX + 1];
	const char *why;
	struct match *m;
	bool ok;

	/* Each [Match] header begins a rule of its own. */
	if (c->match_header != c->header) {
		if (c->matches_count == MATCHES_MAX) {
			config_say(c, true, "%s:%u: there are more than %u [Match] rules", c->path,
				   c->line, MATCHES_MAX);
			return;
		}
		m = &c->matches[c->matches_count++];
		memset(m, 0, sizeof(*m));
		snprintf(m->source, sizeof(m->source), "%s:%u", c->path, c->header);
		c->match_header = c->header;
	}
	m = &c->matches[c->matches_count - 1];
	if (!strcmp(key, "VGPU")) {
		ok = !message_name_wrong(value, strlen(value), true);
		if (ok)
			strcpy(m->vgpu, value);
	} else if (!strcmp(key, "User")) {
		ok = config_copy(m->user, sizeof(m->user), value);
	} else if (!strcmp(key, "Exec")) {
		ok = config_copy(m->exec, sizeof(m->exec), value);
	} else if (!strcmp(key, "Slice")) {
		ok = config_copy(m->slice, sizeof(m->slice), value);
	} else if (!strcmp(key, "Cgroup")) {
		why = cgroup_clean(value, clean);
		if (why)
			wrong(c, key, value, why);
		ok = why || config_copy(m->cgroup, sizeof(m->cgroup), clean);
	} else {
		config_say(c, true,
			   "%s:%u: [Match] has no %s=; VGPU, User, Exec, Slice and Cgroup are "
			   "accepted",
			   c->path, c->line, key);
		return;
	}
	if (!ok)
		wrong(c, key, value, "a name (of at most 63 bytes; Exec and Slice 255) is");
}

static void pool_line(struct config *c, const char *name, const char *key, const char *value)
{
	struct wanted_pool *w = NULL;
	char list[1024], *at;

	if (strcmp(key, "GPUs")) {
		config_say(c, true, "%s:%u: [Pool] has no %s=; GPUs is accepted", c->path, c->line,
			   key);
		return;
	}
	for (uint32_t i = 0; i < c->pools_count; i++)
		if (!strcmp(c->pools[i].name, name))
			w = &c->pools[i];
	if (!w && c->pools_count < POOLS_MAX) {
		w = &c->pools[c->pools_count++];
		strcpy(w->name, name);
	}
	if (!w || !config_copy(list, sizeof(list), value)) {
		wrong(c, key, value,
		      "names of GPUs, with spaces between, are (and at most 16 pools)");
		return;
	}
	w->count = 0;
	for (at = strtok(list, " ,"); at; at = strtok(NULL, " ,")) {
		if (w->count == GPUS_MAX || message_name_wrong(at, strlen(at), false)) {
			wrong(c, key, value, "1 to 32 names of GPUs, with spaces between, are");
			w->count = 0;
			return;
		}
		strcpy(w->gpus[w->count++], at);
	}
}

/* "VGPU video" -> "video"; NULL if it is another kind's section, or the name is none. */
static const char *named(struct config *c, const char *section, const char *kind, bool plain)
{
	size_t n = strlen(kind);
	const char *name = section + n, *why;

	if (strncmp(section, kind, n) || (section[n] && section[n] != ' ' && section[n] != '\t'))
		return NULL;
	name += strspn(name, " \t");
	c->section = S_WRONG;
	why = message_name_wrong(name, strlen(name), plain);
	if (!why)
		return name;
	config_say(c, true, "%s:%u: [%s] needs a name: %s", c->path, c->header, section, why);
	return NULL;
}

static void too_many(struct config *c, const char *what, unsigned int most)
{
	config_say(c, true, "%s:%u: there are more than %u %s", c->path, c->header, most, what);
}

/* What is wrong is said here, and not for each line after it. */
void config_section(struct config *c, const char *text)
{
	const char *name;

	c->section = S_NONE;
	if (!strcmp(text, "Daemon")) {
		c->section = S_DAEMON;
	} else if (!strcmp(text, "Match")) {
		c->section = S_MATCH;
	} else if ((name = named(c, text, "VGPU", true))) {
		c->vgpu = want_vgpu(c, name);
		if (c->vgpu)
			c->section = S_VGPU;
		else
			too_many(c, "vGPUs", VGPUS_MAX);
	} else if (c->section == S_NONE && (name = named(c, text, "GPU", false))) {
		c->gpu = want_gpu(c, name);
		if (c->gpu)
			c->section = S_GPU;
		else
			too_many(c, "GPUs", GPUS_MAX);
	} else if (c->section == S_NONE && (name = named(c, text, "Pool", true))) {
		strcpy(c->pool, name);
		c->section = S_POOL;
	} else if (c->section == S_NONE) {
		c->section = S_WRONG;
		config_say(
			c, true,
			"%s:%u: there is no section [%.200s]; [Daemon], [GPU NAME], [VGPU NAME], "
			"[Match] and [Pool NAME] are accepted",
			c->path, c->header, text);
	}
}

void config_line(struct config *c, const char *key, const char *value)
{
	switch (c->section) {
	case S_NONE:
		config_say(c, true, "%s:%u: %s= stands before any [Section]", c->path, c->line,
			   key);
		break;
	case S_WRONG:
		break;
	case S_DAEMON:
		daemon_line(c, key, value);
		break;
	case S_MATCH:
		match_line(c, key, value);
		break;
	case S_VGPU:
		vgpu_line(c, c->vgpu, key, value);
		break;
	case S_GPU:
		gpu_line(c, c->gpu, key, value);
		break;
	case S_POOL:
		pool_line(c, c->pool, key, value);
		break;
	}
}
