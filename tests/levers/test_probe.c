// SPDX-License-Identifier: MIT
/*
 * test_probe.c - the probes: what they say of the lever's own contexts, whose records wait behind
 * those of others. The two helpers are children of this process, and the ring is this test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../bpf/discovery.h"
#include "nvprobe.h"
#include "probe.h"
#include "rig.h"
#include "state.h"

#define HELPERS 2
#define BEHIND	20 /* reads that bring records of others only */

pid_t __real_fork(void);
pid_t __wrap_fork(void);
int __wrap_execlp(const char *path, const char *name, ...);
bool __wrap_discovery_read(struct discovery *d, uint64_t until_ns, discovery_fn fn, void *ctx);
int __wrap_discovery_fd(const struct discovery *d);
int __wrap_discovery_watch(struct discovery *d, uint32_t pid, uint32_t tag);
void __wrap_discovery_close(struct discovery *d);

static const uint32_t clients[HELPERS] = { FIRST, SECOND };
static pid_t parent, helpers[HELPERS];
static int started, reads[HELPERS];
static bool silent; /* no record tells of the helpers */
static int *made;   /* shared with the helpers: who has a context */

pid_t __wrap_fork(void)
{
	pid_t pid;

	assert_in_range(started, 0, HELPERS - 1);
	parent = getpid();
	pid = __real_fork();
	if (pid > 0)
		helpers[started++] = pid;
	return pid;
}

/* In a helper: its kernel counts, whatever is stopped. */
int __wrap_execlp(const char *path, const char *name, ...)
{
	struct nvprobe_page *page;
	va_list words;

	(void)path;
	(void)name;
	die_with(parent);
	va_start(words, name);
	page = mmap(NULL, NVPROBE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
		    atoi(va_arg(words, char *)), 0);
	va_end(words);
	if (page == MAP_FAILED)
		return -1;
	__atomic_store_n(&made[started], 1, __ATOMIC_RELEASE);
	__atomic_store_n(&page->ready, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&page->stop, __ATOMIC_ACQUIRE)) {
		__atomic_fetch_add(&page->count, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&page->kicked, page->wanted, __ATOMIC_RELEASE);
		usleep(100);
	}
	_exit(0);
}

bool __wrap_discovery_read(struct discovery *d, uint64_t until_ns, discovery_fn fn, void *ctx)
{
	struct discover_record other = { .kind = DISCOVER_EXIT, .pid = 300, .tid = 300 };
	bool more = false;

	(void)d;
	(void)until_ns;
	fn(ctx, &other);
	for (uint32_t i = 0; i < HELPERS; i++) {
		if (silent || !__atomic_load_n(&made[i], __ATOMIC_ACQUIRE) ||
		    ++reads[i] > BEHIND + 1)
			continue;
		more = more || reads[i] <= BEHIND;
		if (reads[i] == BEHIND + 1)
			cuda_process(fn, ctx, (uint32_t)helpers[i], clients[i], 100 + 20 * i, 0);
	}
	return more;
}

int __wrap_discovery_fd(const struct discovery *d)
{
	(void)d;
	return -1;
}

int __wrap_discovery_watch(struct discovery *d, uint32_t pid, uint32_t tag)
{
	(void)d;
	(void)pid;
	(void)tag;
	return 0;
}

void __wrap_discovery_close(struct discovery *d)
{
	(void)d;
}

static const struct lever_nvidia_probe *said_of(const struct lever_nvidia *l, const char *what)
{
	for (int i = 0; i < l->probes; i++)
		if (!strcmp(l->probe[i].name, what))
			return &l->probe[i];
	fail_msg("nothing is said of %s", what);
	return NULL;
}

static struct lever_nvidia *probed(void)
{
	static char ring;
	struct lever_nvidia *l = lever_up();

	made = mmap(NULL, HELPERS * sizeof(*made), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(made != MAP_FAILED);
	memset(reads, 0, sizeof(reads));
	started = 0;
	l->discovery = (struct discovery *)&ring;
	/* There is no guardian as yet. */
	l->gpu[0].cannot_now = RTXG_SLICE_CAN_SUSPEND;
	l->gpu[0].can &= ~RTXG_SLICE_CAN_SUSPEND;
	nv_probe(l);
	munmap(made, HELPERS * sizeof(*made));
	return l;
}

static void its_own_records_are_read_behind_those_of_others(void **state)
{
	struct lever_nvidia *l = probed();

	(void)state;
	assert_string_equal(said_of(l, "discovery")->detail,
			    "our own contexts were seen being made");
	assert_int_equal(said_of(l, "discovery")->error, 0);
	lever_nvidia_close(l);
}

/* Which GPU they are on is not known either: programs are left alone on all of them. */
static void where_its_own_are_not_seen_nothing_is_governed(void **state)
{
	struct lever_nvidia *l;

	(void)state;
	fake->gpus = 2;
	silent = true;
	l = probed();
	silent = false;
	assert_int_equal(said_of(l, "discovery")->error, -ENOENT);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(l->gpu[i].can | l->gpu[i].cannot_now, 0);
	lever_nvidia_close(l);
}

/* What counts on while it is stopped is not stopped, also when there is a guardian later. */
static void what_a_probe_denies_no_guardian_brings_back(void **state)
{
	struct lever_nvidia *l = probed();

	(void)state;
	assert_int_not_equal(said_of(l, "suspend")->error, 0);
	assert_int_equal((l->gpu[0].can | l->gpu[0].cannot_now) & RTXG_SLICE_CAN_SUSPEND, 0);
	lever_nvidia_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(its_own_records_are_read_behind_those_of_others, before),
		cmocka_unit_test_setup(where_its_own_are_not_seen_nothing_is_governed, before),
		cmocka_unit_test_setup(what_a_probe_denies_no_guardian_brings_back, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
