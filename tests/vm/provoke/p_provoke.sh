#!/bin/sh
# SPDX-License-Identifier: MIT
# Make each mistake once, with its name in the kernel's log before it. The host judges by the log.
echo "    KTAP version 1"
echo "    1..1"
# A mistake may kill the one who made it; the guest goes on.
echo 0 >/proc/sys/kernel/panic_on_oops
names=$(sed -n 's/.*rtxg\.provoke=\([^ ]*\).*/\1/p' /proc/cmdline | tr ',' ' ')
for name in $names; do
	echo "rtxg-vm: provoke $name" >/dev/kmsg
	insmod /modules/rtxg_provoke.ko what="$name" 2>/dev/null
done
echo "rtxg-vm: provoke end" >/dev/kmsg
echo "    ok 1 all made"
