// SPDX-License-Identifier: MIT
/*
 * pool.c - `rtxg pool`: several like GPUs behind one k-FMLP lock; which of them a program should
 * take next.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rtxg.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "list.h"
#include "message.h"
#include "reply.h"

static const struct option list_long[] = { LIST_OPTIONS, { 0 } };
static const struct option plain_options[] = { COMMON_OPTIONS, { 0 } };

static const struct column columns[] = {
	{ "POOL", "pool", COLUMN_DEFAULT, "name" },
	{ "GPUS", "gpus", COLUMN_DEFAULT, "its GPUs" },
	{ "TASKS", "tasks", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "that hold one of its GPUs or wait for one" },
	{ "ADVICE", "advice", COLUMN_DEFAULT, "the GPU that a request would get first" },
	{ 0 },
};

/* Takes --help and wants at least one name; -1 to go on. */
static int names_only(int argc, char **argv, const char *help, int least)
{
	int letter = getopt_long(argc, argv, "h", plain_options, NULL);

	if (letter == 'h') {
		puts(help);
		return EXIT_OK;
	}
	if (letter != -1)
		return message_try_help();
	return argc - optind < least ? message_usage(least > 1 ? "say a name and at least one GPU"
							       : "which pool? A name is missing")
				     : -1;
}

static int create(int argc, char **argv)
{
	int ret = names_only(argc, argv,
			     "Usage: rtxg pool create NAME GPU...\n\nPuts GPUs into a pool.", 2);
	json_t *request, *gpus, *reply;

	if (ret >= 0)
		return ret;
	ret = rtx_host_start();
	if (ret) {
		message_error("no host: %s", rtx_strerror()[0] ? rtx_strerror() : strerror(-ret));
		return EXIT_FAILED;
	}
	gpus = json_array();
	for (int i = optind + 1; i < argc; i++)
		json_array_append_new(gpus, json_string(argv[i]));
	request = json_pack("{s:s, s:s, s:o}", "op", "pool-create", "pool", argv[optind], "gpus",
			    gpus);
	reply = control_ask(request, NULL);
	json_decref(reply);
	return reply ? EXIT_OK : EXIT_FAILED;
}

static int ls(int argc, char **argv)
{
	struct list_options options = { 0 };
	json_t *reply, *pool, *gpu;
	struct list *list;
	size_t index, at;
	int letter;

	while ((letter = getopt_long(argc, argv, LIST_LETTERS, list_long, NULL)) != -1) {
		if (letter == 'h') {
			fputs("Usage: rtxg pool ls [OPTION...]\n\nLists pools of "
			      "GPUs.\n\n" LIST_HELP,
			      stdout);
			list_help(columns);
			return EXIT_OK;
		}
		if (!list_option(&options, letter))
			return message_try_help();
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);
	list = list_new("pools", columns, &options);
	if (!list)
		return EXIT_USAGE;
	reply = control_ask(json_pack("{s:s}", "op", "pool-list"), NULL);
	if (!reply) {
		list_drop(list);
		return EXIT_FAILED;
	}
	json_array_foreach (json_object_get(reply, "pools"), index, pool) {
		char *gpus = NULL;
		size_t size;
		FILE *text = open_memstream(&gpus, &size);

		json_array_foreach (json_object_get(pool, "gpus"), at, gpu)
			if (text)
				fprintf(text, "%s%s", at ? "," : "",
					json_string_value(gpu) ? json_string_value(gpu) : "?");
		if (text)
			fclose(text);
		list_row(list);
		list_text(list, "POOL", reply_string(pool, "pool"));
		list_text(list, "GPUS", gpus ? gpus : "");
		list_format(list, "TASKS", "%.0f", reply_number(pool, "members"));
		list_text(list, "ADVICE", reply_string(pool, "advice"));
		free(gpus);
	}
	json_decref(reply);
	return list_print(list);
}

static int rm(int argc, char **argv)
{
	int ret = names_only(
		argc, argv,
		"Usage: rtxg pool rm NAME...\n\nRemoves pools that no task holds or waits for.", 1);
	int status = EXIT_OK;

	if (ret >= 0)
		return ret;
	for (; optind < argc; optind++) {
		json_t *reply = control_ask(
			json_pack("{s:s, s:s}", "op", "pool-remove", "pool", argv[optind]), NULL);

		if (!reply)
			status = EXIT_FAILED;
		json_decref(reply);
	}
	return status;
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
