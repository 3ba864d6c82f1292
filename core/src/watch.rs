//! `watch`: what happens in a server, told a line at a time to whoever asks for it.
//!
//! Here is what can be asked for ([`Topics`]), and what a command and its reply are in memcached's line
//! form ([`each_line`]). Who watches, and how lines reach them, is the transport's business: a core
//! knows nothing of it, and nothing of it reaches an answer.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Watchers"; `logger.c`.

mod lines;

use alloc::string::String;
use alloc::vec::Vec;

use self::lines::{keyed, put};
use crate::conn_id::ConnId;

pub use self::lines::{all_unlocked, each_line};

/// What can be watched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Topic {
    /// Keys that were looked up, whatever for, and whether there was an item.
    Fetchers,
    /// Stores, and what came of them.
    Mutations,
    /// Deletes that removed an item.
    Deletions,
    /// Items that were evicted.
    Evictions,
    /// Connections that came and went.
    Connections,
    /// Locks that were asked for and given back.
    Locks,
}

/// A set of topics.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Topics(u8);

impl Topics {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// This one.
    #[must_use]
    pub const fn of(topic: Topic) -> Self {
        Self(1 << topic as u8)
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether it is one of them.
    #[must_use]
    pub const fn contain(self, topic: Topic) -> bool {
        self.0 & Self::of(topic).0 != 0
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether what is told of them holds keys of clients.
    #[must_use]
    pub const fn tell_keys(self) -> bool {
        self.0 & !Self::of(Topic::Connections).0 != 0
    }

    /// As a number, for whoever keeps it in an atomic.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The topics that [`bits`](Self::bits) has made this number of.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Reads the words behind `watch`: the beginning of one is enough, as in memcached. No words are
    /// gets; what memcached has and is not there to be seen here (`proxyreqs`, say) is nothing.
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
    /// It does, and asks for nothing more.
    Yes,
    /// There are as many already as there may be.
    TooMany,
    /// Nobody may.
    No,
}

impl Watched {
    /// What the client is told.
    pub(crate) const fn line(self) -> &'static str {
        match self {
            Self::Yes => "OK",
            Self::TooMany => "WATCHER_TOO_MANY log watcher limit reached",
            Self::No => "CLIENT_ERROR watch commands not allowed",
        }
    }
}

/// Who has asked, when and how: what a line says besides the command.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whose command it is.
    pub conn: ConnId,
    /// Whether it was written in the meta protocol.
    pub is_meta: bool,
    /// When, in Unix seconds.
    pub unix_s: u64,
    /// How long the value was that the key had then; `None` if there was no item.
    pub found_bytes: Option<usize>,
}

/// An item that was evicted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Evicted {
    /// Its key.
    pub key: Vec<u8>,
    /// Whether anybody had fetched it.
    pub fetched: bool,
    /// In how many seconds it would have expired; `None` is never.
    pub ttl_s: Option<u32>,
    /// For how long nobody had asked for it, in seconds.
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
