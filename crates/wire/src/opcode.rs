//! Opcodes: one table that says for each what it is, which headers it carries and how long its payload is.
//!
//! The upper three bits of an opcode name the service, the lower five the operation and the packet's
//! position in its message. RC, UC and UD as `rxe_opcode.c rxe_opcode`; XRC repeats RC with an XRCETH in
//! front of every request's other headers. Reliable datagram is not built: its opcodes are unknown.

use std::fmt;

use bitflags::bitflags;

use self::PayloadRule::{Exactly, Full, None as Nothing, Rest, UpToMtu};
use crate::aeth::Aeth;
use crate::bth::Bth;
use crate::ext::{AtomicAckEth, AtomicEth, Deth, Feth, Ieth, ImmDt, Reth, XrcEth};

/// The transport service of a packet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Congestion notification, which belongs to no service.
    Cnp,
}

/// What a packet asks for, or answers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// A message into a receive buffer.
    Send,
    /// Data into named memory.
    Write,
    /// A wish for data from named memory.
    ReadRequest,
    /// The data that a READ asked for.
    ReadResponse,
    /// An ACK or NAK.
    Acknowledge,
    /// An ACK with an atomic's result.
    AtomicAcknowledge,
    /// An atomic compare and swap.
    CompareSwap,
    /// An atomic fetch and add.
    FetchAdd,
    /// A wish that earlier data be visible or persistent.
    Flush,
    /// Eight bytes, written at once.
    AtomicWrite,
    /// A congestion notification packet.
    Cnp,
}

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

/// How long a payload may be.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PayloadRule {
    /// None at all.
    None,
    /// Exactly the path MTU.
    Full,
    /// One byte to the path MTU.
    Rest,
    /// Nothing to the path MTU.
    UpToMtu,
    /// Exactly this many bytes.
    Exactly(u16),
}

impl PayloadRule {
    /// Whether `len_bytes` obeys the rule on a path with this MTU. As `rxe_resp.c rxe_resp_check_length()`.
    pub const fn allows(self, len_bytes: usize, mtu_bytes: usize) -> bool {
        match self {
            Self::None => len_bytes == 0,
            Self::Full => len_bytes == mtu_bytes,
            Self::Rest => len_bytes >= 1 && len_bytes <= mtu_bytes,
            Self::UpToMtu => len_bytes <= mtu_bytes,
            Self::Exactly(want) => len_bytes == want as usize,
        }
    }
}

bitflags! {
    /// The extension headers of a packet, from the one that stands first to the one that stands last.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct ExtHeaders: u16 {
        /// [`XrcEth`]
        const XRCETH = 1 << 0;
        /// [`Deth`]
        const DETH = 1 << 1;
        /// [`Feth`]
        const FETH = 1 << 2;
        /// [`Reth`]
        const RETH = 1 << 3;
        /// [`AtomicEth`]
        const ATOMIC = 1 << 4;
        /// [`Aeth`]
        const AETH = 1 << 5;
        /// [`AtomicAckEth`]
        const ATOMIC_ACK = 1 << 6;
        /// [`ImmDt`]
        const IMM = 1 << 7;
        /// [`Ieth`]
        const IETH = 1 << 8;
    }
}

impl ExtHeaders {
    /// Bytes of these headers together.
    pub const fn len_bytes(self) -> usize {
        let mut len = 0;
        let mut index = 0;
        while index < LENGTHS.len() {
            if self.bits() & 1 << index != 0 {
                len += LENGTHS[index];
            }
            index += 1;
        }
        len
    }
}

/// Lengths of the extension headers, by bit number in [`ExtHeaders`].
const LENGTHS: [usize; 9] = [
    XrcEth::LEN,
    Deth::LEN,
    Feth::LEN,
    Reth::LEN,
    AtomicEth::LEN,
    Aeth::LEN,
    AtomicAckEth::LEN,
    ImmDt::LEN,
    Ieth::LEN,
];

/// Everything that an opcode implies.
#[derive(Debug)]
pub struct OpcodeInfo {
    /// The transport service.
    pub service: Service,
    /// The operation.
    pub op: Operation,
    /// The packet's place in its message.
    pub position: Position,
    /// The extension headers.
    pub headers: ExtHeaders,
    /// Bytes of the BTH and the extension headers.
    pub header_len: usize,
    /// How long the payload may be.
    pub payload: PayloadRule,
    /// The opcode in words, as `RC SEND Only with Immediate`.
    pub name: &'static str,
    /// Where in the packet each extension header stands, by bit number in [`ExtHeaders`]; 0 if it does not.
    offsets: [u8; LENGTHS.len()],
}

impl OpcodeInfo {
    /// Whether the packet carries this extension header.
    pub const fn has(&self, header: ExtHeaders) -> bool {
        self.headers.contains(header)
    }

    /// Where in the packet this extension header stands, if it does. `header` is a single one.
    #[inline]
    pub(crate) const fn offset_of(&self, header: ExtHeaders) -> Option<usize> {
        match self.offsets[header.bits().trailing_zeros() as usize % LENGTHS.len()] {
            0 => None,
            offset => Some(offset as usize),
        }
    }

    /// Whether the packet begins a message.
    pub const fn is_start(&self) -> bool {
        matches!(self.position, Position::First | Position::Only)
    }

    /// Whether the packet ends a message.
    pub const fn is_end(&self) -> bool {
        matches!(self.position, Position::Last | Position::Only)
    }

    /// Whether the packet answers a request, and so is the completer's business.
    pub const fn is_response(&self) -> bool {
        matches!(self.op, Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge)
    }

    /// Whether the packet is a request, and so is the responder's business.
    pub const fn is_request(&self) -> bool {
        !self.is_response() && !matches!(self.op, Operation::Cnp)
    }
}

macro_rules! opcodes {
    ($($variant:ident = $byte:literal, $service:ident $op:ident $position:ident,
       [$($header:ident)*], $rule:expr, $name:literal;)*) => {
        /// The opcode of a packet, as it stands in the BTH's first byte.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(u8)]
        pub enum Opcode {
            $(#[doc = $name] $variant = $byte,)*
        }

        impl Opcode {
            /// Every opcode.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }

        static INFO: [OpcodeInfo; 256] = {
            let mut table = [const { UNKNOWN }; 256];
            $({
                let headers = ExtHeaders::empty()$(.union(ExtHeaders::$header))*;
                table[$byte] = OpcodeInfo {
                    service: Service::$service,
                    op: Operation::$op,
                    position: Position::$position,
                    headers,
                    header_len: Bth::LEN + headers.len_bytes(),
                    payload: $rule,
                    name: $name,
                    offsets: offsets(headers),
                };
            })*
            table
        };
    };
}

/// Where each header stands in a packet that has `headers`.
#[allow(clippy::cast_possible_truncation, reason = "all headers together have 72 bytes")]
const fn offsets(headers: ExtHeaders) -> [u8; LENGTHS.len()] {
    let mut offsets = [0; LENGTHS.len()];
    let mut index = 0;
    while index < LENGTHS.len() {
        let (bit, before) = (1 << index, headers.bits() & ((1 << index) - 1));
        if headers.bits() & bit != 0 {
            offsets[index] = (Bth::LEN + ExtHeaders::from_bits_truncate(before).len_bytes()) as u8;
        }
        index += 1;
    }
    offsets
}

opcodes! {
    RcSendFirst          = 0x00, Rc Send First,              [],                Full,         "RC SEND First";
    RcSendMiddle         = 0x01, Rc Send Middle,             [],                Full,         "RC SEND Middle";
    RcSendLast           = 0x02, Rc Send Last,               [],                Rest,         "RC SEND Last";
    RcSendLastImm        = 0x03, Rc Send Last,               [IMM],             Rest,         "RC SEND Last with Immediate";
    RcSendOnly           = 0x04, Rc Send Only,               [],                UpToMtu,      "RC SEND Only";
    RcSendOnlyImm        = 0x05, Rc Send Only,               [IMM],             UpToMtu,      "RC SEND Only with Immediate";
    RcWriteFirst         = 0x06, Rc Write First,             [RETH],            Full,         "RC RDMA WRITE First";
    RcWriteMiddle        = 0x07, Rc Write Middle,            [],                Full,         "RC RDMA WRITE Middle";
    RcWriteLast          = 0x08, Rc Write Last,              [],                Rest,         "RC RDMA WRITE Last";
    RcWriteLastImm       = 0x09, Rc Write Last,              [IMM],             Rest,         "RC RDMA WRITE Last with Immediate";
    RcWriteOnly          = 0x0a, Rc Write Only,              [RETH],            UpToMtu,      "RC RDMA WRITE Only";
    RcWriteOnlyImm       = 0x0b, Rc Write Only,              [RETH IMM],        UpToMtu,      "RC RDMA WRITE Only with Immediate";
    RcReadRequest        = 0x0c, Rc ReadRequest Only,        [RETH],            Nothing,      "RC RDMA READ Request";
    RcReadResponseFirst  = 0x0d, Rc ReadResponse First,      [AETH],            Full,         "RC RDMA READ Response First";
    RcReadResponseMiddle = 0x0e, Rc ReadResponse Middle,     [],                Full,         "RC RDMA READ Response Middle";
    RcReadResponseLast   = 0x0f, Rc ReadResponse Last,       [AETH],            Rest,         "RC RDMA READ Response Last";
    RcReadResponseOnly   = 0x10, Rc ReadResponse Only,       [AETH],            UpToMtu,      "RC RDMA READ Response Only";
    RcAcknowledge        = 0x11, Rc Acknowledge Only,        [AETH],            Nothing,      "RC Acknowledge";
    RcAtomicAcknowledge  = 0x12, Rc AtomicAcknowledge Only,  [AETH ATOMIC_ACK], Nothing,      "RC ATOMIC Acknowledge";
    RcCompareSwap        = 0x13, Rc CompareSwap Only,        [ATOMIC],          Nothing,      "RC COMPARE_SWAP";
    RcFetchAdd           = 0x14, Rc FetchAdd Only,           [ATOMIC],          Nothing,      "RC FETCH_ADD";
    RcSendLastInv        = 0x16, Rc Send Last,               [IETH],            Rest,         "RC SEND Last with Invalidate";
    RcSendOnlyInv        = 0x17, Rc Send Only,               [IETH],            UpToMtu,      "RC SEND Only with Invalidate";
    RcFlush              = 0x1c, Rc Flush Only,              [FETH RETH],       Nothing,      "RC FLUSH";
    RcAtomicWrite        = 0x1d, Rc AtomicWrite Only,        [RETH],            Exactly(8),   "RC ATOMIC WRITE";

    UcSendFirst          = 0x20, Uc Send First,              [],                Full,         "UC SEND First";
    UcSendMiddle         = 0x21, Uc Send Middle,             [],                Full,         "UC SEND Middle";
    UcSendLast           = 0x22, Uc Send Last,               [],                Rest,         "UC SEND Last";
    UcSendLastImm        = 0x23, Uc Send Last,               [IMM],             Rest,         "UC SEND Last with Immediate";
    UcSendOnly           = 0x24, Uc Send Only,               [],                UpToMtu,      "UC SEND Only";
    UcSendOnlyImm        = 0x25, Uc Send Only,               [IMM],             UpToMtu,      "UC SEND Only with Immediate";
    UcWriteFirst         = 0x26, Uc Write First,             [RETH],            Full,         "UC RDMA WRITE First";
    UcWriteMiddle        = 0x27, Uc Write Middle,            [],                Full,         "UC RDMA WRITE Middle";
    UcWriteLast          = 0x28, Uc Write Last,              [],                Rest,         "UC RDMA WRITE Last";
    UcWriteLastImm       = 0x29, Uc Write Last,              [IMM],             Rest,         "UC RDMA WRITE Last with Immediate";
    UcWriteOnly          = 0x2a, Uc Write Only,              [RETH],            UpToMtu,      "UC RDMA WRITE Only";
    UcWriteOnlyImm       = 0x2b, Uc Write Only,              [RETH IMM],        UpToMtu,      "UC RDMA WRITE Only with Immediate";

    UdSendOnly           = 0x64, Ud Send Only,               [DETH],            UpToMtu,      "UD SEND Only";
    UdSendOnlyImm        = 0x65, Ud Send Only,               [DETH IMM],        UpToMtu,      "UD SEND Only with Immediate";

    Cnp                  = 0x81, Cnp Cnp Only,               [],                Exactly(16),  "CNP";

    XrcSendFirst         = 0xa0, Xrc Send First,             [XRCETH],          Full,         "XRC SEND First";
    XrcSendMiddle        = 0xa1, Xrc Send Middle,            [XRCETH],          Full,         "XRC SEND Middle";
    XrcSendLast          = 0xa2, Xrc Send Last,              [XRCETH],          Rest,         "XRC SEND Last";
    XrcSendLastImm       = 0xa3, Xrc Send Last,              [XRCETH IMM],      Rest,         "XRC SEND Last with Immediate";
    XrcSendOnly          = 0xa4, Xrc Send Only,              [XRCETH],          UpToMtu,      "XRC SEND Only";
    XrcSendOnlyImm       = 0xa5, Xrc Send Only,              [XRCETH IMM],      UpToMtu,      "XRC SEND Only with Immediate";
    XrcWriteFirst        = 0xa6, Xrc Write First,            [XRCETH RETH],     Full,         "XRC RDMA WRITE First";
    XrcWriteMiddle       = 0xa7, Xrc Write Middle,           [XRCETH],          Full,         "XRC RDMA WRITE Middle";
    XrcWriteLast         = 0xa8, Xrc Write Last,             [XRCETH],          Rest,         "XRC RDMA WRITE Last";
    XrcWriteLastImm      = 0xa9, Xrc Write Last,             [XRCETH IMM],      Rest,         "XRC RDMA WRITE Last with Immediate";
    XrcWriteOnly         = 0xaa, Xrc Write Only,             [XRCETH RETH],     UpToMtu,      "XRC RDMA WRITE Only";
    XrcWriteOnlyImm      = 0xab, Xrc Write Only,             [XRCETH RETH IMM], UpToMtu,      "XRC RDMA WRITE Only with Immediate";
    XrcReadRequest       = 0xac, Xrc ReadRequest Only,       [XRCETH RETH],     Nothing,      "XRC RDMA READ Request";
    XrcReadResponseFirst = 0xad, Xrc ReadResponse First,     [AETH],            Full,         "XRC RDMA READ Response First";
    XrcReadResponseMiddle = 0xae, Xrc ReadResponse Middle,   [],                Full,         "XRC RDMA READ Response Middle";
    XrcReadResponseLast  = 0xaf, Xrc ReadResponse Last,      [AETH],            Rest,         "XRC RDMA READ Response Last";
    XrcReadResponseOnly  = 0xb0, Xrc ReadResponse Only,      [AETH],            UpToMtu,      "XRC RDMA READ Response Only";
    XrcAcknowledge       = 0xb1, Xrc Acknowledge Only,       [AETH],            Nothing,      "XRC Acknowledge";
    XrcAtomicAcknowledge = 0xb2, Xrc AtomicAcknowledge Only, [AETH ATOMIC_ACK], Nothing,      "XRC ATOMIC Acknowledge";
    XrcCompareSwap       = 0xb3, Xrc CompareSwap Only,       [XRCETH ATOMIC],   Nothing,      "XRC COMPARE_SWAP";
    XrcFetchAdd          = 0xb4, Xrc FetchAdd Only,          [XRCETH ATOMIC],   Nothing,      "XRC FETCH_ADD";
    XrcSendLastInv       = 0xb6, Xrc Send Last,              [XRCETH IETH],     Rest,         "XRC SEND Last with Invalidate";
    XrcSendOnlyInv       = 0xb7, Xrc Send Only,              [XRCETH IETH],     UpToMtu,      "XRC SEND Only with Invalidate";
    XrcFlush             = 0xbc, Xrc Flush Only,             [XRCETH FETH RETH], Nothing,     "XRC FLUSH";
    XrcAtomicWrite       = 0xbd, Xrc AtomicWrite Only,       [XRCETH RETH],     Exactly(8),   "XRC ATOMIC WRITE";
}

/// Fills the table where no opcode is; [`Opcode`] has no value that leads here.
const UNKNOWN: OpcodeInfo = OpcodeInfo {
    service: Service::Cnp,
    op: Operation::Cnp,
    position: Position::Only,
    headers: ExtHeaders::empty(),
    header_len: Bth::LEN,
    payload: PayloadRule::None,
    name: "unknown",
    offsets: [0; LENGTHS.len()],
};

static FROM_BYTE: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut index = 0;
    while index < Opcode::ALL.len() {
        table[Opcode::ALL[index] as usize] = Some(Opcode::ALL[index]);
        index += 1;
    }
    table
};

impl Opcode {
    /// The opcode with this value, or `None` if no service here defines it.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        FROM_BYTE[byte as usize]
    }

    /// What it implies.
    pub const fn info(self) -> &'static OpcodeInfo {
        &INFO[self as usize]
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}
