// SPDX-License-Identifier: MIT
/*
 * metrics_collect.c - asks the host for its counters and writes them, for the command and for the
 * exporter alike. May not know where they go.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include <rtxg.h>

#include "metrics.h"

/*
 * The values of a reply live as long as its page is written: a chunk of memory after the other, all
 * of which is free again afterwards. With 200 vGPUs a reply has five thousand values.
 *
 * The allocator is that of the whole process: between two pages nothing of jansson's may be kept.
 */
#define CHUNK (256u << 10)

struct chunk {
	struct chunk *next;
	size_t size;
	_Alignas(max_align_t) char room[];
};

static struct chunk *chunks, *chunk;
static size_t used;

static void *take(size_t size)
{
	size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	while (!chunk || chunk->size - used < size) {
		struct chunk **next = chunk ? &chunk->next : &chunks;

		if (!*next) {
			size_t room = size > CHUNK ? size : CHUNK;

			*next = malloc(sizeof(**next) + room);
			if (!*next)
				return NULL;
			**next = (struct chunk){ .size = room };
		}
		chunk = *next;
		used = 0;
	}
	used += size;
	return chunk->room + used - size;
}

static void keep(void *memory)
{
}

int metrics_collect(struct metrics_out *out, const char *proc, bool open)
{
	json_t *reply = NULL;
	char *answer = NULL;
	int error;

	chunk = chunks;
	used = 0;
	json_set_alloc_funcs(take, keep);
	error = rtx_control("{\"op\": \"metrics\"}", &answer);
	if (!error)
		reply = json_loads(answer, 0, NULL);
	free(answer);
	if (!error && !json_is_object(reply)) {
		reply = NULL;
		error = -EPROTO;
	}
	metrics_write(out, reply, proc, open);
	return error;
}
