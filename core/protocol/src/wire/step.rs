//! The next action for a connection: the one result of every decoder.
//!
//! A decoder starts where the last request ended, and keeps nothing. Most requests are one [`Step`]. A get of
//! several keys and a listing of keys are several, and a [`Cursor`] selects the next one.

use super::envelope::Envelope;
use super::local::LocalResponse;
use crate::command::{Command, GlobalCommand, Keys, ScanCursor};
use crate::reply::{KeysPage, Reply};
use crate::session::{SessionRequest, Token};
use crate::stats::{StatsTopic, Unstored};
use crate::watch::Topics;

/// The next action for a connection: an operation, and the bytes of its request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step<'a> {
    /// Bytes of input that are consumed once the reply is encoded; 0 if the request goes on, or is the last one.
    ///
    /// A decoder may count bytes that have not arrived and need not be read: the body of a refused set.
    /// [`Connection::next`](crate::connection::Connection::next) never does: it skips those bytes as they arrive, and sends the
    /// response after the last of them.
    pub consumed: usize,
    /// The operation.
    pub operation: Operation<'a>,
}

/// The operation that a connection takes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation<'a> {
    /// Nothing until the input is at least this long in all. Calling sooner is harmless.
    Incomplete {
        /// Bytes of input, counted from the end of the last step.
        at_least: usize,
    },
    /// Pass the command to the core, and its reply to [`Connection::reply`], before the next step.
    ///
    /// [`Connection::reply`]: crate::connection::Connection::reply
    Execute {
        /// The command, validated by the wire (W2).
        command: Command<'a>,
        /// The form of the reply; the core does not need it.
        envelope: Envelope<'a>,
    },
    /// As [`Execute`](Self::Execute), for the few requests that are executed as a session (`j`;
    /// [`Execute::execute_as`](crate::execute::Execute)) or whose reply shows the hold (`H`;
    /// [`Execute::hold_ms`](crate::execute::Execute)).
    ExecuteAs {
        /// The session; `None` is the connection.
        token: Option<Token<'a>>,
        /// The command. As a session it does not wait.
        command: Command<'a>,
        /// The form of the reply.
        envelope: Envelope<'a>,
    },
    /// Open, resume or end a session ([`Execute::session`](crate::execute::Execute)), and encode the reply.
    Session {
        /// The request.
        request: SessionRequest<'a>,
    },
    /// Ask for the hold ([`Execute::hold_ms`](crate::execute::Execute)), and answer `MN` with it.
    Hold,
    /// Ask for the servers of the cluster ([`Execute::cluster`](crate::execute::Execute)), and answer with them,
    /// or `ERROR`.
    Cluster,
    /// Encode the response ([`LocalResponse::encode`]); it needs no core.
    Send {
        /// An error, or an answer of the server without its items. It borrows nothing, so that it can wait
        /// until the body of its request has been skipped.
        response: LocalResponse<'static>,
        /// For a set with a value that is not stored: the reason, which the executor counts
        /// ([`Execute::note_unstored`](crate::execute::Execute)).
        unstored: Option<Unstored>,
    },
    /// Nothing: the bytes are skipped, at least one.
    Skip,
    /// Encode the response, send it, and close.
    Close {
        /// The last response to the client.
        response: LocalResponse<'a>,
    },
    /// Ask the executor whether the claim is authentic ([`Execute::admits`](crate::execute::Execute)), and pass
    /// the result to [`Connection::admit`](crate::connection::Connection::admit).
    Authenticate {
        /// The client's claim; `None` if it is malformed.
        claim: Option<Claim<'a>>,
        /// The response if the claim is authentic.
        welcome: LocalResponse<'a>,
        /// The response if it is not.
        refusal: LocalResponse<'a>,
    },
    /// Ask whether the client may watch ([`Execute::watch`](crate::execute::Execute)), and pass the result to
    /// [`Connection::watch`](crate::connection::Connection::watch).
    Watch {
        /// The requested topics.
        topics: Topics,
    },
    /// Reload the transport's certificates ([`Execute::read_certificates`](crate::execute::Execute)), and
    /// answer `OK`, or the error.
    ReadCertificates {
        /// No response is sent.
        noreply: bool,
    },
    /// Change the memory limit ([`Execute::limit_memory`](crate::execute::Execute)), and answer `OK`, or the
    /// error.
    LimitMemory {
        /// The new memory limit for all items together, in bytes.
        bytes: usize,
        /// No response is sent.
        noreply: bool,
    },
    /// Shut down the server, which the operator allows, and close.
    ShutDown,
}

impl<'a> Operation<'a> {
    /// The step of a request of so many bytes.
    #[inline]
    pub(crate) const fn consuming(self, consumed: usize) -> Step<'a> {
        let operation = self;
        Step {
            consumed,
            operation,
        }
    }
}

/// A client's claim to be a certain user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claim<'a> {
    /// The user's name.
    pub name: &'a [u8],
    /// The user's password.
    pub password: &'a [u8],
}

/// The next step of a request with several steps. The request stays at the front of the input until the last of
/// them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Cursor {
    /// The first step, or the only one.
    #[default]
    Start,
    /// The get of the key at this byte of the line.
    Key(u32),
    /// A page of a listing.
    Page {
        /// Its start.
        at: ScanCursor,
        /// The number of items that earlier pages have shown, if that is limited.
        shown: u32,
    },
    /// No step: the last page is encoded, and the request is still in the input.
    End,
}

/// A page of a listing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ListPlace {
    /// It is the first.
    pub(crate) is_first: bool,
    /// The number of items that earlier pages have shown, if that is limited.
    pub(crate) shown: u32,
}

impl Cursor {
    /// The next step of a listing with a request of `consumed` bytes. `envelope` gets the page.
    pub(crate) fn list<'a>(
        &mut self,
        prefix: &'a [u8],
        envelope: impl FnOnce(ListPlace) -> Envelope<'a>,
        consumed: usize,
    ) -> Step<'a> {
        let Some((cursor, place)) = self.page() else {
            return Operation::Skip.consuming(consumed);
        };
        Operation::Execute {
            command: Command::Global(GlobalCommand::Keys(Keys { prefix, cursor })),
            envelope: envelope(place),
        }
        .consuming(0)
    }

    /// The next step of a list of statistics with a request of `consumed` bytes. `topic` and `envelope` get the
    /// start of the page.
    pub(crate) fn stats<'a>(
        &mut self,
        topic: impl FnOnce(ScanCursor) -> StatsTopic,
        envelope: impl FnOnce(ScanCursor) -> Envelope<'a>,
        consumed: usize,
    ) -> Step<'a> {
        let Some((cursor, _)) = self.page() else {
            return Operation::Skip.consuming(consumed);
        };
        Operation::Execute {
            command: Command::Global(GlobalCommand::Stats(topic(cursor))),
            envelope: envelope(cursor),
        }
        .consuming(0)
    }

    /// The next page; `None` after the last.
    fn page(&mut self) -> Option<(ScanCursor, ListPlace)> {
        let (cursor, place) = match *self {
            Self::Start | Self::Key(_) => {
                let (is_first, shown) = (true, 0);
                (ScanCursor::default(), ListPlace { is_first, shown })
            }
            Self::Page { at, shown } => {
                let is_first = false;
                (at, ListPlace { is_first, shown })
            }
            Self::End => {
                *self = Self::Start;
                return None;
            }
        };
        *self = Self::Page {
            at: cursor,
            shown: place.shown,
        };
        Some((cursor, place))
    }

    /// Notes the start of the next page of a listing, if one is under way. `on_page` returns the number of
    /// items to show of a page, and whether it is the last.
    pub(crate) fn turn_page(
        &mut self,
        reply: &Reply<'_>,
        on_page: impl FnOnce(&KeysPage<'_>) -> (u32, bool),
    ) {
        let Self::Page { shown, .. } = *self else {
            return;
        };
        // A driver that mixes up its replies gets the end of a listing, not an endless one.
        let next = if let Reply::Keys(page) = reply {
            let (more, is_last) = on_page(page);
            let shown = shown.saturating_add(more);
            page.next
                .filter(|_| !is_last)
                .map(|at| Self::Page { at, shown })
        } else if let Reply::Stats(report) = reply {
            report.next.map(|at| Self::Page { at, shown })
        } else {
            None
        };
        *self = next.unwrap_or(Self::End);
    }
}
