/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf_helpers.h - stands for libbpf's header of this name, so that a BPF program is compiled into a
 * unit test and called there: maps in the test's memory, a clock and a CPU that the test sets.
 * May not: decide anything that a BPF program decides.
 */
#ifndef RTXG_TESTS_UNIT_BPF_HELPERS_H
#define RTXG_TESTS_UNIT_BPF_HELPERS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEC(name)
#define __uint(name, n)	 int(*name)[n]
#define __type(name, of) __typeof__(of) *name

/* A program is called by its name, with the tracepoint's arguments. */
#define BPF_PROG(name, ...) name(__VA_ARGS__)
/* The kernel's objects are the test's. */
#define BPF_CORE_READ(from, member) ((from)->member)

struct rig_map {
	const void *map; /* the program's variable of this map */
	size_t key_size, value_size, count, most;
	unsigned char *keys, *values, *used;
};

static struct {
	struct rig_map maps[16];
	int count;
	unsigned int cpu;
	unsigned long long now_ns;
	/* how long it takes to look through a map, and how often that was done */
	unsigned long long walk_ns;
	int walks;
} rig;

/* Makes a map of the program empty; an array has all its elements, which are zero. */
#define RIG_MAP(map)                                                                          \
	rig_map(&(map), sizeof(*(map).key), sizeof(*(map).value), sizeof(*(map).max_entries), \
		sizeof(*(map).type) == BPF_MAP_TYPE_ARRAY * sizeof(int))

static inline void rig_map(const void *map, size_t key_size, size_t value_size, size_t most,
			   int array)
{
	struct rig_map *new = &rig.maps[rig.count++];

	most /= sizeof(int);
	*new = (struct rig_map){ .map = map,
				 .key_size = key_size,
				 .value_size = value_size,
				 .most = most,
				 .keys = calloc(most, key_size),
				 .values = calloc(most, value_size),
				 .used = calloc(most, 1) };
	for (unsigned int i = 0; array && i < most; i++) {
		memcpy(new->keys + i *key_size, &i, sizeof(i));
		new->used[i] = 1;
	}
}

static inline void rig_forget(void)
{
	for (int i = 0; i < rig.count; i++) {
		free(rig.maps[i].keys);
		free(rig.maps[i].values);
		free(rig.maps[i].used);
	}
	memset(&rig, 0, sizeof(rig));
}

static inline struct rig_map *rig_find(const void *map)
{
	for (int i = 0; i < rig.count; i++)
		if (rig.maps[i].map == map)
			return &rig.maps[i];
	abort(); /* the test has not made it */
}

static inline long rig_place(const struct rig_map *map, const void *key)
{
	for (size_t i = 0; i < map->most; i++)
		if (map->used[i] && !memcmp(map->keys + i * map->key_size, key, map->key_size))
			return (long)i;
	return -1;
}

static inline void *bpf_map_lookup_elem(const void *of, const void *key)
{
	struct rig_map *map = rig_find(of);
	long at = rig_place(map, key);

	return at < 0 ? NULL : map->values + (size_t)at * map->value_size;
}

static inline long bpf_map_update_elem(const void *of, const void *key, const void *value,
				       unsigned long long flags)
{
	struct rig_map *map = rig_find(of);
	long at = rig_place(map, key);

	if (at >= 0 && flags == BPF_NOEXIST)
		return -EEXIST;
	for (size_t i = 0; at < 0 && i < map->most; i++)
		if (!map->used[i])
			at = (long)i;
	if (at < 0)
		return -E2BIG;
	map->used[at] = 1;
	memcpy(map->keys + (size_t)at * map->key_size, key, map->key_size);
	memcpy(map->values + (size_t)at * map->value_size, value, map->value_size);
	return 0;
}

static inline long bpf_map_delete_elem(const void *of, const void *key)
{
	struct rig_map *map = rig_find(of);
	long at = rig_place(map, key);

	if (at < 0)
		return -ENOENT;
	map->used[at] = 0;
	return 0;
}

typedef long (*rig_look)(const void *map, const void *key, void *value, void *context);

static inline long rig_walk(const void *of, rig_look look, void *context)
{
	struct rig_map *map = rig_find(of);

	rig.walks++;
	rig.now_ns += rig.walk_ns;
	for (size_t i = 0; i < map->most; i++)
		if (map->used[i] && look(of, map->keys + i * map->key_size,
					 map->values + i * map->value_size, context))
			break;
	return 0;
}

#define bpf_for_each_map_elem(map, look, context, flags) \
	rig_walk(map, (rig_look)(void (*)(void))(look), context)

static inline unsigned int bpf_get_smp_processor_id(void)
{
	return rig.cpu;
}

static inline unsigned long long bpf_ktime_get_ns(void)
{
	return rig.now_ns;
}

static inline long bpf_probe_read_kernel(void *to, unsigned int size, const void *from)
{
	memcpy(to, from, size);
	return 0;
}

#endif
