//! The oldest C library that a program runs on, by the versions of the symbols that it needs.

use std::fmt;

/// A version of glibc.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Glibc(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Glibc {
    /// Of the name of a version, as `GLIBC_2.34` or `GLIBC_2.2.5`; `None` for those of other libraries.
    fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

/// The newest glibc that a 64-bit ELF file of this machine's byte order asks for: it runs on none that is older.
///
/// # Errors
/// It is no such file, or asks for no version, which a program of ours does.
pub(crate) fn needed(file: &[u8]) -> Result<Glibc, String> {
    let elf = Elf::new(file).ok_or("no 64-bit ELF file")?;
    let names = elf.needed_versions().ok_or("its table of needed versions is broken")?;
    names.into_iter().filter_map(Glibc::parse).max().ok_or_else(|| "it needs no version of glibc".to_owned())
}

struct Elf<'a> {
    file: &'a [u8],
    sections: Vec<Section>,
}

/// A line of the table of sections.
#[derive(Clone, Copy)]
struct Section {
    kind: u64,
    offset: usize,
    len: usize,
    /// For names, the section that has them.
    link: usize,
    /// For needed versions, how many libraries there are.
    info: u64,
}

impl<'a> Elf<'a> {
    fn new(file: &'a [u8]) -> Option<Self> {
        if !file.starts_with(b"\x7fELF\x02") {
            return None;
        }
        let (table, size, count) = (place(file, 0x28, 8)?, place(file, 0x3a, 2)?, place(file, 0x3c, 2)?);
        let section = |index: usize| {
            let at = index.checked_mul(size)?.checked_add(table)?;
            Some(Section {
                kind: number(file, at.checked_add(4)?, 4)?,
                offset: place(file, at.checked_add(24)?, 8)?,
                len: place(file, at.checked_add(32)?, 8)?,
                link: place(file, at.checked_add(40)?, 4)?,
                info: number(file, at.checked_add(44)?, 4)?,
            })
        };
        Some(Self { file, sections: (0..count).map(section).collect::<Option<_>>()? })
    }

    fn bytes(&self, section: &Section) -> Option<&'a [u8]> {
        self.file.get(section.offset..section.offset.checked_add(section.len)?)
    }

    /// Names of the versions that are needed of any library.
    fn needed_versions(&self) -> Option<Vec<&'a str>> {
        let mut names = Vec::new();
        for section in self.sections.iter().filter(|section| section.kind == GNU_VERNEED) {
            let (table, strings) = (self.bytes(section)?, self.bytes(self.sections.get(section.link)?)?);
            let mut library = 0;
            for _ in 0..section.info {
                let (count, mut version) =
                    (number(table, library + 2, 2)?, library + place(table, library + 8, 4)?);
                for _ in 0..count {
                    names.push(text(strings, place(table, version + 8, 4)?)?);
                    version += place(table, version + 12, 4)?;
                }
                library += place(table, library + 12, 4)?;
            }
        }
        Some(names)
    }
}

/// A number of `len` bytes, at most 8.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
    Some(u64::from_le_bytes(number))
}

fn place(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    usize::try_from(number(bytes, at, len)?).ok()
}

/// The text at `at`, up to its zero.
fn text(strings: &[u8], at: usize) -> Option<&str> {
    let rest = strings.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// `SHT_GNU_verneed`.
const GNU_VERNEED: u64 = 0x6fff_fffe;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_versions_are_read() {
        assert_eq!(Glibc::parse("GLIBC_2.34"), Some(Glibc(2, 34)));
        assert_eq!(Glibc::parse("GLIBC_2.2.5"), Some(Glibc(2, 2)));
        assert_eq!((Glibc::parse("GLIBC_PRIVATE"), Glibc::parse("GCC_3.0")), (None, None));
        assert!(Glibc(2, 9) < Glibc(2, 34), "numbers, not text");
    }

    #[test]
    fn a_program_of_this_machine_needs_a_glibc_and_a_broken_one_is_refused() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needed = needed(&program).unwrap();
        assert!((Glibc(2, 17)..Glibc(3, 0)).contains(&needed), "{needed}");
        assert!(super::needed(b"#!/bin/sh\n").unwrap_err().contains("no 64-bit ELF"));
        for len in [5, 64, 100] {
            assert!(super::needed(&program[..len]).is_err(), "{len} bytes of it");
        }
    }
}
