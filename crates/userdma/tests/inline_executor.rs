//! An executor that runs its task in the very call that wakes it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use userdma::{AsyncCq, ConnAttr, ConnectError, Connection, Device, Listener};

/// A task.
struct Inline(Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        // It is done when it has told.
        let _ = self.0.lock().unwrap().as_mut().poll(&mut Context::from_waker(&waker));
    }
}

#[test]
fn a_task_may_run_where_it_is_woken() {
    let [server, client] = ["127.71.8.1", "127.71.8.2"].map(|ip| Device::open(ip).unwrap());
    let listener = Listener::bind(&server, "127.71.8.1:0").unwrap();
    let address = listener.local_addr();
    let (tell, told) = channel();
    let refusing = async move {
        // Asks the manager who the peer is, and refuses him.
        let request = listener.accept().await.unwrap();
        tell.send(request.peer_addr()).unwrap();
        drop(request);
        std::future::pending::<()>().await;
    };
    Arc::new(Inline(Mutex::new(Box::pin(refusing)))).wake();
    let connecting = std::thread::spawn(move || {
        let (pd, cq) = (client.alloc_pd().unwrap(), AsyncCq::with_thread(&client, 1024).unwrap());
        let qp = cq.create_qp(&pd, |qp| qp).unwrap();
        Connection::connect_blocking(&client, address, qp, &ConnAttr::default(), Some(LONG)).map(drop)
    });
    assert_eq!(told.recv_timeout(LONG).unwrap().ip().to_string(), "127.71.8.2");
    assert!(matches!(connecting.join().unwrap(), Err(ConnectError::Rejected { .. })));
}

const LONG: Duration = Duration::from_secs(30);
