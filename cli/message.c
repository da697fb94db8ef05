// SPDX-License-Identifier: MIT
/*
 * message.c - errors in words, under the name of the subcommand that says them.
 */
#include <stdarg.h>
#include <stdio.h>

#include "message.h"

static const char *current_name = "rtxg";

void message_name(const char *name)
{
	current_name = name;
}

static void message_print(const char *format, va_list args)
{
	fprintf(stderr, "%s: ", current_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

void message_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	message_print(format, args);
	va_end(args);
}

int message_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	message_print(format, args);
	va_end(args);
	return message_try_help();
}

int message_try_help(void)
{
	fprintf(stderr, "Try '%s --help'.\n", current_name);
	return EXIT_USAGE;
}
