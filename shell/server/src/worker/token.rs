//! Names for the sources of a worker's events.

use rustix::event::epoll::EventData;

/// The target of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Token {
    Mailbox,
    Client {
        slot: usize,
        /// The lowest 30 bits of the connection id (V3).
        tag: u32,
    },
    /// The socket of a closed client.
    Lingering {
        place: usize,
    },
}

impl Token {
    /// The kind stands above the tag, which has 30 bits.
    const MAILBOX: u64 = 1 << 62;
    const LINGERING: u64 = 1 << 63;

    pub(super) fn client(slot: usize, conn: u64) -> Self {
        // The cast drops the same bits as the mask.
        #[allow(clippy::cast_possible_truncation)]
        Self::Client {
            slot,
            tag: conn as u32 & (u32::MAX >> 2),
        }
    }

    pub(super) fn encode(self) -> EventData {
        EventData::new_u64(match self {
            Self::Mailbox => Self::MAILBOX,
            Self::Client { slot, tag } => (u64::from(tag) << 32) | slot as u64,
            Self::Lingering { place } => Self::LINGERING | place as u64,
        })
    }

    pub(super) fn decode(data: EventData) -> Self {
        let number = data.u64();
        // Both casts keep the value: a slot and an index are far below 2^32, a tag has 30 bits.
        #[allow(clippy::cast_possible_truncation)]
        let (tag, place) = (
            (number >> 32) as u32,
            (number & u64::from(u32::MAX)) as usize,
        );
        if number & Self::MAILBOX != 0 {
            Self::Mailbox
        } else if number & Self::LINGERING != 0 {
            Self::Lingering { place }
        } else {
            Self::Client { slot: place, tag }
        }
    }
}
