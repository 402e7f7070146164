//! Management datagrams (MADs): what arrives at queue pair 1, always 256 bytes.
//!
//! ```text
//!   0: base version   1: class     2: class version   3: method
//!   4-5: status       6-7: class specific             8-15: transaction id
//!  16-17: attribute id  18-19: reserved              20-23: attribute modifier
//!  24-255: data, which class and attribute give a meaning
//! ```
//! As `ib_mad.h struct ib_mad_hdr`. Two classes of attributes are known: the messages of communication
//! management ([`cm`]), and [`ClassPortInfo`], which every class answers.

mod class_port_info;
pub mod cm;
mod field;
mod pretty;

pub use class_port_info::ClassPortInfo;
pub use field::Data;
pub use pretty::{Fields, Words};

use field::{Field, Place};

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;

/// Why bytes are not a MAD, or not one of the kind that was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadMad {
    /// It has this many bytes instead of 256.
    #[error("{0} bytes instead of 256")]
    Length(usize),
    /// A field has a value that means nothing.
    #[error("{field} is {value:#x}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What stands in it.
        value: u64,
    },
}

/// The header of a MAD.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// The format of MADs: [`Header::BASE_VERSION`].
    pub base_version: u8,
    /// The management class.
    pub class: u8,
    /// The version of the class.
    pub class_version: u8,
    /// What is wanted: one of the `METHOD` constants.
    pub method: u8,
    /// 0 in requests.
    pub status: u16,
    /// Belongs to the class.
    pub class_specific: u16,
    /// Relates answers to questions.
    pub transaction_id: u64,
    /// What the data are.
    pub attribute_id: u16,
    /// Which of several of that kind.
    pub attribute_modifier: u32,
}

impl Header {
    /// Bytes of the header.
    pub const LEN: usize = 24;
    /// The only version of the format.
    pub const BASE_VERSION: u8 = 1;
    /// Reads an attribute.
    pub const METHOD_GET: u8 = 0x01;
    /// Sets an attribute.
    pub const METHOD_SET: u8 = 0x02;
    /// Tells something; all messages of communication management do.
    pub const METHOD_SEND: u8 = 0x03;
    /// Answers a Get or Set.
    pub const METHOD_GET_RESP: u8 = 0x81;
    /// The status of an answer that the attribute or the method is not known.
    pub const STATUS_UNSUPPORTED_METHOD_ATTRIBUTE: u16 = 0x000c;

    /// Reads the header of a MAD.
    ///
    /// # Errors
    /// Not 256 bytes, or another base version.
    pub fn parse(mad: &[u8]) -> Result<Self, BadMad> {
        let mad = whole(mad)?;
        let header = Self {
            base_version: read(mad, "base_version", 0, 8)?,
            class: read(mad, "class", 1, 8)?,
            class_version: read(mad, "class_version", 2, 8)?,
            method: read(mad, "method", 3, 8)?,
            status: read(mad, "status", 4, 16)?,
            class_specific: read(mad, "class_specific", 6, 16)?,
            transaction_id: read(mad, "transaction_id", 8, 64)?,
            attribute_id: read(mad, "attribute_id", 16, 16)?,
            attribute_modifier: read(mad, "attribute_modifier", 20, 32)?,
        };
        expect("base_version", header.base_version.into(), Self::BASE_VERSION.into())?;
        Ok(header)
    }

    /// Writes it to the first 24 bytes of `mad`.
    pub fn write(&self, mad: &mut [u8; MAD_LEN]) {
        self.base_version.write(mad, Place::new(0, 0, 8));
        self.class.write(mad, Place::new(1, 0, 8));
        self.class_version.write(mad, Place::new(2, 0, 8));
        self.method.write(mad, Place::new(3, 0, 8));
        self.status.write(mad, Place::new(4, 0, 16));
        self.class_specific.write(mad, Place::new(6, 0, 16));
        self.transaction_id.write(mad, Place::new(8, 0, 64));
        self.attribute_id.write(mad, Place::new(16, 0, 16));
        0u16.write(mad, Place::new(18, 0, 16));
        self.attribute_modifier.write(mad, Place::new(20, 0, 32));
    }
}

/// The bytes, if they are as many as a MAD has.
fn whole(mad: &[u8]) -> Result<&[u8; MAD_LEN], BadMad> {
    mad.try_into().map_err(|_| BadMad::Length(mad.len()))
}

fn read<F: Field>(mad: &[u8; MAD_LEN], name: &'static str, byte: usize, width: usize) -> Result<F, BadMad> {
    let place = Place::new(byte, 0, width);
    F::read(mad, place).ok_or_else(|| BadMad::Field { field: name, value: place.value(mad) })
}

fn expect(field: &'static str, value: u64, expected: u64) -> Result<(), BadMad> {
    if value == expected { Ok(()) } else { Err(BadMad::Field { field, value }) }
}
