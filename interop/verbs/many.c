/* Connections that come and go by librdmacm, so many alive at a time, and what they leave.
 *   many serve ADDRESS PORT TOTAL ALIVE
 *   many ask   ADDRESS PORT TOTAL ALIVE OWN-ADDRESS
 * Each has its own queue pair, says its number to the peer and hears it back. The client takes its ports in turn from a few more
 * than are alive. Both look whether descriptors and memory are what they were when the first ALIVE had come and gone. */
#define _GNU_SOURCE
#include "common.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <time.h>

enum { PORTS = 20000, GROWN_KIB = 4096 };
static struct sockaddr_in peer = { .sin_family = AF_INET }, own = { .sin_family = AF_INET };
static struct rdma_cm_id *listener;

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = -3;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static long resident_kib(void)
{
	char line[256];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "r");

	while (fgets(line, sizeof line, status))
		sscanf(line, "VmRSS: %ld", &kib);
	fclose(status);
	return kib;
}

/* A connection's end of a channel is closed a moment after the call. */
static void settle(int wanted)
{
	for (int i = 0; i < 500 && descriptors() > wanted; i++)
		usleep(10000);
}

static struct ibv_qp_init_attr small = {
	.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }, .qp_type = IBV_QPT_RC
};

static struct rdma_cm_id *accept_one(uint32_t number)
{
	struct rdma_conn_param param = { .private_data = &number, .private_data_len = sizeof number };
	struct ibv_qp_init_attr attr = small;
	struct rdma_cm_id *id;

	CHECK(rdma_get_request(listener, &id) == 0);
	CHECK(memcmp(id->event->param.conn.private_data, &number, sizeof number) == 0);
	CHECK(rdma_create_qp(id, NULL, &attr) == 0 && rdma_accept(id, &param) == 0);
	return id;
}

static struct rdma_cm_id *connect_one(uint32_t number, int alive)
{
	struct rdma_conn_param param = { .private_data = &number, .private_data_len = sizeof number, .retry_count = 7 };
	struct ibv_qp_init_attr attr = small;
	struct rdma_cm_id *id;

	own.sin_port = htons(PORTS + number % (alive + 10));
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, (struct sockaddr *)&own, (struct sockaddr *)&peer, 2000) == 0);
	CHECK(rdma_resolve_route(id, 2000) == 0 && rdma_create_qp(id, NULL, &attr) == 0);
	CHECK(rdma_connect(id, &param) == 0);
	CHECK(memcmp(id->event->param.conn.private_data, &number, sizeof number) == 0);
	return id;
}

static void end_one(struct rdma_cm_id *id)
{
	/* The peer may have been faster. */
	rdma_disconnect(id);
	rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
	int serves = argc > 1 && argv[1][0] == 's', total, alive, fds = 0;
	struct rdma_cm_id **ring;
	struct timespec start, end;
	long kib = 0;

	CHECK(argc == (serves ? 6 : 7));
	CHECK(inet_pton(AF_INET, argv[2], &peer.sin_addr) == 1 && (serves || inet_pton(AF_INET, argv[6], &own.sin_addr) == 1));
	peer.sin_port = htons(atoi(argv[3])), total = atoi(argv[4]), alive = atoi(argv[5]);
	ring = calloc(alive, sizeof *ring);
	if (serves) {
		CHECK(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_bind_addr(listener, (struct sockaddr *)&peer) == 0 && rdma_listen(listener, 1024) == 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int i = 0; i < total + alive; i++) {
		if (ring[i % alive])
			end_one(ring[i % alive]);
		ring[i % alive] = i >= total ? NULL : serves ? accept_one(i) : connect_one(i, alive);
		if (i == 2 * alive)
			fds = descriptors(), kib = resident_kib();
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	/* While so many were alive each had one of the event channel, and the other end of its pipe. */
	settle(fds - 2 * alive);
	printf("%d connections, %d at a time, %.0f us each; descriptors %d, then %d; %ld KiB more\n", total, alive,
	       ((end.tv_sec - start.tv_sec) * 1e6 + (end.tv_nsec - start.tv_nsec) / 1e3) / total, fds, descriptors(),
	       resident_kib() - kib);
	CHECK(descriptors() <= fds - 2 * alive && resident_kib() - kib < GROWN_KIB);
	return 0;
}
