// SPDX-License-Identifier: MIT
/*
 * nvrm_choose.c - see nvrm_choose.h. May not: speak to the driver, but to read what it tells in
 * /proc.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nvrm_choose.h"

static bool uuid_is(const struct nv_card_info *card, const char *uuid)
{
	char path[80], line[128];
	bool same = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%04x:%02x:%02x.%x/information",
		 card->domain, card->bus, card->slot, card->function);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		char found[64];

		if (sscanf(line, "GPU UUID: %63s", found) == 1)
			same = !strcasecmp(found, uuid);
	}
	if (file)
		fclose(file);
	return same;
}

static bool before(const struct nv_card_info *a, const struct nv_card_info *b)
{
	if (a->domain != b->domain)
		return a->domain < b->domain;
	return a->bus != b->bus ? a->bus < b->bus : a->slot < b->slot;
}

const struct nv_card_info *rtx_lib_nvrm_choose(const struct nv_card_info *cards, const char *device)
{
	unsigned int number, domain, bus, slot;
	int end = 0;

	if (sscanf(device, "%u%n", &number, &end) == 1 && !device[end]) {
		for (int i = 0; i < RM_GPUS_MAX; i++) {
			unsigned int earlier = 0;

			if (!cards[i].valid)
				continue;
			for (int k = 0; k < RM_GPUS_MAX; k++)
				earlier += cards[k].valid && before(&cards[k], &cards[i]);
			if (earlier == number)
				return &cards[i];
		}
		return NULL;
	}
	if (sscanf(device, "%x:%x:%x", &domain, &bus, &slot) == 3) {
		for (int i = 0; i < RM_GPUS_MAX; i++)
			if (cards[i].valid && cards[i].domain == domain && cards[i].bus == bus &&
			    cards[i].slot == slot)
				return &cards[i];
		return NULL;
	}
	for (int i = 0; i < RM_GPUS_MAX; i++)
		if (cards[i].valid && !strncasecmp(device, "GPU-", 4) && uuid_is(&cards[i], device))
			return &cards[i];
	return NULL;
}
