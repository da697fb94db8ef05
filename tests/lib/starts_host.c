// SPDX-License-Identifier: MIT
/*
 * starts_host.c - asks librtxg to start a daemon, and says whether the kernel calls this program
 * secure (set-user-ID), what librtxg returned and why.
 */
#include <stdio.h>
#include <sys/auxv.h>

#include "rtxg.h"

int main(void)
{
	int ret = rtx_host_start();

	printf("%lu %d %s\n", getauxval(AT_SECURE), ret, rtx_strerror());
	return 0;
}
