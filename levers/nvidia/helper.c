// SPDX-License-Identifier: MIT
/*
 * helper.c - where the lever finds the programs that it starts.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "helper.h"

/*
 * Where a helper program is: beside the running one, where it is built, where it is installed; else
 * PATH decides.
 */
const char *nv_helper_path(const char *name, char *path, size_t size)
{
	static const char *const places[] = { "%s/%s", "%s/../levers/nvidia/%s",
					      "%s/../libexec/rtxg/%s" };
	char own[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

	if (n <= 0)
		return name;
	own[n] = '\0';
	*strrchr(own, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (snprintf(path, size, places[i], own, name) < (int)size && !access(path, X_OK))
			return path;
	}
	return name;
}
