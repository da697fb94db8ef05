// SPDX-License-Identifier: MIT
/*
 * report.c - `rtxg report`: what happened in a stretch of time, as one page of HTML that needs
 * nothing else: shares against what was reserved and entitled, who held the GPU, waits against
 * their bound. The numbers are the host's; the page (report.html) draws them.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "message.h"
#include "reply.h"
#include "report_html.h"
#include "value.h"

#define MARK "@DATA@"

static const struct option options[] = {
	{ "duration", required_argument, NULL, 'd' },
	{ "gpu", required_argument, NULL, 'g' },
	{ "output", required_argument, NULL, 'o' },
	COMMON_OPTIONS,
	{ 0 },
};

static void print_help(void)
{
	fputs("Usage: rtxg report [OPTION...]\n\n"
	      "Records for a while, and writes one page of HTML: shares against what was reserved, "
	      "who held the GPU,\n"
	      "and how long work waited.\n\n"
	      " -d, --duration TIME   for how long, 1s to 60s (default 10s)\n"
	      " -g, --gpu NAME        this GPU only\n"
	      " -o, --output FILE     into that file (default: standard output)\n"
	      " -h, --help            this text\n",
	      stdout);
}

/* An answer without what only says that it is one; NULL after complaining. */
static json_t *ask(json_t *request)
{
	json_t *reply = control_ask(request, NULL);

	json_object_del(reply, "ok");
	json_object_del(reply, "op");
	return reply;
}

static json_t *ask_since(const char *op, uint64_t since)
{
	return ask(json_pack("{s:s, s:I}", "op", op, "since", (json_int_t)since));
}

static void pass(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000),
			      .tv_nsec = (long)(ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

/* All that the page shows; NULL after complaining. */
static json_t *record(uint64_t duration_ns, const char *gpu)
{
	json_t *history = ask_since("history", INT64_MAX), *timeline = NULL, *before = NULL,
	       *after = NULL, *data = NULL;
	time_t now = time(NULL);
	uint64_t slot = reply_u64(history, "next"), event;
	char date[32];

	timeline = history ? ask_since("timeline", INT64_MAX) : NULL;
	event = reply_u64(timeline, "next");
	before = timeline ? ask(json_pack("{s:s}", "op", "metrics")) : NULL;
	json_decref(history);
	json_decref(timeline);
	if (!before)
		return NULL;
	pass(duration_ns);
	after = ask(json_pack("{s:s}", "op", "metrics"));
	history = after ? ask_since("history", slot) : NULL;
	timeline = history ? ask_since("timeline", event) : NULL;
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", localtime(&now));
	if (timeline && json_array_size(json_object_get(history, "times_ns")) < 2)
		message_error("no program used a GPU in that time: nothing was recorded");
	else if (timeline)
		data = json_pack("{s:s, s:s?, s:O, s:O, s:O, s:O}", "date", date, "gpu", gpu,
				 "before", before, "after", after, "history", history, "timeline",
				 timeline);
	json_decref(before);
	json_decref(after);
	json_decref(history);
	json_decref(timeline);
	return data;
}

/* Inside of a script element "</" would end it, whatever stands around. */
static int put_data(const json_t *data, FILE *out)
{
	char *text = json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII);

	if (!text)
		return -ENOMEM;
	for (const char *at = text; *at; at++)
		if (*at == '<')
			fputs("\\u003c", out);
		else
			fputc(*at, out);
	free(text);
	return 0;
}

static int write_page(const json_t *data, FILE *out)
{
	const char *mark = strstr(report_html, MARK);

	fwrite(report_html, 1, (size_t)(mark - report_html), out);
	if (put_data(data, out))
		return -ENOMEM;
	fputs(mark + strlen(MARK), out);
	return ferror(out) ? -EIO : 0;
}

int cmd_report(int argc, char **argv)
{
	const char *gpu = NULL, *path = NULL;
	uint64_t duration_ns = 10000000000ull;
	int letter, error;
	json_t *data;
	FILE *out;

	while ((letter = getopt_long(argc, argv, "d:g:o:h", options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			print_help();
			return EXIT_OK;
		case 'd':
			if (value_duration("--duration", optarg, &duration_ns))
				return EXIT_USAGE;
			if (duration_ns < 1000000000 || duration_ns > 60000000000ull) {
				message_error("--duration: '%s' is not accepted; accepted: 1s to "
					      "60s, which is what the host remembers",
					      optarg);
				return EXIT_USAGE;
			}
			break;
		case 'g':
			gpu = optarg;
			break;
		case 'o':
			path = optarg;
			break;
		default:
			return message_try_help();
		}
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);
	/* Before the time is spent. */
	out = path ? fopen(path, "we") : stdout;
	if (!out) {
		message_error("--output: %s cannot be written: %s", path, strerror(errno));
		return EXIT_FAILED;
	}
	data = record(duration_ns, gpu);
	error = data ? write_page(data, out) : 0;
	json_decref(data);
	if ((path ? fclose(out) : fflush(out)) && !error)
		error = -errno;
	if (error)
		message_error("writing: %s", strerror(-error));
	return data && !error ? EXIT_OK : EXIT_FAILED;
}
