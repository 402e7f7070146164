/* An ordinary program of TCP sockets, which knows nothing of RDMA.
 *   tcp serve ADDRESS PORT CONNECTIONS     sends back what comes, over so many connections, a thread for each
 *   tcp ask ADDRESS PORT CONNECTIONS       that many at once, and compares every byte
 * Both print how many bytes it were. Meanwhile files are opened and closed: numbers of descriptors come and go. */
#define _GNU_SOURCE
#include "common.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { BYTES = 300000, MOST = 64 };
static struct sockaddr_in peer = { .sin_family = AF_INET };
static long total;

static void come_and_go(void)
{
	struct stat st;
	int null = open("/dev/null", O_RDWR), pipes[2];

	CHECK(null >= 0 && pipe(pipes) == 0);
	CHECK(fstat(null, &st) == 0 && S_ISCHR(st.st_mode) && fstat(pipes[0], &st) == 0 && S_ISFIFO(st.st_mode));
	CHECK(write(pipes[1], "x", 1) == 1 && close(pipes[0]) == 0 && close(pipes[1]) == 0 && close(null) == 0);
}

static void *serve(void *at)
{
	int fd = (intptr_t)at;
	char bytes[5000];
	ssize_t len;

	while ((len = read(fd, bytes, sizeof bytes)) > 0) {
		__atomic_add_fetch(&total, len, __ATOMIC_RELAXED);
		for (ssize_t done = 0, more; done < len; done += more)
			CHECK((more = send(fd, bytes + done, len - done, MSG_NOSIGNAL)) > 0);
		come_and_go();
	}
	CHECK(len == 0 && shutdown(fd, SHUT_WR) == 0 && close(fd) == 0);
	return NULL;
}

static char byte_at(int position, void *of)
{
	return position * 7 + (position >> 8) + (intptr_t)of;
}

static void *ask(void *at)
{
	unsigned seed = (intptr_t)at;
	char piece[9000], byte;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&peer, sizeof peer) == 0);
	for (int done = 0, got = 0; got < BYTES;) {
		struct pollfd ready = { fd, POLLIN | (done < BYTES && done - got < 20000 ? POLLOUT : 0), 0 };
		ssize_t len;

		/* With a time-out rsocket.c rpoll() may end early: each round takes off all the time since it began. */
		CHECK(poll(&ready, 1, -1) == 1);
		if (ready.revents & POLLOUT) {
			int most = 1 + rand_r(&seed) % sizeof piece;

			most = most < BYTES - done ? most : BYTES - done;
			for (int i = 0; i < most; i++)
				piece[i] = byte_at(done + i, at);
			CHECK((len = write(fd, piece, most)) > 0);
			done += len;
		}
		if (ready.revents & POLLIN) {
			CHECK(recv(fd, &byte, 1, MSG_PEEK) == 1 && byte == byte_at(got, at));
			CHECK((len = read(fd, piece, sizeof piece)) > 0);
			for (int i = 0; i < len; i++)
				CHECK(piece[i] == byte_at(got + i, at));
			got += len;
			__atomic_add_fetch(&total, len, __ATOMIC_RELAXED);
		}
		come_and_go();
	}
	CHECK(shutdown(fd, SHUT_WR) == 0 && read(fd, &byte, 1) == 0 && close(fd) == 0);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST];
	int count, fd, yes = 1;

	CHECK(argc == 5 && inet_pton(AF_INET, argv[2], &peer.sin_addr) == 1);
	peer.sin_port = htons(atoi(argv[3])), count = atoi(argv[4]);
	CHECK(count <= MOST);
	if (argv[1][0] == 's') {
		CHECK((fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
		CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
		CHECK(bind(fd, (struct sockaddr *)&peer, sizeof peer) == 0 && listen(fd, MOST) == 0);
		for (int i = 0; i < count; i++) {
			intptr_t one = accept(fd, NULL, NULL);

			CHECK(one >= 0 && pthread_create(&threads[i], NULL, serve, (void *)one) == 0);
		}
	} else {
		for (int i = 0; i < count; i++)
			CHECK(pthread_create(&threads[i], NULL, ask, (void *)(intptr_t)i) == 0);
	}
	for (int i = 0; i < count; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	printf("%ld bytes over %d connections\n", total, count);
	return 0;
}
