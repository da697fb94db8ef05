// SPDX-License-Identifier: MIT
/*
 * breathe.c - hand-overs between two pieces of a long answer. One request is served between two
 * looks at the doorbells; one that lists thousands of tasks takes longer than a hand-over may wait.
 * So who makes a long answer calls here between its pieces. May not serve a request, nor end a
 * connection: what the caller walks through stays as it is.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "breathe.h"
#include "host.h"

#define AT_ONCE	     16
#define EVERY_NS     100000u
#define PIECE	     65536u /* bytes of text between two looks */
#define ROWS_AT_ONCE 32u

void breathe(struct daemon *d)
{
	static uint64_t last;
	struct epoll_event events[AT_ONCE];
	uint64_t now = rtxg_now_ns();
	int n;

	if (!d->host->here || now - last < EVERY_NS)
		return;
	n = epoll_wait(d->fast, events, AT_ONCE, 0);
	/* The event loop's own descriptor tells again. */
	for (int i = 0; i < n; i++) {
		struct watch *watch = watch_marked(events[i].data.ptr);

		if (watch)
			watch_tell(d, watch, events[i].events);
		else if (events[i].data.ptr)
			host_event(d, events[i].data.ptr);
	}
	now = rtxg_now_ns();
	if (d->armed_ns <= now)
		host_timer(d);
	last = now;
}

struct text {
	struct daemon *daemon;
	char *at;
	size_t size, room, breathed;
};

static int add(const char *piece, size_t size, void *data)
{
	struct text *text = data;

	if (text->size + size + 1 > text->room) {
		size_t room = 2 * text->room + size + 4096;
		char *more = realloc(text->at, room);

		if (!more)
			return -1;
		text->at = more;
		text->room = room;
	}
	memcpy(text->at + text->size, piece, size);
	text->size += size;
	text->at[text->size] = 0;
	if (text->size - text->breathed >= PIECE) {
		text->breathed = text->size;
		breathe(text->daemon);
	}
	return 0;
}

/* Freeing takes as long as making. */
static void drop_rows(struct daemon *d, json_t *value)
{
	size_t n = json_array_size(value);

	for (size_t i = 0; i < n; i++) {
		json_array_remove(value, n - 1 - i);
		if (i % ROWS_AT_ONCE == ROWS_AT_ONCE - 1)
			breathe(d);
	}
}

char *breathe_text(struct daemon *d, json_t *json)
{
	struct text text = { .daemon = d };
	const char *key;
	json_t *value;

	if (json_dump_callback(json, add, &text, JSON_COMPACT)) {
		free(text.at);
		text.at = NULL;
	}
	json_object_foreach (json, key, value)
		if (json->refcount == 1 && value->refcount == 1 && json_is_array(value) &&
		    json_array_size(value) > ROWS_AT_ONCE)
			drop_rows(d, value);
	json_decref(json);
	return text.at;
}
