/* The functions of the C library that take a path, under `userdma run`: what leads to a device is there, whoever asks; for
 * every other path the answer, errno included, is the kernel's. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(ok) check((ok), #ok, __LINE__)

static const char *at = "";

static void check(int ok, const char *what, int line)
{
	if (!ok) {
		printf("line %d, %s: not so: %s (errno %d)\n", line, at, what, errno);
		exit(1);
	}
}

#define CLASS "/sys/class/infiniband"
static char device[300], guid[320], node[300] = "/dev/infiniband/uverbs0";

static void *function(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);
	if (!found)
		found = dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5");
	at = name;
	CHECK(found != NULL);
	return found;
}

/* A call, and what the kernel says to the same: both fail alike, or neither does. A success leaves errno alone. */
#define SAME(call, kernel) do { \
	long ours, theirs; int our_errno, their_errno; \
	errno = 77; ours = (long)(call); our_errno = errno; \
	errno = 77; theirs = (long)(kernel); their_errno = errno; \
	errno = our_errno; \
	check((ours < 0) == (theirs < 0) && our_errno == their_errno, #call, __LINE__); \
	if (ours > 2 && close_it) close(ours); \
	if (theirs > 2 && close_it) syscall(SYS_close, theirs); \
} while (0)

static void as_the_kernel(const char *path, int dir)
{
	int (*open_2)(const char *, int) = function("__open_2"), (*open64_2)(const char *, int) = function("__open64_2");
	int (*openat_2)(int, const char *, int) = function("__openat_2");
	int (*xstat)(int, const char *, void *) = function("__xstat64"), (*lxstat)(int, const char *, void *) = function("__lxstat64");
	int (*fxstatat)(int, int, const char *, void *, int) = function("__fxstatat64");
	char text[PATH_MAX + 1], kernels[PATH_MAX + 1];
	struct statx xa, xb;
	struct stat a, b;
	int close_it = 1;

	at = path;
	SAME(open(path, O_RDONLY), syscall(SYS_openat, AT_FDCWD, path, O_RDONLY));
	SAME(open64(path, O_RDONLY | O_DIRECTORY), syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
	SAME(openat(dir, path, O_RDONLY), syscall(SYS_openat, dir, path, O_RDONLY));
	SAME(openat64(dir, path, O_PATH | O_NOFOLLOW), syscall(SYS_openat, dir, path, O_PATH | O_NOFOLLOW));
	SAME(open_2(path, O_RDONLY), syscall(SYS_openat, AT_FDCWD, path, O_RDONLY));
	SAME(open64_2(path, O_RDONLY), syscall(SYS_openat, AT_FDCWD, path, O_RDONLY));
	SAME(openat_2(dir, path, O_RDONLY), syscall(SYS_openat, dir, path, O_RDONLY));
	close_it = 0;
	SAME(access(path, R_OK), syscall(SYS_faccessat, AT_FDCWD, path, R_OK));
	SAME(access(path, X_OK), syscall(SYS_faccessat, AT_FDCWD, path, X_OK));
	SAME(faccessat(dir, path, W_OK, 0), syscall(SYS_faccessat, dir, path, W_OK));
	SAME(euidaccess(path, R_OK), syscall(SYS_faccessat, AT_FDCWD, path, R_OK));
	SAME(eaccess(path, R_OK), syscall(SYS_faccessat, AT_FDCWD, path, R_OK));
	SAME(readlink(path, text, sizeof text), syscall(SYS_readlinkat, AT_FDCWD, path, kernels, sizeof kernels));
	SAME(readlinkat(dir, path, text, 3), syscall(SYS_readlinkat, dir, path, kernels, 3));
	SAME(chdir(path), syscall(SYS_chdir, path));
	CHECK(chdir("/tmp") == 0);

	memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);
	SAME(stat(path, &a), syscall(SYS_newfstatat, AT_FDCWD, path, &b, 0));
	CHECK(a.st_ino == b.st_ino && a.st_mode == b.st_mode && a.st_rdev == b.st_rdev);
	SAME(lstat(path, &a), syscall(SYS_newfstatat, AT_FDCWD, path, &b, AT_SYMLINK_NOFOLLOW));
	CHECK(a.st_ino == b.st_ino && a.st_mode == b.st_mode);
	SAME(fstatat(dir, path, &a, AT_SYMLINK_NOFOLLOW), syscall(SYS_newfstatat, dir, path, &b, AT_SYMLINK_NOFOLLOW));
	CHECK(a.st_ino == b.st_ino && a.st_mode == b.st_mode);
	SAME(xstat(1, path, &a), syscall(SYS_newfstatat, AT_FDCWD, path, &b, 0));
	SAME(lxstat(1, path, &a), syscall(SYS_newfstatat, AT_FDCWD, path, &b, AT_SYMLINK_NOFOLLOW));
	SAME(fxstatat(1, dir, path, &a, 0), syscall(SYS_newfstatat, dir, path, &b, 0));
	CHECK(a.st_ino == b.st_ino);
	memset(&xa, 0, sizeof xa), memset(&xb, 0, sizeof xb);
	SAME(statx(dir, path, 0, STATX_BASIC_STATS, &xa), syscall(SYS_statx, dir, path, 0, STATX_BASIC_STATS, &xb));
	CHECK(xa.stx_ino == xb.stx_ino && xa.stx_mode == xb.stx_mode);
}

/* What has no system call of its own: against what a call that has one says. */
static void as_open_says(const char *path)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
	int is_dir = fd >= 0, why = errno, status;
	struct dirent **names = NULL;
	DIR *dir;
	FILE *file;
	glob_t found;

	at = path;
	if (is_dir)
		syscall(SYS_close, fd);
	errno = 77;
	dir = opendir(path);
	CHECK(!dir == !is_dir && errno == (is_dir ? 77 : why));
	if (dir)
		closedir(dir);
	errno = 77;
	status = scandir(path, &names, NULL, alphasort);
	CHECK((status >= 0) == is_dir && (is_dir || errno == why));
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
	why = errno;
	errno = 77;
	file = fopen(path, "r");
	CHECK(!file == (fd < 0) && errno == (fd < 0 ? why : 77));
	if (file)
		fclose(file);
	if (fd >= 0)
		syscall(SYS_close, fd);
	/* glob finds what there is; a name that ends in a slash is there if it is a directory. */
	status = glob(path, 0, NULL, &found);
	CHECK((status == 0) == (syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0));
	if (status == 0) {
		CHECK(found.gl_pathc == 1 && strcmp(found.gl_pathv[0], path) == 0);
		globfree(&found);
	}
}

static void elsewhere(void)
{
	static const char *const paths[] = {
		"/etc/passwd", "/etc", "/", ".", "..", "/etc/passwd/x", "/nonexistent", "/proc/self/exe", "/dev/null",
		"/sys/class", "/sys/class/net/lo", "infiniband", "x/infiniband/y", "/tmp/infiniband", "/sys/class/infiniband_srp",
		"/dev/infiniband0", "/proc/self/infiniband", "/etc/passwd/infiniband", "/etc/shadow",
	};
	static char long_path[PATH_MAX + 100] = "/infiniband";
	int dir = open("/etc", O_RDONLY | O_DIRECTORY);
	void *volatile nowhere = NULL;
	FILE *file;

	CHECK(chdir("/tmp") == 0 && dir >= 0);
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		as_the_kernel(paths[i], dir);
		as_the_kernel(paths[i], AT_FDCWD);
		as_the_kernel(paths[i], 999999);
		as_open_says(paths[i]);
	}
	memset(long_path + 11, 'x', PATH_MAX);
	as_the_kernel(long_path, dir);
	as_the_kernel("", dir);
	errno = 0;
	CHECK(stat(nowhere, (struct stat *)long_path) == -1 && errno == EFAULT);
	CHECK(statx(0, nowhere, 0, 0, (struct statx *)long_path) == -1 && errno == EFAULT);
	CHECK(fstatat(dir, "", (struct stat *)long_path, AT_EMPTY_PATH) == 0);
	/* Files are made with the mode that was asked for. */
	umask(0);
	unlink("infiniband-new");
	CHECK(close(open("infiniband-new", O_CREAT | O_EXCL | O_WRONLY, 0640)) == 0);
	CHECK(stat("infiniband-new", (struct stat *)long_path) == 0 && (((struct stat *)long_path)->st_mode & 0777) == 0640);
	CHECK((file = fopen64("infiniband-new", "w")) != NULL && (file = freopen("infiniband-new", "r", file)) != NULL);
	CHECK(fclose(file) == 0 && unlink("infiniband-new") == 0);
	CHECK(realpath("/nonexistent/infiniband", NULL) == NULL && errno == ENOENT);
	CHECK(close(dir) == 0 && close(dir) == -1 && errno == EBADF);
}

static void reads(const char *path, const char *wanted, int dir)
{
	char text[100];
	int fd = openat(dir, path, O_RDONLY);
	ssize_t n;

	at = path;
	CHECK(fd >= 0);
	n = read(fd, text, sizeof text - 1);
	CHECK(n > 0);
	text[n] = 0;
	CHECK(strstr(text, wanted) != NULL);
	CHECK(close(fd) == 0);
}

static int entries, deepest;

static int on_entry(const char *path, const struct stat *what, int kind, struct FTW *place)
{
	(void)what;
	if (strncmp(path, device, strlen(device)) != 0 || kind == FTW_NS || place->base <= 0 || path[place->base - 1] != '/')
		return 1;
	entries++;
	deepest = place->level > deepest ? place->level : deepest;
	return 0;
}

static int on_name(const char *path, const struct stat *what, int kind)
{
	(void)what, (void)kind;
	return strncmp(path, device, strlen(device)) != 0;
}

static void ours(void)
{
	char *(*realpath_chk)(const char *, char *, size_t) = function("__realpath_chk");
	ssize_t (*readlink_chk)(const char *, char *, size_t, size_t) = function("__readlink_chk");
	int (*lxstat)(int, const char *, void *) = function("__lxstat64"), (*xstat)(int, const char *, void *) = function("__xstat64");
	int root = open("/", O_PATH | O_DIRECTORY), class, fd;
	char text[PATH_MAX], wanted[PATH_MAX], *whole;
	struct dirent **names, *entry;
	struct statx x;
	struct stat s;
	glob_t found;
	DIR *dir;

	/* The directory, and the one device in it. */
	at = CLASS;
	CHECK((dir = opendir(CLASS "/")) != NULL);
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			snprintf(device, sizeof device, CLASS "/%s", entry->d_name);
	CHECK(closedir(dir) == 0 && device[0]);
	CHECK(scandir(CLASS, &names, NULL, alphasort) == 3 && strcmp(names[2]->d_name, device + sizeof CLASS) == 0);
	snprintf(guid, sizeof guid, "%s/node_guid", device);
	reads(guid, ":", AT_FDCWD);

	/* The same however it is spelled. */
	snprintf(text, sizeof text, "sys/class/./infiniband//%s/ports/1/link_layer", device + sizeof CLASS);
	reads(text, "Ethernet", root);
	CHECK(chdir("/") == 0);
	reads(text, "Ethernet", AT_FDCWD);
	CHECK(chdir("/sys/class/net") == 0);
	snprintf(text, sizeof text, "../infiniband/%s/ports/1/gid_attrs/types/0", device + sizeof CLASS);
	reads(text, "RoCE v2", AT_FDCWD);
	/* What was opened is a directory like any other. */
	CHECK((class = open(CLASS, O_RDONLY | O_DIRECTORY)) >= 0);
	snprintf(text, sizeof text, "%s/ports/1/gids/0", device + sizeof CLASS);
	reads(text, "ffff:7f00", class);
	CHECK(fchdir(class) == 0);
	reads(text, "ffff:7f00", AT_FDCWD);
	CHECK(getcwd(text, sizeof text) && strcmp(text, CLASS) == 0);
	CHECK(chdir(device) == 0 && access("ports/1/state", R_OK) == 0);
	CHECK(close(class) == 0 && close(root) == 0);

	/* What it is. */
	CHECK(stat(device, &s) == 0 && S_ISDIR(s.st_mode) && lstat(device, &s) == 0 && S_ISLNK(s.st_mode));
	CHECK(stat(guid, &s) == 0 && S_ISREG(s.st_mode) && access(guid, R_OK) == 0);
	CHECK(statx(AT_FDCWD, guid, 0, STATX_TYPE, &x) == 0 && S_ISREG(x.stx_mode));
	snprintf(text, sizeof text, "%s/nothing", device);
	CHECK(stat(text, &s) == -1 && errno == ENOENT && open(text, O_RDONLY) == -1 && errno == ENOENT);
	CHECK(access(text, F_OK) == -1 && errno == ENOENT && opendir(guid) == NULL && errno == ENOTDIR);
	CHECK(fopen(guid, "r") != NULL && realpath(text, NULL) == NULL && errno == ENOENT);

	/* Links lead where programs see them lead. */
	CHECK((whole = realpath(device, NULL)) != NULL && strncmp(whole, "/sys/devices/platform/", 22) == 0);
	CHECK(access(whole, R_OK) == 0 && realpath(whole, text) == text && strcmp(text, whole) == 0);
	CHECK(realpath_chk(device, text, sizeof text) == text && strcmp(text, whole) == 0);
	CHECK(strcmp(canonicalize_file_name(device), whole) == 0);
	snprintf(wanted, sizeof wanted, "../..%s", whole + 4);
	CHECK(readlink(device, text, sizeof text) == (ssize_t)strlen(wanted) && !strncmp(text, wanted, strlen(wanted)));
	CHECK(readlink_chk(device, text, 10, sizeof text) == 10 && strncmp(text, "../../devi", 10) == 0);
	snprintf(wanted, sizeof wanted, "%s/../..", device);
	CHECK((whole = realpath(wanted, NULL)) != NULL && strncmp(whole, "/sys/devices/platform/", 22) == 0);
	snprintf(wanted, sizeof wanted, "%s/device", device);
	CHECK(strcmp(realpath(wanted, text), whole) == 0);
	snprintf(text, sizeof text, "%s/numa_node", whole);
	reads(text, "-1", AT_FDCWD);
	CHECK((whole = realpath(CLASS "/..", NULL)) != NULL && strcmp(whole, "/sys/class") == 0);

	/* The node is a character device that may be read and written, and no link. */
	at = node;
	for (int i = 0; i < 6; i++) {
		CHECK((i == 0 ? stat(node, &s) : i == 1 ? lstat(node, &s) : i == 2 ? xstat(1, node, &s) : i == 3 ? lxstat(1, node, &s) :
		       i == 4 ? fstatat(AT_FDCWD, node, &s, AT_SYMLINK_NOFOLLOW) : fstat(fd = open(node, O_RDWR | O_CLOEXEC), &s)) == 0);
		CHECK(S_ISCHR(s.st_mode) && (s.st_mode & 0666) == 0666);
	}
	CHECK(statx(AT_FDCWD, node, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &x) == 0 && S_ISCHR(x.stx_mode) && close(fd) == 0);
	CHECK(access(node, R_OK | W_OK) == 0 && readlink(node, text, sizeof text) == -1 && errno == EINVAL);
	CHECK(strcmp(realpath(node, text), node) == 0 && strcmp(canonicalize_file_name(node), node) == 0);
	snprintf(wanted, sizeof wanted, "%u:%u", major(s.st_rdev), minor(s.st_rdev));
	reads(CLASS "_verbs/uverbs0/dev", wanted, AT_FDCWD);
	reads(CLASS "_verbs/uverbs0/ibdev", device + sizeof CLASS, AT_FDCWD);
	CHECK(access("/dev/infiniband/uverbs7", F_OK) == -1 && errno == ENOENT && realpath("/dev/infiniband/uverbs7", text) == NULL);

	/* Patterns and walks tell the paths that programs know. */
	at = "glob";
	CHECK(glob(CLASS "/*/ports/1/g*d_attrs/types/0", 0, NULL, &found) == 0 && found.gl_pathc == 1);
	CHECK(strncmp(found.gl_pathv[0], device, strlen(device)) == 0);
	found.gl_offs = 1;
	CHECK(glob(CLASS "*", GLOB_DOOFFS, NULL, &found) == 0 && found.gl_pathc == 3 && strcmp(found.gl_pathv[1], CLASS) == 0);
	CHECK(glob(CLASS "/x*", GLOB_NOCHECK, NULL, &found) == 0 && strcmp(found.gl_pathv[0], CLASS "/x*") == 0);
	CHECK(glob(CLASS "/x*", 0, NULL, &found) == GLOB_NOMATCH);
	at = "nftw";
	snprintf(text, sizeof text, "%s/ports", device);
	CHECK(nftw(text, on_entry, 10, FTW_PHYS) == 0 && entries > 30 && deepest >= 3);
	CHECK(ftw(text, on_name, 10) == 0);
}

static void *many(void *unused)
{
	(void)unused;
	for (int i = 0; i < 200; i++)
		reads(guid, ":", AT_FDCWD);
	return NULL;
}

static void in_a_handler(int signal)
{
	char text[20];
	int fd = open(guid, O_RDONLY);

	(void)signal;
	if (fd < 0 || read(fd, text, sizeof text) != sizeof text || close(fd))
		_exit(3);
}

static void everywhere(void)
{
	pthread_t threads[4];
	int status;
	pid_t pid;

	at = "threads";
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, many, NULL) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	at = "signal";
	CHECK(signal(SIGUSR1, in_a_handler) != SIG_ERR && raise(SIGUSR1) == 0);
	at = "fork";
	if ((pid = fork()) == 0) {
		many(NULL);
		CHECK(chdir(device) == 0);
		exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	at = "vfork";
	if ((pid = vfork()) == 0)
		_exit(access(guid, R_OK) == 0 && close(open("/dev/null", O_RDONLY)) == 0 ? 0 : 4);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	/* The child's end took nothing of ours away. */
	many(NULL);
}

/* A thread that waits in a hooked function can be cancelled there: the other end of the pipe is never opened. */
static void *waits(void *path)
{
	open(path, O_RDONLY);
	return NULL;
}

static void cancelled(void)
{
	char path[] = "/tmp/pipe.XXXXXX";
	pthread_t thread;
	void *result;

	at = "cancel";
	CHECK(close(mkstemp(path)) == 0 && unlink(path) == 0 && mkfifo(path, 0600) == 0);
	CHECK(pthread_create(&thread, NULL, waits, path) == 0);
	usleep(50000);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	CHECK(unlink(path) == 0);
}

/* In a child of vfork nothing is made; what is not there yet is not there. */
int main(void)
{
	int status;
	pid_t pid;

	if ((pid = vfork()) == 0)
		_exit(access(CLASS, R_OK) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	elsewhere();
	ours();
	everywhere();
	cancelled();
	puts("all is well");
	return 0;
}
