/* SPDX-License-Identifier: MIT */
/*
 * command.h - subcommands and the options that all of them have.
 */
#ifndef RTXG_CLI_COMMAND_H
#define RTXG_CLI_COMMAND_H

#include <getopt.h>
#include <stddef.h>

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

/* Finds argv[1] among the commands of a command ("vgpu" "create") and runs it. */
int command_dispatch(const char *name, const char *summary, const struct command *commands,
		     int argc, char **argv);

/*
 * For a command without options but --help: takes it, and wants least to most arguments, which
 * stand at optind. Returns the exit status, or -1 to go on. missing: what to say where there are
 * fewer.
 */
int command_words(int argc, char **argv, const char *help, int least, int most,
		  const char *missing);

/* Options that every command has. */
#define COMMON_OPTIONS                         \
	{                                      \
		"help", no_argument, NULL, 'h' \
	}

#endif
