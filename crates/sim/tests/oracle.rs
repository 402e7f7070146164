//! Random programs under random faults: the same ones each time. `cargo xtask oracle` runs others.
//!
//! `USERDMA_ORACLE_SEED` is the first program's seed (decimal, or hexadecimal after `0x`), `USERDMA_ORACLE_COUNT` how many
//! programs are run; with `USERDMA_ORACLE_TRACE` a failure shows all of its program's packets instead of the last ones.

use userdma_sim::oracle::{self, parse_seed};

#[test]
fn random_programs_do_what_the_model_says() {
    let seed = number("USERDMA_ORACLE_SEED", 0x5eed_0000);
    let count = number("USERDMA_ORACLE_COUNT", 300);
    println!("oracle: {count} programs from seed {seed:#x}");
    match oracle::run_many(seed, count) {
        Ok(report) => println!("{report}"),
        Err(failure) if std::env::var_os("USERDMA_ORACLE_TRACE").is_some() => panic!("{failure:#}"),
        Err(failure) => panic!("{failure}"),
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return default };
    parse_seed(&text).unwrap_or_else(|error| panic!("{variable}: {error}"))
}
