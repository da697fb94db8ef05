/* SPDX-License-Identifier: MIT */
/* persist.h - a vGPU as a drop-in of the configuration: see persist.c. */
#ifndef RTXGD_PERSIST_H
#define RTXGD_PERSIST_H

#include "daemon.h"

/*
 * Writes the vGPU's drop-in, from where each later daemon reads it. 0, or a negative errno with a
 * sentence in why: then nothing has changed, neither the file nor the vGPU.
 */
int persist_write(struct daemon *d, struct vgpu *vgpu, char *why, size_t size);
/* 0 also where there is no drop-in of that vGPU. */
int persist_remove(const struct daemon *d, const char *name, char *why, size_t size);
bool persist_exists(const struct daemon *d, const char *name);

#endif
