#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# shellcheck shell=dash
# The suite that every host of the scheduler must pass, unchanged, against the module. cmocka speaks TAP; here it becomes a subtest.
if [ ! -x /tests/w_conform ]; then
	echo "    1..0 # SKIP the conformance suite was not built: libcmocka-dev is missing on the host"
	exit 0
fi
[ -d /sys/module/rtxg ] || insmod /modules/rtxg.ko || exit 1
mkdir -p /tmp
CMOCKA_MESSAGE_OUTPUT=TAP RTXG_HOST=module /tests/w_conform >/tmp/conform.out 2>/tmp/conform.err
status=$?
sed 's/^/    /' /tmp/conform.out
sed 's/^/    # /' /tmp/conform.err
exit $status
