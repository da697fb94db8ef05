// SPDX-License-Identifier: MIT
/*
 * config_parse.c - configuration files in systemd's syntax: rtxg.conf, and drop-ins in rtxg.conf.d, in
 * /etc/rtxg, /run/rtxg and /usr/lib/rtxg (and ~/.config/rtxg for a user's own daemon). A file of
 * the same name in a folder named earlier replaces it. A line that cannot be read is named with
 * file and line and left out; the rest counts. May not change the daemon: config_apply.c does.
 */
#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "affinity.h"
#include "config_parse.h"
#include "rtxg_slice.h"

#define FILES_MAX   256
#define FOLDERS_MAX 4

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

/* --- values ----------------------------------------------------------------------------------- */

/* "40%", "12.5%": 0 or -EINVAL. */
int config_parse_share(const char *text, uint32_t *ppm)
{
	char *end;
	double percent;

	/* No other form of a number that C knows, as 0x20 or 1e1. */
	if (*text < '0' || *text > '9' || strcmp(text + strspn(text, "0123456789."), "%"))
		return -EINVAL;
	percent = strtod(text, &end);
	if (strcmp(end, "%") || !(percent >= 0 && percent <= 100))
		return -EINVAL;
	*ppm = (uint32_t)(percent * 10000 + 0.5);
	return 0;
}

/* systemd's time spans: "30ms", "1s 500ms", "1.5s"; a bare number is seconds. */
int config_parse_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "ns", 1 },    { "us", 1e3 }, { "µs", 1e3 },   { "ms", 1e6 },
		      { "sec", 1e9 }, { "s", 1e9 },  { "min", 60e9 }, { "m", 60e9 } };
	double sum = 0;
	bool any = false;

	for (;;) {
		double number;
		char *end;
		size_t i;

		while (*text == ' ')
			text++;
		if (!*text)
			break;
		if (*text < '0' || *text > '9')
			return -EINVAL;
		number = strtod(text, &end);
		text = end;
		while (*text == ' ')
			text++;
		for (i = 0; i < sizeof(units) / sizeof(*units); i++)
			if (!strncmp(text, units[i].unit, strlen(units[i].unit)))
				break;
		if (i < sizeof(units) / sizeof(*units)) {
			text += strlen(units[i].unit);
			sum += number * units[i].ns;
		} else if (!*text && !any) {
			sum = number * 1e9;
		} else {
			return -EINVAL;
		}
		any = true;
	}
	if (!any || !(sum >= 0 && sum <= 1e15))
		return -EINVAL;
	*ns = (uint64_t)(sum + 0.5);
	return 0;
}

static bool number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end && *value >= min && *value <= max;
}

/* systemd's sizes, "512M", "1.5G": of 1024. */
static bool size(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	static const char units[] = "KMGTP";
	double n;
	char *end;
	const char *unit;

	if (*text < '0' || *text > '9')
		return false;
	n = strtod(text, &end);
	unit = *end ? strchr(units, *end) : NULL;
	if (*end && (!unit || end[1]))
		return false;
	for (const char *u = units; unit && u <= unit; u++)
		n *= 1024;
	*value = n >= 0 && n <= (double)max ? (uint64_t)n : 0;
	return *value >= min && *value <= max;
}

static bool word(const char *text, const char *(*name)(uint32_t), uint32_t *value)
{
	for (uint32_t i = 0; name(i); i++)
		if (!strcmp(name(i), text)) {
			*value = i;
			return true;
		}
	return false;
}

static bool copy(char *to, size_t size, const char *from)
{
	if (!*from || strlen(from) >= size)
		return false;
	strcpy(to, from);
	return true;
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

	if (!copy(list, sizeof(list), value)) {
		wrong(c, key, value, "names or numbers of users, with spaces between, are");
		return;
	}
	w->vgpu.users_count = 0;
	for (char *at = strtok(list, " ,"); at; at = strtok(NULL, " ,"))
		if (w->vgpu.users_count == USERS_MAX ||
		    !copy(w->vgpu.users[w->vgpu.users_count++], 64, at)) {
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
	} else if (copy(g->name, sizeof(g->name), clean)) {
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
		return !config_parse_share(value, to) && *(uint32_t *)to >= min;
	case NUMBER_OR_NONE:
		if (!strcmp(value, "default")) {
			*(uint32_t *)to = 0;
			return true;
		}
		/* fall through */
	case NUMBER:
		if (!number(value, min, max, &n))
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
		if (config_parse_duration(value, &n) || n < min || n > max)
			return false;
		*(uint64_t *)to = n;
		return true;
	case SIZE_OR_NONE:
		return !strcmp(value, "default") ? !(*(uint64_t *)to = 0)
						 : size(value, min, max, to);
	case TASK_WORD:
		return word(value, rtxg_task_policy_name, to);
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
		} else if (config_parse_duration(value, &n) || !n) {
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
		if (config_parse_duration(value, &n) || n > RTXG_AHEAD_MAX_NS) {
			wrong(c, key, value, "a time from 0 to 1ms, such as 60us, is");
		} else if (*key == 'A') {
			w->params.ahead_ns = (uint32_t)n;
			w->set |= SET(G_AHEAD);
		} else {
			w->params.early_ns = (uint32_t)n;
			w->set |= SET(G_EARLY);
		}
	} else if (!strcmp(key, "SwitchCost")) {
		if (config_parse_share(value, &w->params.switch_ppm) ||
		    w->params.switch_ppm >= RTXG_PPM)
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
		if (!number(value, 1, TASKS_MAX, &n))
			wrong(c, key, value, "a number from 1 to 4096 is");
		else
			c->tasks_per_user = n;
	} else if (!strcmp(key, "GPUNames")) {
		c->gpus_by_claim = !strcmp(value, "any");
		if (!c->gpus_by_claim && strcmp(value, "devices"))
			wrong(c, key, value, "devices and any are");
	} else if (!strcmp(key, "IdleExitSec")) {
		if (config_parse_duration(value, &c->idle_exit_ns))
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
		ok = copy(m->user, sizeof(m->user), value);
	} else if (!strcmp(key, "Exec")) {
		ok = copy(m->exec, sizeof(m->exec), value);
	} else if (!strcmp(key, "Slice")) {
		ok = copy(m->slice, sizeof(m->slice), value);
	} else if (!strcmp(key, "Cgroup")) {
		why = cgroup_clean(value, clean);
		if (why)
			wrong(c, key, value, why);
		ok = why || copy(m->cgroup, sizeof(m->cgroup), clean);
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
	if (!w || !copy(list, sizeof(list), value)) {
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

/* A header: what is between [ and ]. What is wrong is said here, and not for each line after it. */
static void begin_section(struct config *c, const char *text)
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

/* inih cuts the names of sections at 49 bytes: begin_section() has the whole one. */
static int on_line(void *user, const char *section, const char *key, const char *value)
{
	struct config *c = user;

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
	return 1;
}

/* --- files ------------------------------------------------------------------------------------ */

/* Gives inih its lines, and so knows the number of each, and where a section begins. */
static char *next_line(char *buffer, int size, void *stream)
{
	struct config *c = stream;
	char *line = fgets(buffer, size, c->stream), *at;

	if (!line)
		return NULL;
	c->line++;
	if (!strchr(line, '\n') && !feof(c->stream)) {
		int ch;

		config_say(c, true, "%s:%u: the line is too long; at most %d bytes are accepted",
			   c->path, c->line, size - 2);
		while ((ch = fgetc(c->stream)) != EOF && ch != '\n')
			;
		strcpy(line, "#\n");
		return line;
	}
	at = line + strspn(line, " \t");
	if (*at == '[') {
		char *end = strchr(at, ']'), *rest = end ? end + 1 : at;

		c->header = c->line;
		c->section = S_WRONG;
		rest += strspn(rest, " \t\r\n");
		if (!end) {
			config_say(c, true, "%s:%u: the section's closing ] is missing: %.60s",
				   c->path, c->line, at);
		} else if (*rest && *rest != '#' && *rest != ';') {
			rest[strcspn(rest, "\r\n")] = 0;
			config_say(c, true, "%s:%u: \"%.60s\" stands behind the section's ]",
				   c->path, c->line, rest);
		} else {
			at++;
			at += strspn(at, " \t");
			while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
				end--;
			*end = 0;
			begin_section(c, at);
		}
		strcpy(line, "#\n");
	} else if (*at && *at != '#' && *at != ';' && *at != '\n' && *at != '\r' &&
		   !strchr(at, '=')) {
		at[strcspn(at, "\r\n")] = 0;
		config_say(c, true, "%s:%u: \"%.60s\" is neither [Section] nor Name=value", c->path,
			   c->line, at);
		strcpy(line, "#\n");
	} else if (line != at && *at && *at != '\n') {
		/* inih would take an indented line for a continuation of the value before it. */
		memmove(line, at, strlen(at) + 1);
	}
	return line;
}

static void read_file(struct config *c, const char *path)
{
	c->stream = fopen(path, "re");
	if (!c->stream) {
		if (errno != ENOENT)
			config_say(c, true, "%s cannot be read: %s", path, strerrordesc_np(errno));
		return;
	}
	c->path = path;
	c->line = c->header = c->match_header = 0;
	c->section = S_NONE;
	ini_parse_stream(next_line, c, on_line, c);
	fclose(c->stream);
}

static int by_name(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return strcmp(strrchr(x, '/'), strrchr(y, '/'));
}

static void read_folders(struct config *c, char (*folders)[512], int count)
{
	char *files[FILES_MAX], path[540];
	int n = 0;

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%.511s/rtxg.conf", folders[i]);
		if (!access(path, F_OK)) {
			read_file(c, path);
			break;
		}
	}
	for (int i = 0; i < count; i++) {
		struct dirent *entry;
		DIR *dir;

		snprintf(path, sizeof(path), "%.511s/rtxg.conf.d", folders[i]);
		dir = opendir(path);
		while (dir && (entry = readdir(dir))) {
			size_t length = strlen(entry->d_name);
			bool hidden = *entry->d_name == '.';

			if (hidden || length < 6 || strcmp(entry->d_name + length - 5, ".conf"))
				continue;
			for (int k = 0; k < n; k++)
				hidden |= !strcmp(strrchr(files[k], '/') + 1, entry->d_name);
			if (hidden)
				continue;
			if (n == FILES_MAX) {
				config_say(c, true,
					   "%s has more than %d drop-ins; the rest is not read",
					   path, FILES_MAX);
				break;
			}
			if (asprintf(&files[n], "%s/%s", path, entry->d_name) > 0)
				n++;
		}
		if (dir)
			closedir(dir);
	}
	qsort(files, (size_t)n, sizeof(*files), by_name);
	for (int i = 0; i < n; i++) {
		read_file(c, files[i]);
		free(files[i]);
	}
}

static int folders_of(const struct daemon *d, char (*folders)[512])
{
	static const char *const places[] = { "/etc/rtxg", "/run/rtxg", "/usr/lib/rtxg" };
	int count = 0;

	if (!d->system && !d->config_root) {
		const char *home = getenv("XDG_CONFIG_HOME");

		if (home && *home == '/')
			snprintf(folders[count++], 512, "%s/rtxg", home);
		else if ((home = getenv("HOME")) && *home == '/')
			snprintf(folders[count++], 512, "%s/.config/rtxg", home);
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		snprintf(folders[count++], 512, "%s%s", d->config_root ? d->config_root : "",
			 places[i]);
	return count;
}

void config_folder(const struct daemon *d, char path[512])
{
	char folders[FOLDERS_MAX][512];

	folders_of(d, folders);
	strcpy(path, folders[0]);
}

void config_parse(struct config *c)
{
	char folders[FOLDERS_MAX][512];

	read_folders(c, folders, folders_of(c->daemon, folders));
}
