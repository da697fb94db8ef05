// SPDX-License-Identifier: MIT
/* test_heap.c - the leftist heap: order, removal from anywhere, its shape, and its depth. */
#include "check.h"
#include "heap.h"

#define NODES 1000

struct item {
	struct heap_node node;
	uint32_t number;
};

static struct item items[NODES];
static uint64_t state;

static uint32_t next_random(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33);
}

/*
 * Walks the whole heap: parents before children, left ranks no less than right ones, links both
 * ways. Returns the count.
 */
static uint32_t check_below(const struct heap *heap, const struct heap_node *node)
{
	uint32_t left, right;

	if (!node)
		return 0;
	assert_ptr_equal(node->heap, heap);
	if (node->left) {
		assert_ptr_equal(node->left->parent, node);
		assert_true(node->left->key > node->key ||
			    (node->left->key == node->key && node->left->tie >= node->tie));
	}
	if (node->right) {
		assert_ptr_equal(node->right->parent, node);
		assert_true(node->right->key > node->key ||
			    (node->right->key == node->key && node->right->tie >= node->tie));
	}
	left = node->left ? node->left->rank : 0;
	right = node->right ? node->right->rank : 0;
	assert_true(left >= right);
	assert_int_equal(node->rank, right + 1);
	return 1 + check_below(heap, node->left) + check_below(heap, node->right);
}

static void check_heap(const struct heap *heap)
{
	if (heap->root)
		assert_null(heap->root->parent);
	assert_int_equal(check_below(heap, heap->root), heap->count);
}

static int reset(void **unused)
{
	memset(items, 0, sizeof(items));
	for (uint32_t i = 0; i < NODES; i++)
		items[i].number = i;
	state = 42;
	return 0;
}

static void test_an_empty_heap_has_no_first(void **unused)
{
	struct heap heap = { 0 };
	struct item item = { 0 };

	assert_null(heap_first(&heap));
	assert_false(heap_holds(&item.node));
	heap_remove(&item.node); /* in none: nothing happens */
	assert_int_equal(heap.count, 0);
}

static void test_comes_out_in_order_of_key_then_tie(void **unused)
{
	struct heap heap = { 0 };
	uint64_t key = 0, tie = 0;

	for (uint32_t i = 0; i < NODES; i++)
		heap_insert(&heap, &items[i].node, next_random() % 50, next_random());
	check_heap(&heap);
	for (uint32_t i = 0; i < NODES; i++) {
		struct heap_node *first = heap_first(&heap);

		assert_true(first->key > key || (first->key == key && first->tie >= tie));
		key = first->key;
		tie = first->tie;
		heap_remove(first);
		assert_false(heap_holds(first));
	}
	assert_null(heap_first(&heap));
	assert_int_equal(heap.count, 0);
}

static void test_any_node_can_be_removed_and_moved(void **unused)
{
	struct heap heap = { 0 };

	for (uint32_t round = 0; round < 20000; round++) {
		struct item *item = &items[next_random() % 100];
		struct heap_node *least = NULL;

		if (!heap_holds(&item->node))
			heap_insert(&heap, &item->node, next_random() % 30, item->number);
		else if (next_random() % 2)
			heap_remove(&item->node);
		else
			heap_update(&heap, &item->node, next_random() % 30, item->number);
		for (uint32_t i = 0; i < 100; i++) {
			struct heap_node *node = &items[i].node;

			if (heap_holds(node) &&
			    (!least || node->key < least->key ||
			     (node->key == least->key && node->tie < least->tie)))
				least = node;
		}
		assert_ptr_equal(heap_first(&heap), least);
		if (round % 16 == 0)
			check_heap(&heap);
	}
}

static void test_extremes_of_keys_are_ordered(void **unused)
{
	static const uint64_t keys[] = { UINT64_MAX, 0, UINT64_MAX - 1, 1, (uint64_t)INT64_MAX + 1,
					 INT64_MAX };
	static const uint32_t order[] = { 1, 3, 5, 4, 2, 0 };
	struct heap heap = { 0 };

	for (uint32_t i = 0; i < 6; i++)
		heap_insert(&heap, &items[i].node, keys[i], 0);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(heap_owner(heap_first(&heap), struct item, node)->number,
				 order[i]);
		heap_remove(heap_first(&heap));
	}
}

static void test_the_right_spine_is_logarithmic_in_every_order(void **unused)
{
	for (int order = 0; order < 3; order++) {
		struct heap heap = { 0 };

		for (uint32_t i = 0; i < NODES; i++) {
			uint64_t key = order == 0 ? i : order == 1 ? NODES - i : next_random();

			heap_insert(&heap, &items[i].node, key, 0);
			/* A right spine of r nodes needs at least 2^r - 1 nodes below. */
			assert_true((1u << heap.root->rank) - 1 <= heap.count);
		}
		check_heap(&heap);
		/* And while it shrinks from the middle. */
		for (uint32_t i = NODES / 4; i < 3 * NODES / 4; i++)
			heap_remove(&items[i].node);
		check_heap(&heap);
		assert_true((1u << heap.root->rank) - 1 <= heap.count);
		while (heap_first(&heap))
			heap_remove(heap_first(&heap));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_an_empty_heap_has_no_first, reset),
		cmocka_unit_test_setup(test_comes_out_in_order_of_key_then_tie, reset),
		cmocka_unit_test_setup(test_any_node_can_be_removed_and_moved, reset),
		cmocka_unit_test_setup(test_extremes_of_keys_are_ordered, reset),
		cmocka_unit_test_setup(test_the_right_spine_is_logarithmic_in_every_order, reset),
	};

	return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
