//! What the sides of a stream tell each other before they connect: sizes, and where the ring lies.

use userdma_verbs::RKey;

use super::flow::Sizes;
use crate::{Error, Exchange, RemoteMr};

/// One side's part of a stream: the version of the protocol, its ring, the receives that it has posted. 24 bytes in an
/// [`exchange`](crate::exchange) or in the private data of a connection request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StreamOffer {
    /// Three letters and the version.
    magic: [u8; 4],
    ring: RemoteMr,
    messages: u16,
}

impl StreamOffer {
    pub(super) fn new(ring: RemoteMr, messages: u16) -> Self {
        Self { magic: MAGIC, ring, messages }
    }

    /// The offer in the private data of a connection, which may be anything.
    pub(super) fn of(private_data: &[u8]) -> Self {
        let mut bytes = [0; Self::LEN];
        let len = private_data.len().min(Self::LEN);
        bytes[..len].copy_from_slice(&private_data[..len]);
        Self::decode(&bytes)
    }

    /// Where the ring lies.
    pub fn ring(&self) -> RemoteMr {
        self.ring
    }

    /// What two offers come to: the smaller of each.
    ///
    /// # Errors
    /// [`Error::StreamOffer`] if this one is of another protocol or has sizes that none has.
    pub(super) fn agree(&self, ours: &Self) -> Result<Sizes, Error> {
        let wrong = |what| Err(Error::StreamOffer(what));
        if self.magic[..3] != MAGIC[..3] {
            return wrong("it does not begin as one does".into());
        }
        if self.magic[3] != MAGIC[3] {
            return wrong(format!("version {}, this is version {}", self.magic[3], MAGIC[3]));
        }
        let ring = u32::try_from(self.ring.len).unwrap_or(0);
        if !ring.is_power_of_two() || !RINGS.contains(&ring) {
            return wrong(format!("a ring of {} bytes", self.ring.len));
        }
        if !MESSAGES.contains(&self.messages) {
            return wrong(format!("{} receives", self.messages));
        }
        // Ours has a size that is checked.
        let our_ring = u32::try_from(ours.ring.len).unwrap_or(0);
        Ok(Sizes { ring: ring.min(our_ring), messages: self.messages.min(ours.messages) })
    }
}

/// `"uds"`, version, ring (address 8, key 4, length 4), receives 2, two bytes 0.
impl Exchange for StreamOffer {
    const LEN: usize = 24;

    fn encode(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.magic);
        out[4..12].copy_from_slice(&self.ring.addr.to_be_bytes());
        out[12..16].copy_from_slice(&self.ring.rkey.get().to_be_bytes());
        // At most the largest ring.
        out[16..20].copy_from_slice(&u32::try_from(self.ring.len).unwrap_or(0).to_be_bytes());
        out[20..22].copy_from_slice(&self.messages.to_be_bytes());
        out[22..24].fill(0);
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut words = [[0; 4]; 6];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            word.copy_from_slice(bytes);
        }
        let [magic, high, low, rkey, len, [m0, m1, ..]] = words;
        let [high, low, rkey, len] = [high, low, rkey, len].map(u32::from_be_bytes);
        let addr = u64::from(high) << 32 | u64::from(low);
        let ring = RemoteMr { addr, rkey: RKey::new(rkey), len: len.into() };
        Self { magic, ring, messages: u16::from_be_bytes([m0, m1]) }
    }
}

/// The letters and version 1.
const MAGIC: [u8; 4] = *b"uds\x01";
/// Sizes of rings, bytes.
pub(super) const RINGS: std::ops::RangeInclusive<u32> = 1 << 14..=1 << 28;
/// Receives of a side.
pub(super) const MESSAGES: std::ops::RangeInclusive<u16> = 16..=4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(len: u64, messages: u16) -> StreamOffer {
        StreamOffer::new(
            RemoteMr { addr: 0x1122_3344_5566_7788, rkey: RKey::new(0x99aa_bbcc), len },
            messages,
        )
    }

    #[test]
    fn an_offer_comes_back_as_it_went_and_the_smaller_sizes_hold() {
        let offer_a = offer(1 << 18, 64);
        let mut bytes = [0xff; StreamOffer::LEN];
        offer_a.encode(&mut bytes);
        assert_eq!(bytes[..4], *b"uds\x01");
        assert_eq!(StreamOffer::decode(&bytes), offer_a);
        let sizes = offer_a.agree(&offer(1 << 16, 4096)).unwrap();
        assert_eq!(sizes, Sizes { ring: 1 << 16, messages: 64 });
    }

    #[test]
    fn what_is_no_offer_is_refused_with_the_value() {
        let (ours, refused) = (offer(1 << 16, 64), |offer: StreamOffer, ours| {
            let Err(error) = offer.agree(&ours) else { panic!("{offer:?}") };
            error.to_string()
        });
        let other = StreamOffer { magic: *b"http", ..ours };
        assert!(refused(other, ours).contains("does not begin as one does"));
        let newer = StreamOffer { magic: *b"uds\x07", ..ours };
        assert!(refused(newer, ours).contains("version 7, this is version 1"));
        assert!(refused(offer(65_537, 64), ours).contains("a ring of 65537 bytes"));
        assert!(refused(offer(1 << 13, 64), ours).contains("a ring of 8192 bytes"));
        assert!(refused(offer(1 << 16, 15), ours).contains("15 receives"));
    }
}
