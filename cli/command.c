// SPDX-License-Identifier: MIT
/*
 * command.c - finds the subcommand of a subcommand ("vgpu" "create") in its table, and runs it.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "message.h"
#include "text.h"
#include "words.h"

/* Names, values and columns are printable UTF-8: a host would not know them otherwise. */
static bool is_text(const char *word)
{
	char *copy = strdup(word);
	bool same = !copy || !strcmp(text_clean(copy), word);

	if (!same)
		message_usage("'%s' has a byte or a character that is not accepted (shown as '?'); "
			      "accepted: printable UTF-8",
			      copy);
	free(copy);
	return same;
}

int command_dispatch(const char *name, const char *summary, const struct command *commands,
		     int argc, char **argv)
{
	const char *words[16] = { NULL };
	static char full[64];
	const char *guess;
	char *accepted;
	int status;

	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		printf("Usage: rtxg %s COMMAND [ARGUMENT...]\n\n%s\n\nCommands:\n", name, summary);
		for (const struct command *c = commands; c->name; c++)
			printf("  %-10s %s\n", c->name, c->summary);
		printf("\n'rtxg %s COMMAND --help' explains one.\n", name);
		return EXIT_OK;
	}
	for (size_t i = 0; commands[i].name && i < 15; i++) {
		words[i] = commands[i].name;
		if (argc < 2 || strcmp(argv[1], commands[i].name) != 0)
			continue;
		snprintf(full, sizeof(full), "rtxg %s %s", name, commands[i].name);
		message_name(full);
		for (int n = 2; n < argc; n++)
			if (!is_text(argv[n]))
				return EXIT_USAGE;
		argv[1] = full; /* what getopt calls us in its messages */
		return commands[i].run(argc - 1, argv + 1);
	}
	accepted = words_join(words);
	guess = argc < 2 ? NULL : words_nearest(argv[1], words);
	if (argc < 2)
		status = message_usage("missing command; one of: %s", accepted ? accepted : "");
	else
		status = message_usage("'%s' is not accepted; accepted: %s%s%s%s", argv[1],
				       accepted ? accepted : "", guess ? "; did you mean '" : "",
				       guess ? guess : "", guess ? "'?" : "");
	free(accepted);
	return status;
}

int command_words(int argc, char **argv, const char *help, int least, int most, const char *missing)
{
	static const struct option options[] = { COMMON_OPTIONS, { 0 } };
	int letter = getopt_long(argc, argv, "h", options, NULL);

	if (letter == 'h') {
		puts(help);
		return EXIT_OK;
	}
	if (letter != -1)
		return message_try_help();
	if (argc - optind < least)
		return message_usage("%s", missing);
	if (argc - optind > most)
		return message_usage("'%s': no argument is accepted", argv[optind + most]);
	return -1;
}
