// SPDX-License-Identifier: MIT
/*
 * culprit.c - joins a recording with the names of functions and system calls. May not: be called
 * while anything is measured.
 */
#include <stdio.h>
#include <string.h>

#include "../cli/text.h"
#include "culprit.h"

static const char *const syscalls[] = {
#include "syscall_names.inc"
};

/* The name of a system call, or "-". */
static const char *syscall_name(int number)
{
	if (number < 0 || (size_t)number >= sizeof(syscalls) / sizeof(syscalls[0]) ||
	    !syscalls[number])
		return "-";
	return syscalls[number];
}

/* The frames of a stack by name, innermost first. Returns how many. */
static int frames(const struct culprit *c, int stack, char names[][SYMBOLS_NAME])
{
	int count = 0;

	if (!c->capture || !c->capture->taken || stack < 0 || stack >= c->capture->stack_count)
		return 0;
	while (count < LATENCY_STACK_DEEP && c->capture->stacks[stack].ip[count]) {
		symbols_name(c->symbols, c->capture->stacks[stack].ip[count], names[count],
			     SYMBOLS_NAME);
		count++;
	}
	return count;
}

/*
 * The stack that shows what a part's task or softirq did: at the timer's interrupt or, where that
 * was in time and came upon nothing of interest, at the switch.
 */
static int find_stack(const struct culprit *c, const struct blame_part *part)
{
	bool task = part->kind == BLAME_HELD || part->kind == BLAME_STALLED ||
		    part->kind == BLAME_PREEMPTION;
	int softirq = -1, stack = -1;

	for (int i = 0; i < c->capture->count; i++) {
		const struct event *e = &c->capture->events[i];
		bool fits;

		if (e->type == EVENT_SOFTIRQ)
			softirq = (int)e->arg;
		else if (e->type == EVENT_SOFTIRQ_DONE)
			softirq = -1;
		if (e->stack < 0 || e->context != part->pid || e->ns < c->blame.expected_ns ||
		    e->ns > c->blame.ran_ns)
			continue;
		fits = part->kind == BLAME_SOFTIRQ
			       ? softirq >= 0 && !strcmp(part->name, blame_softirq(softirq))
			       : task && softirq < 0;
		if (fits && (e->type == EVENT_WAKING || stack < 0))
			stack = e->stack;
		if (fits && e->type == EVENT_WAKING)
			break;
	}
	return stack;
}

/* The frames from the one that did it on, for the names of which there is room. */
static int culprit_frames(const struct culprit *c, const struct blame_part *part,
			  char names[][SYMBOLS_NAME])
{
	char all[LATENCY_STACK_DEEP][SYMBOLS_NAME];
	const char *pointers[LATENCY_STACK_DEEP];
	int count = frames(c, part->stack, all), at;

	for (int i = 0; i < count; i++)
		pointers[i] = all[i];
	at = symbols_culprit(pointers, count);
	if (at < 0)
		return 0;
	memcpy(names, all[at], (size_t)(count - at) * SYMBOLS_NAME);
	return count - at;
}

static void name_part(const struct culprit *c, struct blame_part *part)
{
	char names[LATENCY_STACK_DEEP][SYMBOLS_NAME];

	part->stack = find_stack(c, part);
	if (culprit_frames(c, part, names))
		snprintf(part->where, sizeof(part->where), "%.31s", names[0]);
}

/* What was folded of the events before the first one. Returns how many parts it has. */
static int folded(const struct kernel_capture *capture, struct blame_part *parts)
{
	int count = 0;

	for (int i = 0; i < LATENCY_FOLDED; i++) {
		const struct latency_folded *from = &capture->fold.of[i];
		struct blame_part *part = &parts[count];

		if (!from->ns)
			continue;
		count++;
		*part = (struct blame_part){ .ns = from->ns,
					     .pid = -1,
					     .prio = EVENT_NO_PRIO,
					     .syscall = EVENT_NOT_KNOWN,
					     .stack = -1 };
		switch (from->kind) {
		case LATENCY_FOLD_TASK:
			part->kind = BLAME_PREEMPTION;
			part->pid = from->id;
			part->prio = from->prio;
			part->syscall = from->syscall;
			memcpy(part->name, from->name, EVENT_COMM);
			break;
		case LATENCY_FOLD_SOFTIRQ:
			part->kind = BLAME_SOFTIRQ;
			snprintf(part->name, sizeof(part->name), "%s", blame_softirq(from->id));
			break;
		case LATENCY_FOLD_VECTOR:
			kernel_vector(from->id, part->name);
			part->kind = strstr(part->name, "timer") ? BLAME_TIMER : BLAME_INTERRUPT;
			break;
		case LATENCY_FOLD_IRQ:
			memcpy(part->name, from->name, EVENT_NAME);
			part->kind =
				strstr(part->name, "arch_timer") ? BLAME_TIMER : BLAME_INTERRUPT;
			break;
		}
	}
	return count;
}

int culprit_find(struct culprit *c, const struct kernel_capture *capture,
		 const struct symbols *symbols)
{
	struct blame_part before[LATENCY_FOLDED];
	struct blame_case wanted = { .pid = capture->wake.pid,
				     .expected_ns = capture->expected_ns,
				     .ran_ns = capture->ran_ns,
				     .timer_ns = capture->wake.timer_ns,
				     .woken_ns = capture->wake.waking_ns,
				     .whole = capture->whole,
				     .here = capture->wake.timer_cpu == capture->wake.cpu,
				     .awake = !capture->wake.waking_ns };
	int ret;

	/* what is older may be of a thread that ran on another CPU */
	if (capture->taken && capture->fold.from_ns >= capture->expected_ns) {
		wanted.before = before;
		wanted.before_count = folded(capture, before);
		wanted.before_ns = capture->fold.begin_ns;
	}
	memset(c, 0, sizeof(*c));
	c->capture = capture;
	c->symbols = symbols;
	c->cpu = capture->wake.cpu;
	ret = blame_find(capture->events, capture->taken ? (size_t)capture->count : 0, &wanted,
			 &c->blame);
	if (ret)
		return ret;
	c->blame.syscall = capture->wake.syscall;
	if (!c->blame.switched_ns) {
		c->blame.prio = capture->wake.prio;
		c->blame.before = capture->wake.other;
		c->blame.before_prio = capture->wake.other_prio;
		c->blame.timer_ns = capture->wake.timer_ns;
		c->blame.woken_ns = capture->wake.waking_ns;
		c->blame.switched_ns = capture->wake.switch_ns;
		memcpy(c->blame.name, capture->wake.comm, EVENT_COMM);
		memcpy(c->blame.before_name, capture->wake.other_comm, EVENT_COMM);
	}
	text_clean(c->blame.name);
	text_clean(c->blame.before_name);
	for (int i = 0; i < c->blame.count; i++) {
		name_part(c, &c->blame.parts[i]);
		text_clean(c->blame.parts[i].name);
	}
	return 0;
}

static void part_text(const struct blame_part *part, char *text, size_t size)
{
	blame_words(part, text, size);
	if (part->syscall >= 0 && (part->kind == BLAME_HELD || part->kind == BLAME_PREEMPTION))
		snprintf(text + strlen(text), size - strlen(text), " (system call %s)",
			 syscall_name(part->syscall));
}

void culprit_show(FILE *out, const struct culprit *c)
{
	char names[LATENCY_STACK_DEEP][SYMBOLS_NAME], text[256];
	int shares[BLAME_PARTS], count;

	fprintf(out,
		"# PID Prio Latency (timer,wake-up) Command <- PID Prio Command Timestamp "
		"Syscall\n# %s\n",
		blame_record(&c->blame, syscall_name(c->blame.syscall), text, sizeof(text)));
	if (!c->blame.latency_ns)
		return;
	blame_shares(&c->blame, shares);
	for (int i = 0; i < c->blame.count; i++) {
		const struct blame_part *part = &c->blame.parts[i];

		part_text(part, text, sizeof(text));
		fprintf(out, "# %3d.%d %% %9.1f us  %s\n", shares[i] / 10, shares[i] % 10,
			(double)part->ns / 1e3, text);
	}
	part_text(&c->blame.parts[0], text, sizeof(text));
	fprintf(out, "# Culprit: %s\n", text);
	count = culprit_frames(c, &c->blame.parts[0], names);
	for (int f = 0; f < count; f++)
		fprintf(out, "#   %s\n", names[f]);
}

json_t *culprit_json(const struct culprit *c)
{
	static const char *const kinds[BLAME_KINDS] = {
		[BLAME_UNSEEN] = "unseen",
		[BLAME_HELD] = "interrupts off",
		[BLAME_STALLED] = "stalled",
		[BLAME_OUTSIDE] = "outside",
		[BLAME_IDLE] = "idle",
		[BLAME_INTERRUPT] = "interrupt",
		[BLAME_NMI] = "nmi",
		[BLAME_SOFTIRQ] = "softirq",
		[BLAME_TIMER] = "timer",
		[BLAME_PREEMPTION] = "preemption off",
		[BLAME_HIGHER] = "higher priority",
		[BLAME_TURN] = "time slice",
		[BLAME_WAKE_IDLE] = "wake idle",
		[BLAME_SWITCH] = "switch",
		[BLAME_SELF] = "self",
	};
	char names[LATENCY_STACK_DEEP][SYMBOLS_NAME], text[256];
	const struct blame *b = &c->blame;
	uint64_t timer_ns = b->timer_ns ? b->timer_ns : b->woken_ns;
	int shares[BLAME_PARTS];
	json_t *parts = json_array();

	if (b->latency_ns)
		blame_shares(b, shares);
	for (int i = 0; i < b->count; i++) {
		const struct blame_part *part = &b->parts[i];
		int count = culprit_frames(c, part, names);
		json_t *stack = json_array();

		for (int f = 0; f < count; f++)
			json_array_append_new(stack, json_string(names[f]));
		part_text(part, text, sizeof(text));
		json_array_append_new(
			parts, json_pack("{s:s, s:s, s:f, s:f, s:i, s:s, s:s, s:s, s:o}", "kind",
					 kinds[part->kind], "what", text, "us",
					 (double)part->ns / 1e3, "percent", (double)shares[i] / 10,
					 "pid", part->pid, "name", part->name, "where", part->where,
					 "syscall", syscall_name(part->syscall), "stack", stack));
	}
	if (b->count)
		part_text(&b->parts[0], text, sizeof(text));
	else
		strcpy(text, "none");
	parts = json_pack("{s:s, s:o}", "culprit", text, "parts", parts);
	blame_record(b, syscall_name(b->syscall), text, sizeof(text));
	json_object_update_new(
		parts,
		json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:s, s:{s:i, s:i, s:s}, s:f, s:s}",
			  "record", text, "cpu", c->cpu, "pid", b->pid, "priority",
			  b->prio == EVENT_NO_PRIO ? -1 : blame_priority(b->prio), "latency_us",
			  (double)b->latency_ns / 1e3, "timer_us",
			  timer_ns > b->expected_ns ? (double)(timer_ns - b->expected_ns) / 1e3
						    : 0.0,
			  "command", b->name, "before", "pid", b->before, "priority",
			  b->before_prio == EVENT_NO_PRIO ? -1 : blame_priority(b->before_prio),
			  "command", b->before_name, "time_s", (double)b->ran_ns / 1e9, "syscall",
			  syscall_name(b->syscall)));
	return parts;
}
