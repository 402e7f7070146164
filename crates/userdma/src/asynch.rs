//! Operations as futures, without a runtime of their own.
//!
//! ```text
//!   WorkRequest (future) ── submit ──▶ QpState: operations by key, two lines of those that wait for a place
//!         ▲                                │ post                                ▲ complete, post the next
//!         └─────────── wake ───────────────┼─────────────────────────────────────┤
//!                                          ▼                                     │
//!                                   Qp, Cq, channel ── events ── CqDriver ── Core::dispatch
//! ```
//!
//! A future hands its request over when it is first polled; from then on the queue pair owns it, so that dropping the
//! future only means that nobody asks for the result. Requests are posted in the order in which they were handed over, at
//! once or, if the queue is full, by whoever takes the completion that makes room. Everything that a future waits for is a
//! completion, so one driver for each completion queue is enough, whoever it is.

mod bind;
mod core;
mod cq;
mod driver;
mod error;
mod ops;
mod payload;
mod qp;
mod qp_state;
mod receives;
mod request;
mod stream;
#[cfg(feature = "tokio")]
mod tokio;

pub use bind::BindRequest;
pub use cq::AsyncCq;
pub use driver::{CqDriver, Turn};
pub use error::WrError;
pub use payload::{Payload, Slices};
pub use qp::AsyncQp;
pub use receives::{Received, Receives};
pub use request::{AtomicRequest, WorkRequest};
pub(crate) use stream::Watch;
pub use stream::{
    BlockingStream, RdmaListener, RdmaReadHalf, RdmaStream, RdmaWriteHalf, StreamAttr, StreamError,
    StreamOffer, StreamSetup,
};
#[cfg(feature = "tokio")]
pub use tokio::exchange_async;
