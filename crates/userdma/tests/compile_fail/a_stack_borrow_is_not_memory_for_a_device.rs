//! A borrow can end, or be forgotten, while a peer still writes: only owned memory is registered.

use userdma::{AccessFlags, Device};

fn main() -> Result<(), userdma::Error> {
    let pd = Device::open("127.0.0.2")?.alloc_pd()?;
    let mut buffer = [0u8; 64];
    let _mr = pd.register(&mut buffer, AccessFlags::LOCAL_WRITE)?;
    Ok(())
}
