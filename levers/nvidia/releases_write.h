/* SPDX-License-Identifier: MIT */
/*
 * releases_write.h - who makes the page of releases.h and writes it: the lever, one writer.
 */
#ifndef RTXG_NV_RELEASES_WRITE_H
#define RTXG_NV_RELEASES_WRITE_H

#include "rtxg/releases.h"

/*
 * A new page under that name, which every process may read. An older page is replaced. 0 or a
 * negative errno.
 */
int nv_releases_open(const char *path, struct nv_releases **page);
void nv_releases_close(const char *path, struct nv_releases *page);
/* Entry number `index` (below NV_RELEASES); pid 0 frees it. */
void nv_releases_set(struct nv_releases *page, uint32_t index, const struct nv_release *r);

#endif
