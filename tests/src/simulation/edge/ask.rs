//! A request, before it is bytes; and its answer, as bytes.

use std::io::Write as _;

use latchd_core::command::{Command, GlobalCommand, ItemCommand, Wait};
use latchd_core::reply::{Hit, Refusal, Reply};
use latchd_core::wire::VERSION;

use super::{SMALL_KEYS, VALUE_BYTES_MAX};

/// What a client asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ask {
    /// So many times the same of which no core hears.
    Local { said: Local, times: u32 },
    /// `get`, `gets`, `gat` or `gats` of so many keys, beginning with this one.
    Get {
        touches: bool,
        with_cas: bool,
        from: usize,
        keys: usize,
    },
    /// `mg … v`
    Look { key: usize, number: u32 },
    /// `set`
    Set {
        key: usize,
        bytes: usize,
        /// What no other value has.
        tag: u32,
        noreply: bool,
    },
    /// `ml`, with a wait of so many milliseconds.
    Lock {
        key: usize,
        wait_ms: u64,
        number: u32,
    },
    /// `mu`
    Unlock { key: usize, number: u32 },
    /// `unlock_all`
    UnlockAll,
    /// `quit`
    Quit,
}

/// What only a wire has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Local {
    Version,
    Noop,
    Unknown,
}

impl Local {
    const fn words(self) -> &'static [u8] {
        match self {
            Self::Version => b"version\r\n",
            Self::Noop => b"mn\r\n",
            Self::Unknown => b"wer da\r\n",
        }
    }

    fn answer(self, out: &mut Vec<u8>) {
        match self {
            Self::Version => write!(out, "VERSION {VERSION}\r\n").expect("a Vec takes it"),
            Self::Noop => out.extend_from_slice(b"MN\r\n"),
            Self::Unknown => out.extend_from_slice(b"ERROR\r\n"),
        }
    }
}

/// The name of an item.
pub(super) fn item(key: usize) -> String {
    format!("item{key}")
}

/// The name of a lock.
pub(super) fn lock(key: usize) -> String {
    format!("lock{key}")
}

/// Which item a get of so many asks for at this place: one of a single key may ask for a large one as well.
const fn mentioned(from: usize, place: usize, keys: usize) -> usize {
    if keys == 1 {
        from
    } else {
        (from + place) % SMALL_KEYS
    }
}

/// A value of so many bytes that tells its tag.
fn value(bytes: usize, tag: u32) -> Vec<u8> {
    let word = format!("{tag:07}|");
    let words = bytes.div_ceil(word.len());
    let mut value = word.repeat(words).into_bytes();
    value.truncate(bytes);
    value
}

impl Ask {
    /// Appends it as a client writes it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let written = match *self {
            Self::Local { said, times } => {
                for _ in 0..times {
                    out.extend_from_slice(said.words());
                }
                return;
            }
            Self::Get {
                touches,
                with_cas,
                from,
                keys,
            } => {
                let verb: &[u8] = match (touches, with_cas) {
                    (false, false) => b"get",
                    (false, true) => b"gets",
                    (true, false) => b"gat 0",
                    (true, true) => b"gats 0",
                };
                out.extend_from_slice(verb);
                for place in 0..keys {
                    let key = mentioned(from, place, keys);
                    write!(out, " item{key}").expect("a Vec takes it");
                }
                write!(out, "\r\n")
            }
            Self::Look { key, number } => write!(out, "mg {} v O{number}\r\n", item(key)),
            Self::Set {
                key,
                bytes,
                tag,
                noreply,
            } => {
                let noreply = if noreply { " noreply" } else { "" };
                let words = write!(out, "set {} {tag} 0 {bytes}{noreply}\r\n", item(key));
                out.extend_from_slice(&value(bytes, tag));
                out.extend_from_slice(b"\r\n");
                words
            }
            Self::Lock {
                key,
                wait_ms: 0,
                number,
            } => write!(out, "ml {} O{number}\r\n", lock(key)),
            Self::Lock {
                key,
                wait_ms,
                number,
            } => write!(out, "ml {} w{wait_ms} O{number}\r\n", lock(key)),
            Self::Unlock { key, number } => write!(out, "mu {} O{number}\r\n", lock(key)),
            Self::UnlockAll => write!(out, "unlock_all\r\n"),
            Self::Quit => write!(out, "quit\r\n"),
        };
        written.expect("a Vec takes it");
    }

    /// How many commands the core hears of.
    pub(super) const fn commands(&self) -> usize {
        match self {
            Self::Local { .. } | Self::Quit => 0,
            Self::Get { keys, .. } => *keys,
            Self::Look { .. }
            | Self::Set { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::UnlockAll => 1,
        }
    }

    /// Whether it may wait.
    pub(super) const fn may_wait(&self) -> bool {
        matches!(self, Self::Lock { wait_ms: 1.., .. })
    }

    /// Whether this is its command at `place`; when its wait is over, the same without it.
    pub(super) fn is_said(&self, place: usize, has_waited: bool, command: &Command<'_>) -> bool {
        let Command::Item(command) = command else {
            let is_all = matches!(command, Command::Global(GlobalCommand::UnlockAll));
            return is_all && *self == Self::UnlockAll;
        };
        let is_about = |name: String| command.key().as_bytes() == name.as_bytes();
        match (*self, command) {
            (Self::Get { from, keys, .. }, ItemCommand::Get(get)) => {
                !get.recaches && is_about(item(mentioned(from, place, keys)))
            }
            (Self::Look { key, .. }, ItemCommand::Get(get)) => get.recaches && is_about(item(key)),
            (
                Self::Set {
                    key, bytes, tag, ..
                },
                ItemCommand::Set(set),
            ) => is_about(item(key)) && set.client_flags == tag && *set.value == value(bytes, tag),
            (Self::Set { key, bytes, .. }, ItemCommand::SetTooLarge { .. }) => {
                bytes > VALUE_BYTES_MAX && is_about(item(key))
            }
            (Self::Lock { key, wait_ms, .. }, ItemCommand::Acquire(acquire)) => {
                let wait = match wait_ms {
                    1.. if !has_waited => Wait::UpTo { ms: wait_ms },
                    _ => Wait::No,
                };
                acquire.wait == wait && is_about(lock(key))
            }
            (Self::Unlock { key, .. }, ItemCommand::Release(_)) => is_about(lock(key)),
            _ => false,
        }
    }

    /// Appends what this is answered that no core hears of, once.
    pub(super) fn answer_local(&self, out: &mut Vec<u8>) {
        if let Self::Local { said, .. } = self {
            said.answer(out);
        }
    }

    /// Appends what such a reply to its command at `place` comes to.
    ///
    /// # Errors
    /// No such request has such a reply here.
    pub(super) fn answer(
        &self,
        place: usize,
        reply: &Reply<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let written = match (*self, reply) {
            (Self::Get { with_cas, keys, .. }, Reply::Hit(_) | Reply::Miss) => {
                if let Reply::Hit(hit) = reply {
                    show(hit, with_cas, out);
                }
                if place + 1 == keys {
                    out.extend_from_slice(b"END\r\n");
                }
                Ok(())
            }
            (Self::Look { number, .. }, Reply::Hit(hit)) => {
                let head = write!(out, "VA {} O{number}\r\n", hit.value.len());
                out.extend_from_slice(&hit.value);
                out.extend_from_slice(b"\r\n");
                head
            }
            (Self::Look { number, .. }, Reply::Miss) => write!(out, "EN O{number}\r\n"),
            (Self::Set { noreply: true, .. }, Reply::Stored(_))
            | (Self::Lock { .. }, Reply::Waits) => Ok(()),
            (Self::Set { noreply: false, .. }, Reply::Stored(_)) => write!(out, "STORED\r\n"),
            (Self::Set { noreply, .. }, Reply::Refused(Refusal::TooLarge)) => {
                if noreply {
                    return Ok(());
                }
                write!(out, "SERVER_ERROR object too large for cache\r\n")
            }
            (Self::Lock { number, .. }, Reply::Granted(_))
            | (Self::Unlock { number, .. }, Reply::Unlocked) => write!(out, "HD O{number}\r\n"),
            (Self::Lock { number, .. }, Reply::Contended(seen) | Reply::WouldDeadlock(seen)) => {
                let is_circle = matches!(reply, Reply::WouldDeadlock(_));
                let circle = if is_circle { " d" } else { "" };
                let (holder, held_s, waiting) = (seen.holder.number(), seen.held_s, seen.waiting);
                write!(
                    out,
                    "LK h{holder} a{held_s} n{waiting}{circle} O{number}\r\n"
                )
            }
            (Self::Unlock { number, .. }, Reply::NotFound) => write!(out, "NF O{number}\r\n"),
            (Self::Unlock { number, .. }, Reply::Refused(_)) => write!(out, "LK O{number}\r\n"),
            (Self::UnlockAll, Reply::Unlocked) => write!(out, "OK\r\n"),
            (_, reply) => return Err(format!("{self:?} is not to be answered {reply:?}")),
        };
        written.expect("a Vec takes it");
        Ok(())
    }
}

/// A value as a classic get shows it.
fn show(hit: &Hit<'_>, with_cas: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(hit.key);
    write!(out, " {} {}", hit.client_flags, hit.value.len()).expect("a Vec takes it");
    if with_cas {
        write!(out, " {}", hit.cas.number()).expect("a Vec takes it");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&hit.value);
    out.extend_from_slice(b"\r\n");
}
