//! How another thread reaches a worker: a list of messages, and a bell in the worker's epoll.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use latchd_core::ConnId;
use latchd_core::wait::Outcome;
use smol::channel::Sender;

use crate::clients::roster::Entry;
use crate::net::transport::Security;
use crate::stats::connection_stats::Kept;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Bell, Mutex, MutexGuard};

/// A client that has been accepted and has no worker yet.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Its socket; not blocking.
    pub(crate) socket: OwnedFd,
    /// How it speaks.
    pub(crate) security: Security,
    /// Its name, new.
    pub(crate) conn: ConnId,
    /// Where it is noted what it does.
    pub(crate) entry: Arc<Entry>,
}

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// Serve this client.
    Adopt(Arrival),
    /// Close the clients that have been idle for too long.
    Sweep,
    /// Close the client of this name: it has more kept for it than there is room for.
    Close(u64, Kept),
    /// There is something to be told to the client of this name, who watches.
    News(u64),
    /// The client of this name waits for a lock no more.
    Settled(u64, Outcome),
    /// Say that you hear. Whoever asks waits for the answer before it asks again.
    Echo(Sender<()>),
}

/// One worker's mail.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    bell: Bell,
    clients: AtomicUsize,
}

impl Mailbox {
    /// # Errors
    /// The kernel's, if there is no descriptor left.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            messages: Mutex::default(),
            bell: Bell::new()?,
            clients: AtomicUsize::new(0),
        })
    }

    /// How many clients the worker has, those in its mail included.
    pub(crate) fn clients(&self) -> &AtomicUsize {
        &self.clients
    }

    /// Leaves a message and rings. A message that says nothing new is left once: the list holds
    /// at most one sweep, as many arrivals and closes as there may be connections, news for each who
    /// watches, an outcome for each who waits for a lock, and an echo for each who waits for it.
    pub(crate) fn post(&self, message: Message) {
        self.leave(message);
        self.ring();
    }

    /// Leaves a message, and does not ring: it is to be done soon.
    pub(crate) fn leave(&self, message: Message) {
        let mut messages = self.messages();
        let is_known = match message {
            Message::Adopt(_)
            | Message::Close(..)
            | Message::News(_)
            | Message::Settled(..)
            | Message::Echo(_) => false,
            Message::Sweep => messages.iter().any(|known| matches!(known, Message::Sweep)),
        };
        if !is_known {
            messages.push(message);
        }
    }

    /// Wakes the worker.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Silences the bell, then takes what is there: a message that comes in between rings again.
    pub(crate) fn take(&self) -> Vec<Message> {
        self.bell.silence();
        std::mem::take(&mut *self.messages())
    }

    /// Waits until the bell rings, for a worker of a test.
    #[cfg(all(test, feature = "scheduled"))]
    pub(crate) fn hear(&self) {
        self.bell.hear();
    }

    fn messages(&self) -> MutexGuard<'_, Vec<Message>> {
        self.messages
            .lock()
            .expect("nobody panics between taking the list and giving it back")
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use latchd_core::Instant;

    use super::*;
    use crate::clients::roster::Roster;
    use crate::net::listen::Address;

    #[test]
    fn messages_come_in_order_and_once() {
        let mailbox = Mailbox::new().unwrap();
        let (_, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let conn = ConnId::from_number(2);
        let roster = Roster::new(&[Address::Unix("/tmp/socket".into())]);
        let socket = socket.into();
        mailbox.post(Message::Sweep);
        mailbox.post(Message::Adopt(Arrival {
            socket,
            security: Security::Plain,
            conn,
            entry: roster.add(conn.number(), 0, None, Instant::from_millis(0)),
        }));
        mailbox.post(Message::Sweep);
        assert!(matches!(
            mailbox.take()[..],
            [Message::Sweep, Message::Adopt(_)]
        ));
        assert!(mailbox.take().is_empty());
    }
}
