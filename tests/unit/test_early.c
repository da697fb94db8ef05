// SPDX-License-Identifier: MIT
/*
 * test_early.c - the next task gets its permit before the launch that is on the engine has ended,
 * where that was asked for, its end can be foreseen, and none is passed over by it.
 */
#include "permit_rig.h"

#define AHEAD (200 * US)
#define EARLY (100 * US)
#define USE   (1000 * US)

static const struct rtxg_gpu_params *with(uint32_t early_ns, uint32_t policy)
{
	static struct rtxg_gpu_params params;

	params = rtxg_core_gpu_defaults();
	params.policy = policy;
	params.ahead_ns = AHEAD;
	params.early_ns = early_ns;
	return &params;
}

static void set_gpu(const struct rtxg_gpu_params *params)
{
	event((struct rtxg_event){ .type = RTXG_EV_GPU_SET, .gpu_params = *params });
}

static void set_vgpu(uint32_t vgpu, struct rtxg_vgpu_params params)
{
	event((struct rtxg_event){ .type = RTXG_EV_VGPU_SET, .vgpu = vgpu, .vgpu_params = params });
}

/*
 * Two tasks of one vGPU launch in turn, each use equally long, until both are known; then task 0
 * has begun, and task 1 waits.
 */
static void alternate(const struct rtxg_gpu_params *params)
{
	set_gpu(params);
	open_task(0, 0, 1, 0);
	open_task(1, 0, 1, 0);
	want(0);
	want(1);
	launch(0);
	for (uint32_t i = 0; i < 4; i++) {
		pass(USE);
		if (has((i + 1) % 2)) /* early */
			launch((i + 1) % 2);
		complete(i % 2);
		want(i % 2);
		if (has((i + 1) % 2))
			launch((i + 1) % 2);
	}
	assert_false(has(1));
	assert_true(page(0)->in_flight);
}

/* A task goes, and another one may come in its place. */
static void leave(uint32_t id)
{
	permit_close(&w.machine, w.now, &w.tasks[id]);
	assert_null(rtxg_core_check(w.core));
	memset(&w.pages[id], 0, sizeof(w.pages[id]));
}

static void test_the_next_task_launches_before_the_end(void **unused)
{
	struct rtxg_stats before, stats;

	alternate(with(EARLY, RTXG_GPU_BAND));
	before = stats_of(1);
	pass(USE - EARLY - 1);
	assert_false(has(1));
	pass(1);
	assert_true(has(1));
	assert_int_equal(rtxg_core_holder(w.core, 0, C), 0);
	launch(1);
	pass(EARLY);
	complete(0);
	assert_int_equal(rtxg_core_holder(w.core, 0, C), 1);
	pass(USE);
	complete(1);
	/* It pays from when the engine was its own. */
	stats = stats_of(1);
	assert_int_equal(stats.busy_ns - before.busy_ns, USE);
	assert_int_equal(stats.grants - before.grants, 1);
	assert_int_equal(stats.completions - before.completions, 1);
}

/* Two have a permit, and no third gets one: not by waiting, nor while the first overruns. */
static void test_no_more_than_two_have_a_permit(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	open_task(2, 0, 1, 0);
	want(2);
	pass(USE);
	assert_true(has(1));
	launch(1);
	pass(3 * USE);
	assert_false(has(2));
	/* The second ends before the first: the engine is not free. */
	complete(1);
	assert_false(has(2));
	pass(USE);
	assert_false(has(2));
	complete(0);
	assert_true(has(2));
}

static void test_the_second_wants_again_meanwhile(void **unused)
{
	struct rtxg_stats before;

	alternate(with(EARLY, RTXG_GPU_FIFO));
	before = stats_of(1);
	pass(USE - EARLY);
	launch(1);
	want(1); /* another thread of it */
	complete(1);
	/* Not twice within the same use. */
	assert_false(has(1));
	assert_int_equal(stats_of(1).busy_ns, before.busy_ns);
	pass(EARLY);
	complete(0);
	assert_true(has(1));
}

static void test_a_second_that_goes_leaves_nothing_behind(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	pass(USE - EARLY);
	assert_true(has(1));
	leave(1);
	pass(EARLY);
	complete(0);
	want(0);
	assert_true(has(0));
}

static void test_a_first_that_goes_leaves_the_engine_to_the_second(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	pass(USE - EARLY);
	launch(1);
	leave(0);
	assert_int_equal(rtxg_core_holder(w.core, 0, C), 1);
	complete(1);
	assert_int_equal(rtxg_core_holder(w.core, 0, C), RTXG_NONE);
}

/*
 * For how long a vGPU wanted the engine holds all of it, also where the second came when the first
 * had not yet been asked what it used.
 */
static void test_all_time_with_work_counts_once(void **unused)
{
	const struct permit_use *use = &w.accounts[0].engines[C];
	uint64_t before;

	alternate(with(EARLY, RTXG_GPU_BAND));
	page(1)->want = 0;
	ring(1);
	before = permit_active_ns(use, w.now);
	pass(USE - EARLY / 2);
	want(1);
	pass(EARLY / 4);
	launch(1);
	pass(EARLY / 4);
	complete(0);
	assert_int_equal(permit_active_ns(use, w.now) - before, USE);
	pass(USE);
	complete(1);
	assert_int_equal(permit_active_ns(use, w.now) - before, 2 * USE);
}

/* It gave up at the moment when it got its permit. */
static void test_a_second_that_gives_up(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	page(1)->want = 0;
	pass(USE - EARLY);
	ring(1);
	assert_false(has(1));
	pass(EARLY);
	complete(0);
	assert_int_equal(rtxg_core_holder(w.core, 0, C), RTXG_NONE);
}

/*
 * A first that is stopped is waited for no longer than without, although the second waits no more.
 */
static void test_patience_with_the_first_goes_on(void **unused)
{
	uint64_t patience = rtxg_core_gpu_defaults().revoke_timeout_ns;

	alternate(with(EARLY, RTXG_GPU_BAND));
	open_task(2, 0, 1, 0);
	pass(USE - EARLY);
	launch(1);
	want(2);
	pass(patience);
	assert_int_equal(stats_of(0).expelled, 1);
	assert_int_equal(rtxg_core_holder(w.core, 0, C), 1);
	complete(1);
	assert_true(has(2));
}

/* A second that is stopped with its permit is waited for once, from when the engine is its own. */
static void test_patience_with_the_second(void **unused)
{
	uint64_t patience = rtxg_core_gpu_defaults().revoke_timeout_ns;

	alternate(with(EARLY, RTXG_GPU_BAND));
	pass(USE);
	complete(0);
	want(0);
	pass(patience);
	assert_int_equal(stats_of(1).expelled, 1);
	assert_true(has(0));
}

static void test_a_policy_that_is_changed_meanwhile(void **unused)
{
	for (uint32_t policy = 0; policy < RTXG_GPU_POLICIES; policy++) {
		alternate(with(EARLY, RTXG_GPU_BAND));
		pass(USE - EARLY);
		launch(1);
		set_gpu(with(0, policy));
		assert_null(rtxg_core_check(w.core));
		pass(EARLY);
		complete(0);
		assert_null(rtxg_core_check(w.core));
		want(0);
		complete(1);
		pass(USE); /* BAND leaves the engine free for a moment */
		assert_true(has(0));
		leave(0);
		leave(1);
	}
}

static void not_early(void)
{
	for (unsigned int i = 0; i < 400; i++) {
		pass(10 * US);
		assert_false(has(1));
	}
	complete(0);
	pass(USE);
	assert_true(has(1));
}

static void test_none_is_early_unless_it_was_asked_for(void **unused)
{
	alternate(with(0, RTXG_GPU_BAND));
	not_early();
}

/* It is on its way, and the next one would be faster. */
static void test_none_is_early_before_the_first_has_launched(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	pass(USE - EARLY);
	launch(1);
	complete(0);
	want(0);
	complete(1);
	assert_true(has(0));
	want(1);
	pass(USE - EARLY);
	assert_false(has(1));
	/* Once it has, and is likely to end: at the next look. */
	launch(0);
	pass(EARLY / 2);
	assert_true(has(1));
}

static void test_none_is_early_in_a_vgpu_with_a_cap(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_CBS));
	set_vgpu(0, (struct rtxg_vgpu_params){ .max_ppm = 500000 });
	not_early();
}

static void test_none_is_early_where_ranks_decide(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	set_vgpu(0, (struct rtxg_vgpu_params){ .policy = RTXG_TASK_FP });
	not_early();
}

static void test_none_is_early_while_another_vgpu_waits(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_FIFO));
	open_task(2, 1, 1, 0);
	want(2);
	for (unsigned int i = 0; i < 400; i++) {
		pass(10 * US);
		assert_false(has(1));
		assert_false(has(2));
	}
}

static void test_none_is_early_beside_a_vgpu_that_goes_first(void **unused)
{
	static const struct rtxg_vgpu_params first[] = { { .priority = 2 }, { .min_ppm = 100000 } };

	for (unsigned int i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		alternate(with(EARLY, RTXG_GPU_BAND));
		set_vgpu(1, first[i]);
		open_task(2, 1, 1, 0); /* wants nothing, so far */
		for (unsigned int j = 0; j < 400; j++) {
			pass(10 * US);
			assert_false(has(1));
		}
		for (uint32_t id = 0; id < 3; id++)
			leave(id);
	}
}

static void test_one_is_early_beside_a_vgpu_that_does_not(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	open_task(2, 1, 1, 0);
	pass(USE - EARLY);
	assert_true(has(1));
}

/* A task that gets its permit early is woken by it, and no CPU stands ready for it. */
static void test_early_goes_without_an_alert(void **unused)
{
	static const uint32_t ahead[] = { 0, AHEAD };

	for (unsigned int i = 0; i < sizeof(ahead) / sizeof(ahead[0]); i++) {
		struct rtxg_gpu_params params = *with(2 * AHEAD, RTXG_GPU_BAND);

		params.ahead_ns = ahead[i];
		alternate(&params);
		w.ready_until = 0;
		pass(USE - 2 * AHEAD - 1);
		assert_false(has(1));
		pass(1);
		assert_true(has(1));
		launch(1);
		pass(2 * AHEAD);
		assert_int_equal(w.ready_until, 0);
		leave(0);
		leave(1);
	}
}

static void test_no_use_is_shorter_than_early(void **unused)
{
	alternate(with(USE, RTXG_GPU_BAND));
	pass(USE - AHEAD);
	assert_false(has(1));
	assert_int_equal(w.ready_until, w.now + 2 * AHEAD);
}

/* Task 1 has completed and wants again, task 0 launches: the permit comes before that ends. */
static void first_uses_while_second_waits(void)
{
	complete(1);
	want(1);
	launch(0);
	pass(USE - EARLY);
	assert_true(has(1));
}

/* A use that lasted longer by what it took to wake up is foreseen all the same. */
static void test_early_needs_no_uses_that_are_alike(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	pass(USE + USE / 2);
	complete(0);
	want(0);
	assert_true(has(1));
	launch(1);
	pass(USE);
	first_uses_while_second_waits();
}

/* One that comes for the first time is taken to be like the others of its vGPU. */
static void test_a_first_use_is_foreseen_by_those_of_others(void **unused)
{
	alternate(with(EARLY, RTXG_GPU_BAND));
	open_task(2, 0, 1, 0);
	want(2);
	pass(USE);
	launch(1);
	complete(0);
	pass(USE);
	launch(2);
	complete(1);
	want(1);
	pass(USE - EARLY - 1);
	assert_false(has(1));
	pass(1);
	assert_true(has(1));
}

/* A lease that was kept for long says nothing of the one use that there was under it. */
static void test_a_lease_is_no_use(void **unused)
{
	set_gpu(with(EARLY, RTXG_GPU_BAND));
	open_task(0, 0, 1, 0);
	open_task(1, 0, 1, 0);
	want(0);
	launch(0);
	pass(USE);
	complete(0);
	pass(10 * USE);
	want(1);
	launch(1);
	want(0);
	pass(USE);
	first_uses_while_second_waits();
}

/* A time that is shorter than what a look costs: the host is not asked without a pause. */
static void test_looks_whether_it_has_launched_are_few(void **unused)
{
	unsigned int looks = 0;

	alternate(with(8, RTXG_GPU_BAND));
	pass(USE - AHEAD);
	complete(0);
	want(0);
	for (uint64_t end = w.now + 2 * USE; w.now < end; looks++)
		pass(w.armed < end ? w.armed - w.now : end - w.now);
	assert_true(has(1));
	assert_false(has(0));
	assert_in_range(looks, 1, 2 * USE / (5 * US));
}

/* --- a device, and programs that take their time ------------------------------------------- */

#define LEARNS 8u /* uses after which those of all programs are known */

/* Programs of one vGPU that launch, wait, and launch again after a pause; the device's queue. */
static struct {
	uint64_t acts[4];   /* when it does what it has to do next; NEVER: it waits */
	uint64_t ends[4];   /* of its work on the device; NEVER: it has none there */
	uint64_t wakes;	    /* from a permit, or the end of its work, to when a program acts */
	uint64_t free_from; /* the device has no work from then on */
	uint64_t idle;
	unsigned int ended;
} device;

static void program(uint32_t id, uint64_t pause)
{
	if (device.ends[id] != RTXG_TIME_NEVER) {
		complete(id);
		device.ended++;
		device.ends[id] = RTXG_TIME_NEVER;
		device.acts[id] = w.now + pause;
	} else if (has(id)) {
		uint64_t begins = device.free_from > w.now ? device.free_from : w.now;

		launch(id);
		if (device.ended >= LEARNS)
			device.idle += begins - device.free_from;
		device.free_from = device.ends[id] = begins + USE;
		device.acts[id] = device.ends[id] + device.wakes;
	} else {
		want(id);
		device.acts[id] = has(id) ? w.now + device.wakes : RTXG_TIME_NEVER;
	}
}

/* For how long, on average, the device has no work between two uses. */
static uint64_t idle_between(const struct rtxg_gpu_params *params, uint32_t programs,
			     uint64_t wakes)
{
	memset(&device, 0, sizeof(device));
	device.wakes = wakes;
	set_gpu(params);
	for (uint32_t i = 0; i < programs; i++) {
		open_task(i, 0, 1, 0);
		device.acts[i] = w.now + i;
		device.ends[i] = RTXG_TIME_NEVER;
	}
	while (device.ended < 200) {
		pass(US);
		for (uint32_t i = 0; i < programs; i++) {
			if (device.acts[i] == RTXG_TIME_NEVER && has(i))
				device.acts[i] = w.now + device.wakes;
			if (device.acts[i] <= w.now)
				program(i, USE / 5);
		}
	}
	for (uint32_t i = 0; i < programs; i++)
		leave(i);
	return device.idle / (device.ended - LEARNS);
}

static void test_the_device_is_idle_no_more(void **unused)
{
	for (uint32_t programs = 2; programs <= 3; programs++) {
		/* the end is seen, and then the next one has its permit */
		assert_true(idle_between(with(0, RTXG_GPU_BAND), programs, 40 * US) >= 80 * US);
		assert_true(idle_between(with(EARLY, RTXG_GPU_BAND), programs, 40 * US) <= US);
	}
}

/*
 * Programs that take longer to wake up than the next one is alerted ahead. An end is seen so late,
 * too, so a permit has to come earlier by twice that time.
 */
static void test_the_device_is_idle_no_more_if_waking_up_takes_long(void **unused)
{
	uint64_t wakes = AHEAD + AHEAD / 4;

	for (uint32_t programs = 2; programs <= 4; programs++) {
		assert_true(idle_between(with(0, RTXG_GPU_BAND), programs, wakes) >= 2 * wakes);
		assert_true(idle_between(with(3 * AHEAD, RTXG_GPU_BAND), programs, wakes) <= US);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_the_next_task_launches_before_the_end),
		TEST(test_no_more_than_two_have_a_permit),
		TEST(test_the_second_wants_again_meanwhile),
		TEST(test_a_second_that_goes_leaves_nothing_behind),
		TEST(test_a_first_that_goes_leaves_the_engine_to_the_second),
		TEST(test_all_time_with_work_counts_once),
		TEST(test_a_second_that_gives_up),
		TEST(test_patience_with_the_first_goes_on),
		TEST(test_patience_with_the_second),
		TEST(test_a_policy_that_is_changed_meanwhile),
		TEST(test_none_is_early_unless_it_was_asked_for),
		TEST(test_none_is_early_before_the_first_has_launched),
		TEST(test_none_is_early_in_a_vgpu_with_a_cap),
		TEST(test_none_is_early_where_ranks_decide),
		TEST(test_none_is_early_while_another_vgpu_waits),
		TEST(test_none_is_early_beside_a_vgpu_that_goes_first),
		TEST(test_one_is_early_beside_a_vgpu_that_does_not),
		TEST(test_early_goes_without_an_alert),
		TEST(test_no_use_is_shorter_than_early),
		TEST(test_early_needs_no_uses_that_are_alike),
		TEST(test_a_first_use_is_foreseen_by_those_of_others),
		TEST(test_a_lease_is_no_use),
		TEST(test_looks_whether_it_has_launched_are_few),
		TEST(test_the_device_is_idle_no_more),
		TEST(test_the_device_is_idle_no_more_if_waking_up_takes_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
