//! What is to be done next for a connection: the one outcome of every decoder.
//!
//! A decoder looks at the input from where the last request ended, and keeps nothing. Most requests
//! are one [`Step`]; a get of several keys and a listing of keys are several, and a [`Cursor`] says
//! which of them comes next.

use super::envelope::Envelope;
use super::local::LocalResponse;
use crate::command::{Command, GlobalCommand, Keys, ScanCursor};
use crate::reply::{KeysPage, Reply};
use crate::stats::{StatsTopic, Unstored};
use crate::watch::Topics;

/// What is to be done next for a connection.
///
/// `consumed` counts the bytes of input that are done with. The step of a decoder may count bytes that have not arrived
/// and that nobody is to look at: the body of a refused set. A step of
/// [`Connection::next`](crate::connection::Connection::next) never does: it skips those bytes as they arrive, and sends
/// the response behind the last of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step<'a> {
    /// Nothing until the input is at least this long in all. Calling sooner is harmless.
    Incomplete {
        /// Bytes of input, counted from where the last step left off.
        at_least: usize,
    },
    /// Give the command to the core, and its reply to [`Connection::reply`], before the next step.
    ///
    /// [`Connection::reply`]: crate::connection::Connection::reply
    Execute {
        /// Bytes of input that are done with once the reply is encoded; 0 if the request goes on.
        consumed: usize,
        /// What the client asks for, valid as far as the wire can tell (W2).
        command: Command<'a>,
        /// How the reply is to be written; nothing of it concerns the core.
        envelope: Envelope<'a>,
    },
    /// Encode the response ([`LocalResponse::encode`]); the core has no part in it.
    Send {
        /// Bytes of input that are done with.
        consumed: usize,
        /// An error, or what the server knows without its items. It borrows nothing, so that it can wait until the
        /// body of its request has been skipped.
        response: LocalResponse<'static>,
        /// The request was a set whose value is not stored, and this is counted of it
        /// ([`Execute::note_unstored`](crate::execute::Execute)).
        unstored: Option<Unstored>,
    },
    /// Bytes that no one is to look at.
    Skip {
        /// Bytes of input that are done with; at least 1.
        consumed: usize,
    },
    /// Encode the response, send it, and close.
    Close {
        /// The last that the client is told.
        response: LocalResponse<'a>,
    },
    /// Ask who is to know whether this is a friend ([`Execute::admits`](crate::execute::Execute)),
    /// and tell [`Connection::admit`](crate::connection::Connection::admit).
    Authenticate {
        /// Bytes of input that are done with.
        consumed: usize,
        /// Who the client says it is; `None` if what it says is nobody.
        claim: Option<Claim<'a>>,
        /// What a friend is told.
        welcome: LocalResponse<'a>,
        /// What others are told.
        refusal: LocalResponse<'a>,
    },
    /// Ask whether the client may watch ([`Execute::watch`](crate::execute::Execute)), and tell
    /// [`Connection::watch`](crate::connection::Connection::watch).
    Watch {
        /// Bytes of input that are done with.
        consumed: usize,
        /// What it asks for.
        topics: Topics,
    },
    /// Have the transport's certificates read anew
    /// ([`Execute::read_certificates`](crate::execute::Execute)), and say `OK`, or why not.
    ReadCertificates {
        /// Bytes of input that are done with.
        consumed: usize,
        /// Nothing is said.
        noreply: bool,
    },
    /// Have the limit of memory changed ([`Execute::limit_memory`](crate::execute::Execute)), and say `OK`,
    /// or that it is not.
    LimitMemory {
        /// Bytes of input that are done with.
        consumed: usize,
        /// What all items together may take, in bytes.
        bytes: usize,
        /// Nothing is said.
        noreply: bool,
    },
    /// End the server, which the operator allows clients to ask for, and close.
    ShutDown,
}

/// Who a client says it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claim<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What only this one knows.
    pub password: &'a [u8],
}

/// Which step of a request that takes several comes next. The request stays at the front of the
/// input until the last of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Cursor {
    /// The first, or the only one there is.
    #[default]
    Start,
    /// The get of the key that stands at this byte of the line.
    Key(u32),
    /// A page of a listing.
    Page {
        /// Where it begins.
        at: ScanCursor,
        /// How many items the pages before it have shown, where that is limited.
        shown: u32,
    },
    /// None: the last page is encoded, and the request is still in the input.
    End,
}

/// Which page of a listing is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ListPlace {
    /// It is the first.
    pub(crate) is_first: bool,
    /// How many items those before it have shown, where that is limited.
    pub(crate) shown: u32,
}

impl Cursor {
    /// The next step of a listing, whose request is `consumed` bytes long. `envelope` is told which page
    /// of it this is.
    pub(crate) fn list<'a>(
        &mut self,
        prefix: &'a [u8],
        envelope: impl FnOnce(ListPlace) -> Envelope<'a>,
        consumed: usize,
    ) -> Step<'a> {
        let Some((cursor, place)) = self.page() else {
            return Step::Skip { consumed };
        };
        Step::Execute {
            consumed: 0,
            command: Command::Global(GlobalCommand::Keys(Keys { prefix, cursor })),
            envelope: envelope(place),
        }
    }

    /// The next step of a list of statistics, whose request is `consumed` bytes long, and which `topic` and `envelope`
    /// ask for from a page on.
    pub(crate) fn stats<'a>(
        &mut self,
        topic: impl FnOnce(ScanCursor) -> StatsTopic,
        envelope: impl FnOnce(ScanCursor) -> Envelope<'a>,
        consumed: usize,
    ) -> Step<'a> {
        let Some((cursor, _)) = self.page() else {
            return Step::Skip { consumed };
        };
        Step::Execute {
            consumed: 0,
            command: Command::Global(GlobalCommand::Stats(topic(cursor))),
            envelope: envelope(cursor),
        }
    }

    /// The page that comes next; `None` behind the last.
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

    /// Notes where the next page of a listing begins, if one is under way. `on_page` says how many items
    /// of a page are shown, and whether it is the last.
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
