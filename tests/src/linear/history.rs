//! Requests of clients, their answers, and the times of both.

use std::fmt;

use latchd_harness::wording::Protocol;

/// A moment that has not come: the end of a request without an answer.
pub const NEVER: u64 = u64::MAX;

/// A request about one key, or an event that concerns it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Reads. In meta text it takes part in recaching.
    Get,
    /// `mg N0`: reads, and makes a missing item.
    Vivify,
    /// Stores.
    Store(Store),
    /// Stores over an item and releases its lock, in one step.
    ReplaceAndUnlock(Store),
    /// Removes the item, if it has this version.
    Delete {
        /// The version; `None` is any.
        guard: Option<u64>,
    },
    /// `md I`: marks the item out of date, if it has this version.
    MarkStale {
        /// The version; `None` is any.
        guard: Option<u64>,
    },
    /// `incr`, `decr`.
    Count {
        /// Whether it adds.
        up: bool,
        /// How much.
        delta: u64,
    },
    /// Acquires the lock of an item.
    Lock,
    /// Acquires the lock of an item and reads it, in one step.
    LockAndGet,
    /// Releases it.
    Unlock,
    /// `ml`: acquires the lock, with an item or without.
    Acquire,
    /// `mu`: releases it, if it is this grant.
    Release {
        /// The number of the grant; `None` is any.
        fence: Option<u64>,
    },
    /// Releases every lock of the connection.
    UnlockAll,
    /// `flush_all`.
    Flush,
    /// The connection ends, or the session: it happens, though no client is told.
    Death,
}

/// A value to be stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Store {
    /// The condition, and the kind of write.
    pub mode: Mode,
    /// The bytes.
    pub value: Box<[u8]>,
    /// The client's own number.
    pub client_flags: u32,
    /// The version that the item must have.
    pub guard: Option<u64>,
    /// With an older version it is stored all the same, and stays stale.
    pub else_stale: bool,
    /// The grant that it names.
    pub fence: Option<u64>,
}

impl Store {
    /// A plain `set`.
    #[must_use]
    pub fn new(value: &[u8]) -> Self {
        Self {
            mode: Mode::Set,
            value: value.into(),
            client_flags: 0,
            guard: None,
            else_stale: false,
            fence: None,
        }
    }
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Unconditionally.
    Set,
    /// Only if there is no item.
    Add,
    /// Only over an item.
    Replace,
    /// Behind the present value.
    Append,
    /// Before the present value.
    Prepend,
}

/// An answer, in words that are the same for the three protocols.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The item.
    Hit(Hit),
    /// There is none.
    Missing,
    /// Stored; with its version, if shown.
    Stored {
        /// The version.
        cas: Option<u64>,
    },
    /// The mode did not allow it.
    NotStored,
    /// Another version, or another grant.
    Exists,
    /// Removed or marked.
    Deleted,
    /// The number after the arithmetic.
    Counted {
        /// The number.
        number: u64,
        /// The version, if shown.
        cas: Option<u64>,
    },
    /// Locked, unlocked or flushed.
    Done,
    /// Locked by `ml`: the number of the grant.
    Granted {
        /// The number.
        fence: u64,
    },
    /// Another client has the lock.
    Locked,
    /// This connection has it: the answer of `ml`.
    Held {
        /// The server's number of the connection.
        by: u64,
    },
    /// The lock is not this connection's.
    NotLocked,
    /// There is no number to count from.
    NonNumeric,
}

/// An item as an answer shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hit {
    /// The stored value.
    pub value: Box<[u8]>,
    /// The client's own number.
    pub client_flags: u32,
    /// The version, if shown.
    pub cas: Option<u64>,
    /// Stale, won and sent, if the protocol shows them.
    pub marks: Option<Marks>,
}

/// `X`, `W` and `Z`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Marks {
    /// It is out of date.
    pub stale: bool,
    /// This reader is to recache it.
    pub won: bool,
    /// Another reader is.
    pub sent: bool,
}

/// One operation: from its first byte sent to its last byte received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Its connection, or its session: the server's number if known, and otherwise one from
    /// [`ANONYMOUS`] on.
    pub conn: u64,
    /// Which connection of a session it was sent on: operations of one happen in the order in which they were sent.
    pub lane: u64,
    /// Its place among the operations of its connection or session.
    pub place: u64,
    /// Which key of the round; `None` for all.
    pub key: Option<usize>,
    /// The protocol.
    pub protocol: Protocol,
    /// The request.
    pub operation: Operation,
    /// Before its first byte was sent: nanoseconds.
    pub invoked: u64,
    /// After its last byte was received; [`NEVER`] if it never was. Without an answer, it is the moment at which another
    /// connection had taken its session over: it has happened before, or never.
    pub answered: u64,
    /// `None` if it has not come: the request may have happened, or not.
    pub answer: Option<Answer>,
}

/// From here on it is a session, behind the server's number of it.
pub const SESSIONS: u64 = 1 << 63;

/// From here on a connection has a number of our own and not the server's: no binary client can ask
/// for the server's.
pub const ANONYMOUS: u64 = 3 << 62;

/// The number by which the server shows a connection or a session.
#[must_use]
pub const fn shown(conn: u64) -> u64 {
    if is_session(conn) {
        conn - SESSIONS
    } else {
        conn
    }
}

/// Whether this is a session.
#[must_use]
pub const fn is_session(conn: u64) -> bool {
    conn >= SESSIONS && conn < ANONYMOUS
}

impl Record {
    /// Whether it has happened for certain.
    #[must_use]
    pub const fn has_happened(&self) -> bool {
        self.answer.is_some() || matches!(self.operation, Operation::Death)
    }

    /// Whether the answer says that the request has changed nothing, in any state.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        match &self.answer {
            None
            | Some(
                Answer::Stored { .. }
                | Answer::Deleted
                | Answer::Counted { .. }
                | Answer::Granted { .. }
                | Answer::Done,
            ) => false,
            Some(Answer::Hit(hit)) => {
                matches!(self.operation, Operation::Get)
                    && !hit.marks.is_some_and(|marks| marks.won)
            }
            Some(
                Answer::Missing
                | Answer::NotStored
                | Answer::Exists
                | Answer::Locked
                | Answer::Held { .. }
                | Answer::NotLocked
                | Answer::NonNumeric,
            ) => true,
        }
    }
}

/// The name of a connection, as it is printed.
fn name(conn: u64, lane: u64) -> String {
    match conn.checked_sub(ANONYMOUS) {
        Some(number) => format!("binary {number}"),
        None if is_session(conn) => format!("session {}/{lane}", conn - SESSIONS),
        None => format!("text {conn}"),
    }
}

impl fmt::Display for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: u64| format!("{}.{:03}", nanos / 1000, nanos % 1000);
        let until = match self.answered {
            NEVER => "never".to_owned(),
            answered => micros(answered),
        };
        write!(
            formatter,
            "{:>14} .. {:>14} us  {:14} {:7} {} -> {}",
            micros(self.invoked),
            until,
            name(self.conn, self.lane),
            format!("{:?}", self.protocol),
            self.operation,
            Told(self.answer.as_ref(), &self.operation),
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |letter: &str, number: &Option<u64>| match number {
            Some(number) => format!(" {letter}{number}"),
            None => String::new(),
        };
        match self {
            Self::Get => formatter.write_str("get"),
            Self::Vivify => formatter.write_str("get, or make"),
            Self::Store(store) => write!(formatter, "{store}"),
            Self::ReplaceAndUnlock(store) => write!(formatter, "{store}, and unlock"),
            Self::Delete { guard } => write!(formatter, "delete{}", number("cas ", guard)),
            Self::MarkStale { guard } => write!(formatter, "mark stale{}", number("cas ", guard)),
            Self::Count { up: true, delta } => write!(formatter, "incr {delta}"),
            Self::Count { up: false, delta } => write!(formatter, "decr {delta}"),
            Self::Lock => formatter.write_str("lock"),
            Self::LockAndGet => formatter.write_str("lock and get"),
            Self::Unlock => formatter.write_str("unlock"),
            Self::Acquire => formatter.write_str("ml"),
            Self::Release { fence } => write!(formatter, "mu{}", number("fence ", fence)),
            Self::UnlockAll => formatter.write_str("unlock_all"),
            Self::Flush => formatter.write_str("flush_all"),
            Self::Death => formatter.write_str("the connection ends"),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Set => "set",
            Mode::Add => "add",
            Mode::Replace => "replace",
            Mode::Append => "append",
            Mode::Prepend => "prepend",
        };
        write!(
            formatter,
            "{mode} \"{}\" flags {}",
            self.value.escape_ascii(),
            self.client_flags
        )?;
        if let Some(cas) = self.guard {
            let stale = if self.else_stale { " or stale" } else { "" };
            write!(formatter, " if cas {cas}{stale}")?;
        }
        if let Some(fence) = self.fence {
            write!(formatter, " by fence {fence}")?;
        }
        Ok(())
    }
}

/// An answer, or the reason why there is none.
struct Told<'a>(Option<&'a Answer>, &'a Operation);

impl fmt::Display for Told<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cas = |cas: &Option<u64>| cas.map_or(String::new(), |cas| format!(" cas {cas}"));
        match self.0 {
            None if *self.1 == Operation::Death => formatter.write_str("its locks are free"),
            None => formatter.write_str("no answer"),
            Some(Answer::Hit(hit)) => {
                write!(
                    formatter,
                    "\"{}\" flags {}{}",
                    hit.value.escape_ascii(),
                    hit.client_flags,
                    cas(&hit.cas)
                )?;
                let marks = hit.marks.unwrap_or_default();
                for (is_set, word) in [
                    (marks.stale, " stale"),
                    (marks.won, " won"),
                    (marks.sent, " sent"),
                ] {
                    formatter.write_str(if is_set { word } else { "" })?;
                }
                Ok(())
            }
            Some(Answer::Stored { cas: version }) => write!(formatter, "stored{}", cas(version)),
            Some(Answer::Counted {
                number,
                cas: version,
            }) => write!(formatter, "{number}{}", cas(version)),
            Some(Answer::Granted { fence }) => write!(formatter, "granted, fence {fence}"),
            Some(Answer::Held { by }) => write!(formatter, "held by {by}"),
            Some(Answer::Missing) => formatter.write_str("missing"),
            Some(Answer::NotStored) => formatter.write_str("not stored"),
            Some(Answer::Exists) => formatter.write_str("exists"),
            Some(Answer::Deleted) => formatter.write_str("deleted"),
            Some(Answer::Done) => formatter.write_str("ok"),
            Some(Answer::Locked) => formatter.write_str("locked"),
            Some(Answer::NotLocked) => formatter.write_str("not locked"),
            Some(Answer::NonNumeric) => formatter.write_str("not a number"),
        }
    }
}
