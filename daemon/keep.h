/* SPDX-License-Identifier: MIT */
/* keep.h - what was made at run time, for the next daemon at the same socket: see keep.c. */
#ifndef RTXGD_KEEP_H
#define RTXGD_KEEP_H

#include "daemon.h"

/*
 * The configuration was read: makes again what the file of the daemon before has. What cannot be
 * made is left out, with a line in the log; no file can keep the daemon from starting.
 */
void keep_restore(struct daemon *d);
/* Something was changed at run time: replaces the file, before the client is answered. */
void keep_save(struct daemon *d);
/* Adds a "warning" to a reply if the next daemon would not find what there is now. */
json_t *keep_warn(json_t *reply);
/*
 * Where the task with that page was put by another client than itself, and with which parameters,
 * under the daemon before. False: nothing is known, or that vGPU is not there.
 */
bool keep_claim(struct daemon *d, pid_t pid, uint64_t page_inode, struct vgpu **vgpu,
		struct rtxg_task_params *params);
/*
 * A task is about to close. One that had just come back may have waited in vain for our answer, and
 * tries again: it is awaited as before.
 */
void keep_closed(struct task *task);
/* Appends to the doctor's checks whether the file is as it should be. */
void keep_doctor(const struct daemon *d, json_t *checks);

#endif
