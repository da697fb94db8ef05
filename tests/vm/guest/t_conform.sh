#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# shellcheck shell=dash
# The suite that every host of the scheduler must pass, unchanged, against the module, with rtxgd as its front. cmocka speaks TAP; here it
# becomes a subtest, and a skipped test has its reason, which cmocka prints on a line before.
if [ ! -x /tests/w_conform ]; then
	echo "    1..0 # SKIP the conformance suite was not built: libcmocka-dev is missing on the host"
	exit 0
fi
[ -d /sys/module/rtxg ] || insmod /modules/rtxg.ko || exit 1
mkdir -p /tmp
grep -q 'rtxg\.slow=1' /proc/cmdline || export RTXG_CONFORM_SHORT=1
{
	RTXG_DAEMON=/tests/w_rtxgd CMOCKA_MESSAGE_OUTPUT=TAP RTXG_HOST=module /tests/w_conform 2>/tmp/conform.err
	echo $? >/tmp/conform.status
} | awk '/^not ok [0-9]+ # SKIP/ { print "    ok " $3 " - " $6 " # SKIP " before; fflush(); next }
	{ print "    " $0; before = $0; fflush() }'
status=$(cat /tmp/conform.status)
sed 's/^/    # /' /tmp/conform.err
rmmod rtxg || { echo "    # the module is still in use after the suite"; status=1; }
exit "$status"
