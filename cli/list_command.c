// SPDX-License-Identifier: MIT
/*
 * list_command.c - the commands that ask the host for objects and list them: options, request and
 * table are the same for all, a command adds its columns.
 */
#include <getopt.h>
#include <stdio.h>

#include "control.h"
#include "list_command.h"
#include "message.h"

static void add(struct list *list, const struct list_command *command, const json_t *object,
		bool json)
{
	list_row(list);
	command->fill(list, object, json);
}

int list_command(int argc, char **argv, const struct list_command *command)
{
	static const struct option long_options[] = { LIST_OPTIONS, { 0 } };
	struct list_options options = { 0 };
	int letter, most = command->argument ? 1 : 0;
	json_t *request, *reply, *object;
	struct list *list;
	size_t index;

	while ((letter = getopt_long(argc, argv, LIST_LETTERS, long_options, NULL)) != -1) {
		if (letter == 'h') {
			printf("%s\n\n" LIST_HELP, command->help);
			list_help(command->columns);
			return EXIT_OK;
		}
		if (!list_option(&options, letter))
			return message_try_help();
	}
	if (argc - optind > most)
		return message_usage(most ? "'%s': one name is accepted, this is the second"
					  : "'%s': no argument is accepted",
				     argv[optind + most]);
	list = list_new(command->name, command->columns, &options);
	if (!list)
		return EXIT_USAGE;
	request = json_pack("{s:s}", "op", command->op);
	if (optind < argc)
		json_object_set_new(request, command->argument, json_string(argv[optind]));
	reply = control_ask(request, NULL);
	if (!reply || (command->accept && !command->accept(reply))) {
		json_decref(reply);
		list_drop(list);
		return EXIT_FAILED;
	}
	if (!command->objects)
		add(list, command, reply, options.json);
	json_array_foreach (json_object_get(reply, command->objects), index, object)
		add(list, command, object, options.json);
	json_decref(reply);
	return list_print(list);
}
