// SPDX-License-Identifier: MIT
/* series.c - copies of slots: see series.h. Reads, and changes nothing. May not know a backend. */
#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "report.h"
#include "series.h"

void series_begin(struct series_list *list, const struct daemon *d, uint64_t first, const char *gpu)
{
	*list = (struct series_list){ .base = first, .first = first, .next = d->samples };
	list->last = &list->head;
	strcpy(list->gpu, gpu);
}

uint64_t series_first(struct series_list *list, const struct daemon *d)
{
	uint64_t oldest = history_oldest(d);

	if (list->first < oldest)
		list->first = oldest < list->next ? oldest : list->next;
	return list->first;
}

struct series_slot *series_add(struct series_list *list, const char *gpu, const char *vgpu,
			       uint32_t engine)
{
	size_t slots = (size_t)(list->next - list->base);
	struct series *one;

	if (list->gpu[0] && strcmp(list->gpu, gpu) != 0)
		return NULL;
	one = calloc(1, sizeof(*one) + slots * sizeof(one->slots[0]));
	if (!one) {
		list->bad = true;
		return NULL;
	}
	strcpy(one->gpu, gpu);
	strcpy(one->vgpu, vgpu);
	one->engine = engine;
	*list->last = one;
	list->last = &one->following;
	return one->slots;
}

json_t *series_report(const struct series_list *list, const struct series *series)
{
	json_t *busy = json_array(), *device = json_array(), *completions = json_array(),
	       *backlogged = json_array(), *o = json_object();

	for (uint64_t n = list->first; n < list->next; n++) {
		const struct series_slot *slot = &series->slots[n - list->base];

		json_array_append_new(busy, report_number(slot->busy_ns));
		json_array_append_new(device, report_number(slot->device_ns));
		json_array_append_new(completions, report_number(slot->completions));
		json_array_append_new(backlogged, report_number(slot->backlogged_ns));
	}
	report_put_text(o, "gpu", series->gpu);
	report_put_text(o, "vgpu", series->vgpu);
	report_put_text(o, "engine", rtxg_engine_name(series->engine));
	json_object_set_new(o, "busy_ns", busy);
	json_object_set_new(o, "device_ns", device);
	json_object_set_new(o, "completions", completions);
	json_object_set_new(o, "backlogged_ns", backlogged);
	return o;
}

void series_drop(struct series_list *list)
{
	struct series *one;

	while ((one = list->head)) {
		list->head = one->following;
		free(one);
	}
}
