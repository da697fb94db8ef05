// SPDX-License-Identifier: MIT
/*
 * value.c - values as they are typed on the command line, and back. It judges their form and
 * range; whether a host can grant them is the host's to say.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "value.h"

/*
 * A non-negative decimal number at the start of text; *rest is what follows it. False if there is
 * none.
 */
static bool leading_number(const char *text, double *value, const char **rest)
{
	char *end;

	/* strtod alone would take "inf", "nan", "0x10" and a sign. */
	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return false;
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return false;
	errno = 0;
	*value = strtod(text, &end);
	*rest = end;
	return end != text && errno == 0 && isfinite(*value);
}

int value_share(const char *option, const char *text, uint32_t *ppm)
{
	const char *rest;
	double value;

	if (!leading_number(text, &value, &rest) || (rest[0] != '\0' && strcmp(rest, "%") != 0) ||
	    value > 100.0) {
		message_error(
			"%s: '%s' is not a share of a GPU; accepted: 0%% to 100%%, as 40%%, 40 or "
			"37.5%%",
			option, text);
		return -EINVAL;
	}
	*ppm = (uint32_t)llround(value * 10000.0);
	return 0;
}

int value_duration(const char *option, const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = { { "ns", 1 },   { "us", 1e3 }, { "µs", 1e3 },
		      { "ms", 1e6 }, { "s", 1e9 },  { "min", 60e9 } };
	const char *rest;
	double value;

	if (leading_number(text, &value, &rest)) {
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
			if (strcmp(rest, units[i].unit) == 0 && value * units[i].ns < 9e18) {
				*ns = (uint64_t)llround(value * units[i].ns);
				return 0;
			}
		}
	}
	message_error(
		"%s: '%s' is not a duration; accepted: a number with its unit (ns, us, ms, s, "
		"min), as 10ms",
		option, text);
	return -EINVAL;
}

static int duration_within(const char *option, const char *text, uint64_t *ns, uint64_t min,
			   uint64_t max)
{
	char least[32], most[32];

	if (value_duration(option, text, ns))
		return -EINVAL;
	if (*ns >= min && *ns <= max)
		return 0;
	message_error("%s: '%s' is not accepted; accepted: %s to %s, or 'default'", option, text,
		      value_format_duration(min, least, sizeof(least)),
		      value_format_duration(max, most, sizeof(most)));
	return -EINVAL;
}

int value_latency(const char *option, const char *text, uint64_t *ns)
{
	return duration_within(option, text, ns, 100000ull, 10000000000ull);
}

int value_quantum(const char *option, const char *text, uint64_t *ns)
{
	return duration_within(option, text, ns, 1000000ull, 1000000000ull);
}

/* 0 stood for "no cap" once: the opposite of what it says. */
static int some_cap(const char *option, const char *text, uint32_t ppm)
{
	if (ppm)
		return 0;
	message_error(
		"%s: '%s' is a cap of nothing, under which programs would wait for ever; accepted: "
		"0.0001%% to 100%%, or max",
		option, text);
	return -EINVAL;
}

int value_quota(const char *option, const char *text, uint32_t *ppm, uint64_t *period_ns)
{
	const char *slash = strchr(text, '/');
	uint64_t quota, period;
	char first[32];

	if (strcmp(text, "max") == 0) {
		*ppm = 1000000;
		return 0;
	}
	if (!slash)
		return value_share(option, text, ppm) ? -EINVAL : some_cap(option, text, *ppm);
	if ((size_t)(slash - text) >= sizeof(first)) {
		message_error("%s: '%s' is not QUOTA/PERIOD, as 4ms/10ms", option, text);
		return -EINVAL;
	}
	memcpy(first, text, (size_t)(slash - text));
	first[slash - text] = '\0';
	if (value_duration(option, first, &quota) || value_duration(option, slash + 1, &period))
		return -EINVAL;
	if (period == 0 || quota > period) {
		message_error(
			"%s: '%s': the quota must not pass the period, and the period not be zero",
			option, text);
		return -EINVAL;
	}
	*ppm = (uint32_t)llround((double)quota / (double)period * 1e6);
	*period_ns = period;
	return some_cap(option, text, *ppm);
}

int value_number(const char *option, const char *text, long min, long max, long *value)
{
	char *end;

	errno = 0;
	*value = strtol(text, &end, 10);
	if (end == text || *end != '\0' || errno || *value < min || *value > max) {
		message_error("%s: '%s' is not accepted; accepted: a whole number from %ld to %ld",
			      option, text, min, max);
		return -EINVAL;
	}
	return 0;
}

int value_cpus(const char *option, const char *text, cpu_set_t *cpus)
{
	const char *at = text;

	CPU_ZERO(cpus);
	for (;;) {
		unsigned long first, last, step = 1;
		char *end;

		if (!isdigit((unsigned char)*at))
			break;
		first = last = strtoul(at, &end, 10);
		at = end;
		if (*at == '-') {
			if (!isdigit((unsigned char)at[1]))
				break;
			last = strtoul(at + 1, &end, 10);
			at = end;
			if (*at == ':') {
				step = strtoul(at + 1, &end, 10);
				if (end == at + 1 || step == 0)
					break;
				at = end;
			}
		}
		if (last < first || last >= CPU_SETSIZE)
			break;
		for (unsigned long cpu = first; cpu <= last; cpu += step)
			CPU_SET(cpu, cpus);
		if (*at == '\0')
			return 0;
		if (*at++ != ',')
			break;
	}
	message_error(
		"%s: '%s' is not a list of CPUs; accepted: numbers below %d and ranges, as 0-3,6",
		option, text, CPU_SETSIZE);
	return -EINVAL;
}

char *value_format_cpus(const cpu_set_t *cpus, char *buffer, size_t size)
{
	size_t used = 0;

	buffer[0] = '\0';
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		int last = cpu;

		if (!CPU_ISSET(cpu, cpus))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
			last++;
		if (used < size)
			used += (size_t)snprintf(buffer + used, size - used,
						 last > cpu ? "%s%d-%d" : "%s%d", used ? "," : "",
						 cpu, last);
		cpu = last;
	}
	return buffer;
}

/* Limits of the protocol: 1 MiB to 1 PiB. */
int value_bytes(const char *option, const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	double number = 0;
	char *end = (char *)text;
	const char *unit;

	if (*text >= '0' && *text <= '9')
		number = strtod(text, &end);
	unit = *end ? strchr(units, *end) : NULL;
	for (const char *u = units; unit && u <= unit; u++)
		number *= 1024;
	if (!unit || (end[1] && strcmp(end + 1, "iB") != 0) || !(number >= 1 << 20) ||
	    number > 1125899906842624.0) {
		message_error("%s: '%s' is not accepted; accepted: 1M to 1024T, as 512M or 1.5G",
			      option, text);
		return -EINVAL;
	}
	*bytes = (uint64_t)number;
	return 0;
}

char *value_format_bytes(uint64_t bytes, char *buffer, size_t size)
{
	static const char units[] = "KMGT";
	double value = (double)bytes;
	int unit = -1;

	while (value >= 1024 && unit < 3) {
		value /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(buffer, size, "%llu", (unsigned long long)bytes);
	else
		snprintf(buffer, size, value < 9.95 ? "%.1f%c" : "%.0f%c", value, units[unit]);
	return buffer;
}

char *value_format_duration(uint64_t ns, char *buffer, size_t size)
{
	if (ns >= 60000000000ull)
		snprintf(buffer, size, "%.4gmin", (double)ns / 60e9);
	else if (ns >= 1000000000ull)
		snprintf(buffer, size, "%.4gs", (double)ns / 1e9);
	else if (ns >= 1000000ull)
		snprintf(buffer, size, "%.4gms", (double)ns / 1e6);
	else if (ns >= 1000ull)
		snprintf(buffer, size, "%.4gus", (double)ns / 1e3);
	else
		snprintf(buffer, size, "%lluns", (unsigned long long)ns);
	return buffer;
}

char *value_format_share(double share, char *buffer, size_t size)
{
	snprintf(buffer, size, "%.1f%%", share * 100.0);
	return buffer;
}
