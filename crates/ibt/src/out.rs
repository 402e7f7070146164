//! Where packets are written: their path, their place in a batch, and the ICRC at their end.

use userdma_mem::{Route, TxBatch};
use userdma_verbs::{PKey, Psn, QpAttr};
use userdma_wire::{Bth, FlowIcrc, Opcode, PacketWriter, seal_packet};

/// Where a connection's packets go: the route and what its ICRCs start with.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The route.
    pub route: Route,
    /// The ICRC of packets that we send.
    pub icrc: FlowIcrc,
}

/// How far a fill came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fill {
    /// Nothing more to send now.
    Done,
    /// More to send, in another batch.
    More,
}

/// Where packets are written, and what every one of them has in common.
pub(crate) struct Out<'a> {
    pub(crate) path: &'a mut Path,
    pub(crate) attr: &'a QpAttr,
    pub(crate) batch: &'a mut TxBatch,
    /// Packets that were in the batch when this fill began.
    pub(crate) before: usize,
}

/// A packet's place in a batch: to be written, then sealed.
pub(crate) struct Place<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) index: u16,
    pub(crate) icrc: &'a mut FlowIcrc,
}

impl Out<'_> {
    pub(crate) fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        Bth::new(opcode, self.attr.dest_qp_num, psn, PKey::DEFAULT)
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes()
    }

    pub(crate) fn fits(&self, size: usize) -> bool {
        self.batch.fits(&self.path.route, size)
    }

    /// Room for a packet, if it fits the batch.
    pub(crate) fn push(&mut self, size: usize) -> Option<Place<'_>> {
        // Behind a packet of this fill the batch goes where the path does.
        let (index, bytes) = if self.batch.count() > self.before {
            self.batch.push_more(size)
        } else {
            self.batch.push(&self.path.route, size)
        }?;
        Some(Place { bytes, index, icrc: &mut self.path.icrc })
    }
}

impl Place<'_> {
    pub(crate) fn writer(&mut self, bth: &Bth) -> PacketWriter<'_> {
        PacketWriter::new(self.bytes, bth)
    }

    /// Ends the packet with its ICRC.
    pub(crate) fn seal(self) {
        self.icrc.seal(self.bytes, self.index);
    }

    /// Writes and seals a packet with `len` bytes of payload: its headers by `headers`, and the payload by `copy`, which
    /// goes on with the CRC that it is given, or leaves that to a second pass if it is given none.
    #[inline]
    pub(crate) fn fill<E>(
        self,
        bth: &Bth,
        len: usize,
        headers: impl FnOnce(PacketWriter<'_>) -> PacketWriter<'_>,
        copy: impl FnOnce(&mut [u8], Option<&mut u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { bytes, index, icrc } = self;
        let size = bytes.len();
        let (headers, payload) = headers(PacketWriter::new(bytes, bth)).split(len);
        if len < LONG {
            copy(payload, None)?;
            icrc.seal(bytes, index);
        } else {
            let mut crc = icrc.begin(headers, size, index);
            copy(payload, Some(&mut crc))?;
            seal_packet(bytes, crc, len);
        }
        Ok(())
    }
}

/// Bytes of payload from which on it is copied and covered by the ICRC in one pass. `mem` makes two of less in any case.
const LONG: usize = 256;
