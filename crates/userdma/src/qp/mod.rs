//! Queue pairs: reliable connections.

mod builder;
mod data;
mod post;
mod setup;

use std::marker::PhantomData;

use userdma_verbs::{QpAttr, QpCap, QpState, Qpn};

use crate::{Endpoint, Error};

pub use builder::QpBuilder;
pub use data::{Data, Inline, Sgl};
pub use setup::{RtrAttr, RtsAttr, SetupError};

/// State INIT: receives may be posted.
#[derive(Debug)]
pub enum Init {}
/// State RTR: receives messages.
#[derive(Debug)]
pub enum Rtr {}
/// State RTS: connected. Errors and [`Qp::modify`] may take it further.
#[derive(Debug)]
pub enum Rts {}
/// A state that the program keeps account of itself, with [`Qp::modify`].
#[derive(Debug)]
pub enum Unchecked {}

/// A queue pair. `S` is how far its set-up has come.
///
/// Dropping it destroys it: what is posted ends without completions.
#[derive(Debug)]
pub struct Qp<S> {
    state: PhantomData<S>,
}

impl<S> Qp<S> {
    /// Its number.
    pub fn qpn(&self) -> Qpn {
        todo!()
    }

    /// Its sizes.
    pub fn cap(&self) -> QpCap {
        todo!()
    }

    /// The state that it is in now.
    pub fn state(&self) -> QpState {
        todo!()
    }

    /// Its attributes.
    pub fn query(&self) -> Result<QpAttr, Error> {
        todo!()
    }

    /// What the peer needs to connect to it: GID 0 of the device (or the one the builder named), number, first PSN.
    pub fn endpoint(&self) -> Endpoint {
        todo!()
    }
}
