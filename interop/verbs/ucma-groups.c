/* The commands that join groups and leave them. ucma-groups DEVICE-ADDRESS; prints `all is well`. */
#include "common.h"
#include "ucma.h"
#include <sys/mman.h>

enum { MULTICAST_JOIN = 12 };
static void *nowhere;

static int join_group(int channel, uint32_t id, const char *group, int flags, void *membership)
{
	struct sockaddr_in in = in_of(group, 0);
	struct command command = { .join_mcast = { .id = id, .uid = 900, .addr_size = sizeof in, .join_flags = flags,
						   .response = (uintptr_t)membership } };

	memcpy(&command.join_mcast.addr, &in, sizeof in);
	return GIVE(channel, &command, JOIN_MCAST, join_mcast, 4);
}

static int leave_group(int channel, uint32_t membership)
{
	struct rdma_ucm_destroy_id_resp response = { .events_reported = -1 };
	struct command command = { .destroy_id = { .response = (uintptr_t)&response, .id = membership } };

	return GIVE(channel, &command, LEAVE_MCAST, destroy_id, sizeof response) < 0 ? -1 : (int)response.events_reported;
}

static void groups_are_memberships_with_events(const char *address)
{
	int channel = open_channel(O_NONBLOCK), other = open_channel(O_NONBLOCK);
	uint32_t id = create_id(channel, 5, RDMA_PS_UDP), connection = create_id(channel, 6, RDMA_PS_TCP), first, second;
	struct sockaddr_in in = in_of("239.44.1.1", 0);
	struct command command = { .join_ip_mcast = { .uid = 901, .response = (uintptr_t)&second } };
	struct rdma_ucm_event_resp event;

	CHECK(join_group(channel, id, "239.44.1.1", 0, &first) < 0 && errno == EINVAL);
	CHECK(bind_id(channel, id, address, 0) == 0 && bind_id(channel, connection, address, 0) == 0);
	CHECK(join_group(channel, connection, "239.44.1.1", 0, &first) < 0 && errno == EINVAL);
	CHECK(join_group(channel, id, "10.0.0.1", 0, &first) < 0 && errno == EINVAL);
	CHECK(join_group(channel, id, "239.44.1.1", 2, &first) < 0 && errno == EINVAL);
	CHECK(join_group(other, id, "239.44.1.1", 0, &first) < 0 && errno == EINVAL);
	CHECK(join_group(channel, 1 << 20, "239.44.1.1", 0, &first) < 0 && errno == ENOENT);
	CHECK(join_group(channel, id, "239.44.1.1", 0, nowhere) < 0 && errno == EFAULT && is_quiet(channel));
	CHECK(join_group(channel, id, "239.44.1.1", RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, &first) == 0);
	event = take_event(channel, MULTICAST_JOIN);
	CHECK(event.uid == 900 && event.id == first && event.status == 0);
	CHECK(event.param.ud.qp_num == 0xffffff && event.param.ud.qkey == 0x01234567 && event.param.ud.private_data_len == 0);
	CHECK(event.param.ud.ah_attr.is_global && event.param.ud.ah_attr.port_num == 1);
	CHECK(event.param.ud.ah_attr.grh.hop_limit == 64 && !memcmp(event.param.ud.ah_attr.grh.dgid + 12, &in.sin_addr, 4));
	/* The older command. */
	command.join_ip_mcast.id = id;
	memcpy(&command.join_ip_mcast.addr, &in, sizeof in);
	CHECK(GIVE(channel, &command, JOIN_IP_MCAST, join_ip_mcast, 3) < 0 && errno == ENOSPC);
	CHECK(GIVE(channel, &command, JOIN_IP_MCAST, join_ip_mcast, 4) == 0 && second != first && !is_quiet(channel));
	CHECK(leave_group(channel, second) == 0 && is_quiet(channel));
	CHECK(leave_group(other, first) < 0 && errno == EINVAL);
	CHECK(leave_group(channel, first) == 1);
	CHECK(leave_group(channel, first) < 0 && errno == ENOENT);
	CHECK(join_group(channel, id, "239.44.1.2", 0, &second) == 0 && second == 0);
	take_event(channel, MULTICAST_JOIN);
	/* A membership goes with its identifier. */
	CHECK(destroy_id(channel, id) == 2);
	CHECK(leave_group(channel, second) < 0 && errno == ENOENT);
	close(other), close(channel);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	nowhere = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(nowhere != MAP_FAILED);
	groups_are_memberships_with_events(argv[1]);
	puts("all is well");
	return 0;
}
