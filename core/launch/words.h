/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * words.h - how the machine of permit.h reads and writes the words of a shared page. Inner.
 */
#ifndef RTXG_PERMIT_WORDS_H
#define RTXG_PERMIT_WORDS_H

#include "permit.h"

#ifdef __KERNEL__
#include <linux/atomic.h>
#include <linux/compiler.h>
#include <linux/string.h>
#include <rtxg/page.h>

/*
 * The page's words. The host's store of a permit comes before its look at what the client does, in
 * the one order that all see: page.h says why.
 */
#define permit_load(word) READ_ONCE(*(word))
#define permit_barrier()  smp_mb()
/* a word of the host's that the permit_store() after it makes valid */
#define permit_note(word, value) WRITE_ONCE(*(word), (value))
static inline void permit_store(__u32 *word, __u32 value)
{
	xchg(word, value); /* a full barrier */
}
#else
#include <string.h>

#include "rtxg/page.h"

#define permit_load(word)	 __atomic_load_n((word), __ATOMIC_SEQ_CST)
#define permit_barrier()	 __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define permit_note(word, value) __atomic_store_n((word), (value), __ATOMIC_RELAXED)
static inline void permit_store(__u32 *word, __u32 value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}
#endif

static inline struct rtxg_lane *words(const struct permit_lane *lane)
{
	return &lane->task->page->lanes[lane->engine];
}

static inline uint64_t now(const struct permit_machine *m)
{
	return m->now_ns;
}

#endif
