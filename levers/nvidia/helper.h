/* SPDX-License-Identifier: MIT */
/*
 * helper.h - where the lever finds the programs that it starts.
 */
#ifndef RTXG_NV_HELPER_H
#define RTXG_NV_HELPER_H

#include <stddef.h>

/*
 * The path of a helper program: beside the running one, where it is built, or where it is
 * installed. Without one of these it is the name, for PATH to decide. The answer may lie in `path`.
 */
const char *nv_helper_path(const char *name, char *path, size_t size);

#endif
