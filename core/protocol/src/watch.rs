//! `watch`: reports the events of a server, a line at a time, to a client that asks for them.
//!
//! This file has the topics ([`Topics`]), and the lines of a command and its reply in memcached's form
//! ([`each_line`]). The transport knows the watching clients and sends them the lines. A core knows nothing of
//! watching, and watching never changes a reply.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Watchers"; `logger.c`.

mod lines;

use alloc::string::String;
use alloc::vec::Vec;

use self::lines::{keyed, put};
use crate::conn_id::ConnId;

pub use self::lines::{all_unlocked, each_line, of_session};

/// A topic to watch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Topic {
    /// Keys that were looked up, for any purpose, and whether there was an item.
    Fetchers,
    /// Stores and their results.
    Mutations,
    /// Deletes that removed an item.
    Deletions,
    /// Items that were evicted.
    Evictions,
    /// Connections that were opened and closed.
    Connections,
    /// Locks that were requested and released.
    Locks,
}

/// A set of topics.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Topics(u8);

impl Topics {
    /// No topic.
    pub const NONE: Self = Self(0);

    /// One topic.
    #[must_use]
    pub const fn of(topic: Topic) -> Self {
        Self(1 << topic as u8)
    }

    /// The topics of both sets.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether it has this topic.
    #[must_use]
    pub const fn contain(self, topic: Topic) -> bool {
        self.0 & Self::of(topic).0 != 0
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether its events show keys of clients.
    #[must_use]
    pub const fn tell_keys(self) -> bool {
        self.0 & !Self::of(Topic::Connections).0 != 0
    }

    /// As a number, for an atomic.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The topics with this number from [`bits`](Self::bits).
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Reads the arguments of `watch`. The beginning of a name is enough, as in memcached. No argument means
    /// fetchers. A topic that only memcached has (`proxyreqs`, say) is ignored.
    pub(crate) fn from_words<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        const WORDS: &[(&[u8], Topics)] = &[
            (b"rawcmds", Topics::NONE),
            (b"evictions", Topics::of(Topic::Evictions)),
            (b"fetchers", Topics::of(Topic::Fetchers)),
            (b"mutations", Topics::of(Topic::Mutations)),
            (b"sysevents", Topics::NONE),
            (b"connevents", Topics::of(Topic::Connections)),
            (b"proxyreqs", Topics::NONE),
            (b"proxyevents", Topics::NONE),
            (b"proxyuser", Topics::NONE),
            (b"deletions", Topics::of(Topic::Deletions)),
            (b"locks", Topics::of(Topic::Locks)),
        ];
        let mut topics = Self::NONE;
        let mut count = 0;
        for word in words {
            let (_, topic) = WORDS.iter().find(|(name, _)| name.starts_with(word))?;
            topics = topics.and(*topic);
            count += 1;
        }
        Some(if count == 0 {
            Self::of(Topic::Fetchers)
        } else {
            topics
        })
    }
}

/// Whether a connection may watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Watched {
    /// Yes; it sends nothing more.
    Yes,
    /// The limit of watching connections is reached.
    TooMany,
    /// Watching is not allowed.
    No,
}

impl Watched {
    /// The line that the client receives.
    pub(crate) const fn line(self) -> &'static str {
        match self {
            Self::Yes => "OK",
            Self::TooMany => "WATCHER_TOO_MANY log watcher limit reached",
            Self::No => "CLIENT_ERROR watch commands not allowed",
        }
    }
}

/// The circumstances of a command: everything in a line but the command itself.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The connection of the command.
    pub conn: ConnId,
    /// The number of the session that executes the command.
    pub session: Option<u64>,
    /// Whether the command was written in the meta protocol.
    pub is_meta: bool,
    /// The time, in Unix seconds.
    pub unix_s: u64,
    /// The length of the value that the key had then; `None` if there was no item.
    pub found_bytes: Option<usize>,
}

/// An item that was evicted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Evicted {
    /// Its key.
    pub key: Vec<u8>,
    /// Whether a client had fetched it.
    pub fetched: bool,
    /// Seconds until it would have expired; `None` means never.
    pub ttl_s: Option<u32>,
    /// Its idle time, in seconds.
    pub idle_s: u32,
    /// The length of its value.
    pub value_bytes: usize,
}

impl Evicted {
    /// Its line.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = keyed("eviction", &self.key);
        let ttl = self.ttl_s.map_or(-1, i64::from);
        put(
            &mut line,
            format_args!(
                " fetch={} ttl={ttl} la={} clsid=1 size={}",
                if self.fetched { "yes" } else { "no" },
                self.idle_s,
                self.value_bytes
            ),
        );
        line
    }
}

#[cfg(test)]
mod tests;
