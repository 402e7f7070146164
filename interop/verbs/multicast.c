/* Groups, compiled with the distribution's header: who may be attached, and what comes. Runs under `userdma run` with a device of
 * IPv4; the queue pairs get what one of them sends. `multicast GROUP` prints `all is well`. */
#include "common.h"
#include <arpa/inet.h>

enum { KEY = 0x11111111, QPN = 0xffffff, LENGTH = 200 };
static char memory[3][LENGTH];
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *queue;
static struct ibv_mr *mr;
static union ibv_gid group;

static struct ibv_qp *make(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .send_cq = queue, .recv_cq = queue, .qp_type = type,
					 .cap = { 4, 4, 1, 1, 64 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp != NULL);
	return qp;
}

static struct ibv_qp *ready(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
	struct ibv_qp *qp = make(IBV_QPT_UD);

	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	return qp;
}

/* As the kernel answers. */
static void who_may_be_attached(void)
{
	struct ibv_qp *connected = make(IBV_QPT_RC), *qp = make(IBV_QPT_UD);
	union ibv_gid host = group, none = { .raw = { 0 } }, v6 = { .raw = { 0xff, 0x0e, [15] = 7 } };

	host.raw[12] = 10;
	CHECK(ibv_attach_mcast(connected, &group, 0) == EINVAL && ibv_destroy_qp(connected) == 0);
	CHECK(ibv_attach_mcast(qp, &host, 0) == EINVAL && ibv_attach_mcast(qp, &none, 0) == EINVAL);
	CHECK(ibv_detach_mcast(qp, &group, 0) == EINVAL);
	/* Whatever the state; a LID means nothing; twice is once. */
	CHECK(ibv_attach_mcast(qp, &group, 0) == 0 && ibv_attach_mcast(qp, &group, 0xc001) == 0);
	CHECK(ibv_attach_mcast(qp, &v6, 0) == 0);
	CHECK(ibv_destroy_qp(qp) == EBUSY);
	CHECK(ibv_detach_mcast(qp, &group, 0) == 0 && ibv_detach_mcast(qp, &group, 0) == EINVAL);
	CHECK(ibv_destroy_qp(qp) == EBUSY);
	CHECK(ibv_detach_mcast(qp, &v6, 0) == 0 && ibv_destroy_qp(qp) == 0);
}

/* The device keeps what it says of its limits. */
static void limits_are_true(void)
{
	struct ibv_device_attr attr;
	struct ibv_qp *qp = make(IBV_QPT_UD);
	union ibv_gid each = group;
	int count;

	CHECK(ibv_query_device(context, &attr) == 0 && attr.max_mcast_grp > 0 && attr.max_mcast_grp < 256);
	CHECK(attr.max_mcast_qp_attach > 2);
	CHECK(attr.max_total_mcast_qp_attach == attr.max_mcast_grp * attr.max_mcast_qp_attach);
	for (count = 0; count < attr.max_mcast_grp; count++) {
		each.raw[15] = count;
		CHECK(ibv_attach_mcast(qp, &each, 0) == 0);
	}
	each.raw[15] = count;
	CHECK(ibv_attach_mcast(qp, &each, 0) == ENOMEM);
	while (count-- > 0) {
		each.raw[15] = count;
		CHECK(ibv_detach_mcast(qp, &each, 0) == 0);
	}
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void send_to_group(struct ibv_qp *qp)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = group, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_sge sge = { (uintptr_t)"to the group", 12, 0 };
	struct ibv_send_wr send = { .wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_INLINE, .wr.ud = { ah, QPN, KEY } }, *bad;

	CHECK(ah && ibv_post_send(qp, &send, &bad) == 0 && ibv_destroy_ah(ah) == 0);
}

static void each_gets_a_copy_and_the_sender_too(void)
{
	struct ibv_qp *qps[3] = { ready(), ready(), ready() };
	struct ibv_ah_attr back;
	struct ibv_wc wc;
	int seen = 0;

	for (int i = 0; i < 3; i++) {
		struct ibv_sge sge = { (uintptr_t)memory[i], LENGTH, mr->lkey };
		struct ibv_recv_wr recv = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		CHECK(ibv_post_recv(qps[i], &recv, &bad) == 0);
		CHECK(i == 1 || ibv_attach_mcast(qps[i], &group, 0) == 0);
	}
	send_to_group(qps[0]);
	while (seen != 5) {
		if (ibv_poll_cq(queue, 1, &wc) == 0)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && !(seen & 1 << wc.wr_id));
		CHECK(wc.qp_num == qps[wc.wr_id]->qp_num && wc.src_qp == qps[0]->qp_num && wc.wc_flags == IBV_WC_GRH);
		CHECK(wc.byte_len == 52 && !memcmp(memory[wc.wr_id] + 40, "to the group", 12));
		CHECK(!memcmp(memory[wc.wr_id] + 36, group.raw + 12, 4));
		seen |= 1 << wc.wr_id;
	}
	/* A group is no address of ours, so the way back is not told. */
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)memory[0], &back) != 0);
	CHECK(ibv_detach_mcast(qps[0], &group, 0) == 0);
	send_to_group(qps[1]);
	for (int i = 0; i < 3; i++) {
		CHECK(i != 2 || ibv_detach_mcast(qps[i], &group, 0) == 0);
		CHECK(ibv_destroy_qp(qps[i]) == 0);
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(argc == 2);
	group.raw[10] = group.raw[11] = 0xff;
	CHECK(inet_pton(AF_INET, argv[1], group.raw + 12) == 1);
	context = ibv_open_device(list[0]);
	CHECK(context != NULL);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	queue = ibv_create_cq(context, 16, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && queue && mr);
	who_may_be_attached();
	limits_are_true();
	each_gets_a_copy_and_the_sender_too();
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(queue) == 0 && ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	puts("all is well");
	return 0;
}
