/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf_tracing.h - stands for libbpf's header of this name: what unit tests need of it is in
 * bpf_helpers.h.
 */
#include <bpf/bpf_helpers.h>
