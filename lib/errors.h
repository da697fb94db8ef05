/* SPDX-License-Identifier: MIT */
/*
 * errors.h - errors in words. Not installed.
 */
#ifndef RTX_LIB_ERRORS_H
#define RTX_LIB_ERRORS_H

#include <errno.h>

/* Keeps the words for rtx_strerror(), and returns the error. */
int rtx_lib_failed(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rtx_lib_forget_error(void);
const char *rtx_lib_error_name(int error);

#endif
