//! A path as a REQ names it, 44 bytes.

use std::fmt;

use userdma_verbs::{Gid, Lid};

use super::super::MAD_LEN;
use super::super::field::{Field, Place, Shown};

macro_rules! path {
    ($($(#[$doc:meta])* $field:ident: $type:ty = ($byte:literal, $bit:literal, $width:literal),)*) => {
        /// A path between two ports, in the sender's view: *local* is the sender of the message.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct Path {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Field for Path {
            fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self> {
                let at = place.byte();
                Some(Self { $($field: Field::read(mad, Place::new(at + $byte, $bit, $width))?,)* })
            }

            fn write(&self, mad: &mut [u8; MAD_LEN], place: Place) {
                let at = place.byte();
                $(self.$field.write(mad, Place::new(at + $byte, $bit, $width));)*
            }

            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.is_absent() {
                    return f.write_str("none");
                }
                let mut gap = "";
                $(
                    write!(f, "{gap}{} {}", stringify!($field), Shown(&self.$field))?;
                    gap = " ";
                )*
                f.write_str(if gap.is_empty() { "none" } else { "" })
            }
        }
    };
}

path! {
    /// LID of the sender's port; 0xffff where there are none.
    local_lid: Lid = (0, 0, 16),
    /// LID of the receiver's port.
    remote_lid: Lid = (2, 0, 16),
    /// GID of the sender's port.
    local_gid: Gid = (4, 0, 128),
    /// GID of the receiver's port.
    remote_gid: Gid = (20, 0, 128),
    /// Flow label: 20 bits.
    flow_label: u32 = (36, 0, 20),
    /// Packet rate, as `enum ibv_rate`: 6 bits.
    packet_rate: u8 = (39, 2, 6),
    /// Traffic class.
    traffic_class: u8 = (40, 0, 8),
    /// Hop limit.
    hop_limit: u8 = (41, 0, 8),
    /// Service level: 4 bits.
    sl: u8 = (42, 0, 4),
    /// Whether both ports are on one subnet.
    subnet_local: bool = (42, 4, 1),
    /// The receiver's local ACK timeout for this path: 5 bits, 4.096 µs · 2^n.
    local_ack_timeout: u8 = (43, 0, 5),
}

impl Path {
    /// Whether nothing is in it, as in a REQ without an alternate path.
    pub fn is_absent(&self) -> bool {
        self.local_lid.get() == 0 && self.local_gid.is_zero() && self.remote_gid.is_zero()
    }
}
