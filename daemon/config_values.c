// SPDX-License-Identifier: MIT
/*
 * config_values.c - what is written in the configuration, as numbers and words. May not: know what
 * they are of.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config_values.h"

int config_share(const char *text, uint32_t *ppm)
{
	char *end;
	double percent;

	/* No other form of a number that C knows, as 0x20 or 1e1. */
	if (*text < '0' || *text > '9' || strcmp(text + strspn(text, "0123456789."), "%"))
		return -EINVAL;
	percent = strtod(text, &end);
	if (strcmp(end, "%") || !(percent >= 0 && percent <= 100))
		return -EINVAL;
	*ppm = (uint32_t)(percent * 10000 + 0.5);
	return 0;
}

int config_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "ns", 1 },    { "us", 1e3 }, { "µs", 1e3 },   { "ms", 1e6 },
		      { "sec", 1e9 }, { "s", 1e9 },  { "min", 60e9 }, { "m", 60e9 } };
	double sum = 0;
	bool any = false;

	for (;;) {
		double number;
		char *end;
		size_t i;

		while (*text == ' ')
			text++;
		if (!*text)
			break;
		if (*text < '0' || *text > '9')
			return -EINVAL;
		number = strtod(text, &end);
		text = end;
		while (*text == ' ')
			text++;
		for (i = 0; i < sizeof(units) / sizeof(*units); i++)
			if (!strncmp(text, units[i].unit, strlen(units[i].unit)))
				break;
		if (i < sizeof(units) / sizeof(*units)) {
			text += strlen(units[i].unit);
			sum += number * units[i].ns;
		} else if (!*text && !any) {
			sum = number * 1e9;
		} else {
			return -EINVAL;
		}
		any = true;
	}
	if (!any || !(sum >= 0 && sum <= 1e15))
		return -EINVAL;
	*ns = (uint64_t)(sum + 0.5);
	return 0;
}

bool config_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end && *value >= min && *value <= max;
}

bool config_size(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	static const char units[] = "KMGTP";
	double n;
	char *end;
	const char *unit;

	if (*text < '0' || *text > '9')
		return false;
	n = strtod(text, &end);
	unit = *end ? strchr(units, *end) : NULL;
	if (*end && (!unit || end[1]))
		return false;
	for (const char *u = units; unit && u <= unit; u++)
		n *= 1024;
	*value = n >= 0 && n <= (double)max ? (uint64_t)n : 0;
	return *value >= min && *value <= max;
}

bool config_word(const char *text, const char *(*name)(uint32_t), uint32_t *value)
{
	for (uint32_t i = 0; name(i); i++)
		if (!strcmp(name(i), text)) {
			*value = i;
			return true;
		}
	return false;
}

bool config_copy(char *to, size_t size, const char *from)
{
	if (!*from || strlen(from) >= size)
		return false;
	strcpy(to, from);
	return true;
}
