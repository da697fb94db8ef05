# SPDX-License-Identifier: MIT
"""Boot a stock Debian kernel in QEMU with rtxg.ko and run the kernel tests.

One file a concern: kernels (which packages make a kernel, and where they are
kept), build (the module, the tests and the initramfs), guest (QEMU and its
console), ktap (what the console said).  Nothing here changes the machine's own
package sources or installs anything outside build/vm.
"""
