// SPDX-License-Identifier: MIT
/*
 * order_program.c - starts a program that records or follows an order, and waits for its end.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "message.h"
#include "order.h"
#include "words.h"

static int find_in_path(const char *name, char *path, size_t size)
{
	const char *folders = getenv("PATH"), *end;

	for (; folders && *folders; folders = *end ? end + 1 : end) {
		end = strchrnul(folders, ':');
		if (snprintf(path, size, "%.*s%s%s", (int)(end - folders), folders,
			     end == folders ? "./" : "/", name) < (int)size &&
		    access(path, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

int order_program_open(struct order_program *program, const char *name)
{
	memset(program, 0, sizeof(*program));
	program->fd = -1;
	if (strchr(name, '/'))
		snprintf(program->path, sizeof(program->path), "%s", name);
	else if (find_in_path(name, program->path, sizeof(program->path)))
		program->path[0] = '\0';
	if (!program->path[0] || access(program->path, F_OK)) {
		message_error("%s: there is no such program", name);
		return EXIT_RUN_NOENT;
	}
	return order_symbols_read(&program->symbols, program->path) ? EXIT_RUN_NOEXEC : 0;
}

void order_program_close(struct order_program *program)
{
	order_symbols_free(&program->symbols);
	if (program->area)
		munmap(program->area, program->size);
	if (program->fd >= 0)
		close(program->fd);
}

int order_program_share(struct order_program *program, enum area_mode mode, size_t room)
{
	size_t size = sizeof(*program->area) + room;
	struct stat file;
	void *memory = MAP_FAILED;

	/* The program inherits it: no close on exec. */
	program->fd = memfd_create("rtxg-order", 0);
	if (program->fd >= 0 && ftruncate(program->fd, (off_t)size) == 0)
		memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, program->fd, 0);
	if (memory == MAP_FAILED || stat(program->path, &file)) {
		message_error("%zu bytes shared with the program: %s", size, strerror(errno));
		return EXIT_RUN_FAILED;
	}
	program->area = memory;
	program->size = size;
	program->area->magic = AREA_MAGIC;
	program->area->version = AREA_VERSION;
	program->area->mode = mode;
	program->area->size = size;
	program->area->device = file.st_dev;
	program->area->inode = file.st_ino;
	return 0;
}

/* A static variable of a function has a number behind its name. */
static bool is_named(const char *symbol, const char *name)
{
	size_t length = strlen(name);

	return strncmp(symbol, name, length) == 0 &&
	       (!symbol[length] ||
		(symbol[length] == '.' && symbol[length + 1] >= '0' && symbol[length + 1] <= '9'));
}

static int no_variable(const struct order_program *program, const char *name)
{
	const char **names = calloc(program->symbols.count + 1, sizeof(*names));
	const char *guess;

	for (size_t i = 0; names && i < program->symbols.count; i++)
		names[i] = program->symbols.list[i].name;
	guess = names ? words_nearest(name, names) : NULL;
	message_error("%s has no variable '%s'%s%s%s; nm %s lists those that it has", program->path,
		      name, guess ? ", did you mean '" : "", guess ? guess : "", guess ? "'?" : "",
		      program->path);
	free(names);
	return EXIT_RUN_FAILED;
}

int order_program_variables(struct order_program *program, char *const *names, uint32_t count)
{
	struct area *area = program->area;

	for (uint32_t n = 0; n < count; n++) {
		bool found = strcmp(names[n], "*") == 0;

		area->all |= found;
		for (size_t i = 0; i < program->symbols.count; i++) {
			const struct order_symbol *symbol = &program->symbols.list[i];

			if (!is_named(symbol->name, names[n]))
				continue;
			found = true;
			if (area->ranges == RTX_ORDER_VARIABLES) {
				message_error("more than %u variables; name fewer, or *",
					      RTX_ORDER_VARIABLES);
				return EXIT_RUN_FAILED;
			}
			area->range[area->ranges++] =
				(struct area_range){ symbol->low, symbol->high };
		}
		if (!found)
			return no_variable(program, names[n]);
	}
	return 0;
}

int order_program_run(struct order_program *program, char **argv)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, interrupt, quit;
	char number[16];
	int status, err;
	pid_t child;

	snprintf(number, sizeof(number), "%d", program->fd);
	setenv(AREA_ENVIRONMENT, number, 1);
	/* Control-C is the program's; we stay to say what came of it. */
	sigaction(SIGINT, &ignore, &interrupt);
	sigaction(SIGQUIT, &ignore, &quit);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		sigaction(SIGINT, &interrupt, NULL);
		sigaction(SIGQUIT, &quit, NULL);
		execv(program->path, argv);
		err = errno;
		message_error("%s: %s", program->path, strerror(err));
		_exit(err == ENOENT ? EXIT_RUN_NOENT : EXIT_RUN_NOEXEC);
	}
	unsetenv(AREA_ENVIRONMENT);
	if (child < 0) {
		message_error("%s: %s", program->path, strerror(errno));
		return EXIT_RUN_FAILED;
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	sigaction(SIGINT, &interrupt, NULL);
	sigaction(SIGQUIT, &quit, NULL);
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	message_error("%s ended by signal %d (%s)", program->path, WTERMSIG(status),
		      strsignal(WTERMSIG(status)));
	return 128 + WTERMSIG(status);
}

bool order_program_attached(const struct order_program *program)
{
	if (program->area->attached)
		return true;
	message_error("%s has no calls around its accesses; build it with the flags that `rtxg "
		      "order flags` prints",
		      program->path);
	return false;
}
