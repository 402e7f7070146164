/* A program that closes every descriptor, as daemons do, and puts its own where it likes, between verbs calls. Its queue pair is
 * connected with itself; after each way to close, messages, events and the program's own descriptors are as they should be. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define CHECK(ok) check((ok), #ok, __LINE__)
#define FAILS(call, number) (errno = 0, (call) == -1 && errno == (number))

static const char *at = "";

static void check(int ok, const char *what, int line)
{
	if (!ok) {
		fprintf(stderr, "line %d, after %s: not so: %s (errno %d)\n", line, at, what, errno);
		exit(1);
	}
}

static char memory[64];
static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static int number;

static void set_up(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_pd *pd = NULL;

	CHECK(list && list[0] && (context = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(context)));
	CHECK((channel = ibv_create_comp_channel(context)) && (cq = ibv_create_cq(context, 8, NULL, channel, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != NULL);
	init.send_cq = init.recv_cq = cq;
	CHECK((qp = ibv_create_qp(pd, &init)) != NULL);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 1, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 4 } },
	};
	CHECK(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* A message to itself, of which an event tells; half of the time the program sleeps on the descriptor itself. */
static void converse(void)
{
	struct ibv_sge from = { (uintptr_t)memory, 8, mr->lkey }, to = { (uintptr_t)memory + 32, 8, mr->lkey };
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr recv = { .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
	struct ibv_wc wc;
	struct ibv_cq *which;
	void *own;
	int left = 2, n;

	memcpy(memory, &number, sizeof number), number++;
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == 0 && ibv_post_send(qp, &send, &bad) == 0);
	if (number % 2)
		CHECK(poll(&wait, 1, 10000) == 1);
	CHECK(ibv_get_cq_event(channel, &which, &own) == 0 && which == cq);
	ibv_ack_cq_events(cq, 1);
	while (left > 0) {
		CHECK((n = ibv_poll_cq(cq, 1, &wc)) >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS));
		left -= n;
	}
	CHECK(memcmp(memory, memory + 32, 8) == 0);
}

/* The device's own count of what it has sent, as a file says it. */
static void counted(void)
{
	char path[400], text[32] = "";
	FILE *file;

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/sent_pkts", ibv_get_device_name(context->device));
	CHECK((file = fopen(path, "r")) != NULL && fgets(text, sizeof text, file) && fclose(file) == 0);
	CHECK(atoi(text) >= number);
}

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static int own;

static void a_descriptor_of_the_programs(void)
{
	CHECK((own = open("/dev/null", O_RDONLY)) >= 3 && own < 100);
}

static void gone(void)
{
	CHECK(!is_open(own) && is_open(channel->fd) && is_open(context->async_fd) && is_open(context->cmd_fd));
	converse();
	a_descriptor_of_the_programs();
}

int main(void)
{
	int status, ours, other;
	struct dirent *entry;
	pid_t pid;
	DIR *dir;

	/* Without standard input, so that the device's descriptors could take its number. */
	close(0);
	set_up();
	CHECK(!is_open(0) && open("/dev/null", O_RDONLY) == 0);
	converse();
	counted();
	a_descriptor_of_the_programs();

	at = "close of each number";
	for (int fd = 3; fd < 4096; fd++)
		close(fd);
	gone();
	at = "closing what /proc lists";
	CHECK((dir = opendir("/proc/self/fd")) != NULL);
	while ((entry = readdir(dir)) != NULL)
		if (atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(dir))
			close(atoi(entry->d_name));
	closedir(dir);
	gone();
	at = "closefrom";
	closefrom(3);
	gone();
	at = "close_range";
	CHECK(close_range(3, ~0U, 0) == 0);
	gone();
	CHECK(close_range(channel->fd, channel->fd, 0) == 0);
	CHECK(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0 && is_open(own));
	CHECK(FAILS(close_range(9, 3, 0), EINVAL));
	CHECK(close_range(3, ~0U, CLOSE_RANGE_UNSHARE) == 0);
	gone();

	at = "dup2";
	ours = channel->fd;
	CHECK(FAILS(dup2(own, ours), EBUSY) && FAILS(dup3(own, ours, O_CLOEXEC), EBUSY) && FAILS(close(ours), EBADF));
	CHECK(dup2(ours, ours) == ours && FAILS(dup3(ours, ours, 0), EINVAL) && FAILS(dup2(-1, 9), EBADF));
	CHECK((other = dup(ours)) >= 0 && other != ours && close(other) == 0 && !is_open(other));
	for (int fd = 0; fd < 4096; fd++)
		if (fd > 2 && fd != own)
			dup2(own, fd);
	CHECK(dup2(own, 0) == 0);
	close_range(3, ~0U, 0);
	gone();

	at = "fork";
	if ((pid = fork()) == 0) {
		/* To a child they are descriptors like any other. */
		CHECK(close(ours) == 0 && !is_open(ours) && dup2(own, ours) == ours && close_range(3, ~0U, 0) == 0);
		CHECK(!is_open(context->async_fd));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0 && close(own) == 0);
	gone();

	counted();
	at = "the end";
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
	CHECK(!is_open(ours) && open("/dev/null", O_RDONLY) < 100 && dup2(own, ours) == ours && close(ours) == 0);
	puts("all is well");
	return 0;
}
