/* Which library a program gets, however it asks for it.
 *
 *   probe LIBRARY [NAMES] < SYMBOLS     LIBRARY is ours; SYMBOLS has lines `name@NODE`; NAMES is 1 to leave out libibverbs.so,
 *                                       which is not the library's name to the loader
 *
 * Compiled with -DLINKED and linked with libibverbs, or with a renamed copy; or without, to use dlopen only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#ifdef LINKED
#include <infiniband/verbs.h>
#endif

static struct stat ours;

static int is_ours(void *symbol)
{
	Dl_info info;
	struct stat file;

	return symbol && dladdr(symbol, &info) && stat(info.dli_fname, &file) == 0 && file.st_dev == ours.st_dev &&
	       file.st_ino == ours.st_ino;
}

static int checked, wrong;

static void check(void *symbol, const char *how, const char *name)
{
	checked++;
	if (!is_ours(symbol)) {
		wrong++;
		printf("%s: %s is %s\n", how, name, symbol ? "of another library" : "not found");
	}
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "libibverbs.so.1", "libibverbs.so" };
	static const char *const providers[] = { "libmlx5.so.1", "libefa.so.1" };
	void *handles[2];
	int num_names = argc > 2 ? atoi(argv[2]) : 2;
	char line[256];

	if (argc < 2 || stat(argv[1], &ours) != 0)
		return 2;
#ifdef LINKED
	check((void *)ibv_get_device_list, "linked", "ibv_get_device_list");
	check((void *)ibv_create_comp_channel, "linked", "ibv_create_comp_channel");
#endif
	for (int i = 0; i < num_names; i++) {
		handles[i] = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (!handles[i]) {
			printf("dlopen: %s\n", dlerror());
			return 1;
		}
		check(dlsym(handles[i], "ibv_get_device_list"), names[i], "ibv_get_device_list");
	}
	while (fgets(line, sizeof line, stdin)) {
		char *node = strchr(line, '@');

		line[strcspn(line, "\n")] = 0;
		if (!node)
			continue;
		*node++ = 0;
		for (int i = 0; i < num_names; i++)
			check(dlvsym(handles[i], line, node), node, line);
	}
	/* They bind everything when they are loaded. */
	for (int i = 0; i < 2; i++) {
		void *provider = dlopen(providers[i], RTLD_NOW);

		if (provider)
			check(dlsym(provider, "ibv_get_device_list"), providers[i], "ibv_get_device_list");
		else if (!strstr(dlerror(), "cannot open shared object file"))
			wrong++, printf("%s does not load\n", providers[i]);
	}
	printf("%d symbols are ours\n", checked - wrong);
	return wrong != 0;
}
