/* SPDX-License-Identifier: MIT */
/* subuid.h - whose the subordinate user ids are (subuid(5)): see subuid.c. */
#ifndef RTXG_SUBUID_H
#define RTXG_SUBUID_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RTX_LIB_SUBUID_OWNER 33 /* bytes of a user's name, with its end */

/*
 * The user id under which `uid` counts for a quota: itself, if it is subordinate to no user; else
 * the first id that its owner has there. owner: whose it is, "" for no user; NULL: not asked for.
 * Of root's own ranges, which are for containers, each block of 65536 ids counts by itself.
 */
uid_t rtx_lib_subuid_account(uid_t uid, char owner[RTX_LIB_SUBUID_OWNER]);

/*
 * The user who made the outermost user namespace, below this process's own, that the process is in;
 * uid where it is in none, where root made it, or where the kernel does not tell (before Linux
 * 6.11). pidfd: of the process, -1: none; uid: the id that it has. This does not wait for the
 * process.
 */
uid_t rtx_lib_subuid_maker(int pidfd, uid_t uid);

/* Which reading of the file is the newest: it changes when that does. */
unsigned int rtx_lib_subuid_reading(void);
/*
 * Calls back for each range of the newest reading. account: under which all of it counts, 0: each
 * block of 65536 ids from the first on by itself. The function may call nothing of this header.
 */
typedef void (*rtx_lib_subuid_range)(void *ctx, uint32_t first, uint32_t count, uint32_t account);
void rtx_lib_subuid_each(rtx_lib_subuid_range range, void *ctx);

#endif
