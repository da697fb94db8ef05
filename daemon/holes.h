/* SPDX-License-Identifier: MIT */
/*
 * holes.h - pages that clients share with the daemon, and may empty. See holes.c.
 */
#ifndef RTXGD_HOLES_H
#define RTXGD_HOLES_H

/* From now on a page that is gone harms its client alone. 0 or a negative errno. */
int holes_begin(void);
/* This page of RTXG_PAGE_SIZE bytes is mapped from a client's memory; before it is unmapped. */
void holes_add(const void *page);
void holes_remove(const void *page);

#endif
