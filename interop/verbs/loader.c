/* Who loads what, in a program that is linked with -libverbs and runs under `userdma run`: every way to a function leads to
 * one library, ours, and every node of the distribution's releases is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("not so: %s\n", what);
		exit(1);
	}
}

static const struct {
	const char *name, *node;
} wanted[] = {
	{ "ibv_create_comp_channel", "IBVERBS_1.0" }, { "ibv_get_device_list", "IBVERBS_1.1" },
	{ "ibv_get_pkey_index", "IBVERBS_1.5" },      { "ibv_qp_to_qp_ex", "IBVERBS_1.6" },
	{ "ibv_reg_mr_iova", "IBVERBS_1.7" },         { "ibv_reg_mr_iova2", "IBVERBS_1.8" },
	{ "ibv_get_device_index", "IBVERBS_1.9" },    { "ibv_query_ece", "IBVERBS_1.10" },
	{ "_ibv_query_gid_ex", "IBVERBS_1.11" },      { "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },
	{ "ibv_is_fork_initialized", "IBVERBS_1.13" },{ "ibv_query_qp_data_in_order", "IBVERBS_1.14" },
	{ "ibv_reg_mr_ex", "IBVERBS_1.15" },          { "ibv_query_port_speed", "IBVERBS_1.16" },
	{ "ibv_alloc_buf", "IBVERBS_1.17" },          { "ibv_cmd_alloc_pd", "IBVERBS_PRIVATE_25" },
	{ "ibv_cmd_alloc_pd", "IBVERBS_PRIVATE_33" }, { "ibv_query_gid_type", "IBVERBS_PRIVATE_34" },
	{ "ibv_cmd_alloc_pd", "IBVERBS_PRIVATE_57" }, { "ibv_cmd_alloc_pd", "IBVERBS_PRIVATE_59" },
	{ "verbs_register_driver_64", "IBVERBS_PRIVATE_64" },
};

int main(void)
{
	static const char *const names[] = { "libibverbs.so.1", "libibverbs.so" };
	struct ibv_device **(*old_list)(int *);
	char *flag;
	int num = -1;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void *library = dlopen(names[i], RTLD_NOW);

		check(library != NULL, dlerror());
		check(dlsym(library, "ibv_get_device_list") == (void *)ibv_get_device_list, names[i]);
		for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
			check(dlvsym(library, wanted[k].name, wanted[k].node) != NULL, wanted[k].node);
		*(void **)&old_list = dlvsym(library, "ibv_get_device_list", "IBVERBS_1.0");
		check(old_list != NULL && old_list != ibv_get_device_list, "the oldest form is another function");
		check(old_list(&num) == NULL, "the oldest form finds no devices");
		flag = dlvsym(library, "verbs_allow_disassociate_destroy", "IBVERBS_PRIVATE_34");
		check(flag != NULL && *flag == 0, "the providers' flag is 0");
	}
	/* Provider libraries of the distribution load on top of ours, and find that our device is not theirs. */
	for (int i = 0; i < 2; i++) {
		void *provider = dlopen(i ? "libefa.so.1" : "libmlx5.so.1", RTLD_NOW);
		bool (*is_theirs)(struct ibv_device *);
		struct ibv_device **list = ibv_get_device_list(&num);

		check(list != NULL && num == 2 && list[2] == NULL, "two devices");
		if (provider && !i) {
			*(void **)&is_theirs = dlsym(provider, "mlx5dv_is_supported");
			check(is_theirs != NULL && !is_theirs(list[0]), "no device of mlx5");
		}
		ibv_free_device_list(list);
	}
	puts("all is well");
	return 0;
}
