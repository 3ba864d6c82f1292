//! How another thread reaches a worker: a list of messages, and an eventfd (the waker) in the worker's epoll.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use latchd_core::ConnId;
use latchd_protocol::wait::Outcome;
use smol::channel::Sender;

use crate::clients::connection_table::Entry;
use crate::net::transport::Security;
use crate::stats::connection_stats::BufferKind;
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Mutex, MutexGuard, Waker};

/// An accepted client that has no worker yet.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Its nonblocking socket.
    pub(crate) socket: OwnedFd,
    /// Its transport security.
    pub(crate) security: Security,
    /// Its connection id, never used before.
    pub(crate) conn: ConnId,
    /// The entry of the connection table in which its worker notes its state.
    pub(crate) entry: Arc<Entry>,
}

/// A message to a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// Serve this client.
    Adopt(Arrival),
    /// Close the clients that have been idle for too long.
    Sweep,
    /// Close the client of this name: the budget for this kind of memory is exceeded.
    Close(u64, BufferKind),
    /// Close the client of this name: it has lost its session.
    LostSession(u64),
    /// There are new lines for the client of this name, a watcher.
    News(u64),
    /// The client of this name no longer waits for a lock.
    WaitEnded(u64, Outcome),
    /// Confirm that the worker responds. A sender waits for the reply before it sends the next echo.
    Echo(Sender<()>),
    /// Confirm this round of the election.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "only an election sends it")
    )]
    Confirm(u64),
    /// Close the clients with a lock, a wait, a bound win or a session, then confirm this round of the election.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "only an election sends it")
    )]
    Suspend(u64),
}

/// One worker's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
    clients: AtomicUsize,
}

impl Mailbox {
    /// # Errors
    /// The kernel's, if there is no descriptor left.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            messages: Mutex::default(),
            waker: Waker::new()?,
            clients: AtomicUsize::new(0),
        })
    }

    /// The number of the worker's clients, including those still in its mailbox.
    pub(crate) fn clients(&self) -> &AtomicUsize {
        &self.clients
    }

    /// Adds a message and wakes the worker. Repeated messages are added once. So the list holds at most one
    /// sweep; one arrival, one close and one lost session per connection; one news per watcher; one outcome per waiting client;
    /// one echo per sender; and two rounds of the election, which asks the next one when all workers have confirmed.
    pub(crate) fn post(&self, message: Message) {
        self.push(message);
        self.wake();
    }

    /// Adds a message without a wake-up; the caller wakes the worker soon.
    pub(crate) fn push(&self, message: Message) {
        let mut messages = self.messages();
        let is_known = match message {
            Message::Adopt(_)
            | Message::Close(..)
            | Message::LostSession(_)
            | Message::News(_)
            | Message::WaitEnded(..)
            | Message::Echo(_)
            | Message::Confirm(_)
            | Message::Suspend(_) => false,
            Message::Sweep => messages.iter().any(|known| matches!(known, Message::Sweep)),
        };
        if !is_known {
            messages.push(message);
        }
    }

    /// Wakes the worker.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Clears the waker, then takes all messages: a message that arrives in between wakes again.
    pub(crate) fn take(&self) -> Vec<Message> {
        self.waker.clear();
        std::mem::take(&mut *self.messages())
    }

    /// Waits until it is woken, for a worker of a test.
    #[cfg(all(test, feature = "scheduled"))]
    pub(crate) fn hear(&self) {
        self.waker.hear();
    }

    fn messages(&self) -> MutexGuard<'_, Vec<Message>> {
        self.messages
            .lock()
            .expect("nobody panics between taking the list and giving it back")
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use latchd_core::Instant;

    use super::*;
    use crate::clients::connection_table::ConnectionTable;
    use crate::net::listen::Address;
    use crate::sync::atomic::Ordering;

    #[cfg(not(feature = "scheduled"))]
    impl Mailbox {
        /// Whether there is such a message.
        pub(crate) fn has(&self, is_it: impl Fn(&Message) -> bool) -> bool {
            self.messages().iter().any(is_it)
        }
    }

    #[test]
    fn messages_come_in_order_and_once() {
        let mailbox = Mailbox::new().unwrap();
        let (_, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let conn = ConnId::from_number(2);
        let connection_table = ConnectionTable::new(&[Address::Unix("/tmp/socket".into())]);
        let socket = socket.into();
        mailbox.post(Message::Sweep);
        mailbox.post(Message::Adopt(Arrival {
            socket,
            security: Security::Plain,
            conn,
            entry: connection_table.add(conn.number(), 0, None, Instant::from_millis(0)),
        }));
        mailbox.post(Message::Sweep);
        assert!(matches!(
            mailbox.take()[..],
            [Message::Sweep, Message::Adopt(_)]
        ));
        assert!(mailbox.take().is_empty());
        mailbox.clients().fetch_add(1, Ordering::Relaxed);
        assert_eq!(mailbox.clients().load(Ordering::Relaxed), 1);
    }
}
