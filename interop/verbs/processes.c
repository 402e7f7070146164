/* What becomes of devices when processes fork, exec and end, and when many threads come and go. Each part runs in a process of
 * its own, with a time limit. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include "common.h"

static struct world world;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static const char *self;

static void set_up(int device)
{
	open_world(&world, device);
	channel = ibv_create_comp_channel(world.context);
	cq = ibv_create_cq(world.context, 64, NULL, channel, 0);
	CHECK(channel && cq);
	qp = make_qp(&world, cq, 32);
}

static void round_trip(void)
{
	CHECK(post_write(&world, qp, 1, 0, 1) == 0 && drain(cq, 1) == 1);
}

static void *makes_round_trips(void *arg)
{
	for (;;)
		round_trip();
	return arg;
}

static void *polls(void *arg)
{
	struct ibv_wc wc;

	for (;;)
		CHECK(ibv_poll_cq(cq, 1, &wc) >= 0);
	return arg;
}

static void start(void *(*run)(void *))
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	usleep(20000);
}

/* The status of a child that runs `part`. */
static int status_of(void (*part)(void))
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(40);
		part();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

/* ---- fork ---- */

/* Nothing of the parent's can be used: calls fail, and do not wait. */
static void uses_its_parents_objects(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;
	struct ibv_port_attr port;
	struct ibv_cq *ev_cq;
	struct ibv_wc wc;
	void *context;

	CHECK(post_write(&world, qp, 1, 0, 1) == EIO && ibv_poll_cq(cq, 1, &wc) < 0);
	CHECK(ibv_req_notify_cq(cq, 0) == EIO && ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EIO);
	CHECK(ibv_query_port(world.context, 1, &port) == EIO);
	CHECK(FAILS(ibv_get_cq_event(channel, &ev_cq, &context) == -1, EIO));
	CHECK(FAILS(ibv_get_async_event(world.context, &event) == -1, EIO));
	CHECK(FAILS(!ibv_create_cq(world.context, 1, NULL, NULL, 0), EIO) && FAILS(!ibv_alloc_pd(world.context), EIO));
	CHECK(ibv_destroy_qp(qp) == EIO && ibv_dereg_mr(world.mr) == EIO);
	CHECK(ibv_close_device(world.context) == 0);
}

static void opens_another(void)
{
	static struct world own;

	open_world(&own, 1);
	world = own;
	cq = ibv_create_cq(own.context, 8, NULL, NULL, 0);
	CHECK(cq != NULL);
	qp = make_qp(&own, cq, 4);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
	close_world(&own);
}

static int after_close[2];

/* The device itself, as any other process, while the parent has it and afterwards. */
static void opens_the_same(void)
{
	char byte;

	set_up(0);
	round_trip();
	CHECK(read(after_close[0], &byte, 1) == 1);
	round_trip();
}

static void forks(void)
{
	pid_t child;
	int status;

	set_up(0);
	round_trip();
	for (int i = 0; i < 3; i++) {
		CHECK(status_of(uses_its_parents_objects) == 0);
		round_trip();
		CHECK(status_of(opens_another) == 0);
		round_trip();
	}
	CHECK(pipe(after_close) == 0);
	child = fork();
	if (child == 0) {
		alarm(40);
		opens_the_same();
		_exit(0);
	}
	usleep(100000);
	round_trip();
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
	close_world(&world);
	CHECK(write(after_close[1], "x", 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* While another thread posts and polls all the time. */
static void forks_under_traffic(void)
{
	set_up(0);
	start(makes_round_trips);
	for (int i = 0; i < 20; i++)
		CHECK(status_of(uses_its_parents_objects) == 0);
}

/* ---- exec ---- */

static void execs(void)
{
	set_up(0);
	start(makes_round_trips);
	execl("/proc/self/exe", self, "again", (char *)NULL);
	CHECK(0);
}

/* ---- many threads ---- */

static void *comes_and_goes(void *arg)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_cq *own = ibv_create_cq(world.context, 4, NULL, NULL, 0);
		struct ibv_qp *mine;
		struct ibv_wc wc;
		int n;

		CHECK(own != NULL);
		mine = make_qp(&world, own, 2);
		CHECK(post_write(&world, mine, 1, 0, 1) == 0);
		while ((n = ibv_poll_cq(own, 1, &wc)) == 0)
			/* Seldom: so many threads leave little of a small machine to whoever drives. */
			usleep(20000);
		CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
		CHECK(ibv_destroy_qp(mine) == 0 && ibv_destroy_cq(own) == 0);
	}
	return arg;
}

static void has_a_thousand_threads(void)
{
	static pthread_t threads[1000];
	pthread_attr_t small;

	set_up(0);
	CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 128 << 10) == 0);
	for (int i = 0; i < 1000; i++)
		CHECK(pthread_create(&threads[i], &small, comes_and_goes, NULL) == 0);
	for (int i = 0; i < 1000; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	round_trip();
}

/* ---- signals ---- */

static volatile sig_atomic_t handled;

static void handle(int signal)
{
	(void)signal;
	handled++;
}

static pthread_t waiter;

static void *interrupts(void *arg)
{
	for (int i = 0; i < 20; i++) {
		usleep(5000);
		pthread_kill(waiter, SIGUSR1);
	}
	usleep(20000);
	/* For those who wait again. */
	CHECK(post_write(&world, qp, 1, 0, 1) == 0);
	return arg;
}

static void is_interrupted(void)
{
	struct sigaction action = { .sa_handler = handle };
	struct ibv_async_event event;
	struct ibv_cq *ev_cq;
	pthread_t thread;
	void *context;

	set_up(0);
	waiter = pthread_self();
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && pthread_create(&thread, NULL, interrupts, NULL) == 0);
	CHECK(FAILS(ibv_get_cq_event(channel, &ev_cq, &context) == -1, EINTR) && handled > 0);
	CHECK(FAILS(ibv_get_async_event(world.context, &event) == -1, EINTR));
	CHECK(pthread_join(thread, NULL) == 0 && drain(cq, 1) == 1);

	action.sa_flags = SA_RESTART;
	handled = 0;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && ibv_req_notify_cq(cq, 0) == 0);
	CHECK(pthread_create(&thread, NULL, interrupts, NULL) == 0);
	CHECK(ibv_get_cq_event(channel, &ev_cq, &context) == 0 && handled > 0);
	ibv_ack_cq_events(cq, 1);
	CHECK(pthread_join(thread, NULL) == 0 && drain(cq, 1) == 1);
}

/* ---- the end ---- */

static void exits(void)
{
	set_up(0);
	start(polls);
	start(makes_round_trips);
	exit(7);
}

static void exits_at_once(void)
{
	set_up(0);
	start(polls);
	_exit(8);
}

static void aborts(void)
{
	set_up(0);
	start(polls);
	abort();
}

static void handle_by_exit(int signal)
{
	(void)signal;
	exit(9);
}

/* In a handler that has interrupted a call. */
static void exits_in_a_handler(void)
{
	set_up(0);
	signal(SIGALRM, handle_by_exit);
	ualarm(50000, 0);
	makes_round_trips(NULL);
}

/* The main thread ends, another one goes on and ends the process. */
static void *exits_later(void *arg)
{
	usleep(50000);
	round_trip();
	exit(10);
	return arg;
}

static void leaves_main(void)
{
	set_up(0);
	start(exits_later);
	pthread_exit(NULL);
}

static int exited(int status, int code)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

int main(int argc, char **argv)
{
	int status;

	self = argv[0];
	if (argc > 1) {
		set_up(0);
		round_trip();
		return 11;
	}
	CHECK(status_of(forks) == 0);
	CHECK(status_of(forks_under_traffic) == 0);
	CHECK(exited(status_of(execs), 11));
	CHECK(status_of(has_a_thousand_threads) == 0);
	CHECK(status_of(is_interrupted) == 0);
	CHECK(exited(status_of(exits), 7));
	CHECK(exited(status_of(exits_at_once), 8));
	status = status_of(aborts);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(exited(status_of(exits_in_a_handler), 9));
	CHECK(exited(status_of(leaves_main), 10));
	puts("all is well");
	return 0;
}
