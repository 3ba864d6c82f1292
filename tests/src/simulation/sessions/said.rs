//! Requests of clients, and their bytes.

use std::io::Write as _;

use latchd_protocol::command::{
    Acquire, Command, Delete, GlobalCommand, ItemCommand, Release, Set, Wait,
};
use latchd_protocol::key::Key;

/// A request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Said {
    /// `mo` with a time.
    Open {
        token: usize,
        seconds: u32,
        only_resumes: bool,
    },
    /// `mo` with `T0`.
    End { token: usize },
    /// A request for a key, in a session that it names (`j`) or without one.
    Ask {
        verb: Verb,
        key: usize,
        within: Option<usize>,
    },
    /// `quit`
    Quit,
}

/// The command of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    /// `ml`, with `w` if it may wait.
    Acquire { wait_ms: u64 },
    /// `mu`
    Release,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `unlock_all`
    UnlockAll,
}

/// The token with this number.
fn token(number: usize) -> String {
    format!("the-token-of-session-{number}")
}

impl Said {
    /// Appends its bytes to `out`.
    pub(super) fn write(self, keys: &[String], out: &mut Vec<u8>) {
        let line = match self {
            Self::Open {
                token: number,
                seconds,
                only_resumes,
            } => {
                let flag = if only_resumes { " x" } else { "" };
                format!("mo {} T{seconds}{flag}", token(number))
            }
            Self::End { token: number } => format!("mo {} T0", token(number)),
            Self::Ask { verb, key, within } => {
                let key = &keys[key];
                let flag = within.map_or_else(String::new, |it| format!(" j{}", token(it)));
                match verb {
                    Verb::Acquire { wait_ms: 0 } => format!("ml {key}{flag}"),
                    Verb::Acquire { wait_ms } => format!("ml {key} w{wait_ms}{flag}"),
                    Verb::Release => format!("mu {key}{flag}"),
                    Verb::Set => format!("ms {key} 1{flag}\r\n7"),
                    Verb::Delete => format!("md {key}{flag}"),
                    Verb::UnlockAll => "unlock_all".to_owned(),
                }
            }
            Self::Quit => "quit".to_owned(),
        };
        write!(out, "{line}\r\n").expect("a vector takes it");
    }
}

impl Verb {
    /// Its command, as a shard executes it.
    pub(super) fn command(self, key: Key<'_>) -> Command<'_> {
        match self {
            Self::Acquire { wait_ms } => {
                let wait = match wait_ms {
                    0 => Wait::No,
                    ms => Wait::UpTo { ms },
                };
                let acquire = Acquire {
                    wait,
                    ..Acquire::new(key)
                };
                ItemCommand::Acquire(acquire).into()
            }
            Self::Release => ItemCommand::Release(Release::new(key)).into(),
            Self::Set => Set::new(key, b"7").into(),
            Self::Delete => Delete::new(key).into(),
            Self::UnlockAll => GlobalCommand::UnlockAll.into(),
        }
    }
}
