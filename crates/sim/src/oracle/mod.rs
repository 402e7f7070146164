//! Random programs, and what must be true of them.
