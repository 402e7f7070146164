//! Two processes as two hosts: how the second one is started, what the two say to each other, and what each of them
//! owns.
//!
//! A is the process that the user started; it asks. B is the second one; it answers over a small TCP connection, over
//! which the two also exchange what verbs programs exchange before they connect.

pub mod addresses;
pub mod control;
pub mod cpu;
pub mod pattern;
pub mod peer;
pub mod process;
pub mod protocol;
pub mod side;
pub mod watchdog;
