// SPDX-License-Identifier: MIT
/*
 * blame.c - cuts a latency into parts by what the CPU did. May not: make a system call, allocate,
 * know where events come from.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "blame.h"

#define NESTED 8 /* interrupts inside one another */

/* What the CPU does at one moment. */
struct cpu_now {
	bool known;    /* which task runs */
	bool switched; /* a switch told so */
	int pid, prio, syscall;
	char name[EVENT_NAME];
	char where[EVENT_NAME]; /* the last function that the task or an interrupt entered */
	int irqs;
	char irq[NESTED][EVENT_NAME];
	bool timer[NESTED];  /* of these, the local timer's */
	int softirq;	     /* number; -1: none */
	bool entering_timer; /* functions show the way into the timer's interrupt */
	int stack;
	uint64_t stack_ns;
};

static void copy(char *to, const char *from, size_t size)
{
	size_t i;

	for (i = 0; i + 1 < size && from[i]; i++)
		to[i] = from[i];
	to[i] = 0;
}

const char *blame_softirq(long long number)
{
	static const char *const names[] = { "hi",	 "timer",   "net_tx", "net_rx",	 "block",
					     "irq_poll", "tasklet", "sched",  "hrtimer", "rcu" };

	return number >= 0 && number < 10 ? names[number] : "unknown";
}

int blame_priority(int prio)
{
	return EVENT_PRIO_LEAST - prio;
}

/* Functions through which a kernel with a function trace enters the local timer's interrupt. */
static bool timer_function(const struct event *e)
{
	static const char *const parts[] = { "apic_timer_interrupt", "arch_timer_handler",
					     "hrtimer_interrupt", "local_apic_timer" };

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strstr(e->name, parts[i]) || strstr(e->other_name, parts[i]))
			return true;
	/* the caller's name is cut at 15 letters there */
	return !strncmp(e->other_name, "sysvec_apic_tim", 15);
}

static void push(struct cpu_now *now, const char *name, bool timer)
{
	if (now->irqs < NESTED) {
		copy(now->irq[now->irqs], name, EVENT_NAME);
		now->timer[now->irqs] = timer;
	}
	now->irqs++;
}

/*
 * The priority of the task that a switch brings. It may be raised while the task runs, by itself or
 * by a lock that a more urgent task waits for. Events of its own say so, and where there are none
 * that do, as in a trace in text, the switch away from it does.
 */
static int priority_of_run(const struct event *events, size_t count, size_t at)
{
	const struct event *from = &events[at];

	for (size_t i = at + 1; i < count && from->prio != EVENT_NO_PRIO; i++) {
		const struct event *e = &events[i];

		if (e->type == EVENT_SWITCH)
			return e->other == from->pid && e->other_prio != EVENT_NO_PRIO &&
					       e->other_prio < from->prio
				       ? e->other_prio
				       : from->prio;
		if ((e->context == from->pid && e->context_prio != EVENT_NO_PRIO) ||
		    (e->type == EVENT_PRIO && e->pid == from->pid))
			break;
	}
	return from->prio;
}

static void change(struct cpu_now *now, const struct event *e)
{
	if (e->context >= 0 && now->known && e->context == now->pid &&
	    e->context_prio != EVENT_NO_PRIO && e->type != EVENT_SWITCH)
		now->prio = e->context_prio;
	if (e->context >= 0 && now->known && e->context == now->pid &&
	    e->syscall != EVENT_NOT_KNOWN && e->type != EVENT_SWITCH)
		now->syscall = e->syscall;
	if (e->stack >= 0) {
		now->stack = e->stack;
		now->stack_ns = e->ns;
	}
	switch (e->type) {
	case EVENT_SWITCH:
		now->known = true;
		now->switched = true;
		now->pid = e->pid;
		now->prio = e->prio;
		now->syscall = EVENT_NOT_KNOWN;
		copy(now->name, e->name, EVENT_COMM);
		now->where[0] = 0;
		now->irqs = 0;
		now->softirq = -1;
		now->entering_timer = false;
		now->stack = -1;
		break;
	case EVENT_IRQ:
		push(now, e->name, strstr(e->name, "arch_timer") != NULL);
		break;
	case EVENT_VECTOR:
		push(now, e->name, strstr(e->name, "timer") != NULL);
		break;
	case EVENT_IRQ_DONE:
	case EVENT_VECTOR_DONE:
		if (now->irqs)
			now->irqs--;
		now->entering_timer = false;
		break;
	case EVENT_SOFTIRQ:
		now->softirq = (int)e->arg;
		break;
	case EVENT_SOFTIRQ_DONE:
		now->softirq = -1;
		break;
	case EVENT_SYSCALL:
		now->syscall = (int)e->arg;
		break;
	case EVENT_SYSCALL_END:
		now->syscall = EVENT_IN_USER;
		break;
	case EVENT_FUNCTION:
		if (timer_function(e))
			now->entering_timer = true;
		else if (!strncmp(e->name, "irq_exit", 8))
			now->entering_timer = false;
		if (!now->entering_timer)
			copy(now->where, e->name, EVENT_NAME);
		break;
	case EVENT_PRIO:
		if (now->known && e->pid == now->pid)
			now->prio = e->prio;
		break;
	default:
		break;
	}
}

/* The task that runs, from events that only say whose context they are of. */
static void adopt(struct cpu_now *now, const struct event *e)
{
	if (e->type == EVENT_SWITCH) {
		if (!now->known && e->other >= 0) {
			now->known = true;
			now->pid = e->other;
			now->prio = e->other_prio;
			now->syscall = e->syscall;
			copy(now->name, e->other_name, EVENT_COMM);
		}
		return;
	}
	if (!now->known && e->context >= 0) {
		now->known = true;
		now->pid = e->context;
		now->prio = e->context_prio;
		now->syscall = e->syscall;
		now->name[0] = 0;
	}
}

/* What the task of a part is to one that is runnable. */
static enum blame_kind kind_of_task(const struct blame_part *part, const struct blame *b)
{
	if (!part->pid)
		return BLAME_WAKE_IDLE;
	if (part->prio == EVENT_NO_PRIO || b->prio == EVENT_NO_PRIO || part->pid == b->pid)
		return BLAME_PREEMPTION;
	if (part->prio <= b->prio)
		return BLAME_HIGHER;
	return b->prio > EVENT_PRIO_LEAST ? BLAME_TURN : BLAME_PREEMPTION;
}

static void describe(const struct cpu_now *now, const struct blame *b, uint64_t at,
		     const struct blame_case *c, struct blame_part *part)
{
	int top = (now->irqs < NESTED ? now->irqs : NESTED) - 1;
	bool woken = c->awake || (b->woken_ns && at >= b->woken_ns);
	/* it may be preempted again; or its timer came before it had gone to sleep */
	bool on_cpu = now->known && now->pid == c->pid && (now->switched || c->awake);
	bool last = b->switched_ns && at >= b->switched_ns;

	memset(part, 0, sizeof(*part));
	part->pid = now->pid;
	part->prio = now->prio;
	part->syscall = now->syscall;
	part->stack = now->stack;
	part->stack_ns = now->stack_ns;
	copy(part->name, now->name, EVENT_NAME);
	copy(part->where, now->where, EVENT_NAME);
	if ((last || on_cpu) && !now->irqs && now->softirq < 0) {
		if (last)
			part->kind = b->switched_ns < b->expected_ns ? BLAME_SELF : BLAME_SWITCH;
		else
			part->kind = b->woken_ns && at >= b->woken_ns ? BLAME_SWITCH : BLAME_SELF;
		part->pid = c->pid;
		copy(part->name, b->name, EVENT_COMM);
		part->where[0] = 0;
		part->stack = -1;
	} else if (!now->known || (b->elsewhere && !woken)) {
		part->kind = BLAME_UNSEEN;
	} else if (now->irqs && !now->timer[top]) {
		part->kind = BLAME_INTERRUPT;
		copy(part->name, now->irq[top], EVENT_NAME);
	} else if (now->irqs || now->entering_timer) {
		part->kind = BLAME_TIMER;
		part->stack = -1;
		part->where[0] = 0;
	} else if (now->softirq >= 0) {
		part->kind = BLAME_SOFTIRQ;
		copy(part->name, blame_softirq(now->softirq), EVENT_NAME);
	} else if (b->timer_ns && at >= b->timer_ns && !woken) {
		part->kind = BLAME_TIMER;
		part->stack = -1;
		part->where[0] = 0;
	} else if (!woken) {
		part->kind = now->pid == 0		     ? BLAME_IDLE
			     : now->syscall == EVENT_IN_USER ? BLAME_OUTSIDE
							     : BLAME_HELD;
	} else {
		part->kind = kind_of_task(part, b);
		if (part->kind == BLAME_WAKE_IDLE)
			part->where[0] = 0;
		else if (part->kind == BLAME_PREEMPTION && now->syscall == EVENT_IN_USER)
			part->kind = BLAME_SWITCH;
	}
}

static bool same(const struct blame_part *a, const struct blame_part *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == BLAME_TIMER || a->kind == BLAME_NMI || a->kind == BLAME_UNSEEN ||
	    a->kind == BLAME_SWITCH || a->kind == BLAME_SELF)
		return true;
	if (a->kind == BLAME_INTERRUPT || a->kind == BLAME_SOFTIRQ)
		return !strcmp(a->name, b->name);
	return a->pid == b->pid && !strcmp(a->where, b->where);
}

static void add(struct blame *b, const struct blame_part *part, uint64_t ns)
{
	if (!ns)
		return;
	for (int i = 0; i < b->count; i++)
		if (same(&b->parts[i], part)) {
			b->parts[i].ns += ns;
			if (part->stack >= 0 && b->parts[i].stack < 0) {
				b->parts[i].stack = part->stack;
				b->parts[i].stack_ns = part->stack_ns;
			}
			if (b->parts[i].syscall == EVENT_NOT_KNOWN)
				b->parts[i].syscall = part->syscall;
			return;
		}
	if (b->count < BLAME_PARTS) {
		b->parts[b->count] = *part;
		b->parts[b->count++].ns = ns;
		return;
	}
	/* more kinds of things than fit: the last place takes the rest, and the sum stays whole */
	b->parts[BLAME_PARTS - 1].ns += ns;
}

static void add_kind(struct blame *b, enum blame_kind kind, uint64_t ns)
{
	struct blame_part part = { .kind = kind, .pid = -1, .prio = EVENT_NO_PRIO, .stack = -1 };

	add(b, &part, ns);
}

/* What was before the first event: as far as it is known in parts. */
static void add_before(struct blame *b, const struct blame_case *c, uint64_t end)
{
	uint64_t at = b->expected_ns, left;

	if (c->before_ns < at || c->before_ns >= end) {
		add_kind(b, BLAME_UNSEEN, end - at);
		return;
	}
	if (c->timer_ns > at && c->timer_ns <= c->woken_ns && c->woken_ns <= c->before_ns) {
		add_kind(b, BLAME_UNSEEN, c->timer_ns - at);
		add_kind(b, BLAME_TIMER, c->woken_ns - c->timer_ns);
		at = c->woken_ns;
	}
	add_kind(b, BLAME_UNSEEN, c->before_ns - at);
	left = end - c->before_ns;
	for (int i = 0; i < c->before_count && left; i++) {
		struct blame_part part = c->before[i];
		uint64_t ns = part.ns < left ? part.ns : left;

		if (part.kind == BLAME_PREEMPTION)
			part.kind = kind_of_task(&part, b);
		add(b, &part, ns);
		left -= ns;
	}
	add_kind(b, BLAME_UNSEEN, left);
}

/* Times at which the wake-up went on, as far as events show. */
static int find_times(const struct event *events, size_t count, const struct blame_case *c,
		      struct blame *b)
{
	uint64_t left = 0, limit = c->ran_ns ? c->ran_ns : ~0ull;
	size_t switched = count;

	b->prio = EVENT_NO_PRIO;
	b->before = -1;
	b->before_prio = EVENT_NO_PRIO;
	b->syscall = EVENT_NOT_KNOWN;
	for (size_t i = 0; i < count && events[i].ns <= limit; i++)
		if (events[i].type == EVENT_SWITCH && events[i].pid == c->pid)
			switched = i;
	if (switched == count && !c->ran_ns)
		return -ESRCH;
	b->ran_ns = c->ran_ns;
	if (switched < count) {
		const struct event *e = &events[switched];

		b->switched_ns = e->ns;
		b->prio = e->prio;
		copy(b->name, e->name, EVENT_COMM);
		b->before = e->other;
		b->before_prio = e->other_prio;
		copy(b->before_name, e->other_name, EVENT_COMM);
		for (size_t i = switched + 1; i < count && !b->ran_ns; i++)
			if (events[i].context == c->pid)
				b->ran_ns = events[i].ns;
		if (!b->ran_ns)
			b->ran_ns = e->ns;
	}
	/* the end of its run before: the last event of its context, the switch away included */
	for (size_t i = 0; i < switched && i < count; i++)
		if (events[i].context == c->pid ||
		    (events[i].type == EVENT_SWITCH && events[i].other == c->pid))
			left = events[i].ns;
	if (left)
		b->observed_ns = b->ran_ns - left;
	b->expected_ns = c->expected_ns;
	if (!b->expected_ns) {
		if (!left || !c->interval_ns)
			return -ERANGE;
		b->expected_ns = left + c->interval_ns;
	}
	if (b->expected_ns > b->ran_ns)
		return -EINVAL;
	b->latency_ns = b->ran_ns - b->expected_ns;
	for (size_t i = 0; i < count && events[i].ns <= b->ran_ns; i++) {
		const struct event *e = &events[i];

		if ((e->type == EVENT_WAKING || e->type == EVENT_WAKEUP) && e->pid == c->pid &&
		    (c->expected_ns || e->ns >= left) && e->ns >= b->expected_ns && !b->woken_ns)
			b->woken_ns = e->ns;
		if (e->ns < b->expected_ns || b->timer_ns)
			continue;
		/* an expiry that does not say when it was due is taken for this one */
		if ((e->type == EVENT_TIMER && (!e->arg || (uint64_t)e->arg == b->expected_ns)) ||
		    (e->type == EVENT_FUNCTION && timer_function(e)))
			b->timer_ns = e->ns;
	}
	if (b->timer_ns && b->switched_ns && b->timer_ns > b->switched_ns)
		b->timer_ns = 0;
	if (!b->woken_ns && c->woken_ns) {
		b->woken_ns = c->woken_ns;
		b->timer_ns = c->timer_ns;
		b->elsewhere = !c->here;
	}
	return 0;
}

/* NMIs are known when they have ended: takes their time from what they interrupted. */
static void take_nmis(const struct event *events, size_t count, struct blame *b)
{
	for (size_t i = 0; i < count; i++) {
		struct blame_part nmi = { .kind = BLAME_NMI, .stack = -1 };
		uint64_t begin, end = events[i].ns, ns;

		if (events[i].type != EVENT_NMI || events[i].arg <= 0)
			continue;
		begin = end > (uint64_t)events[i].arg ? end - (uint64_t)events[i].arg : 0;
		begin = begin < b->expected_ns ? b->expected_ns : begin;
		end = end > b->ran_ns ? b->ran_ns : end;
		if (end <= begin)
			continue;
		ns = end - begin;
		for (int p = 0; p < b->count && ns; p++) {
			uint64_t from = b->parts[p].ns < ns ? b->parts[p].ns : ns;

			if (b->parts[p].kind == BLAME_NMI)
				continue;
			b->parts[p].ns -= from;
			ns -= from;
			add(b, &nmi, from);
		}
	}
}

/*
 * Whether 8 bytes of x86 code end where interrupts have just been switched on: after POPF, or in
 * the instruction after STI, which the processor still runs with them off. Code that had interrupts
 * on has such bytes there by chance, in about one case of thirty.
 */
static bool just_enabled(long long code)
{
	const unsigned char *byte = (const unsigned char *)&code;

	if (byte[7] == 0x9d)
		return true;
	for (int i = 0; i < 7; i++)
		if (byte[i] == 0xfb)
			return true;
	return false;
}

/* What the late timer came upon tells interrupts that were off from a CPU that stood still. */
static void refine(const struct event *events, size_t count, struct blame *b)
{
	const struct event *waking = NULL;

	for (size_t i = 0; i < count; i++)
		if (events[i].type == EVENT_WAKING && events[i].pid == b->pid &&
		    events[i].ns >= b->expected_ns && events[i].ns <= b->ran_ns && !waking)
			waking = &events[i];
	for (int i = 0; waking && i < b->count; i++) {
		struct blame_part *part = &b->parts[i];

		if ((part->kind != BLAME_HELD && part->kind != BLAME_OUTSIDE) ||
		    part->pid != waking->context)
			continue;
		if (waking->other == EVENT_FROM_USER)
			part->kind = BLAME_OUTSIDE;
		else if (waking->other == EVENT_FROM_KERNEL)
			part->kind = just_enabled(waking->arg) ? BLAME_HELD : BLAME_STALLED;
	}
}

/* Names of tasks that ran before the first event: a switch from or to them has it. */
static void name_tasks(const struct event *events, size_t count, struct blame *b)
{
	for (int p = 0; p < b->count; p++) {
		struct blame_part *part = &b->parts[p];

		for (size_t i = 0; i < count && !part->name[0] && part->kind != BLAME_UNSEEN; i++) {
			const struct event *e = &events[i];

			if (e->type == EVENT_SWITCH && e->other == part->pid)
				copy(part->name, e->other_name, EVENT_COMM);
			else if (e->type == EVENT_SWITCH && e->pid == part->pid)
				copy(part->name, e->name, EVENT_COMM);
		}
	}
}

int blame_find(const struct event *events, size_t count, const struct blame_case *c,
	       struct blame *out)
{
	struct cpu_now now = { .softirq = -1, .stack = -1, .syscall = EVENT_NOT_KNOWN };
	uint64_t at;
	int ret;

	memset(out, 0, sizeof(*out));
	out->pid = c->pid;
	ret = find_times(events, count, c, out);
	if (ret)
		return ret;
	at = out->expected_ns;
	for (size_t i = 0; i < count; i++) {
		const struct event *e = &events[i];
		struct blame_part part;

		adopt(&now, e);
		/* what is known at the end of a piece says what ran in it */
		if (e->stack >= 0 && now.stack < 0) {
			now.stack = e->stack;
			now.stack_ns = e->ns;
		}
		if (now.known && e->context == now.pid && e->syscall != EVENT_NOT_KNOWN &&
		    e->type != EVENT_SYSCALL && e->type != EVENT_SYSCALL_END)
			now.syscall = e->syscall;
		/* a wake-up by another CPU is no event of this one */
		if (out->elsewhere && out->woken_ns > at && out->woken_ns < e->ns &&
		    out->woken_ns < out->ran_ns) {
			describe(&now, out, at, c, &part);
			add(out, &part, out->woken_ns - at);
			at = out->woken_ns;
		}
		if (e->ns > at && at < out->ran_ns) {
			uint64_t end = e->ns < out->ran_ns ? e->ns : out->ran_ns;

			if (i == 0 && c->before_count) {
				add_before(out, c, end);
			} else {
				describe(&now, out, at, c, &part);
				if (i == 0 && !c->whole)
					part.kind = BLAME_UNSEEN;
				add(out, &part, end - at);
			}
			at = end;
		}
		change(&now, e);
		if (e->type == EVENT_SWITCH)
			now.prio = priority_of_run(events, count, i);
	}
	if (out->elsewhere && out->woken_ns > at && out->woken_ns < out->ran_ns) {
		struct blame_part part;

		describe(&now, out, at, c, &part);
		add(out, &part, out->woken_ns - at);
		at = out->woken_ns;
	}
	if (at < out->ran_ns) {
		struct blame_part part;

		describe(&now, out, at, c, &part);
		add(out, &part, out->ran_ns - at);
	}
	name_tasks(events, count, out);
	refine(events, count, out);
	take_nmis(events, count, out);
	for (int i = 1; i < out->count; i++)
		for (int j = i; j > 0 && out->parts[j].ns > out->parts[j - 1].ns; j--) {
			struct blame_part other = out->parts[j];

			out->parts[j] = out->parts[j - 1];
			out->parts[j - 1] = other;
		}
	while (out->count && !out->parts[out->count - 1].ns)
		out->count--;
	return 0;
}

void blame_shares(const struct blame *b, int *out)
{
	uint64_t rest[BLAME_PARTS];
	int left = 1000;

	for (int i = 0; i < b->count; i++) {
		uint64_t scaled = b->parts[i].ns * 1000;

		out[i] = (int)(scaled / b->latency_ns);
		rest[i] = scaled % b->latency_ns;
		left -= out[i];
	}
	/* the largest remainders get what is left */
	while (left-- > 0) {
		int most = 0;

		for (int i = 1; i < b->count; i++)
			if (rest[i] > rest[most])
				most = i;
		if (b->count) {
			out[most]++;
			rest[most] = 0;
		}
	}
}

char *blame_words(const struct blame_part *part, char *text, size_t size)
{
	static const char *const words[BLAME_KINDS] = {
		[BLAME_UNSEEN] = "not seen (before the first event, or on another CPU)",
		[BLAME_HELD] = "interrupts held off: ",
		[BLAME_STALLED] = "CPU stood still with interrupts on (hypervisor, firmware or a "
				  "slow device): ",
		[BLAME_OUTSIDE] = "timer late while user code ran (firmware or hypervisor): ",
		[BLAME_IDLE] = "timer late on an idle CPU (idle state, firmware or hypervisor)",
		[BLAME_INTERRUPT] = "interrupt ",
		[BLAME_NMI] = "NMI",
		[BLAME_SOFTIRQ] = "softirq ",
		[BLAME_TIMER] = "timer interrupt and wake-up",
		[BLAME_PREEMPTION] = "preemption off: ",
		[BLAME_HIGHER] = "task of the same or a higher priority: ",
		[BLAME_TURN] = "time slice of a task of a lower priority: ",
		[BLAME_WAKE_IDLE] = "idle CPU on its way to the task",
		[BLAME_SWITCH] = "switch to the task",
		[BLAME_SELF] =
			"the task itself had not slept: its cycle before still ran, or its CPU "
			"stood still",
	};
	bool task = part->kind == BLAME_HELD || part->kind == BLAME_OUTSIDE ||
		    part->kind == BLAME_STALLED || part->kind == BLAME_PREEMPTION ||
		    part->kind == BLAME_HIGHER || part->kind == BLAME_TURN;
	bool named = task || part->kind == BLAME_INTERRUPT || part->kind == BLAME_SOFTIRQ;
	bool place =
		part->where[0] && (part->kind == BLAME_HELD || part->kind == BLAME_STALLED ||
				   part->kind == BLAME_PREEMPTION ||
				   part->kind == BLAME_INTERRUPT || part->kind == BLAME_SOFTIRQ);

	snprintf(text, size, "%s%s", words[part->kind], named ? part->name : "");
	if (task)
		snprintf(text + strlen(text), size - strlen(text), "%s%d",
			 part->name[0] ? " " : "task ", part->pid);
	if (place)
		snprintf(text + strlen(text), size - strlen(text), " in %s", part->where);
	return text;
}

static void put_priority(int prio, char *text, size_t size)
{
	if (prio == EVENT_NO_PRIO)
		snprintf(text, size, "?");
	else
		snprintf(text, size, "%d", blame_priority(prio));
}

char *blame_record(const struct blame *b, const char *syscall, char *text, size_t size)
{
	uint64_t timer = b->timer_ns ? b->timer_ns : b->woken_ns;
	uint64_t late = timer > b->expected_ns ? timer - b->expected_ns : 0;
	uint64_t from = b->woken_ns ? b->woken_ns : b->timer_ns;
	uint64_t wake = from && b->switched_ns > from ? b->switched_ns - from : 0;
	char prio[16], before[16];

	put_priority(b->prio, prio, sizeof(prio));
	put_priority(b->before_prio, before, sizeof(before));
	snprintf(text, size, "%d %s %llu (%llu,%llu) %s <- %d %s %s %llu.%06llu %s", b->pid, prio,
		 (unsigned long long)b->latency_ns / 1000, (unsigned long long)late / 1000,
		 (unsigned long long)wake / 1000, b->name, b->before, before, b->before_name,
		 (unsigned long long)b->ran_ns / 1000000000,
		 (unsigned long long)b->ran_ns / 1000 % 1000000, syscall);
	return text;
}
