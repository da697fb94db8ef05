// SPDX-License-Identifier: MIT
/*
 * begin.c - puts a driver that is not there in the place of NVIDIA's, in a program that knows
 * nothing of it. FAKE_REFUSES=CALL:STATUS has it refuse one call. Never installed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake_nvrm.h"
#include "nvrm_gpu.h"

/* What a program leaves that has ended well is told by another status. */
static void end(int status, void *arg)
{
	struct fake_nvrm seen = fake_nvrm_seen();

	if (!status && (seen.wild || seen.clients || seen.objects || seen.fds)) {
		fflush(NULL);
		_exit(99);
	}
}

__attribute__((constructor)) static void begin(void)
{
	const char *refuses = getenv("FAKE_REFUSES");

	fake_nvrm_reset();
	if (refuses &&
	    sscanf(refuses, "%d:%i", &fake_nvrm.fail_call, (int *)&fake_nvrm.fail_status) != 2)
		_exit(98);
	rtx_lib_nvrm_sys = &fake_nvrm_sys;
	on_exit(end, NULL);
}
