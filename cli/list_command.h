/* SPDX-License-Identifier: MIT */
/*
 * list_command.h - the commands that ask the host for objects and list them.
 */
#ifndef RTXG_CLI_LIST_COMMAND_H
#define RTXG_CLI_LIST_COMMAND_H

#include <jansson.h>
#include <stdbool.h>

#include "list.h"

struct list_command {
	const char *help;     /* of the command, up to the options of every list */
	const char *op;	      /* the request */
	const char *argument; /* member of the request that takes a name; NULL: no argument */
	const char *objects;  /* array in the reply; NULL: the reply itself is the one object */
	const char *name;     /* of the list in JSON */
	const struct column *columns;
	/* False, after complaining, where the reply is not to be listed; NULL: each is listed. */
	bool (*accept)(const json_t *reply);
	/* Fills the cells of an object's row. */
	void (*fill)(struct list *list, const json_t *object, bool json);
};

/* Reads the options, asks the host, prints the list. Returns the exit status. */
int list_command(int argc, char **argv, const struct list_command *command);

#endif
