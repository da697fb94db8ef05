// SPDX-License-Identifier: MIT
/*
 * slice_rig.c - see slice_rig.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "slice_rig.h"

const struct rtxg_slice_tenant critical_and_two[CONTEXTS] = {
	{ .priority = RTXG_SLICE_CRITICAL_PRIORITY }, { .min_ppm = 500000 }, { .min_ppm = 300000 }
};
const struct rtxg_slice_tenant chat_and_two[CONTEXTS] = {
	{ .min_ppm = 300000, .latency_ns = 3 * MS }, { .min_ppm = 300000 }, { .min_ppm = 300000 }
};

const struct rtxg_slice_tenant small_and_two[CONTEXTS] = {
	{ .min_ppm = 20000, .latency_ns = 5 * MS }, { .min_ppm = 500000 }, { .min_ppm = 300000 }
};

const struct rtxg_slice_tenant two_in_batch[CONTEXTS] = { { .min_ppm = 100000 },
							  { .min_ppm = 500000 },
							  { .min_ppm = 300000 } };

void tell(struct rig *r, struct rtxg_slice_event event)
{
	struct rtxg_slice_action actions[16];
	int n = rtxg_slice_step(r->core, r->now, &event, actions, 16);

	assert_in_range(n, 0, 15);
	assert_null(rtxg_slice_check(r->core));
	for (int i = 0; i < n; i++) {
		if (actions[i].type == RTXG_SLICE_ARM) {
			r->timer = actions[i].ns;
			r->log_wanted = actions[i].context == RTXG_SLICE_NONE;
		} else if (actions[i].type != RTXG_SLICE_SET) {
			r->stopped[actions[i].context] = actions[i].type == RTXG_SLICE_SUSPEND;
		}
	}
}

void demand(struct rig *r, uint32_t context, uint32_t value)
{
	tell(r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_DEMAND,
					   .context = context,
					   .at_ns = r->now,
					   .since_ns = r->looked[context],
					   .value = value });
	r->looked[context] = r->now;
}

void happens(struct rig *r, uint32_t type, uint32_t context)
{
	assert_true(r->unread < LOG);
	r->log[r->unread++] =
		(struct rtxg_slice_event){ .type = type, .context = context, .at_ns = r->now };
}

void take(struct rig *r, uint32_t context)
{
	if (r->on != NO_CONTEXT)
		happens(r, RTXG_SLICE_EV_END, r->on);
	r->on = context;
	if (r->on != NO_CONTEXT)
		happens(r, RTXG_SLICE_EV_START, r->on);
}

void follow(struct rig *r)
{
	if (r->on != NO_CONTEXT && r->stopped[r->on])
		take(r, NO_CONTEXT);
	if (r->on == NO_CONTEXT && r->follows && !(r->stopped[1] && r->stopped[2]))
		take(r, r->stopped[1] ? 2 : 1);
}

void wake(struct rig *r, bool read)
{
	r->timer = UINT64_MAX;
	for (uint32_t i = 0; read && i < r->unread; i++)
		tell(r, r->log[i]);
	r->unread = read ? 0 : r->unread;
	tell(r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TIMER,
					   .value = read ? 0 : RTXG_SLICE_UNREAD });
}

void pass(struct rig *r, uint64_t ns)
{
	uint64_t until = r->now + ns;

	while (r->timer <= until) {
		r->now = r->timer > r->now ? r->timer : r->now;
		wake(r, r->log_wanted);
		follow(r);
	}
	r->now = until;
}

void decide_unread(struct rig *r)
{
	tell(r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_COUPLE, .tenant = 1 });
}

void begin(struct rig *r, const struct rtxg_slice_tenant *tenants)
{
	const struct rtxg_slice_params params = { .can = RTXG_SLICE_CAN_SLICE |
							 RTXG_SLICE_CAN_SUSPEND |
							 RTXG_SLICE_CAN_DEMAND };
	size_t size = rtxg_slice_size(CONTEXTS, CONTEXTS);

	*r = (struct rig){
		.memory = malloc(size), .now = 1 * MS, .timer = UINT64_MAX, .on = NO_CONTEXT
	};
	r->core = rtxg_slice_init(r->memory, size, CONTEXTS, CONTEXTS, &params, r->now);
	for (uint32_t i = 0; i < CONTEXTS; i++) {
		tell(r, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_TENANT_SET,
						   .tenant = i,
						   .tenant_params = tenants[i] });
		tell(r, (struct rtxg_slice_event){
				.type = RTXG_SLICE_EV_ADD, .context = i, .tenant = i });
	}
}

void end(struct rig *r)
{
	free(r->memory);
}

void begin_beside_two(struct rig *r, const struct rtxg_slice_tenant *tenants)
{
	begin(r, tenants);
	r->follows = true;
	take(r, 1);
	demand(r, 1, RTXG_SLICE_QUEUED);
	take(r, 2);
	demand(r, 2, RTXG_SLICE_QUEUED);
	wake(r, true);
	follow(r);
}

void arrive(struct rig *r)
{
	demand(r, 0, RTXG_SLICE_QUEUED);
	assert_true(r->stopped[1] && r->stopped[2]);
}

int64_t lag(const struct rig *r)
{
	struct rtxg_slice_view view;

	assert_int_equal(rtxg_slice_tenant_view(r->core, 0, &view), 0);
	return view.lag_ns;
}
