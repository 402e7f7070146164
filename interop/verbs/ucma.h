/* Commands to /dev/infiniband/rdma_cm, as the kernel's header has them. */
#ifndef USERDMA_UCMA_H
#define USERDMA_UCMA_H
#include "common.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>

/* Newer kernels have these as well. */
enum { RESOLVE_IB_SERVICE = 23, WRITE_CM_EVENT = 24 };
enum { ADDR_RESOLVED, ADDR_ERROR, ROUTE_RESOLVED, ROUTE_ERROR, CONNECT_REQUEST, CONNECT_RESPONSE, CONNECT_ERROR, UNREACHABLE,
       REJECTED, ESTABLISHED, DISCONNECTED };

struct command {
	struct rdma_ucm_cmd_hdr header;
	union {
		struct rdma_ucm_create_id create_id;
		struct rdma_ucm_destroy_id destroy_id;
		struct rdma_ucm_bind_ip bind_ip;
		struct rdma_ucm_bind bind;
		struct rdma_ucm_resolve_ip resolve_ip;
		struct rdma_ucm_resolve_addr resolve_addr;
		struct rdma_ucm_resolve_route resolve_route;
		struct rdma_ucm_query query;
		struct rdma_ucm_connect connect;
		struct rdma_ucm_listen listen;
		struct rdma_ucm_accept accept;
		struct rdma_ucm_reject reject;
		struct rdma_ucm_disconnect disconnect;
		struct rdma_ucm_init_qp_attr init_qp_attr;
		struct rdma_ucm_notify notify;
		struct rdma_ucm_join_ip_mcast join_ip_mcast;
		struct rdma_ucm_join_mcast join_mcast;
		struct rdma_ucm_get_event get_event;
		struct rdma_ucm_set_option set_option;
		struct rdma_ucm_migrate_id migrate_id;
	};
};

/* 0, or -1 and errno. */
static inline int give(int channel, struct command *command, int number, size_t in, size_t out)
{
	ssize_t len = sizeof command->header + in;

	command->header = (struct rdma_ucm_cmd_hdr){ number, in, out };
	errno = 0;
	return write(channel, command, len) == len ? 0 : -1;
}
#define GIVE(channel, command, NUMBER, field, out) \
	give(channel, command, RDMA_USER_CM_CMD_##NUMBER, sizeof (command)->field, out)

static inline int open_channel(int flags)
{
	int channel = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | flags);

	CHECK(channel >= 0);
	return channel;
}

static inline uint32_t create_id(int channel, uint64_t uid, int ps)
{
	struct rdma_ucm_create_id_resp response = { .id = -1 };
	struct command command = { .create_id = { .uid = uid, .response = (uintptr_t)&response, .ps = ps } };

	CHECK(GIVE(channel, &command, CREATE_ID, create_id, sizeof response) == 0);
	return response.id;
}

/* Events that the program has taken. */
static inline uint32_t destroy_id(int channel, uint32_t id)
{
	struct rdma_ucm_destroy_id_resp response = { .events_reported = -1 };
	struct command command = { .destroy_id = { .response = (uintptr_t)&response, .id = id } };

	CHECK(GIVE(channel, &command, DESTROY_ID, destroy_id, sizeof response) == 0);
	return response.events_reported;
}

static inline struct sockaddr_in in_of(const char *ip, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	CHECK(inet_pton(AF_INET, ip, &in.sin_addr) == 1);
	return in;
}

static inline int bind_id(int channel, uint32_t id, const char *ip, int port)
{
	struct sockaddr_in in = in_of(ip, port);
	struct command command = { .bind = { .id = id, .addr_size = sizeof in } };

	memcpy(&command.bind.addr, &in, sizeof in);
	return GIVE(channel, &command, BIND, bind, 0);
}

static inline int listen_id(int channel, uint32_t id, int backlog)
{
	struct command command = { .listen = { .id = id, .backlog = backlog } };

	return GIVE(channel, &command, LISTEN, listen, 0);
}

/* The next event, which must be of this kind. */
static inline struct rdma_ucm_event_resp take_event(int channel, uint32_t kind)
{
	struct rdma_ucm_event_resp event;
	struct command command = { .get_event = { .response = (uintptr_t)&event } };
	struct pollfd fd = { channel, POLLIN, 0 };

	memset(&event, 0xff, sizeof event);
	CHECK(poll(&fd, 1, 20000) == 1 && fd.revents == POLLIN);
	CHECK(GIVE(channel, &command, GET_EVENT, get_event, sizeof event) == 0);
	if (event.event != kind)
		printf("event %u with status %d, not %u\n", event.event, (int)event.status, kind);
	CHECK(event.event == kind);
	return event;
}

static inline int is_quiet(int channel)
{
	struct pollfd fd = { channel, POLLIN, 0 };

	return poll(&fd, 1, 0) == 0;
}
#endif
