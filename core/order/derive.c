// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * derive.c - from a run to the order that makes it happen again, and to the smallest order that
 * allows the same runs. See rtxg_order_core.h. May not: know what is stored at a place.
 */
#include "tables.h"

struct derivation {
	struct rtxg_order_entry *entries;
	struct rtxg_order_need *needs;
	uint32_t entry_count, need_count;
	uint32_t entry_cap, need_cap;
};

/* The access needs the other thread's clock: its entry is the last one, or is made. */
static int add_need(struct derivation *d, const struct rtxg_order_access *access, uint32_t thread,
		    uint32_t clock)
{
	struct rtxg_order_entry *entry = d->entry_count ? &d->entries[d->entry_count - 1] : NULL;

	if (!clock || thread == access->thread)
		return 0;
	if (!entry || entry->thread != access->thread || entry->number != access->number) {
		if (d->entry_count == d->entry_cap)
			return -ENOSPC;
		entry = &d->entries[d->entry_count++];
		*entry = (struct rtxg_order_entry){ .thread = access->thread,
						    .number = access->number,
						    .first = d->need_count,
						    .mark = access->mark };
	}
	for (uint32_t i = 0; i < entry->count; i++) {
		struct rtxg_order_need *need = &d->needs[entry->first + i];

		if (need->thread != thread)
			continue;
		if (need->clock < clock)
			need->clock = clock;
		return 0;
	}
	if (d->need_count == d->need_cap)
		return -ENOSPC;
	d->needs[d->need_count++] = (struct rtxg_order_need){ thread, clock };
	entry->count++;
	return 0;
}

static int derive_write(struct derivation *d, const struct rtxg_order_access *accesses,
			const struct rtxg_order_access *access,
			struct rtxg_order_place_state *place, const uint32_t *reads)
{
	int err = add_need(d, access, place->writer, place->write_clock);

	for (uint32_t at = place->reads; !err && at; at = reads[at - 1])
		err = add_need(d, access, accesses[at - 1].thread, accesses[at - 1].number + 1);
	*place = (struct rtxg_order_place_state){ .writer = access->thread,
						  .write_clock = access->number + 1 };
	return err;
}

/* A later read of the same thread says all that its read before did. */
static int derive_read(struct derivation *d, const struct rtxg_order_access *accesses,
		       uint32_t index, struct rtxg_order_place_state *place, uint32_t *reads)
{
	bool again = place->reads && accesses[place->reads - 1].thread == accesses[index].thread;

	reads[index] = again ? reads[place->reads - 1] : place->reads;
	place->reads = index + 1;
	return add_need(d, &accesses[index], place->writer, place->write_clock);
}

int rtxg_order_derive(const struct rtxg_order_access *accesses, uint32_t count, uint32_t threads,
		      struct rtxg_order_place_state *places, uint32_t place_count, uint32_t *reads,
		      struct rtxg_order_entry *entries, uint32_t *entry_count,
		      struct rtxg_order_need *needs, uint32_t *need_count)
{
	struct derivation d = { .entries = entries,
				.needs = needs,
				.entry_cap = *entry_count,
				.need_cap = *need_count };
	uint32_t next[RTXG_ORDER_THREADS_MAX] = { 0 }; /* the number that a new access has */
	int err = 0;

	if (!threads || threads > RTXG_ORDER_THREADS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < place_count; i++)
		places[i] = (struct rtxg_order_place_state){ 0 };
	for (uint32_t i = 0; !err && i < count; i++) {
		const struct rtxg_order_access *a = &accesses[i];
		bool more; /* another place of the access before */

		if (a->thread >= threads || a->place >= place_count ||
		    a->number >= RTXG_ORDER_MANY - 1)
			return -EINVAL;
		more = i && accesses[i - 1].thread == a->thread &&
		       accesses[i - 1].number == a->number;
		if (!more && a->number != next[a->thread]++)
			return -EINVAL;
		err = a->write ? derive_write(&d, accesses, a, &places[a->place], reads)
			       : derive_read(&d, accesses, i, &places[a->place], reads);
	}
	*entry_count = d.entry_count;
	*need_count = d.need_count;
	return err;
}

int rtxg_order_derive_ends(const uint32_t *made, const uint32_t *cut, uint32_t threads,
			   uint32_t mark, struct rtxg_order_entry *entries, uint32_t *entry_count,
			   uint32_t entry_room, struct rtxg_order_need *needs, uint32_t *need_count,
			   uint32_t need_room)
{
	struct derivation d = { .entries = entries,
				.needs = needs,
				.entry_count = *entry_count,
				.need_count = *need_count,
				.entry_cap = entry_room,
				.need_cap = need_room };
	int err = 0;

	for (uint32_t t = 0; t < threads; t++) {
		struct rtxg_order_access next = { .thread = t, .number = made[t], .mark = mark };

		for (uint32_t other = 0; !err && cut[t] && other < threads; other++)
			err = add_need(&d, &next, other, made[other]);
	}
	*entry_count = d.entry_count;
	*need_count = d.need_count;
	return err;
}

/* --- relaxation ------------------------------------------------------------------------------- */

/*
 * known holds, for each entry, the clocks that are reached when its access begins. What an access
 * needs is known there already, or follows from another need of it, or is needed by itself.
 */
struct relaxation {
	const struct rtxg_order *order;
	uint32_t *known; /* threads words an entry */
	uint32_t *drop;	 /* one word a need */
};

/* What is known when a thread has reached a clock; NULL: nothing but that. */
static const uint32_t *known_at(const struct relaxation *r, uint32_t thread, uint32_t clock)
{
	const struct rtxg_order *order = r->order;
	uint32_t next = rtxg_order_next(order, thread, clock);

	if (next == RTXG_ORDER_NO_ENTRY)
		next = order->start[thread + 1];
	if (next == order->start[thread])
		return NULL;
	return r->known + (size_t)(next - 1) * order->shape.threads;
}

static bool follows(const struct relaxation *r, const struct rtxg_order_entry *entry,
		    uint32_t index, const uint32_t *before)
{
	const struct rtxg_order_need *need = &r->order->need[entry->first + index];

	if (before && before[need->thread] >= need->clock)
		return true;
	for (uint32_t i = 0; i < entry->count; i++) {
		const struct rtxg_order_need *other = &r->order->need[entry->first + i];
		const uint32_t *known;

		if (i == index)
			continue;
		if (other->thread == need->thread) {
			/* the greater clock says it all; of equal ones the first does */
			if (other->clock > need->clock ||
			    (other->clock == need->clock && i < index))
				return true;
			continue;
		}
		known = known_at(r, other->thread, other->clock);
		if (known && known[need->thread] >= need->clock)
			return true;
	}
	return false;
}

static void relax_entry(void *context, uint32_t index)
{
	struct relaxation *r = context;
	const struct rtxg_order *order = r->order;
	const struct rtxg_order_entry *entry = &order->entry[index];
	uint32_t threads = order->shape.threads;
	uint32_t *known = r->known + (size_t)index * threads;
	const uint32_t *before = index > order->start[entry->thread] ? known - threads : NULL;

	for (uint32_t i = 0; i < entry->count; i++)
		r->drop[entry->first + i] = follows(r, entry, i, before);
	for (uint32_t t = 0; t < threads; t++)
		known[t] = before ? before[t] : 0;
	for (uint32_t i = 0; i < entry->count; i++) {
		const struct rtxg_order_need *need = &order->need[entry->first + i];
		const uint32_t *more = known_at(r, need->thread, need->clock);

		for (uint32_t t = 0; more && t < threads; t++)
			if (known[t] < more[t])
				known[t] = more[t];
		if (known[need->thread] < need->clock)
			known[need->thread] = need->clock;
	}
}

size_t rtxg_order_relax_words(const struct rtxg_order_shape *shape)
{
	return rtxg_order_size(shape) ? (size_t)shape->entries * shape->threads + shape->needs +
						ORDER_WALK_WORDS(shape->threads)
				      : 0;
}

uint32_t rtxg_order_relax(const struct rtxg_order *order, uint32_t *words,
			  struct rtxg_order_entry *entries, uint32_t *entry_count,
			  struct rtxg_order_need *needs)
{
	struct relaxation r = { .order = order };
	uint32_t kept = 0, need_count = 0;
	struct order_walk walk;

	r.drop = words + ORDER_WALK_WORDS(order->shape.threads);
	r.known = r.drop + order->shape.needs;
	order_walk(&walk, order, words, relax_entry, &r);
	for (uint32_t e = 0; e < order->shape.entries; e++) {
		const struct rtxg_order_entry *entry = &order->entry[e];
		uint32_t first = need_count;

		for (uint32_t i = 0; i < entry->count; i++)
			if (!r.drop[entry->first + i])
				needs[need_count++] = order->need[entry->first + i];
		if (need_count == first)
			continue;
		entries[kept] = *entry;
		entries[kept].first = first;
		entries[kept++].count = need_count - first;
	}
	*entry_count = kept;
	return need_count;
}
