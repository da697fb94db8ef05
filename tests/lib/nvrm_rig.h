/* SPDX-License-Identifier: MIT */
/*
 * nvrm_rig.h - what the tests of timelines have in common: one GPU and one timeline of the library,
 * on the driver that is not there, and that nothing is left of them.
 */
#ifndef RTXG_TESTS_NVRM_RIG_H
#define RTXG_TESTS_NVRM_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "fake_nvrm.h"
#include "nvrm_gpu.h"
#include "rtxg_nvrm.h"

static rtx_nvrm_t gpu;
static rtx_timeline_t line;
static enum rtx_foresee foreseeing; /* of that timeline */
static void (*nothing_else_is_left)(
	void); /* checks what is the test's own; NULL: there is nothing */

static inline void rig_reset(void)
{
	fake_nvrm_reset();
	rtx_lib_nvrm_sys = &fake_nvrm_sys;
	gpu = NULL;
	line = NULL;
}

static inline void up(void)
{
	assert_int_equal(rtx_nvrm_init(&gpu, NULL), 0);
	assert_int_equal(rtx_nvrm_timeline(gpu, NULL, &line), 0);
	assert_int_equal(*rtx_timeline_word(line), 0);
	assert_int_equal(rtx_timeline_foresee(line, foreseeing), 0);
}

static inline void nothing_is_left(void)
{
	assert_int_equal(fake_nvrm.fds, 0);
	assert_int_equal(fake_nvrm.maps, 0);
	assert_int_equal(fake_nvrm.objects, 0);
	assert_int_equal(fake_nvrm.clients, 0);
	assert_int_equal(fake_nvrm.wild, 0);
	if (nothing_else_is_left)
		nothing_else_is_left();
}

static inline void down(void)
{
	assert_int_equal(rtx_nvrm_close(gpu), 0);
	nothing_is_left();
}

static inline void set(rtx_timeline_t t, uint32_t value)
{
	__atomic_store_n(rtx_timeline_word(t), value, __ATOMIC_RELEASE);
}

#endif
