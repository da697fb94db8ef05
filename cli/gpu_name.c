// SPDX-License-Identifier: MIT
/*
 * gpu_name.c - whether the host knows a GPU of that name. A name is known once a program has opened
 * the device, or a file configures it; a typing error would make another GPU of it.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "gpu_name.h"
#include "message.h"
#include "reply.h"
#include "words.h"

bool gpu_name_known(const char *what, const char *name, bool new_accepted)
{
	json_t *reply = control_ask(json_pack("{s:s}", "op", "gpu-list"), NULL), *gpu;
	const json_t *gpus = json_object_get(reply, "gpus");
	const char **names = calloc(json_array_size(gpus) + 1, sizeof(*names)), *guess;
	bool known = false;
	char *accepted;
	size_t index;

	json_array_foreach (gpus, index, gpu) {
		if (names)
			names[index] = reply_string(gpu, "gpu");
		known = known || strcmp(reply_string(gpu, "gpu"), name) == 0;
	}
	if (reply && names && !known) {
		accepted = words_join(names);
		guess = words_nearest(name, names);
		message_error("%s: there is no GPU '%s'%s%s%s; accepted: %s (see 'rtxg gpu ls')%s",
			      what, name, guess ? ", did you mean '" : "", guess ? guess : "",
			      guess ? "'?" : "", accepted && *accepted ? accepted : "none",
			      new_accepted ? "; --new takes one that no program has opened yet"
					   : "");
		free(accepted);
	}
	free(names);
	json_decref(reply);
	return known;
}
