#!/bin/busybox sh
# SPDX-License-Identifier: MIT
# shellcheck shell=dash
# The program by which the NVIDIA lever sees contexts being made: does this kernel's verifier take it? What it reads is tested where
# the tests run (tests/levers/test_discovery.py), which is one kernel only.
if [ ! -x /tests/w_rtxg_channels ]; then
	echo "    1..0 # SKIP rtxg was built without the NVIDIA lever"
	exit 0
fi
# Debian's kernels have it; those that are built here (tests/vm/debug) have neither it nor BPF.
if [ ! -r /sys/kernel/btf/vmlinux ] && grep -q 'rtxg\.checks=1' /proc/cmdline; then
	echo "    1..0 # SKIP this kernel has no type information (BTF)"
	exit 0
fi
echo "    1..1"
if said=$(/tests/w_rtxg_channels watch 1 580 2>&1); then
	echo "    ok 1 - the_kernel_takes_the_discovery_program"
	exit 0
fi
echo "$said" | sed 's/^/    # /'
echo "    not ok 1 - the_kernel_takes_the_discovery_program"
exit 1
