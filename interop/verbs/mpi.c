/* What MPI programs do most: a ring, a sum over all, everybody to everybody. Every value is checked.
 *
 *   mpi [BYTES]     the largest message, a multiple of 8 (default 1 MiB)
 *
 * Prints "all is well, N ranks" from rank 0. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static void must(int ok, const char *what, long size) {
    if (ok)
        return;
    fprintf(stderr, "rank %d: %s, %ld bytes: wrong data\n", rank, what, size);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The word at `place` of what `from` sends to `to`. */
static uint64_t word(int from, int to, long place) {
    uint64_t x = (uint64_t)from * 1000003u + (uint64_t)to * 10007u + (uint64_t)place + 1;
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

/* Each passes to the next what it got from the one before, until it has come round. */
static void ring(uint64_t *out, uint64_t *in, long words) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (long i = 0; i < words; i++)
        out[i] = word(rank, 0, i);
    for (int hop = 1; hop <= ranks; hop++) {
        MPI_Sendrecv(out, (int)words, MPI_UINT64_T, next, hop, in, (int)words, MPI_UINT64_T, before, hop, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        int origin = ((rank - hop) % ranks + ranks) % ranks;
        for (long i = 0; i < words; i++)
            must(in[i] == word(origin, 0, i), "ring", words * 8);
        uint64_t *t = out;
        out = in;
        in = t;
    }
}

static void sum(uint64_t *out, uint64_t *in, long words) {
    for (long i = 0; i < words; i++)
        out[i] = (uint64_t)(rank + 1) * (uint64_t)(i + 1);
    MPI_Allreduce(out, in, (int)words, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    uint64_t all = (uint64_t)ranks * (uint64_t)(ranks + 1) / 2;
    for (long i = 0; i < words; i++)
        must(in[i] == all * (uint64_t)(i + 1), "allreduce", words * 8);
}

static void exchange(uint64_t *out, uint64_t *in, long words) {
    for (int to = 0; to < ranks; to++)
        for (long i = 0; i < words; i++)
            out[to * words + i] = word(rank, to, i);
    MPI_Alltoall(out, (int)words, MPI_UINT64_T, in, (int)words, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        for (long i = 0; i < words; i++)
            must(in[from * words + i] == word(from, rank, i), "alltoall", words * 8);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long most = argc > 1 ? atol(argv[1]) : 1 << 20;
    uint64_t *out = malloc((size_t)most * (size_t)ranks), *in = malloc((size_t)most * (size_t)ranks);
    must(out && in && most >= 8, "memory", most);
    for (long size = 8; size <= most; size *= 16) {
        ring(out, in, size / 8);
        sum(out, in, size / 8);
        exchange(out, in, size / 8);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("all is well, %d ranks\n", ranks);
    MPI_Finalize();
    return 0;
}
