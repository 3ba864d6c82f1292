//! Bytes that are zeroed when their last owner drops them.
//!
//! - Z2: The last owner zeroes the bytes when it drops them. That is the store, or a reply that was still being
//!   sent.

use alloc::vec::Vec;

use bytes::Bytes;
use zeroize::{Zeroize, Zeroizing};

/// Shares `value`; it is zeroed at its end (Z2).
pub(crate) fn erased(value: Vec<u8>) -> Bytes {
    Bytes::from_owner(Zeroizing::new(value))
}

/// Zeroes `bytes`, even if they are not read again.
pub(crate) fn zero(bytes: &mut [u8]) {
    bytes.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shared_as_they_are_and_zeroed_in_place() {
        let shared = erased(b"secret".to_vec());
        let again = shared.clone();
        drop(shared);
        assert_eq!(again, b"secret".as_slice());
        let mut value = b"secret".to_vec();
        zero(&mut value[1..]);
        assert_eq!(value, b"s\0\0\0\0\0");
    }
}
