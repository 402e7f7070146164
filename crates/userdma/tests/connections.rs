//! Connections by address and port: who listens, who connects, what both sides say, and how it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{ALL, LONG};
use futures_executor::block_on;
use futures_util::join;
use userdma::{
    AsyncCq, AsyncQp, CmError, ConnAttr, ConnectError, Connection, Device, Init, Inline, Listener, Mr, Pd,
    Qp, RtrAttr, RtsAttr, SendFlags, WcStatus,
};

/// A side: a device on 127.45.`net`.`host`, and what queue pairs are made of.
struct Side {
    device: Device,
    pd: Pd,
    cq: AsyncCq,
}

fn sides(net: u8) -> [Side; 2] {
    [2, 3].map(|host| side(net, host, ""))
}

fn side(net: u8, host: u8, faults: &str) -> Side {
    let device = Device::builder().address([127, 45, net, host]).faults(faults).open().unwrap();
    let (pd, cq) = (device.alloc_pd().unwrap(), AsyncCq::with_thread(&device, 256).unwrap());
    Side { device, pd, cq }
}

impl Side {
    fn qp(&self) -> AsyncQp<Init> {
        self.cq.create_qp(&self.pd, |qp| qp.max_send_wr(8).max_recv_wr(8)).unwrap()
    }

    fn listen(&self) -> Listener {
        let address = self.device.gids().next().unwrap().ip();
        Listener::bind(&self.device, (address, 0)).unwrap()
    }

    fn mr(&self) -> Mr {
        self.pd.alloc(4096, ALL).unwrap()
    }
}

/// Both ends of a connection.
async fn connected(server: &Side, client: &Side, [theirs, ours]: [&ConnAttr; 2]) -> (Connection, Connection) {
    let listener = server.listen();
    let accepting = async { listener.accept().await?.accept(server.qp(), theirs).await };
    let connecting = Connection::connect(&client.device, listener.local_addr(), client.qp(), ours);
    let (accepted, made) = join!(accepting, connecting);
    (accepted.unwrap(), made.unwrap())
}

#[test]
fn both_sides_hear_what_the_other_says_and_agree_about_depths() {
    let [server, client] = sides(50);
    let depths = |offered, wanted, said: &str| ConnAttr {
        rtr: RtrAttr { max_dest_rd_atomic: offered, ..RtrAttr::default() },
        rts: RtsAttr { max_rd_atomic: wanted, ..RtsAttr::default() },
        private_data: said.into(),
    };
    let (theirs, ours) = (depths(4, 16, "welcome"), depths(8, 7, "a word from the client"));
    block_on(async {
        let listener = server.listen();
        let accepting = async {
            let request = listener.accept().await.unwrap();
            assert!(request.private_data().starts_with(b"a word from the client\0"));
            assert_eq!(request.peer_addr().ip().to_string(), "127.45.50.3");
            request.accept(server.qp(), &theirs).await.unwrap()
        };
        let connecting = Connection::connect(&client.device, listener.local_addr(), client.qp(), &ours);
        let (accepted, made) = join!(accepting, connecting);
        let made = made.unwrap();
        assert!(made.private_data().starts_with(b"welcome\0"));
        assert_eq!(made.private_data().len(), 196);
        assert_eq!((made.depths().responder_resources, made.depths().initiator_depth), (8, 4));
        assert_eq!((accepted.depths().responder_resources, accepted.depths().initiator_depth), (4, 8));
        assert_eq!(
            (made.peer_addr(), accepted.peer_addr()),
            (listener.local_addr(), made.local_addr().unwrap())
        );

        let mr = server.mr();
        let (sent, came) = join!(made.send(Inline(b"hello")), accepted.recv(mr.slice(..)));
        sent.unwrap();
        assert_eq!(came.unwrap().byte_len, 5);
        made.write(Inline(b"one-sided"), mr.remote()).await.unwrap();
        assert_eq!(mr.to_vec(..9).unwrap(), b"one-sided");
    });
}

#[test]
fn nobody_who_listens_is_told_at_once() {
    let [_server, client] = sides(51);
    let result =
        block_on(Connection::connect(&client.device, "127.45.51.2:7", client.qp(), &ConnAttr::default()));
    let error = result.unwrap_err();
    assert!(matches!(error, ConnectError::NoListener(_)), "{error}");
    assert_eq!(error.to_string(), "nobody listens on 127.45.51.2:7");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn who_is_refused_hears_why() {
    let [server, client] = sides(52);
    let listener = server.listen();
    let refusing = async { listener.accept().await.unwrap().reject(b"full") };
    let attr = ConnAttr::default();
    let connecting = Connection::connect(&client.device, listener.local_addr(), client.qp(), &attr);
    let (refused, result) = block_on(async { join!(refusing, connecting) });
    refused.unwrap();
    let error = result.unwrap_err();
    let ConnectError::Rejected { private_data, .. } = &error else { panic!("{error}") };
    assert!(private_data.starts_with(b"full\0"));
    assert!(error.to_string().ends_with("has refused the connection: \"full\""), "{error}");
}

#[test]
fn a_request_that_is_dropped_is_refused() {
    let [server, client] = sides(53);
    let listener = server.listen();
    let dropping = async { drop(listener.accept().await.unwrap()) };
    let attr = ConnAttr::default();
    let connecting = Connection::connect(&client.device, listener.local_addr(), client.qp(), &attr);
    let ((), result) = block_on(async { join!(dropping, connecting) });
    assert!(matches!(result, Err(ConnectError::Rejected { .. })), "{result:?}");
}

#[test]
fn a_listener_that_is_dropped_refuses_who_waits_for_it() {
    let [server, client] = sides(68);
    let (listener, other, attr) = (server.listen(), server.listen(), ConnAttr::default());
    let ask = |listener: &Listener| {
        Box::pin(Connection::connect(&client.device, listener.local_addr(), client.qp(), &attr))
    };
    let mut asking: Vec<_> = [&listener; 6].into_iter().chain([&other]).map(ask).collect();
    let mut cx = Context::from_waker(Waker::noop());
    // Each has sent its request when it is asked for the first time.
    for connecting in &mut asking {
        assert!(connecting.as_mut().poll(&mut cx).is_pending());
    }
    // Requests come in order: when the last one is there, the others wait.
    drop(other.accept_blocking(LONG).unwrap());
    drop(listener);
    let end = userdma_host::uptime() + LONG.unwrap();
    for mut connecting in asking {
        let result = loop {
            if let Poll::Ready(result) = connecting.as_mut().poll(&mut cx) {
                break result;
            }
            assert!(userdma_host::uptime() < end, "nobody tells");
            std::thread::yield_now();
        };
        let error = result.unwrap_err();
        assert!(matches!(error, ConnectError::Rejected { .. }), "{error}");
    }
}

#[test]
fn whoever_has_given_up_waiting_is_forgotten() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let [server, _client] = sides(69);
    let (listener, task) = (server.listen(), Arc::new(Task));
    let waker = Waker::from(Arc::clone(&task));
    let before = Arc::strong_count(&task);
    for _ in 0..10 {
        let mut accepting = Box::pin(listener.accept());
        assert!(accepting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(Arc::strong_count(&task) > before, "it waits");
        drop(accepting);
        assert_eq!(Arc::strong_count(&task), before);
        let limit = Some(Duration::from_millis(1));
        assert!(matches!(listener.accept_blocking(limit), Err(ConnectError::TimedOut)));
    }
}

#[test]
fn a_device_that_is_not_there_does_not_answer_and_waiting_can_be_given_up() {
    let client = side(54, 3, "");
    let attr = ConnAttr::default();
    let limit = Some(Duration::from_millis(300));
    let result = Connection::connect_blocking(&client.device, "127.45.54.9:7471", client.qp(), &attr, limit);
    let error = result.unwrap_err();
    // It would be asked for 77 s until it counts as unreachable.
    assert!(matches!(error, ConnectError::TimedOut), "{error}");
}

/// Receives end when the peer disconnects: nothing else would tell a program that only receives.
#[test]
fn a_peer_that_disconnects_ends_receives() {
    let [server, client] = sides(55);
    block_on(async {
        let attr = ConnAttr::default();
        let (accepted, made) = connected(&server, &client, [&attr, &attr]).await;
        let mr = server.mr();
        let (came, ended) = join!(accepted.recv(mr.slice(..)), made.disconnect());
        ended.unwrap();
        assert!(came.unwrap_err().is_flushed());
        accepted.closed().await;
        assert!(accepted.is_closed());
        accepted.disconnect().await.unwrap();
    });
}

#[test]
fn dropping_a_connection_ends_it_for_the_peer() {
    let [server, client] = sides(56);
    block_on(async {
        let attr = ConnAttr::default();
        for _ in 0..3 {
            let (accepted, made) = connected(&server, &client, [&attr, &attr]).await;
            drop(accepted);
            made.closed().await;
            let mr = client.mr();
            assert!(made.recv(mr.slice(..)).await.unwrap_err().is_flushed());
        }
    });
}

#[test]
fn many_connect_to_one_listener_over_a_bad_network() {
    let faults = "loss=0.05,seed=9";
    let [server, client] = [side(57, 2, faults), side(57, 3, faults)];
    let listener = server.listen();
    let attr = ConnAttr::default();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (qp, to) = (client.qp(), listener.local_addr());
                let made = Connection::connect_blocking(&client.device, to, qp, &attr, LONG).unwrap();
                block_on(made.send(Inline(b"here"))).unwrap();
                made.disconnect_blocking().unwrap();
            });
        }
        for _ in 0..8 {
            let request = listener.accept_blocking(LONG).unwrap();
            let mr = server.mr();
            let qp = server.qp();
            let mut messages = qp.receives([mr.slice(..64)]);
            let accepted = request.accept_blocking(qp, &attr, LONG).unwrap();
            assert_eq!(block_on(messages.next()).unwrap().unwrap().to_vec().unwrap(), b"here");
            block_on(accepted.closed());
        }
    });
}

/// The same with queue pairs to which work requests are posted.
#[test]
fn queue_pairs_that_are_polled_connect_too() {
    let [server, client] = sides(58);
    let listener = server.listen();
    let make = |side: &Side| {
        let cq = side.device.create_cq(32).unwrap();
        let qp: Qp<Init> = side.pd.create_qp(&cq, &cq).max_send_wr(8).max_recv_wr(8).build().unwrap();
        (cq, qp)
    };
    let ((cq, qp), mr) = (make(&server), server.mr());
    qp.post_recv(1, &mr.slice(..)).unwrap();
    qp.post_recv(2, &mr.slice(..)).unwrap();
    let attr = ConnAttr::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (cq, qp) = make(&client);
            let made =
                Connection::connect_blocking(&client.device, listener.local_addr(), qp, &attr, LONG).unwrap();
            made.post_send(1, Inline(b"polled"), SendFlags::SIGNALED).unwrap();
            cq.wait_for(1, LONG).unwrap()[0].check().unwrap();
            made.disconnect_blocking().unwrap();
        });
        let accepted = listener.accept_blocking(LONG).unwrap().accept_blocking(qp, &attr, LONG).unwrap();
        let wcs = cq.wait_for(2, LONG).unwrap();
        assert_eq!(wcs[0].check().unwrap().byte_len, 6);
        assert_eq!(wcs[1].status, WcStatus::WrFlushErr, "the peer has disconnected");
        drop(accepted);
    });
}

#[test]
fn a_port_is_had_once_and_is_free_again() {
    let [server, _] = sides(59);
    let listener = server.listen();
    let again = Listener::bind(&server.device, listener.local_addr()).unwrap_err();
    assert_eq!(again.to_string(), format!("port {} is taken", listener.local_addr().port()));
    assert_eq!(std::io::Error::from(again).kind(), std::io::ErrorKind::AddrInUse);
    let address = listener.local_addr();
    drop(listener);
    Listener::bind(&server.device, address).unwrap();
    let elsewhere = Listener::bind(&server.device, "127.45.59.77:7").unwrap_err();
    assert_eq!(elsewhere.to_string(), "no device has the address 127.45.59.77");
    let nonsense = Listener::bind(&server.device, "no address").unwrap_err();
    assert!(nonsense.to_string().starts_with("cannot use the address: "), "{nonsense}");
}

#[test]
fn too_much_private_data_is_refused_and_connecting_can_be_tried_again() {
    let [server, client] = sides(68);
    let listener = server.listen();
    let attr = ConnAttr::saying([7_u8; 57]);
    let result = block_on(Connection::connect(&client.device, listener.local_addr(), client.qp(), &attr));
    let error = result.unwrap_err();
    assert!(matches!(error, ConnectError::Cm(CmError::PrivateData { .. })), "{error}");
    assert_eq!(error.to_string(), "57 bytes of private data, at most 56 fit");
    block_on(connected(&server, &client, [&ConnAttr::saying([7_u8; 196]), &ConnAttr::saying([7_u8; 56])]));
}

#[test]
fn a_queue_pair_of_another_device_is_refused() {
    let [server, client] = sides(62);
    let listener = server.listen();
    let attr = ConnAttr::default();
    let wrong = Connection::connect(&client.device, listener.local_addr(), server.qp(), &attr);
    assert_eq!(block_on(wrong).unwrap_err().to_string(), "the queue pair belongs to another device");
    let accepting = async { listener.accept().await?.accept(client.qp(), &attr).await };
    let connecting = Connection::connect(&client.device, listener.local_addr(), client.qp(), &attr);
    let (accepted, made) = block_on(async { join!(accepting, connecting) });
    assert!(matches!(accepted, Err(ConnectError::Setup(_))), "{accepted:?}");
    assert!(matches!(made, Err(ConnectError::Rejected { .. })), "{made:?}");
}
