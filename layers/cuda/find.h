/* SPDX-License-Identifier: MIT */
/*
 * find.h - functions of libraries that the program has loaded: CUDA's and CUPTI's.
 */
#ifndef RTXG_CUDA_FIND_H
#define RTXG_CUDA_FIND_H

#include <stdbool.h>

/* Called without a prototype. */
typedef int (*inject_fn)();

/* Looks up count functions of a library, or of none (NULL). False: one is missing. */
bool inject_find(void *library, const char *const *names, void **functions, unsigned int count);

#endif
