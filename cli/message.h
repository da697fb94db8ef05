/* SPDX-License-Identifier: MIT */
/*
 * message.h - what the command line says to people on stderr, and its exit status.
 */
#ifndef RTXG_CLI_MESSAGE_H
#define RTXG_CLI_MESSAGE_H

/* Exit status, as env(1), nice(1) and chrt(1) have them. */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,       /* what was asked for could not be done */
	EXIT_USAGE = 2,	       /* the command line is wrong */
	EXIT_RUN_BROKEN = 123, /* `run --strict`: a promise was broken */
	EXIT_RUN_FAILED = 125, /* `run` itself failed */
	EXIT_RUN_NOEXEC = 126, /* the command was found and cannot be executed */
	EXIT_RUN_NOENT = 127,  /* the command was not found */
};

/* Names the subcommand in messages ("rtxg vgpu create"). */
void message_name(const char *name);
/* One line on stderr: "rtxg run: ...". */
void message_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As message_error, then "Try 'rtxg run --help'."; returns EXIT_USAGE. */
int message_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* After getopt has said what is wrong: "Try ..."; returns EXIT_USAGE. */
int message_try_help(void);

#endif
