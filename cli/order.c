// SPDX-License-Identifier: MIT
/*
 * order.c - `rtxg order`: records and replays the order of a program's shared accesses, and looks
 * at such orders. Starting programs is order_run.c's.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "commands.h"
#include "message.h"
#include "order.h"
#include "proc.h"

#ifndef RTXG_LAYERDIR
#define RTXG_LAYERDIR "/usr/lib/rtxg"
#endif

/* An order that was read and loaded. */
struct loaded {
	struct rtx_order_file file;
	struct rtxg_order order;
	void *memory;
};

static int load(struct loaded *l, const char *path)
{
	memset(l, 0, sizeof(*l));
	if (rtx_lib_order_file_read(&l->file, path) == 0) {
		/* Entries are known by their place from here on, not by their line. */
		if (rtx_lib_order_file_load(&l->file, path, &l->order, &l->memory) == 0)
			return 0;
	}
	message_error("%s", l->file.error);
	rtx_lib_order_file_free(&l->file);
	return -EINVAL;
}

static void unload(struct loaded *l)
{
	free(l->memory);
	rtx_lib_order_file_free(&l->file);
}

static int compare_marks(const void *a, const void *b)
{
	const struct rtxg_order_entry *x = a, *y = b;

	return x->mark < y->mark ? -1 : x->mark > y->mark;
}

/*
 * Relaxes a loaded order in place: its file has the needs that are left, in the order of its
 * entries. Returns how many were dropped, or -ENOMEM.
 */
static long relax(struct loaded *l)
{
	size_t words = rtxg_order_relax_words(&l->order.shape);
	uint32_t *memory = malloc(words * sizeof(*memory));
	uint32_t before = l->file.shape.needs, count, needs;
	struct rtxg_order_entry *entries = calloc(l->file.shape.entries + 1, sizeof(*entries));
	struct rtxg_order_need *left = calloc(before + 1, sizeof(*left));
	char **comments = calloc(l->file.shape.entries + 1, sizeof(*comments));
	struct rtxg_order_fault fault;

	if (!memory || !entries || !left || !comments) {
		message_error("relaxing takes %zu bytes, and there are none",
			      words * sizeof(*memory));
		free(memory);
		free(entries);
		free(left);
		free(comments);
		return -ENOMEM;
	}
	/* Several entries may share a line: their places tell them apart. */
	for (uint32_t e = 0; e < l->file.shape.entries; e++)
		l->file.entry[e].mark = e;
	rtxg_order_load(&l->order, l->file.entry, l->file.need, l->file.accesses, &fault);
	needs = rtxg_order_relax(&l->order, memory, entries, &count, left);
	if (count)
		qsort(entries, count, sizeof(*entries), compare_marks);
	for (uint32_t e = 0; e < count; e++) {
		comments[e] = l->file.comment[entries[e].mark];
		l->file.comment[entries[e].mark] = NULL;
	}
	for (uint32_t e = 0; e < l->file.shape.entries; e++)
		free(l->file.comment[e]);
	free(l->file.comment);
	free(l->file.entry);
	free(l->file.need);
	free(memory);
	l->file.comment = comments;
	l->file.entry = entries;
	l->file.need = left;
	l->file.shape.entries = count;
	l->file.shape.needs = needs;
	return before - needs;
}

/* --- check ------------------------------------------------------------------------------------ */

static int cmd_check(int argc, char **argv)
{
	static const char help[] =
		"Usage: rtxg order check FILE\n\n"
		"Says whether an order can be followed. What is wrong is named with its line: a\n"
		"circle of entries, an entry that would be overtaken, two entries for one access, "
		"an\n"
		"access that never comes.\n\n"
		" -h, --help             this text\n\n"
		"Exit status: 0 if it can be followed, 1 if not.";
	int status =
		command_words(argc, argv, help, 1, 1, "which order? As in 'rtxg order check FILE'");
	struct loaded l;
	uint32_t entries, needs;
	long dropped;

	if (status >= 0)
		return status;
	if (load(&l, argv[optind]))
		return EXIT_FAILED;
	entries = l.file.shape.entries;
	needs = l.file.shape.needs;
	dropped = relax(&l);
	if (dropped >= 0)
		printf("%s: %u threads, %u entries, %u needs; %ld needs follow from others\n",
		       argv[optind], l.file.shape.threads, entries, needs, dropped);
	unload(&l);
	return dropped < 0 ? EXIT_FAILED : EXIT_OK;
}

/* --- relax ------------------------------------------------------------------------------------ */

static int cmd_relax(int argc, char **argv)
{
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' },
		COMMON_OPTIONS,
		{ 0 },
	};
	const char *output = NULL;
	struct loaded l;
	FILE *out = stdout;
	int letter, err;

	while ((letter = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			fputs("Usage: rtxg order relax [OPTION...] FILE\n\n"
			      "Drops every need that follows from others. What is left allows the "
			      "same "
			      "runs, and\n"
			      "threads wait less often.\n\n"
			      " -o, --output FILE      where to (default: standard output)\n"
			      " -h, --help             this text\n",
			      stdout);
			return EXIT_OK;
		case 'o':
			output = optarg;
			break;
		default:
			return message_try_help();
		}
	}
	if (argc - optind != 1)
		return message_usage("one order is needed, as in 'rtxg order relax -o less.order "
				     "FILE'");
	if (load(&l, argv[optind]))
		return EXIT_FAILED;
	err = relax(&l) < 0;
	if (!err && output) {
		out = fopen(output, "we");
		if (!out) {
			message_error("%s: %s", output, strerror(errno));
			err = 1;
		}
	}
	if (!err) {
		err = rtx_lib_order_file_write(&l.file, out) != 0;
		err |= (output ? fclose(out) : fflush(out)) != 0;
		if (err)
			message_error("%s: %s", output ? output : "standard output",
				      strerror(errno));
	}
	unload(&l);
	return err ? EXIT_FAILED : EXIT_OK;
}

/* --- show ------------------------------------------------------------------------------------- */

/* The entry of an access, by its place in the file; NULL: it is free. */
static const char *what_is(const struct loaded *l, uint32_t thread, uint32_t number)
{
	for (uint32_t e = 0; e < l->file.shape.entries; e++)
		if (l->file.entry[e].thread == thread && l->file.entry[e].number == number)
			return l->file.comment[e];
	return NULL;
}

static void show_entry(const struct loaded *l, uint32_t index)
{
	const struct rtxg_order_entry *entry = &l->file.entry[index];

	printf("%s: access %u", l->file.name[entry->thread], entry->number);
	if (l->file.comment[index])
		printf(" (%s)", l->file.comment[index]);
	for (uint32_t i = 0; i < entry->count; i++) {
		const struct rtxg_order_need *need = &l->file.need[entry->first + i];
		const char *what = what_is(l, need->thread, need->clock - 1);

		printf("%s access %u of %s", i ? "," : " comes after", need->clock - 1,
		       l->file.name[need->thread]);
		if (what)
			printf(" (%s)", what);
	}
	putchar('\n');
}

static int cmd_show(int argc, char **argv)
{
	static const char help[] =
		"Usage: rtxg order show FILE\n\n"
		"Prints an order as sentences: which access of which thread comes after which.\n\n"
		" -h, --help             this text";
	int status =
		command_words(argc, argv, help, 1, 1, "which order? As in 'rtxg order show FILE'");
	struct loaded l;

	if (status >= 0)
		return status;
	if (load(&l, argv[optind]))
		return EXIT_FAILED;
	for (uint32_t e = 0; e < l.file.shape.entries; e++)
		show_entry(&l, e);
	unload(&l);
	return EXIT_OK;
}

/* --- flags ------------------------------------------------------------------------------------ */

/* The file of flags for GCC, and the folder of the library, in a build tree or installed. */
static int find_flags(char *specs, char *folder, size_t size)
{
	char own[PATH_MAX], *slash;

	if (proc_own_directory(own, sizeof(own)) == 0) {
		slash = strrchr(own, '/');
		if (slash)
			*slash = '\0';
		if (snprintf(folder, size, "%s/layers/order", own) < (int)size &&
		    snprintf(specs, size, "%s/layers/order/order.specs", own) < (int)size &&
		    access(specs, R_OK) == 0)
			return 0;
	}
	snprintf(specs, size, "%s", RTXG_LAYERDIR "/order.specs");
	snprintf(folder, size, "%s", RTXG_LAYERDIR "/..");
	return access(specs, R_OK) == 0 ? 0 : -ENOENT;
}

static int cmd_flags(int argc, char **argv)
{
	static const char help[] =
		"Usage: rtxg order flags [gcc|clang]\n\n"
		"Prints the flags that a program is built with so that it can be recorded, for\n"
		"compiling and for linking: cc -O1 $(rtxg order flags) -o program program.c\n\n"
		" -h, --help             this text";
	char specs[PATH_MAX], folder[PATH_MAX];
	int status = command_words(argc, argv, help, 0, 1, "");
	const char *compiler = "gcc";

	if (status >= 0)
		return status;
	if (optind < argc)
		compiler = argv[optind];
	if (find_flags(specs, folder, sizeof(specs))) {
		message_error("%s is missing; reinstall rtxg", specs);
		return EXIT_FAILED;
	}
	if (strcmp(compiler, "gcc") == 0) {
		printf("-g -specs=%s\n", specs);
	} else if (strcmp(compiler, "clang") == 0) {
		/*
		 * Without the first -mllvm, a read that a write to the same place follows is left
		 * out.
		 */
		printf("-g -Xclang -fsanitize=thread -mllvm -tsan-instrument-read-before-write=1 "
		       "--start-no-unused-arguments -Wl,--push-state,--no-as-needed -L%s "
		       "-lrtxg_order -Wl,--pop-state,-z,now,-rpath,%s --end-no-unused-arguments\n",
		       folder, folder);
	} else {
		return message_usage("'%s' is not accepted; accepted: gcc, clang", compiler);
	}
	return EXIT_OK;
}

int cmd_order(int argc, char **argv)
{
	static const struct command commands[] = {
		{ "record", order_record, "run a program and write the order of its accesses" },
		{ "run", order_run, "run a program so that its threads follow an order" },
		{ "relax", cmd_relax, "drop what follows from the rest of an order" },
		{ "check", cmd_check, "say whether an order can be followed" },
		{ "show", cmd_show, "print an order as sentences" },
		{ "flags", cmd_flags, "print the compiler's flags for such a program" },
		{ NULL, NULL, NULL },
	};

	return command_dispatch("order",
				"Records the order of a program's shared accesses, and makes its "
				"threads follow it again.",
				commands, argc, argv);
}
