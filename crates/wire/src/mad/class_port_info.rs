//! `ClassPortInfo`: what a port tells about a management class, the one attribute that every class has.
//!
//! As `ib_mad.h struct ib_class_port_info`, which names fields that the standard divides further.

use userdma_verbs::{Gid, Lid, PKey, QKey};

use super::field::{Field, Place};
use super::{BadMad, Header, MAD_LEN, expect, read};

macro_rules! class_port_info {
    ($($(#[$doc:meta])* $field:ident: $type:ty = ($byte:literal, $width:literal),)*) => {
        /// What a port tells about a management class. Zeros where traps and redirection are not used.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct ClassPortInfo {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl ClassPortInfo {
            /// The attribute's number.
            pub const ATTRIBUTE: u16 = 0x0001;

            /// Reads a MAD of this attribute: its header, and what it carries.
            ///
            /// # Errors
            /// Not 256 bytes, or another base version or attribute.
            pub fn parse(mad: &[u8]) -> Result<(Header, Self), BadMad> {
                let header = Header::parse(mad)?;
                expect("attribute_id", header.attribute_id.into(), Self::ATTRIBUTE.into())?;
                let mad = super::whole(mad)?;
                let info = Self { $($field: read(mad, stringify!($field), Header::LEN + $byte, $width)?,)* };
                Ok((header, info))
            }

            /// The MAD with this header. The header's attribute is set.
            pub fn build(&self, header: &Header) -> [u8; MAD_LEN] {
                let mut mad = [0; MAD_LEN];
                Header { attribute_id: Self::ATTRIBUTE, ..*header }.write(&mut mad);
                $(self.$field.write(&mut mad, Place::new(Header::LEN + $byte, 0, $width));)*
                mad
            }
        }
    };
}

class_port_info! {
    /// The format of MADs.
    base_version: u8 = (0, 8),
    /// The version of the class.
    class_version: u8 = (1, 8),
    /// What the class can do here.
    capability_mask: u16 = (2, 16),
    /// 27 bits of further capabilities, and in the low five bits how long an answer takes: 4.096 µs · 2^n.
    capability_mask2_response_time: u32 = (4, 32),
    /// Where requests of this class shall go instead.
    redirect_gid: Gid = (8, 128),
    /// Traffic class (8 bits), service level (4) and flow label (20) on the way there.
    redirect_class_level_flow: u32 = (24, 32),
    /// Local identifier there.
    redirect_lid: Lid = (28, 16),
    /// Partition there.
    redirect_pkey: PKey = (30, 16),
    /// Queue pair there: 24 bits.
    redirect_qp: u32 = (32, 32),
    /// Queue key there.
    redirect_qkey: QKey = (36, 32),
    /// Where traps go.
    trap_gid: Gid = (40, 128),
    /// As `redirect_class_level_flow`, of traps.
    trap_class_level_flow: u32 = (56, 32),
    /// Local identifier for traps.
    trap_lid: Lid = (60, 16),
    /// Partition for traps.
    trap_pkey: PKey = (62, 16),
    /// Hop limit (8 bits) and queue pair (24) for traps.
    trap_hop_limit_qp: u32 = (64, 32),
    /// Queue key for traps.
    trap_qkey: QKey = (68, 32),
}
