// SPDX-License-Identifier: MIT
/*
 * gpu.c - `rtxg gpu`: list the GPUs that the host knows and change how each is shared among its
 * vGPUs.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rtxg.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "gpu_name.h"
#include "list.h"
#include "list_command.h"
#include "message.h"
#include "reply.h"
#include "rtxg_core.h"
#include "value.h"

enum {
	OPT_POLICY = 256,
	OPT_OVERRUN,
	OPT_PERIOD,
	OPT_WINDOW,
	OPT_BAND_WAIT,
	OPT_THINK,
	OPT_REVOKE,
	OPT_AHEAD,
	OPT_EARLY,
	OPT_SWITCH,
	OPT_ALL,
	OPT_NEW
};

static const struct option set_options[] = {
	{ "policy", required_argument, NULL, OPT_POLICY },
	{ "overrun", required_argument, NULL, OPT_OVERRUN },
	{ "period", required_argument, NULL, OPT_PERIOD },
	{ "window", required_argument, NULL, OPT_WINDOW },
	{ "band-wait", required_argument, NULL, OPT_BAND_WAIT },
	{ "think", required_argument, NULL, OPT_THINK },
	{ "revoke-timeout", required_argument, NULL, OPT_REVOKE },
	{ "ahead", required_argument, NULL, OPT_AHEAD },
	{ "early", required_argument, NULL, OPT_EARLY },
	{ "switch-cost", required_argument, NULL, OPT_SWITCH },
	{ "all", no_argument, NULL, OPT_ALL },
	{ "new", no_argument, NULL, OPT_NEW },
	COMMON_OPTIONS,
	{ 0 },
};

static const struct column columns[] = {
	{ "GPU", "gpu", COLUMN_DEFAULT, "name" },
	{ "POLICY", "policy", COLUMN_DEFAULT,
	  "how its vGPUs share it (rtxg gpu set --help lists the policies)" },
	{ "RESERVED", "reserved", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "sum of the reservations (JSON: 0..1)" },
	{ "FREE", "free", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "what may still be reserved (JSON: 0..1)" },
	{ "TASKS", "tasks", COLUMN_DEFAULT | COLUMN_RIGHT, "tasks on it" },
	{ "LEVERS", "levers", COLUMN_DEFAULT, "how a decision reaches it" },
	{ "OVERRUN", "overrun", 0, "what happens to a credit out of bounds" },
	{ "PERIOD", "period_seconds", COLUMN_RIGHT, "replenishment of credits (JSON: seconds)" },
	{ "WINDOW", "window_seconds", COLUMN_RIGHT,
	  "over which shares are compared (JSON: seconds)" },
	{ "BANDWAIT", "band_wait_seconds", COLUMN_RIGHT,
	  "how long the GPU is left free for others (JSON: seconds)" },
	{ "THINK", "think_seconds", COLUMN_RIGHT,
	  "how long the GPU is kept for a vGPU that was just busy (JSON: seconds, -1 never)" },
	{ "REVOKE", "revoke_timeout_seconds", COLUMN_RIGHT,
	  "after which a permit is taken by force (JSON: seconds, -1 never)" },
	{ "AHEAD", "ahead_seconds", COLUMN_RIGHT,
	  "how long before a launch is likely to end the next task is woken (JSON: seconds)" },
	{ "EARLY", "early_seconds", COLUMN_RIGHT,
	  "how long before that end it gets its permit (JSON: seconds)" },
	{ "SWITCH", "switch_cost", COLUMN_RIGHT,
	  "measured cost of switching, never promised (JSON: 0..1)" },
	{ "ORIGIN", "origin", 0, "builtin, config, runtime, or task: named by a program" },
	{ 0 },
};

/* A time that may be "never", as the protocol writes it: -1. */
static int take_time(json_t *request, const char *option, const char *key, bool may_never)
{
	uint64_t ns;

	if (may_never && strcmp(optarg, "never") == 0) {
		json_object_set_new(request, key, json_integer(-1));
		return 0;
	}
	if (value_duration(option, optarg, &ns))
		return -EINVAL;
	if (ns == 0) {
		message_error("%s: '%s' is not accepted; accepted: more than zero%s", option,
			      optarg, may_never ? ", or 'never'" : "");
		return -EINVAL;
	}
	json_object_set_new(request, key, json_integer((json_int_t)ns));
	return 0;
}

/* How long before the end of a launch something is done; 0: it is not. */
static int take_ahead(json_t *request, const char *option, const char *key)
{
	uint64_t ns = 0;

	if (strcmp(optarg, "0") && value_duration(option, optarg, &ns))
		return -EINVAL;
	if (ns > RTXG_AHEAD_MAX_NS) {
		message_error("%s: '%s' is not accepted; accepted: 0 to 1ms, such as 60us", option,
			      optarg);
		return -EINVAL;
	}
	json_object_set_new(request, key, json_integer((json_int_t)ns));
	return 0;
}

static int take_value(json_t *request, int letter)
{
	uint32_t ppm;

	switch (letter) {
	case OPT_POLICY:
		json_object_set_new(request, "policy", json_string(optarg));
		return 0;
	case OPT_OVERRUN:
		json_object_set_new(request, "overrun", json_string(optarg));
		return 0;
	case OPT_PERIOD:
		return take_time(request, "--period", "period_ns", false);
	case OPT_WINDOW:
		return take_time(request, "--window", "window_ns", false);
	case OPT_BAND_WAIT:
		return take_time(request, "--band-wait", "band_wait_ns", false);
	case OPT_THINK:
		return take_time(request, "--think", "think_ns", true);
	case OPT_REVOKE:
		return take_time(request, "--revoke-timeout", "revoke_timeout_ns", true);
	case OPT_AHEAD:
		return take_ahead(request, "--ahead", "ahead_ns");
	case OPT_EARLY:
		return take_ahead(request, "--early", "early_ns");
	case OPT_SWITCH:
		if (value_share("--switch-cost", optarg, &ppm))
			return -EINVAL;
		json_object_set_new(request, "switch_ppm", json_integer(ppm));
		return 0;
	}
	return -EINVAL;
}

/* The policies that read this parameter, as "a, b". */
static const char *readers(uint32_t parameter)
{
	static char text[256];
	size_t length = 0;

	*text = '\0';
	for (uint32_t i = 0; i < RTXG_GPU_POLICIES && length < sizeof(text); i++)
		if (rtxg_gpu_policy_reads(i) & parameter)
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s",
						   length ? ", " : "", rtxg_gpu_policy_name(i));
	return text;
}

static void set_help(void)
{
	static const struct {
		const char *option;
		uint32_t parameter;
		const char *text;
	} times[] = {
		{ "--overrun WHAT", RTXG_READS_OVERRUN,
		  "forgive (as Gdev) or charge what was used beyond the credit" },
		{ "--period TIME", RTXG_READS_PERIOD, "replenishment of credits (default 30ms)" },
		{ "--window TIME", RTXG_READS_WINDOW,
		  "over which shares are compared (default 1s)" },
		{ "--band-wait TIME", RTXG_READS_BAND_WAIT,
		  "how long the GPU is left free for others (default 500us)" },
		{ "--think TIME|never", RTXG_READS_THINK,
		  "how long it is kept for a vGPU that was just busy (default 2ms)" },
	};

	fputs("Usage: rtxg gpu set [OPTION...] NAME\n       rtxg gpu set [OPTION...] --all\n\n"
	      "Changes how a GPU is shared among its vGPUs, at once.\n\n"
	      "     --policy NAME          one of these",
	      stdout);
	printf(" (default %s):\n", rtxg_gpu_policy_name(RTXG_GPU_POLICY_DEFAULT));
	for (uint32_t i = 0; i < RTXG_GPU_POLICIES; i++)
		printf("       %-8s %s\n", rtxg_gpu_policy_name(i), rtxg_gpu_policy_summary(i));
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		printf("     %-22s %s\n%28sfor: %s\n", times[i].option, times[i].text, "",
		       readers(times[i].parameter));
	fputs("     --revoke-timeout TIME|never  after which a permit is taken by force "
	      "(default 2s)\n"
	      "     --ahead TIME           wakes the next task so long before a launch is likely "
	      "to end\n"
	      "                            (default 0: not; 60us where CPUs are to spare)\n"
	      "     --early TIME           lets it launch so long before that end, if it is of the "
	      "same vGPU\n"
	      "                            (default 0: not before the end)\n"
	      "     --switch-cost SHARE    measured cost of switching, which no reservation may "
	      "use\n"
	      "                            (default 0%)\n"
	      "     --all                  all GPUs, present and future\n"
	      "     --new                  NAME may be a GPU that no program has opened yet\n"
	      " -h, --help                 this text\n",
	      stdout);
}

static int set(int argc, char **argv)
{
	json_t *request = json_pack("{s:s}", "op", "gpu-set"), *reply;
	bool all = false, new_accepted = false;
	int letter, error;

	while ((letter = getopt_long(argc, argv, "h", set_options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			set_help();
			json_decref(request);
			return EXIT_OK;
		case OPT_ALL:
			all = true;
			continue;
		case OPT_NEW:
			new_accepted = true;
			continue;
		case '?':
			json_decref(request);
			return message_try_help();
		}
		if (take_value(request, letter)) {
			json_decref(request);
			return EXIT_USAGE;
		}
	}
	error = json_object_size(request) == 1 ? 1
		: optind + 1 < argc	       ? 2
		: (optind < argc) == all       ? 3
					       : 0;
	if (error) {
		json_decref(request);
		if (error == 1)
			return message_usage("nothing to change: say --policy or another option");
		if (error == 2)
			return message_usage("'%s': one name is accepted, this is the second",
					     argv[optind + 1]);
		return message_usage(
			"missing name; say which GPU, by a name (see 'rtxg gpu ls') or --all");
	}
	if (!all)
		json_object_set_new(request, "gpu", json_string(argv[optind]));
	if (control_start_host() ||
	    (!all && !new_accepted && !gpu_name_known("NAME", argv[optind], true))) {
		json_decref(request);
		return EXIT_FAILED;
	}
	reply = control_ask(request, NULL);
	json_decref(reply);
	return reply ? EXIT_OK : EXIT_FAILED;
}

static void time_or_never(struct list *list, bool json, const char *column, const json_t *gpu,
			  const char *key)
{
	if (json_integer_value(json_object_get(gpu, key)) < 0)
		list_text(list, column, json ? "-1" : "never");
	else
		list_duration(list, column, reply_u64(gpu, key));
}

static void fill(struct list *list, const json_t *gpu, bool json)
{
	list_text(list, "GPU", reply_string(gpu, "gpu"));
	list_text(list, "POLICY", reply_string(gpu, "policy"));
	list_share(list, "RESERVED", reply_number(gpu, "reserved_ppm") / 1e6);
	list_share(list, "FREE", reply_number(gpu, "available_ppm") / 1e6);
	list_format(list, "TASKS", "%.0f", reply_number(gpu, "tasks"));
	list_words(list, "LEVERS", reply_words(gpu, "levers"));
	list_text(list, "OVERRUN", reply_string(gpu, "overrun"));
	list_duration(list, "PERIOD", reply_u64(gpu, "period_ns"));
	list_duration(list, "WINDOW", reply_u64(gpu, "window_ns"));
	list_duration(list, "BANDWAIT", reply_u64(gpu, "band_wait_ns"));
	time_or_never(list, json, "THINK", gpu, "think_ns");
	time_or_never(list, json, "REVOKE", gpu, "revoke_timeout_ns");
	list_duration(list, "AHEAD", reply_u64(gpu, "ahead_ns"));
	list_duration(list, "EARLY", reply_u64(gpu, "early_ns"));
	list_share(list, "SWITCH", reply_number(gpu, "switch_ppm") / 1e6);
	list_text(list, "ORIGIN", reply_string(gpu, "origin"));
}

static const struct list_command listing = {
	.help = "Usage: rtxg gpu ls [OPTION...]\n\n"
		"Lists the GPUs that the host knows: those configured, and those that a program "
		"has opened.",
	.op = "gpu-list",
	.objects = "gpus",
	.name = "gpus",
	.columns = columns,
	.fill = fill,
};

static int ls(int argc, char **argv)
{
	return list_command(argc, argv, &listing);
}

static const struct command commands[] = {
	{ "ls", ls, "list them" },
	{ "set", set, "change how one is shared: rtxg gpu set 0 --policy NAME" },
	{ NULL, NULL, NULL },
};

int cmd_gpu(int argc, char **argv)
{
	return command_dispatch("gpu", "GPUs, and the policy by which vGPUs share each.", commands,
				argc, argv);
}
