/* SPDX-License-Identifier: MIT */
/*
 * layer.h - where the libraries are that are loaded into programs which know nothing of rtxg.
 */
#ifndef RTXG_CLI_LAYER_H
#define RTXG_CLI_LAYER_H

#include <stddef.h>

enum layer {
	LAYER_OPENCL, /* OPENCL_LAYERS */
	LAYER_CUDA,   /* CUDA_INJECTION64_PATH */
};

/* -ENOENT: path is where it was looked for last. */
int layer_find(enum layer which, char *path, size_t size);

#endif
