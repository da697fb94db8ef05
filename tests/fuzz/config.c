// SPDX-License-Identifier: MIT
/*
 * config.c - libFuzzer target: any bytes as a configuration file. It is read and applied to a real
 * daemon in this process; then an empty file is, and nothing of the first may be left. May not:
 * read another file.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "config_apply.h"
#include "config_parse.h"
#include "host.h"
#include "objects.h"
#include "task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct daemon daemon_state;
static char root[64] = "/dev/shm/rtxg-fuzz-XXXXXX", file[128];

static void clean(void)
{
	static const char *const parts[] = { "/etc/rtxg/rtxg.conf", "/etc/rtxg", "/etc", "" };
	char path[128];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", root, parts[i]);
		remove(path);
	}
}

static void start(void)
{
	struct daemon *d = &daemon_state;
	char path[128];

	assert(mkdtemp(root));
	snprintf(path, sizeof(path), "%s/etc", root);
	assert(!mkdir(path, 0700));
	snprintf(path, sizeof(path), "%s/etc/rtxg", root);
	assert(!mkdir(path, 0700));
	snprintf(file, sizeof(file), "%s/etc/rtxg/rtxg.conf", root);
	atexit(clean);
	d->config_root = root;
	d->group = (gid_t)-1;
	d->spare = -1;
	d->generation = 1;
	d->fast = epoll_create1(EPOLL_CLOEXEC);
	assert(d->fast >= 0);
	d->backends = backends;
	assert(!host_init(d, &task_news));
	assert(sd_event_new(&d->event) >= 0);
}

/* Reads the file; what is said of it is text. */
static void load(const uint8_t *data, size_t size)
{
	json_t *messages = json_array(), *changes = json_array(), *one;
	FILE *f = fopen(file, "we");
	size_t i;

	assert(f && fwrite(data, 1, size, f) == size && !fclose(f));
	config_load(&daemon_state, messages, changes);
	assert(!rtxg_core_check(daemon_state.permits.core));
	json_array_foreach (messages, i, one)
		assert(json_is_string(one));
	json_array_foreach (changes, i, one)
		assert(json_is_string(one));
	json_decref(messages);
	json_decref(changes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct daemon *d = &daemon_state;

	if (!d->permits.core)
		start();
	load(data, size);
	load(data, size); /* twice is once */
	load((const uint8_t *)"", 0);
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		assert(!d->vgpus[i].used || d->vgpus[i].origin == ORIGIN_BUILTIN);
	for (uint32_t i = 0; i < POOLS_MAX; i++)
		assert(!d->pools[i].used);
	assert(!d->matches_count && !d->fail_closed);
	return 0;
}
