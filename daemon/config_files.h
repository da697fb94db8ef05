/* SPDX-License-Identifier: MIT */
/* config_files.h - the files of the configuration: see config_files.c. */
#ifndef RTXGD_CONFIG_FILES_H
#define RTXGD_CONFIG_FILES_H

#include "config_parse.h"

/* The folder whose files are read first: the administrator's, or the user's. */
void config_folder(const struct daemon *d, char path[512]);
/* Reads all files of c->daemon's into c. */
void config_read(struct config *c);

#endif
