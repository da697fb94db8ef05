// SPDX-License-Identifier: MIT
/*
 * find.c - looks up functions of libraries that the program has loaded.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "find.h"

bool inject_find(void *library, const char *const *names, void **functions, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		functions[i] = library ? dlsym(library, names[i]) : NULL;
		if (!functions[i])
			return false;
	}
	return true;
}
