/* SPDX-License-Identifier: MIT */
/*
 * errors.h - errors in words. Not installed.
 */
#ifndef RTX_LIB_ERRORS_H
#define RTX_LIB_ERRORS_H

#include <errno.h>
#include <stdbool.h>

/* Keeps the words for rtx_strerror(), and returns the error. */
int rtx_lib_failed(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same of what a caller has to expect, as the end of a time that it gave: never printed. */
int rtx_lib_not_yet(int error, const char *why);
/* This thread's failures are kept as ever, but not printed. */
void rtx_lib_be_quiet(bool on);
/* Printed where failures are; not kept. */
void rtx_lib_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void rtx_lib_forget_error(void);
const char *rtx_lib_error_name(int error);

#endif
