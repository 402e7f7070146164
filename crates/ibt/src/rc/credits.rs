//! End-to-end credits: how many more messages the responder has receives for, as 5 bits of an AETH.
//!
//! The code is coarse: each power of two and the half-way point to the next. 31 says nothing about receives.

/// Messages that each code stands for.
const TABLE: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768,
];

/// The code of the largest number that is not above `receives`: 0 ..= 30.
pub(super) fn encode(receives: u32) -> u8 {
    let above = TABLE.partition_point(|&n| n <= receives);
    // The table has 31 entries and starts with 0, so the point lies in 1 ..= 31.
    u8::try_from(above.saturating_sub(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_never_promise_more_than_there_is() {
        for receives in 0..70_000 {
            let code = usize::from(encode(receives));
            assert!(TABLE[code] <= receives);
            assert!(code == 30 || TABLE[code + 1] > receives);
        }
    }
}
