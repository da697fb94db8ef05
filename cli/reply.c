// SPDX-License-Identifier: MIT
/*
 * reply.c - members of a JSON object.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <stdio.h>

#include "reply.h"

uint64_t reply_u64(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) && json_integer_value(value) > 0
		       ? (uint64_t)json_integer_value(value)
		       : 0;
}

double reply_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

const char *reply_string(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

bool reply_bool(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

char *reply_words(const json_t *object, const char *key)
{
	const json_t *array = json_object_get(object, key), *word;
	char *text = NULL;
	size_t size, index;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	json_array_foreach (array, index, word)
		fprintf(out, "%s%s", index ? "," : "",
			json_string_value(word) ? json_string_value(word) : "?");
	return fclose(out) == 0 ? text : NULL;
}
