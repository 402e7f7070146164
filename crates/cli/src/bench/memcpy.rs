//! The bound of everything that moves bytes: one core copying 1 MiB, over and over.

use std::hint::black_box;

use userdma_link::clock;

use super::report::Figures;

/// Copies for so long.
pub(super) fn measure(slice_ns: u64) -> Figures {
    let (source, mut target) = (vec![1_u8; LEN], vec![0_u8; LEN]);
    let mut copied = 0;
    let start = clock::now();
    loop {
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
        copied += LEN;
        let ns = clock::now().since(start).as_nanos();
        if ns >= slice_ns.into() {
            // One core is busy all the time.
            let gb_per_s = copied as f64 / ns as f64;
            return Figures {
                gb_per_s: Some(gb_per_s),
                cpu_s_per_gb: Some(1.0 / gb_per_s),
                ..Figures::default()
            };
        }
    }
}

const LEN: usize = 1 << 20;
