// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * tables.c - loading an order: its tables, and whatever is wrong with it. See rtxg_order_core.h.
 * May not: know which accesses happened; that is the machine's.
 */
#include "tables.h"

/* A host of the module may define it so; a freestanding core has no string.h. */
static void fill_zero(void *memory, size_t size)
{
	__builtin_memset(memory, 0, size);
}

/*
 * Between two steps of a loop that the caller may make long. A step looks at each thread once at
 * most, so that some 16000 looks lie between two breaths.
 */
static void breathe(const struct rtxg_order *order, uint32_t step)
{
	if (order->breathe && step % 64 == 0)
		order->breathe();
}

static bool shape_valid(const struct rtxg_order_shape *shape)
{
	return shape->threads && shape->threads <= RTXG_ORDER_THREADS_MAX &&
	       shape->entries <= RTXG_ORDER_ENTRIES_MAX && shape->needs <= RTXG_ORDER_NEEDS_MAX;
}

size_t rtxg_order_size(const struct rtxg_order_shape *shape)
{
	if (!shape_valid(shape))
		return 0;
	return shape->entries * sizeof(struct rtxg_order_entry) +
	       shape->needs * (sizeof(struct rtxg_order_need) + sizeof(struct rtxg_order_signal)) +
	       (3 * ((size_t)shape->threads + 1) + ORDER_WALK_WORDS(shape->threads) + 1) *
		       sizeof(uint32_t);
}

void rtxg_order_place(struct rtxg_order *order, const struct rtxg_order_shape *shape, void *memory)
{
	char *at = memory;

	order->shape = *shape;
	order->need = (struct rtxg_order_need *)at;
	at += shape->needs * sizeof(*order->need);
	order->signal = (struct rtxg_order_signal *)at;
	at += shape->needs * sizeof(*order->signal);
	order->entry = (struct rtxg_order_entry *)at;
	at += shape->entries * sizeof(*order->entry);
	order->start = (uint32_t *)at;
	order->signals = order->start + shape->threads + 1;
	order->accesses = order->signals + shape->threads + 1;
	order->scratch = order->accesses + shape->threads + 1;
	order->breathe = NULL;
}

/* --- entry by entry --------------------------------------------------------------------------- */

static int fault_at(struct rtxg_order_fault *fault, enum rtxg_order_fault_kind kind,
		    const struct rtxg_order_entry *entry, const struct rtxg_order_need *need,
		    uint32_t limit)
{
	fault->kind = kind;
	fault->limit = limit;
	fault->shown = 1;
	fault->steps[0] = (struct rtxg_order_step){ .thread = entry->thread,
						    .number = entry->number,
						    .mark = entry->mark };
	if (need)
		fault->steps[0].need = *need;
	return -EINVAL;
}

static int check_need(const struct rtxg_order *order, const struct rtxg_order_entry *entry,
		      const struct rtxg_order_need *need, struct rtxg_order_fault *fault)
{
	if (need->thread >= order->shape.threads)
		return fault_at(fault, RTXG_ORDER_FAULT_RANGE, entry, need,
				order->shape.threads - 1);
	if (!need->clock || need->clock == RTXG_ORDER_MANY)
		return fault_at(fault, RTXG_ORDER_FAULT_RANGE, entry, need, RTXG_ORDER_MANY - 1);
	if (need->thread == entry->thread)
		return fault_at(fault, RTXG_ORDER_FAULT_ITSELF, entry, need, 0);
	if (need->clock > order->accesses[need->thread])
		return fault_at(fault, RTXG_ORDER_FAULT_NEVER, entry, need,
				order->accesses[need->thread]);
	return 0;
}

/* before: the entry of the same thread that stands before this one, or NULL. */
static int check_entry(const struct rtxg_order *order, const struct rtxg_order_entry *entry,
		       const struct rtxg_order_entry *before, struct rtxg_order_fault *fault)
{
	/* One need a thread says all that can be said; more would only take time. */
	if (entry->count >= order->shape.threads)
		return fault_at(fault, RTXG_ORDER_FAULT_RANGE, entry, NULL,
				order->shape.threads - 1);
	if (entry->number >= RTXG_ORDER_MANY - 1)
		return fault_at(fault, RTXG_ORDER_FAULT_RANGE, entry, NULL, RTXG_ORDER_MANY - 2);
	if (entry->number >= order->accesses[entry->thread])
		return fault_at(fault, RTXG_ORDER_FAULT_BEYOND, entry, NULL,
				order->accesses[entry->thread]);
	if (before && before->number >= entry->number) {
		fault->other = before->mark;
		return fault_at(fault,
				before->number == entry->number ? RTXG_ORDER_FAULT_TWICE
								: RTXG_ORDER_FAULT_OVERTAKEN,
				entry, NULL, 0);
	}
	return 0;
}

static int check_entries(struct rtxg_order *order, const struct rtxg_order_entry *entries,
			 const struct rtxg_order_need *needs, struct rtxg_order_fault *fault)
{
	uint32_t *last = order->scratch; /* 1 + index of the thread's entry before */
	uint32_t used = 0;
	int err;

	fill_zero(last, order->shape.threads * sizeof(*last));
	for (uint32_t i = 0; i < order->shape.entries; i++) {
		const struct rtxg_order_entry *entry = &entries[i];

		breathe(order, i);
		if (entry->thread >= order->shape.threads)
			return fault_at(fault, RTXG_ORDER_FAULT_RANGE, entry, NULL,
					order->shape.threads - 1);
		/* Needs lie as their entries do, so that none is walked over twice. */
		if (entry->first != used || entry->count > order->shape.needs - used)
			return fault_at(fault, RTXG_ORDER_FAULT_RANGE, entry, NULL,
					order->shape.needs);
		used += entry->count;
		err = check_entry(order, entry,
				  last[entry->thread] ? &entries[last[entry->thread] - 1] : NULL,
				  fault);
		for (uint32_t n = 0; !err && n < entry->count; n++)
			err = check_need(order, entry, &needs[entry->first + n], fault);
		if (err)
			return err;
		last[entry->thread] = i + 1;
	}
	return 0;
}

/* --- the tables ------------------------------------------------------------------------------- */

/* counts[t + 1] holds a number for each thread; becomes where each thread's part begins. */
static void add_up(uint32_t *counts, uint32_t threads)
{
	for (uint32_t t = 0; t < threads; t++)
		counts[t + 1] += counts[t];
}

static void copy_entries(struct rtxg_order *order, const struct rtxg_order_entry *entries)
{
	uint32_t threads = order->shape.threads, *at = order->scratch;

	fill_zero(order->start, (threads + 1) * sizeof(*order->start));
	for (uint32_t i = 0; i < order->shape.entries; i++) {
		breathe(order, i);
		order->start[entries[i].thread + 1]++;
	}
	add_up(order->start, threads);
	for (uint32_t t = 0; t < threads; t++)
		at[t] = order->start[t];
	for (uint32_t i = 0; i < order->shape.entries; i++) {
		breathe(order, i);
		order->entry[at[entries[i].thread]++] = entries[i];
	}
}

static bool signal_less(const struct rtxg_order_signal *a, const struct rtxg_order_signal *b)
{
	return a->clock != b->clock ? a->clock < b->clock : a->thread < b->thread;
}

static void sift_down(struct rtxg_order_signal *signal, uint32_t at, uint32_t count)
{
	for (;;) {
		uint32_t child = 2 * at + 1;
		struct rtxg_order_signal moved;

		if (child >= count)
			return;
		if (child + 1 < count && signal_less(&signal[child], &signal[child + 1]))
			child++;
		if (!signal_less(&signal[at], &signal[child]))
			return;
		moved = signal[at];
		signal[at] = signal[child];
		signal[child] = moved;
		at = child;
	}
}

/* A heap sort: in place, and never slow, whatever a hostile caller sends. */
static void sort_signals(const struct rtxg_order *order, struct rtxg_order_signal *signal,
			 uint32_t count)
{
	for (uint32_t i = count / 2; i--;) {
		breathe(order, i);
		sift_down(signal, i, count);
	}
	for (uint32_t end = count; end > 1; end--) {
		struct rtxg_order_signal moved = signal[0];

		breathe(order, end);
		signal[0] = signal[end - 1];
		signal[end - 1] = moved;
		sift_down(signal, 0, end - 1);
	}
}

/* A thread that needs the same clock at many of its accesses waits for it once. */
static void drop_repeated_signals(struct rtxg_order *order)
{
	uint32_t kept = 0;

	for (uint32_t t = 0; t < order->shape.threads; t++) {
		uint32_t first = order->signals[t], end = order->signals[t + 1];

		order->signals[t] = kept;
		for (uint32_t i = first; i < end; i++) {
			breathe(order, i);
			if (i == first || signal_less(&order->signal[i - 1], &order->signal[i]))
				order->signal[kept++] = order->signal[i];
		}
	}
	order->signals[order->shape.threads] = kept;
}

static void make_signals(struct rtxg_order *order)
{
	uint32_t threads = order->shape.threads, *at = order->scratch;

	fill_zero(order->signals, (threads + 1) * sizeof(*order->signals));
	for (uint32_t e = 0; e < order->shape.entries; e++) {
		breathe(order, e);
		for (uint32_t n = 0; n < order->entry[e].count; n++)
			order->signals[order->need[order->entry[e].first + n].thread + 1]++;
	}
	add_up(order->signals, threads);
	for (uint32_t t = 0; t < threads; t++)
		at[t] = order->signals[t];
	for (uint32_t e = 0; e < order->shape.entries; e++) {
		breathe(order, e);
		for (uint32_t n = 0; n < order->entry[e].count; n++) {
			const struct rtxg_order_need *need =
				&order->need[order->entry[e].first + n];

			order->signal[at[need->thread]++] =
				(struct rtxg_order_signal){ .clock = need->clock,
							    .thread = order->entry[e].thread };
		}
	}
	for (uint32_t t = 0; t < threads; t++)
		sort_signals(order, order->signal + order->signals[t],
			     order->signals[t + 1] - order->signals[t]);
	drop_repeated_signals(order);
}

/* --- the walk --------------------------------------------------------------------------------- */

/*
 * Moves one thread on; what it waits for is left in need, NULL at its end. A need that was met
 * stays met, so each need is looked at once, and once more each time that its thread waits for it.
 */
static const struct rtxg_order_need *walk_on(struct order_walk *walk, uint32_t thread,
					     void (*met)(void *context, uint32_t entry),
					     void *context)
{
	const struct rtxg_order *order = walk->order;

	for (; walk->next[thread] < order->start[thread + 1]; walk->next[thread]++) {
		const struct rtxg_order_entry *entry = &order->entry[walk->next[thread]];

		breathe(order, walk->next[thread]);
		walk->clock[thread] = entry->number;
		for (; walk->met[thread] < entry->count; walk->met[thread]++) {
			const struct rtxg_order_need *need =
				&order->need[entry->first + walk->met[thread]];

			if (walk->clock[need->thread] < need->clock)
				return need;
		}
		walk->met[thread] = 0;
		if (met)
			met(context, walk->next[thread]);
	}
	walk->clock[thread] = RTXG_ORDER_MANY;
	return NULL;
}

/* The clock of a thread has moved: those for whom it has moved far enough are ready. */
static uint32_t wake_waiters(struct order_walk *walk, uint32_t thread, uint32_t ready)
{
	uint32_t *at = &walk->head[thread];

	while (*at) {
		uint32_t other = *at - 1;

		if (walk->wanted[other] > walk->clock[thread]) {
			at = &walk->link[other];
			continue;
		}
		*at = walk->link[other];
		walk->link[other] = ready;
		ready = other + 1;
	}
	return ready;
}

uint32_t order_walk(struct order_walk *walk, const struct rtxg_order *order, uint32_t *scratch,
		    void (*met)(void *context, uint32_t entry), void *context)
{
	uint32_t threads = order->shape.threads, ready = 0, stuck = 0, turns = 0;

	*walk = (struct order_walk){ .order = order,
				     .clock = scratch,
				     .next = scratch + threads,
				     .head = scratch + 2 * threads,
				     .link = scratch + 3 * threads,
				     .met = scratch + 4 * threads,
				     .wanted = scratch + 5 * threads };
	fill_zero(scratch, ORDER_WALK_WORDS(threads) * sizeof(*scratch));
	/* All threads are ready: a list through link. */
	for (uint32_t t = 0; t < threads; t++) {
		walk->next[t] = order->start[t];
		walk->link[t] = ready;
		ready = t + 1;
	}
	while (ready) {
		uint32_t thread = ready - 1;
		const struct rtxg_order_need *need;

		breathe(order, ++turns);
		ready = walk->link[thread];
		need = walk_on(walk, thread, met, context);
		if (need) {
			walk->wanted[thread] = need->clock;
			walk->link[thread] = walk->head[need->thread];
			walk->head[need->thread] = thread + 1;
		}
		ready = wake_waiters(walk, thread, ready);
	}
	for (uint32_t t = 0; t < threads; t++)
		stuck += walk->clock[t] != RTXG_ORDER_MANY;
	return stuck;
}

/* Follows those who wait, from a stuck thread: the way ends in a circle. */
static int name_cycle(const struct order_walk *walk, struct rtxg_order_fault *fault)
{
	const struct rtxg_order *order = walk->order;
	uint32_t thread = 0, first;

	while (walk->clock[thread] == RTXG_ORDER_MANY)
		thread++;
	for (uint32_t i = 0; i < order->shape.threads; i++)
		thread = rtxg_order_unmet(order, walk->next[thread], walk->clock, 1)->thread;
	first = thread;
	do {
		const struct rtxg_order_entry *entry = &order->entry[walk->next[thread]];
		const struct rtxg_order_need *need =
			rtxg_order_unmet(order, walk->next[thread], walk->clock, 1);

		if (fault->shown < RTXG_ORDER_CYCLE_SHOWN)
			fault->steps[fault->shown++] =
				(struct rtxg_order_step){ .thread = thread,
							  .number = entry->number,
							  .mark = entry->mark,
							  .need = *need };
		fault->cycle++;
		thread = need->thread;
	} while (thread != first);
	fault->kind = RTXG_ORDER_FAULT_CYCLE;
	return -EINVAL;
}

int rtxg_order_load(struct rtxg_order *order, const struct rtxg_order_entry *entries,
		    const struct rtxg_order_need *needs, const uint32_t *accesses,
		    struct rtxg_order_fault *fault)
{
	struct order_walk walk;
	int err;

	fill_zero(fault, sizeof(*fault));
	for (uint32_t t = 0; t < order->shape.threads; t++)
		order->accesses[t] = accesses ? accesses[t] : RTXG_ORDER_MANY;
	err = check_entries(order, entries, needs, fault);
	if (err)
		return err;
	for (uint32_t n = 0; n < order->shape.needs; n++) {
		breathe(order, n);
		order->need[n] = needs[n];
	}
	copy_entries(order, entries);
	make_signals(order);
	if (order_walk(&walk, order, order->scratch, NULL, NULL))
		return name_cycle(&walk, fault);
	return 0;
}

uint32_t rtxg_order_next(const struct rtxg_order *order, uint32_t thread, uint32_t number)
{
	uint32_t low = order->start[thread], high = order->start[thread + 1];

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (order->entry[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < order->start[thread + 1] ? low : RTXG_ORDER_NO_ENTRY;
}
