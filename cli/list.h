/* SPDX-License-Identifier: MIT */
/*
 * list.h - lists in the manner of util-linux.
 */
#ifndef RTXG_CLI_LIST_H
#define RTXG_CLI_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "command.h"

#define LIST_LETTERS "Jno:h"
#define LIST_OPTIONS                                                                  \
	{ "json", no_argument, NULL, 'J' }, { "noheadings", no_argument, NULL, 'n' }, \
		{ "output", required_argument, NULL, 'o' }, COMMON_OPTIONS
#define LIST_HELP                                                                               \
	" -J, --json            print JSON\n"                                                   \
	" -n, --noheadings      no line of headings\n"                                          \
	" -o, --output COLUMNS  these columns, comma-separated; +COLUMNS adds to the default\n" \
	" -h, --help            this text\n"

enum column_flags {
	COLUMN_DEFAULT = 1, /* shown without -o */
	COLUMN_RIGHT = 2,   /* a number: to the right, and a number in JSON */
	COLUMN_BOOL = 4,    /* "yes" or "no"; true or false in JSON */
	COLUMN_CUT = 8,	    /* is cut where the terminal ends, and not wrapped */
};

struct column {
	const char *name; /* heading, and what -o takes */
	const char *json; /* key in JSON: says the unit */
	unsigned int flags;
	const char *help;
};

struct list_options {
	bool json;
	bool noheadings;
	const char *columns; /* -o */
};

struct list;
/* True if the option letter was one of a list's and has been stored. */
bool list_option(struct list_options *options, int letter);
/* NULL after complaining about an unknown column. columns ends with a NULL name. */
struct list *list_new(const char *json_name, const struct column *columns,
		      const struct list_options *options);
void list_row(struct list *list);
/* A cell of the current row, by the column's heading; does nothing if the column is not shown. */
void list_text(struct list *list, const char *column, const char *text);
/* As list_text, then frees the text; NULL is an empty cell. */
void list_words(struct list *list, const char *column, char *text);
void list_format(struct list *list, const char *column, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* 0..1; JSON: the same number */
void list_share(struct list *list, const char *column, double share);
void list_duration(struct list *list, const char *column, uint64_t ns); /* JSON: seconds */
/* A cell without a value: "-", and null in JSON. */
void list_none(struct list *list, const char *column);
/* JSON: bytes */
void list_bytes(struct list *list, const char *column, uint64_t bytes);
void list_bool(struct list *list, const char *column, bool value);
int list_print(struct list *list); /* and frees it; EXIT_OK or EXIT_FAILED */
void list_drop(struct list *list); /* frees it unprinted */
/* The part of --help that names the columns. */
void list_help(const struct column *columns);

#endif
