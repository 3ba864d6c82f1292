//! The calls that a store understands, in small words.

use arbitrary::{Result, Unstructured};

use super::keys::KEYS;

/// A call of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// Store an item, over an old one or new.
    Put {
        /// Its key.
        key: u8,
        /// How long the value is, in bytes.
        bytes: usize,
        /// In how many ticks it expires; 0 is never.
        ttl: u8,
        /// Whether it has flags.
        has_flags: bool,
        /// Whether it is locked from now on, if there is none yet.
        is_locked: bool,
    },
    /// Add to the value of an item.
    Extend {
        /// Its key.
        key: u8,
        /// How much, in bytes.
        bytes: usize,
        /// Behind it, or before it.
        is_back: bool,
    },
    /// Take an item out.
    Remove {
        /// Its key.
        key: u8,
    },
    /// Change an item's header: everything but lock and flags.
    Touch {
        /// Its key.
        key: u8,
        /// In how many ticks it expires; 0 is never.
        ttl: u8,
    },
    /// Lock or unlock an item.
    Lock {
        /// Its key.
        key: u8,
        /// Which of the two.
        is_locked: bool,
    },
    /// Note that an item was used.
    Hit {
        /// Its key.
        key: u8,
    },
    /// Flush.
    Clear,
    /// Look for expired items.
    Crawl {
        /// How many.
        items_max: usize,
    },
    /// Begin a scan, or show the next page of the one that is under way.
    Scan {
        /// How many items a page looks at.
        items_max: usize,
    },
    /// Set a part of the limit aside, but keep an item.
    SetAside {
        /// Its key.
        kept: u8,
        /// How much, in bytes.
        bytes: usize,
    },
    /// The limit of memory changes.
    Limit {
        /// The new limit, in quarters of the first one.
        quarters: u8,
    },
    /// Time passes.
    Pass {
        /// How much of it.
        ticks: u8,
    },
}

/// From which lengths values are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Most values have at most so many bytes.
    pub small_bytes_max: usize,
    /// The others have at most so many.
    pub large_bytes_max: usize,
    /// How many of twelve are of the others.
    pub large_of_12: u8,
}

impl Call {
    /// The key of the call's item, if it is about one.
    #[must_use]
    pub const fn key(&self) -> Option<u8> {
        match *self {
            Self::Put { key, .. }
            | Self::Extend { key, .. }
            | Self::Remove { key }
            | Self::Touch { key, .. }
            | Self::Lock { key, .. }
            | Self::Hit { key }
            | Self::SetAside { kept: key, .. } => Some(key),
            Self::Clear
            | Self::Crawl { .. }
            | Self::Scan { .. }
            | Self::Limit { .. }
            | Self::Pass { .. } => None,
        }
    }

    /// Draws a call. When no bytes are left, all draws are the same.
    ///
    /// # Errors
    /// None; [`Unstructured`] has the signature.
    pub fn draw(source: &mut Unstructured<'_>, sizes: Sizes) -> Result<Self> {
        let key = source.int_in_range(0..=KEYS - 1)?;
        Ok(match source.int_in_range(0..=41_u8)? {
            0..=15 => Self::Put {
                key,
                bytes: sizes.draw(source)?,
                ttl: source.int_in_range(0..=4)? * 3,
                has_flags: source.ratio(1_u8, 4_u8)?,
                is_locked: source.ratio(1_u8, 16_u8)?,
            },
            16..=18 => Self::Extend {
                key,
                bytes: sizes.draw(source)?,
                is_back: source.arbitrary()?,
            },
            19..=22 => Self::Remove { key },
            23..=24 => Self::Touch {
                key,
                ttl: source.int_in_range(0..=4)? * 3,
            },
            25 => Self::Lock {
                key,
                is_locked: true,
            },
            26..=28 => Self::Lock {
                key,
                is_locked: false,
            },
            29..=33 => Self::Hit { key },
            34 => {
                if source.ratio(1_u8, 4_u8)? {
                    Self::Clear
                } else {
                    Self::Hit { key }
                }
            }
            35 => Self::Crawl {
                items_max: source.int_in_range(0..=12)?,
            },
            36..=37 => Self::Scan {
                items_max: source.int_in_range(1..=12)?,
            },
            38 => Self::SetAside {
                kept: key,
                bytes: source.int_in_range(0..=sizes.large_bytes_max / 2)?,
            },
            39 => Self::Limit {
                quarters: source.int_in_range(2..=8)?,
            },
            _ => Self::Pass {
                ticks: source.int_in_range(1..=4)?,
            },
        })
    }
}

impl Sizes {
    fn draw(self, source: &mut Unstructured<'_>) -> Result<usize> {
        let bytes_max = if source.ratio(self.large_of_12, 12_u8)? {
            self.large_bytes_max
        } else {
            self.small_bytes_max
        };
        source.int_in_range(0..=bytes_max)
    }
}
