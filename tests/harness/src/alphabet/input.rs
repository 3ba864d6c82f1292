//! The input of an op: a call of one of the functions that lead into a core.

use latchd_core::engine::{Core, Event};
use latchd_core::store::Store;
use latchd_core::{Instant, Owner};
use latchd_protocol::command::Command;
use latchd_protocol::reply::Reply;

/// Something to be put into a core.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Input<'a> {
    /// For [`Core::execute`].
    Command(Owner, Command<'a>),
    /// For [`Core::handle`].
    Event(Event),
    /// [`Event::Limits`] with this memory, and the other limits as they are.
    Memory {
        /// In bytes.
        bytes: usize,
    },
}

impl<'a> Input<'a> {
    /// Puts it into `core`; a command has a reply, an event has none.
    pub fn enter<S: Store>(self, core: &'a mut Core<S>, now: Instant) -> Option<Reply<'a>> {
        match self {
            Self::Command(conn, command) => Some(core.execute(now, conn, &command)),
            Self::Event(event) => {
                core.handle(now, event);
                None
            }
            Self::Memory { bytes } => {
                let mut limits = *core.limits();
                limits.memory_bytes_max = bytes;
                // It may be refused, with good reason or not: then there is less to be seen.
                core.handle(now, Event::Limits(limits));
                None
            }
        }
    }

    /// The command, if it is one.
    #[must_use]
    pub const fn command(&self) -> Option<&Command<'a>> {
        match self {
            Self::Command(_, command) => Some(command),
            Self::Event(_) | Self::Memory { .. } => None,
        }
    }
}
