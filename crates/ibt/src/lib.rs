//! ibt
