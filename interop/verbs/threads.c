/* Threads that are cancelled while they wait, and signal handlers that post and poll. Each part ends with the same question:
 * does the device still work if nobody calls, and is it idle if nothing is to do. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include "common.h"

static struct world world;
static struct ibv_comp_channel *channel;
/* One is polled, one reports to the channel. */
static struct ibv_cq *polled, *reporting;
static struct ibv_qp *polled_qp, *reporting_qp;
static volatile int is_over;

/* A WRITE arrives though nobody polls or waits: the progress thread is on duty. Without work it sleeps. */
static void works_alone(uint64_t round)
{
	double cpu, wall;

	usleep(50000);
	world.words[0] = round;
	CHECK(post_write(&world, polled_qp, round, 0, 1) == 0 && arrives(&world, 1, round));
	CHECK(drain(polled, 1) == 1);
	usleep(20000);
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	wall = seconds(CLOCK_MONOTONIC);
	usleep(400000);
	CHECK(seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu < (seconds(CLOCK_MONOTONIC) - wall) / 4);
}

static void *traffic(void *arg)
{
	struct ibv_wc wc;

	while (!is_over) {
		CHECK(post_write(&world, polled_qp, 1, 2, 3) == 0 && post_write(&world, reporting_qp, 2, 2, 3) == 0);
		CHECK(drain(polled, 1) == 1);
		while (!is_over && ibv_poll_cq(reporting, 1, &wc) == 0)
			;
		usleep(200);
	}
	return arg;
}

static void *waits_for_completions(void *arg)
{
	struct ibv_cq *cq;
	void *context;

	for (;;) {
		CHECK(ibv_req_notify_cq(reporting, 0) == 0);
		if (ibv_get_cq_event(channel, &cq, &context) == 0)
			ibv_ack_cq_events(cq, 1);
	}
	return arg;
}

static void *waits_for_async_events(void *arg)
{
	struct ibv_async_event event;

	for (;;)
		if (ibv_get_async_event(world.context, &event) == 0)
			ibv_ack_async_event(&event);
	return arg;
}

static void cancelled_200_times(void *(*waits)(void *))
{
	pthread_t runner, waiter;
	struct ibv_wc wc;
	void *result;

	is_over = 0;
	CHECK(pthread_create(&runner, NULL, traffic, NULL) == 0);
	for (int i = 0; i < 200; i++) {
		CHECK(pthread_create(&waiter, NULL, waits, NULL) == 0);
		usleep(i % 10 * 100);
		CHECK(pthread_cancel(waiter) == 0 && pthread_join(waiter, &result) == 0 && result == PTHREAD_CANCELED);
	}
	is_over = 1;
	CHECK(pthread_join(runner, NULL) == 0);
	usleep(10000);
	while (ibv_poll_cq(reporting, 1, &wc) > 0)
		;
}

/* Takes the events that are left. */
static void forget_events(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	while (ibv_get_cq_event(channel, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
	CHECK(errno == EAGAIN && fcntl(channel->fd, F_SETFL, 0) == 0);
}

/* Two wait, one is cancelled: the other is still woken. */
static void *waits_once(void *arg)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_get_cq_event(channel, &cq, &context) == 0 && cq == reporting);
	ibv_ack_cq_events(cq, 1);
	return arg;
}

static void one_of_two_cancelled(void)
{
	pthread_t other, waiter;

	forget_events();
	CHECK(ibv_req_notify_cq(reporting, 0) == 0);
	CHECK(pthread_create(&other, NULL, waits_once, NULL) == 0);
	usleep(10000);
	CHECK(pthread_create(&waiter, NULL, waits_once, NULL) == 0);
	usleep(10000);
	CHECK(pthread_cancel(waiter) == 0 && pthread_join(waiter, NULL) == 0);
	usleep(50000);
	CHECK(post_write(&world, reporting_qp, 4, 2, 3) == 0 && pthread_join(other, NULL) == 0);
	CHECK(drain(reporting, 1) == 1);
}

static volatile sig_atomic_t handled, posted_by_handler, polled_by_handler, refused_to_handler;

static void posts_and_polls(int signal)
{
	struct ibv_wc wc;
	int saved = errno, answer;

	(void)signal;
	handled++;
	answer = post_write(&world, polled_qp, 7, 4, 5);
	CHECK(answer == 0 || answer == EAGAIN || answer == ENOMEM);
	posted_by_handler += answer == 0;
	refused_to_handler += answer == EAGAIN;
	answer = ibv_poll_cq(polled, 1, &wc);
	CHECK(answer == 0 || (answer == 1 && wc.status == IBV_WC_SUCCESS));
	polled_by_handler += answer;
	errno = saved;
}

static void signals_every_60_us(void)
{
	struct sigaction action = { .sa_handler = posts_and_polls, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, 60 }, { 0, 60 } };

	handled = posted_by_handler = polled_by_handler = refused_to_handler = 0;
	CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void no_signals(void)
{
	struct sigaction action = { .sa_handler = SIG_DFL };
	struct itimerval never = { { 0, 0 }, { 0, 0 } };

	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
}

/* A handler interrupts posts and polls of its own thread, and posts and polls itself: it never waits for what it has
 * interrupted, and whatever was posted completes. */
static void interrupted_by_a_handler(void)
{
	struct ibv_wc wc[4];
	int posted = 0, found = 0;

	signals_every_60_us();
	while (handled < 20000) {
		int answer = post_write(&world, polled_qp, 6, 4, 5);

		CHECK(answer == 0 || answer == ENOMEM);
		posted += answer == 0;
		for (int i = 0; i < 4; i++) {
			int n = ibv_poll_cq(polled, 4, wc);

			CHECK(n >= 0);
			found += n;
		}
	}
	no_signals();
	posted += posted_by_handler;
	found += polled_by_handler;
	CHECK(found <= posted && found + drain(polled, posted - found) == posted);
	CHECK(posted_by_handler > 0 && ibv_poll_cq(polled, 1, wc) == 0);
	printf("%d signals, %d posts by the handler, %d of its posts refused\n", (int)handled, (int)posted_by_handler,
	       (int)refused_to_handler);
}

static void *makes_queues(void *arg)
{
	struct ibv_cq *cq;

	while (!is_over) {
		CHECK((cq = ibv_create_cq(world.context, 256, NULL, NULL, 0)) != NULL);
		CHECK(ibv_destroy_cq(cq) == 0);
	}
	return arg;
}

/* A handler interrupts the C library's allocator, whose lock it then must not want, while another thread makes and destroys
 * queues: those who post and poll do not do that thread's work. */
static void interrupted_in_the_allocator(void)
{
	sigset_t alarms;
	pthread_t maker;

	is_over = 0;
	CHECK(sigemptyset(&alarms) == 0 && sigaddset(&alarms, SIGALRM) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, &alarms, NULL) == 0);
	CHECK(pthread_create(&maker, NULL, makes_queues, NULL) == 0);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL) == 0);
	signals_every_60_us();
	while (handled < 20000) {
		void *volatile blocks[64];

		/* Too large for what each thread keeps for itself. */
		for (int i = 0; i < 64; i++)
			CHECK((blocks[i] = malloc(2000 + i * 100)) != NULL);
		for (int i = 0; i < 64; i++)
			free(blocks[i]);
	}
	no_signals();
	is_over = 1;
	CHECK(pthread_join(maker, NULL) == 0);
	CHECK(drain(polled, posted_by_handler - polled_by_handler) == posted_by_handler - polled_by_handler);
}

int main(void)
{
	open_world(&world, 0);
	channel = ibv_create_comp_channel(world.context);
	polled = ibv_create_cq(world.context, 256, NULL, NULL, 0);
	reporting = ibv_create_cq(world.context, 1024, NULL, channel, 0);
	CHECK(channel && polled && reporting);
	polled_qp = make_qp(&world, polled, 64);
	reporting_qp = make_qp(&world, reporting, 64);
	works_alone(100);
	cancelled_200_times(waits_for_completions);
	works_alone(101);
	cancelled_200_times(waits_for_async_events);
	works_alone(102);
	one_of_two_cancelled();
	works_alone(103);
	interrupted_by_a_handler();
	works_alone(104);
	interrupted_in_the_allocator();
	works_alone(105);
	CHECK(ibv_destroy_qp(polled_qp) == 0 && ibv_destroy_qp(reporting_qp) == 0);
	CHECK(ibv_destroy_cq(polled) == 0 && ibv_destroy_cq(reporting) == 0 && ibv_destroy_comp_channel(channel) == 0);
	close_world(&world);
	puts("all is well");
	return 0;
}
