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
    for buffer in [Buffer::new(0).unwrap(), Buffer::from_vec(Vec::new())] {
        assert!(buffer.is_empty());
        assert_eq!(buffer.read(0, &mut []), Ok(()));
        assert_eq!(buffer.write(0, &[]), Ok(()));
        assert_eq!(buffer.read(0, &mut [0]), Err(MemError::OutOfBounds { offset: 0, len: 1, region_len: 0 }));
        assert_eq!(buffer.into_vec(), Vec::<u8>::new());
    }
}

#[test]
fn more_memory_than_there_is_is_an_error() {
    let error = Buffer::new(usize::MAX & !0xfff).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
}

#[test]
fn a_vec_comes_back_in_place_with_its_capacity() {
    let mut bytes = Vec::with_capacity(1000);
    bytes.extend_from_slice(b"hello");
    let (address, capacity) = (bytes.as_ptr().addr(), bytes.capacity());
    let buffer = Buffer::from_vec(bytes);
    assert_eq!((buffer.addr(), buffer.len()), (address, 5));
    buffer.write(1, b"ipp").unwrap();
    let bytes = buffer.into_vec();
    assert_eq!((bytes.as_ptr().addr(), bytes.capacity()), (address, capacity));
    assert_eq!(bytes, b"hippo");
}

#[test]
fn a_mapping_becomes_a_vec_by_copy() {
    let buffer = Buffer::new(3).unwrap();
    buffer.write(0, b"abc").unwrap();
    assert_eq!(buffer.into_vec(), b"abc");
}

#[test]
fn a_region_keeps_its_buffer() {
    let buffer = Arc::new(Buffer::from_vec(vec![7; 64]));
    let region = Region::from_buffer(&buffer);
    assert!(Arc::ptr_eq(region.owner().unwrap(), &buffer));
    let address = buffer.addr();
    drop(buffer);
    assert_eq!((region.addr(), region.len()), (address as u64, 64));
    let mut last = [0];
    region.clone().read(63, &mut last).unwrap();
    assert_eq!(last, [7]);
}
