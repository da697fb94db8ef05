// SPDX-License-Identifier: GPL-2.0-only
/*
 * trace.c - probes on the kernel's own tracepoints.
 *
 * The tracepoints that we need are in every kernel but are not exported to modules by name; the
 * list of all of them is. A probe is registered when it is first needed, and stays until the module
 * goes: each change patches the kernel's code and interrupts every CPU, which is unwelcome while
 * real-time tasks run. May not: know what a probe does.
 */
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "trace.h"

static DEFINE_MUTEX(lock);
static struct rtxg_probe *sets[RTXG_TRACE_SETS];
static bool active[RTXG_TRACE_SETS];

static void find(struct tracepoint *point, void *probes)
{
	for (struct rtxg_probe *probe = probes; probe->name; probe++)
		if (!strcmp(point->name, probe->name))
			probe->point = point;
}

void rtxg_trace_register(enum rtxg_trace_set set, struct rtxg_probe *probes)
{
	for_each_kernel_tracepoint(find, probes);
	sets[set] = probes;
}

/* Takes out the set's probes before end; NULL: all. */
static void unregister(enum rtxg_trace_set set, const struct rtxg_probe *end)
{
	for (struct rtxg_probe *probe = sets[set]; probe->name && probe != end; probe++)
		tracepoint_probe_unregister(probe->point, probe->function, NULL);
}

int rtxg_trace_need(enum rtxg_trace_set set)
{
	int err = 0;

	mutex_lock(&lock);
	for (struct rtxg_probe *probe = sets[set]; !active[set] && probe->name; probe++) {
		err = probe->point ? tracepoint_probe_register(probe->point, probe->function, NULL)
				   : -EOPNOTSUPP;
		if (err) {
			unregister(set, probe);
			break;
		}
	}
	if (!err)
		active[set] = true;
	mutex_unlock(&lock);
	return err;
}

void rtxg_trace_exit(void)
{
	for (int set = 0; set < RTXG_TRACE_SETS; set++)
		if (active[set])
			unregister(set, NULL);
	/* no probe of ours runs any more once this returns */
	tracepoint_synchronize_unregister();
}
