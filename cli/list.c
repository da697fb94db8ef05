// SPDX-License-Identifier: MIT
/*
 * list.c - lists in the manner of util-linux, by its own libsmartcols: the reader's eye and `-J`,
 * `-o`, `-n` find what they know from lsblk and lscpu.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <libsmartcols.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "list.h"
#include "message.h"
#include "text.h"
#include "value.h"
#include "words.h"

enum { COLUMNS_MAX = 40 };

struct list {
	struct libscols_table *table;
	struct libscols_line *line;
	const struct column *columns;
	struct list_options options;
	int place[COLUMNS_MAX]; /* of each column in the table, -1 if not shown */
	size_t rows;
};

bool list_option(struct list_options *options, int letter)
{
	switch (letter) {
	case 'J':
		options->json = true;
		return true;
	case 'n':
		options->noheadings = true;
		return true;
	case 'o':
		options->columns = optarg;
		return true;
	}
	return false;
}

static int add_column(struct list *list, size_t index)
{
	const struct column *column = &list->columns[index];
	struct libscols_column *made;

	if (list->place[index] >= 0)
		return 0;
	made = scols_table_new_column(list->table, list->options.json ? column->json : column->name,
				      0,
				      (column->flags & COLUMN_RIGHT ? SCOLS_FL_RIGHT : 0) |
					      (column->flags & COLUMN_CUT ? SCOLS_FL_TRUNC : 0));
	if (!made)
		return -ENOMEM;
	if (column->flags & COLUMN_RIGHT)
		scols_column_set_json_type(made, SCOLS_JSON_NUMBER);
	if (column->flags & COLUMN_BOOL)
		scols_column_set_json_type(made, SCOLS_JSON_BOOLEAN);
	list->place[index] = (int)scols_table_get_ncols(list->table) - 1;
	return 0;
}

static int choose_columns(struct list *list, const char *asked)
{
	const char *names[COLUMNS_MAX + 1] = { NULL };
	char *copy, *rest, *word, *accepted;
	int ret = 0;

	if (!asked || *asked == '+') {
		for (size_t i = 0; list->columns[i].name; i++)
			if (list->columns[i].flags & COLUMN_DEFAULT && add_column(list, i))
				return -ENOMEM;
		if (!asked)
			return 0;
		asked++;
	}
	copy = rest = strdup(asked);
	if (!copy)
		return -ENOMEM;
	while (!ret && (word = strsep(&rest, ","))) {
		size_t i = 0;

		while (list->columns[i].name && strcasecmp(list->columns[i].name, word) != 0)
			i++;
		if (list->columns[i].name) {
			ret = add_column(list, i);
			continue;
		}
		for (i = 0; list->columns[i].name; i++)
			names[i] = list->columns[i].name;
		accepted = words_join(names);
		message_error("--output: '%s' is not a column; accepted: %s", word,
			      accepted ? accepted : "");
		free(accepted);
		ret = -EINVAL;
	}
	free(copy);
	return ret;
}

void list_drop(struct list *list)
{
	scols_unref_table(list->table);
	free(list);
}

struct list *list_new(const char *json_name, const struct column *columns,
		      const struct list_options *options)
{
	struct list *list = calloc(1, sizeof(*list));

	if (!list)
		return NULL;
	list->columns = columns;
	list->options = *options;
	for (size_t i = 0; i < COLUMNS_MAX; i++)
		list->place[i] = -1;
	scols_init_debug(0);
	list->table = scols_new_table();
	if (!list->table) {
		free(list);
		return NULL;
	}
	scols_table_enable_json(list->table, options->json);
	scols_table_set_name(list->table, json_name);
	scols_table_enable_noheadings(list->table, options->noheadings);
	if (choose_columns(list, options->columns)) {
		list_drop(list);
		return NULL;
	}
	return list;
}

void list_row(struct list *list)
{
	list->line = scols_table_new_line(list->table, NULL);
	list->rows++;
}

void list_text(struct list *list, const char *column, const char *text)
{
	char *copy;

	for (size_t i = 0; list->line && list->columns[i].name; i++) {
		if (strcmp(list->columns[i].name, column) != 0)
			continue;
		copy = list->place[i] >= 0 ? strdup(text) : NULL;
		if (copy)
			scols_line_refer_data(list->line, (size_t)list->place[i], text_clean(copy));
		return;
	}
}

void list_words(struct list *list, const char *column, char *text)
{
	list_text(list, column, text ? text : "");
	free(text);
}

void list_format(struct list *list, const char *column, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	list_text(list, column, text);
}

void list_share(struct list *list, const char *column, double share)
{
	char text[32];

	if (list->options.json)
		list_format(list, column, "%.6g", share);
	else
		list_text(list, column, value_format_share(share, text, sizeof(text)));
}

void list_duration(struct list *list, const char *column, uint64_t ns)
{
	char text[32];

	if (list->options.json)
		list_format(list, column, "%.9g", (double)ns / 1e9);
	else
		list_text(list, column, value_format_duration(ns, text, sizeof(text)));
}

void list_none(struct list *list, const char *column)
{
	if (!list->options.json)
		list_text(list, column, "-");
}

void list_bytes(struct list *list, const char *column, uint64_t bytes)
{
	char text[32];

	if (list->options.json)
		list_format(list, column, "%llu", (unsigned long long)bytes);
	else
		list_text(list, column, value_format_bytes(bytes, text, sizeof(text)));
}

void list_bool(struct list *list, const char *column, bool value)
{
	if (list->options.json)
		list_text(list, column, value ? "1" : "0");
	else
		list_text(list, column, value ? "yes" : "no");
}

int list_print(struct list *list)
{
	int ret = 0;

	/*
	 * An empty table prints nothing in libsmartcols, not even in JSON: a reader of JSON needs
	 * the empty array.
	 */
	if (list->rows == 0 && list->options.json)
		printf("{\n   \"%s\": []\n}\n", scols_table_get_name(list->table));
	else if (list->rows > 0)
		ret = scols_print_table(list->table);
	list_drop(list);
	if (ret || fflush(stdout) != 0) {
		message_error("writing the list: %s", strerror(errno));
		return EXIT_FAILED;
	}
	return EXIT_OK;
}

void list_help(const struct column *columns)
{
	printf("\nColumns (* shown by default; the name in JSON in brackets):\n");
	for (size_t i = 0; columns[i].name; i++)
		printf(" %c %-10s %s [%s]\n", columns[i].flags & COLUMN_DEFAULT ? '*' : ' ',
		       columns[i].name, columns[i].help, columns[i].json);
}
