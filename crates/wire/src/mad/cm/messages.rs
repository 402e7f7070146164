//! The formats: a line for each field, with its place. As `ibta_vol1_c12.h CM_REQ_LOCAL_COMM_ID` and what follows it.

use std::fmt;

use userdma_verbs::{Gid, Lid, PKey, Psn, QKey, Qpn};

use super::super::field::{Data, Field, Place, Shown};
use super::super::{BadMad, Header, MAD_LEN, whole};
use super::code::{AprStatus, RejectReason, RejectedMessage, SidrStatus, TransportService};
use super::path::Path;
use super::{check_header, expect, header};

/// A message from lines of `field: type = (byte after the MAD's header, bit of it, width in bits)`.
macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident, $words:literal, $attribute:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = ($byte:literal, $bit:literal, $width:literal),)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// The attribute that the message is.
            pub const ATTRIBUTE: u16 = $attribute;

            /// Reads the message of a MAD.
            ///
            /// # Errors
            /// The MAD is another message or none, or a field's value means nothing.
            pub fn parse(mad: &[u8]) -> Result<Self, BadMad> {
                let header = check_header(mad)?;
                expect("attribute_id", header.attribute_id.into(), Self::ATTRIBUTE.into())?;
                let mad = whole(mad)?;
                let message = Self { $($field: {
                    let place = Place::new(Header::LEN + $byte, $bit, $width);
                    let bad = || BadMad::Field { field: stringify!($field), value: place.value(mad) };
                    Field::read(mad, place).ok_or_else(bad)?
                },)* };
                message.check()?;
                Ok(message)
            }

            /// The MAD with this transaction id.
            pub fn build(&self, transaction_id: u64) -> [u8; MAD_LEN] {
                self.build_with(transaction_id, 0)
            }

            /// The MAD with this transaction id and attribute modifier, where REQ and REP have what adapters of one
            /// vendor agree upon.
            pub fn build_with(&self, transaction_id: u64, attribute_modifier: u32) -> [u8; MAD_LEN] {
                let mut mad = [0; MAD_LEN];
                let header = header(Self::ATTRIBUTE, transaction_id);
                Header { attribute_modifier, ..header }.write(&mut mad);
                $(self.$field.write(&mut mad, Place::new(Header::LEN + $byte, $bit, $width));)*
                mad
            }

            /// The standard's name.
            pub const fn name(&self) -> &'static str {
                $words
            }

            /// Every field by its name, as people read it.
            pub(in super::super) fn show_fields(&self, each: &mut dyn FnMut(&str, &dyn fmt::Display)) {
                $(each(stringify!($field), &Shown(&self.$field));)*
            }
        }
    };
}

message! {
    /// Connect request. *Local* is its sender.
    Req, "REQ", 0x0010 {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The adapter's vendor; 0 if it has nothing to say: 24 bits.
        vendor_id: u32 = (5, 0, 24),
        /// The service that is asked for.
        service_id: u64 = (8, 0, 64),
        /// The sender's adapter.
        local_ca_guid: u64 = (16, 0, 64),
        /// Queue key; only for reliable datagrams.
        local_qkey: QKey = (28, 0, 32),
        /// The sender's queue pair.
        local_qpn: Qpn = (32, 0, 24),
        /// READs and atomics that the sender takes at a time.
        responder_resources: u8 = (35, 0, 8),
        /// End-to-end context; only for reliable datagrams.
        local_eecn: u32 = (36, 0, 24),
        /// READs and atomics that the sender wants to have outstanding.
        initiator_depth: u8 = (39, 0, 8),
        /// End-to-end context of the receiver; only for reliable datagrams.
        remote_eecn: u32 = (40, 0, 24),
        /// How long the receiver may take to answer: 5 bits, 4.096 µs · 2^n.
        remote_cm_response_timeout: u8 = (43, 0, 5),
        /// The service type: 2 bits.
        transport_service_type: TransportService = (43, 5, 2),
        /// Whether the sender's receive queue gives end-to-end credits.
        end_to_end_flow_control: bool = (43, 7, 1),
        /// The PSN that the receiver begins with.
        starting_psn: Psn = (44, 0, 24),
        /// How long the sender may take to answer: 5 bits, 4.096 µs · 2^n.
        local_cm_response_timeout: u8 = (47, 0, 5),
        /// Times that the receiver shall resend: 3 bits.
        retry_count: u8 = (47, 5, 3),
        /// The partition.
        pkey: PKey = (48, 0, 16),
        /// Path MTU as `enum ibv_mtu`: 4 bits.
        path_mtu: u8 = (50, 0, 4),
        /// Whether a reliable datagram channel exists.
        rdc_exists: bool = (50, 4, 1),
        /// Times that the receiver shall resend after RNR NAKs: 3 bits.
        rnr_retry_count: u8 = (50, 5, 3),
        /// Times that messages are sent again: 4 bits.
        max_cm_retries: u8 = (51, 0, 4),
        /// Whether the sender's queue pair takes its receives from a shared queue.
        srq: bool = (51, 4, 1),
        /// Which extended transport: 3 bits, 1 is XRC.
        extended_transport_type: u8 = (51, 5, 3),
        /// The path.
        primary: Path = (52, 0, 352),
        /// Another one for later; empty without.
        alternate: Path = (96, 0, 352),
        /// Bytes for the service. With an IP service they begin with an [`super::IpHeader`].
        private_data: Data<92> = (140, 0, 736),
    }
}

message! {
    /// Message receipt acknowledgement: the answer takes longer.
    Mra, "MRA", 0x0011 {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's.
        remote_comm_id: u32 = (4, 0, 32),
        /// Which message was received.
        message: RejectedMessage = (8, 0, 2),
        /// How long the answer may take: 5 bits, 4.096 µs · 2^n.
        service_timeout: u8 = (9, 0, 5),
        /// Bytes for the receiver.
        private_data: Data<222> = (10, 0, 1776),
    }
}

message! {
    /// Connect reject: refuses a message or gives up a connection that was being made.
    Rej, "REJ", 0x0012 {
        /// The sender's communication id; 0 if it has none.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's; 0 if it is not known.
        remote_comm_id: u32 = (4, 0, 32),
        /// Which message is refused.
        message: RejectedMessage = (8, 0, 2),
        /// How many bytes of `info` there are: 7 bits, 0 ..= 72.
        info_len: u8 = (9, 0, 7),
        /// Why.
        reason: RejectReason = (10, 0, 16),
        /// What the reason needs: the sender's GUID with a timeout, a GID that would do instead.
        info: Data<72> = (12, 0, 576),
        /// Bytes for the receiver.
        private_data: Data<148> = (84, 0, 1184),
    }
}

message! {
    /// Connect reply: accepts a REQ.
    Rep, "REP", 0x0013 {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's.
        remote_comm_id: u32 = (4, 0, 32),
        /// Queue key; only for reliable datagrams.
        local_qkey: QKey = (8, 0, 32),
        /// The sender's queue pair.
        local_qpn: Qpn = (12, 0, 24),
        /// Upper byte of the vendor's number: [`Rep::vendor_id`].
        vendor_id_high: u8 = (15, 0, 8),
        /// End-to-end context; of XRC the target's queue pair.
        local_eecn: u32 = (16, 0, 24),
        /// Middle byte of the vendor's number.
        vendor_id_middle: u8 = (19, 0, 8),
        /// The PSN that the receiver begins with.
        starting_psn: Psn = (20, 0, 24),
        /// Low byte of the vendor's number.
        vendor_id_low: u8 = (23, 0, 8),
        /// READs and atomics that the sender takes at a time.
        responder_resources: u8 = (24, 0, 8),
        /// READs and atomics that the sender will have outstanding.
        initiator_depth: u8 = (25, 0, 8),
        /// How long an acknowledgement may take: 5 bits, 4.096 µs · 2^n.
        target_ack_delay: u8 = (26, 0, 5),
        /// What became of the alternate path: 2 bits, 0 accepted, 1 not supported, 2 not accepted.
        failover_accepted: u8 = (26, 5, 2),
        /// Whether the sender's receive queue gives end-to-end credits.
        end_to_end_flow_control: bool = (26, 7, 1),
        /// Times that the receiver shall resend after RNR NAKs: 3 bits.
        rnr_retry_count: u8 = (27, 0, 3),
        /// Whether the sender's queue pair takes its receives from a shared queue.
        srq: bool = (27, 3, 1),
        /// The sender's adapter.
        local_ca_guid: u64 = (28, 0, 64),
        /// Bytes for the receiver.
        private_data: Data<196> = (36, 0, 1568),
    }
}

message! {
    /// Ready to use: the sender's queue pair is connected.
    Rtu, "RTU", 0x0014 {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's.
        remote_comm_id: u32 = (4, 0, 32),
        /// Bytes for the receiver.
        private_data: Data<224> = (8, 0, 1792),
    }
}

message! {
    /// Disconnect request.
    Dreq, "DREQ", 0x0015 {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's.
        remote_comm_id: u32 = (4, 0, 32),
        /// The receiver's queue pair.
        remote_qpn: Qpn = (8, 0, 24),
        /// Bytes for the receiver.
        private_data: Data<220> = (12, 0, 1760),
    }
}

message! {
    /// Disconnect reply.
    Drep, "DREP", 0x0016 {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's.
        remote_comm_id: u32 = (4, 0, 32),
        /// Bytes for the receiver.
        private_data: Data<224> = (8, 0, 1792),
    }
}

message! {
    /// Service id resolution request: which queue pair takes datagrams of a service.
    SidrReq, "SIDR_REQ", 0x0017 {
        /// The sender's number for the question.
        request_id: u32 = (0, 0, 32),
        /// The partition.
        pkey: PKey = (4, 0, 16),
        /// The service that is asked for.
        service_id: u64 = (8, 0, 64),
        /// Bytes for the service. With an IP service they begin with an [`super::IpHeader`].
        private_data: Data<216> = (16, 0, 1728),
    }
}

message! {
    /// Service id resolution response.
    SidrRep, "SIDR_REP", 0x0018 {
        /// The number of the question.
        request_id: u32 = (0, 0, 32),
        /// How it went.
        status: SidrStatus = (4, 0, 8),
        /// How many bytes of `info` there are: 0 ..= 72.
        info_len: u8 = (5, 0, 8),
        /// The queue pair.
        qpn: Qpn = (8, 0, 24),
        /// The service.
        service_id: u64 = (12, 0, 64),
        /// The queue pair's key.
        qkey: QKey = (20, 0, 32),
        /// What the status needs.
        info: Data<72> = (24, 0, 576),
        /// Bytes for the receiver.
        private_data: Data<136> = (96, 0, 1088),
    }
}

message! {
    /// Load alternate path. *Local* is its sender.
    Lap, "LAP", 0x0019 {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's.
        remote_comm_id: u32 = (4, 0, 32),
        /// The receiver's queue pair.
        remote_qpn: Qpn = (12, 0, 24),
        /// How long the receiver may take to answer: 5 bits, 4.096 µs · 2^n.
        remote_cm_response_timeout: u8 = (15, 0, 5),
        /// LID of the sender's port.
        local_lid: Lid = (20, 0, 16),
        /// LID of the receiver's port.
        remote_lid: Lid = (22, 0, 16),
        /// GID of the sender's port.
        local_gid: Gid = (24, 0, 128),
        /// GID of the receiver's port.
        remote_gid: Gid = (40, 0, 128),
        /// Flow label: 20 bits.
        flow_label: u32 = (56, 0, 20),
        /// Traffic class.
        traffic_class: u8 = (59, 0, 8),
        /// Hop limit.
        hop_limit: u8 = (60, 0, 8),
        /// Packet rate, as `enum ibv_rate`: 6 bits.
        packet_rate: u8 = (61, 2, 6),
        /// Service level: 4 bits.
        sl: u8 = (62, 0, 4),
        /// Whether both ports are on one subnet.
        subnet_local: bool = (62, 4, 1),
        /// The receiver's local ACK timeout for this path: 5 bits, 4.096 µs · 2^n.
        local_ack_timeout: u8 = (63, 0, 5),
        /// Bytes for the receiver.
        private_data: Data<168> = (64, 0, 1344),
    }
}

message! {
    /// Alternate path response.
    Apr, "APR", 0x001a {
        /// The sender's communication id.
        local_comm_id: u32 = (0, 0, 32),
        /// The receiver's.
        remote_comm_id: u32 = (4, 0, 32),
        /// How many bytes of `info` there are: 0 ..= 72.
        info_len: u8 = (8, 0, 8),
        /// How it went.
        status: AprStatus = (9, 0, 8),
        /// What the status needs.
        info: Data<72> = (12, 0, 576),
        /// Bytes for the receiver.
        private_data: Data<148> = (84, 0, 1184),
    }
}

impl Rep {
    /// The adapter's vendor, 24 bits; 0 if it has nothing to say.
    pub const fn vendor_id(&self) -> u32 {
        u32::from_be_bytes([0, self.vendor_id_high, self.vendor_id_middle, self.vendor_id_low])
    }

    /// The message with this vendor: 24 bits, more are dropped.
    #[must_use]
    pub const fn with_vendor_id(mut self, vendor_id: u32) -> Self {
        [_, self.vendor_id_high, self.vendor_id_middle, self.vendor_id_low] = vendor_id.to_be_bytes();
        self
    }
}

/// What the places of the fields alone do not tell.
trait Check {
    fn check(&self) -> Result<(), BadMad> {
        Ok(())
    }
}

impl Check for Req {}
impl Check for Mra {}
impl Check for Rep {}
impl Check for Rtu {}
impl Check for Dreq {}
impl Check for Drep {}
impl Check for SidrReq {}
impl Check for Lap {}

impl Check for Rej {
    fn check(&self) -> Result<(), BadMad> {
        check_info_len(self.info_len)
    }
}

impl Check for SidrRep {
    fn check(&self) -> Result<(), BadMad> {
        check_info_len(self.info_len)
    }
}

impl Check for Apr {
    fn check(&self) -> Result<(), BadMad> {
        check_info_len(self.info_len)
    }
}

fn check_info_len(len: u8) -> Result<(), BadMad> {
    if usize::from(len) <= Data::<72>::LEN {
        Ok(())
    } else {
        Err(BadMad::Field { field: "info_len", value: len.into() })
    }
}
