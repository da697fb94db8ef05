// SPDX-License-Identifier: MIT
/*
 * nvrm_submit.c - what the GPU is told by a channel: wait for a word, raise an interrupt, write a
 * fence. See nvrm_gpu.h. May not: call the driver.
 */
#include <errno.h>

#include "nvrm_abi.h"
#include "nvrm_gpu.h"

static uint32_t *put_semaphore(uint32_t *p, uint64_t at, uint64_t payload, uint32_t how)
{
	*p++ = NV_METHODS(NV_SEM_ADDR_LO, 5);
	*p++ = (uint32_t)at;
	*p++ = (uint32_t)(at >> 32);
	*p++ = (uint32_t)payload;
	*p++ = (uint32_t)(payload >> 32);
	*p++ = how;
	return p;
}

/*
 * Has the GPU done what stood at that place? The ring's GET does not say: it counts what has been
 * read, ahead of an acquire that waits.
 */
static bool is_free(const struct nvrm_channel *c, uint32_t place)
{
	/* the place after the next one is the first that is used again */
	return c->given < NVRM_ENTRIES - 1 ||
	       __atomic_load_n(&c->fences[place].payload, __ATOMIC_ACQUIRE);
}

int rtx_lib_nvrm_submit(struct nvrm_gpu *gpu, struct nvrm_channel *c, uint64_t word_at,
			uint32_t value, uint64_t payload, bool interrupt)
{
	uint32_t place = c->put, next = (place + 1) % NVRM_ENTRIES, methods[NVRM_PLACE_WORDS];
	uint64_t at = c->push_at + place * NVRM_PLACE_WORDS * 4ull;
	uint32_t *p = methods;

	/* One place stays empty, since a full ring would look like an empty one. */
	if (!is_free(c, next))
		return -EAGAIN;
	c->given += c->given < NVRM_ENTRIES;
	c->fences[place].payload = 0;
	if (word_at)
		p = put_semaphore(p, word_at, value, NV_SEM_ACQUIRE_CIRCULAR | NV_SEM_SWITCH);
	/*
	 * Who is woken reads the word, so the interrupt does not wait until the fence is written.
	 */
	if (interrupt) {
		*p++ = NV_METHODS(NV_NON_STALL_INTERRUPT, 1);
		*p++ = 0;
	}
	p = put_semaphore(p, c->fences_at + place * sizeof(struct nvrm_fence), payload,
			  NV_SEM_RELEASE | NV_SEM_64_BIT | NV_SEM_TIME_STAMP);
	for (uint32_t i = 0; i < p - methods; i++)
		c->push[place * NVRM_PLACE_WORDS + i] = methods[i];
	c->ring[place * 2] = (uint32_t)at;
	c->ring[place * 2 + 1] = (uint32_t)(at >> 32) | (uint32_t)(p - methods) << 10;
	/*
	 * All of it must be in memory before the GPU is told, and it reads past our caches' order.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&c->userd[NV_USERD_GP_PUT / 4], next, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/* a register that all channels share; none in a child that was forked meanwhile */
	if (gpu->doorbell)
		__atomic_store_n(gpu->doorbell, c->token, __ATOMIC_RELEASE);
	c->put = next;
	return (int)place;
}
