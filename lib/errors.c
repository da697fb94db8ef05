// SPDX-License-Identifier: MIT
/*
 * errors.c - errors in words, one for each thread. May not change errno, nor print unless
 * RTXG_LOG=1 asks for it.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "rtxg.h"

static __thread char words[512];
static __thread bool quiet;

static bool logs(void)
{
	const char *log = secure_getenv("RTXG_LOG");

	return log && !strcmp(log, "1");
}

int rtx_lib_failed(int error, const char *format, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, format);
	vsnprintf(words, sizeof(words), format, ap);
	va_end(ap);
	if (!quiet && logs())
		fprintf(stderr, "librtxg: %s\n", words);
	errno = saved;
	return error;
}

int rtx_lib_not_yet(int error, const char *why)
{
	snprintf(words, sizeof(words), "%s", why);
	return error;
}

void rtx_lib_be_quiet(bool on)
{
	quiet = on;
}

void rtx_lib_say(const char *format, ...)
{
	int saved = errno;
	char line[512];
	va_list ap;

	if (logs()) {
		va_start(ap, format);
		vsnprintf(line, sizeof(line), format, ap);
		va_end(ap);
		fprintf(stderr, "librtxg: %s\n", line);
	}
	errno = saved;
}

void rtx_lib_forget_error(void)
{
	words[0] = 0;
}

const char *rtx_strerror(void)
{
	return words;
}

const char *rtx_lib_error_name(int error)
{
	const char *name = strerrordesc_np(error < 0 ? -error : error);

	return name ? name : "unknown error";
}
