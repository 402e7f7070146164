/* What calls answer, in right and in wrong use, compiled with the distribution's header. Runs under `userdma run` with two
 * devices. The numbers are those that programs rely on: who returns an error number, who returns -1 or null and sets errno. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define CHECK(ok) check((ok), #ok, __LINE__)
#define FAILS(call, number) (errno = 0, (call) && errno == (number))

static void check(int ok, const char *what, int line)
{
	if (!ok) {
		printf("line %d: not so: %s (errno %d)\n", line, what, errno);
		exit(1);
	}
}

static char memory[8192] __attribute__((aligned(4096)));
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static struct ibv_qp_init_attr init_attr(struct ibv_cq *queue)
{
	struct ibv_qp_init_attr init = {
		.send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64 },
	};
	return init;
}

/* Connects a queue pair with itself. */
static void connect_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT) == EINVAL && qp->state == IBV_QPS_RESET);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(qp->state == IBV_QPS_INIT);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 1, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 4 } },
	};
	CHECK(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	CHECK(qp->state == IBV_QPS_RTS);
}

static struct ibv_wc completion(void)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(n == 1);
	return wc;
}

static void queries(void)
{
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_gid_entry entries[4];
	union ibv_gid gid;
	__be16 pkey;

	CHECK(ibv_query_device(context, &attr) == 0 && attr.max_qp > 1000 && attr.phys_port_cnt == 1);
	CHECK(attr.node_guid == ibv_get_device_guid(context->device));
	CHECK(ibv_query_device_ex(context, NULL, &ex) == 0 && ex.orig_attr.max_qp == attr.max_qp);
	CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE && port.gid_tbl_len == 256);
	CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET && ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0 && gid.raw[10] == 0xff && gid.raw[12] == 127);
	CHECK(ibv_query_gid(context, 1, 9, &gid) == 0 && !gid.global.subnet_prefix && !gid.global.interface_id);
	CHECK(FAILS(ibv_query_gid(context, 1, 256, &gid) == -1, EINVAL) && FAILS(ibv_query_gid(context, 2, 0, &gid) == -1, EINVAL));
	CHECK(ibv_query_gid_table(context, entries, 4, 0) == 1 && entries[0].gid_type == IBV_GID_TYPE_ROCE_V2);
	CHECK(ibv_query_gid_table(context, entries, 0, 0) == -EINVAL);
	CHECK(ibv_query_gid_ex(context, 1, 0, entries, 0) == 0 && entries[0].ndev_ifindex > 0);
	CHECK(ibv_query_gid_ex(context, 1, 7, entries, 0) == ENODATA && ibv_query_gid_ex(context, 1, 256, entries, 0) == EINVAL);
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1 && ibv_get_pkey_index(context, 1, 0xffff) == 0);
	CHECK(fcntl(context->cmd_fd, F_GETFD) >= 0 && fcntl(context->async_fd, F_GETFD) >= 0);
}

static void regions(void)
{
	struct ibv_mr *other;
	struct ibv_mw *mw;
	uint32_t old;

	CHECK(FAILS(!ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_REMOTE_WRITE), EINVAL));
	CHECK(FAILS(!ibv_reg_mr(pd, (void *)8, 8, 0), EFAULT));
	other = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING | 1 << 29);
	CHECK(other && other->addr == memory && other->length == 4096 && other->pd == pd);
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	old = other->lkey;
	CHECK(ibv_rereg_mr(other, IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 4096,
			   100, IBV_ACCESS_REMOTE_READ) == 0);
	CHECK(other->lkey == old && other->addr == memory + 4096 && other->length == 100);
	CHECK(FAILS(ibv_rereg_mr(other, 1 << 5, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT, EINVAL));
	CHECK(ibv_dereg_mr(other) == 0);
	CHECK(FAILS(!ibv_alloc_mw(pd, 3), EINVAL));
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mw && mw->rkey && ibv_dealloc_mw(mw) == 0);
}

static void refusals(void)
{
	struct ibv_qp_init_attr init = init_attr(cq);
	struct ibv_qp_init_attr_ex ex = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
					  .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					  .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE };
	struct ibv_cq_init_attr_ex stamps = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_ah_attr ah = { .port_num = 1 };

	CHECK(FAILS(!ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL) && FAILS(!ibv_create_cq(context, 4, NULL, NULL, 1), EINVAL));
	CHECK(FAILS(!ibv_create_qp_ex(context, &ex), EOPNOTSUPP) && FAILS(!ibv_create_cq_ex(context, &stamps), EOPNOTSUPP));
	CHECK(FAILS(!ibv_create_ah(pd, &ah), EINVAL) && FAILS(!ibv_open_xrcd(context, NULL), EOPNOTSUPP));
	init.qp_type = IBV_QPT_RAW_PACKET;
	CHECK(FAILS(!ibv_create_qp(pd, &init), EOPNOTSUPP));
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_sge = 1000;
	CHECK(FAILS(!ibv_create_qp(pd, &init), EINVAL));
	CHECK(ibv_resize_cq(cq, 4) == 0 && ibv_resize_cq(cq, 20) == 0 && cq->cqe >= 20 && ibv_resize_cq(cq, 0) == EINVAL);
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY && channel->refcnt == 1);
	CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
}

/* Posts go round: inline data, lists, immediate data, the extended way, the extended queue. */
static void round_trip(struct ibv_qp *qp)
{
	struct ibv_sge landing = { (uintptr_t)memory, 64, mr->lkey }, parts[2] = { { (uintptr_t)"AB", 2 }, { (uintptr_t)"CD", 2 } };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &landing, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = parts, .num_sge = 2, .opcode = IBV_WR_SEND_WITH_IMM,
				    .imm_data = 0x01020304, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad_send;
	struct ibv_send_wr wrong = send;
	struct ibv_wc wc;
	int seen = 0;

	CHECK(ibv_post_recv(qp, &recv, &bad_recv) == 0);
	wrong.num_sge = 99;
	send.next = &wrong;
	CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && bad_send == &wrong);
	for (int i = 0; i < 2; i++) {
		wc = completion();
		CHECK(wc.status == IBV_WC_SUCCESS && wc.qp_num == qp->qp_num);
		seen |= 1 << wc.wr_id;
		if (wc.wr_id == 1)
			CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 4 && wc.imm_data == 0x01020304 && wc.wc_flags & IBV_WC_WITH_IMM);
	}
	CHECK(seen == 6 && !memcmp(memory, "ABCD", 4));
}

/* A window of type 1: bound by a call, bound anew, ended by a bind of no bytes. */
static void window(struct ibv_qp *qp)
{
	struct ibv_mr *region = ibv_reg_mr(pd, memory + 4096, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1), *other = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = { .wr_id = 8, .send_flags = IBV_SEND_SIGNALED, .bind_info = {
		.mr = region, .addr = (uintptr_t)memory + 4096, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } };
	struct ibv_sge sge = { (uintptr_t)"in a window", 12 };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
	struct ibv_wc wc;
	uint32_t old;

	CHECK(region && mw && other && mw->type == IBV_MW_TYPE_1);
	CHECK(ibv_bind_mw(qp, other, &bind) == EINVAL && ibv_dealloc_mw(other) == 0);
	for (int i = 0; i < 3; i++) {
		old = mw->rkey;
		CHECK(ibv_bind_mw(qp, mw, &bind) == 0 && mw->rkey == ibv_inc_rkey(old));
		wc = completion();
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 8);
		wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
		wr.wr.rdma.rkey = mw->rkey;
		CHECK(ibv_post_send(qp, &wr, &bad) == 0);
		wc = completion();
		CHECK(wc.status == IBV_WC_SUCCESS && !strcmp(memory + 4096, "in a window"));
		memset(memory + 4096, 0, 64);
	}
	CHECK(ibv_dereg_mr(region) == EBUSY);
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = NULL };
	CHECK(ibv_bind_mw(qp, mw, &bind) == 0);
	wc = completion();
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(region) == 0 && ibv_dealloc_mw(mw) == 0);
}

static void *reads_event(void *arg)
{
	struct ibv_cq *ev_cq;
	void *ev_context;

	(void)arg;
	CHECK(ibv_get_cq_event(channel, &ev_cq, &ev_context) == 0 && ev_cq == cq && ev_context == memory);
	return NULL;
}

/* A thread that waits for an event may be cancelled, as rping does it. */
static void cancelled(void)
{
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, reads_event, NULL) == 0);
	usleep(20000);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

static void events(struct ibv_qp *qp)
{
	struct ibv_sge word = { (uintptr_t)memory + 64, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &word, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_cq *ev_cq;
	void *ev_context;
	pthread_t thread;

	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(FAILS(ibv_get_cq_event(channel, &ev_cq, &ev_context) == -1, EAGAIN));
	CHECK(fcntl(channel->fd, F_SETFL, 0) == 0);
	wr.wr.atomic.remote_addr = (uintptr_t)memory + 128;
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 5;
	for (uint64_t i = 0; i < 3; i++) {
		CHECK(ibv_req_notify_cq(cq, 0) == 0 && pthread_create(&thread, NULL, reads_event, NULL) == 0);
		CHECK(ibv_post_send(qp, &wr, &bad) == 0 && pthread_join(thread, NULL) == 0);
		CHECK(completion().opcode == IBV_WC_FETCH_ADD && *(uint64_t *)(memory + 64) == 5 * i);
	}
	ibv_ack_cq_events(cq, 3);
}

/* A peer without rights: the error completion, the state, and the asynchronous event that must be acknowledged. */
static void error(struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 6, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .wr.rdma = { (uintptr_t)memory, 0x12345600 } }, *bad;
	struct ibv_async_event event;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_wc wc;

	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	wc = completion();
	CHECK(wc.wr_id == 6 && (wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_WR_FLUSH_ERR));
	CHECK(strlen(ibv_wc_status_str(wc.status)) > 5);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR && init.cap.max_send_wr == 4);
	CHECK(poll(&fd, 1, 5000) == 1);
	do {
		CHECK(ibv_get_async_event(context, &event) == 0 && event.element.qp == qp);
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_QP_ACCESS_ERR);
}

static void extended(void)
{
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *queue = ibv_create_cq_ex(context, &cq_init);
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC, .pd = pd,
		.cap = { .max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 32 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ };
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_qp_ex *ex;
	struct ibv_qp *qp;
	int found;

	CHECK(queue != NULL);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(queue);
	qp = ibv_create_qp_ex(context, &init);
	CHECK(qp != NULL);
	ex = ibv_qp_to_qp_ex(qp);
	CHECK(ex != NULL);
	connect_qp(qp);
	CHECK(ibv_start_poll(queue, &poll_attr) == ENOENT);

	ibv_wr_start(ex);
	ex->wr_id = 7;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory + 256);
	ibv_wr_set_inline_data(ex, "written inline", 15);
	CHECK(ibv_wr_complete(ex) == 0);
	while ((found = ibv_start_poll(queue, &poll_attr)) == ENOENT)
		;
	CHECK(found == 0 && queue->wr_id == 7 && queue->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_opcode(queue) == IBV_WC_RDMA_WRITE && ibv_wc_read_qp_num(queue) == qp->qp_num);
	CHECK(ibv_next_poll(queue) == ENOENT);
	ibv_end_poll(queue);
	CHECK(!strcmp(memory + 256, "written inline"));

	/* Three requests where two have room: none is posted. */
	ibv_wr_start(ex);
	for (int i = 0; i < 3; i++) {
		ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)memory);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory + 512, 8);
	}
	CHECK(ibv_wr_complete(ex) == ENOMEM);
	ibv_wr_start(ex);
	ibv_wr_abort(ex);
	CHECK(ibv_start_poll(queue, &poll_attr) == ENOENT);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init;
	struct ibv_context *again;
	struct ibv_qp *qp;

	CHECK(list && list[0] && list[1] && !list[2] && strcmp(ibv_get_device_name(list[0]), ibv_get_device_name(list[1])));
	context = ibv_open_device(list[0]);
	again = ibv_open_device(list[0]);
	CHECK(context && again && context->device == list[0]);
	ibv_free_device_list(list);
	CHECK(ibv_close_device(again) == 0);
	queries();

	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 16, memory, channel, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(pd && channel && cq && cq->cqe >= 16 && mr);
	regions();
	refusals();
	init = init_attr(cq);
	qp = ibv_create_qp(pd, &init);
	CHECK(qp && qp->qp_num && !ibv_qp_to_qp_ex(qp) && ibv_destroy_cq(cq) == EBUSY);
	connect_qp(qp);
	round_trip(qp);
	window(qp);
	cancelled();
	events(qp);
	error(qp);
	extended();
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	puts("all is well");
	return 0;
}
