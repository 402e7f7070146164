/* vt: the verbs tester.  One side is the server, the other posts operations to it; both check
 * every byte and exit non-zero when one is wrong.  Connects by hand (two swaps of `struct peer`
 * over TCP, modify QP) or through rdma_cm (-C).  README.md says what is checked, and how.
 *
 *   server: vt -d DEV [options]
 *   client: vt -d DEV -s SERVER-IP -o OP[,OP...] [options]
 *
 * OP is NAME[:SIZE[:COUNT]][@OFFSET][=STATUS[/STATUS...]].  SIZE may be `all`: 0, 1, 3, MTU-1, MTU,
 * MTU+1, 5 MTU and 1 MiB in turn.  OFFSET is where in the server's region; STATUS is the work
 * completion that the operation must end with (default ok): ok loc_len loc_qp loc_prot flush
 * bind bad_resp loc_access inv_req access op retry rnr, or post when the post itself is refused.
 * The names are in `ops` below; sleep:MS waits.
 *
 * both    -d DEV -g GID-INDEX (1)  -t rc|uc|ud  -C OWN-IP (rdma_cm)  -p TCP-PORT (18515)
 *         -m PATH-MTU (1024)  -P first PSN (0x1000)  -T ack timeout (14)  -r retry count (7)
 *         -R RNR retry (7)  -N min RNR timer (12)  -a outstanding READs and atomics (4)
 *         -b region, MiB (8)  -w N type 2 memory windows over the server's region
 *         -x check nothing, keep no ledger  -B busy-poll, quiet  -X WHAT plant a wrong byte
 * server  -q receives kept posted (16)  -z size of each (64 KiB)  -D MS post them later
 *         -1 post them once  -E receives may end in error  -A rights of the region (wra)
 * client  -L one operation at a time, mean latency  -S signal every operation
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "vt-check.h"

#define GUARD 64		/* bytes around what may be written, which must stay as they are */
#define POISON 0xa5
#define GRH 40			/* in front of what a UD receive holds */
#define DEPTH 120		/* operations posted at once */
#define MAXMW 64
#define RECV0 1000		/* wr_id of the first receive */
/* rxe hands the kernel's IB_WC_WITH_INVALIDATE (bit 2) to user space as it is, where the verbs say bit 3
 * (rxe_resp.c do_complete(), Linux 6.12). */
#define WITH_INV (IBV_WC_WITH_INV | 1 << 2)

struct peer { uint32_t qpn, psn, rkey, mwkey; uint64_t addr; union ibv_gid gid; };

static struct {
	const char *dev, *srv, *ops, *cm, *rights, *plant;
	int gid, type, mtu, tcp, nrecv, delay, norepost, nmw, timeout, retry, rnr, minrnr, depth;
	int busy, seq, all, nocheck, experr;
	uint32_t psn;
	uint64_t bufsz, region;
} o = { .type = IBV_QPT_RC, .mtu = 1024, .tcp = 18515, .nrecv = 16, .timeout = 14, .retry = 7, .rnr = 7,
	.minrnr = 12, .depth = 4, .bufsz = 65536, .gid = 1, .psn = 0x1000, .region = 8 << 20, .rights = "wra" };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_ah *ah;
static struct ibv_mr *mr, *rmr;		/* the region that the peer may touch; where receives and reads land */
static unsigned char *buf, *land, *want;
static uint64_t landsz, stride;
static uint32_t mwkey[MAXMW];
static int mwnext;
static struct peer me, you;
static struct rdma_event_channel *ch;
static struct rdma_cm_id *id, *lid;
static double t0;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}
static void die(const char *w)
{
	printf("vt: %s: %s\n", w, strerror(errno));
	fflush(stdout);
	exit(2);
}
__attribute__((format(printf, 1, 2))) static void say(const char *f, ...)
{
	va_list a;

	va_start(a, f);
	printf("%s %8.4f ", o.srv ? "C" : "S", now() - t0);
	vprintf(f, a);
	va_end(a);
	puts("");
	fflush(stdout);
}
static int planted(const char *what)
{
	return o.plant && !strcmp(o.plant, what);
}

/* ---- set-up ---- */

static int tcp_open(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(o.tcp) };
	int one = 1, s = socket(AF_INET, SOCK_STREAM, 0), c;

	if (!o.srv) {
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(s, (void *)&a, sizeof a) || listen(s, 1))
			die("bind");
		c = accept(s, 0, 0);
		if (c < 0)
			die("accept");
		close(s);
		return c;
	}
	inet_pton(AF_INET, o.srv, &a.sin_addr);
	for (int i = 0; i < 200; i++) {
		if (!connect(s, (void *)&a, sizeof a))
			return s;
		close(s);
		s = socket(AF_INET, SOCK_STREAM, 0);
		usleep(50000);
	}
	die("connect");
	return -1;
}
static void swap(int s)
{
	if (write(s, &me, sizeof me) != sizeof me || recv(s, &you, sizeof you, MSG_WAITALL) != sizeof you)
		die("swap");
}
static struct ibv_mr *reg(void *p, uint64_t len, int acc)
{
	struct ibv_mr *m = ibv_reg_mr(pd, p, len, acc);

	if (!m)		/* a device without atomics */
		m = ibv_reg_mr(pd, p, len, acc & ~IBV_ACCESS_REMOTE_ATOMIC);
	if (!m)
		die("reg_mr");
	return m;
}
static unsigned char *guarded(uint64_t len)
{
	unsigned char *p = aligned_alloc(4096, (len + 2 * 4096 + 4095) & ~4095ull);

	if (!p)
		die("memory");
	memset(p, POISON, 4096);
	memset(p + 4096 + len, POISON, 4096);
	return p + 4096;
}
static void make_qp(void)
{
	struct ibv_qp_init_attr ia = { .qp_type = o.type, .sq_sig_all = 0,
		.cap = { .max_send_wr = 128, .max_recv_wr = 256, .max_send_sge = 2, .max_recv_sge = 2 } };
	int acc = IBV_ACCESS_LOCAL_WRITE | (o.nmw ? IBV_ACCESS_MW_BIND : 0);

	for (const char *r = o.rights; *r; r++)
		acc |= *r == 'w' ? IBV_ACCESS_REMOTE_WRITE : *r == 'r' ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_ATOMIC;
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 512, 0, 0, 0);
	if (!pd || !cq)
		die("pd, cq");
	ia.send_cq = ia.recv_cq = cq;
	if (id) {
		if (rdma_create_qp(id, pd, &ia))
			die("rdma_create_qp");
		qp = id->qp;
	} else {
		qp = ibv_create_qp(pd, &ia);
		if (!qp)
			die("create_qp");
	}
	stride = (o.bufsz + 2 * GUARD + 63) & ~63ull;
	landsz = o.srv ? o.region + 2 * GUARD : stride * o.nrecv;
	buf = guarded(o.region);
	land = guarded(landsz);
	want = malloc((landsz > o.region ? landsz : o.region));
	if (!want)
		die("memory");
	for (uint64_t i = 0; i < o.region; i++)
		buf[i] = pattern(i, o.srv ? CLIENT : SERVER);
	model_init(o.region);
	mr = reg(buf, o.region, acc);
	rmr = reg(land, landsz, IBV_ACCESS_LOCAL_WRITE);
	me = (struct peer){ .qpn = qp->qp_num, .psn = o.psn, .rkey = mr->rkey, .addr = (uintptr_t)buf };
	if (ibv_query_gid(ctx, 1, o.gid, &me.gid) && !o.cm)
		die("gid");
}
static void modify(struct ibv_qp_attr *a, int mask, const char *what)
{
	int e = ibv_modify_qp(qp, a, mask);

	if (e) {
		errno = e;
		die(what);
	}
}
static void rtr_rts(void)
{
	int ud = o.type == IBV_QPT_UD, rc = o.type == IBV_QPT_RC, m = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = 1 };
	struct ibv_ah_attr av = { .is_global = 1, .port_num = 1,
		.grh = { .dgid = you.gid, .sgid_index = o.gid, .hop_limit = 64, .traffic_class = 0 } };

	if (ud) {
		a.qkey = 0x11111111;
		m |= IBV_QP_QKEY;
	} else {
		a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | (rc ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0);
		m |= IBV_QP_ACCESS_FLAGS;
	}
	modify(&a, m, "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR };
	m = IBV_QP_STATE;
	if (!ud) {
		a.path_mtu = o.mtu >= 4096 ? 5 : o.mtu >= 2048 ? 4 : o.mtu >= 1024 ? 3 : o.mtu >= 512 ? 2 : 1;
		a.ah_attr = av;
		a.dest_qp_num = you.qpn;
		a.rq_psn = you.psn;
		m |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (rc) {
		a.max_dest_rd_atomic = o.depth;
		a.min_rnr_timer = o.minrnr;
		m |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	modify(&a, m, "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = me.psn };
	m = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (rc) {
		a.timeout = o.timeout;
		a.retry_cnt = o.retry;
		a.rnr_retry = o.rnr;
		a.max_rd_atomic = o.depth;
		m |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	modify(&a, m, "RTS");
	if (ud && !(ah = ibv_create_ah(pd, &av)))
		die("ah");
}

/* ---- the server's receives ---- */

/* Fills GOT as a receive of this ordinal looks before anything arrived: no byte is right yet. */
static void blank(unsigned char *got, unsigned ordinal)
{
	memset(got, POISON, stride);
	for (uint64_t i = 0; i < o.bufsz; i++)
		got[GUARD + i] = ~pattern(source_of(ordinal) + i, CLIENT);
}
static void post_recv(unsigned ordinal)
{
	unsigned char *slot = land + ordinal % o.nrecv * stride;
	struct ibv_sge s = { (uintptr_t)slot + GUARD, o.bufsz, rmr->lkey };
	struct ibv_recv_wr w = { .wr_id = RECV0 + ordinal, .sg_list = &s, .num_sge = 1 }, *bad;
	int e;

	if (!o.nocheck)
		blank(slot, ordinal);
	e = ibv_post_recv(qp, &w, &bad);
	if (e) {
		errno = e;
		die("post_recv");
	}
}
static void check_recv(struct ibv_wc *w)
{
	unsigned ordinal = w->wr_id - RECV0, grh = o.type == IBV_QPT_UD ? GRH : 0, shift = source_of(ordinal);
	unsigned char *slot = land + ordinal % o.nrecv * stride;
	uint32_t len = w->byte_len - grh, carried;
	struct rx r = { .len = len };
	char what[64];

	if (ordinal != rx_seen + rx_errors)
		fail("receive %u completed in place %u", ordinal, rx_seen + rx_errors);
	if (w->status) {
		rx_errors++;
		return;
	}
	r.kind = w->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? RX_WRITE_IMM : w->wc_flags & WITH_INV ? RX_SEND_INV :
		 w->wc_flags & IBV_WC_WITH_IMM ? RX_SEND_IMM : RX_SEND;
	r.tag = r.kind == RX_SEND_INV ? w->invalidated_rkey : ntohl(w->imm_data);
	if (rx_seen < RXLOG)
		rxlog[rx_seen] = r;
	rx_seen++;
	if (o.nocheck)
		return;
	if ((r.kind == RX_SEND_IMM || r.kind == RX_WRITE_IMM) && r.tag != IMM0 + ordinal)
		fail("receive %u: immediate 0x%x, should be 0x%x", ordinal, r.tag, IMM0 + ordinal);
	carried = r.kind == RX_WRITE_IMM ? 0 : len;
	if (carried > o.bufsz - grh) {
		fail("receive %u: %u bytes in a buffer of %" PRIu64, ordinal, carried, o.bufsz);
		return;
	}
	if (planted("recv") && carried)
		slot[GUARD + grh + carried - 1] ^= 1;
	if (planted("guard"))
		slot[GUARD - 1] ^= 1;
	blank(want, ordinal);
	memcpy(want + GUARD, slot + GUARD, grh);
	if (r.kind == RX_WRITE_IMM)	/* what a receive without payload holds is not for us to say, but it is never touched */
		carried = 0;
	for (uint32_t i = 0; i < carried; i++)
		want[GUARD + grh + i] = pattern(shift + i, CLIENT);
	snprintf(what, sizeof what, "receive %u, %u bytes", ordinal, carried);
	same(what, -(uint64_t)GUARD - grh, slot, want, stride);
}

/* ---- completions ---- */

static void show(struct ibv_wc *w)
{
	int inv = w->opcode == IBV_WC_RECV && w->wc_flags & WITH_INV;

	say("wc id %llu %s(%d) op %d len %u%s 0x%x qp 0x%x src 0x%x vend 0x%x", (unsigned long long)w->wr_id,
	    ibv_wc_status_str(w->status), w->status, w->status ? -1 : (int)w->opcode, w->status ? 0 : w->byte_len,
	    inv ? " inv" : w->wc_flags & IBV_WC_WITH_IMM ? " imm" : " -", inv ? w->invalidated_rkey : ntohl(w->imm_data),
	    w->qp_num, w->src_qp, w->vendor_err);
}
static int next_wc(struct ibv_wc *w, double secs)
{
	for (double end = now() + secs; now() < end;) {
		int k = ibv_poll_cq(cq, 1, w);

		if (k < 0)
			die("poll_cq");
		if (k)
			return 1;
		if (!o.busy)
			usleep(200);
	}
	return 0;
}
static void bind_windows(void)
{
	for (int k = 0; k < o.nmw; k++) {
		struct ibv_send_wr w = { .wr_id = 77, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		struct ibv_wc c;
		int e;

		if (!mw)
			die("alloc_mw");
		w.bind_mw.mw = mw;
		w.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		w.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = (uintptr_t)buf, .length = o.region,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
		e = ibv_post_send(qp, &w, &bad);
		if (e) {
			errno = e;
			die("bind_mw");
		}
		if (!next_wc(&c, 5) || c.status || c.wr_id != 77) {
			show(&c);
			die("bind_mw completion");
		}
		mwkey[k] = w.bind_mw.rkey;
		say("mw %d rkey 0x%x", k, mwkey[k]);
	}
	me.mwkey = mwkey[0];
}

#include "vt-ops.h"

/* ---- rdma_cm ---- */

static struct rdma_cm_event *cm_wait(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(ch, &e))
		die("cm event");
	say("cm event %s status %d priv %d", rdma_event_str(e->event), e->status, e->param.conn.private_data_len);
	if (e->event != wanted) {
		say("wanted %s", rdma_event_str(wanted));
		exit(3);
	}
	return e;
}
static void cm_listen(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(7471) };

	inet_pton(AF_INET, o.cm, &a.sin_addr);
	ch = rdma_create_event_channel();
	if (rdma_create_id(ch, &lid, 0, RDMA_PS_TCP) || rdma_bind_addr(lid, (void *)&a) || rdma_listen(lid, 1))
		die("listen");
}
static void cm_connect(void)
{
	struct sockaddr_in d = { .sin_family = AF_INET, .sin_port = htons(7471) }, l = { .sin_family = AF_INET };
	struct rdma_conn_param p = { .responder_resources = o.depth, .initiator_depth = o.depth, .retry_count = o.retry,
		.rnr_retry_count = o.rnr, .private_data = o.srv ? "vt-client" : "vt-server", .private_data_len = 10 };
	struct rdma_cm_event *e;

	if (!o.srv) {
		e = cm_wait(RDMA_CM_EVENT_CONNECT_REQUEST);
		id = e->id;
		say("request qpn 0x%x rr %d id %d retry %d rnr %d", e->param.conn.qp_num, e->param.conn.responder_resources,
		    e->param.conn.initiator_depth, e->param.conn.retry_count, e->param.conn.rnr_retry_count);
		rdma_ack_cm_event(e);
		ctx = id->verbs;
		make_qp();
		for (int i = 0; !o.delay && i < o.nrecv; i++)
			post_recv(i);
		if (rdma_accept(id, &p))
			die("accept");
		rdma_ack_cm_event(cm_wait(RDMA_CM_EVENT_ESTABLISHED));
		return;
	}
	inet_pton(AF_INET, o.srv, &d.sin_addr);
	inet_pton(AF_INET, o.cm, &l.sin_addr);
	ch = rdma_create_event_channel();
	if (rdma_create_id(ch, &id, 0, RDMA_PS_TCP) || rdma_resolve_addr(id, (void *)&l, (void *)&d, 2000))
		die("resolve");
	rdma_ack_cm_event(cm_wait(RDMA_CM_EVENT_ADDR_RESOLVED));
	if (rdma_resolve_route(id, 2000))
		die("route");
	rdma_ack_cm_event(cm_wait(RDMA_CM_EVENT_ROUTE_RESOLVED));
	ctx = id->verbs;
	make_qp();
	if (rdma_connect(id, &p))
		die("connect");
	e = cm_wait(RDMA_CM_EVENT_ESTABLISHED);
	say("peer qpn 0x%x rr %d id %d", e->param.conn.qp_num, e->param.conn.responder_resources, e->param.conn.initiator_depth);
	rdma_ack_cm_event(e);
}

/* ---- main ---- */

static void open_device(void)
{
	int k;
	struct ibv_device **l = ibv_get_device_list(&k);

	for (int i = 0; l && i < k; i++)
		if (o.dev && !strcmp(ibv_get_device_name(l[i]), o.dev))
			ctx = ibv_open_device(l[i]);
	if (!ctx)
		die("device");
}
static void introduce(void)
{
	char g[2][64];

	inet_ntop(AF_INET6, &me.gid, g[0], 64);
	inet_ntop(AF_INET6, &you.gid, g[1], 64);
	say("local qpn 0x%06x psn 0x%06x rkey 0x%08x addr 0x%llx gid %s", me.qpn, me.psn, me.rkey,
	    (unsigned long long)me.addr, g[0]);
	say("remote qpn 0x%06x psn 0x%06x rkey 0x%08x addr 0x%llx gid %s", you.qpn, you.psn, you.rkey,
	    (unsigned long long)you.addr, g[1]);
}
static int options(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "d:s:o:C:g:t:m:p:q:D:1w:z:T:r:R:N:P:a:b:A:X:xEBLS")) != -1)
		switch (c) {
		case 'd': o.dev = optarg; break;
		case 's': o.srv = optarg; break;
		case 'o': o.ops = optarg; break;
		case 'C': o.cm = optarg; break;
		case 'g': o.gid = atoi(optarg); break;
		case 't': o.type = !strcmp(optarg, "uc") ? IBV_QPT_UC : !strcmp(optarg, "ud") ? IBV_QPT_UD : IBV_QPT_RC; break;
		case 'm': o.mtu = atoi(optarg); break;
		case 'p': o.tcp = atoi(optarg); break;
		case 'q': o.nrecv = atoi(optarg); break;
		case 'D': o.delay = atoi(optarg); break;
		case '1': o.norepost = 1; break;
		case 'w': o.nmw = atoi(optarg); break;
		case 'z': o.bufsz = strtoull(optarg, 0, 0); break;
		case 'T': o.timeout = atoi(optarg); break;
		case 'r': o.retry = atoi(optarg); break;
		case 'R': o.rnr = atoi(optarg); break;
		case 'N': o.minrnr = atoi(optarg); break;
		case 'P': o.psn = strtoul(optarg, 0, 0); break;
		case 'a': o.depth = atoi(optarg); break;
		case 'b': o.region = strtoull(optarg, 0, 0) << 20; break;
		case 'A': o.rights = optarg; break;
		case 'X': o.plant = optarg; break;
		case 'x': o.nocheck = 1; break;
		case 'E': o.experr = 1; break;
		case 'B': o.busy = 1; break;
		case 'L': o.seq = 1; break;
		case 'S': o.all = 1; break;
		default: return 2;
		}
	return o.nmw > MAXMW || o.nrecv < 1 || o.nrecv > 256 || !o.region || optind != argc ? 2 : 0;
}
int main(int argc, char **argv)
{
	int s, rc;

	if (options(argc, argv)) {
		fputs("vt: wrong options; its first lines explain them\n", stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	t0 = now();
	if (o.cm && !o.srv)		/* listen before the peer is let through */
		cm_listen();
	s = tcp_open();
	if (o.cm)
		cm_connect();
	else {
		open_device();
		make_qp();
	}
	if (o.cm && !o.srv)
		bind_windows();
	swap(s);
	introduce();
	if (!o.cm) {
		rtr_rts();
		for (int i = 0; !o.srv && !o.delay && i < o.nrecv; i++)
			post_recv(i);
		if (!o.srv)
			bind_windows();
		swap(s);		/* second round: both QPs are ready, the window's key is known */
	}
	tell_windows(s);
	rc = o.srv ? run_client(s) : run_server(s);
	if (o.cm && o.srv) {
		rdma_disconnect(id);
		rdma_ack_cm_event(cm_wait(RDMA_CM_EVENT_DISCONNECTED));
	} else if (o.cm) {
		struct rdma_cm_event *e;

		if (!rdma_get_cm_event(ch, &e)) {
			say("cm event %s", rdma_event_str(e->event));
			rdma_ack_cm_event(e);
		}
		rdma_disconnect(id);
	}
	return rc;
}
