// SPDX-License-Identifier: MIT
/*
 * screen.c - a screen that is redrawn in place: lines are composed, then written over the old ones
 * in one go. The escape sequences are those that every terminal since the VT100 and xterm has; a
 * terminfo library would refuse to start in the many containers that have no entry for the terminal
 * at hand, and redrawing some thirty lines a second needs none of its skill.
 */
#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <rtxg_clock.h>

#include "screen.h"
#include "text.h"

static struct termios saved;
static bool live;
static volatile sig_atomic_t ended, stopped;

static void on_signal(int number)
{
	if (number == SIGTSTP)
		stopped = 1;
	else
		ended = number;
}

static void leave(void)
{
	static const char sequence[] = "\033[?25h\033[?1049l";

	if (!live)
		return;
	live = false;
	if (write(STDOUT_FILENO, sequence, sizeof(sequence) - 1) < 0) {
		/* the terminal is gone, and nothing is left to restore */
	}
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &saved);
}

static void enter(struct screen *screen)
{
	if (tcgetattr(STDIN_FILENO, &saved) == 0) {
		struct termios raw = saved;

		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 0;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
		screen->keys = true;
	}
	live = true;
	fputs("\033[?1049h\033[?25l", stdout);
}

/* Ctrl-Z: the shell gets its screen and its keys back until it continues us. */
static void suspend(struct screen *screen)
{
	struct sigaction usual = { .sa_handler = SIG_DFL };
	struct sigaction action = { .sa_handler = on_signal };

	stopped = 0;
	leave();
	sigaction(SIGTSTP, &usual, NULL);
	raise(SIGTSTP);
	sigaction(SIGTSTP, &action, NULL);
	enter(screen);
}

void screen_open(struct screen *screen, bool batch)
{
	struct sigaction action = { .sa_handler = on_signal };

	memset(screen, 0, sizeof(*screen));
	screen->live = !batch && isatty(STDOUT_FILENO);
	screen->colour = screen->live && !getenv("NO_COLOR");
	screen->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	screen->width = 120;
	screen->height = 10000;
	if (!screen->live)
		return;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigaction(SIGTSTP, &action, NULL);
	enter(screen);
	atexit(leave);
}

void screen_close(struct screen *screen, bool keep)
{
	static const char home[] = "\033[H";
	size_t skip = sizeof(home) - 1;

	leave();
	/* the same lines once more, where the shell goes on below them */
	if (keep && screen->live && screen->length > skip)
		fwrite(screen->text + skip, 1, screen->length - skip, stdout);
	free(screen->text);
	memset(screen, 0, sizeof(*screen));
}

void screen_begin(struct screen *screen)
{
	struct winsize size;

	if (screen->live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
		screen->width = size.ws_col;
		screen->height = size.ws_row;
	}
	free(screen->text);
	screen->text = NULL;
	screen->out = open_memstream(&screen->text, &screen->length);
	screen->column = 0;
	screen->row = 0;
	screen->lost = 0;
	screen->skip = 0;
	screen->skipped = 0;
	if (screen->live)
		fputs("\033[H", screen->out);
}

/* Above or below what is shown. */
static bool out_of_sight(const struct screen *screen)
{
	return screen->skip || screen->row >= screen->height - 1;
}

void screen_skip(struct screen *screen, size_t lines)
{
	screen->skip = screen->live ? lines : 0;
}

size_t screen_most(const struct screen *screen)
{
	return screen->skipped + screen->lost;
}

void screen_style(struct screen *screen, const char *sequence)
{
	if (screen->colour && !out_of_sight(screen))
		fputs(sequence, screen->out);
}

void screen_put(struct screen *screen, const char *text)
{
	if (out_of_sight(screen))
		return;
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if ((byte & 0xc0) != 0x80 && ++screen->column > screen->width && screen->live)
			continue;
		if (screen->column > screen->width && screen->live)
			continue;
		fputc(byte, screen->out);
	}
}

void screen_print(struct screen *screen, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	screen_put(screen, text_clean(text));
}

void screen_line(struct screen *screen)
{
	if (screen->skip) {
		screen->skip--;
		screen->skipped++;
		return;
	}
	if (out_of_sight(screen)) {
		screen->lost++;
		return;
	}
	fputs(screen->live ? "\033[0m\033[K\n" : "\n", screen->out);
	screen->column = 0;
	screen->row++;
}

int screen_end(struct screen *screen)
{
	if (screen->live && screen->lost) {
		char text[64];

		snprintf(text, sizeof(text), "%zu more line%s below", screen->lost,
			 screen->lost == 1 ? "" : "s");
		fprintf(screen->out, "\033[0m%.*s\033[K", screen->width, text);
	}
	if (screen->live)
		fputs("\033[0m\033[J", screen->out);
	if (fclose(screen->out) != 0)
		return -ENOMEM;
	screen->out = NULL;
	fwrite(screen->text, 1, screen->length, stdout);
	return fflush(stdout) == 0 ? 0 : -errno;
}

/* A byte, and for keys that send several what they are. Negative: the terminal is gone. */
static int read_key(void)
{
	static const struct {
		const char *bytes;
		int key;
	} keys[] = { { "[A", SCREEN_UP },   { "OA", SCREEN_UP },       { "[B", SCREEN_DOWN },
		     { "OB", SCREEN_DOWN }, { "[5~", SCREEN_PAGE_UP }, { "[6~", SCREEN_PAGE_DOWN },
		     { "[H", SCREEN_HOME }, { "OH", SCREEN_HOME },     { "[1~", SCREEN_HOME },
		     { "[F", SCREEN_END },  { "OF", SCREEN_END },      { "[4~", SCREEN_END } };
	struct pollfd terminal = { .fd = STDIN_FILENO, .events = POLLIN };
	char first, rest[8] = "";
	size_t n = 0;

	if (read(STDIN_FILENO, &first, 1) != 1)
		return -EINTR;
	if (first != '\033')
		return (unsigned char)first;
	/* The other bytes of such a key come with it; a key of its own is Escape. */
	while (n < sizeof(rest) - 1 && poll(&terminal, 1, 30) == 1 &&
	       read(STDIN_FILENO, rest + n, 1) == 1) {
		char last = rest[n++];

		if ((n > 1 || (last != '[' && last != 'O')) && (last >= '@' || last == '~'))
			break;
	}
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strcmp(keys[i].bytes, rest) == 0)
			return keys[i].key;
	return first;
}

int screen_wait(struct screen *screen, unsigned long delay_ms)
{
	struct pollfd terminal = { .fd = screen->keys ? STDIN_FILENO : -1, .events = POLLIN };
	uint64_t start = rtxg_now_ns();
	int key;

	for (;;) {
		long passed = (long)((rtxg_now_ns() - start) / 1000000);

		if (ended)
			return -EINTR;
		if (stopped) {
			suspend(screen);
			return 0;
		}
		if (passed >= (long)delay_ms)
			return 0;
		/* A resized window interrupts poll: the next picture comes at once. */
		if (poll(&terminal, 1, (int)((long)delay_ms - passed)) < 0) {
			if (ended || stopped)
				continue;
			return 0;
		}
		if (terminal.revents & (POLLHUP | POLLERR))
			return -EINTR;
		if (terminal.revents & POLLIN) {
			key = read_key();
			return key < 0 || key == 'q' || key == 'Q' ? -EINTR : key;
		}
	}
}
