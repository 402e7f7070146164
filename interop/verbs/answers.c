/* Calls of features that no device of ours has, with arguments that are right. Each answers as the distribution's library does
 * for a device without the feature: an error number, or a null pointer and errno. */
#define _GNU_SOURCE
#include "common.h"

static struct world world;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

/* ---- calls that return a pointer ---- */

static void *import_device(void)
{
	return ibv_import_device(world.context->cmd_fd);
}

static void *import_pd(void)
{
	return ibv_import_pd(world.context, world.pd->handle);
}

static void *import_mr(void)
{
	return ibv_import_mr(world.pd, world.mr->handle);
}

static void *import_dm(void)
{
	return ibv_import_dm(world.context, 0);
}

static void *reg_dmabuf_mr(void)
{
	return ibv_reg_dmabuf_mr(world.pd, 0, 4096, 0, world.context->cmd_fd, IBV_ACCESS_LOCAL_WRITE);
}

static void *open_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1 };

	return ibv_open_xrcd(world.context, &attr);
}

static void *open_qp(void)
{
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE,
					 .qp_num = qp->qp_num, .qp_type = IBV_QPT_XRC_RECV };

	return ibv_open_qp(world.context, &attr);
}

static void *alloc_td(void)
{
	struct ibv_td_init_attr attr = { 0 };

	return ibv_alloc_td(world.context, &attr);
}

static void *alloc_parent_domain(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = world.pd };

	return ibv_alloc_parent_domain(world.context, &attr);
}

static void *alloc_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096 };

	return ibv_alloc_dm(world.context, &attr);
}

static void *alloc_null_mr(void)
{
	return ibv_alloc_null_mr(world.pd);
}

static void *create_wq(void)
{
	struct ibv_wq_init_attr attr = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = world.pd, .cq = cq };

	return ibv_create_wq(world.context, &attr);
}

static void *create_rwq_ind_table(void)
{
	struct ibv_wq *none[1] = { 0 };
	struct ibv_rwq_ind_table_init_attr attr = { .log_ind_tbl_size = 0, .ind_tbl = none };

	return ibv_create_rwq_ind_table(world.context, &attr);
}

static void *create_flow(void)
{
	struct ibv_flow_attr attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof attr, .port = 1 };

	return ibv_create_flow(qp, &attr);
}

static void *create_counters(void)
{
	struct ibv_counters_init_attr attr = { 0 };

	return ibv_create_counters(world.context, &attr);
}

static void *create_flow_action_esp(void)
{
	struct ibv_flow_action_esp_attr attr = { 0 };

	return ibv_create_flow_action_esp(world.context, &attr);
}

static void *create_qp_of_an_unknown_service(void)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 } };

	return ibv_create_qp(world.pd, &init);
}

static void *create_cq_with_time_stamps(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };

	return ibv_create_cq_ex(world.context, &attr);
}

/* ---- calls that return an error number ---- */

static int query_ece(void)
{
	struct ibv_ece ece;

	return ibv_query_ece(qp, &ece);
}

static int set_ece(void)
{
	struct ibv_ece ece = { .vendor_id = 0x1234, .options = 1 };

	return ibv_set_ece(qp, &ece);
}

static int set_no_ece(void)
{
	struct ibv_ece ece = { 0 };

	return ibv_set_ece(qp, &ece);
}

static int query_rt_values(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	return ibv_query_rt_values_ex(world.context, &values);
}

static int modify_cq(void)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 16, 100 } };

	return ibv_modify_cq(cq, &attr);
}

static int modify_qp_rate_limit(void)
{
	struct ibv_qp_rate_limit_attr attr = { .rate_limit = 1000 };

	return ibv_modify_qp_rate_limit(qp, &attr);
}

static int advise_mr(void)
{
	struct ibv_sge sge = { (uintptr_t)world.words, 8, world.mr->lkey };

	return ibv_advise_mr(world.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1);
}

static const struct {
	const char *name;
	void *(*call)(void);
} pointers[] = {
#define POINTER(name) { #name, name }
	POINTER(import_device), POINTER(import_pd), POINTER(import_mr), POINTER(import_dm), POINTER(reg_dmabuf_mr),
	POINTER(open_xrcd), POINTER(open_qp), POINTER(alloc_td), POINTER(alloc_parent_domain), POINTER(alloc_dm),
	POINTER(alloc_null_mr), POINTER(create_wq), POINTER(create_rwq_ind_table), POINTER(create_flow),
	POINTER(create_counters), POINTER(create_flow_action_esp), POINTER(create_qp_of_an_unknown_service),
	POINTER(create_cq_with_time_stamps),
};

static const struct {
	const char *name;
	int (*call)(void);
} numbers[] = {
#define NUMBER(name) { #name, name }
	NUMBER(query_ece), NUMBER(set_ece), NUMBER(set_no_ece), NUMBER(query_rt_values), NUMBER(modify_cq),
	NUMBER(modify_qp_rate_limit), NUMBER(advise_mr),
};

/* Those that answer otherwise. */
static void others(void)
{
	int pipes[2];

	/* What is no device is told from what cannot be imported. */
	CHECK(pipe(pipes) == 0);
	CHECK(FAILS(!ibv_import_device(-1), EINVAL) && FAILS(!ibv_import_device(pipes[0]), EINVAL));
	CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
	CHECK(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 0);
	/* They return nothing, and there is nothing that they could end. */
	ibv_unimport_pd(world.pd);
	ibv_unimport_mr(world.mr);
	CHECK(post_write(&world, qp, 1, 0, 1) == 0 && drain(cq, 1) == 1);
}

int main(void)
{
	int wrong = 0;

	open_world(&world, 0);
	cq = ibv_create_cq(world.context, 8, NULL, NULL, 0);
	CHECK(cq != NULL);
	qp = make_qp(&world, cq, 4);
	for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
		void *found = (errno = 0, pointers[i].call());

		if (found || errno != EOPNOTSUPP) {
			printf("%s: %p, errno %d\n", pointers[i].name, found, errno);
			wrong++;
		}
	}
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		int found = numbers[i].call();

		if (found != EOPNOTSUPP) {
			printf("%s: %d\n", numbers[i].name, found);
			wrong++;
		}
	}
	others();
	CHECK(wrong == 0 && ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	close_world(&world);
	puts("all is well");
	return 0;
}
