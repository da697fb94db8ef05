/* SPDX-License-Identifier: MIT */
/* config.h - configuration files: see config.c. */
#ifndef RTXGD_CONFIG_H
#define RTXGD_CONFIG_H

#include "daemon.h"

/*
 * Reads and applies all files. Returns 0, or -EINVAL if anything was wrong; everything else is in
 * force then. messages: a list that gets the sentences, or NULL.
 */
int config_load(struct daemon *d, json_t *messages);
/* "40%", "12.5%". 0 or -EINVAL. */
int config_parse_share(const char *text, uint32_t *ppm);
/* systemd's time spans: "30ms", "1s 500ms", "1.5s"; a bare number is seconds. 0 or -EINVAL. */
int config_parse_duration(const char *text, uint64_t *ns);

#endif
