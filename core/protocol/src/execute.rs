//! The interface between the wire and the items: an executor of commands.

use alloc::string::String;
use alloc::sync::Arc;

use crate::command::Command;
use crate::reply::MemoryRefused;
use crate::reply::Reply;
use crate::session::{SessionRefusal, SessionReply, SessionRequest, Token};
use crate::stats::Unstored;
use crate::watch::{Topics, Watched};
use crate::wire::Claim;

/// Executes commands for one connection at one moment.
///
/// The core implements it (`At`).
pub trait Execute {
    /// Executes `command` and hands its reply to `answer`, exactly once.
    fn execute(&mut self, command: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>));

    /// Opens, resumes or ends a session (`mo`). What the connection acquires while it is attached belongs to the
    /// session. The default has no sessions.
    fn session(&mut self, request: SessionRequest<'_>) -> SessionReply {
        let _ = request;
        SessionReply::Refused(SessionRefusal::Off)
    }

    /// As [`execute`](Self::execute), as this session (`j`). The default has no sessions.
    ///
    /// # Errors
    /// The reason, if there is no reply. Nothing has changed then.
    fn execute_as(
        &mut self,
        token: Token<'_>,
        command: &Command<'_>,
        answer: &mut impl FnMut(&Reply<'_>),
    ) -> Result<(), SessionRefusal> {
        let _ = (token, command, answer);
        Err(SessionRefusal::Off)
    }

    /// For how many milliseconds from now no other server can serve the same items, by the clock of any client; 0 once
    /// that is over. A client that relies on it counts from the moment at which it *sent* the request (`mn H`, `ml … H`),
    /// so the time must be read after the request has arrived. The default, `None`, makes no such statement.
    /// `promise_ms` is the part of the server's time that holds by any clock.
    fn hold_ms(&mut self) -> Option<u64> {
        None
    }

    /// The servers of the cluster, as [`ClusterConfig::encode`](crate::wire::cluster::ClusterConfig::encode) writes them. The
    /// default is no cluster.
    fn cluster(&mut self) -> Option<Arc<str>> {
        None
    }

    /// Whether the connection may take another step now. The connection asks after each step, so a client that
    /// packs much work into few bytes can be made to yield. If not, it stops with
    /// [`Progress::Yielded`](crate::connection::Progress::Yielded). The default is always yes.
    fn goes_on(&mut self) -> bool {
        true
    }

    /// The next command was written in the meta protocol. An executor with counters counts it.
    fn note_meta(&mut self) {}

    /// A set was refused before it became a command. An executor with counters counts it.
    fn note_unstored(&mut self, why: Unstored) {
        let _ = why;
    }

    /// The client asks to watch events, and sends nothing else from now on. Called only if
    /// [`Allowed::watching`](crate::wire::Allowed) is set. The default refuses.
    fn watch(&mut self, topics: Topics) -> Watched {
        let _ = topics;
        Watched::No
    }

    /// Whether this claim is authentic; `None` is a malformed claim. Called only if
    /// [`Admission`](crate::wire::Admission) is not open. The default admits no client.
    fn admits(&mut self, claim: Option<Claim<'_>>) -> bool {
        let _ = claim;
        false
    }

    /// The client asks to reload the server's certificates, for connections to come. The default has no
    /// certificates.
    ///
    /// # Errors
    /// The reason for the failure, as a line for the client. Nothing has changed then.
    fn read_certificates(&mut self) -> Result<(), String> {
        Err("Error TLS not enabled".into())
    }

    /// The client asks for a memory limit of `bytes` for all items together. The default is that the limit is
    /// fixed.
    ///
    /// # Errors
    /// The reason for the refusal. Nothing has changed then.
    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        let _ = bytes;
        Err(MemoryRefused::Fixed)
    }

    /// The client asks the server to shut down. Called only if [`Allowed::shutdown`](crate::wire::Allowed) is
    /// set. By default only its connection ends.
    fn shut_down(&mut self) {}
}
