//! The waiting clients: the worker to notify when a wait ends, and the next deadline of a wait.
//!
//! - G1: A waiting client is registered before the lock manager is unlocked, until its notice is on its way or the
//!   client has left. So a notice without a registration is about a client that has left, and is dropped.
//! - G2: A notice goes through the mailbox of the worker that serves the connection, whichever thread sends
//!   it. That worker alone continues the request.
//! - G3: The clock wakes at the soonest deadline that any thread has reported. A thread that unlocks the lock manager while
//!   clients wait reports the next deadline. So no thread polls, and nothing happens while no client waits.
//! - G4: The length of each lock wait is counted when the wait ends, unless its connection has closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use latchd_core::sessions::{EndedSession, Lost};
use latchd_core::times::Times;
use latchd_core::{Instant, Owner};
use latchd_protocol::key::Key;
use latchd_protocol::wait::Notice;

use crate::clients::budget::Holder;
use crate::clients::lock_log;
use crate::clients::mailbox::{Mailbox, Message};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::channel::{Receiver, Sender, bounded};
use crate::sync::{Mutex, MutexGuard};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The waiting clients.
#[derive(Debug)]
pub(crate) struct Waiters {
    mailboxes: Arc<[Mailbox]>,
    registry: Mutex<Registry>,
    /// Lock events are logged: `-vvv`.
    logs_locks: bool,
    /// The next wake-up of the clock, in milliseconds (G3).
    deadline_ms: AtomicU64,
    /// Tells the clock that the deadline is sooner. It holds one message, which is enough for any number of
    /// changes.
    tell_nearer: Sender<()>,
    nearer: Receiver<()>,
}

#[derive(Debug, Default)]
struct Registry {
    /// At most one registration per connection (G1).
    by_conn: BTreeMap<Owner, Registration>,
    /// The lengths of lock waits (G4).
    lock_times: Times,
    /// The sessions that have expired since the clock has asked.
    expired: Vec<Owner>,
}

#[derive(Debug)]
struct Registration {
    holder: Holder,
    since: Instant,
    awaited: Awaited,
}

/// The object of a wait.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Awaited {
    /// A lock; with its key if lock events are logged.
    Lock(Option<Box<[u8]>>),
    /// A value.
    Value,
}

impl Waiters {
    /// No waiting clients. `logs_locks`: whether lock events are logged.
    pub(crate) fn new(mailboxes: Arc<[Mailbox]>, logs_locks: bool) -> Self {
        let (tell_nearer, nearer) = bounded(1);
        Self {
            mailboxes,
            logs_locks,
            registry: Mutex::default(),
            deadline_ms: AtomicU64::new(NEVER),
            tell_nearer,
            nearer,
        }
    }

    /// Whether lock events are logged.
    pub(crate) fn logs_locks(&self) -> bool {
        self.logs_locks
    }

    /// The lengths of lock waits.
    pub(crate) fn lock_times(&self) -> Times {
        self.registry().lock_times
    }

    /// Resets the counts to 0.
    pub(crate) fn forget_times(&self) {
        self.registry().lock_times = Times::default();
    }

    /// Registers that `conn` waits for the lock of `key`, or for a value, and which worker to notify. Call it while the lock
    /// manager is locked (G1).
    pub(crate) fn register(
        &self,
        conn: Owner,
        holder: Holder,
        since: Instant,
        key: Option<Key<'_>>,
    ) {
        let shown = |key: Key<'_>| self.logs_locks.then(|| key.as_bytes().into());
        let awaited = key.map_or(Awaited::Value, |key| Awaited::Lock(shown(key)));
        let entry = Registration {
            holder,
            since,
            awaited,
        };
        self.registry().by_conn.insert(conn, entry);
    }

    /// The number of registered clients.
    #[cfg(feature = "verify")]
    pub(crate) fn waiting(&self) -> usize {
        self.registry().by_conn.len()
    }

    /// Removes the registration of a connection that has closed.
    pub(crate) fn leave(&self, conn: Owner) {
        self.registry().by_conn.remove(&conn);
    }

    /// Has a connection closed that has lost its session.
    pub(crate) fn close(&self, lost: Option<Lost>) {
        if let Some(Lost { conn: _, route }) = lost {
            let Holder { worker, name } = Holder::at(route);
            self.mailboxes[worker].post(Message::LostSession(name));
        }
    }

    /// A session has expired: its connection is to be closed.
    pub(crate) fn note_expired(&self, over: EndedSession) {
        let EndedSession { owner, lost } = over;
        let mut registry = self.registry();
        registry.by_conn.remove(&owner);
        registry.expired.push(owner);
        drop(registry);
        self.close(lost);
    }

    /// The sessions that have expired since the last call.
    pub(crate) fn take_expired(&self) -> Vec<Owner> {
        std::mem::take(&mut self.registry().expired)
    }

    /// Notifies all clients with waits that have ended by `now`. It wakes each worker once.
    pub(crate) fn tell(&self, now: Instant, mut next: impl FnMut() -> Option<Notice>) {
        let mut woken = Vec::new();
        let mut registry = None;
        while let Some(notice) = next() {
            let registry = registry.get_or_insert_with(|| self.registry());
            if let Some(entry) = registry.by_conn.remove(&notice.owner) {
                if let Awaited::Lock(key) = entry.awaited {
                    let waited_ms = now.as_millis().saturating_sub(entry.since.as_millis());
                    registry.lock_times.note(waited_ms);
                    if let Some(key) = key {
                        lock_log::waited(notice.owner, &key, waited_ms, notice.outcome);
                    }
                }
                let Holder { worker, name } = entry.holder;
                self.mailboxes[worker].push(Message::WaitEnded(name, notice.outcome));
                if !woken.contains(&worker) {
                    woken.push(worker);
                }
            }
        }
        drop(registry);
        for worker in woken {
            self.mailboxes[worker].wake();
        }
    }

    /// Notes a deadline at this moment.
    pub(crate) fn note_deadline(&self, at: Instant) {
        let at_ms = at.as_millis();
        if at_ms < self.deadline_ms.load(Ordering::SeqCst)
            && at_ms < self.deadline_ms.fetch_min(at_ms, Ordering::SeqCst)
        {
            // If the channel is full, the clock knows already.
            let _ = self.tell_nearer.try_send(());
        }
    }

    /// Forgets the deadline, before the lock manager is asked anew.
    pub(crate) fn forget_deadline(&self) {
        self.deadline_ms.store(NEVER, Ordering::SeqCst);
    }

    /// The soonest deadline since [`Self::forget_deadline`]. A sooner one reported later wakes
    /// [`Self::nearer`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        // In this order: the number read below includes every deadline reported before.
        let _ = self.nearer.try_recv();
        let at_ms = self.deadline_ms.load(Ordering::SeqCst);
        (at_ms != NEVER).then(|| Instant::from_millis(at_ms))
    }

    /// Waits until the deadline is sooner.
    pub(crate) async fn nearer(&self) {
        // `self` holds the sender as well, so this never fails.
        let _ = self.nearer.recv().await;
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry
            .lock()
            .expect("no thread panics while it holds the registry")
    }
}

#[cfg(test)]
mod tests {
    use latchd_protocol::wait::Outcome;

    use super::*;

    impl Waiters {
        /// The registered clients.
        pub(crate) fn registered(&self) -> Vec<(Owner, Holder)> {
            let registry = self.registry();
            let all = registry.by_conn.iter();
            all.map(|(owner, entry)| (*owner, entry.holder)).collect()
        }
    }

    fn waiters() -> Waiters {
        let mailboxes = (0..2).map(|_| Mailbox::new().unwrap());
        Waiters::new(mailboxes.collect(), true)
    }

    fn notice(number: u64) -> Notice {
        Notice {
            owner: Owner::from_number(number),
            outcome: Outcome::Granted,
        }
    }

    #[test]
    fn waiter_is_notified_once_by_its_worker() {
        let logs = [false, true].map(|logs| Waiters::new(Arc::new([]), logs).logs_locks());
        assert_eq!(logs, [false, true]);
        let waiters = waiters();
        let holder = Holder { worker: 1, name: 7 };
        let (key, at) = (Key::new(b"k").unwrap(), Instant::from_millis);
        waiters.register(Owner::from_number(3), holder, at(5), Some(key));
        waiters.register(Owner::from_number(5), holder, at(5), None);
        let owners = waiters
            .registered()
            .into_iter()
            .map(|(owner, _)| owner.number());
        assert!(owners.eq([3, 5]));
        let mut notices = [3, 4, 3, 5].map(notice).into_iter();
        waiters.tell(at(47), || notices.next());
        // A waiter for a value is notified as well, but not counted.
        let times = waiters.lock_times();
        assert_eq!((times.sum_ms, times.counts.iter().sum::<u64>()), (42, 1));
        waiters.forget_times();
        assert_eq!(waiters.lock_times(), Times::default());
        assert!(waiters.mailboxes[0].take().is_empty());
        assert!(matches!(
            waiters.mailboxes[1].take()[..],
            [
                Message::WaitEnded(7, Outcome::Granted),
                Message::WaitEnded(..)
            ]
        ));
    }

    #[test]
    fn client_that_left_gets_no_notice() {
        let waiters = waiters();
        let conn = Owner::from_number(3);
        let now = Instant::from_millis(0);
        waiters.register(conn, Holder { worker: 0, name: 7 }, now, None);
        waiters.leave(conn);
        let mut notices = Some(notice(3));
        waiters.tell(now, || notices.take());
        assert!(waiters.mailboxes[0].take().is_empty());
    }

    #[test]
    fn sooner_deadline_is_kept_and_reported() {
        let waiters = waiters();
        let at = Instant::from_millis;
        assert_eq!(waiters.deadline(), None);
        waiters.note_deadline(at(20));
        waiters.note_deadline(at(30));
        assert!(waiters.nearer.try_recv().is_ok());
        assert!(waiters.nearer.try_recv().is_err(), "30 is not nearer");
        waiters.note_deadline(at(10));
        assert_eq!(waiters.deadline(), Some(at(10)));
        assert!(waiters.nearer.try_recv().is_err(), "it is in the answer");
        waiters.forget_deadline();
        assert_eq!(waiters.deadline(), None);
        waiters.note_deadline(at(40));
        smol::block_on(waiters.nearer());
    }
}
