// SPDX-License-Identifier: MIT
/*
 * tsan.c - what the compiler calls at each access. A callback comes before its access: the access
 * is complete when the thread's next callback comes. Atomic operations are made here, so they are
 * complete at once. May not: do more than a comparison where nothing is recorded or followed.
 */
#include "runtime.h"
#include "tsan.h"

#define CALLER ((uint64_t)(uintptr_t)__builtin_return_address(0))

static inline void plain_access(const volatile void *address, size_t size, enum area_kind kind,
				uint64_t code)
{
	if (!runtime_on())
		return;
	runtime_flush();
	if (runtime_counts((uintptr_t)address, size))
		runtime_before((uintptr_t)address, size, kind, code);
}

static inline void leave_access(void)
{
	if (runtime_on())
		runtime_flush();
}

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
	leave_access();
}

void __tsan_func_exit(void)
{
	leave_access();
}

void __tsan_vptr_update(void **pointer, void *value)
{
	plain_access(pointer, sizeof(*pointer), AREA_WRITE, CALLER);
}

void __tsan_vptr_read(void **pointer)
{
	plain_access(pointer, sizeof(*pointer), AREA_READ, CALLER);
}

void __tsan_read_range(void *address, unsigned long size)
{
	plain_access(address, size, AREA_READ, CALLER);
}

void __tsan_write_range(void *address, unsigned long size)
{
	plain_access(address, size, AREA_WRITE, CALLER);
}

#define ACCESS(name, size, kind)                             \
	void name(void *address)                             \
	{                                                    \
		plain_access(address, (size), kind, CALLER); \
	}

#define ACCESS_OF(size)                                        \
	ACCESS(__tsan_read##size, size, AREA_READ)             \
	ACCESS(__tsan_write##size, size, AREA_WRITE)           \
	ACCESS(__tsan_unaligned_read##size, size, AREA_READ)   \
	ACCESS(__tsan_unaligned_write##size, size, AREA_WRITE) \
	ACCESS(__tsan_volatile_read##size, size, AREA_READ)    \
	ACCESS(__tsan_volatile_write##size, size, AREA_WRITE)

ACCESS_OF(1)
ACCESS_OF(2)
ACCESS_OF(4)
ACCESS_OF(8)
ACCESS_OF(16)

/* The strongest order is right for each: the program asked for that or for less. */
#define ATOMIC(bits, type, kind, address, result, operation)         \
	do {                                                         \
		plain_access((address), sizeof(type), kind, CALLER); \
		result operation;                                    \
		leave_access();                                      \
	} while (0)

#define FETCH_OF(bits, type, what)                                                             \
	type __tsan_atomic##bits##_fetch_##what(volatile type *address, type value, int order) \
	{                                                                                      \
		type was;                                                                      \
                                                                                               \
		ATOMIC(bits, type, AREA_WRITE, address, was =,                                 \
		       __atomic_fetch_##what(address, value, __ATOMIC_SEQ_CST));               \
		return was;                                                                    \
	}

#define COMPARE_OF(bits, type, name)                                                              \
	int __tsan_atomic##bits##_compare_exchange_##name(volatile type *address, type *expected, \
							  type value, int order, int otherwise)   \
	{                                                                                         \
		int done;                                                                         \
                                                                                                  \
		ATOMIC(bits, type, AREA_WRITE, address, done =,                                   \
		       __atomic_compare_exchange_n(address, expected, value, 0, __ATOMIC_SEQ_CST, \
						   __ATOMIC_SEQ_CST));                            \
		return done;                                                                      \
	}

#define ATOMICS_OF(bits, type)                                                                     \
	type __tsan_atomic##bits##_load(const volatile type *address, int order)                   \
	{                                                                                          \
		type value;                                                                        \
                                                                                                   \
		ATOMIC(bits, type, AREA_READ, address, value =,                                    \
		       __atomic_load_n(address, __ATOMIC_SEQ_CST));                                \
		return value;                                                                      \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile type *address, type value, int order)            \
	{                                                                                          \
		ATOMIC(bits, type, AREA_WRITE, address, ,                                          \
		       __atomic_store_n(address, value, __ATOMIC_SEQ_CST));                        \
	}                                                                                          \
	type __tsan_atomic##bits##_exchange(volatile type *address, type value, int order)         \
	{                                                                                          \
		type was;                                                                          \
                                                                                                   \
		ATOMIC(bits, type, AREA_WRITE, address, was =,                                     \
		       __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST));                     \
		return was;                                                                        \
	}                                                                                          \
	FETCH_OF(bits, type, add)                                                                  \
	FETCH_OF(bits, type, sub)                                                                  \
	FETCH_OF(bits, type, and)                                                                  \
	FETCH_OF(bits, type, or)                                                                   \
	FETCH_OF(bits, type, xor)                                                                  \
	FETCH_OF(bits, type, nand)                                                                 \
	COMPARE_OF(bits, type, strong)                                                             \
	COMPARE_OF(bits, type, weak)                                                               \
	type __tsan_atomic##bits##_compare_exchange_val(volatile type *address, type expected,     \
							type value, int order, int otherwise)      \
	{                                                                                          \
		ATOMIC(bits, type, AREA_WRITE, address, ,                                          \
		       __atomic_compare_exchange_n(address, &expected, value, 0, __ATOMIC_SEQ_CST, \
						   __ATOMIC_SEQ_CST));                             \
		return expected;                                                                   \
	}

ATOMICS_OF(8, uint8_t)
ATOMICS_OF(16, uint16_t)
ATOMICS_OF(32, uint32_t)
ATOMICS_OF(64, uint64_t)

void __tsan_atomic_thread_fence(int order)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}
