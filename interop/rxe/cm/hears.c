/* What one side of a connection hears, for cases in which the other refuses, is silent or dies.
 *
 *   hears -b ADDRESS [OPTIONS] accept|refuse|stall    waits for a request, and does that with it
 *   hears -s ADDRESS [OPTIONS]                        asks
 *
 *   -d DATA  private data that it sends        -p PORT  7174 is the default
 *   -o       sends one message                 -k       keeps sending, one at a time, so that a silent peer shows
 *   -x N     disconnects after N seconds       -w       disconnects when a message has come
 *   -l N     accepts N seconds late, and tells if it cannot
 *
 * Each event is a line: name, status, and the text that came with it; so is the first completion that fails. After the last
 * that there can be it prints `end`, and the exit status is 0. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { DEPTH = 64 };

static const char *data = "", *port = "7174";
static int keep_sending, sends_one, disconnects = -1, waits_for_message, late, over, completions_failed, under_way;
static time_t connected;
static char buffer[64];
static struct ibv_mr *region;
static struct rdma_event_channel *channel;

static void need(int right, const char *what)
{
	if (right)
		return;
	printf("hears: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void make_queue_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	need(rdma_create_qp(id, NULL, &attr) == 0, "rdma_create_qp");
	region = rdma_reg_msgs(id, buffer, sizeof buffer);
	need(region != NULL, "rdma_reg_msgs");
	for (int i = 0; i < DEPTH; i++)
		need(rdma_post_recv(id, NULL, buffer, sizeof buffer, region) == 0, "rdma_post_recv");
}

static struct rdma_conn_param parameters(void)
{
	return (struct rdma_conn_param){ .private_data = data, .private_data_len = strlen(data), .responder_resources = 1,
					 .initiator_depth = 1, .retry_count = 3, .rnr_retry_count = 3 };
}

static void tell(const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	int length = param->private_data ? strnlen(param->private_data, param->private_data_len) : 0;

	printf("%s %d \"%.*s\"\n", rdma_event_str(event->event) + strlen("RDMA_CM_EVENT_"), event->status, length,
	       length ? (const char *)param->private_data : "");
}

static void handle_request(struct rdma_cm_id *id, const char *mode)
{
	struct rdma_conn_param param = parameters();

	if (strcmp(mode, "refuse") == 0) {
		need(rdma_reject(id, data, strlen(data)) == 0, "rdma_reject");
		over = 1;
	} else if (strcmp(mode, "accept") == 0) {
		make_queue_pair(id);
		sleep(late);
		if (rdma_accept(id, &param) == 0)
			return;
		printf("ACCEPT %s\n", strerror(errno));
		over = 1;
	}
}

/* The identifier of the connection, once there is one. */
static struct rdma_cm_id *handle_event(struct rdma_cm_id *id, const char *mode)
{
	struct rdma_cm_event *event, copy;
	struct rdma_conn_param param = parameters();

	if (rdma_get_cm_event(channel, &event) != 0) {
		need(errno == EAGAIN, "rdma_get_cm_event");
		return id;
	}
	tell(event);
	copy = *event;
	rdma_ack_cm_event(event);
	switch (copy.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		need(rdma_resolve_route(copy.id, 2000) == 0, "rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_queue_pair(copy.id);
		need(rdma_connect(copy.id, &param) == 0, "rdma_connect");
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		handle_request(copy.id, mode);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		connected = time(NULL);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		rdma_disconnect(copy.id);
		over = 1;
		break;
	default:
		over = 1;
	}
	return copy.id;
}

/* Sends in every tenth turn, if the last has completed (whatever is posted starts rxe's ACK timer again), and tells the first
 * completion that failed. */
static void drive(struct rdma_cm_id *id, int turn)
{
	struct ibv_wc wc;

	if (!connected || completions_failed)
		return;
	if (disconnects >= 0 && time(NULL) >= connected + disconnects) {
		need(rdma_disconnect(id) == 0, "rdma_disconnect");
		disconnects = -1;
	}
	if (sends_one || (keep_sending && !under_way && turn % 10 == 0)) {
		need(rdma_post_send(id, NULL, buffer, 8, region, 0) == 0, "rdma_post_send");
		sends_one = 0, under_way = 1;
	}
	while (!completions_failed && ibv_poll_cq(id->send_cq, 1, &wc) == 1) {
		under_way = 0;
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		printf("COMPLETION %s\n", ibv_wc_status_str(wc.status));
		completions_failed = over = 1;
	}
	while (!completions_failed && ibv_poll_cq(id->recv_cq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS)
			continue;
		rdma_post_recv(id, NULL, buffer, sizeof buffer, region);
		if (waits_for_message)
			need(rdma_disconnect(id) == 0, "rdma_disconnect");
		waits_for_message = 0;
	}
}

static struct rdma_cm_id *begin(const char *address, int listens)
{
	struct rdma_cm_id *id;
	struct addrinfo *found, hints = { .ai_flags = AI_NUMERICHOST };

	need(getaddrinfo(address, port, &hints, &found) == 0, "getaddrinfo");
	need((channel = rdma_create_event_channel()) != NULL, "rdma_create_event_channel");
	need(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
	if (listens) {
		need(rdma_bind_addr(id, found->ai_addr) == 0, "rdma_bind_addr");
		need(rdma_listen(id, 8) == 0, "rdma_listen");
	} else {
		need(rdma_resolve_addr(id, NULL, found->ai_addr, 2000) == 0, "rdma_resolve_addr");
	}
	freeaddrinfo(found);
	return id;
}

int main(int argc, char **argv)
{
	const char *address = NULL, *mode = "";
	int option, listens = 0;
	struct rdma_cm_id *id;

	while ((option = getopt(argc, argv, "b:s:p:d:kl:owx:")) != -1) {
		switch (option) {
		case 'b': listens = 1, address = optarg; break;
		case 's': address = optarg; break;
		case 'p': port = optarg; break;
		case 'd': data = optarg; break;
		case 'k': keep_sending = 1; break;
		case 'l': late = atoi(optarg); break;
		case 'o': sends_one = 1; break;
		case 'w': waits_for_message = 1; break;
		case 'x': disconnects = atoi(optarg); break;
		default: return 2;
		}
	}
	if (optind < argc)
		mode = argv[optind];
	setvbuf(stdout, NULL, _IOLBF, 0);
	need(address != NULL, "an address");
	id = begin(address, listens);
	for (int turn = 0; !over; turn++) {
		struct pollfd ready = { .fd = channel->fd, .events = POLLIN };

		if (poll(&ready, 1, 10) > 0)
			id = handle_event(id, mode);
		drive(id, turn);
	}
	printf("end\n");
	return 0;
}
