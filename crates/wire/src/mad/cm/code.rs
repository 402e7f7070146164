//! Fields that are codes: what was rejected, why, and how it went.

use std::fmt;

use super::super::MAD_LEN;
use super::super::field::{Field, Place};

macro_rules! codes {
    (
        $(#[$doc:meta])*
        $name:ident($number:ty) {
            $($(#[$variant_doc:meta])* $variant:ident = $code:literal, $words:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum $name {
            $(#[doc = concat!($words, ".")] $(#[$variant_doc])* $variant,)*
            /// A code that is not defined.
            Other($number),
        }

        impl $name {
            /// Those that are defined.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The value with this code.
            pub const fn from_code(code: $number) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    other => Self::Other(other),
                }
            }

            /// Its code.
            pub const fn code(self) -> $number {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Other(code) => code,
                }
            }

            /// What it means.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)*
                    Self::Other(_) => "an unknown code",
                }
            }
        }

        /// The value of a field of zeros.
        impl Default for $name {
            fn default() -> Self {
                Self::from_code(0)
            }
        }

        impl Field for $name {
            fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self> {
                <$number>::read(mad, place).map(Self::from_code)
            }

            fn write(&self, mad: &mut [u8; MAD_LEN], place: Place) {
                self.code().write(mad, place);
            }

            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        /// The code and what it means: `8 invalid service id`.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", self.code(), self.as_str())
            }
        }
    };
}

codes! {
    /// Why a REJ was sent. As `ib_cm.h enum ib_cm_rej_reason`.
    RejectReason(u16) {
        NoQp = 1, "no queue pair available";
        NoEec = 2, "no end-to-end context available";
        NoResources = 3, "no resources available";
        Timeout = 4, "timeout";
        Unsupported = 5, "unsupported request";
        InvalidCommId = 6, "invalid communication id";
        InvalidCommInstance = 7, "invalid communication instance";
        InvalidServiceId = 8, "invalid service id";
        InvalidTransportType = 9, "invalid transport service type";
        StaleConnection = 10, "stale connection";
        RdcDoesNotExist = 11, "reliable datagram channel does not exist";
        InvalidGid = 12, "primary remote GID rejected";
        InvalidLid = 13, "primary remote LID rejected";
        InvalidSl = 14, "invalid primary service level";
        InvalidTrafficClass = 15, "invalid primary traffic class";
        InvalidHopLimit = 16, "invalid primary hop limit";
        InvalidPacketRate = 17, "invalid primary packet rate";
        InvalidAlternateGid = 18, "alternate remote GID rejected";
        InvalidAlternateLid = 19, "alternate remote LID rejected";
        InvalidAlternateSl = 20, "invalid alternate service level";
        InvalidAlternateTrafficClass = 21, "invalid alternate traffic class";
        InvalidAlternateHopLimit = 22, "invalid alternate hop limit";
        InvalidAlternatePacketRate = 23, "invalid alternate packet rate";
        PortAndCmRedirection = 24, "port and CM redirection";
        PortRedirection = 25, "port redirection";
        InvalidPathMtu = 26, "invalid path MTU";
        InsufficientResponderResources = 27, "insufficient responder resources";
        ConsumerReject = 28, "consumer reject";
        InvalidRnrRetry = 29, "RNR retry count rejected";
        DuplicateLocalCommId = 30, "duplicate local communication id";
        InvalidClassVersion = 31, "unsupported class version";
        InvalidFlowLabel = 32, "invalid primary flow label";
        InvalidAlternateFlowLabel = 33, "invalid alternate flow label";
        VendorOptionNotSupported = 35, "vendor option not supported";
    }
}

codes! {
    /// How a LAP was answered. As `ib_cm.h enum ib_cm_apr_status`.
    AprStatus(u8) {
        Loaded = 0, "path loaded";
        InvalidCommId = 1, "invalid communication id";
        Unsupported = 2, "alternate paths not supported";
        Rejected = 3, "rejected";
        Redirect = 4, "redirected";
        IsCurrent = 5, "already the current path";
        InvalidQpn = 6, "queue pair does not match";
        InvalidLid = 7, "LID rejected";
        InvalidGid = 8, "GID rejected";
        InvalidFlowLabel = 9, "invalid flow label";
        InvalidTrafficClass = 10, "invalid traffic class";
        InvalidHopLimit = 11, "invalid hop limit";
        InvalidPacketRate = 12, "invalid packet rate";
        InvalidSl = 13, "invalid service level";
    }
}

codes! {
    /// How a SIDR_REQ was answered. As `ib_cm.h enum ib_cm_sidr_status`.
    SidrStatus(u8) {
        Valid = 0, "queue pair and key are valid";
        Unsupported = 1, "service id not supported";
        Rejected = 2, "rejected by the service";
        NoQp = 3, "no queue pair available";
        Redirect = 4, "redirected";
        UnsupportedVersion = 5, "version not supported";
    }
}

codes! {
    /// Which service a connection shall have. As `cm_msgs.h cm_req_get_qp_type()`.
    TransportService(u8) {
        Rc = 0, "reliable connection";
        Uc = 1, "unreliable connection";
        Rd = 2, "reliable datagrams";
        /// Named by the extended transport type: 1 is XRC.
        Extended = 3, "extended transport";
    }
}

/// Which message a REJ or MRA answers. As `cm_msgs.h enum cm_msg_response`; the fourth code means nothing.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum RejectedMessage {
    /// A REQ.
    #[default]
    Req,
    /// A REP.
    Rep,
    /// Another message: of a REJ none in particular, of an MRA a LAP.
    Other,
}

impl RejectedMessage {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
            Self::Other => "other",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Req => 0,
            Self::Rep => 1,
            Self::Other => 2,
        }
    }
}

impl Field for RejectedMessage {
    fn read(mad: &[u8; MAD_LEN], place: Place) -> Option<Self> {
        [Self::Req, Self::Rep, Self::Other]
            .into_iter()
            .find(|message| u64::from(message.code()) == place.value(mad))
    }

    fn write(&self, mad: &mut [u8; MAD_LEN], place: Place) {
        self.code().write(mad, place);
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
