// SPDX-License-Identifier: MIT
/*
 * main.c - finds the subcommand. A name that is not built in is a program rtxg-NAME: beside this
 * one, in the library's folder, or in PATH. So the lab's commands, and anybody's, join without a
 * line here.
 */
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#ifndef RTXG_LIBEXECDIR
#define RTXG_LIBEXECDIR "/usr/libexec/rtxg"
#endif

static const struct command builtin[] = {
	{ "run", cmd_run, "start a program with a vGPU, a priority and CPU scheduling" },
	{ "set", cmd_set, "change a running process" },
	{ "get", cmd_get, "show what a running process has" },
	{ "ps", cmd_ps,
	  "list the tasks that are managed, and processes that use a GPU and are not" },
	{ "top", cmd_top, "show shares live: reserved, used, over 1 s and 10 s" },
	{ "vgpu", cmd_vgpu, "create, list, change and remove virtual GPUs" },
	{ "gpu", cmd_gpu, "list GPUs and change how each is shared" },
	{ "pool", cmd_pool, "put like GPUs together, so that programs take one that is free" },
	{ "host", cmd_host, "show, start, stop the host; read its configuration again" },
	{ "history", cmd_history, "print or record what each vGPU used, slot by slot" },
	{ "limits", cmd_limits, "show what is still free to reserve, and ranges" },
	{ "doctor", cmd_doctor,
	  "say what works on this machine, and what to do where it does not" },
	{ NULL, NULL, NULL },
};

static const char *current_name = "rtxg";

void command_name(const char *name)
{
	current_name = name;
}

static void complain_list(const char *format, va_list args)
{
	fprintf(stderr, "%s: ", current_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain_list(format, args);
	va_end(args);
}

int usage_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	complain_list(format, args);
	va_end(args);
	return option_error();
}

int option_error(void)
{
	fprintf(stderr, "Try '%s --help'.\n", current_name);
	return EXIT_USAGE;
}

/* Number of letters to insert, delete or replace; words are short, so one row on the stack does. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[64], width = strlen(b);

	if (width >= sizeof(row) / sizeof(row[0]))
		return SIZE_MAX;
	for (size_t j = 0; j <= width; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= width; j++) {
			size_t up = row[j], best = corner + (a[i - 1] != b[j - 1]);

			best = up + 1 < best ? up + 1 : best;
			best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			row[j] = best;
			corner = up;
		}
	}
	return row[width];
}

const char *nearest(const char *typed, const char *const *words)
{
	const char *best = NULL;
	size_t distance = 3; /* two slips are a typo, three another word */

	for (; *words; words++) {
		size_t d = edit_distance(typed, *words);

		if (d < distance && d < strlen(*words)) {
			distance = d;
			best = *words;
		}
	}
	return best;
}

char *join_words(const char *const *words)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (size_t i = 0; words[i]; i++)
		fprintf(out, "%s%s", i ? ", " : "", words[i]);
	return fclose(out) == 0 ? text : NULL;
}

int program_directory(char *path, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	if (length <= 0)
		return -errno;
	path[length] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

int run_subcommand(const char *name, const char *summary, const struct command *commands, int argc,
		   char **argv)
{
	const char *words[16] = { NULL };
	static char full[64];
	const char *guess;
	char *accepted;
	int status;

	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		printf("Usage: rtxg %s COMMAND [ARGUMENT...]\n\n%s\n\nCommands:\n", name, summary);
		for (const struct command *c = commands; c->name; c++)
			printf("  %-10s %s\n", c->name, c->summary);
		printf("\n'rtxg %s COMMAND --help' explains one.\n", name);
		return EXIT_OK;
	}
	for (size_t i = 0; commands[i].name && i < 15; i++) {
		words[i] = commands[i].name;
		if (argc < 2 || strcmp(argv[1], commands[i].name) != 0)
			continue;
		snprintf(full, sizeof(full), "rtxg %s %s", name, commands[i].name);
		command_name(full);
		argv[1] = full; /* what getopt calls us in its messages */
		return commands[i].run(argc - 1, argv + 1);
	}
	accepted = join_words(words);
	guess = argc < 2 ? NULL : nearest(argv[1], words);
	if (argc < 2)
		status = usage_error("what? Accepted: %s", accepted ? accepted : "");
	else
		status = usage_error("'%s' is not accepted; accepted: %s%s%s%s", argv[1],
				     accepted ? accepted : "", guess ? "; did you mean '" : "",
				     guess ? guess : "", guess ? "'?" : "");
	free(accepted);
	return status;
}

/* Replaces this process by rtxg-NAME; returns only if there is none. */
static void exec_external(char **argv)
{
	char directory[PATH_MAX], path[PATH_MAX + 300];
	static const char *const beside[] = {
		"",
		/* in a build tree: the Python environment that tools/setup made */
		"/../../venv/bin",
	};
	char name[256];

	/* A name with a slash would walk out of these folders. */
	if (strchr(argv[0], '/') ||
	    snprintf(name, sizeof(name), "rtxg-%s", argv[0]) >= (int)sizeof(name))
		return;
	if (program_directory(directory, sizeof(directory)) == 0) {
		for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
			snprintf(path, sizeof(path), "%s%s/%s", directory, beside[i], name);
			if (access(path, X_OK) == 0) {
				argv[0] = path;
				execv(path, argv);
			}
		}
	}
	snprintf(path, sizeof(path), RTXG_LIBEXECDIR "/%s", name);
	if (access(path, X_OK) == 0) {
		argv[0] = path;
		execv(path, argv);
	}
	argv[0] = name;
	execvp(name, argv);
	if (errno != ENOENT)
		complain("%s: %s", name, strerror(errno));
}

static void print_help(FILE *out)
{
	fputs("Usage: rtxg COMMAND [ARGUMENT...]\n\n"
	      "Gives GPU programs a priority, a guaranteed share, a cap and a latency bound, "
	      "together with their CPU "
	      "time.\n\n"
	      "Commands:\n",
	      out);
	for (const struct command *c = builtin; c->name; c++)
		fprintf(out, "  %-10s %s\n", c->name, c->summary);
	fputs("\nAny other NAME runs the program rtxg-NAME. 'rtxg COMMAND --help' explains a "
	      "command.\n\n"
	      "A first try:\n"
	      "  rtxg vgpu create camera --min 40%\n"
	      "  rtxg run -v camera -- ./program\n"
	      "  rtxg top\n",
	      out);
}

int main(int argc, char **argv)
{
	const char *words[sizeof(builtin) / sizeof(builtin[0])] = { NULL };
	const char *guess;
	static char name[64];

	setlocale(LC_CTYPE, ""); /* widths of names; numbers stay in the C locale */
	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(stdout);
		return EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		printf("rtxg %s\n", RTXG_VERSION);
		return EXIT_OK;
	}
	if (strcmp(argv[1], "help") == 0) {
		if (argc == 2) {
			print_help(stdout);
			return EXIT_OK;
		}
		argv[1] = argv[2];
		argv[2] = (char *)"--help";
	}
	if (argv[1][0] == '-')
		return usage_error("'%s' is not an option; a command comes first, as in 'rtxg run "
				   "-v NAME -- PROGRAM'",
				   argv[1]);
	for (size_t i = 0; builtin[i].name; i++) {
		words[i] = builtin[i].name;
		if (strcmp(builtin[i].name, argv[1]) != 0)
			continue;
		snprintf(name, sizeof(name), "rtxg %s", builtin[i].name);
		command_name(name);
		argv[1] = name;
		return builtin[i].run(argc - 1, argv + 1);
	}
	snprintf(name, sizeof(name), "%.60s", argv[1]);
	exec_external(argv + 1);
	guess = nearest(name, words);
	if (guess)
		return usage_error("'%s' is not a command; did you mean '%s'?", name, guess);
	return usage_error("'%s' is not a command, and no program rtxg-%s was found", name, name);
}
