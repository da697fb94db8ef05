// SPDX-License-Identifier: MIT
/*
 * config_files.c - the files of the configuration, in systemd's syntax: rtxg.conf, and drop-ins in
 * rtxg.conf.d, in /etc/rtxg, /run/rtxg and /usr/lib/rtxg (and ~/.config/rtxg for a user's own
 * daemon). A file of the same name in a folder named earlier replaces it. May not: know what a
 * section means.
 */
#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config_files.h"

#define FILES_MAX   256
#define FOLDERS_MAX 4

/* Gives inih its lines, and so knows the number of each, and where a section begins. */
static char *next_line(char *buffer, int size, void *stream)
{
	struct config *c = stream;
	char *line = fgets(buffer, size, c->stream), *at;

	if (!line)
		return NULL;
	c->line++;
	if (!strchr(line, '\n') && !feof(c->stream)) {
		int ch;

		config_say(c, true, "%s:%u: the line is too long; at most %d bytes are accepted",
			   c->path, c->line, size - 2);
		while ((ch = fgetc(c->stream)) != EOF && ch != '\n')
			;
		strcpy(line, "#\n");
		return line;
	}
	at = line + strspn(line, " \t");
	if (*at == '[') {
		char *end = strchr(at, ']'), *rest = end ? end + 1 : at;

		c->header = c->line;
		c->section = S_WRONG;
		rest += strspn(rest, " \t\r\n");
		if (!end) {
			config_say(c, true, "%s:%u: the section's closing ] is missing: %.60s",
				   c->path, c->line, at);
		} else if (*rest && *rest != '#' && *rest != ';') {
			rest[strcspn(rest, "\r\n")] = 0;
			config_say(c, true, "%s:%u: \"%.60s\" stands behind the section's ]",
				   c->path, c->line, rest);
		} else {
			at++;
			at += strspn(at, " \t");
			while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
				end--;
			*end = 0;
			config_section(c, at);
		}
		strcpy(line, "#\n");
	} else if (*at && *at != '#' && *at != ';' && *at != '\n' && *at != '\r' &&
		   !strchr(at, '=')) {
		at[strcspn(at, "\r\n")] = 0;
		config_say(c, true, "%s:%u: \"%.60s\" is neither [Section] nor Name=value", c->path,
			   c->line, at);
		strcpy(line, "#\n");
	} else if (line != at && *at && *at != '\n') {
		/* inih would take an indented line for a continuation of the value before it. */
		memmove(line, at, strlen(at) + 1);
	}
	return line;
}

/* inih cuts the names of sections at 49 bytes: next_line() has had the whole one. */
static int on_line(void *user, const char *section, const char *key, const char *value)
{
	config_line(user, key, value);
	return 1;
}

static void read_file(struct config *c, const char *path)
{
	c->stream = fopen(path, "re");
	if (!c->stream) {
		if (errno != ENOENT)
			config_say(c, true, "%s cannot be read: %s", path, strerrordesc_np(errno));
		return;
	}
	c->path = path;
	c->line = c->header = c->match_header = 0;
	c->section = S_NONE;
	ini_parse_stream(next_line, c, on_line, c);
	fclose(c->stream);
}

static int by_name(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;

	return strcmp(strrchr(x, '/'), strrchr(y, '/'));
}

static void read_folders(struct config *c, char (*folders)[512], int count)
{
	char *files[FILES_MAX], path[540];
	int n = 0;

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%.511s/rtxg.conf", folders[i]);
		if (!access(path, F_OK)) {
			read_file(c, path);
			break;
		}
	}
	for (int i = 0; i < count; i++) {
		struct dirent *entry;
		DIR *dir;

		snprintf(path, sizeof(path), "%.511s/rtxg.conf.d", folders[i]);
		dir = opendir(path);
		while (dir && (entry = readdir(dir))) {
			size_t length = strlen(entry->d_name);
			bool hidden = *entry->d_name == '.';

			if (hidden || length < 6 || strcmp(entry->d_name + length - 5, ".conf"))
				continue;
			for (int k = 0; k < n; k++)
				hidden |= !strcmp(strrchr(files[k], '/') + 1, entry->d_name);
			if (hidden)
				continue;
			if (n == FILES_MAX) {
				config_say(c, true,
					   "%s has more than %d drop-ins; the rest is not read",
					   path, FILES_MAX);
				break;
			}
			if (asprintf(&files[n], "%s/%s", path, entry->d_name) > 0)
				n++;
		}
		if (dir)
			closedir(dir);
	}
	qsort(files, (size_t)n, sizeof(*files), by_name);
	for (int i = 0; i < n; i++) {
		read_file(c, files[i]);
		free(files[i]);
	}
}

static int folders_of(const struct daemon *d, char (*folders)[512])
{
	static const char *const places[] = { "/etc/rtxg", "/run/rtxg", "/usr/lib/rtxg" };
	int count = 0;

	if (!d->system && !d->config_root) {
		const char *home = getenv("XDG_CONFIG_HOME");

		if (home && *home == '/')
			snprintf(folders[count++], 512, "%s/rtxg", home);
		else if ((home = getenv("HOME")) && *home == '/')
			snprintf(folders[count++], 512, "%s/.config/rtxg", home);
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		snprintf(folders[count++], 512, "%s%s", d->config_root ? d->config_root : "",
			 places[i]);
	return count;
}

void config_folder(const struct daemon *d, char path[512])
{
	char folders[FOLDERS_MAX][512];

	folders_of(d, folders);
	strcpy(path, folders[0]);
}

void config_read(struct config *c)
{
	char folders[FOLDERS_MAX][512];

	read_folders(c, folders, folders_of(c->daemon, folders));
}
