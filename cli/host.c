// SPDX-License-Identifier: MIT
/*
 * host.c - `rtxg host`: the daemon (or the kernel module) that hosts the scheduler: which one
 * answers, and its life.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <rtxg.h>
#include <rtxg/control.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "list.h"
#include "list_command.h"
#include "message.h"
#include "reply.h"

static const struct option stop_options[] = { { "force", no_argument, NULL, 'f' },
					      COMMON_OPTIONS,
					      { 0 } };

static const struct column columns[] = {
	{ "HOST", "host", COLUMN_DEFAULT, "daemon or module" },
	{ "SCOPE", "scope", COLUMN_DEFAULT, "system: for all users; user: for one" },
	{ "PID", "pid", COLUMN_DEFAULT | COLUMN_RIGHT, "of rtxgd, which answers for it" },
	{ "UPTIME", "uptime_seconds", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "since it started (JSON: seconds)" },
	{ "FAIL", "fail_policy", COLUMN_DEFAULT,
	  "if rtxgd dies, programs go on unmanaged (open), wait (closed), or go on managed by the "
	  "module (managed)" },
	{ "SOCKET", "socket", COLUMN_DEFAULT, "where it listens" },
	{ "VERSION", "version", 0, "of the daemon" },
	{ "IDLEEXIT", "idle_exit_seconds", COLUMN_RIGHT,
	  "ends after that long without a task; 0 stays (JSON: seconds)" },
	{ "ADMIN", "administrator", COLUMN_BOOL, "whether you may change it" },
	{ 0 },
};

/* Whether the host speaks our version of the protocol. Complains. */
static bool is_ours(const json_t *reply)
{
	if (reply_u64(reply, "protocol") == RTXG_PROTOCOL)
		return true;
	message_error("the rtxgd at %s speaks version %llu of the protocol, this command version "
		      "%u; end that rtxgd ('rtxg host stop'), and start the one that was installed "
		      "with this command",
		      reply_string(reply, "socket"),
		      (unsigned long long)reply_u64(reply, "protocol"), RTXG_PROTOCOL);
	return false;
}

static void fill(struct list *list, const json_t *reply, bool json)
{
	(void)json;
	list_text(list, "HOST", reply_string(reply, "host"));
	list_text(list, "SCOPE", reply_string(reply, "scope"));
	list_format(list, "PID", "%.0f", reply_number(reply, "pid"));
	list_duration(list, "UPTIME", reply_u64(reply, "now_ns") - reply_u64(reply, "started_ns"));
	list_text(list, "FAIL", reply_string(reply, "fail_policy"));
	list_text(list, "SOCKET", reply_string(reply, "socket"));
	list_text(list, "VERSION", reply_string(reply, "version"));
	list_duration(list, "IDLEEXIT", reply_u64(reply, "idle_exit_ns"));
	list_bool(list, "ADMIN", reply_bool(json_object_get(reply, "you"), "administrator"));
}

static const struct list_command listing = {
	.help = "Usage: rtxg host show [OPTION...]\n\nShows the host that answers here.",
	.op = "hello",
	.name = "hosts",
	.columns = columns,
	.accept = is_ours,
	.fill = fill,
};

static int show(int argc, char **argv)
{
	return list_command(argc, argv, &listing);
}

static int start(int argc, char **argv)
{
	int ret = command_words(
		argc, argv, "Usage: rtxg host start\n\nStarts your own daemon if no host answers.",
		0, 0, "");

	if (ret >= 0)
		return ret;
	return control_start_host() ? EXIT_FAILED : EXIT_OK;
}

static int stop(int argc, char **argv)
{
	bool force = false;
	json_t *reply;
	int letter;

	while ((letter = getopt_long(argc, argv, "fh", stop_options, NULL)) != -1) {
		if (letter == 'h') {
			puts("Usage: rtxg host stop [-f]\n\nEnds the daemon.\n\n"
			     " -f, --force  also while tasks are open: they go on as the fail "
			     "policy says\n"
			     " -h, --help   this text");
			return EXIT_OK;
		}
		if (letter != 'f')
			return message_try_help();
		force = true;
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);
	reply = control_ask(json_pack("{s:s, s:b}", "op", "shutdown", "force", force), NULL);
	json_decref(reply);
	return reply ? EXIT_OK : EXIT_FAILED;
}

static int reload(int argc, char **argv)
{
	json_t *reply, *message;
	size_t index;
	int ret =
		command_words(argc, argv,
			      "Usage: rtxg host reload\n\nReads the configuration again and says "
			      "what changed. The "
			      "exit status is 1 if anything in it is wrong; the rest is in force.",
			      0, 0, "");

	if (ret >= 0)
		return ret;
	reply = control_ask(json_pack("{s:s}", "op", "reload"), NULL);
	json_array_foreach (json_object_get(reply, "changes"), index, message)
		puts(json_string_value(message) ? json_string_value(message) : "");
	json_array_foreach (json_object_get(reply, "messages"), index, message)
		puts(json_string_value(message) ? json_string_value(message) : "");
	ret = reply && !reply_u64(reply, "errors") ? EXIT_OK : EXIT_FAILED;
	json_decref(reply);
	return ret;
}

static const struct command commands[] = {
	{ "show", show, "which host answers here" },
	{ "start", start, "start your own daemon if none answers" },
	{ "reload", reload, "read the configuration again" },
	{ "stop", stop, "end the daemon" },
	{ NULL, NULL, NULL },
};

int cmd_host(int argc, char **argv)
{
	static const char summary[] = "The daemon or module that hosts the scheduler. Without a "
				      "command, 'show' is meant.";

	if (argc == 1) {
		message_name("rtxg host show");
		return show(argc, argv);
	}
	return command_dispatch("host", summary, commands, argc, argv);
}
