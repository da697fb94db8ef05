/* SPDX-License-Identifier: MIT */
/* config_apply.h - configuration files come into force: see config_apply.c. */
#ifndef RTXGD_CONFIG_APPLY_H
#define RTXGD_CONFIG_APPLY_H

#include "daemon.h"

/*
 * Reads and applies all files. Returns the number of things that are wrong, everything else being
 * in force, or -ENOMEM. messages, changes: lists that get sentences about what is wrong or stays,
 * and about what is another than before; or NULL.
 */
int config_load(struct daemon *d, json_t *messages, json_t *changes);

/*
 * Writes on stderr which bounds of the files cannot be kept: once the backends have been started,
 * which config_load() may come before.
 */
void config_tell_bounds(struct daemon *d);

#endif
