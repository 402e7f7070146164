// A program that closes every descriptor that it does not know, as daemons do, while it has a device open.
//
// Its own device is lost to it. Until its input ends it must not take the processor, nor others' devices with it.
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    struct ibv_cq *cq = pd ? ibv_create_cq(context, 4, NULL, NULL, 0) : NULL;
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    if (!cq || !ibv_create_qp(pd, &init)) {
        perror("device");
        return 1;
    }
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    puts("closed");
    fflush(stdout);
    double before = cpu_seconds();
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    double took = cpu_seconds() - before;
    printf("%.3f s of the processor\n", took);
    return took < 0.5 ? 0 : 2;
}
