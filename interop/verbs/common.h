/* What the C programs have in common: checks, and a queue pair that is connected with itself. */
#ifndef USERDMA_COMMON_H
#define USERDMA_COMMON_H
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define CHECK(ok) check((ok), #ok, __FILE__, __LINE__)
#define FAILS(call, number) (errno = 0, (call) && errno == (number))

static inline void check(int ok, const char *what, const char *file, int line)
{
	if (!ok) {
		printf("%s, line %d: not so: %s (errno %d)\n", file, line, what, errno);
		fflush(stdout);
		_exit(1);
	}
}

/* An open device with a region. */
struct world {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	/* The region. */
	volatile uint64_t words[512];
};

static inline void open_world(struct world *world, int index)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[index]);
	world->context = ibv_open_device(list[index]);
	CHECK(world->context != NULL);
	ibv_free_device_list(list);
	world->pd = ibv_alloc_pd(world->context);
	CHECK(world->pd != NULL);
	world->mr = ibv_reg_mr(world->pd, (void *)world->words, sizeof world->words,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(world->mr != NULL);
}

static inline void close_world(struct world *world)
{
	CHECK(ibv_dereg_mr(world->mr) == 0 && ibv_dealloc_pd(world->pd) == 0 && ibv_close_device(world->context) == 0);
}

/* Takes a queue pair in RESET to RTS, connected with itself. */
static inline void connect_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };

	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 1, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 4 } },
	};
	CHECK(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid) == 0);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static inline struct ibv_qp *make_qp(struct world *world, struct ibv_cq *cq, uint32_t max_send_wr)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = max_send_wr, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(world->pd, &init);

	CHECK(qp != NULL);
	connect_qp(qp);
	return qp;
}

/* Posts a WRITE of word `from` to word `to`. */
static inline int post_write(struct world *world, struct ibv_qp *qp, uint64_t wr_id, int from, int to)
{
	struct ibv_sge sge = { (uintptr_t)&world->words[from], 8, world->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { (uintptr_t)&world->words[to], world->mr->rkey } }, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

static inline double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Waits for a word that a WRITE brings, without a call that drives the device. */
static inline int arrives(struct world *world, int at, uint64_t value)
{
	double end = seconds(CLOCK_MONOTONIC) + 20;

	while (world->words[at] != value) {
		if (seconds(CLOCK_MONOTONIC) > end)
			return 0;
		usleep(100);
	}
	return 1;
}

static inline int drain(struct ibv_cq *cq, int wanted)
{
	struct ibv_wc wc;
	int found = 0;
	double end = seconds(CLOCK_MONOTONIC) + 20;

	while (found < wanted && seconds(CLOCK_MONOTONIC) < end) {
		int n = ibv_poll_cq(cq, 1, &wc);

		CHECK(n >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS));
		found += n;
	}
	return found;
}
#endif
