/* SPDX-License-Identifier: MIT */
/*
 * strict.h - `rtxg run --strict`: whether what a vGPU was promised was kept while a program ran.
 */
#ifndef RTXG_CLI_STRICT_H
#define RTXG_CLI_STRICT_H

/*
 * Forks. Returns 0 in the child, which is to become the program. The parent waits, passes signals
 * on, and does not return: its exit status is the program's, or EXIT_RUN_BROKEN if that is 0 and a
 * promise to the vGPU was broken meanwhile. Negative errno after complaining: there is no child.
 */
int strict_fork(const char *vgpu);

#endif
