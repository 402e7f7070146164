/* What vt knows about the bytes: the pattern, the model of the server's memory, and the
 * ledger that tells the server what the client did.  README.md describes all three. */
#ifndef VT_CHECK_H
#define VT_CHECK_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATOMICS 64		/* the first bytes of the region are left to atomics */
#define IMM0 0x1badcafeu	/* immediate of the first message that carries one */
#define RXLOG 65536

enum { CLIENT = 0, SERVER = 1 };

/* Byte i of the region that SIDE exposes, before anybody wrote to it. */
static inline unsigned char pattern(uint64_t i, int side)
{
	return i * 7 + (i >> 8) + (i >> 16) * 13 + side;
}

/* Where in the client's region the payload of its k-th SEND or k-th WRITE begins, so that no
 * two neighbours carry the same bytes. */
static inline unsigned source_of(unsigned k)
{
	return k * 37 % 4096;
}

/* First failure of this side; later ones are counted. */
static char failure[256];
static unsigned failures, passed;

__attribute__((format(printf, 1, 2))) static void fail(const char *f, ...)
{
	va_list a;

	va_start(a, f);
	if (!failures++)
		vsnprintf(failure, sizeof failure, f, a);
	va_end(a);
}

/* Compares GOT with WANT and names the first wrong byte; BASE is added to the offset. */
static int same(const char *what, uint64_t base, const unsigned char *got, const unsigned char *want, uint64_t len)
{
	uint64_t first = len, bad = 0;

	if (!memcmp(got, want, len))
		return 1;
	for (uint64_t i = 0; i < len; i++)
		if (got[i] != want[i]) {
			if (first == len)
				first = i;
			bad++;
		}
	fail("%s: byte %" PRId64 " is 0x%02x, should be 0x%02x (%" PRIu64 " of %" PRIu64 " bytes wrong)", what,
	     (int64_t)(base + first), got[first], want[first], bad, len);
	return 0;
}

/* The server's region as it should be; both sides keep one. */
static unsigned char *model, *dontcare;
static uint64_t modellen;

static void model_init(uint64_t len)
{
	model = malloc(len);
	dontcare = calloc(len, 1);
	if (!model || !dontcare)
		abort();
	for (uint64_t i = 0; i < len; i++)
		model[i] = pattern(i, SERVER);
	modellen = len;
}
static int model_has(uint64_t off, uint64_t len)
{
	return len <= modellen && off <= modellen - len;
}
static void model_write(uint64_t off, uint64_t len, uint64_t src)
{
	for (uint64_t i = 0; i < len; i++)
		model[off + i] = pattern(src + i, CLIENT);
	memset(dontcare + off, 0, len);
}
static uint64_t model_word(uint64_t off)
{
	uint64_t v;

	memcpy(&v, model + off, 8);
	return v;
}
static void model_cas(uint64_t off, uint64_t compare, uint64_t swap)
{
	if (model_word(off) == compare)
		memcpy(model + off, &swap, 8);
}
static void model_add(uint64_t off, uint64_t add)
{
	uint64_t v = model_word(off) + add;

	memcpy(model + off, &v, 8);
}

/* Messages that took a receive, in order: what the server saw, what the ledger says. */
enum { RX_SEND, RX_SEND_IMM, RX_SEND_INV, RX_WRITE_IMM };
static const char *const rx_names[] = { "send", "send_imm", "send_inv", "write_imm" };
struct rx { int kind; uint32_t len, tag; };
static struct rx rxlog[RXLOG];
static unsigned rx_seen, rx_told, rx_errors, rdma_told;

static void tell_rx(int kind, uint64_t len, uint64_t tag)
{
	unsigned k = rx_told++;
	const struct rx *r = &rxlog[k];

	if (k >= rx_seen || k >= RXLOG)
		return;		/* counted at the end */
	if (r->kind != kind)
		fail("receive %u is a %s, should be a %s", k, rx_names[r->kind], rx_names[kind]);
	else if (r->len != len)
		fail("receive %u has %u bytes, should have %" PRIu64, k, r->len, len);
	else if (kind != RX_SEND && r->tag != (uint32_t)tag)
		fail("receive %u carries 0x%x, should carry 0x%x", k, r->tag, (uint32_t)tag);
	else
		passed++;
}

/* Applies one ledger line to the model. Returns 1 at `end`, -1 for a line it cannot read. */
static int ledger_line(const char *line, int *peer_failed)
{
	char w[32] = "", e[32];
	uint64_t a[4] = { 0 };
	int n = 0, used = 0;

	if (sscanf(line, "%31s%n", w, &used) != 1)
		return -1;
	for (char *end; n < 4; n++, line = end) {
		a[n] = strtoull(line + used, &end, 0);
		if (end == line + used)
			break;
		used = 0;
	}
	if (!strcmp(w, "end"))
		return 1;
	if (!strcmp(w, "vt"))
		return n == 1 && a[0] == 1 ? 0 : -1;
	if (!strcmp(w, "failed")) {
		*peer_failed = sscanf(line + used, "%31s", e) == 1;
		return *peer_failed ? 0 : -1;
	}
	if (!strcmp(w, "send") && n == 1)
		tell_rx(RX_SEND, a[0], 0);
	else if (!strcmp(w, "send_imm") && n == 2)
		tell_rx(RX_SEND_IMM, a[0], a[1]);
	else if (!strcmp(w, "send_inv") && n == 2)
		tell_rx(RX_SEND_INV, a[0], a[1]);
	else if (!strcmp(w, "write") && n == 3 && model_has(a[0], a[1]))
		model_write(a[0], a[1], a[2]), rdma_told++;
	else if (!strcmp(w, "write_imm") && n == 4 && model_has(a[0], a[1])) {
		model_write(a[0], a[1], a[2]);
		tell_rx(RX_WRITE_IMM, a[1], a[3]);
		rdma_told++;
	} else if (!strcmp(w, "cas") && n == 3 && model_has(a[0], 8))
		model_cas(a[0], a[1], a[2]), rdma_told++;
	else if (!strcmp(w, "faa") && n == 2 && model_has(a[0], 8))
		model_add(a[0], a[1]), rdma_told++;
	else if (!strcmp(w, "maybe") && n == 2 && model_has(a[0], a[1]))
		memset(dontcare + a[0], 1, a[1]);
	else
		return -1;
	return 0;
}

/* The whole region against the model; bytes under a `maybe` are left out. */
static void check_region(unsigned char *region)
{
	for (uint64_t i = 0; i < modellen; i++)
		if (dontcare[i])
			model[i] = region[i];
	if (same("region", 0, region, model, modellen))
		passed += rdma_told;
}
#endif
