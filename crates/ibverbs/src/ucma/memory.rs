//! Copies from and to the program's memory at addresses that it names: what is not there is `EFAULT`, never a crash.

use userdma_mem::Region;

use super::abi::Plain;
use crate::answer::Refused;

/// The structure at an address.
pub(super) fn read<T: Plain>(address: u64) -> Result<T, Refused> {
    read_start(address, size_of::<T>())
}

/// The first `len` bytes of the structure at an address, and zeros.
pub(super) fn read_start<T: Plain>(address: u64, len: usize) -> Result<T, Refused> {
    let mut value = T::zeroed();
    // SAFETY: the bytes of a local, all of which have values, as `Plain` promises; any others are values too.
    let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut value).cast::<u8>(), size_of::<T>()) };
    let len = len.min(bytes.len());
    read_bytes(address, &mut bytes[..len])?;
    Ok(value)
}

/// Fills `to` with the bytes at an address.
pub(super) fn read_bytes(address: u64, to: &mut [u8]) -> Result<(), Refused> {
    region(address, to.len())?.read(0, to).map_err(|_| FAULT)
}

/// Copies a structure to an address.
pub(super) fn write<T: Plain>(address: u64, value: &T) -> Result<(), Refused> {
    write_start(address, value, size_of::<T>())
}

/// Copies the first `len` bytes of a structure to an address; all, if it has fewer.
pub(super) fn write_start<T: Plain>(address: u64, value: &T, len: usize) -> Result<(), Refused> {
    // SAFETY: the bytes of a structure that has none between its fields.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
    let len = len.min(bytes.len());
    region(address, len)?.write(0, &bytes[..len]).map_err(|_| FAULT)
}

fn region(address: u64, len: usize) -> Result<Region, Refused> {
    let address = usize::try_from(address).map_err(|_| FAULT)?;
    // SAFETY: the memory is the program's, which gives it for the time of this call. No Rust reference leads there.
    Ok(unsafe { Region::from_raw(std::ptr::with_exposed_provenance_mut(address), len) })
}

const FAULT: Refused = Refused(libc::EFAULT);

#[cfg(test)]
mod tests {
    use super::super::abi::{CreateIdResponse, Header};
    use super::*;

    #[test]
    fn what_is_not_there_is_a_fault() {
        for address in [0, 8, 1 << 47, u64::MAX - 3, 0xffff_8000_0000_0000] {
            assert_eq!(read::<Header>(address).err(), Some(FAULT), "{address:#x}");
            assert_eq!(write(address, &CreateIdResponse { id: 1 }), Err(FAULT), "{address:#x}");
        }
    }

    #[test]
    fn a_part_of_a_structure_leaves_the_rest_alone() {
        let mut bytes = [0xff_u8; 8];
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        let header = read_start::<Header>(address, 4).unwrap();
        assert_eq!((header.command, header.input, header.output), (u32::MAX, 0, 0));
        write_start(address, &Header { command: 0, input: 0, output: 0 }, 6).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    }
}
