//! Shared receive queues: several connections take from one, receives hold their memory, and nothing is lost when
//! connections or completion queues go.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::time::Duration;

use userdma::{
    AccessFlags, AsyncCq, AsyncEvent, Cq, Device, Error, Inline, Mr, ObjectError, Pd, PostError, Qp, QpAttr,
    QpAttrMask, QpState, Rts, SendFlags, Srq, SrqAttr, Wc, WcStatus,
};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const SIGNALED: SendFlags = SendFlags::SIGNALED;
/// Bytes that a receive has room for.
const ROOM: usize = 8192;

/// A server with a shared receive queue, and a client.
struct Bench {
    device: Device,
    pd: Pd,
    srq: Srq,
    mr: Mr,
    client_pd: Pd,
    client_cq: Cq,
}

impl Bench {
    /// On 127.0.`net`.2 and 127.0.`net`.3, with room for `max_wr` receives.
    fn new(net: u8, max_wr: u32) -> Self {
        let open = |host| Device::builder().address([127, 0, net, host]).open().unwrap();
        let (device, client) = (open(2), open(3));
        let pd = device.alloc_pd().unwrap();
        let srq = pd.create_srq(max_wr, 2).unwrap();
        let mr = pd.alloc(ROOM * max_wr as usize, AccessFlags::LOCAL_WRITE).unwrap();
        let (client_pd, client_cq) = (client.alloc_pd().unwrap(), client.create_cq(512).unwrap());
        Self { device, pd, srq, mr, client_pd, client_cq }
    }

    /// A connection: the server's end, which completes on `cq`, and the client's.
    fn connect(&self, cq: &Cq) -> (Qp<Rts>, Qp<Rts>) {
        let here = self.pd.create_qp(cq, cq).srq(&self.srq).build().unwrap();
        let there = self.client_pd.create_qp(&self.client_cq, &self.client_cq).build().unwrap();
        let (to_here, to_there) = (here.endpoint(), there.endpoint());
        (here.connect(&to_there).unwrap(), there.connect(&to_here).unwrap())
    }

    /// Posts a receive, whose number says its place.
    fn post(&self, wr_id: u64) {
        let start = ROOM * usize::try_from(wr_id).unwrap();
        self.srq.post_recv(wr_id, &self.mr.slice(start..start + ROOM)).unwrap();
    }

    /// The bytes of a receive that has completed.
    fn received(&self, wc: &Wc) -> Vec<u8> {
        wc.check().unwrap();
        let start = ROOM * usize::try_from(wc.wr_id).unwrap();
        self.mr.to_vec(start..start + wc.byte_len as usize).unwrap()
    }

    fn client_done(&self) {
        let wc = self.client_cq.wait_for(1, LONG).unwrap().pop().expect("a completion");
        wc.check().unwrap();
    }
}

fn next(cq: &Cq) -> Wc {
    cq.wait_for(1, LONG).unwrap().pop().expect("a completion")
}

fn is_full(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Post(PostError::QueueFull { .. })))
}

#[test]
fn connections_take_from_one_queue_and_threads_post_to_it() {
    const EACH: u64 = 300;
    let bench = Bench::new(71, 16);
    let cqs = [(); 2].map(|()| bench.device.create_cq(256).unwrap());
    let ends: Vec<_> = [0, 1, 0].map(|cq: usize| bench.connect(&cqs[cq])).into_iter().collect();
    (0..16).for_each(|wr_id| bench.post(wr_id));
    assert!(is_full(bench.srq.post_recv(99, ())), "every place is taken");
    std::thread::scope(|scope| {
        for (sender, (_, there)) in ends.iter().enumerate() {
            scope.spawn(move || {
                for message in 0..EACH {
                    let bytes = [u8::try_from(sender).unwrap(); 100];
                    let text = [&message.to_be_bytes()[..], &bytes].concat();
                    while is_full(there.post_send(message, Inline(&text), SIGNALED)) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for (cq, connections) in cqs.iter().zip([2, 1]) {
            let (bench, ends) = (&bench, &ends);
            scope.spawn(move || {
                let mut expected = vec![0; ends.len()];
                for _ in 0..connections * EACH {
                    let wc = next(cq);
                    let sender = ends.iter().position(|(here, _)| here.qpn() == wc.qpn).unwrap();
                    let number = u8::try_from(sender).unwrap();
                    let text = [&u64::to_be_bytes(expected[sender])[..], &[number; 100]].concat();
                    assert_eq!(bench.received(&wc), text);
                    expected[sender] += 1;
                    bench.post(wc.wr_id);
                }
            });
        }
        (0..3 * EACH).for_each(|_| bench.client_done());
    });
}

#[test]
fn what_does_not_go_with_a_shared_queue_is_refused() {
    let bench = Bench::new(72, 4);
    let cq = bench.device.create_cq(16).unwrap();
    let (here, _there) = bench.connect(&cq);
    assert_eq!((here.cap().max_recv_wr, bench.srq.attr().max_wr), (0, 4));
    let other = Device::open("127.0.72.4").unwrap().alloc_pd().unwrap();
    let other_srq = other.create_srq(1, 1).unwrap();
    let memory = other.alloc(8, AccessFlags::LOCAL_WRITE).unwrap();
    let futures = AsyncCq::with_thread(&bench.device, 256).unwrap();
    let three = [0, 8, 16].map(|at| bench.mr.slice(at..at + 8));
    let refusals = [
        (
            here.post_recv(1, ()).err(),
            "cannot post: receives are posted to the shared receive queue of this queue pair",
        ),
        (
            bench.pd.create_qp(&cq, &cq).srq(&other_srq).build().err(),
            "the shared receive queue belongs to another device",
        ),
        (bench.srq.post_recv(1, &memory.slice(..)).err(), "the memory region belongs to another device"),
        (bench.srq.post_recv(1, &three).err(), "cannot post: 3 scatter/gather elements, the queue takes 2"),
        (
            bench.pd.create_srq(0, 1).err(),
            "cannot create the shared receive queue: max_wr is 0, 1 to 65536 are possible",
        ),
        (
            bench.pd.create_srq(1, 33).err(),
            "cannot create the shared receive queue: max_sge is 33, 0 to 32 are possible",
        ),
        (
            bench.srq.set_limit(5).err(),
            "cannot modify the shared receive queue: srq_limit is 5, 0 to 4 are possible now",
        ),
        (
            futures.create_qp(&bench.pd, |qp| qp.srq(&bench.srq)).err(),
            "a queue pair whose operations are futures has receives of its own, and no shared receive queue",
        ),
    ];
    for (error, text) in refusals {
        assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(text));
    }
}

#[test]
fn a_posted_receive_holds_its_memory_until_the_queue_goes() {
    let bench = Bench::new(73, 4);
    let cq = bench.device.create_cq(16).unwrap();
    let (here, there) = bench.connect(&cq);
    let memory = bench.pd.alloc(64, AccessFlags::LOCAL_WRITE).unwrap();
    bench.srq.post_recv(0, &memory.slice(..)).unwrap();
    bench.srq.post_recv(1, &memory.slice(..)).unwrap();
    there.post_send(1, Inline(b"x"), SIGNALED).unwrap();
    assert_eq!(next(&cq).wr_id, 0);
    // The second is still posted, whatever becomes of the connection.
    drop(here);
    let busy = memory.deregister().unwrap_err();
    assert!(matches!(busy.reason, Error::Object(ObjectError::Busy { .. })));
    let Bench { srq, .. } = bench;
    drop(srq);
    busy.mr.deregister().unwrap();
}

#[test]
fn what_a_message_under_way_had_taken_comes_back_flushed() {
    let bench = Bench::new(74, 2);
    let cq = bench.device.create_cq(16).unwrap();
    let source = bench.client_pd.alloc(1 << 20, AccessFlags::empty()).unwrap();
    let (here, there) = bench.connect(&cq);
    let (other, other_there) = bench.connect(&cq);
    bench.post(0);
    // Too long for the receive: the connection fails, the other one goes on with the same queue.
    there.post_send(1, &source.slice(..ROOM + 1), SIGNALED).unwrap();
    let wc = next(&cq);
    assert_eq!((wc.wr_id, wc.status, wc.qpn), (0, WcStatus::LocLenErr, here.qpn()));
    assert_eq!(
        bench.device.wait_event(LONG).unwrap(),
        Some(AsyncEvent::QpLastWqeReached { qpn: here.qpn() })
    );
    assert_eq!(bench.client_cq.wait_for(1, LONG).unwrap()[0].status, WcStatus::RemInvReqErr);
    bench.post(0);
    bench.post(1);
    assert!(is_full(bench.srq.post_recv(9, ())));
    other_there.post_send(2, Inline(b"still here"), SIGNALED).unwrap();
    let wc = next(&cq);
    assert_eq!((bench.received(&wc), wc.qpn), (b"still here".to_vec(), other.qpn()));
    // A reset goes through the error state and can be connected again.
    let reset = QpAttr { qp_state: QpState::Reset, ..QpAttr::default() };
    other.modify(&reset, QpAttrMask::STATE).unwrap();
    assert_eq!(other.state(), QpState::Reset);
}

#[test]
fn the_limit_is_an_event_once_and_places_of_a_dropped_completion_queue_come_back() {
    let bench = Bench::new(75, 3);
    let cq = bench.device.create_cq(16).unwrap();
    let (here, there) = bench.connect(&cq);
    (0..3).for_each(|wr_id| bench.post(wr_id));
    bench.srq.set_limit(2).unwrap();
    for wr_id in 0..3 {
        there.post_send(wr_id, Inline(b"x"), SIGNALED).unwrap();
        bench.client_done();
    }
    let srqn = bench.srq.srqn();
    assert_eq!(bench.device.wait_event(LONG).unwrap(), Some(AsyncEvent::SrqLimitReached { srqn }));
    assert_eq!(bench.srq.attr(), SrqAttr { max_wr: 3, max_sge: 2, srq_limit: 0 });
    assert_eq!(bench.device.poll_event().unwrap(), None);
    assert!(is_full(bench.srq.post_recv(9, ())), "nobody has polled the completions");
    drop(here);
    drop(cq);
    (0..3).for_each(|wr_id| bench.post(wr_id));
    assert!(is_full(bench.srq.post_recv(9, ())));
}
