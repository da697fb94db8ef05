// SPDX-License-Identifier: MIT
/*
 * test_registry.c - which clients, groups and channels the records of the discovery program make
 * of a process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>
#include "channels.h"
#include "fake_nvidiactl.h"
#include "rig.h"

static void registry_follows_a_process(void **state)
{
	struct nv_registry reg;
	struct nv_process *p;
	struct nv_what what;
	struct discover_record r;

	nv_registry_init(&reg);
	cuda_process(into_registry, &reg, 100, 0xc1d00010, 151, 3);
	p = nv_registry_process(&reg, 100);
	assert_non_null(p);
	assert_int_equal(p->tag, 3);
	assert_int_equal(p->group_count, 2);
	assert_int_equal(p->groups[0].count, 8);
	assert_true(nv_group_is_compute(&p->groups[0]));
	assert_false(nv_group_is_compute(&p->groups[1]));
	assert_ptr_equal(nv_registry_by_cid(&reg, 0, 154), p);
	assert_null(nv_registry_by_cid(&reg, 0, 999));
	assert_null(nv_registry_by_cid(&reg, 1, 154));
	/*
	 * Another process that names this client is not believed, neither in making nor in freeing.
	 */
	record(&r, 200, 0xc1d00010, 0x5c000015, 0x5c000099, 0xc86f, 1, 500);
	assert_int_equal(nv_registry_feed(&reg, &r, &what), -EPERM);
	r.kind = DISCOVER_FREE;
	r.object = 0xc1d00010;
	assert_int_equal(nv_registry_feed(&reg, &r, &what), 0);
	assert_int_equal(p->group_count, 2);
	assert_int_equal(reg.refused, 2);
	/* Freeing a channel, a group, the client */
	r.pid = 100;
	r.object = 0x5c00001c;
	assert_int_equal(nv_registry_feed(&reg, &r, &what), 0);
	assert_int_equal(what.change, NV_GONE_CHANNEL);
	assert_int_equal(p->groups[0].count, 7);
	r.object = 0x5c000015;
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(p->group_count, 1);
	r.object = 0xc1d00010;
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(p->group_count, 0);
	assert_int_equal(p->client_count, 0);
	/* The device takes its groups with it, exec takes all */
	cuda_process(into_registry, &reg, 100, 0xc1d00011, 171, 3);
	r.client = 0xc1d00011;
	r.object = 0x5c000001;
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(p->group_count, 0);
	cuda_process(into_registry, &reg, 100, 0xc1d00012, 191, 3);
	assert_int_equal(p->group_count, 2);
	r.kind = DISCOVER_EXEC;
	memcpy(r.comm, "other", 6);
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(p->group_count, 0);
	assert_string_equal(p->comm, "other");
	r.kind = DISCOVER_EXIT;
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(what.change, NV_GONE_PROCESS);
	nv_registry_drop(&reg, what.process);
	assert_int_equal(reg.count, 0);
	nv_registry_free(&reg);
}

/* The name goes into logs and to terminals, and the process chooses it. */
static void names_do_nothing_to_a_terminal(void **state)
{
	struct discover_record r = { .kind = DISCOVER_EXEC, .pid = 7 };
	struct nv_registry reg;
	struct nv_process *p;
	struct nv_what what;

	nv_registry_init(&reg);
	p = nv_registry_note(&reg, 7, "a\x1b[2J\xc2\x9b\xc3\xa9\xff");
	assert_non_null(p);
	assert_string_equal(p->comm, "a?[2J??\xc3\xa9?");
	memcpy(r.comm, "\xe2\x80\xae cut here \xc3", 15);
	nv_registry_feed(&reg, &r, &what);
	assert_string_equal(p->comm, "??? cut here ?");
	nv_registry_free(&reg);
}

static void registry_knows_mps_and_lone_channels(void **state)
{
	struct discover_record r;
	struct nv_registry reg;
	struct nv_what what;
	struct nv_process *p;

	nv_registry_init(&reg);
	record(&r, 300, 0xc1d00020, 0, 0xc1d00020, DISCOVER_CLASS_ROOT_CLIENT, 0, 0);
	memcpy(r.comm, "nvidia-cuda-mps", 16);
	nv_registry_feed(&reg, &r, &what);
	p = nv_registry_process(&reg, 300);
	assert_true(p->mps_server);
	record(&r, 300, 0xc1d00020, 0x80, 0x99, 0xc56f, 1, 42);
	nv_registry_feed(&reg, &r, &what);
	assert_int_equal(what.change, NV_NEW_CHANNEL);
	assert_true(p->groups[0].lone);
	nv_registry_free(&reg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(registry_follows_a_process, before),
		cmocka_unit_test_setup(names_do_nothing_to_a_terminal, before),
		cmocka_unit_test_setup(registry_knows_mps_and_lone_channels, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
