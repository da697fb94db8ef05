/* SPDX-License-Identifier: MIT */
/*
 * far_nvrm.h - the driver that is not there (fake_nvrm.h), for other processes than the test's: a
 * file of it that a child opens is a socket to the test. Like the kernel it learns of a file's end
 * when the last descriptor of it has gone, however its process ended, and frees the clients that
 * were made with the file then. Pages that a child gives to the GPU are memory of both.
 */
#ifndef RTXG_FAR_NVRM_H
#define RTXG_FAR_NVRM_H

#include "rm.h"

/* What children have: a test waits for these. */
struct far_nvrm {
	int files;  /* open */
	int pinned; /* pieces of their memory */
};
extern struct far_nvrm far_nvrm;

/* The calls of a child of the test's. */
extern const struct nv_sys far_nvrm_sys;

/* Starts to answer, in a thread of its own. Once, after fake_nvrm_reset(). */
void far_nvrm_start(void);

#endif
