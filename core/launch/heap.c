/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * heap.c - leftist heap (Crane 1972): the right spine is the shortest way down, so it has at most
 * log2(n + 1) nodes, and a merge walks right spines only. No recursion: kernel stacks are small.
 */
#include "heap.h"

static bool before(const struct heap_node *a, const struct heap_node *b)
{
	return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

static uint32_t rank_of(const struct heap_node *node)
{
	return node ? node->rank : 0;
}

/* Puts the longer side left and recomputes the rank. Returns whether the rank changed. */
static bool settle(struct heap_node *node)
{
	uint32_t rank;

	if (rank_of(node->left) < rank_of(node->right)) {
		struct heap_node *swap = node->left;

		node->left = node->right;
		node->right = swap;
	}
	rank = rank_of(node->right) + 1;
	if (rank == node->rank)
		return false;
	node->rank = rank;
	return true;
}

static struct heap_node *merge(struct heap_node *a, struct heap_node *b)
{
	struct heap_node *root = NULL, *last = NULL;

	/* Down: interleave the two right spines in order. */
	while (a && b) {
		struct heap_node *first = before(b, a) ? b : a;

		if (first == a)
			a = a->right;
		else
			b = b->right;
		first->parent = last;
		if (last)
			last->right = first;
		else
			root = first;
		last = first;
	}
	if (!a)
		a = b;
	if (!last) {
		if (a)
			a->parent = NULL;
		return a;
	}
	last->right = a;
	if (a)
		a->parent = last;
	/* Up: every node of the new spine may have got a longer right side. */
	for (; last; last = last->parent)
		settle(last);
	return root;
}

void heap_insert(struct heap *heap, struct heap_node *node, uint64_t key, uint64_t tie)
{
	node->parent = node->left = node->right = NULL;
	node->heap = heap;
	node->key = key;
	node->tie = tie;
	node->rank = 1;
	heap->root = merge(heap->root, node);
	heap->count++;
}

void heap_remove(struct heap_node *node)
{
	struct heap *heap = node->heap;
	struct heap_node *parent = node->parent;
	struct heap_node *below;

	if (!heap)
		return;
	below = merge(node->left, node->right);
	if (below)
		below->parent = parent;
	if (!parent)
		heap->root = below;
	else if (parent->left == node)
		parent->left = below;
	else
		parent->right = below;
	/*
	 * Ranks above shrink only as long as each step changes one, which ends after O(log n)
	 * steps.
	 */
	while (parent && settle(parent))
		parent = parent->parent;
	heap->count--;
	node->heap = NULL;
	node->parent = node->left = node->right = NULL;
}

void heap_update(struct heap *heap, struct heap_node *node, uint64_t key, uint64_t tie)
{
	heap_remove(node);
	heap_insert(heap, node, key, tie);
}
