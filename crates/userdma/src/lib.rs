//! userdma
