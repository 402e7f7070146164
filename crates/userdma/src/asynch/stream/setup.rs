//! A stream before it is connected. How the sides come to know each other is not its affair.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use userdma_verbs::{AccessFlags, AckTimeout};

use super::flow::{Flow, Sizes, UNDER_WAY};
use super::halves::RdmaStream;
use super::offer::{MESSAGES, RINGS, StreamOffer};
use super::shared::Shared;
use super::state::{Owner, State};
use crate::asynch::ops::Key;
use crate::asynch::request::Request;
use crate::qp::Init;
use crate::{AsyncCq, AsyncQp, Endpoint, Error, Mr, Pd, RtrAttr, RtsAttr};

/// Attributes of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StreamAttr {
    /// Bytes that may have been sent and not been read, in each direction: a power of two from 16 KiB to 256 MiB, 512 KiB
    /// unless set. The smaller one of both sides holds. A stream takes twice that much memory on each side.
    pub ring: u32,
    /// Receives, and so messages that may be under way: 16 ..= 4096, 64 unless set. The smaller one of both sides holds.
    pub messages: u16,
    /// How often a peer that sends nothing is asked whether it is there: every 10 s unless set. With `None` a side that only
    /// reads waits for ever for a peer that has died.
    pub keep_alive: Option<Duration>,
    /// Attributes of the queue pair.
    pub rtr: RtrAttr,
    /// Attributes of the queue pair; a peer that does not answer is given up after 2 s unless they are set.
    pub rts: RtsAttr,
}

impl Default for StreamAttr {
    /// 512 KiB, 64 messages, 10 s, 2 s.
    fn default() -> Self {
        // 16 is below 32.
        let rts = RtsAttr { timeout: AckTimeout::new(16).unwrap_or_default(), ..RtsAttr::default() };
        let keep_alive = Some(Duration::from_secs(10));
        Self { ring: 512 << 10, messages: 64, keep_alive, rtr: RtrAttr::default(), rts }
    }
}

/// A stream that is not connected yet: its queue pair is in INIT, and its receives are posted. The sides tell each other
/// [`StreamSetup::endpoint`] and [`StreamSetup::offer`], as with [`exchange`](crate::exchange), and connect.
///
/// ```
/// use std::io::{Read, Write};
/// use userdma::{AsyncCq, Device, StreamAttr, StreamSetup};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Both sides in one program.
/// let (here, there) = (Device::open("127.0.21.22")?, Device::open("127.0.21.23")?);
/// let (cq, their_cq) = (AsyncCq::with_thread(&here, 256)?, AsyncCq::with_thread(&there, 256)?);
/// let setup = StreamSetup::new(&here.alloc_pd()?, &cq, StreamAttr::default())?;
/// let theirs = StreamSetup::new(&there.alloc_pd()?, &their_cq, StreamAttr::default())?;
/// let (to_us, to_them) = ((setup.endpoint(), setup.offer()), (theirs.endpoint(), theirs.offer()));
/// let mut stream = setup.connect(&to_them.0, &to_them.1)?.into_blocking();
/// let mut their_stream = theirs.connect(&to_us.0, &to_us.1)?.into_blocking();
///
/// stream.write_all(b"hello")?;
/// stream.shutdown()?;
/// let mut text = String::new();
/// their_stream.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a stream is connected by `connect`"]
pub struct StreamSetup {
    qp: AsyncQp<Init>,
    rest: Rest,
}

/// What a stream has besides its queue pair.
#[derive(Debug)]
pub(super) struct Rest {
    recvs: VecDeque<Key>,
    ring: Mr,
    pd: Pd,
    offer: StreamOffer,
    attr: StreamAttr,
}

impl StreamSetup {
    /// Places of a completion queue that a stream takes, with this many messages.
    pub const fn places(messages: u16) -> u32 {
        messages as u32 + SENDS
    }

    /// Makes queue pair and ring.
    ///
    /// # Errors
    /// [`Error::StreamSize`] for sizes that there are not; else as [`AsyncCq::create_qp`] and [`Pd::alloc`].
    pub fn new(pd: &Pd, cq: &AsyncCq, attr: StreamAttr) -> Result<Self, Error> {
        if !attr.ring.is_power_of_two() || !RINGS.contains(&attr.ring) || !MESSAGES.contains(&attr.messages) {
            return Err(Error::StreamSize { ring: attr.ring, messages: attr.messages });
        }
        let qp = cq.create_qp(pd, |qp| {
            qp.max_send_wr(SENDS)
                .max_recv_wr(attr.messages.into())
                .max_send_sge(1)
                .max_recv_sge(1)
                .max_inline_data(0)
                .access(AccessFlags::REMOTE_WRITE)
        })?;
        // At most 2^28.
        let len = usize::try_from(attr.ring).unwrap_or(0);
        let ring = pd.alloc(len, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
        let recvs = (0..attr.messages).map(|_| qp.shared().submit(Request::Recv(().into()))).collect();
        let offer = StreamOffer::new(ring.remote(), attr.messages);
        Ok(Self { qp, rest: Rest { recvs, ring, pd: pd.clone(), offer, attr } })
    }

    /// What the peer needs to connect the queue pair.
    pub fn endpoint(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// What the peer needs to know of the stream.
    pub fn offer(&self) -> StreamOffer {
        self.rest.offer
    }

    /// Connects. It does not wait for the peer. What is written before the peer has connected is sent again after an ACK
    /// timeout: exchange a word more to save that.
    ///
    /// # Errors
    /// [`Error::StreamOffer`] if the peer's offer is of no use; else as
    /// [`AsyncQp::connect_with`](crate::AsyncQp::connect_with).
    pub fn connect(self, peer: &Endpoint, offer: &StreamOffer) -> Result<RdmaStream, Error> {
        let Self { qp, rest } = self;
        let sizes = rest.agree(offer)?;
        let qp = qp.connect_with(peer, &rest.attr.rtr, &rest.attr.rts)?;
        rest.start(Owner { link: None, qp }, sizes, offer)
    }

    pub(super) fn attr(&self) -> StreamAttr {
        self.rest.attr
    }

    pub(super) fn into_parts(self) -> (AsyncQp<Init>, Rest) {
        (self.qp, self.rest)
    }
}

impl Rest {
    /// The sizes of a stream with a peer who offers this.
    pub(super) fn agree(&self, theirs: &StreamOffer) -> Result<Sizes, Error> {
        theirs.agree(&self.offer)
    }

    /// Starts the stream over a connected queue pair.
    pub(super) fn start(self, owner: Owner, sizes: Sizes, theirs: &StreamOffer) -> Result<RdmaStream, Error> {
        // At most ours, which is at most 2^28.
        let len = usize::try_from(sizes.ring).unwrap_or(0);
        let out = self.pd.alloc(len, AccessFlags::empty())?;
        let operations = Arc::clone(owner.qp.shared());
        let state = State::new(Flow::new(sizes), owner, self.recvs);
        let shared = Shared::start(operations, state, [self.ring, out], theirs.ring());
        // From here on it ends in order, also if nobody can watch it.
        let stream = RdmaStream::new(Arc::clone(&shared), sizes);
        if let Some(interval) = self.attr.keep_alive {
            self.pd.watch().add(&shared, interval)?;
        }
        Ok(stream)
    }
}

/// Sends of the queue pair: messages with bytes, one that tells of credits, the end, the departure, a question.
const SENDS: u32 = UNDER_WAY + 4;

#[cfg(test)]
mod tests {
    use super::super::state::PATIENCE;
    use super::super::watch::Watch;
    use super::*;
    use crate::Device;

    /// A device whose threads get so much stack, and a stream that is not connected yet.
    fn setup(address: &str, watch: Watch) -> (Pd, StreamSetup) {
        let mut device = Device::open(address).unwrap();
        device.watch = Arc::new(watch);
        let cq = AsyncCq::with_thread(&device, 256).unwrap();
        let pd = device.alloc_pd().unwrap();
        let setup = StreamSetup::new(&pd, &cq, StreamAttr::default()).unwrap();
        (pd, setup)
    }

    #[test]
    fn a_stream_that_cannot_be_watched_ends_in_order() {
        let (pd, ours) = setup("127.72.1.2", Watch::with_stack(1 << 56));
        let (_, theirs) = setup("127.72.1.3", Watch::default());
        let (to_us, to_them) = ((ours.endpoint(), ours.offer()), (theirs.endpoint(), theirs.offer()));
        let mut their_stream = theirs.connect(&to_us.0, &to_us.1).unwrap().into_blocking();
        their_stream.set_read_timeout(Some(Duration::from_secs(20)));
        let error = ours.connect(&to_them.0, &to_them.1).unwrap_err();
        assert!(matches!(error, Error::Io(_)), "{error}");
        assert_eq!(std::io::Read::read(&mut their_stream, &mut [0]).unwrap(), 0, "the peer is told");
        let end = userdma_host::uptime() + Duration::from_secs(20);
        while !pd.is_last() {
            assert!(userdma_host::uptime() < end, "queue pair and ring are there still");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_stream_that_was_left_ends_though_its_peer_never_reads() {
        let (pd, ours) = setup("127.72.1.4", Watch::default());
        let (_, theirs) = setup("127.72.1.5", Watch::default());
        let (to_us, to_them) = ((ours.endpoint(), ours.offer()), (theirs.endpoint(), theirs.offer()));
        let _never_read = theirs.connect(&to_us.0, &to_us.1).unwrap();
        let stream = ours.connect(&to_them.0, &to_them.1).unwrap();
        let shared = stream.shared();
        let mut stream = stream.into_blocking();
        stream.set_write_timeout(Some(Duration::from_millis(20)));
        // More than the peer's ring has room for.
        while std::io::Write::write(&mut stream, &[7; 1 << 16]).is_ok() {}
        let start = userdma_host::uptime();
        for seconds in [0, 1000, 2000] {
            shared.ask(start + Duration::from_secs(seconds));
        }
        assert!(shared.with_owner(|_| ()).is_some(), "the program has it");
        drop(stream);
        shared.ask(start);
        shared.ask(start + PATIENCE - Duration::from_nanos(1));
        assert!(shared.with_owner(|_| ()).is_some(), "the peer may read it still");
        shared.ask(start + PATIENCE);
        assert!(shared.with_owner(|_| ()).is_none());
        drop(shared);
        let end = userdma_host::uptime() + Duration::from_secs(20);
        while !pd.is_last() {
            assert!(userdma_host::uptime() < end, "queue pair and ring are there still");
            std::thread::yield_now();
        }
    }
}
