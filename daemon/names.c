// SPDX-License-Identifier: MIT
/*
 * names.c - which number a user's name stands for. The answer may come from a directory over the
 * network and take minutes: a thread asks, and the thread that hands permits over reads what is
 * known. A name that was known stays known until another answer has come.
 *
 * May not: wait for an answer, but in names_settle().
 */
#include <pthread.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "names.h"

#define STACK_BYTES  (256u << 10)
#define RETRY_S	     10 /* a name that no user has is asked for again */
#define ANSWER_BYTES 16384

struct name {
	struct name *next;
	char text[64];
	bool known, wanted, asking;
	uid_t uid;
	time_t asked;
};

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t names_more = PTHREAD_COND_INITIALIZER;
static pthread_cond_t names_done = PTHREAD_COND_INITIALIZER;
static struct name *names_all;
static bool names_running;

static time_t seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static struct name *next_wanted(void)
{
	struct name *name;

	for (name = names_all; name && !name->wanted; name = name->next)
		;
	return name;
}

static void *ask(void *unused)
{
	static char answer[ANSWER_BYTES];
	struct passwd entry, *found;
	struct name *name;
	int error;

	pthread_mutex_lock(&names_lock);
	for (;;) {
		name = next_wanted();
		if (!name) {
			pthread_cond_broadcast(&names_done);
			pthread_cond_wait(&names_more, &names_lock);
			continue;
		}
		name->wanted = false;
		name->asking = true;
		pthread_mutex_unlock(&names_lock);
		found = NULL;
		error = getpwnam_r(name->text, &entry, answer, sizeof(answer), &found);
		pthread_mutex_lock(&names_lock);
		/* Where no answer came, what was known stays. */
		if (found)
			name->uid = entry.pw_uid;
		if (found || !error)
			name->known = found != NULL;
		name->asking = false;
		name->asked = seconds();
	}
	return NULL;
}

/* With the lock. */
static void want(struct name *name)
{
	pthread_attr_t attributes;
	pthread_t thread;

	name->wanted = true;
	if (names_running) {
		pthread_cond_signal(&names_more);
		return;
	}
	if (pthread_attr_init(&attributes))
		return;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	names_running = !pthread_create(&thread, &attributes, ask, NULL);
	pthread_attr_destroy(&attributes);
}

static struct name *name_of(const char *text)
{
	struct name *name;

	for (name = names_all; name && strcmp(name->text, text); name = name->next)
		;
	if (name || strlen(text) >= sizeof(name->text))
		return name;
	name = calloc(1, sizeof(*name));
	if (!name)
		return NULL;
	strcpy(name->text, text);
	name->next = names_all;
	names_all = name;
	want(name);
	return name;
}

bool names_user(const char *text, uid_t *uid)
{
	unsigned long number;
	struct name *name;
	bool known;
	char *end;

	number = strtoul(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end) {
		*uid = (uid_t)number;
		return number < (uid_t)-1;
	}
	pthread_mutex_lock(&names_lock);
	name = name_of(text);
	known = name && name->known;
	if (known)
		*uid = name->uid;
	else if (name && !name->wanted && !name->asking && seconds() - name->asked >= RETRY_S)
		want(name);
	pthread_mutex_unlock(&names_lock);
	return known;
}

bool names_user_is(const char *text, uid_t uid)
{
	uid_t found;

	return names_user(text, &found) && found == uid;
}

void names_refresh(void)
{
	pthread_mutex_lock(&names_lock);
	for (struct name *name = names_all; name; name = name->next)
		want(name);
	pthread_mutex_unlock(&names_lock);
}

static bool settled(void)
{
	for (const struct name *name = names_all; name; name = name->next)
		if (name->wanted || name->asking)
			return false;
	return true;
}

void names_settle(unsigned int milliseconds)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += milliseconds / 1000;
	end.tv_nsec += milliseconds % 1000 * 1000000l;
	end.tv_sec += end.tv_nsec / 1000000000l;
	end.tv_nsec %= 1000000000l;
	pthread_mutex_lock(&names_lock);
	while (names_running && !settled())
		if (pthread_cond_timedwait(&names_done, &names_lock, &end))
			break;
	pthread_mutex_unlock(&names_lock);
}
