// SPDX-License-Identifier: MIT
/*
 * threads.c - the program's calls of the C library about threads and locks, which pass here on
 * their way. Threads get names by who started them. Steps of locks count as accesses to the lock,
 * where the order says so. Before a call that can block, the access that is under way is completed.
 * May not: change what a call does for the program.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

#define CALLER ((uint64_t)(uintptr_t)__builtin_return_address(0))

/*
 * The C library's function of a name. The one with a version is that which programs are linked to.
 */
static void *below(const char *name, const char *version)
{
	void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;

	if (!found)
		found = dlsym(RTLD_NEXT, name);
	if (!found)
		abort();
	return found;
}

#define REAL(name) REAL_OF(name, NULL)
#define REAL_OF(name, version)                         \
	static __typeof__(&name) real;                 \
                                                       \
	if (!__atomic_load_n(&real, __ATOMIC_RELAXED)) \
	__atomic_store_n(&real, below(#name, version), __ATOMIC_RELAXED)

#if defined(__x86_64__)
#define CONDITION_VERSION "GLIBC_2.3.2"
#else
#define CONDITION_VERSION NULL
#endif

/* --- threads ---------------------------------------------------------------------------------- */

struct start {
	void *(*function)(void *argument);
	void *argument;
	char name[RTX_ORDER_NAME];
	bool taken;
};

/*
 * A thread that frees memory gets an arena of its own from malloc(), which takes longer than many a
 * thread lasts. So what a new thread needs to know stands here, as long as there is room.
 */
static struct start starts[32];

static struct start *new_start(void)
{
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (!__atomic_exchange_n(&starts[i].taken, true, __ATOMIC_ACQUIRE))
			return &starts[i];
	return malloc(sizeof(struct start));
}

static void drop_start(struct start *start)
{
	if (start >= starts && start < starts + sizeof(starts) / sizeof(starts[0]))
		__atomic_store_n(&start->taken, false, __ATOMIC_RELEASE);
	else
		free(start);
}

static void ended(void *unused)
{
	runtime_end();
}

static void *run_thread(void *argument)
{
	struct start start = *(struct start *)argument;
	void *result;

	drop_start(argument);
	runtime_begin(start.name);
	/* Also when it calls pthread_exit(), or is cancelled. */
	pthread_cleanup_push(ended, NULL);
	result = start.function(start.argument);
	pthread_cleanup_pop(1);
	return result;
}

static __typeof__(&pthread_create) real_create;
static __typeof__(&pthread_join) real_join;

/* Before the program begins, so that its first thread does not wait for the search. */
__attribute__((constructor(102))) static void find_real(void)
{
	real_create = below("pthread_create", NULL);
	real_join = below("pthread_join", NULL);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
		   void *(*function)(void *argument), void *argument)
{
	struct start *start;
	int err;

	if (!real_create)
		find_real();
	if (!runtime_on())
		return real_create(thread, attributes, function, argument);
	runtime_flush();
	start = new_start();
	if (!start)
		return EAGAIN;
	start->function = function;
	start->argument = argument;
	runtime_child(start->name);
	err = real_create(thread, attributes, run_thread, start);
	if (err) {
		runtime_no_child();
		drop_start(start);
	}
	return err;
}

int pthread_join(pthread_t thread, void **result)
{
	if (!real_join)
		find_real();
	runtime_flush();
	return real_join(thread, result);
}

/* The first thread may end so: the others go on without it. */
void pthread_exit(void *result)
{
	static void (*real)(void *) __attribute__((noreturn));

	if (!real)
		real = below("pthread_exit", NULL);
	if (runtime_on() && !strcmp(runtime_self.name, "main"))
		runtime_end();
	real(result);
}

/* --- locks ------------------------------------------------------------------------------------ */

static bool locks_count(void)
{
	struct area *area;

	if (!runtime_on())
		return false;
	area = __atomic_load_n(&runtime_area, __ATOMIC_RELAXED);
	return area && area->locks;
}

static bool following(void)
{
	return runtime_order != NULL;
}

/*
 * A step of a lock that waits: under an order its turn comes first, in a record it is made first.
 */
#define TAKE(call, what, kind)                                         \
	do {                                                           \
		bool counts = locks_count();                           \
		int err;                                               \
                                                                       \
		runtime_flush();                                       \
		if (counts && following())                             \
			runtime_before_lock(what, NULL, kind, CALLER); \
		err = call;                                            \
		if (counts && !following() && !err)                    \
			runtime_before_lock(what, NULL, kind, CALLER); \
		runtime_flush();                                       \
		return err;                                            \
	} while (0)

/* A step that lets others go on: its turn, or its record, comes first. */
#define GIVE(call, what, kind)                                         \
	do {                                                           \
		int err;                                               \
                                                                       \
		runtime_flush();                                       \
		if (locks_count())                                     \
			runtime_before_lock(what, NULL, kind, CALLER); \
		err = call;                                            \
		runtime_flush();                                       \
		return err;                                            \
	} while (0)

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	REAL(pthread_mutex_lock);
	TAKE(real(mutex), mutex, AREA_LOCK);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	REAL(pthread_mutex_unlock);
	GIVE(real(mutex), mutex, AREA_UNLOCK);
}

/* It says whether the lock was free: its place among the steps of the lock says the same. */
int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	REAL(pthread_mutex_trylock);
	GIVE(real(mutex), mutex, AREA_TRY);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
	REAL(pthread_rwlock_rdlock);
	TAKE(real(lock), lock, AREA_LOCK);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
	REAL(pthread_rwlock_wrlock);
	TAKE(real(lock), lock, AREA_LOCK);
}

int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
	REAL(pthread_rwlock_unlock);
	GIVE(real(lock), lock, AREA_UNLOCK);
}

int pthread_spin_lock(pthread_spinlock_t *lock)
{
	REAL(pthread_spin_lock);
	TAKE(real(lock), (const void *)lock, AREA_LOCK);
}

int pthread_spin_unlock(pthread_spinlock_t *lock)
{
	REAL(pthread_spin_unlock);
	GIVE(real(lock), (const void *)lock, AREA_UNLOCK);
}

int sem_wait(sem_t *semaphore)
{
	REAL(sem_wait);
	TAKE(real(semaphore), semaphore, AREA_LOCK);
}

int sem_post(sem_t *semaphore)
{
	REAL(sem_post);
	GIVE(real(semaphore), semaphore, AREA_UNLOCK);
}

/* --- conditions ------------------------------------------------------------------------------- */

/* Whether the order says when the calling thread's next step comes. */
static bool order_knows_next(void)
{
	const struct rtx_order_thread *thread = runtime_self.thread;
	const struct area *area = __atomic_load_n(&runtime_area, __ATOMIC_RELAXED);

	/* The entry at the end of a record that was cut short says only what comes before. */
	return thread && area && thread->made == thread->restricted &&
	       !(area->thread[runtime_self.index].cut &&
		 thread->made + 1 == area->thread[runtime_self.index].most);
}

/*
 * A wait gives the mutex back and takes it again: two steps. Under an order the second one has its
 * turn after the step that ended the wait in the record, so the condition itself is not waited for:
 * which sleeper a signal wakes is chance.
 */
static int follow_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t code,
		       int (*real)(pthread_cond_t *, pthread_mutex_t *))
{
	int err;

	runtime_before_lock(mutex, condition, AREA_WAIT, code);
	runtime_flush();
	if (!order_knows_next()) {
		/* The record ends in this wait, or nothing ended it. */
		err = real(condition, mutex);
		runtime_before_lock(mutex, condition, AREA_LOCK, code);
		runtime_flush();
		return err;
	}
	runtime_self.busy = true;
	err = pthread_mutex_unlock(mutex);
	runtime_self.busy = false;
	if (err)
		return err;
	runtime_before_lock(mutex, condition, AREA_LOCK, code);
	runtime_self.busy = true;
	err = pthread_mutex_lock(mutex);
	runtime_self.busy = false;
	runtime_flush();
	return err;
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	int err;
	REAL_OF(pthread_cond_wait, CONDITION_VERSION);

	runtime_flush();
	if (!locks_count())
		return real(condition, mutex);
	if (following())
		return follow_wait(condition, mutex, CALLER, real);
	runtime_before_lock(mutex, condition, AREA_WAIT, CALLER);
	runtime_flush();
	err = real(condition, mutex);
	runtime_before_lock(mutex, condition, AREA_LOCK, CALLER);
	runtime_flush();
	return err;
}

/* How long it lasts is not the order's: it waits as it would, and then has its turn. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
			   const struct timespec *until)
{
	bool counts;
	int err;
	REAL_OF(pthread_cond_timedwait, CONDITION_VERSION);

	runtime_flush();
	counts = locks_count();
	if (counts)
		runtime_before_lock(mutex, condition, AREA_WAIT, CALLER);
	runtime_flush();
	err = real(condition, mutex, until);
	if (counts && following()) {
		runtime_self.busy = true;
		pthread_mutex_unlock(mutex);
		runtime_self.busy = false;
		runtime_before_lock(mutex, condition, AREA_LOCK, CALLER);
		runtime_self.busy = true;
		pthread_mutex_lock(mutex);
		runtime_self.busy = false;
	} else if (counts) {
		runtime_before_lock(mutex, condition, AREA_LOCK, CALLER);
	}
	runtime_flush();
	return err;
}

int pthread_cond_signal(pthread_cond_t *condition)
{
	REAL_OF(pthread_cond_signal, CONDITION_VERSION);
	GIVE(real(condition), condition, AREA_SIGNAL);
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
	REAL_OF(pthread_cond_broadcast, CONDITION_VERSION);
	GIVE(real(condition), condition, AREA_SIGNAL);
}

/* --- calls that block or give way ------------------------------------------------------------- */

int pthread_barrier_wait(pthread_barrier_t *barrier)
{
	REAL(pthread_barrier_wait);
	runtime_flush();
	return real(barrier);
}

int usleep(useconds_t us)
{
	REAL(usleep);
	runtime_flush();
	return real(us);
}

unsigned int sleep(unsigned int seconds)
{
	REAL(sleep);
	runtime_flush();
	return real(seconds);
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	REAL(nanosleep);
	runtime_flush();
	return real(time, left);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
	REAL(clock_nanosleep);
	runtime_flush();
	return real(clock, flags, time, left);
}

int sched_yield(void)
{
	REAL(sched_yield);
	runtime_flush();
	return real();
}
