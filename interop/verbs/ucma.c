/* The device of the connection manager without librdmacm: what it looks like, what wrong commands are answered, and what becomes
 * of descriptors, threads and children. ucma DEVICE-ADDRESS; prints `all is well`. */
#define _GNU_SOURCE
#include "ucma.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

static const char *address;
/* Not mapped. */
static void *nowhere;

/* ---- the device ---- */

static void the_node_is_a_character_device(void)
{
	struct stat path, open_one;
	struct statx x;
	int null, channel = open_channel(0);

	CHECK(stat("/dev/infiniband/rdma_cm", &path) == 0 && S_ISCHR(path.st_mode));
	CHECK(access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0);
	CHECK(fstat(channel, &open_one) == 0 && S_ISCHR(open_one.st_mode) && open_one.st_rdev == path.st_rdev);
	CHECK(fstatat(channel, "", &open_one, AT_EMPTY_PATH) == 0 && S_ISCHR(open_one.st_mode));
	CHECK(statx(channel, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x) == 0 && S_ISCHR(x.stx_mode));
	CHECK(makedev(x.stx_rdev_major, x.stx_rdev_minor) == path.st_rdev);
	CHECK(fcntl(channel, F_GETFD) == FD_CLOEXEC && !(fcntl(channel, F_GETFL) & O_NONBLOCK));
	close(channel);
	null = open("/dev/infiniband", O_RDONLY | O_DIRECTORY);
	channel = openat(null, "rdma_cm", O_RDWR | O_NONBLOCK);
	CHECK(channel >= 0 && fcntl(channel, F_GETFD) == 0 && (fcntl(channel, F_GETFL) & O_NONBLOCK));
	close(channel);
	close(null);
	CHECK(FAILS(socket(AF_NETLINK, SOCK_RAW, 20) < 0, EPROTONOSUPPORT));
}

/* Others' pipes and files are what they were, also where a channel is open. */
static void what_is_no_channel_is_left_alone(void)
{
	int ends[2], channel = open_channel(0);
	struct stat st;
	char byte = 'x';
	struct iovec part = { &byte, 1 };

	CHECK(pipe(ends) == 0);
	CHECK(fstat(ends[0], &st) == 0 && S_ISFIFO(st.st_mode));
	CHECK(FAILS(write(ends[0], &byte, 1) < 0, EBADF) && FAILS(writev(ends[0], &part, 1) < 0, EBADF));
	CHECK(write(ends[1], &byte, 1) == 1 && writev(ends[1], &part, 1) == 1 && read(ends[0], &byte, 1) == 1);
	CHECK(FAILS(write(-1, &byte, 1) < 0, EBADF) && FAILS(write(ends[1], nowhere, 1) < 0, EFAULT));
	close(ends[0]), close(ends[1]), close(channel);
}

/* ---- wrong commands ---- */

static void lengths_and_numbers_are_checked(void)
{
	int channel = open_channel(0);
	struct command command = { .header = { 0, 0, 0 } };
	void *volatile null = NULL;

	CHECK(FAILS(write(channel, &command, 7) < 0, EINVAL));
	CHECK(FAILS(write(channel, null, 64) < 0, EFAULT));
	CHECK(FAILS(write(channel, nowhere, 64) < 0, EFAULT));
	for (int number = RESOLVE_IB_SERVICE; number < 1 << 20; number += number)
		CHECK(give(channel, &command, number, 16, 4) < 0 && errno == EINVAL);
	CHECK(give(channel, &command, -1, 16, 4) < 0 && errno == EINVAL);
	CHECK(give(channel, &command, WRITE_CM_EVENT, 16, 4) < 0 && errno == EINVAL);
	CHECK(GIVE(channel, &command, GET_OPTION, query, 4) < 0 && errno == ENOSYS);
	command.header = (struct rdma_ucm_cmd_hdr){ RDMA_USER_CM_CMD_LISTEN, 9, 0 };
	CHECK(FAILS(write(channel, &command, 16) < 0, EINVAL));
	/* The header says less than it takes: what an older program does not have. */
	command = (struct command){ 0 };
	CHECK(give(channel, &command, RDMA_USER_CM_CMD_CONNECT, sizeof command.connect - 9, 0) < 0 && errno == EINVAL);
	CHECK(give(channel, &command, RDMA_USER_CM_CMD_ACCEPT, sizeof command.accept - 9, 0) < 0 && errno == EINVAL);
	close(channel);
}

/* The header says how long a command is; what is written may be longer. */
static void no_answer_looks_like_a_failure_that_is_none(void)
{
	int channel = open_channel(0);
	struct rdma_ucm_create_id_resp response = { .id = -1 };
	/* Far from the end of what addresses there are. */
	static struct command command = { .header = { RDMA_USER_CM_CMD_CREATE_ID, sizeof command.create_id, 4 } };
	volatile size_t most = SIZE_MAX, long_one = 4000, huge = 3UL << 30;

	command.create_id = (struct rdma_ucm_create_id){ .ps = RDMA_PS_TCP, .response = (uintptr_t)&response };
	CHECK(FAILS(write(channel, &command, most) < 0, EFAULT) && FAILS(write(channel, &command, most / 2 + 1) < 0, EFAULT));
	CHECK(response.id == ~0u);
	CHECK(write(channel, &command, long_one) == 4000 && destroy_id(channel, response.id) == 0);
	CHECK(write(channel, &command, huge) == 0x7ffff000 && destroy_id(channel, response.id) == 0);
	close(channel);
}

/* A command at the end of what is mapped, and one that passes it. */
static void a_command_may_end_where_memory_ends(void)
{
	long page = sysconf(_SC_PAGESIZE);
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int channel = open_channel(0);
	struct rdma_ucm_cmd_hdr header = { RDMA_USER_CM_CMD_LISTEN, sizeof(struct rdma_ucm_listen), 0 };
	struct rdma_ucm_listen listen = { .id = 77 };
	char *at = two + page - sizeof header - sizeof listen;

	CHECK(two != MAP_FAILED && munmap(two + page, page) == 0);
	memcpy(at, &header, sizeof header);
	memcpy(at + sizeof header, &listen, sizeof listen);
	CHECK(FAILS(write(channel, at, 16) < 0, ENOENT));
	memcpy(at + 1, &header, sizeof header);
	CHECK(FAILS(write(channel, at + 1, 16) < 0, EFAULT));
	munmap(two, page);
	close(channel);
}

static void answers_have_room_or_nothing_is_done(void)
{
	int channel = open_channel(O_NONBLOCK);
	struct rdma_ucm_create_id_resp response;
	struct command command = { .create_id = { .ps = RDMA_PS_TCP, .response = (uintptr_t)&response } };
	uint32_t first = create_id(channel, 1, RDMA_PS_TCP), second;

	CHECK(GIVE(channel, &command, CREATE_ID, create_id, 3) < 0 && errno == ENOSPC);
	command.create_id.response = (uintptr_t)nowhere;
	CHECK(GIVE(channel, &command, CREATE_ID, create_id, 4) < 0 && errno == EFAULT);
	command.create_id.response = 0;
	CHECK(GIVE(channel, &command, CREATE_ID, create_id, 4) < 0 && errno == EFAULT);
	command.create_id.ps = 7;
	CHECK(GIVE(channel, &command, CREATE_ID, create_id, 4) < 0 && errno == EINVAL);
	second = create_id(channel, 1, RDMA_PS_UDP);
	CHECK(second == first + 1);
	command = (struct command){ .query = { .id = first, .response = (uintptr_t)&command } };
	CHECK(GIVE(channel, &command, QUERY_ROUTE, query, 100) < 0 && errno == ENOSPC);
	for (int option = 0; option < 3; option++) {
		command.query.option = option;
		CHECK(GIVE(channel, &command, QUERY, query, 7) < 0 && errno == ENOSPC);
	}
	command.query.option = 3;
	CHECK(GIVE(channel, &command, QUERY, query, 1000) < 0 && errno == ENOSYS);
	CHECK(GIVE(channel, &command, INIT_QP_ATTR, init_qp_attr, 143) < 0 && errno == ENOSPC);
	CHECK(GIVE(channel, &command, GET_EVENT, get_event, 323) < 0 && errno == ENOSPC);
	CHECK(GIVE(channel, &command, GET_EVENT, get_event, 336) < 0 && errno == EAGAIN);
	destroy_id(channel, second), destroy_id(channel, first);
	CHECK(create_id(channel, 1, RDMA_PS_TCP) == first);
	close(channel);
}

/* Every command that names an identifier. */
static void identifiers_are_those_of_the_channel(void)
{
	static const struct { int number; size_t in, out; int id; } calls[] = {
#define NAMED(NUMBER, field) { RDMA_USER_CM_CMD_##NUMBER, sizeof(struct rdma_ucm_##field), 1024, \
			       offsetof(struct rdma_ucm_##field, id) }
		NAMED(DESTROY_ID, destroy_id), NAMED(RESOLVE_ROUTE, resolve_route), NAMED(QUERY_ROUTE, query),
		NAMED(LISTEN, listen), NAMED(ACCEPT, accept), NAMED(REJECT, reject), NAMED(DISCONNECT, disconnect),
		NAMED(INIT_QP_ATTR, init_qp_attr), NAMED(SET_OPTION, set_option), NAMED(NOTIFY, notify), NAMED(QUERY, query),
	};
	int one = open_channel(0), other = open_channel(0);
	uint32_t id = create_id(one, 1, RDMA_PS_TCP);

	for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct command command = { .header = { 0 } };
		uint32_t *named = (uint32_t *)((char *)&command.query + calls[i].id);

		for (uint32_t bad = 4000; bad; bad *= 1000) {
			*named = bad;
			CHECK(give(one, &command, calls[i].number, calls[i].in, calls[i].out) < 0 && errno == ENOENT);
		}
		*named = id;
		CHECK(give(other, &command, calls[i].number, calls[i].in, calls[i].out) < 0 && errno == EINVAL);
	}
	close(one), close(other);
}

static void calls_in_the_wrong_state_do_nothing(void)
{
	int channel = open_channel(O_NONBLOCK);
	char attr[144];
	uint32_t id = create_id(channel, 1, RDMA_PS_TCP);
	struct command command = { .connect = { .id = id } };

	CHECK(GIVE(channel, &command, CONNECT, connect, 0) < 0 && errno == EINVAL);
	command.connect.conn_param.valid = 1;
	CHECK(GIVE(channel, &command, CONNECT, connect, 0) < 0 && errno == EINVAL);
	command = (struct command){ .accept = { .id = id, .conn_param.valid = 1, .uid = 5 } };
	CHECK(GIVE(channel, &command, ACCEPT, accept, 0) < 0 && errno == EINVAL);
	command = (struct command){ .reject = { .id = id } };
	CHECK(GIVE(channel, &command, REJECT, reject, 0) < 0 && errno == EINVAL);
	command = (struct command){ .reject = { .id = id, .reason = 10 } };
	CHECK(GIVE(channel, &command, REJECT, reject, 0) < 0 && errno == EINVAL);
	command = (struct command){ .disconnect = { .id = id } };
	CHECK(GIVE(channel, &command, DISCONNECT, disconnect, 0) < 0 && errno == EINVAL);
	command = (struct command){ .resolve_route = { .id = id } };
	CHECK(GIVE(channel, &command, RESOLVE_ROUTE, resolve_route, 0) < 0 && errno == EINVAL);
	command = (struct command){ .notify = { .id = id, .event = 4 } };
	CHECK(GIVE(channel, &command, NOTIFY, notify, 0) < 0 && errno == EINVAL);
	for (int state = 0; state < 9; state++) {
		command = (struct command){ .init_qp_attr = { .id = id, .response = (uintptr_t)attr, .qp_state = state } };
		CHECK(GIVE(channel, &command, INIT_QP_ATTR, init_qp_attr, sizeof attr) < 0 && errno == EINVAL);
	}
	CHECK(is_quiet(channel));
	close(channel);
}

static void addresses_are_checked(void)
{
	int channel = open_channel(O_NONBLOCK);
	uint32_t id = create_id(channel, 1, RDMA_PS_TCP);
	struct sockaddr_in in = in_of(address, 7000);
	struct command command = { .bind = { .id = id, .addr_size = 15 } };

	memcpy(&command.bind.addr, &in, sizeof in);
	CHECK(GIVE(channel, &command, BIND, bind, 0) < 0 && errno == EINVAL);
	command.bind.addr_size = 0;
	CHECK(GIVE(channel, &command, BIND, bind, 0) < 0 && errno == EINVAL);
	command.bind.addr_size = 16, command.bind.reserved = 1;
	CHECK(GIVE(channel, &command, BIND, bind, 0) < 0 && errno == EINVAL);
	memset(&command.bind.addr, 0xff, sizeof command.bind.addr);
	command.bind.reserved = 0;
	CHECK(GIVE(channel, &command, BIND, bind, 0) < 0 && errno == EINVAL);
	command = (struct command){ .bind_ip = { .id = id } };
	CHECK(GIVE(channel, &command, BIND_IP, bind_ip, 0) < 0 && errno == EINVAL);
	command = (struct command){ .resolve_ip = { .id = id } };
	CHECK(GIVE(channel, &command, RESOLVE_IP, resolve_ip, 0) < 0 && errno == EINVAL);
	command = (struct command){ .resolve_addr = { .id = id, .dst_size = 3 } };
	CHECK(GIVE(channel, &command, RESOLVE_ADDR, resolve_addr, 0) < 0 && errno == EINVAL);
	command = (struct command){ .join_mcast = { .id = id, .addr_size = 9 } };
	CHECK(GIVE(channel, &command, JOIN_MCAST, join_mcast, 4) < 0 && errno == EINVAL);
	/* Nobody here has this one. */
	CHECK(bind_id(channel, id, "192.0.2.1", 7000) < 0 && (errno == ENODEV || errno == EADDRNOTAVAIL));
	CHECK(bind_id(channel, id, address, 7000) == 0);
	CHECK(bind_id(channel, id, address, 7001) < 0 && errno == EINVAL);
	close(channel);
}

static int set_option(int channel, uint32_t id, int level, int name, const void *value, uint32_t len)
{
	struct command command = {
		.set_option = { .optval = (uintptr_t)value, .id = id, .level = level, .optname = name, .optlen = len } };

	return GIVE(channel, &command, SET_OPTION, set_option, 0);
}

static void options_have_their_lengths(void)
{
	int channel = open_channel(0), one = 1;
	uint32_t id = create_id(channel, 1, RDMA_PS_TCP);

	CHECK(set_option(channel, id, 0, RDMA_OPTION_ID_TOS, &one, 1) == 0);
	CHECK(set_option(channel, id, 0, RDMA_OPTION_ID_TOS, &one, 4) < 0 && errno == EINVAL);
	CHECK(set_option(channel, id, 0, RDMA_OPTION_ID_REUSEADDR, &one, 4) == 0);
	CHECK(set_option(channel, id, 0, RDMA_OPTION_ID_REUSEADDR, &one, 1) < 0 && errno == EINVAL);
	CHECK(set_option(channel, id, 0, RDMA_OPTION_ID_AFONLY, &one, 4) == 0);
	CHECK(set_option(channel, id, 0, RDMA_OPTION_ID_ACK_TIMEOUT, &one, 1) == 0);
	CHECK(set_option(channel, id, 0, 17, &one, 4) < 0 && errno == ENOSYS);
	CHECK(set_option(channel, id, 9, 0, &one, 4) < 0 && errno == ENOSYS);
	CHECK(set_option(channel, id, 0, RDMA_OPTION_ID_TOS, nowhere, 1) < 0 && errno == EFAULT);
	CHECK(set_option(channel, id, 0, RDMA_OPTION_ID_TOS, &one, ~0u) < 0 && errno == EINVAL);
	CHECK(set_option(channel, 4000, 0, RDMA_OPTION_ID_TOS, &one, ~0u) < 0 && errno == EINVAL);
	close(channel);
}

/* Nobody looks there after a success, but the kernel's `write` leaves it alone. */
static void a_command_that_succeeds_leaves_errno_alone(void)
{
	int channel = open_channel(0);
	struct rdma_ucm_create_id_resp response;
	struct command command = { .header = { RDMA_USER_CM_CMD_CREATE_ID, sizeof command.create_id, sizeof response },
				   .create_id = { .ps = RDMA_PS_TCP, .response = (uintptr_t)&response } };
	size_t len = sizeof command.header + sizeof command.create_id;

	errno = ENOTTY;
	CHECK(write(channel, &command, len) == (ssize_t)len && errno == ENOTTY);
	close(channel);
}

/* ---- what is asked ---- */

static void what_is_bound_is_told_with_its_device(void)
{
	int channel = open_channel(0);
	uint32_t id = create_id(channel, 1, RDMA_PS_TCP);
	struct rdma_ucm_query_addr_resp addr;
	struct rdma_ucm_query_route_resp route;
	struct command command = { .query = { .id = id, .response = (uintptr_t)&addr, .option = RDMA_USER_CM_QUERY_ADDR } };
	struct sockaddr_in in = in_of(address, 7010);
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(GIVE(channel, &command, QUERY, query, sizeof addr) == 0 && addr.node_guid == 0 && addr.src_size == 0);
	CHECK(bind_id(channel, id, address, 7010) == 0);
	memset(&addr, 0xff, sizeof addr);
	CHECK(GIVE(channel, &command, QUERY, query, sizeof addr) == 0);
	CHECK(addr.src_size == 16 && memcmp(&addr.src_addr, &in, 16) == 0 && addr.dst_size == 0 && addr.port_num == 1);
	CHECK(addr.node_guid == ibv_get_device_guid(list[0]) && (int)addr.ibdev_index == ibv_get_device_index(list[0]));
	command.query.option = RDMA_USER_CM_QUERY_GID;
	CHECK(GIVE(channel, &command, QUERY, query, sizeof addr) == 0);
	CHECK(addr.src_size == 48 && addr.src_addr.ss_family == 27);
	CHECK(memcmp((char *)&addr.src_addr + 20, &in.sin_addr, 4) == 0);
	/* A program from before devices had numbers. */
	memset(&route, 0xff, sizeof route);
	command.query.response = (uintptr_t)&route;
	CHECK(GIVE(channel, &command, QUERY_ROUTE, query, offsetof(struct rdma_ucm_query_route_resp, ibdev_index)) == 0);
	CHECK(route.ibdev_index == ~0u && route.node_guid == addr.node_guid && route.num_paths == 0);
	CHECK(memcmp(&route.src_addr, &in, 16) == 0 && memcmp(route.ib_route[0].sgid + 12, &in.sin_addr, 4) == 0);
	ibv_free_device_list(list);
	close(channel);
}

/* ---- descriptors, threads, children ---- */

static void a_copy_is_the_channel_and_the_last_close_ends_it(void)
{
	int channel = open_channel(0), copy = dup(channel), again;
	uint32_t id = create_id(channel, 1, RDMA_PS_TCP);
	pid_t child;
	double end = seconds(CLOCK_MONOTONIC) + 20;

	CHECK(bind_id(channel, id, address, 7020) == 0);
	close(channel);
	CHECK(dup2(copy, 200) == 200 && close(copy) == 0);
	again = open_channel(0);
	id = create_id(again, 1, RDMA_PS_TCP);
	CHECK(bind_id(again, id, address, 7020) < 0 && errno == EADDRINUSE);
	/* A child has a copy as well, with which it can do nothing. */
	child = fork();
	if (child == 0) {
		struct command command = { .disconnect = { .id = 0 } };

		_exit(!(GIVE(200, &command, DISCONNECT, disconnect, 0) < 0 && errno == EIO));
	}
	close(200);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	while (bind_id(again, id, address, 7020) < 0) {
		CHECK(errno == EADDRINUSE && seconds(CLOCK_MONOTONIC) < end);
		usleep(1000);
	}
	close(again);
}

static void a_child_opens_a_channel_of_its_own(void)
{
	int channel = open_channel(0), status;
	pid_t child;

	create_id(channel, 1, RDMA_PS_TCP);
	child = fork();
	if (child == 0) {
		int own = open_channel(0);

		CHECK(create_id(own, 1, RDMA_PS_TCP) == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(channel);
}

static void migration_takes_descriptors_of_channels(void)
{
	struct rdma_ucm_migrate_resp response;
	int one = open_channel(0), other = open_channel(0), null = open("/dev/null", O_RDWR);
	uint32_t id = create_id(one, 1, RDMA_PS_TCP);
	struct command command = { .migrate_id = { .id = id, .fd = null, .response = (uintptr_t)&response } };

	CHECK(GIVE(other, &command, MIGRATE_ID, migrate_id, sizeof response) < 0 && errno == EINVAL);
	command.migrate_id.fd = 900;
	CHECK(GIVE(other, &command, MIGRATE_ID, migrate_id, sizeof response) < 0 && errno == ENOENT);
	command.migrate_id.fd = other;
	CHECK(GIVE(other, &command, MIGRATE_ID, migrate_id, sizeof response) < 0 && errno == EINVAL);
	command.migrate_id.fd = one;
	CHECK(GIVE(other, &command, MIGRATE_ID, migrate_id, sizeof response) == 0 && response.events_reported == 0);
	CHECK(bind_id(one, id, address, 7030) < 0 && errno == EINVAL);
	CHECK(bind_id(other, id, address, 7030) == 0);
	close(one);
	CHECK(destroy_id(other, id) == 0);
	close(other), close(null);
}

static void several_commands_go_by_one_writev(void)
{
	int channel = open_channel(0);
	struct rdma_ucm_create_id_resp responses[2] = { { 99 }, { 99 } };
	struct command commands[3];
	struct iovec parts[3];
	volatile int negative = -1, many = 1025;

	for (int i = 0; i < 3; i++) {
		commands[i] = (struct command){
			.header = { RDMA_USER_CM_CMD_CREATE_ID, sizeof commands[i].create_id, 4 },
			.create_id = { .ps = RDMA_PS_TCP, .response = i < 2 ? (uintptr_t)&responses[i] : 0 } };
		parts[i] = (struct iovec){ &commands[i], sizeof commands[i].header + sizeof commands[i].create_id };
	}
	CHECK(writev(channel, parts, 3) == (ssize_t)(2 * parts[0].iov_len) && responses[1].id == responses[0].id + 1);
	CHECK(FAILS(writev(channel, parts + 2, 1) < 0, EFAULT) && FAILS(writev(channel, nowhere, 1) < 0, EFAULT));
	responses[0].id = responses[1].id = 99;
	CHECK(FAILS(writev(channel, parts, negative) < 0, EINVAL) && FAILS(writev(channel, parts, many) < 0, EINVAL));
	CHECK(responses[0].id == 99 && responses[1].id == 99);
	close(channel);
}

static int waited;
static void *wait_for_event(void *channel)
{
	struct rdma_ucm_event_resp event;
	struct command command = { .get_event = { .response = (uintptr_t)&event } };

	waited = GIVE(*(int *)channel, &command, GET_EVENT, get_event, sizeof event);
	return (void *)(intptr_t)errno;
}

static void nothing(int signal)
{
	(void)signal;
}

/* Waits until the thread sleeps in its call. */
static void let_it_sleep(void)
{
	usleep(100000);
}

static void a_thread_that_waits_is_cancelled_and_interrupted(void)
{
	int channel = open_channel(0);
	pthread_t thread;
	void *result;
	struct sigaction action = { .sa_handler = nothing };

	CHECK(pthread_create(&thread, NULL, wait_for_event, &channel) == 0);
	let_it_sleep();
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, wait_for_event, &channel) == 0);
	let_it_sleep();
	CHECK(pthread_kill(thread, SIGUSR1) == 0 && pthread_join(thread, &result) == 0);
	CHECK(waited < 0 && (intptr_t)result == EINTR);
	action.sa_flags = SA_RESTART;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, wait_for_event, &channel) == 0);
	let_it_sleep();
	CHECK(pthread_kill(thread, SIGUSR1) == 0);
	let_it_sleep();
	CHECK(pthread_tryjoin_np(thread, &result) == EBUSY);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	/* Nothing was left taken. */
	create_id(channel, 1, RDMA_PS_TCP);
	close(channel);
}

/* An identifier keeps its name if it cannot accept. */
static void a_name_that_comes_with_a_failure_is_not_taken(void)
{
	int channel = open_channel(0);
	uint32_t id = create_id(channel, 11, RDMA_PS_TCP);
	struct sockaddr_in in = in_of(address, 7020);
	struct command command = { .accept = { .id = id, .conn_param.valid = 1, .uid = 12 } };

	CHECK(GIVE(channel, &command, ACCEPT, accept, 0) < 0 && errno == EINVAL);
	command = (struct command){ .resolve_addr = { .id = id, .dst_size = sizeof in, .timeout_ms = 1000 } };
	memcpy(&command.resolve_addr.dst_addr, &in, sizeof in);
	CHECK(GIVE(channel, &command, RESOLVE_ADDR, resolve_addr, 0) == 0);
	CHECK(take_event(channel, ADDR_RESOLVED).uid == 11);
	close(channel);
}

static sigjmp_buf back;

static void leave(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

/* Also if it was put there when the channel was open. */
static void a_wrong_address_is_no_affair_of_the_programs_handler(void)
{
	int channel = open_channel(0);
	struct command command = { .create_id = { .ps = RDMA_PS_TCP, .response = (uintptr_t)nowhere } };
	struct sigaction action = { .sa_handler = leave }, before;

	CHECK(sigaction(SIGSEGV, &action, &before) == 0);
	CHECK(sigsetjmp(back, 1) == 0);
	CHECK(GIVE(channel, &command, CREATE_ID, create_id, 4) < 0 && errno == EFAULT);
	if (sigsetjmp(back, 1) == 0) {
		*(volatile char *)nowhere = 1;
		CHECK(!"it is the program's own fault");
	}
	CHECK(sigaction(SIGSEGV, &before, NULL) == 0);
	close(channel);
}

static int asked_channel;
static uint32_t asked_id;
static volatile int asked;

static void ask(int signal)
{
	int before = errno;
	struct rdma_ucm_query_addr_resp addr;
	struct command command = { .query = { .id = asked_id, .response = (uintptr_t)&addr, .option = RDMA_USER_CM_QUERY_ADDR } };

	if (GIVE(asked_channel, &command, QUERY, query, sizeof addr) == 0)
		asked++;
	errno = before;
	if (signal == SIGVTALRM)
		siglongjmp(back, 1);
}

/* A handler may give a command wherever it interrupts another one, and leave without returning. */
static void a_handler_may_ask_while_a_command_is_under_way(void)
{
	int channel = open_channel(0);
	volatile uint32_t id = 0;
	struct sigaction action = { .sa_handler = ask };
	struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { { 0, 0 }, { 0, 0 } };

	asked_channel = channel, asked_id = create_id(channel, 1, RDMA_PS_TCP);
	CHECK(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGVTALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	while (asked < 500) {
		id = create_id(channel, 2, RDMA_PS_TCP);
		bind_id(channel, id, address, 0);
		destroy_id(channel, id);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	asked = 0;
	CHECK(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
	sigsetjmp(back, 1);
	while (asked < 100)
		bind_id(channel, asked_id, address, 0);
	CHECK(setitimer(ITIMER_VIRTUAL, &never, NULL) == 0);
	destroy_id(channel, asked_id);
	signal(SIGALRM, SIG_DFL), signal(SIGVTALRM, SIG_DFL);
	close(channel);
}

/* Any bytes at all: an answer, never a crash. */
static void rubbish_is_answered(void)
{
	int channel = open_channel(O_NONBLOCK);
	unsigned seed = 7;
	char bytes[400];

	create_id(channel, 1, RDMA_PS_TCP), create_id(channel, 1, RDMA_PS_UDP);
	for (int round = 0; round < 20000; round++) {
		struct rdma_ucm_cmd_hdr header = { rand_r(&seed) % 25, rand_r(&seed) % 300, rand_r(&seed) % 400 };

		for (unsigned i = 0; i < sizeof bytes; i++)
			bytes[i] = rand_r(&seed) % 3 ? 0 : rand_r(&seed);
		memcpy(bytes, &header, sizeof header);
		CHECK(write(channel, bytes, rand_r(&seed) % sizeof bytes) != 0);
	}
	close(channel);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	address = argv[1];
	nowhere = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(nowhere != MAP_FAILED);
	the_node_is_a_character_device();
	what_is_no_channel_is_left_alone();
	lengths_and_numbers_are_checked();
	no_answer_looks_like_a_failure_that_is_none();
	a_command_may_end_where_memory_ends();
	answers_have_room_or_nothing_is_done();
	identifiers_are_those_of_the_channel();
	calls_in_the_wrong_state_do_nothing();
	addresses_are_checked();
	options_have_their_lengths();
	a_command_that_succeeds_leaves_errno_alone();
	what_is_bound_is_told_with_its_device();
	a_copy_is_the_channel_and_the_last_close_ends_it();
	a_child_opens_a_channel_of_its_own();
	migration_takes_descriptors_of_channels();
	several_commands_go_by_one_writev();
	a_thread_that_waits_is_cancelled_and_interrupted();
	a_name_that_comes_with_a_failure_is_not_taken();
	a_wrong_address_is_no_affair_of_the_programs_handler();
	a_handler_may_ask_while_a_command_is_under_way();
	rubbish_is_answered();
	puts("all is well");
	return 0;
}
