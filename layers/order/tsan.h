/* SPDX-License-Identifier: MIT */
/*
 * tsan.h - the functions that a compiler calls at each access to memory under -fsanitize=thread, as
 * LLVM's and GCC's instrumentation name them. Only their names and arguments are those of
 * ThreadSanitizer: its run-time library is not used.
 */
#ifndef RTXG_LAYERS_ORDER_TSAN_H
#define RTXG_LAYERS_ORDER_TSAN_H

#include <stdint.h>

void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_vptr_update(void **pointer, void *value);
void __tsan_vptr_read(void **pointer);
void __tsan_read_range(void *address, unsigned long size);
void __tsan_write_range(void *address, unsigned long size);

#define TSAN_ACCESS_OF(size)                              \
	void __tsan_read##size(void *address);            \
	void __tsan_write##size(void *address);           \
	void __tsan_unaligned_read##size(void *address);  \
	void __tsan_unaligned_write##size(void *address); \
	void __tsan_volatile_read##size(void *address);   \
	void __tsan_volatile_write##size(void *address)

TSAN_ACCESS_OF(1);
TSAN_ACCESS_OF(2);
TSAN_ACCESS_OF(4);
TSAN_ACCESS_OF(8);
TSAN_ACCESS_OF(16);

#define TSAN_ATOMIC_OF(bits, type)                                                                \
	type __tsan_atomic##bits##_load(const volatile type *address, int order);                 \
	void __tsan_atomic##bits##_store(volatile type *address, type value, int order);          \
	type __tsan_atomic##bits##_exchange(volatile type *address, type value, int order);       \
	type __tsan_atomic##bits##_fetch_add(volatile type *address, type value, int order);      \
	type __tsan_atomic##bits##_fetch_sub(volatile type *address, type value, int order);      \
	type __tsan_atomic##bits##_fetch_and(volatile type *address, type value, int order);      \
	type __tsan_atomic##bits##_fetch_or(volatile type *address, type value, int order);       \
	type __tsan_atomic##bits##_fetch_xor(volatile type *address, type value, int order);      \
	type __tsan_atomic##bits##_fetch_nand(volatile type *address, type value, int order);     \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile type *address, type *expected, \
							  type value, int order, int otherwise);  \
	int __tsan_atomic##bits##_compare_exchange_weak(volatile type *address, type *expected,   \
							type value, int order, int otherwise);    \
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *address, type expected,    \
							type value, int order, int otherwise)

TSAN_ATOMIC_OF(8, uint8_t);
TSAN_ATOMIC_OF(16, uint16_t);
TSAN_ATOMIC_OF(32, uint32_t);
TSAN_ATOMIC_OF(64, uint64_t);
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_signal_fence(int order);

#endif
