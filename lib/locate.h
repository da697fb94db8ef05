/* SPDX-License-Identifier: MIT */
/*
 * locate.h - which host programs of this environment go to, and where a daemon is. Not installed.
 */
#ifndef RTX_LIB_LOCATE_H
#define RTX_LIB_LOCATE_H

#include <stdbool.h>

/* Each gives a connected socket and, where asked for, its path; or a negative errno. */
int rtx_lib_connect(char path[108]);
int rtx_lib_connect_path(const char *path);
int rtx_lib_connect_or_start(char path[108]);

/* $RTXG_HOST, "auto" where it is not given. */
const char *rtx_lib_host_wanted(void);
bool rtx_lib_module_hosts(void);
/* The error of a request that needs a daemon where the module hosts alone. */
int rtx_lib_no_daemon_speaks(void);

#endif
