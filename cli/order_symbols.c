// SPDX-License-Identifier: MIT
/*
 * order_symbols.c - names in a program's file. See order_symbols.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "message.h"
#include "order_symbols.h"

static int compare(const void *a, const void *b)
{
	const struct order_symbol *x = a, *y = b;

	return x->low < y->low ? -1 : x->low > y->low;
}

static int add(struct order_symbols *symbols, const GElf_Sym *symbol, const char *name)
{
	struct order_symbol *more =
		realloc(symbols->list, (symbols->count + 1) * sizeof(*symbols->list));

	if (!more)
		return -ENOMEM;
	symbols->list = more;
	more[symbols->count] =
		(struct order_symbol){ symbol->st_value, symbol->st_value + symbol->st_size,
				       strdup(name) };
	return more[symbols->count++].name ? 0 : -ENOMEM;
}

static int read_section(struct order_symbols *symbols, Elf *elf, Elf_Scn *section,
			const GElf_Shdr *header)
{
	Elf_Data *data = elf_getdata(section, NULL);
	size_t count = header->sh_entsize ? header->sh_size / header->sh_entsize : 0;
	int err = 0;

	for (size_t i = 0; data && !err && i < count; i++) {
		const char *name;
		GElf_Sym symbol;

		if (!gelf_getsym(data, (int)i, &symbol) ||
		    GELF_ST_TYPE(symbol.st_info) != STT_OBJECT || !symbol.st_size ||
		    symbol.st_shndx == SHN_UNDEF)
			continue;
		name = elf_strptr(elf, header->sh_link, symbol.st_name);
		if (name && *name)
			err = add(symbols, &symbol, name);
	}
	return err;
}

/* The table that the linker leaves for debuggers; that for the loader, where it was stripped. */
static int read_tables(struct order_symbols *symbols, Elf *elf)
{
	static const GElf_Word types[] = { SHT_SYMTAB, SHT_DYNSYM };
	int err = 0;

	for (size_t i = 0; i < 2 && !err && !symbols->count; i++) {
		Elf_Scn *section = NULL;

		while (!err && (section = elf_nextscn(elf, section))) {
			GElf_Shdr header;

			if (gelf_getshdr(section, &header) && header.sh_type == types[i])
				err = read_section(symbols, elf, section, &header);
		}
	}
	return err;
}

int order_symbols_read(struct order_symbols *symbols, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;
	Elf *elf = NULL;

	memset(symbols, 0, sizeof(*symbols));
	if (fd < 0) {
		err = -errno;
		message_error("%s: %s", path, strerror(errno));
		return err;
	}
	if (elf_version(EV_CURRENT) != EV_NONE)
		elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF) {
		message_error("%s is no program that a compiler made, but a script or data; name "
			      "the program itself",
			      path);
		err = -ENOEXEC;
	} else {
		err = read_tables(symbols, elf);
		if (err)
			message_error("%s: no memory for its symbols", path);
	}
	if (elf)
		elf_end(elf);
	close(fd);
	if (err)
		order_symbols_free(symbols);
	else if (symbols->count)
		qsort(symbols->list, symbols->count, sizeof(*symbols->list), compare);
	return err;
}

void order_symbols_free(struct order_symbols *symbols)
{
	for (size_t i = 0; i < symbols->count; i++)
		free(symbols->list[i].name);
	free(symbols->list);
	memset(symbols, 0, sizeof(*symbols));
}

const struct order_symbol *order_symbols_at(const struct order_symbols *symbols, uint64_t address)
{
	size_t low = 0, high = symbols->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symbols->list[middle].low <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < symbols->list[low - 1].high ? &symbols->list[low - 1] : NULL;
}

/* addr2line reads addresses from `in` and writes a line for each. */
static pid_t start_addr2line(const char *path, FILE *in, int out)
{
	pid_t child = fork();

	if (child == 0) {
		int null = open("/dev/null", O_WRONLY);

		dup2(fileno(in), 0);
		dup2(out, 1);
		dup2(null, 2);
		execlp("addr2line", "addr2line", "-e", path, (char *)NULL);
		_exit(127);
	}
	return child;
}

char **order_symbols_lines(const char *path, const uint64_t *addresses, size_t count)
{
	char **lines = calloc(count + 1, sizeof(*lines)), *line = NULL;
	FILE *in = tmpfile(), *from = NULL;
	size_t room = 0;
	int pipes[2] = { -1, -1 };
	pid_t child;

	if (!lines || !in || pipe2(pipes, O_CLOEXEC))
		goto out;
	for (size_t i = 0; i < count; i++)
		fprintf(in, "0x%llx\n", (unsigned long long)addresses[i]);
	rewind(in);
	child = start_addr2line(path, in, pipes[1]);
	close(pipes[1]);
	from = fdopen(pipes[0], "r");
	for (size_t i = 0; from && child > 0 && i < count && getline(&line, &room, from) > 0; i++) {
		const char *name = strrchr(line, '/');

		line[strcspn(line, " \n")] = '\0'; /* " (discriminator 2)" may follow */
		name = name ? name + 1 : line;
		if (name[0] != '?')
			lines[i] = strdup(name);
	}
	if (from)
		fclose(from);
	if (child > 0)
		waitpid(child, NULL, 0);
	free(line);
out:
	if (in)
		fclose(in);
	return lines;
}
