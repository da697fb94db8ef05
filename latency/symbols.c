// SPDX-License-Identifier: MIT
/*
 * symbols.c - /proc/kallsyms as a sorted table. May not: be called while anything is measured.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbols.h"

struct symbol {
	uint64_t address;
	char *name;
};

struct symbols {
	struct symbol *list;
	size_t count;
};

static int by_address(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

#define READ_BYTES 65536 /* the kernel makes each line as it is read: few reads are cheaper */

struct symbols *symbols_open(void)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	struct symbols *s = calloc(1, sizeof(*s));
	char *line = NULL;
	size_t size = 0, room = 0;

	if (file)
		setvbuf(file, NULL, _IOFBF, READ_BYTES);
	while (s && file && getline(&line, &size, file) > 0) {
		char *end, kind, *name;
		uint64_t address = strtoull(line, &end, 16);
		struct symbol *more;

		kind = *end ? end[1] : 0;
		if (!address || !strchr("tTwW", kind) || !kind)
			continue;
		name = end + 3;
		name[strcspn(name, "\n")] = 0;
		name[strcspn(name, "\t")] = name[strcspn(name, "\t")] ? ' ' : 0;
		if (s->count == room) {
			room = room ? room * 2 : 65536;
			more = realloc(s->list, room * sizeof(*more));
			if (!more)
				break;
			s->list = more;
		}
		s->list[s->count].address = address;
		s->list[s->count].name = strdup(name);
		if (!s->list[s->count].name)
			break;
		s->count++;
	}
	free(line);
	if (file)
		fclose(file);
	if (s && !s->count) {
		symbols_close(s);
		return NULL;
	}
	if (s)
		qsort(s->list, s->count, sizeof(*s->list), by_address);
	return s;
}

void symbols_close(struct symbols *s)
{
	for (size_t i = 0; s && i < s->count; i++)
		free(s->list[i].name);
	if (s)
		free(s->list);
	free(s);
}

void symbols_ranges(struct symbols_range *ranges, int count)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char *line = NULL;
	size_t size = 0;
	int left = count;

	for (int i = 0; i < count; i++)
		ranges[i].from = ranges[i].to = 0;
	if (file)
		setvbuf(file, NULL, _IOFBF, READ_BYTES);
	/* the kernel's own are in the order of their addresses: the next one is where it ends */
	while (file && left && getline(&line, &size, file) > 0) {
		char *end;
		uint64_t address = strtoull(line, &end, 16);

		if (!address || strlen(end) < 4)
			continue;
		end += 3;
		end[strcspn(end, "\n\t")] = 0;
		for (int i = 0; i < count; i++) {
			struct symbols_range *range = &ranges[i];

			if (!range->from && !strcmp(end, range->name)) {
				range->from = address;
			} else if (range->from && !range->to && address > range->from) {
				range->to = address;
				left--;
			}
		}
	}
	free(line);
	if (file)
		fclose(file);
}

char *symbols_name(const struct symbols *s, uint64_t address, char *text, size_t size)
{
	size_t low = 0, high = s ? s->count : 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (s->list[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	/* no function is a megabyte long: the address is of something that is gone */
	if (low && address - s->list[low - 1].address < 1 << 20)
		snprintf(text, size, "%s", s->list[low - 1].name);
	else
		snprintf(text, size, "0x%llx", (unsigned long long)address);
	return text;
}

static bool begins_with(const char *name, const char *const *beginnings)
{
	for (; *beginnings; beginnings++)
		if (!strncmp(name, *beginnings, strlen(*beginnings)))
			return true;
	return false;
}

int symbols_culprit(const char *const *names, int count)
{
	/* where an interrupt comes in: what lies below was interrupted */
	static const char *const entries[] = { "asm_sysvec_", "asm_common_interrupt", "asm_exc_nmi",
					       "el1_irq",     "el1h_64_irq",	      NULL };
	static const char *const common[] = { "bpf_",
					      "__bpf_",
					      "__traceiter_",
					      "0x",
					      "__schedule",
					      "schedule",
					      "preempt_schedule",
					      "__cond_resched",
					      "_cond_resched",
					      "_raw_",
					      "__raw_",
					      "rt_spin_",
					      "rt_mutex_",
					      "thunk",
					      "asm_",
					      "irqentry_",
					      "raw_irqentry_",
					      "sysvec_",
					      "exit_to_user_mode",
					      "syscall_exit_",
					      "entry_SYSCALL",
					      "do_syscall_",
					      "x64_sys_call",
					      "ret_from_fork",
					      "kthread",
					      "__local_bh_",
					      "preempt_count_",
					      "irqentry_exit",
					      "arch_local_irq",
					      "el1h_64_",
					      "el0t_64_",
					      "el0_svc",
					      "invoke_syscall",
					      "do_notify_resume",
					      "dynamic_",
					      NULL };
	int from = 0;

	for (int i = 0; i < count; i++)
		if (begins_with(names[i], entries))
			from = i + 1;
	for (int i = from; i < count; i++)
		if (!begins_with(names[i], common))
			return i;
	return -1;
}
