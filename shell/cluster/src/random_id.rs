//! Random ids of processes and rings.

use std::io;

use crate::election::Id;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns 128 random bits of the kernel.
///
/// # Errors
/// The kernel's.
pub fn random_id() -> io::Result<Id> {
    let mut bytes = [0; 16];
    // The kernel fills up to 256 bytes at once.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(Id(u128::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ() {
        assert_ne!(random_id().unwrap(), random_id().unwrap());
    }
}
