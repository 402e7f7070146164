//! What another process offers: memory, and how values are said.

use std::time::Duration;

use userdma::{Device, Endpoint, Exchange, RemoteMr};
use userdma_other::{Other, say};

use super::ALL;

/// Opens memory to whoever sends its endpoint on the standard input, and sleeps for ever.
pub(crate) fn offer_memory(address: &str, len: usize) {
    let device = Device::open(address).unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(1).unwrap();
    let mr = pd.alloc(len, ALL).unwrap();
    let qp = pd.create_qp(&cq, &cq).build().unwrap();
    say(&hex(&(qp.endpoint(), mr.remote())));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let _qp = qp.connect(&unhex(&line)).unwrap();
    say("connected");
    std::thread::sleep(Duration::from_secs(60));
}

/// The parent's side of [`offer_memory`].
pub(crate) fn meet(other: &mut Other, ours: &Endpoint) -> (Endpoint, RemoteMr) {
    let theirs = unhex(&other.line());
    other.tell(&hex(ours));
    assert_eq!(other.line(), "connected");
    theirs
}

pub(crate) fn hex<T: Exchange>(value: &T) -> String {
    let mut bytes = vec![0; T::LEN];
    value.encode(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex<T: Exchange>(text: &str) -> T {
    let digits = text.trim().as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    T::decode(&bytes)
}
