// SPDX-License-Identifier: MIT
/*
 * explain.c - `rtxg latency explain`: OSADL's way through a trace, done by the machine. May not:
 * change anything, or need privilege.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli/message.h"
#include "../cli/text.h"
#include "../cli/value.h"
#include "culprit.h"
#include "explain.h"
#include "trace.h"

#define MOST_BYTES (256u << 20)

static const struct option options[] = {
	{ "interval", required_argument, NULL, 'i' },
	{ "task", required_argument, NULL, 't' },
	{ "json", no_argument, NULL, 'J' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

static const char help[] =
	"Usage: rtxg latency explain [-i US] [OPTION...] [FILE]\n\n"
	"Names what made a task late, from a trace in text: what /sys/kernel/tracing/trace shows,\n"
	"trace-cmd report, or rtla timerlat -t. Without FILE it reads standard input.\n\n"
	" -i, --interval US   period of the task: it was to wake so long after its last run; a\n"
	"                     trace of timerlat says by itself when that was\n"
	" -t, --task TASK     number or name (rtxg-late or cyclictest, which of them ran last)\n"
	" -J, --json          print JSON\n"
	" -h, --help          this text\n";

static char *read_all(const char *path)
{
	FILE *file = path && strcmp(path, "-") ? fopen(path, "re") : stdin;
	size_t room = 65536, have = 0, n;
	char *text = malloc(room);

	if (!file) {
		message_error("%s: %s", path, strerror(errno));
		free(text);
		return NULL;
	}
	while (text && (n = fread(text + have, 1, room - have - 1, file)) > 0) {
		char *more;

		have += n;
		if (room - have > 1)
			continue;
		room *= 2;
		more = room > MOST_BYTES ? NULL : realloc(text, room);
		if (!more) {
			message_error("%s: longer than %u MiB; cut out the part around the late "
				      "wake-up",
				      path ? path : "standard input", MOST_BYTES >> 20);
			free(text);
			text = NULL;
			break;
		}
		text = more;
	}
	if (text && ferror(file)) {
		message_error("%s: %s", path ? path : "standard input", strerror(errno));
		free(text);
		text = NULL;
	}
	if (file != stdin)
		fclose(file);
	if (text)
		text[have] = 0;
	return text;
}

static bool is_task(const struct event *e, const char *task)
{
	char *end;
	long pid;

	if (!task)
		return !strncmp(e->name, "cyclictest", 10) || !strncmp(e->name, "rtxg-late", 9);
	pid = strtol(task, &end, 10);
	return *end ? !strcmp(e->name, task) : e->pid == pid;
}

/* The last switch to the task: its number and CPU. */
static bool find_task(const struct trace *trace, const char *task, int *pid, int *cpu)
{
	for (size_t i = trace->count; i-- > 0;)
		if (trace->events[i].type == EVENT_SWITCH && trace->events[i].pid >= 0 &&
		    is_task(&trace->events[i], task)) {
			*pid = trace->events[i].pid;
			*cpu = trace->cpus[i];
			return true;
		}
	return false;
}

/* The latest wake-up that the timerlat tracer saw, where the trace is one of it. */
static bool find_timerlat(const struct trace *trace, struct blame_case *wanted, int *cpu)
{
	const struct event *worst = NULL;

	for (size_t i = 0; i < trace->count; i++) {
		const struct event *e = &trace->events[i];

		if (e->type != EVENT_RAN || (worst && e->arg <= worst->arg))
			continue;
		worst = e;
		*cpu = trace->cpus[i];
	}
	if (!worst)
		return false;
	wanted->pid = worst->context;
	wanted->ran_ns = worst->ns;
	wanted->expected_ns = worst->ns - (uint64_t)worst->arg;
	return true;
}

static int explain(const char *text, const char *task, uint64_t interval_ns, bool json)
{
	struct blame_case wanted = { .interval_ns = interval_ns };
	struct culprit c = { 0 };
	struct trace trace;
	int ret;

	if (trace_read(text, &trace)) {
		message_error("no line of a trace was found; accepted: TASK-PID [CPU] FLAGS TIME: "
			      "EVENT, as /sys/kernel/tracing/trace shows them");
		return EXIT_FAILED;
	}
	if (!interval_ns && !find_timerlat(&trace, &wanted, &c.cpu)) {
		message_error("-i is needed: the period of the task in us; the trace is none of "
			      "timerlat, which says it by itself");
		trace_close(&trace);
		return EXIT_FAILED;
	}
	if (interval_ns && !find_task(&trace, task, &wanted.pid, &c.cpu)) {
		message_error("no switch to %s in the trace; name a task with -t, and record "
			      "sched_switch",
			      task ? task : "cyclictest or rtxg-late");
		trace_close(&trace);
		return EXIT_FAILED;
	}
	trace_keep_cpu(&trace, c.cpu);
	ret = blame_find(trace.events, trace.count, &wanted, &c.blame);
	if (ret == -ERANGE)
		message_error("the trace does not show how task %d gave up the CPU before; record "
			      "for longer",
			      wanted.pid);
	else if (ret == -EINVAL)
		message_error("task %d ran again less than %llu us after it had given up the CPU: "
			      "it was not late, or -i is not its period",
			      wanted.pid, (unsigned long long)interval_ns / 1000);
	if (!ret && json) {
		json_t *root = culprit_json(&c);

		json_object_set_new(root, "observed_us",
				    json_real((double)c.blame.observed_ns / 1e3));
		ret = json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
		putchar('\n');
		json_decref(root);
	} else if (!ret) {
		if (interval_ns)
			printf("# CPU %d: %llu us from its last run to this one, %llu us of them "
			       "late\n",
			       c.cpu, (unsigned long long)c.blame.observed_ns / 1000,
			       (unsigned long long)c.blame.latency_ns / 1000);
		else
			printf("# CPU %d: timerlat's latest wake-up\n", c.cpu);
		culprit_show(stdout, &c);
	}
	trace_close(&trace);
	return ret || fflush(stdout) ? EXIT_FAILED : EXIT_OK;
}

int explain_run(int argc, char **argv)
{
	const char *task = NULL;
	bool json = false;
	long us = 0;
	int letter, status;
	char *text;

	message_name("rtxg latency explain");
	argv[0] = (char *)"rtxg latency explain";
	while ((letter = getopt_long(argc, argv, "i:t:Jh", options, NULL)) != -1) {
		switch (letter) {
		case 'i':
			if (value_number("-i", optarg, 1, 3600000000, &us))
				return EXIT_FAILED;
			break;
		case 't':
			task = optarg;
			break;
		case 'J':
			json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_OK;
		default:
			message_try_help();
			return EXIT_FAILED;
		}
	}
	if (argc - optind > 1) {
		message_error("'%s': one file is accepted", argv[optind + 1]);
		return EXIT_FAILED;
	}
	text = read_all(argv[optind]);
	if (!text)
		return EXIT_FAILED;
	/* all but the ends of lines is made fit for a terminal and for JSON */
	for (char *line = text, *end; line; line = end ? end + 1 : NULL) {
		end = strchr(line, '\n');
		if (end)
			*end = 0;
		line = text_clean(line) + strlen(line);
		if (end) {
			memset(line, ' ', (size_t)(end - line));
			*end = '\n';
		}
	}
	status = explain(text, task, (uint64_t)us * 1000, json);
	free(text);
	return status;
}
