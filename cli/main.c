// SPDX-License-Identifier: MIT
/*
 * main.c - finds the subcommand. A name that is not built in is a program rtxg-NAME: beside this
 * one, in the library's folder, or in PATH. The lab's commands, and a user's, join without a line
 * here.
 */
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "commands.h"
#include "message.h"
#include "proc.h"
#include "words.h"

/* Of the Python package, as programs rtxg-NAME. */
static const struct command lab[] = {
	{ "analyze", NULL, "say beforehand whether a set of tasks meets its deadlines" },
	{ "simulate", NULL, "run a set of tasks in virtual time" },
	{ "campaign", NULL, "analyse random sets of tasks by the million" },
	{ "measure", NULL, "measure this machine's overheads, or run a set of tasks for real" },
	{ NULL, NULL, NULL },
};

/* Programs rtxg-NAME of this project in C. */
static const struct command programs[] = {
	{ "latency", NULL, "measure how late threads wake, and name what made them late" },
	{ NULL, NULL, NULL },
};

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
	{ "order", cmd_order, "record and replay the order of a program's shared accesses" },
	{ "host", cmd_host, "show, start, stop the host; read its configuration again" },
	{ "history", cmd_history, "print or record what each vGPU used, slot by slot" },
	{ "report", cmd_report, "record for a while, and write one page of HTML" },
	{ "metrics", cmd_metrics, "print what Prometheus scrapes, or answer its scrapes" },
	{ "limits", cmd_limits, "show what is still free to reserve, and ranges" },
	{ "doctor", cmd_doctor,
	  "say what works on this machine, and what to do where it does not" },
	{ NULL, NULL, NULL },
};

/* Replaces this process by rtxg-NAME; returns only if there is none. */
static void exec_external(char **argv)
{
	char directory[PATH_MAX], path[PATH_MAX + 300];
	static const char *const beside[] = {
		"",
		/* in a build tree: the folder of that program, */
		"/../latency",
		/* and the Python environment that tools/setup made */
		"/../../venv/bin",
	};
	char name[256];

	/* A name with a slash would walk out of these folders. */
	if (strchr(argv[0], '/') ||
	    snprintf(name, sizeof(name), "rtxg-%s", argv[0]) >= (int)sizeof(name))
		return;
	if (proc_own_directory(directory, sizeof(directory)) == 0) {
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
		message_error("%s: %s", name, strerror(errno));
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
	for (const struct command *c = programs; c->name; c++)
		fprintf(out, "  %-10s %s\n", c->name, c->summary);
	fputs("\nCommands of the Python package ('pip install .' in the source tree):\n", out);
	for (const struct command *c = lab; c->name; c++)
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
	const char *words[sizeof(builtin) / sizeof(builtin[0]) +
			  sizeof(programs) / sizeof(programs[0]) + sizeof(lab) / sizeof(lab[0])] = {
		NULL
	};
	size_t count = 0;
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
		return message_usage(
			"'%s' is not an option; a command comes first, as in 'rtxg run "
			"-v NAME -- PROGRAM'",
			argv[1]);
	for (size_t i = 0; builtin[i].name; i++) {
		words[count++] = builtin[i].name;
		if (strcmp(builtin[i].name, argv[1]) != 0)
			continue;
		snprintf(name, sizeof(name), "rtxg %s", builtin[i].name);
		message_name(name);
		argv[1] = name;
		return builtin[i].run(argc - 1, argv + 1);
	}
	for (const struct command *c = programs; c->name; c++)
		words[count++] = c->name;
	for (const struct command *c = lab; c->name; c++)
		words[count++] = c->name;
	snprintf(name, sizeof(name), "%.60s", argv[1]);
	exec_external(argv + 1);
	for (const struct command *c = lab; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return message_usage(
				"'%s' is in the Python package: 'pip install .' in rtxg's source "
				"tree installs it as rtxg-%s, which has to be in PATH",
				name, name);
	for (const struct command *c = programs; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return message_usage("'%s' is the program rtxg-%s, which is neither beside "
					     "rtxg nor in %s nor in PATH; install rtxg whole",
					     name, name, RTXG_LIBEXECDIR);
	guess = words_nearest(name, words);
	if (guess)
		return message_usage("'%s' is not a command; did you mean '%s'?", name, guess);
	return message_usage("'%s' is not a command, and no program rtxg-%s was found", name, name);
}
