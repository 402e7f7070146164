/* For LD_PRELOAD before mckey in the guest: leaving the group takes a second longer. mckey's sender does not wait for its
 * completions but destroys its queue pair right behind the posts, and what rxe has not sent by then, which it does elsewhere and
 * later, it never sends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

struct rdma_cm_id;
struct sockaddr;

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int (*next)(struct rdma_cm_id *, struct sockaddr *) = dlsym(RTLD_NEXT, "rdma_leave_multicast");

	sleep(1);
	return next(id, addr);
}
