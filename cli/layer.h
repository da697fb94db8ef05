/* SPDX-License-Identifier: MIT */
/*
 * layer.h - where the OpenCL layer is.
 */
#ifndef RTXG_CLI_LAYER_H
#define RTXG_CLI_LAYER_H

#include <stddef.h>

/* -ENOENT: path is where it was looked for last. */
int layer_find(char *path, size_t size);

#endif
