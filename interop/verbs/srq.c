/* Shared receive queues: what calls answer, events and their acknowledgement, compiled with the distribution's header. Runs under
 * `userdma run`. Two queue pairs, each connected with itself, take from one queue. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define CHECK(ok) check((ok), #ok, __LINE__)
#define FAILS(call, number) (errno = 0, (call) && errno == (number))
enum { ROOM = 64, RECEIVES = 6 };

static void check(int ok, const char *what, int line)
{
	if (!ok) {
		printf("line %d: not so: %s (errno %d)\n", line, what, errno);
		exit(1);
	}
}

static char memory[4096] __attribute__((aligned(4096)));
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static void connect_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				   .min_rnr_timer = 1, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 4 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };

	CHECK(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(ibv_query_gid(context, 1, 0, &rtr.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	CHECK(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* Refusals, and what a queue says of itself. */
static void attributes(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_sge = 1 } };
	struct ibv_srq_init_attr_ex xrc = { .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD, .pd = pd,
					    .srq_type = IBV_SRQT_XRC, .attr = { 1, 1, 0 } };
	struct ibv_srq_init_attr_ex basic = { .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd, .attr = { 2, 1, 0 } };
	struct ibv_srq_attr attr = { 0 };
	struct ibv_device_attr device;
	struct ibv_recv_wr wrs[3] = { { .wr_id = 1, .next = &wrs[1] }, { .wr_id = 2, .next = &wrs[2] }, { .wr_id = 3 } }, *bad;
	struct ibv_srq *srq;
	uint32_t number = 0;

	CHECK(ibv_query_device(context, &device) == 0 && device.max_srq > 0 && device.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
	CHECK(FAILS(!ibv_create_srq(pd, &init), EINVAL));
	init.attr.max_wr = device.max_srq_wr + 1;
	CHECK(FAILS(!ibv_create_srq(pd, &init), EINVAL));
	init.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = device.max_srq_sge + 1 };
	CHECK(FAILS(!ibv_create_srq(pd, &init), EINVAL));
	CHECK(FAILS(!ibv_create_srq_ex(context, &xrc), EOPNOTSUPP));
	xrc.srq_type = IBV_SRQT_TM;
	CHECK(FAILS(!ibv_create_srq_ex(context, &xrc), EOPNOTSUPP));

	basic.srq_context = memory;
	srq = ibv_create_srq_ex(context, &basic);
	CHECK(srq && srq->context == context && srq->pd == pd && srq->srq_context == memory && basic.attr.max_wr == 2);
	CHECK(ibv_get_srq_num(srq, &number) == 0 && number > 0 && ibv_dealloc_pd(pd) == EBUSY);
	CHECK(ibv_post_srq_recv(srq, wrs, &bad) == ENOMEM && bad == &wrs[2]);
	attr.max_wr = 1;
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EINVAL && ibv_modify_srq(srq, &attr, 1 << 5) == EINVAL);
	attr = (struct ibv_srq_attr){ .max_wr = 3, .srq_limit = 2 };
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == 0 && ibv_post_srq_recv(srq, &wrs[2], &bad) == 0);
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.max_wr == 3 && attr.max_sge == 1 && attr.srq_limit == 2);
	CHECK(ibv_destroy_srq(srq) == 0);
}

static struct ibv_srq *make_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_recv_wr *bad;

	CHECK(srq != NULL);
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_sge sge = { (uintptr_t)memory + i * ROOM, ROOM, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };

		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	}
	return srq;
}

static struct ibv_qp *make_qp(struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 1 << 30, .max_send_sge = 1,
						  .max_inline_data = 64 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_recv_wr wr = { .wr_id = 9 }, *bad;
	struct ibv_qp_init_attr found;
	struct ibv_qp_attr attr;

	CHECK(qp && qp->srq == srq && init.cap.max_recv_wr == 0);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_CAP, &found) == 0 && found.srq == srq);
	connect_qp(qp);
	CHECK(ibv_post_recv(qp, &wr, &bad) == EINVAL && bad == &wr);
	return qp;
}

/* A message from a queue pair to itself; the receive that it has taken. */
static uint64_t message(struct ibv_qp *qp, const char *text)
{
	struct ibv_sge sge = { (uintptr_t)text, strlen(text) };
	struct ibv_send_wr wr = { .wr_id = 99, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
	uint64_t taken = 99;
	struct ibv_wc wc;

	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	for (int seen = 0; seen < 2;) {
		if (ibv_poll_cq(cq, 1, &wc) == 0)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == qp->qp_num);
		if (wc.opcode == IBV_WC_RECV)
			taken = wc.wr_id;
		seen++;
	}
	CHECK(!memcmp(memory + taken * ROOM, text, strlen(text)));
	return taken;
}

static struct ibv_async_event event(void)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_async_event found;

	CHECK(poll(&fd, 1, 5000) == 1 && ibv_get_async_event(context, &found) == 0);
	return found;
}

/* Acknowledges late, so that the destruction of the object has to wait. */
static void *acknowledges(void *arg)
{
	usleep(50000);
	*(char *)(memory + sizeof memory - 1) = 1;
	ibv_ack_async_event(arg);
	return NULL;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_srq_attr limit = { .srq_limit = RECEIVES - 2 };
	struct ibv_async_event reached, last;
	struct ibv_qp *qps[2];
	struct ibv_srq *srq;
	pthread_t thread;

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context != NULL);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 32, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && cq && mr);
	attributes();

	srq = make_srq();
	qps[0] = make_qp(srq);
	qps[1] = make_qp(srq);
	CHECK(ibv_destroy_srq(srq) == EBUSY && ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(message(qps[i % 2], i % 2 ? "to the second" : "to the first") == (uint64_t)i);
	reached = event();
	CHECK(reached.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && reached.element.srq == srq);
	CHECK(ibv_query_srq(srq, &limit) == 0 && limit.srq_limit == 0);

	/* One queue pair fails: the other goes on. */
	CHECK(ibv_modify_qp(qps[0], &error, IBV_QP_STATE) == 0);
	last = event();
	CHECK(last.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && last.element.qp == qps[0]);
	CHECK(message(qps[1], "still here") == 4);
	ibv_ack_async_event(&last);
	CHECK(ibv_destroy_qp(qps[0]) == 0 && ibv_destroy_qp(qps[1]) == 0);
	CHECK(pthread_create(&thread, NULL, acknowledges, &reached) == 0);
	CHECK(ibv_destroy_srq(srq) == 0 && memory[sizeof memory - 1] == 1 && pthread_join(thread, NULL) == 0);

	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	puts("all is well");
	return 0;
}
