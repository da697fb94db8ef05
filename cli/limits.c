// SPDX-License-Identifier: MIT
/*
 * limits.c - `rtxg limits`: what is still free to reserve on each GPU; with -m, as chrt has it, the
 * ranges of all values; with -u what each user has of the host, and may have.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "control.h"
#include "cpu_policy.h"
#include "list.h"
#include "message.h"
#include "reply.h"

static const struct option options[] = {
	{ "max", no_argument, NULL, 'm' }, { "users", no_argument, NULL, 'u' }, LIST_OPTIONS, { 0 }
};

static const struct column free_columns[] = {
	{ "GPU", "gpu", COLUMN_DEFAULT, "name" },
	{ "RESERVED", "reserved", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "sum of the reservations (JSON: 0..1)" },
	{ "FREE", "free", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "what may still be reserved (JSON: 0..1)" },
	{ 0 },
};

static const struct column range_columns[] = {
	{ "VALUE", "value", COLUMN_DEFAULT, "which" },
	{ "MIN", "min", COLUMN_DEFAULT | COLUMN_RIGHT, "least" },
	{ "MAX", "max", COLUMN_DEFAULT | COLUMN_RIGHT, "most" },
	{ "DEFAULT", "default", COLUMN_DEFAULT | COLUMN_RIGHT, "if nothing is said" },
	{ "USED", "used", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "of a number of objects: how many there are" },
	{ 0 },
};

/* A number that a user has, and below it in JSON the most of it. */
#define QUOTA(heading, key, help)                                    \
	{ heading, key, COLUMN_DEFAULT | COLUMN_RIGHT, help },       \
	{                                                            \
		heading "-MAX", key "_max", COLUMN_RIGHT, "the most" \
	}

static const struct column user_columns[] = {
	{ "USER", "uid", COLUMN_DEFAULT | COLUMN_RIGHT, "number of the user" },
	{ "OWNER", "owner", 0,
	  "owner of that number and of others, which count as one (/etc/subuid)" },
	QUOTA("TASKS", "tasks", "open tasks"),
	QUOTA("CONNECTIONS", "connections", "connections to the daemon; each task has one"),
	QUOTA("GPUS", "gpus", "names of GPUs that this user's tasks were the first to use"),
	QUOTA("ACCOUNTS", "accounts", "vGPUs on GPUs that this user's tasks were the first in"),
	QUOTA("CGROUPS", "cgroups", "cgroups that this user bound to vGPUs"),
	QUOTA("UNREAD", "unread_bytes", "bytes of replies that the user's programs have not read"),
	QUOTA("DESCRIPTORS", "descriptors", "sent to the daemon, and not closed yet"),
	{ "REQUESTS", "requests", COLUMN_RIGHT, "served so far" },
	{ "CPU", "cpu_seconds", COLUMN_DEFAULT | COLUMN_RIGHT,
	  "the daemon's time that they took (JSON: seconds)" },
	{ "QUOTA", "quota", COLUMN_DEFAULT | COLUMN_BOOL, "whether the quotas hold for this user" },
	{ 0 },
};

enum kind { KIND_COUNT, KIND_SHARE, KIND_TIME };

static void range_cell(struct list *list, const char *column, const json_t *value, const char *key,
		       enum kind kind)
{
	double number = reply_number(value, key);

	if (!json_object_get(value, key))
		return;
	if (kind == KIND_SHARE)
		list_share(list, column, number / 1e6);
	else if (kind == KIND_TIME)
		list_duration(list, column, (uint64_t)number);
	else
		list_format(list, column, "%.0f", number);
}

static void add_ranges(struct list *list, const json_t *reply)
{
	static const struct {
		const char *name, *key;
		enum kind kind;
	} values[] = {
		{ "gpus", "gpus", KIND_COUNT },	      { "vgpus", "vgpus", KIND_COUNT },
		{ "tasks", "tasks", KIND_COUNT },     { "pools", "pools", KIND_COUNT },
		{ "min", "min_ppm", KIND_SHARE },     { "max", "max_ppm", KIND_SHARE },
		{ "weight", "weight", KIND_COUNT },   { "priority", "priority", KIND_COUNT },
		{ "period", "period_ns", KIND_TIME },
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		const json_t *value = json_object_get(reply, values[i].key);

		if (!value)
			continue;
		list_row(list);
		list_text(list, "VALUE", values[i].name);
		range_cell(list, "MIN", value, "min", values[i].kind);
		range_cell(list, "MAX", value, "max", values[i].kind);
		range_cell(list, "DEFAULT", value, "default", values[i].kind);
		range_cell(list, "USED", value, "used", values[i].kind);
	}
	/* The CPU's side is the kernel's: what chrt -m prints. */
	for (int policy = SCHED_FIFO; policy <= SCHED_RR; policy++) {
		list_row(list);
		list_format(list, "VALUE", "cpu-priority (%s)", cpu_policy_name(policy));
		list_format(list, "MIN", "%d", sched_get_priority_min(policy));
		list_format(list, "MAX", "%d", sched_get_priority_max(policy));
	}
}

static void add_users(struct list *list, const json_t *reply)
{
	static const char *const quotas[][3] = {
		{ "TASKS", "TASKS-MAX", "tasks" },
		{ "CONNECTIONS", "CONNECTIONS-MAX", "connections" },
		{ "GPUS", "GPUS-MAX", "gpus" },
		{ "ACCOUNTS", "ACCOUNTS-MAX", "accounts" },
		{ "CGROUPS", "CGROUPS-MAX", "cgroups" },
		{ "UNREAD", "UNREAD-MAX", "unread_bytes" },
		{ "DESCRIPTORS", "DESCRIPTORS-MAX", "descriptors" },
	};
	const json_t *user;
	size_t index;

	json_array_foreach (json_object_get(reply, "users"), index, user) {
		list_row(list);
		list_format(list, "USER", "%.0f", reply_number(user, "uid"));
		if (*reply_string(user, "owner"))
			list_text(list, "OWNER", reply_string(user, "owner"));
		for (size_t i = 0; i < sizeof(quotas) / sizeof(*quotas); i++) {
			const json_t *value = json_object_get(user, quotas[i][2]);

			list_format(list, quotas[i][0], "%.0f", reply_number(value, "used"));
			list_format(list, quotas[i][1], "%.0f", reply_number(value, "max"));
		}
		list_format(list, "REQUESTS", "%.0f", reply_number(user, "requests"));
		list_duration(list, "CPU", (uint64_t)reply_number(user, "cost_ns"));
		list_bool(list, "QUOTA", json_is_true(json_object_get(user, "quota")));
	}
}

int cmd_limits(int argc, char **argv)
{
	struct list_options list_options = { 0 };
	bool ranges = false, users = false;
	json_t *reply, *device;
	struct list *list;
	size_t index;
	int letter;

	while ((letter = getopt_long(argc, argv, "mu" LIST_LETTERS, options, NULL)) != -1) {
		if (letter == 'h') {
			fputs("Usage: rtxg limits [OPTION...]\n\n"
			      "Shows what is still free to reserve on each GPU.\n\n"
			      " -m, --max             the ranges of all values instead\n"
			      " -u, --users           what each user has of the daemon, and may "
			      "have\n" LIST_HELP,
			      stdout);
			list_help(free_columns);
			fputs("\nWith -m:", stdout);
			list_help(range_columns);
			fputs("\nWith -u:", stdout);
			list_help(user_columns);
			return EXIT_OK;
		}
		if (letter == 'm')
			ranges = true;
		else if (letter == 'u')
			users = true;
		else if (!list_option(&list_options, letter))
			return message_try_help();
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);
	list = list_new("limits",
			ranges	? range_columns
			: users ? user_columns
				: free_columns,
			&list_options);
	if (!list)
		return EXIT_USAGE;
	reply = control_ask(json_pack("{s:s}", "op", "limits"), NULL);
	if (!reply) {
		list_drop(list);
		return EXIT_FAILED;
	}
	if (ranges) {
		add_ranges(list, reply);
	} else if (users) {
		add_users(list, reply);
	} else {
		json_array_foreach (json_object_get(reply, "devices"), index, device) {
			list_row(list);
			list_text(list, "GPU", reply_string(device, "gpu"));
			list_share(list, "RESERVED", reply_number(device, "reserved_ppm") / 1e6);
			list_share(list, "FREE", reply_number(device, "available_ppm") / 1e6);
		}
	}
	json_decref(reply);
	return list_print(list);
}
