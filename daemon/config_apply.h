/* SPDX-License-Identifier: MIT */
/* config_apply.h - configuration files come into force: see config_apply.c. */
#ifndef RTXGD_CONFIG_APPLY_H
#define RTXGD_CONFIG_APPLY_H

#include "daemon.h"

/*
 * Reads and applies all files. Returns 0, or -EINVAL if anything was wrong; everything else is in
 * force then. messages: a list that gets the sentences, or NULL.
 */
int config_load(struct daemon *d, json_t *messages);

#endif
