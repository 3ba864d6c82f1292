//! The metadata of a lock: bytes of its holder, for the people and clients that look at the lock.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::base64_text;

/// The most bytes of a lock's metadata.
pub const LOCK_METADATA_BYTES_MAX: usize = 250;

/// The metadata of a lock: 1 to [`LOCK_METADATA_BYTES_MAX`] bytes, borrowed from the request.
#[derive(Clone, Copy)]
pub struct LockMetadata<'a>(Form<'a>);

/// The decoder of a request has no memory for decoded bytes, so these keep their form.
#[derive(Clone, Copy)]
enum Form<'a> {
    Plain(&'a [u8]),
    /// Base64 that decodes to so many bytes.
    Base64(&'a [u8], u8),
}

impl<'a> LockMetadata<'a> {
    /// These bytes; `None` if there are none or too many.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        match bytes.len() {
            1..=LOCK_METADATA_BYTES_MAX => Some(Self(Form::Plain(bytes))),
            _ => None,
        }
    }

    /// The bytes that this base64 decodes to; `None` if it is not base64, or these are too many.
    #[must_use]
    pub fn from_base64(text: &'a [u8]) -> Option<Self> {
        let bytes = base64_text::decode(text, &mut [0; LOCK_METADATA_BYTES_MAX])?;
        let bytes = u8::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
        Some(Self(Form::Base64(text, bytes)))
    }

    /// The number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Plain(bytes) => bytes.len(),
            Form::Base64(_, bytes) => bytes.into(),
        }
    }

    /// The bytes, decoded.
    #[must_use]
    pub fn to_bytes(&self) -> Box<[u8]> {
        match self.0 {
            Form::Plain(bytes) => bytes.into(),
            Form::Base64(text, bytes) => {
                let mut decoded = alloc::vec![0; bytes.into()];
                base64_text::decode(text, &mut decoded);
                decoded.into()
            }
        }
    }

    /// Appends the bytes in the one standard form of base64.
    pub(crate) fn put_base64(&self, out: &mut Vec<u8>) {
        // Text that decodes may have bytes between its digits, also line ends.
        base64_text::put(&self.to_bytes(), out);
    }
}

impl PartialEq for LockMetadata<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

impl Eq for LockMetadata<'_> {}

impl Hash for LockMetadata<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_bytes().hash(state);
    }
}

impl fmt::Debug for LockMetadata<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LockMetadata({})", self.to_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_1_to_250_bytes() {
        for (bytes, is_legal) in [(0, false), (1, true), (250, true), (251, false)] {
            let plain = alloc::vec![b'm'; bytes];
            let mut text = Vec::new();
            base64_text::put(&plain, &mut text);
            let metadata = LockMetadata::new(&plain);
            assert_eq!(metadata.is_some(), is_legal, "{bytes} bytes");
            assert_eq!(LockMetadata::from_base64(&text), metadata);
            let metadata = metadata.map(|it| (it.len(), it.to_bytes().to_vec()));
            assert_eq!(metadata, is_legal.then_some((bytes, plain)));
        }
    }

    #[test]
    fn both_forms_are_equal() {
        let plain = LockMetadata::new(b"job\n7").unwrap();
        let mut text = Vec::new();
        plain.put_base64(&mut text);
        assert_eq!(text, b"am9iCjc=");
        let with_gaps = LockMetadata::from_base64(b"am9i\r\nCjc=").unwrap();
        assert_eq!(with_gaps, plain);
        let mut again = Vec::new();
        with_gaps.put_base64(&mut again);
        assert_eq!(again, text);
        for bad in [&b"am9iCjc"[..], b"!", b"====", b"a===", b""] {
            assert_eq!(LockMetadata::from_base64(bad), None);
        }
    }
}
