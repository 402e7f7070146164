use std::sync::Arc;

use super::Buffer;
use crate::{MemError, Region, raw::page_size};

#[test]
fn a_new_buffer_is_zeroed_and_page_aligned() {
    for len in [1, 8, 4096, 4097, 5 << 20] {
        let buffer = Buffer::new(len).unwrap();
        assert_eq!(buffer.addr() % page_size(), 0);
        assert_eq!(buffer.len(), len);
        let mut bytes = vec![0xff; len];
        buffer.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn an_empty_buffer_holds_nothing_and_allows_nothing() {
    let buffer = Buffer::new(0).unwrap();
    assert!(buffer.is_empty());
    assert_eq!(buffer.read(0, &mut []), Ok(()));
    assert_eq!(buffer.write(0, &[]), Ok(()));
    assert_eq!(buffer.read(0, &mut [0]), Err(MemError::OutOfBounds { offset: 0, len: 1, region_len: 0 }));
}

#[test]
fn more_memory_than_there_is_is_an_error() {
    let error = Buffer::new(usize::MAX & !0xfff).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
}

#[test]
fn a_region_keeps_its_buffer() {
    let buffer = Arc::new(Buffer::new(64).unwrap());
    buffer.write(0, &[7; 64]).unwrap();
    let region = Region::from_buffer(&buffer);
    let address = buffer.addr();
    drop(buffer);
    assert_eq!((region.addr(), region.len()), (address as u64, 64));
    let mut last = [0];
    region.clone().read(63, &mut last).unwrap();
    assert_eq!(last, [7]);
}
