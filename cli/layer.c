// SPDX-License-Identifier: MIT
/*
 * layer.c - where the OpenCL layer is: beside this program in a build tree, else where it was
 * installed.
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
#define LAYER "librtxg-opencl.so"

int layer_find(char *path, size_t size)
{
	const char *asked = getenv("RTXG_OPENCL_LAYER");
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
			if (snprintf(path, size, "%s/layers/opencl/" LAYER, directory) <
				    (int)size &&
			    access(path, R_OK) == 0)
				return 0;
		}
	}
	snprintf(path, size, RTXG_LAYERDIR "/" LAYER);
	return access(path, R_OK) == 0 ? 0 : -ENOENT;
}
