/* vt's two roles: the client, which posts operations and checks what comes back, and the
 * server, which checks what arrived.  Included by vt.c, whose objects it uses. */

enum { RECV = 1, WRITE = 2, READ = 4, ATOMIC = 8, IMM = 16, SE = 32, INV = 64, BADKEY = 128, OOB = 256, ACROSS = 512,
       UNALIGNED = 1024, WINDOW = 2048, STALE = 4096, NOSWAP = 8192 };
struct op { const char *name; enum ibv_wr_opcode code; enum ibv_wc_opcode wc; unsigned f; };
static const struct op ops[] = {
	{ "send", IBV_WR_SEND, IBV_WC_SEND, RECV },
	{ "send_se", IBV_WR_SEND, IBV_WC_SEND, RECV | SE },
	{ "send_imm", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, RECV | IMM },
	{ "send_inv", IBV_WR_SEND_WITH_INV, IBV_WC_SEND, RECV | INV },
	{ "write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, WRITE },
	{ "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, WRITE | RECV | IMM },
	{ "read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, READ },
	{ "cas", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, ATOMIC },
	{ "cas_no", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, ATOMIC | NOSWAP },
	{ "faa", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, ATOMIC },
	/* through the first window that was not invalidated yet / through the last that was */
	{ "mwwrite", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, WRITE | WINDOW },
	{ "mwread", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, READ | WINDOW },
	{ "stale_write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, WRITE | STALE },
	{ "stale_read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, READ | STALE },
	/* a key that nobody has; behind the region's end; from inside the region over its end */
	{ "badkey_write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, WRITE | BADKEY },
	{ "badkey_write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, WRITE | RECV | IMM | BADKEY },
	{ "badkey_read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, READ | BADKEY },
	{ "badkey_cas", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, ATOMIC | BADKEY },
	{ "badkey_faa", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, ATOMIC | BADKEY },
	{ "oob_write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, WRITE | OOB },
	{ "oob_read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, READ | OOB },
	{ "oob_cas", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, ATOMIC | OOB },
	{ "across_write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, WRITE | ACROSS },
	{ "across_read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, READ | ACROSS },
	{ "unal_cas", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, ATOMIC | UNALIGNED },
};

#define POST_REFUSED 31
static const struct { const char *name; int status; } statuses[] = {
	{ "ok", IBV_WC_SUCCESS }, { "loc_len", IBV_WC_LOC_LEN_ERR }, { "loc_qp", IBV_WC_LOC_QP_OP_ERR },
	{ "loc_prot", IBV_WC_LOC_PROT_ERR }, { "flush", IBV_WC_WR_FLUSH_ERR }, { "bind", IBV_WC_MW_BIND_ERR },
	{ "bad_resp", IBV_WC_BAD_RESP_ERR }, { "loc_access", IBV_WC_LOC_ACCESS_ERR },
	{ "inv_req", IBV_WC_REM_INV_REQ_ERR }, { "access", IBV_WC_REM_ACCESS_ERR }, { "op", IBV_WC_REM_OP_ERR },
	{ "retry", IBV_WC_RETRY_EXC_ERR }, { "rnr", IBV_WC_RNR_RETRY_EXC_ERR }, { "post", POST_REFUSED },
};
#define OK_ONLY (1u << IBV_WC_SUCCESS)
/* After these nobody knows whether the bytes arrived. */
#define UNSURE (1u << IBV_WC_RETRY_EXC_ERR | 1u << IBV_WC_WR_FLUSH_ERR)

struct pending { uint64_t off, len, old; unsigned char *at; };
static struct pending pending[DEPTH];
static uint64_t wcursor = ATOMICS, rcursor = ATOMICS;
static unsigned nwrite, nmsg, nswap;
static FILE *ledger;
static char *ledger_text;
static size_t ledger_size;

/* ---- the text on the TCP connection, after the two swaps ---- */

/* The server with several windows says their keys: `mw KEY...`. */
static void tell_windows(int s)
{
	char line[16 * MAXMW] = "mw", *p = line + 2;
	unsigned n = 0;

	mwkey[0] = o.srv ? you.mwkey : me.mwkey;
	if (o.nmw < 2)
		return;
	if (!o.srv) {
		for (int k = 0; k < o.nmw; k++)
			p += sprintf(p, " 0x%x", mwkey[k]);
		*p++ = '\n';
		if (write(s, line, p - line) != p - line)
			die("mw");
		return;
	}
	while (n < sizeof line - 1 && recv(s, line + n, 1, 0) == 1 && line[n] != '\n')
		n++;
	line[n] = 0;
	p = line + 2;
	for (int k = 0; k < o.nmw; k++)
		mwkey[k] = strtoul(p, &p, 0);
	if (strncmp(line, "mw ", 3) || !mwkey[o.nmw - 1]) {
		fprintf(stderr, "vt: the server told '%s', not %d window keys\n", line, o.nmw);
		exit(2);
	}
}
static int verdict(const char *what, const char *detail)
{
	if (failures)
		printf("vt: FAILED: %s (%u failures)\n", failure, failures);
	else
		printf("vt: %u %s ok%s\n", passed, what, detail);
	fflush(stdout);
	return failures ? 1 : 0;
}

/* ---- client ---- */

static uint32_t window_key(int stale)
{
	int k = stale || mwnext >= (o.nmw ? o.nmw : 1) ? mwnext - 1 : mwnext;

	return mwkey[k < 0 ? 0 : k];
}
static uint64_t place(const struct op *d, uint64_t len, int64_t fixed)
{
	uint64_t *c = d->f & READ ? &rcursor : &wcursor, off;

	if (d->f & OOB)
		return o.region;
	if (d->f & ACROSS)
		return o.region - len / 2;
	if (d->f & ATOMIC)
		return (fixed < 0 ? 0 : (uint64_t)fixed) + (d->f & UNALIGNED ? 4 : 0);
	if (!(d->f & (READ | WRITE)))
		return 0;
	if (fixed >= 0)
		return fixed;
	if (*c + len > o.region)
		*c = ATOMICS;
	off = *c;
	*c += len + 1;		/* one byte stays untouched in between, and every alignment occurs */
	return off;
}
/* The place of the i-th landing in this batch; everything in it is wrong until it arrives. */
static unsigned char *landing(uint64_t i, uint64_t off, uint64_t len)
{
	unsigned char *p = land + GUARD + (o.nocheck ? 0 : i * (len + GUARD));

	if (o.nocheck)
		return p;
	memset(p - GUARD, POISON, len + 2 * GUARD);
	for (uint64_t k = 0; k < len && model_has(off, len); k++)
		p[k] = ~model[off + k];
	return p;
}
/* What the operation does to the server's memory, in the model and in the ledger. */
static void record(const struct op *d, uint64_t off, uint64_t len, unsigned src, uint64_t compare, uint64_t swapin)
{
	if (d->f & WRITE)
		model_write(off, len, src);
	if (d->code == IBV_WR_ATOMIC_CMP_AND_SWP) {
		model_cas(off, compare, swapin);
		fprintf(ledger, "cas 0x%" PRIx64 " 0x%" PRIx64 " 0x%" PRIx64 "\n", off, compare, swapin);
	} else if (d->code == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		model_add(off, compare);
		fprintf(ledger, "faa 0x%" PRIx64 " 0x%" PRIx64 "\n", off, compare);
	} else if (d->code == IBV_WR_RDMA_WRITE)
		fprintf(ledger, "write 0x%" PRIx64 " %" PRIu64 " %u\n", off, len, src);
	else if (d->code == IBV_WR_RDMA_WRITE_WITH_IMM)
		fprintf(ledger, "write_imm 0x%" PRIx64 " %" PRIu64 " %u 0x%x\n", off, len, src, IMM0 + nmsg);
	else if (d->code == IBV_WR_SEND)
		fprintf(ledger, "send %" PRIu64 "\n", len);
	else if (d->code == IBV_WR_SEND_WITH_IMM)
		fprintf(ledger, "send_imm %" PRIu64 " 0x%x\n", len, IMM0 + nmsg);
	else if (d->code == IBV_WR_SEND_WITH_INV)
		fprintf(ledger, "send_inv %" PRIu64 " 0x%x\n", len, window_key(0));
	if (d->f & WRITE)
		nwrite++;
	if (d->f & RECV)
		nmsg++;
	if (d->f & INV)
		mwnext++;
}
/* Posts one operation; 0, or the errno of the refusal. */
static int post_op(const struct op *d, unsigned i, uint64_t len, int64_t fixed, int signaled, unsigned expect)
{
	struct pending *p = &pending[i];
	uint64_t off = place(d, len, fixed), compare = 0, swapin = 0;
	unsigned src = d->f & WRITE ? source_of(nwrite) : source_of(nmsg);
	struct ibv_sge s = { .length = len, .lkey = mr->lkey };
	struct ibv_send_wr w = { .wr_id = i, .opcode = d->code, .sg_list = &s, .num_sge = len ? 1 : 0, .imm_data = htonl(IMM0 + nmsg),
		.send_flags = (signaled ? IBV_SEND_SIGNALED : 0) | (d->f & SE ? IBV_SEND_SOLICITED : 0) }, *bad;
	uint32_t key = d->f & (WINDOW | STALE) ? window_key(d->f & STALE) : you.rkey ^ (d->f & BADKEY ? 0x5500 : 0);
	int e;

	*p = (struct pending){ .off = off, .len = len };
	if (d->f & (READ | ATOMIC)) {
		p->at = landing(i, off, len);
		s.addr = (uintptr_t)p->at;
		s.lkey = rmr->lkey;
	} else {
		s.addr = (uintptr_t)buf + src;
		if (planted("src") && len)
			buf[src + len / 2] ^= 1;
	}
	if (d->f & ATOMIC) {
		p->old = model_has(off, 8) ? model_word(off) : 0;
		compare = d->code == IBV_WR_ATOMIC_FETCH_AND_ADD ? 0x1122334455667788ull : d->f & NOSWAP ? ~p->old : p->old;
		swapin = 0xa0a1a2a3a4a5a6a7ull + nswap++;
		w.wr.atomic.remote_addr = you.addr + off;
		w.wr.atomic.rkey = key;
		w.wr.atomic.compare_add = compare;
		w.wr.atomic.swap = swapin;
	} else {
		w.wr.rdma.remote_addr = you.addr + off;
		w.wr.rdma.rkey = key;
	}
	if (d->f & INV)
		w.invalidate_rkey = window_key(0);
	if (o.type == IBV_QPT_UD) {
		w.wr.ud.ah = ah;
		w.wr.ud.remote_qpn = you.qpn;
		w.wr.ud.remote_qkey = 0x11111111;
	}
	e = ibv_post_send(qp, &w, &bad);
	if (!e && !o.nocheck && expect == OK_ONLY)
		record(d, off, len, src, compare, swapin);
	else if (!o.nocheck && d->f & WRITE && expect & UNSURE && model_has(off, len))
		fprintf(ledger, "maybe 0x%" PRIx64 " %" PRIu64 "\n", off, len);
	return e;
}
/* What came back: the model's bytes, the atomic's old value, and nothing around them. */
static void check_op(const struct op *d, unsigned i)
{
	struct pending *p = &pending[i];
	char what[64];

	if (o.nocheck || !(d->f & (READ | ATOMIC)))
		return;
	if (planted("read") && p->len)
		p->at[p->len - 1] ^= 1;
	memset(want, POISON, p->len + 2 * GUARD);
	if (d->f & ATOMIC)
		memcpy(want + GUARD, &p->old, 8);
	else
		memcpy(want + GUARD, model + p->off, p->len);
	snprintf(what, sizeof what, "%s, %" PRIu64 " bytes from 0x%" PRIx64, d->name, p->len, p->off);
	same(what, -(uint64_t)GUARD, p->at - GUARD, want, p->len + 2 * GUARD);
}
static const char *status_name(int status)
{
	for (unsigned k = 0; k < sizeof statuses / sizeof *statuses; k++)
		if (statuses[k].status == status)
			return statuses[k].name;
	return "?";
}
/* Waits for the completion of operation i of this batch and holds it against what was expected. */
static int await(const struct op *d, unsigned i, unsigned expect, int quiet)
{
	struct ibv_wc w;

	if (!next_wc(&w, 30)) {
		say("no completion in 30 s");
		fail("%s: no completion in 30 s", d->name);
		return 1;
	}
	if (!quiet || w.status)
		show(&w);
	if (w.status)
		fprintf(ledger, "failed %s\n", status_name(w.status));
	if (!(expect >> w.status & 1)) {
		fail("%s ended with %s (%s)", d->name, status_name(w.status), ibv_wc_status_str(w.status));
		return 1;
	}
	if (w.wr_id != i)
		fail("%s: completion of work request %llu, should be %u", d->name, (unsigned long long)w.wr_id, i);
	if (!w.status && w.opcode != d->wc)
		fail("%s: completion says opcode %d, should be %d", d->name, w.opcode, d->wc);
	if (!w.status && d->f & (READ | ATOMIC) && w.byte_len != pending[i].len)
		fail("%s: completion says %u bytes, should be %" PRIu64, d->name, w.byte_len, pending[i].len);
	return 0;
}
/* Posts COUNT alike, as many at a time as fit, and checks them. Non-zero stops the run. */
static int run_op(const struct op *d, uint64_t len, unsigned count, int64_t fixed, unsigned expect)
{
	uint64_t room = (landsz - GUARD) / (len + GUARD);
	unsigned most = o.seq ? 1 : !o.nocheck && d->f & (READ | ATOMIC) && room < DEPTH ? room : DEPTH;
	double t = now();

	if (len + 4096 > o.region || !most) {
		fail("%s: %" PRIu64 " bytes are too many for a region of %" PRIu64, d->name, len, o.region);
		return 1;
	}
	say("op %s size %" PRIu64 " count %u", d->name, len, count);
	for (unsigned done = 0, n; done < count; done += n) {
		n = count - done < most ? count - done : most;
		for (unsigned i = 0; i < n; i++) {
			int e = post_op(d, i, len, fixed, o.all || i + 1 == n, expect);

			if (!e)
				continue;
			say("post_send: %s", strerror(e));
			if (!(expect >> POST_REFUSED & 1))
				fail("%s: the post was refused: %s", d->name, strerror(e));
			else
				passed++;
			return !(expect >> POST_REFUSED & 1);
		}
		if (!(expect & ~(1u << POST_REFUSED))) {
			fail("%s: the post should have been refused", d->name);
			return 1;
		}
		for (unsigned i = o.all ? 0 : n - 1; i < n; i++)
			if (await(d, i, expect, o.seq || o.busy))
				return 1;
		for (unsigned i = 0; i < n && expect == OK_ONLY; i++)
			check_op(d, i);
		passed += n;
	}
	t = now() - t;
	say("op %s done in %.1f ms", d->name, t * 1e3);
	if (o.seq)
		say("seq %s size %" PRIu64 ": %.1f us each", d->name, len, t / count * 1e6);
	else if (count > 16)
		say("rate %s size %" PRIu64 ": %.1f MB/s %.0f msg/s", d->name, len, (double)len * count / t / 1e6, count / t);
	return 0;
}
/* The whole text is a number. */
static int is_number(const char *text, uint64_t *n)
{
	char *end;

	*n = strtoull(text, &end, 0);
	return *text >= '0' && *text <= '9' && !*end;
}
static int do_op(char *spec)
{
	uint64_t all[] = { 0, 1, 3, o.mtu - 1, o.mtu, o.mtu + 1, 5 * o.mtu, 1 << 20 };
	char *status = strchr(spec, '='), *at = strchr(spec, '@'), name[32] = "", size[32] = "64", *save = 0;
	unsigned count = 1, expect = 0;
	uint64_t where = 0, len = 0;
	int64_t fixed;
	const struct op *d = 0;

	if (status)
		*status++ = 0;
	if (at)
		*at++ = 0;
	if (at && !is_number(at, &where)) {
		fail("what follows @ is no offset in %s@%s", spec, at);
		return 1;
	}
	fixed = at ? (int64_t)where : -1;
	sscanf(spec, "%31[^:]:%31[^:]:%u", name, size, &count);
	if (!strcmp(name, "sleep")) {
		usleep(strtoul(size, 0, 0) * 1000);
		return 0;
	}
	for (unsigned k = 0; k < sizeof ops / sizeof *ops; k++)
		if (!strcmp(name, ops[k].name))
			d = &ops[k];
	for (char *p = strtok_r(status ? status : (char[]){ "ok" }, "/", &save); p; p = strtok_r(0, "/", &save))
		for (unsigned k = 0; k < sizeof statuses / sizeof *statuses; k++)
			if (!strcmp(p, statuses[k].name))
				expect |= 1u << statuses[k].status;
	if (!d || !expect) {
		fail("unknown operation or status in %s", spec);
		return 1;
	}
	if (d->f & ATOMIC)
		return run_op(d, 8, count, fixed, expect);
	if (is_number(size, &len))
		return run_op(d, len, count, fixed, expect);
	if (strcmp(size, "all")) {
		fail("%s is no size", size);
		return 1;
	}
	for (unsigned k = 0; k < sizeof all / sizeof *all; k++)
		if (run_op(d, all[k], count, fixed, expect))
			return 1;
	return 0;
}
/* Gives the server the ledger and takes its verdict. */
static void settle(int s)
{
	char answer[512] = "";
	unsigned n = 0;
	ssize_t k = 0;
	struct pollfd pf = { s, POLLIN, 0 };

	fputs("end\n", ledger);
	fflush(ledger);
	for (size_t sent = 0; sent < ledger_size; sent += k)
		if ((k = write(s, ledger_text + sent, ledger_size - sent)) <= 0) {
			fail("the server closed the connection before the ledger");
			return;
		}
	shutdown(s, SHUT_WR);
	while (n < sizeof answer - 1 && poll(&pf, 1, 30000) == 1 && (k = read(s, answer + n, sizeof answer - 1 - n)) > 0)
		n += k;
	answer[strcspn(answer, "\n")] = 0;
	say("server: %s", *answer ? answer : "no verdict");
	if (strncmp(answer, "ok", 2))
		fail("server: %s", *answer ? answer : "no verdict");
}
static int run_client(int s)
{
	char *list = strdup(o.ops ? o.ops : "send"), *save;
	struct ibv_wc w;

	ledger = open_memstream(&ledger_text, &ledger_size);
	if (!list || !ledger)
		die("memory");
	fputs("vt 1\n", ledger);
	for (char *p = strtok_r(list, ",", &save); p; p = strtok_r(0, ",", &save))
		if (do_op(p))
			break;
	if (o.nocheck) {
		usleep(50000);
		shutdown(s, SHUT_WR);
		(void)!read(s, &(char){ 0 }, 1);
		return verdict("operations", ", nothing checked");
	}
	settle(s);
	while (ibv_poll_cq(cq, 1, &w) == 1)
		fail("a completion too many, of work request %llu", (unsigned long long)w.wr_id);
	for (uint64_t i = 0; i < o.region; i++)
		want[i] = pattern(i, CLIENT);
	same("the client's own region", 0, buf, want, o.region);
	return verdict("operations", "");
}

/* ---- server ---- */

/* Takes one completion, if there is one. */
static int serve_one(unsigned *posted)
{
	struct ibv_wc w;
	int n = ibv_poll_cq(cq, 1, &w);

	if (n < 0)
		die("poll_cq");
	if (!n)
		return 0;
	if (!o.busy || w.status)
		show(&w);
	if (o.type == IBV_QPT_UD && !w.status) {
		unsigned char *r = land + (w.wr_id - RECV0) % o.nrecv * stride + GUARD;

		printf("  GRH:");
		for (int i = 0; i < GRH; i++)
			printf(" %02x", r[i]);
		puts("");
	}
	check_recv(&w);
	if (!o.norepost && !w.status)
		post_recv((*posted)++);
	return 1;
}
/* Judges everything by the ledger. */
static void judge(char *text, unsigned *posted)
{
	char *save, first[64];
	unsigned messages = 0;
	int failed = 0;

	for (char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : 0)
		messages += !strncmp(p, "send", 4) || !strncmp(p, "write_imm ", 10);
	for (double end = now() + 5; rx_seen + rx_errors < messages && now() < end;)
		if (!serve_one(posted))
			usleep(200);
	for (double end = now() + 0.02; now() < end;)	/* and nothing beyond them */
		if (!serve_one(posted))
			usleep(200);
	for (char *p = strtok_r(text, "\n", &save); p; p = strtok_r(0, "\n", &save)) {
		int r = ledger_line(p, &failed);

		snprintf(first, sizeof first, "%s", p);
		if (r < 0)
			fail("cannot read the ledger's line '%s'", first);
		if (r)
			break;
	}
	if (rx_told != rx_seen)
		fail("%u messages arrived, the client sent %u", rx_seen, rx_told);
	if (rx_errors && !failed && !o.experr)
		fail("%u receives ended in error, but no operation of the client's did", rx_errors);
	if (planted("region"))
		buf[o.region / 2] ^= 1;
	check_region(buf);
}
/* The pages around what the peer may write. */
static void check_guards(void)
{
	unsigned char page[4096];

	memset(page, POISON, sizeof page);
	same("the page before the region", 0, buf - 4096, page, 4096);
	same("the page after the region", 0, buf + o.region, page, 4096);
	same("the page before the receives", 0, land - 4096, page, 4096);
	same("the page after the receives", 0, land + landsz, page, 4096);
}
static int run_server(int s)
{
	struct pollfd pf = { s, POLLIN, 0 };
	double due = now() + o.delay / 1e3;
	unsigned posted = o.nrecv;
	size_t n = 0, size = 1 << 16;
	char *text = calloc(size, 1), line[sizeof failure + 16], detail[96];
	ssize_t k = 0;

	for (;;) {
		if (o.delay && now() >= due) {
			for (int i = 0; i < o.nrecv; i++)
				post_recv(i);
			say("posted %d receives", o.nrecv);
			o.delay = 0;
		}
		if (serve_one(&posted))
			continue;
		if (poll(&pf, 1, o.busy ? 0 : 1) <= 0)
			continue;
		if (n + 2 >= size && !(text = realloc(text, size *= 2)))
			die("memory");
		if ((k = read(s, text + n, size - 1 - n)) <= 0)
			break;
		text[n += k] = 0;
		if (n >= 4 && !strcmp(text + n - 4, "end\n"))
			break;
	}
	while (serve_one(&posted))
		;
	if (n && !o.nocheck) {
		judge(text, &posted);
		snprintf(detail, sizeof detail, ": %u messages, %u writes and atomics, %" PRIu64 " bytes of memory", rx_seen,
			 rdma_told, o.region);
	} else {
		if (rx_errors && !o.experr)
			fail("%u receives ended in error", rx_errors);
		snprintf(detail, sizeof detail, ": %u messages%s; no ledger, memory not checked", rx_seen,
			 o.nocheck ? ", not checked" : "");
		passed = rx_seen;
	}
	check_guards();
	if (failures)
		snprintf(line, sizeof line, "fail %s\n", failure);
	else
		snprintf(line, sizeof line, "ok %u\n", passed);
	if (n)
		(void)!write(s, line, strlen(line));
	shutdown(s, SHUT_WR);
	return verdict("operations", detail);
}
