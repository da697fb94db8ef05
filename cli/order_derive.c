// SPDX-License-Identifier: MIT
/*
 * order_derive.c - from the record of a run to an order: memory becomes places, the core says what
 * needs what, and each entry gets the name of its variable and its line. What the program wrote is
 * not trusted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "order.h"

/* Memory is told apart by words of 8 bytes; of longer accesses so many count. */
#define WORD	   8u
#define WORDS_MOST 4096u
/* Steps of a lock that are one access to two places stand this close together. */
#define NEAR 256u

struct places {
	uint64_t *word; /* 1 + number of a word of memory; 0: free */
	uint32_t *place;
	size_t room; /* a power of two */
	uint32_t count;
};

struct derivation {
	const struct order_program *program;
	const struct area_event *events;
	uint64_t event_count;
	uint32_t threads;
	struct rtxg_order_access *accesses;
	size_t count, room;
	struct places places;
	uint32_t next[RTXG_ORDER_THREADS_MAX]; /* accesses of each thread */
	/* 1: the thread would have made more: it had not ended, or there was no room for them */
	uint32_t cut[RTXG_ORDER_THREADS_MAX];
	uint32_t ends; /* the first entry that is no access of the record */
};

static int grow(struct places *p)
{
	struct places more = { .room = p->room ? 2 * p->room : 1024, .count = p->count };

	more.word = calloc(more.room, sizeof(*more.word));
	more.place = calloc(more.room, sizeof(*more.place));
	if (!more.word || !more.place) {
		free(more.word);
		free(more.place);
		return -ENOMEM;
	}
	for (size_t i = 0; i < p->room; i++) {
		size_t at = p->word[i] * 0x9e3779b97f4a7c15ull >> 20 & (more.room - 1);

		if (!p->word[i])
			continue;
		while (more.word[at])
			at = (at + 1) & (more.room - 1);
		more.word[at] = p->word[i];
		more.place[at] = p->place[i];
	}
	free(p->word);
	free(p->place);
	*p = more;
	return 0;
}

static int find_place(struct places *p, uint64_t word, uint32_t *place)
{
	size_t at;

	if (2 * (size_t)p->count >= p->room && grow(p))
		return -ENOMEM;
	word++;
	for (at = word * 0x9e3779b97f4a7c15ull >> 20 & (p->room - 1); p->word[at] != word;
	     at = (at + 1) & (p->room - 1)) {
		if (p->word[at])
			continue;
		p->word[at] = word;
		p->place[at] = p->count++;
		break;
	}
	*place = p->place[at];
	return 0;
}

static int add_words(struct derivation *d, const struct area_event *event, uint32_t mark)
{
	uint64_t first = event->address / WORD;
	uint64_t last = (event->address + event->size - 1) / WORD;

	if (last < first || last - first >= WORDS_MOST)
		last = first + WORDS_MOST - 1;
	for (uint64_t word = first; word <= last; word++) {
		struct rtxg_order_access *access;
		uint32_t place;

		if (d->count == d->room) {
			size_t room = d->room ? 2 * d->room : 4096;
			void *more = room < UINT32_MAX / 2
					     ? realloc(d->accesses, room * sizeof(*access))
					     : NULL;

			if (!more)
				return -ENOMEM;
			d->accesses = more;
			d->room = room;
		}
		if (find_place(&d->places, word, &place))
			return -ENOMEM;
		access = &d->accesses[d->count++];
		*access = (struct rtxg_order_access){ .thread = event->thread,
						      .number = event->number,
						      .place = place,
						      .write = event->kind != AREA_READ,
						      .mark = mark };
	}
	return 0;
}

static bool is_lock(const struct area_event *event)
{
	return event->kind >= AREA_LOCK && event->kind < AREA_KINDS;
}

/* Another thread may have come between the two places of a step. */
static int add_second_place(struct derivation *d, uint64_t at)
{
	const struct area_event *event = &d->events[at];

	for (uint64_t i = at + 1; i < d->event_count && i - at < NEAR; i++) {
		const struct area_event *other = &d->events[i];

		if (other->thread != event->thread)
			continue;
		return other->number == event->number && other->size && is_lock(other)
			       ? add_words(d, other, (uint32_t)at)
			       : 0;
	}
	return 0;
}

/*
 * A thread that died between two steps of its record leaves a gap: what follows it does not count.
 */
static int add_events(struct derivation *d)
{
	for (uint64_t i = 0; i < d->event_count; i++) {
		const struct area_event *event = &d->events[i];
		int err;

		if (!event->size || event->kind >= AREA_KINDS || event->thread >= d->threads ||
		    event->number != d->next[event->thread])
			continue;
		d->next[event->thread]++;
		err = add_words(d, event, (uint32_t)i);
		if (!err && is_lock(event))
			err = add_second_place(d, i);
		if (err)
			return err;
	}
	return 0;
}

/* --- names ------------------------------------------------------------------------------------ */

static const char *kind_word(uint32_t kind)
{
	static const char *const words[AREA_KINDS] = {
		[AREA_READ] = "read",	     [AREA_WRITE] = "write", [AREA_LOCK] = "lock",
		[AREA_UNLOCK] = "unlock",    [AREA_TRY] = "try",     [AREA_WAIT] = "wait at",
		[AREA_SIGNAL] = "signal at",
	};

	return kind < AREA_KINDS ? words[kind] : "access to";
}

static uint64_t base_of(const struct order_program *program)
{
	return program->area->modules ? program->area->module[0].base : 0;
}

static char *comment_of(const struct order_program *program, const struct area_event *event,
			const char *line)
{
	uint64_t address = event->address - base_of(program);
	const struct order_symbol *symbol = order_symbols_at(&program->symbols, address);
	char place[320], *text;

	if (!symbol)
		snprintf(place, sizeof(place), "memory");
	else if (address == symbol->low)
		snprintf(place, sizeof(place), "%.300s", symbol->name);
	else
		snprintf(place, sizeof(place), "%.300s+%llu", symbol->name,
			 (unsigned long long)(address - symbol->low));
	if (asprintf(&text, "%s %s%s%s", kind_word(event->kind), place, line ? ", " : "",
		     line ? line : "") < 0)
		return NULL;
	return text;
}

static void add_comments(const struct derivation *d, struct rtx_order_file *file)
{
	uint32_t count = file->shape.entries;
	uint64_t *codes = calloc(count + 1, sizeof(*codes));
	char **lines = NULL;

	/* The call's return address lies behind the call: one byte before it is inside. */
	for (uint32_t e = 0; codes && e < d->ends; e++)
		codes[e] = d->events[file->entry[e].mark].code - base_of(d->program) - 1;
	if (codes)
		lines = order_symbols_lines(d->program->path, codes, d->ends);
	for (uint32_t e = 0; e < count; e++) {
		if (e >= d->ends) {
			file->comment[e] = strdup("the record ends before it");
			continue;
		}
		file->comment[e] = comment_of(d->program, &d->events[file->entry[e].mark],
					      lines ? lines[e] : NULL);
		if (lines)
			free(lines[e]);
	}
	free(lines);
	free(codes);
}

/* --- the order -------------------------------------------------------------------------------- */

static int derive(struct derivation *d, struct rtx_order_file *file)
{
	size_t all = d->count + d->threads;
	size_t room = all < RTXG_ORDER_ENTRIES_MAX ? all : RTXG_ORDER_ENTRIES_MAX;
	uint32_t need_room = 2 * (uint32_t)room + d->threads * d->threads;
	struct rtxg_order_place_state *places = calloc(d->places.count + 1, sizeof(*places));
	uint32_t *reads = calloc(d->count + 1, sizeof(*reads));
	uint32_t entries = (uint32_t)room, needs = need_room;
	int err = -ENOMEM;

	file->entry = calloc(room + 1, sizeof(*file->entry));
	file->need = calloc(need_room + 1, sizeof(*file->need));
	file->comment = calloc(room + 1, sizeof(*file->comment));
	if (places && reads && file->entry && file->need && file->comment)
		err = rtxg_order_derive(d->accesses, (uint32_t)d->count, d->threads, places,
					d->places.count, reads, file->entry, &entries, file->need,
					&needs);
	d->ends = entries;
	if (!err)
		err = rtxg_order_derive_ends(d->next, d->cut, d->threads, 0, file->entry, &entries,
					     (uint32_t)room, file->need, &needs, need_room);
	file->shape.entries = err ? 0 : entries;
	file->shape.needs = err ? 0 : needs;
	free(places);
	free(reads);
	return err;
}

/* Who would have gone on. What the program says of it only makes its own order wrong. */
static void find_cut(struct derivation *d, struct rtx_order_file *file)
{
	const struct area *area = d->program->area;

	file->others_last = area->running != 0 || area->events > area->event_room;
	for (uint32_t t = 0; t < d->threads; t++)
		d->cut[t] = !area->thread[t].ended || area->thread[t].accesses > d->next[t];
}

static int name_threads(const struct derivation *d, struct rtx_order_file *file)
{
	file->shape.threads = d->threads;
	file->name = calloc(RTXG_ORDER_THREADS_MAX, sizeof(*file->name));
	file->accesses = calloc(RTXG_ORDER_THREADS_MAX, sizeof(*file->accesses));
	file->cut = calloc(RTXG_ORDER_THREADS_MAX, sizeof(*file->cut));
	if (!file->name || !file->accesses || !file->cut)
		return -ENOMEM;
	for (uint32_t t = 0; t < d->threads; t++) {
		snprintf(file->name[t], RTX_ORDER_NAME, "%.63s", d->program->area->thread[t].name);
		file->accesses[t] = d->next[t] + d->cut[t];
		file->cut[t] = d->cut[t];
	}
	return 0;
}

int order_derive(const struct order_program *program, struct rtx_order_file *file)
{
	uint64_t room = (program->size - sizeof(struct area)) / sizeof(struct area_event);
	uint64_t events = program->area->events;
	uint32_t threads = program->area->threads;
	struct derivation d = {
		.program = program,
		.events = (const struct area_event *)(program->area + 1),
		.event_count = events < room ? events : room,
		.threads = threads < RTXG_ORDER_THREADS_MAX ? threads : RTXG_ORDER_THREADS_MAX,
	};
	int err = -ENODATA;

	if (d.threads)
		err = add_events(&d);
	if (!err) {
		find_cut(&d, file);
		err = name_threads(&d, file);
	}
	if (!err)
		err = derive(&d, file);
	if (!err)
		add_comments(&d, file);
	if (err == -ENODATA)
		message_error("the program made no access that counts");
	else if (err == -ENOSPC)
		message_error("the run has more than %u entries; record fewer variables, or fewer "
			      "accesses with --accesses",
			      RTXG_ORDER_ENTRIES_MAX);
	else if (err)
		message_error("the record cannot be turned into an order: %s", strerror(-err));
	free(d.accesses);
	free(d.places.word);
	free(d.places.place);
	return err;
}
