/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * heap.h - a leftist heap of nodes embedded in their owners: O(log n) to add, to remove any node,
 * O(1) to see the first.
 *
 * Worst case, not amortised: the core runs under its host's lock, possibly with interrupts off. No
 * allocation: a node is part of the object that it orders. Order is by key, then by tie; both are
 * read only while the node is in the heap, so remove a node before changing them.
 */
#ifndef RTXG_HEAP_H
#define RTXG_HEAP_H

#include "rtxg_core.h"

struct heap_node {
	struct heap_node *parent;
	struct heap_node *left;
	struct heap_node *right;
	struct heap *heap; /* the heap it is in, or NULL */
	uint64_t key;
	uint64_t tie;
	uint32_t rank; /* length of the right spine below */
	uint32_t kind; /* free for the owner */
};

struct heap {
	struct heap_node *root;
	uint32_t count;
};

static inline struct heap_node *heap_first(const struct heap *heap)
{
	return heap->root;
}

static inline bool heap_holds(const struct heap_node *node)
{
	return node->heap != NULL;
}

/* Adds a node that is in no heap. */
void heap_insert(struct heap *heap, struct heap_node *node, uint64_t key, uint64_t tie);

/* Takes the node out of the heap that it is in; nothing happens if it is in none. */
void heap_remove(struct heap_node *node);

/* Removes, if needed, and adds again under the new key. */
void heap_update(struct heap *heap, struct heap_node *node, uint64_t key, uint64_t tie);

#define heap_owner(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

#endif
