//! Deferred replies (B7).

use rustix::io::Errno;

use super::{Backend, ClientConn, End, Next, Socket};
use crate::net::send;
use crate::os::headroom;
use crate::stats::connection_stats::Traffic;
use crate::worker::turn::Turn;

impl<S: Socket, B: Backend> ClientConn<S, B> {
    /// Defers a small reply in the outbox, if that is allowed and it fits (B7).
    #[expect(
        clippy::inline_always,
        reason = "most replies pass here, and a call costs as much as the copy"
    )]
    #[inline(always)]
    pub(super) fn put_off(&mut self, turn: &mut Turn<'_, B>) -> bool {
        if turn.puts_off
            && let Some(answer @ [_, ..]) = turn.output.as_one_chunk()
        {
            self.has_deferred = turn.outbox.put(turn.name, answer);
        }
        self.has_deferred
    }

    /// Whether a deferred reply is not sent yet: it must be sent before any other work for this client.
    pub(crate) fn has_deferred(&self) -> bool {
        self.has_deferred
    }

    /// Drops the deferred reply: the server is no primary any more.
    pub(crate) fn drop_deferred(&mut self) -> Next {
        self.has_deferred = false;
        Next::End(End::NotPrimary)
    }

    /// Sends the deferred reply; the part that the socket does not take becomes pending.
    #[inline]
    pub(crate) fn send_deferred(&mut self, reply: &[u8], traffic: &Traffic) -> Next {
        self.has_deferred = false;
        let Some(socket) = self.transport.plain() else {
            return Next::Input;
        };
        match send::send_small(socket, reply, traffic) {
            Ok(sent) if sent == reply.len() => Next::Input,
            Ok(sent) => self.keep(&reply[sent..]),
            Err(errno) => Next::End(errno.into()),
        }
    }

    /// Keeps the rest of a deferred reply until the socket takes it.
    #[cold]
    fn keep(&mut self, rest: &[u8]) -> Next {
        let reserved = headroom::allocate(rest.len(), || self.pending.try_reserve(rest.len()).ok());
        if reserved.is_none() {
            return Next::End(Errno::NOMEM.into());
        }
        self.pending.extend_from_slice(rest);
        Next::Output
    }
}
