/* SPDX-License-Identifier: MIT */
/*
 * gpu_name.h - names of GPUs, as people type them.
 */
#ifndef RTXG_CLI_GPU_NAME_H
#define RTXG_CLI_GPU_NAME_H

#include <stdbool.h>

/*
 * Whether the host knows this GPU; complains if not, under that option or word, and says which
 * there are. new_accepted: the command has --new, for a GPU that is not known yet.
 */
bool gpu_name_known(const char *what, const char *name, bool new_accepted);

#endif
