/* Datagrams, compiled with the distribution's header: address handles, both ways to post, what a completion tells, and the way
 * back. Runs under `userdma run`; the queue pair sends to itself. */
#include "common.h"

enum { KEY = 0x11111111 };
static char memory[8192] __attribute__((aligned(4096)));
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *queue;
static struct ibv_mr *mr;
static struct ibv_qp *qp;

static void start(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY }, found;
	struct ibv_qp_init_attr init;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	CHECK(ibv_modify_qp(qp, &attr, mask) == EINVAL);
	CHECK(ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0 && qp->state == IBV_QPS_RTS);
	CHECK(ibv_query_qp(qp, &found, IBV_QP_QKEY, &init) == 0 && found.qkey == KEY && init.qp_type == IBV_QPT_UD);
}

static struct ibv_ah *way_to_self(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_ah *ah;

	CHECK(ibv_query_gid(context, 1, 0, &attr.grh.dgid) == 0);
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah && ah->pd == pd && ah->context == context);
	return ah;
}

static void post_recv(int offset)
{
	struct ibv_sge sge = { (uintptr_t)memory + offset, 200, mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = offset, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(qp, &recv, &bad) == 0);
}

/* Completions of one send and one receive; leaves the receive's fields in wc. */
static void both(struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr poll = {};

	for (int seen = 0; seen < 2; seen++) {
		while (ibv_start_poll(queue, &poll) == ENOENT)
			;
		CHECK(queue->status == IBV_WC_SUCCESS && ibv_wc_read_qp_num(queue) == qp->qp_num);
		if (ibv_wc_read_opcode(queue) == IBV_WC_RECV)
			*wc = (struct ibv_wc){ .wr_id = queue->wr_id, .byte_len = ibv_wc_read_byte_len(queue),
					       .src_qp = ibv_wc_read_src_qp(queue), .wc_flags = ibv_wc_read_wc_flags(queue),
					       .imm_data = ibv_wc_read_imm_data(queue), .sl = ibv_wc_read_sl(queue),
					       .slid = ibv_wc_read_slid(queue), .dlid_path_bits = ibv_wc_read_dlid_path_bits(queue) };
		ibv_end_poll(queue);
	}
}

/* The plain way; the handle ends right after the post. */
static void plain(struct ibv_wc *wc)
{
	struct ibv_ah *ah = way_to_self();
	struct ibv_sge sge = { (uintptr_t)"by ibv_post_send", 16, 0 };
	struct ibv_send_wr send = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
				    .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .imm_data = 0x01020304,
				    .wr.ud = { .ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = KEY } }, *bad, wrong = send;

	wrong.opcode = IBV_WR_RDMA_WRITE;
	CHECK(ibv_post_send(qp, &wrong, &bad) == EINVAL && bad == &wrong);
	wrong = send;
	wrong.wr.ud.ah = NULL;
	CHECK(ibv_post_send(qp, &wrong, &bad) == EINVAL);
	post_recv(0);
	CHECK(ibv_post_send(qp, &send, &bad) == 0 && ibv_destroy_ah(ah) == 0);
	both(wc);
	CHECK(wc->byte_len == 40 + 16 && wc->src_qp == qp->qp_num && wc->imm_data == 0x01020304);
	CHECK(wc->wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && !memcmp(memory + 40, "by ibv_post_send", 16));
}

/* The extended way, along the way back. */
static void extended(struct ibv_wc *wc)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	CHECK(ibv_init_ah_from_wc(context, 1, wc, (struct ibv_grh *)memory, &attr) == 0);
	CHECK(attr.is_global && attr.port_num == 1 && attr.grh.hop_limit == 64 && attr.grh.sgid_index == 0);
	CHECK(attr.grh.dgid.raw[10] == 0xff && attr.grh.dgid.raw[12] == 127);
	ah = ibv_create_ah_from_wc(pd, wc, (struct ibv_grh *)memory, 1);
	CHECK(ah != NULL);
	CHECK(ibv_init_ah_from_wc(context, 1, wc, (struct ibv_grh *)(memory + 4096), &attr) == -1 && errno == EPROTONOSUPPORT);
	post_recv(512);
	ibv_wr_start(ex);
	ex->wr_id = 2;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, ah, qp->qp_num, KEY);
	ibv_wr_set_inline_data(ex, "by ibv_wr_send", 14);
	CHECK(ibv_wr_complete(ex) == 0);
	both(wc);
	CHECK(wc->byte_len == 40 + 14 && wc->wr_id == 512 && !memcmp(memory + 552, "by ibv_wr_send", 14));
	/* Nobody is named. */
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	CHECK(ibv_wr_complete(ex) == EINVAL);
	CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_ah(ah) == 0);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_UD, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
	};
	struct ibv_wc wc;

	context = ibv_open_device(list[0]);
	CHECK(context != NULL);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	queue = ibv_create_cq_ex(context, &cq_init);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && queue && mr);
	init.pd = pd;
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(queue);
	errno = 0;
	CHECK(!ibv_create_qp_ex(context, &init) && errno == EOPNOTSUPP);
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	qp = ibv_create_qp_ex(context, &init);
	CHECK(qp != NULL);
	start();
	plain(&wc);
	extended(&wc);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(queue)) == 0);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	puts("all is well");
	return 0;
}
