// SPDX-License-Identifier: MIT
/*
 * trace.c - ftrace's text as events. A line is TASK-PID [CPU] FLAGS TIME: EVENT: DETAILS. The
 * latency format writes CPU and flags together, and cuts names at 8 letters. Excerpts leave fields
 * out: what a switch does not say is taken from the lines around it. What the timerlat tracer
 * writes says how long each interrupt and task took when it has ended, so it is put in the order of
 * time. May not: read a file.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

static void copy(char *to, const char *from, size_t length, size_t size)
{
	if (length >= size)
		length = size - 1;
	memcpy(to, from, length);
	to[length] = 0;
}

/* The value after "key=" up to a space (a name may hold spaces up to the next " key="). */
static bool field(const char *line, const char *key, char *value, size_t size)
{
	const char *at = line;
	size_t length = strlen(key), n;

	value[0] = 0;
	while ((at = strstr(at, key))) {
		if ((at == line || at[-1] == ' ' || at[-1] == '[') && at[length] == '=')
			break;
		at += length;
	}
	if (!at)
		return false;
	at += length + 1;
	n = strcspn(at, " \n");
	if (strstr(key, "comm")) {
		/* names may hold spaces: ends before the next field */
		const char *next = strchr(at, '=');
		const char *arrow = strstr(at, " ==>");

		if (arrow && (!next || arrow < next))
			n = (size_t)(arrow - at);
		else if (next) {
			while (next > at && *next != ' ')
				next--;
			if (next > at)
				n = (size_t)(next - at);
		}
	}
	copy(value, at, n, size);
	return true;
}

static long long number(const char *line, const char *key, long long otherwise)
{
	char value[32], *end;
	long long n;

	if (!field(line, key, value, sizeof(value)))
		return otherwise;
	n = strtoll(value, &end, 0);
	return end == value ? otherwise : n;
}

/* "1234.567890" in seconds, or "337980218us"; false if it is no time. */
static bool read_time(const char *word, size_t length, uint64_t *ns)
{
	char *end;
	unsigned long long whole;

	if (!length || !isdigit((unsigned char)word[0]))
		return false;
	whole = strtoull(word, &end, 10);
	if (*end == 'u' && end[1] == 's') {
		*ns = whole * 1000;
		return end + 2 <= word + length;
	}
	if (*end == '.') {
		uint64_t part = 0, unit = 100000000;

		for (end++; isdigit((unsigned char)*end); end++, unit /= 10)
			part += (uint64_t)(*end - '0') * unit;
		*ns = whole * 1000000000 + part;
		return end <= word + length;
	}
	return false;
}

struct line {
	char comm[EVENT_NAME];
	int pid, cpu;
	uint64_t ns;
	const char *event;
};

/* Takes a line apart up to its event. */
static bool read_line(const char *text, struct line *l)
{
	const char *colon, *at, *word;
	size_t length;
	char *end;

	while (*text == ' ')
		text++;
	/* the time is the last word before the first ": " (or " : ") that a time stands before */
	for (colon = text; (colon = strchr(colon, ':')); colon++) {
		at = colon;
		while (at > text && at[-1] == ' ')
			at--;
		word = at;
		while (word > text && word[-1] != ' ')
			word--;
		length = (size_t)(at - word);
		if (colon[1] == ' ' && read_time(word, length, &l->ns))
			break;
	}
	if (!colon)
		return false;
	l->event = colon + 1;
	while (*l->event == ' ')
		l->event++;
	/* the task: up to the last '-' that a number follows, before CPU, flags and time */
	l->pid = -1;
	l->cpu = -1;
	for (at = word; at > text; at--) {
		if (*at != '-' || !isdigit((unsigned char)at[1]))
			continue;
		l->pid = (int)strtol(at + 1, &end, 10);
		if (*end == ' ' || *end == '\t')
			break;
		l->pid = -1;
	}
	if (l->pid < 0)
		return false;
	length = (size_t)(at - text);
	while (length && text[length - 1] == ' ')
		length--;
	copy(l->comm, text, length, sizeof(l->comm));
	while (*end == ' ' || *end == '\t')
		end++;
	if (*end == '(') /* a group of threads, with the option record-tgid */
		end += strcspn(end, ")") + 1;
	end += strspn(end, " [");
	if (isdigit((unsigned char)*end))
		l->cpu = (int)strtol(end, NULL, 10);
	return true;
}

static void decode_switch(const struct line *l, struct event *e)
{
	char value[64];

	e->type = EVENT_SWITCH;
	e->other = (int)number(l->event, "prev_pid", l->pid);
	e->other_prio = (int)number(l->event, "prev_prio", EVENT_NO_PRIO);
	if (!field(l->event, "prev_comm", e->other_name, sizeof(e->other_name)))
		copy(e->other_name, l->comm, strlen(l->comm), sizeof(e->other_name));
	e->pid = (int)number(l->event, "next_pid", -1);
	e->prio = (int)number(l->event, "next_prio", EVENT_NO_PRIO);
	if (field(l->event, "next_comm", value, sizeof(value)))
		copy(e->name, value, strlen(value), EVENT_COMM);
	/* "swapper/5" in the event, "<idle>" before it */
	if (!strncmp(e->name, "swapper", 7) || !strcmp(e->name, "<idle>"))
		e->pid = 0;
}

static void decode_function(const char *text, struct event *e)
{
	const char *arrow = strstr(text, "<-");
	size_t n = strcspn(text, " \n");

	e->type = EVENT_FUNCTION;
	copy(e->name, text, n, sizeof(e->name));
	if (arrow)
		copy(e->other_name, arrow + 2, strcspn(arrow + 2, " \n"), sizeof(e->other_name));
}

static bool begins(const char *text, const char *word)
{
	return !strncmp(text, word, strlen(word));
}

/* Interrupts that the architecture counts by itself: "local_timer_entry: vector=236". */
static bool decode_vector(const char *text, struct event *e)
{
	const char *colon = strchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;

	if (!colon || !begins(colon, ": vector="))
		return false;
	if (n > 6 && !strncmp(text + n - 6, "_entry", 6)) {
		e->type = EVENT_VECTOR;
		copy(e->name, text, n - 6, sizeof(e->name));
	} else if (n > 5 && !strncmp(text + n - 5, "_exit", 5)) {
		e->type = EVENT_VECTOR_DONE;
		copy(e->name, text, n - 5, sizeof(e->name));
	} else {
		return false;
	}
	for (char *c = e->name; *c; c++)
		if (*c == '_')
			*c = ' ';
	e->arg = number(text, "vector", -1);
	return true;
}

static void decode_task(const char *text, int type, struct event *e)
{
	e->type = type;
	e->pid = (int)number(text, "pid", -1);
	e->prio = (int)number(text, "prio", EVENT_NO_PRIO);
	field(text, "comm", e->name, EVENT_COMM);
}

/* What the event is; EVENT_NONE for those that the analysis does not need. */
static void decode(const struct line *l, struct event *e)
{
	const char *t = l->event;
	long long n;

	if (begins(t, "sched_switch:")) {
		decode_switch(l, e);
	} else if (begins(t, "sched_waking:")) {
		decode_task(t, EVENT_WAKING, e);
	} else if (begins(t, "sched_wakeup:") || begins(t, "sched_wakeup_new:")) {
		decode_task(t, EVENT_WAKEUP, e);
	} else if (begins(t, "sched_pi_setprio:")) {
		decode_task(t, EVENT_PRIO, e);
		e->prio = (int)number(t, "newprio", EVENT_NO_PRIO);
	} else if (begins(t, "hrtimer_expire_entry:")) {
		e->type = EVENT_TIMER;
	} else if (begins(t, "hrtimer_expire_exit:")) {
		e->type = EVENT_TIMER_DONE;
	} else if (begins(t, "irq_handler_entry:")) {
		e->type = EVENT_IRQ;
		e->arg = number(t, "irq", -1);
		field(t, "name", e->name, sizeof(e->name));
	} else if (begins(t, "irq_handler_exit:")) {
		e->type = EVENT_IRQ_DONE;
		e->arg = number(t, "irq", -1);
	} else if (begins(t, "softirq_entry:") || begins(t, "softirq_exit:")) {
		e->type = begins(t, "softirq_entry:") ? EVENT_SOFTIRQ : EVENT_SOFTIRQ_DONE;
		e->arg = number(t, "vec", -1);
	} else if (begins(t, "nmi_handler:")) {
		e->type = EVENT_NMI;
		/* "perf_event_nmi_handler() delta_ns: 3121 handled: 1" */
		t = strstr(t, "delta_ns:");
		e->arg = t ? strtoll(t + 9, NULL, 10) : 0;
	} else if (begins(t, "cpu_idle:")) {
		n = number(t, "state", -1);
		e->type = n == 4294967295 || n < 0 ? EVENT_IDLE_END : EVENT_IDLE;
		e->arg = n;
	} else if (begins(t, "sys_enter:")) {
		e->type = EVENT_SYSCALL;
		e->arg = strtoll(t + strcspn(t, "0123456789"), NULL, 10);
	} else if (begins(t, "sys_exit:")) {
		e->type = EVENT_SYSCALL_END;
	} else if (!decode_vector(t, e) && strstr(t, "<-")) {
		decode_function(t, e);
	}
}

/* "start 54.029328123 duration 932 ns": the times of an event that has ended. */
static bool read_span(const char *text, uint64_t *begin, uint64_t *end)
{
	const char *start = strstr(text, " start "), *duration = strstr(text, " duration ");

	if (!start || !duration)
		return false;
	start += strlen(" start ");
	if (!read_time(start, strcspn(start, " "), begin))
		return false;
	*end = *begin + strtoull(duration + strlen(" duration "), NULL, 10);
	return true;
}

/*
 * A line of the osnoise events, as rtla writes with the timerlat tracer: "irq_noise: nvme0q1:30
 * start ...". `e` becomes its beginning, `more` its end. Returns how many events that are.
 */
static int decode_noise(const struct line *l, struct event *e, struct event *more)
{
	const char *t = l->event, *name = t + strcspn(t, ":"), *colon;
	uint64_t begin, end;

	if (!begins(t, "irq_noise:") && !begins(t, "softirq_noise:") &&
	    !begins(t, "thread_noise:") && !begins(t, "nmi_noise:"))
		return 0;
	if (!read_span(t, &begin, &end))
		return 0;
	name += 1 + strspn(name + 1, " ");
	/* the number stands behind the last colon before the span */
	for (colon = strstr(t, " start "); colon > name && *colon != ':'; colon--)
		;
	if (begins(t, "thread_noise:")) {
		e->type = EVENT_SWITCH; /* away from it: the line is written there */
		e->other = (int)strtol(colon + 1, NULL, 10);
		copy(e->other_name, name, (size_t)(colon - name), sizeof(e->other_name));
		return 1;
	}
	if (begins(t, "nmi_noise:")) {
		e->type = EVENT_NMI;
		e->arg = (long long)(end - begin);
		return 1;
	}
	e->ns = begin;
	e->arg = strtoll(colon + 1, NULL, 10);
	copy(e->name, name, (size_t)(colon - name), sizeof(e->name));
	*more = *e;
	more->ns = end;
	if (begins(t, "softirq_noise:")) {
		e->type = EVENT_SOFTIRQ;
		more->type = EVENT_SOFTIRQ_DONE;
		return 2;
	}
	e->type = strstr(e->name, "timer") ? EVENT_VECTOR : EVENT_IRQ;
	more->type = strstr(e->name, "timer") ? EVENT_VECTOR_DONE : EVENT_IRQ_DONE;
	return 2;
}

/*
 * The timerlat tracer's own lines: "#7 context irq timer_latency 932 ns" in the timer's interrupt,
 * and "#7 context thread timer_latency 11700 ns" when its thread runs. The first one shows which
 * task ran when the timer was due, and comes just before the thread is woken.
 */
static int decode_timerlat(struct trace *trace, const struct line *l, struct event *e,
			   struct event *more)
{
	const char *t = l->event, *latency = strstr(t, "timer_latency ");
	uint64_t ns = latency ? strtoull(latency + strlen("timer_latency "), NULL, 10) : 0;

	if (*t != '#' || !latency || ns > l->ns)
		return 0;
	if (strstr(t, " irq ")) {
		*more = *e;
		e->type = EVENT_SWITCH;
		e->ns = l->ns - ns > 1000 ? l->ns - ns - 1000 : 0;
		e->pid = l->pid;
		copy(e->name, l->comm, strlen(l->comm), EVENT_COMM);
		if (!strcmp(e->name, "<idle>"))
			e->pid = 0;
		more->type = EVENT_WAKING;
		return 2;
	}
	e->type = EVENT_RAN;
	e->arg = (long long)ns;
	for (size_t i = trace->count; i-- > 0;)
		if (trace->cpus[i] == l->cpu && trace->events[i].type == EVENT_WAKING &&
		    trace->events[i].pid < 0) {
			trace->events[i].pid = l->pid;
			break;
		}
	return 1;
}

/* Insertion: nearly all stand in their order. */
static void sort(struct trace *trace)
{
	for (size_t i = 1; i < trace->count; i++) {
		struct event e = trace->events[i];
		int cpu = trace->cpus[i];
		size_t at = i;

		for (; at > 0 && trace->events[at - 1].ns > e.ns; at--) {
			trace->events[at] = trace->events[at - 1];
			trace->cpus[at] = trace->cpus[at - 1];
		}
		trace->events[at] = e;
		trace->cpus[at] = cpu;
	}
}

/* Room for so many more events. */
static bool reserve(struct trace *trace, size_t *room, size_t more)
{
	void *events, *cpus;

	if (trace->count + more <= *room)
		return true;
	*room = *room ? *room * 2 : 1024;
	events = realloc(trace->events, *room * sizeof(*trace->events));
	if (events)
		trace->events = events;
	cpus = realloc(trace->cpus, *room * sizeof(*trace->cpus));
	if (cpus)
		trace->cpus = cpus;
	return events && cpus;
}

/*
 * A switch of which the trace says only the name: the next line of another task has its number. The
 * latency format cuts names, so a beginning of 8 letters is enough.
 */
static void complete_switch(struct trace *trace, size_t index, const struct line *l)
{
	for (size_t i = index; i-- > 0;) {
		struct event *e = &trace->events[i];

		if (e->type != EVENT_SWITCH || trace->cpus[i] != l->cpu)
			continue;
		if (e->pid >= 0)
			return;
		if (l->pid != e->other &&
		    (!e->name[0] || !strncmp(e->name, l->comm, strlen(l->comm)) ||
		     !strncmp(e->name, l->comm, 5))) {
			e->pid = l->pid;
			if (!e->name[0])
				copy(e->name, l->comm, strlen(l->comm), EVENT_COMM);
		}
		return;
	}
}

int trace_read(const char *text, struct trace *trace)
{
	bool noise = false;
	size_t room = 0;

	memset(trace, 0, sizeof(*trace));
	while (*text) {
		size_t n = strcspn(text, "\n");
		struct event more;
		char line[1024];
		struct line l;
		struct event *e;
		int events;

		copy(line, text, n, sizeof(line));
		text += n + (text[n] == '\n');
		if (!read_line(line, &l)) {
			trace->skipped += line[strspn(line, " \t.")] && line[0] != '#';
			continue;
		}
		if (!reserve(trace, &room, 2)) {
			trace_close(trace);
			return -ENOMEM;
		}
		e = &trace->events[trace->count];
		*e = (struct event){ .ns = l.ns,
				     .context = l.pid,
				     .context_prio = EVENT_NO_PRIO,
				     .pid = -1,
				     .other = -1,
				     .prio = EVENT_NO_PRIO,
				     .other_prio = EVENT_NO_PRIO,
				     .syscall = EVENT_NOT_KNOWN,
				     .stack = -1 };
		trace->cpus[trace->count] = trace->cpus[trace->count + 1] = l.cpu;
		complete_switch(trace, trace->count, &l);
		events = decode_noise(&l, e, &more);
		if (!events)
			events = decode_timerlat(trace, &l, e, &more);
		noise |= events > 0;
		if (!events)
			decode(&l, e);
		if (events == 2)
			trace->events[trace->count + 1] = more;
		trace->count += events == 2 ? 2 : 1;
	}
	if (noise)
		sort(trace);
	/* a switch whose task ran no line of its own */
	for (size_t i = 0; i < trace->count; i++)
		for (size_t j = 0; trace->events[i].type == EVENT_SWITCH &&
				   trace->events[i].pid < 0 && j < trace->count;
		     j++)
			if (trace->events[j].type == EVENT_SWITCH && trace->events[j].other >= 0 &&
			    !strcmp(trace->events[i].name, trace->events[j].other_name))
				trace->events[i].pid = trace->events[j].other;
	return trace->count ? 0 : -ENODATA;
}

void trace_close(struct trace *trace)
{
	free(trace->events);
	free(trace->cpus);
	memset(trace, 0, sizeof(*trace));
}

void trace_keep_cpu(struct trace *trace, int cpu)
{
	size_t kept = 0;

	for (size_t i = 0; i < trace->count; i++) {
		if (trace->cpus[i] != cpu)
			continue;
		trace->events[kept] = trace->events[i];
		trace->cpus[kept++] = cpu;
	}
	trace->count = kept;
}
