// SPDX-License-Identifier: MIT
/*
 * layer.c - where a layer is: beside this program in a build tree, else where it was installed.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layer.h"
#include "proc.h"

#ifndef RTXG_LAYERDIR
#define RTXG_LAYERDIR "/usr/lib/rtxg"
#endif

static const struct {
	const char *variable, *folder, *file;
} layers[] = {
	[LAYER_OPENCL] = { "RTXG_OPENCL_LAYER", "opencl", "librtxg-opencl.so" },
	[LAYER_CUDA] = { "RTXG_CUDA_LAYER", "cuda", "librtxg-cuda.so" },
};

int layer_find(enum layer which, char *path, size_t size)
{
	const char *asked = getenv(layers[which].variable), *file = layers[which].file;
	char directory[PATH_MAX];

	if (asked && *asked) {
		snprintf(path, size, "%s", asked);
		return access(path, R_OK) == 0 ? 0 : -ENOENT;
	}
	if (proc_own_directory(directory, sizeof(directory)) == 0) {
		/*
		 * The loader splits OPENCL_LAYERS at colons and takes a path as it stands: no "..",
		 * it would be read in ps.
		 */
		char *slash = strrchr(directory, '/');

		if (slash) {
			*slash = '\0';
			if (snprintf(path, size, "%s/layers/%s/%s", directory, layers[which].folder,
				     file) < (int)size &&
			    access(path, R_OK) == 0)
				return 0;
		}
	}
	snprintf(path, size, RTXG_LAYERDIR "/%s", file);
	return access(path, R_OK) == 0 ? 0 : -ENOENT;
}
