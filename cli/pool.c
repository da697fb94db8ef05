// SPDX-License-Identifier: MIT
/*
 * pool.c - `rtxg pool`: several like GPUs behind one k-FMLP lock; which of them a program should
 * take next.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
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

static const struct column columns[] = {
	{ "POOL", "pool", COLUMN_DEFAULT, "name" },
	{ "GPUS", "gpus", COLUMN_DEFAULT, "its GPUs" },
	{ "TASKS", "tasks", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "that hold one of its GPUs or wait for one" },
	{ "ADVICE", "advice", COLUMN_DEFAULT, "the GPU that a request would get first" },
	{ 0 },
};

static int create(int argc, char **argv)
{
	static const struct option options[] = { { "new", no_argument, NULL, 'n' },
						 COMMON_OPTIONS,
						 { 0 } };
	json_t *request, *gpus, *reply;
	bool new_accepted = false;
	int letter;

	while ((letter = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (letter == 'h') {
			puts("Usage: rtxg pool create [OPTION...] NAME GPU...\n\n"
			     "Puts GPUs into a pool.\n\n"
			     "     --new                  a GPU may be one that no program has "
			     "opened "
			     "yet\n"
			     " -h, --help                 this text");
			return EXIT_OK;
		}
		if (letter != 'n')
			return message_try_help();
		new_accepted = true;
	}
	if (argc - optind < 2)
		return message_usage(
			"missing name; say a pool and at least one GPU (see 'rtxg gpu ls')");
	if (control_start_host())
		return EXIT_FAILED;
	for (int i = optind + 1; i < argc && !new_accepted; i++)
		if (!gpu_name_known("GPU", argv[i], true))
			return EXIT_FAILED;
	gpus = json_array();
	for (int i = optind + 1; i < argc; i++)
		json_array_append_new(gpus, json_string(argv[i]));
	request = json_pack("{s:s, s:s, s:o}", "op", "pool-create", "pool", argv[optind], "gpus",
			    gpus);
	reply = control_ask(request, NULL);
	json_decref(reply);
	return reply ? EXIT_OK : EXIT_FAILED;
}

static void fill(struct list *list, const json_t *pool, bool json)
{
	(void)json;
	list_text(list, "POOL", reply_string(pool, "pool"));
	list_words(list, "GPUS", reply_words(pool, "gpus"));
	list_format(list, "TASKS", "%.0f", reply_number(pool, "members"));
	list_text(list, "ADVICE", reply_string(pool, "advice"));
}

static const struct list_command listing = {
	.help = "Usage: rtxg pool ls [OPTION...]\n\nLists pools of GPUs.",
	.op = "pool-list",
	.objects = "pools",
	.name = "pools",
	.columns = columns,
	.fill = fill,
};

static int ls(int argc, char **argv)
{
	return list_command(argc, argv, &listing);
}

static int rm(int argc, char **argv)
{
	int ret = command_words(
		argc, argv,
		"Usage: rtxg pool rm NAME...\n\nRemoves pools that no task holds or waits for.", 1,
		INT_MAX, "missing name; say which pool (see 'rtxg pool ls')");

	return ret < 0 ? control_remove("pool-remove", "pool", argv + optind) : ret;
}

static const struct command commands[] = {
	{ "create", create, "make one: rtxg pool create all 0 1" },
	{ "ls", ls, "list them, and which GPU of each to take next" },
	{ "rm", rm, "remove one that no task uses" },
	{ NULL, NULL, NULL },
};

int cmd_pool(int argc, char **argv)
{
	return command_dispatch("pool", "Pools: several like GPUs, one of which a program takes.",
				commands, argc, argv);
}
