/* A program that loads the library itself and closes its last handle while a device is open: threads and handlers of ours go on,
 * so the library must stay where it is. Not linked with it, and run without LD_PRELOAD. */
#include <dlfcn.h>
#include "common.h"

#define IMPORT(name) CHECK((*(void **)&name##_ = dlsym(library, #name)) != NULL)

static struct ibv_device **(*ibv_get_device_list_)(int *);
static struct ibv_context *(*ibv_open_device_)(struct ibv_device *);
static struct ibv_pd *(*ibv_alloc_pd_)(struct ibv_context *);
static struct ibv_cq *(*ibv_create_cq_)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
static struct ibv_qp *(*ibv_create_qp_)(struct ibv_pd *, struct ibv_qp_init_attr *);
static int (*ibv_destroy_qp_)(struct ibv_qp *);

int main(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_qp *qp;

	CHECK(library != NULL);
	IMPORT(ibv_get_device_list);
	IMPORT(ibv_open_device);
	IMPORT(ibv_alloc_pd);
	IMPORT(ibv_create_cq);
	IMPORT(ibv_create_qp);
	IMPORT(ibv_destroy_qp);
	list = ibv_get_device_list_(NULL);
	CHECK(list && list[0] && (context = ibv_open_device_(list[0])) && (pd = ibv_alloc_pd_(context)));
	init.send_cq = init.recv_cq = ibv_create_cq_(context, 4, NULL, NULL, 0);
	CHECK(init.send_cq && (qp = ibv_create_qp_(pd, &init)));
	for (int i = 0; i < 3; i++)
		CHECK(dlclose(library) == 0 || i > 0);
	usleep(50000);
	/* Its code is where it was, and the device works. */
	CHECK(ibv_destroy_qp_(qp) == 0);
	library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	CHECK(library && dlsym(library, "ibv_destroy_qp") == (void *)ibv_destroy_qp_);
	puts("all is well");
	return 0;
}
