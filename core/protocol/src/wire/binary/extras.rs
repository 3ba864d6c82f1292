//! The extras of a request: the numbers of a command, in front of the key.
//!
//! Which extras an opcode has is in its [`Shape`](super::opcode::Shape).
//!
//! Source: memcached 1.6.45 `protocol_binary.h`.

use alloc::vec::Vec;

use super::opcode::ExtrasShape;

/// The extras of a request. Exptimes are the unsigned numbers of the wire.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Extras {
    /// The command has no numbers.
    #[default]
    None,
    /// When an item expires (Touch, GAT, `LaG`), or all items are removed (Flush).
    Exptime(u32),
    /// The numbers stored with the value, by Set, Add, Replace and `RaU`.
    Store {
        /// Kept with the item and returned with it; only the client gives them a meaning.
        client_flags: u32,
        /// As in [`Exptime::from_wire`](crate::time::Exptime::from_wire), without a sign.
        exptime: u32,
    },
    /// The numbers of Increment and Decrement.
    Arithmetic {
        /// The amount. An Increment past 2^64 starts again at 0, a Decrement stops there.
        delta: u64,
        /// The number in a new item.
        initial: u64,
        /// The exptime of a new item. With [`EXPTIME_DO_NOT_CREATE`], no item is made.
        exptime: u32,
    },
    /// The verbosity of the log (Verbosity). It is read and has no effect.
    Level(u32),
}

/// The exptime with which an Increment or Decrement of a missing item makes none.
///
/// Source: memcached 1.6.45 `proto_bin.c`, `complete_incr_bin`.
pub const EXPTIME_DO_NOT_CREATE: u32 = u32::MAX;

impl Extras {
    /// Reads extras of this shape; `None` if `bytes` are not of this shape.
    pub(super) fn decode(shape: ExtrasShape, bytes: &[u8]) -> Option<Self> {
        match shape {
            ExtrasShape::None => Some(Self::None),
            ExtrasShape::OptionalExptime if bytes.is_empty() => Some(Self::None),
            ExtrasShape::OptionalExptime | ExtrasShape::Exptime => {
                Some(Self::Exptime(u32::from_be_bytes(*bytes.first_chunk()?)))
            }
            ExtrasShape::Level => Some(Self::Level(u32::from_be_bytes(*bytes.first_chunk()?))),
            ExtrasShape::Store => {
                let (client_flags, exptime) = bytes.split_first_chunk()?;
                Some(Self::Store {
                    client_flags: u32::from_be_bytes(*client_flags),
                    exptime: u32::from_be_bytes(*exptime.first_chunk()?),
                })
            }
            ExtrasShape::Arithmetic => {
                let (delta, rest) = bytes.split_first_chunk()?;
                let (initial, exptime) = rest.split_first_chunk()?;
                Some(Self::Arithmetic {
                    delta: u64::from_be_bytes(*delta),
                    initial: u64::from_be_bytes(*initial),
                    exptime: u32::from_be_bytes(*exptime.first_chunk()?),
                })
            }
        }
    }

    /// Appends the numbers to `out`, big-endian and in the order of the fields.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::None => {}
            Self::Exptime(word) | Self::Level(word) => out.extend_from_slice(&word.to_be_bytes()),
            Self::Store {
                client_flags,
                exptime,
            } => {
                out.extend_from_slice(&client_flags.to_be_bytes());
                out.extend_from_slice(&exptime.to_be_bytes());
            }
            Self::Arithmetic {
                delta,
                initial,
                exptime,
            } => {
                out.extend_from_slice(&delta.to_be_bytes());
                out.extend_from_slice(&initial.to_be_bytes());
                out.extend_from_slice(&exptime.to_be_bytes());
            }
        }
    }

    /// The length of the extras, as in the header.
    pub(super) const fn bytes(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Exptime(_) | Self::Level(_) => 4,
            Self::Store { .. } => 8,
            Self::Arithmetic { .. } => 20,
        }
    }
}
