//! Queue pairs that can be connected.

use userdma_host::Host;
use userdma_verbs::{QpAttr, QpAttrMask, Qpn};

use crate::qp::{Init, Rts};
use crate::{AsyncQp, Error, Qp};

/// A queue pair in INIT, to be connected by [`Connection::connect`](crate::Connection::connect) or
/// [`Request::accept`](crate::Request::accept): an [`AsyncQp`] or a [`Qp`].
pub trait Connect: sealed::Sealed {
    /// The same in RTS.
    type Connected;

    #[doc(hidden)]
    fn qpn(&self) -> Qpn;
    #[doc(hidden)]
    fn host(&self) -> &Host;
    #[doc(hidden)]
    fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error>;
    #[doc(hidden)]
    fn connected(self) -> Self::Connected;
}

mod sealed {
    pub trait Sealed {}
}

/// Both have the same methods.
macro_rules! connect {
    ($($Qp:ident),*) => {$(
        impl sealed::Sealed for $Qp<Init> {}

        impl Connect for $Qp<Init> {
            type Connected = $Qp<Rts>;

            fn qpn(&self) -> Qpn {
                Self::qpn(self)
            }

            fn host(&self) -> &Host {
                Self::host(self)
            }

            fn modify(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), Error> {
                self.modify_init(attr, mask)
            }

            fn connected(self) -> $Qp<Rts> {
                self.into_connected()
            }
        }
    )*};
}

connect!(AsyncQp, Qp);
