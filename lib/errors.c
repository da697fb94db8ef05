// SPDX-License-Identifier: MIT
/*
 * errors.c - errors in words, one for each thread. May not change errno, nor print unless RTXG_LOG=1
 * asks for it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "rtxg.h"

static __thread char words[512];

int rtx_lib_failed(int error, const char *format, ...)
{
	int saved = errno;
	const char *log;
	va_list ap;

	va_start(ap, format);
	vsnprintf(words, sizeof(words), format, ap);
	va_end(ap);
	log = secure_getenv("RTXG_LOG");
	if (log && !strcmp(log, "1"))
		fprintf(stderr, "librtxg: %s\n", words);
	errno = saved;
	return error;
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
