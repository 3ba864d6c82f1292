//! What stands between the wire and the items: whoever executes commands.

use alloc::string::String;

use crate::command::Command;
use crate::limits::MemoryRefused;
use crate::reply::Reply;
use crate::stats::Unstored;
use crate::watch::{Topics, Watched};
use crate::wire::Claim;

/// Executes commands for one connection at one moment.
///
/// The core implements it ([`CoreAt`](crate::engine::CoreAt)); a transport that spreads items
/// over several cores implements it by choosing one.
pub trait Execute {
    /// Executes `command` and hands its reply to `answer`, exactly once.
    fn execute(&mut self, command: &Command<'_>, answer: &mut dyn FnMut(&Reply<'_>));

    /// Whether the connection may take another step now. Asked after each step, so that one that
    /// asks for much work in few bytes can be made to give way to the others: it stops with
    /// [`Progress::Yielded`](crate::connection::Progress::Yielded) then. Always, by default.
    fn goes_on(&mut self) -> bool {
        true
    }

    /// The command that comes next was written in the meta protocol: for whoever counts.
    fn note_meta(&mut self) {}

    /// A set was refused before there was a command: for whoever counts.
    fn note_unstored(&mut self, why: Unstored) {
        let _ = why;
    }

    /// The client asks to be told what happens, and for nothing else from now on. Asked only where
    /// [`Allowed::watching`](crate::wire::Allowed) is set. By default nobody may.
    fn watch(&mut self, topics: Topics) -> Watched {
        let _ = topics;
        Watched::No
    }

    /// Whether a client who says that it is this one is a friend; `None` is nobody's friend. Asked only
    /// where [`Admission`](crate::wire::Admission) is not open. Nobody is, by default.
    fn admits(&mut self, claim: Option<Claim<'_>>) -> bool {
        let _ = claim;
        false
    }

    /// The client has asked that the server's certificates be read anew, for connections to come. By
    /// default there are none.
    ///
    /// # Errors
    /// Why it was not done, as a line for the client. Everything is as it was then.
    fn read_certificates(&mut self) -> Result<(), String> {
        Err("Error TLS not enabled".into())
    }

    /// The client has asked that all items together may take so many bytes from now on. By default that
    /// does not change.
    ///
    /// # Errors
    /// Why not. Everything is as it was then.
    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        let _ = bytes;
        Err(MemoryRefused::Fixed)
    }

    /// The client has asked for the end of the server. Asked only where
    /// [`Allowed::shutdown`](crate::wire::Allowed) is set. By default only its connection ends.
    fn shut_down(&mut self) {}
}
