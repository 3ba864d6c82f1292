//! Locks keys: tries, waits in the server's queue, and pauses where there is none.
//!
//! - O1: All keys or none, in the order of their bytes. While the call waits for one key, it holds none.
//! - O2: A key that was free is kept with all others of its kind, over one connection. A wait takes a connection of its
//!   own, and the lock stays there.
//! - O3: A server that cannot be reached is an error at the first try. Once another client was seen to hold the lock, it is
//!   tried again.
//! - O4: Dropping the call releases everything, and leaves the queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchd_client_core::{LockState, NotObtained, Retry, TermsError, wire_key};
use latchd_protocol::Instant;
use latchd_protocol::command::WAIT_MS_MAX;
use latchd_protocol::time::saturating_millis;

use super::background::{Alarm, within};
use super::clock;
use super::error::{Error, ErrorKind};
use super::keeper::{Keeper, Part, Refusal};
use super::lock::Lock;
use super::mutex::lock;
use super::options::{LockOptions, Plan};
use super::pool::{Owner, Pool, Slot};

/// The most keys of one lock: all are confirmed at once, over one connection.
const KEYS_MAX: usize = 1_000;

/// How long after the deadline of a call the answer to its last try may take.
const LAST_TRY: Duration = Duration::from_millis(100);

/// The longest silence of a server after which its last answer, that another client holds the lock, still counts.
const SILENCE: Duration = Duration::from_secs(1);

/// How much earlier than requested a true wait may end: clocks tick in milliseconds.
const EARLY: Duration = Duration::from_millis(10);

/// The pause before a server is tried again, and the longest one.
const RECONNECT: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// The answer to a try of all keys: the locks, or the place of the key that is not locked.
type Tried = Result<Vec<Part>, (usize, Refusal)>;

/// One call.
struct Obtain<'a> {
    pool: &'a Pool,
    keys: &'a [Box<[u8]>],
    options: &'a LockOptions,
    plan: Plan,
    begun: Instant,
    heard: &'a Mutex<Option<Heard>>,
}

/// The last answer that another client holds the lock.
#[derive(Clone)]
struct Heard {
    state: LockState,
    /// When it came, or when the wait in the queue is over.
    at: Instant,
}

/// Checks the keys of a lock, and puts them in order.
///
/// # Errors
/// [`ErrorKind::Terms`].
pub(super) fn in_order<K: AsRef<[u8]>>(
    keys: impl IntoIterator<Item = K>,
) -> Result<Vec<Box<[u8]>>, Error> {
    let mut sorted = Vec::new();
    for key in keys {
        wire_key(key.as_ref())?;
        sorted.push(Box::from(key.as_ref()));
    }
    sorted.sort_unstable();
    let is_double = sorted.windows(2).any(|pair| pair.first() == pair.last());
    if sorted.is_empty() || sorted.len() > KEYS_MAX || is_double {
        return Err(TermsError::Keys.into());
    }
    Ok(sorted)
}

/// Locks the keys, which are in order. `waits`: for as long as the options allow; otherwise it tries once.
pub(super) async fn obtain(
    pool: &Pool,
    keys: Vec<Box<[u8]>>,
    options: &LockOptions,
    waits: bool,
) -> Result<Lock, Error> {
    pool.check_process()?;
    let begun = clock::now();
    let heard = Mutex::new(None);
    let work = async {
        let kind = pool.kind().await?;
        let plan = options.plan(kind, &keys).map_err(|kind| pool.error(kind))?;
        let obtain = Obtain {
            pool,
            keys: &keys,
            options,
            plan,
            begun,
            heard: &heard,
        };
        obtain.run(waits).await
    };
    let Some(deadline) = options.deadline else {
        return work.await;
    };
    let obtained = within(deadline.saturating_add(LAST_TRY), work).await;
    obtained.unwrap_or_else(|| Err(too_late(pool, &heard)))
}

/// The error after the deadline.
fn too_late(pool: &Pool, heard: &Mutex<Option<Heard>>) -> Error {
    match lock(heard).clone() {
        Some(heard) if clock::since(heard.at) < SILENCE => {
            pool.not_obtained(NotObtained::Deadline, heard.state)
        }
        Some(_) | None => pool.error(ErrorKind::Unreachable(std::io::ErrorKind::TimedOut.into())),
    }
}

impl Obtain<'_> {
    async fn run(&self, waits: bool) -> Result<Lock, Error> {
        let session = self.plan.session.clone();
        let own = || self.pool.new_keeper(self.plan.owner, session);
        let own = self.plan.is_own().then(own).transpose()?;
        let waits = waits && self.options.pauses.patience != Some(Duration::ZERO);
        let mut tries = self.options.pauses.begin();
        let mut breaks = Retry::exponential(RECONNECT, RECONNECT_MAX).begin(clock::seed());
        loop {
            let keeper = match &own {
                Some(own) => Arc::clone(own),
                None => self.pool.keeper(self.plan.owner)?,
            };
            let found = self.try_all(&keeper, None).await;
            let waited = match self.heard_in(found, waits) {
                Ok(Ok(parts)) => return Ok(self.lock(parts, None)),
                Ok(Err((place, refusal))) if refusal.is_queued && self.may_queue() => {
                    self.wait(place, own.as_ref()).await
                }
                Ok(Err(_)) => Ok(Waited::Refused),
                Err(error) => Err(error),
            };
            match waited {
                Ok(Waited::Obtained(lock)) => return Ok(*lock),
                Ok(Waited::Again) => {}
                Ok(Waited::Refused) => self.pause(tries.next()).await?,
                // O3
                Err(error) if waits && self.was_heard() && error.may_pass() => {
                    tracing::debug!(%error, "waiting for the server");
                    let is_over = self.left().is_some_and(|(left, _)| left.is_zero());
                    let pause = breaks.next_wait().filter(|_| !is_over);
                    if pause.is_none() {
                        return Err(error);
                    }
                    self.pause(pause).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Notes that another client holds the lock; an error if the call does not wait.
    fn heard_in(&self, found: Result<Tried, Error>, waits: bool) -> Result<Tried, Error> {
        let found = found?;
        if let Err((_, refusal)) = &found {
            let state = refusal.state.clone();
            if !waits {
                return Err(self.pool.not_obtained(NotObtained::Held, state));
            }
            self.hear(state, clock::now());
        }
        Ok(found)
    }

    fn hear(&self, state: LockState, at: Instant) {
        *lock(self.heard) = Some(Heard { state, at });
    }

    fn was_heard(&self) -> bool {
        lock(self.heard).is_some()
    }

    fn state(&self) -> LockState {
        let heard = lock(self.heard).clone();
        heard.map(|heard| heard.state).unwrap_or_default()
    }

    fn may_queue(&self) -> bool {
        self.options.pauses.may_queue && self.plan.owner != Owner::Item
    }

    /// The time that is left, and the reason for its end; `None` is no limit.
    fn left(&self) -> Option<(Duration, NotObtained)> {
        let passed = clock::since(self.begun);
        let deadline = self
            .options
            .deadline
            .map(|span| (span, NotObtained::Deadline));
        let patience = self.options.pauses.patience.filter(|_| self.may_queue());
        let patience = patience.map(|span| (span, NotObtained::Held));
        let (span, why) = [deadline, patience]
            .into_iter()
            .flatten()
            .min_by_key(|(span, _)| *span)?;
        Some((span.saturating_sub(passed), why))
    }

    /// Asks for all keys over this keeper, and for the one at this place first if the call has it already.
    async fn try_all(
        &self,
        keeper: &Arc<Keeper>,
        first: Option<(usize, Part)>,
    ) -> Result<Tried, Error> {
        let mut parts = Vec::with_capacity(self.keys.len());
        let mut first = first;
        for (place, key) in self.keys.iter().enumerate() {
            if let Some((_, part)) = first.take_if(|(one, _)| *one == place) {
                parts.push(part);
                continue;
            }
            match keeper.attempt(key, self.plan.terms.clone(), None).await {
                Ok(Ok(part)) => parts.push(part),
                Ok(Err(refusal)) => return Ok(Err((place, refusal))),
                Err(error) => {
                    if matches!(error.kind(), ErrorKind::Unsupported(_)) {
                        self.pool.forget_kind();
                    }
                    return Err(error);
                }
            }
        }
        Ok(Ok(parts))
    }

    /// Waits for a key in the server's queue, then asks for the others.
    async fn wait(&self, place: usize, own: Option<&Arc<Keeper>>) -> Result<Waited, Error> {
        let Some(key) = self.keys.get(place) else {
            return Ok(Waited::Again);
        };
        let turn = self.in_time(self.pool.turns.of(key)).await?;
        let permit = self.in_time(self.pool.turns.permit()).await?;
        let slot = own.is_none().then(|| self.pool.slot(self.plan.owner));
        let slot = slot.transpose()?;
        let Some(keeper) = own.or(slot.as_ref().map(Slot::keeper)) else {
            return Ok(Waited::Again);
        };
        let longest = Duration::from_millis(WAIT_MS_MAX);
        let span = self.left().map_or(longest, |(left, _)| left.min(longest));
        if span.is_zero() {
            return Err(self.over());
        }
        let (begun, state) = (clock::now(), self.state());
        self.hear(
            state,
            Instant::from_millis(begun.as_millis().saturating_add(saturating_millis(span))),
        );
        let terms = self.plan.terms.clone();
        let waited = keeper.attempt(key, terms, Some(span)).await;
        // The next task of this process waits behind the others (T1 of `turns`).
        drop((turn, permit));
        let found = match waited {
            Ok(Ok(part)) => self.try_all(keeper, Some((place, part))).await,
            Ok(Err(refusal)) => Ok(Err((place, refusal))),
            // The server has no place left in its queues.
            Err(error)
                if matches!(error.kind(), ErrorKind::Refused(_)) && !error.is_not_primary() =>
            {
                return Ok(Waited::Refused);
            }
            Err(error) => Err(error),
        };
        match self.heard_in(found, true)? {
            Ok(parts) => Ok(Waited::Obtained(Box::new(self.lock(parts, slot)))),
            Err((_, refusal)) if !refusal.is_queued => Ok(Waited::Refused),
            // The server has refused the wait, or has ended it early.
            Err((one, _)) if one == place && clock::since(begun) + EARLY < span => {
                Ok(Waited::Refused)
            }
            Err(_) if self.left().is_some_and(|(left, _)| left.is_zero()) => Err(self.over()),
            Err(_) => Ok(Waited::Again),
        }
    }

    /// Waits for a turn in the process, as long as there is time.
    async fn in_time<T>(&self, turn: impl Future<Output = T>) -> Result<T, Error> {
        let Some((left, _)) = self.left() else {
            return Ok(turn.await);
        };
        within(left, turn).await.ok_or_else(|| {
            self.hear(self.state(), clock::now());
            self.over()
        })
    }

    /// Pauses before the next try. The last try is at the deadline.
    ///
    /// # Errors
    /// The lock is not obtained: it was the last try.
    async fn pause(&self, pause: Option<Duration>) -> Result<(), Error> {
        let left = self.left().map(|(left, _)| left);
        match pause {
            Some(pause) if left.is_none_or(|left| !left.is_zero()) => {
                Alarm::after(left.map_or(pause, |left| pause.min(left))).await;
                Ok(())
            }
            Some(_) => Err(self.over()),
            None => Err(self.pool.not_obtained(NotObtained::Held, self.state())),
        }
    }

    /// The error at the end of the time.
    fn over(&self) -> Error {
        let why = self.left().map_or(NotObtained::Held, |(_, why)| why);
        self.pool.not_obtained(why, self.state())
    }

    fn lock(&self, parts: Vec<Part>, slot: Option<Slot>) -> Lock {
        Lock {
            parts,
            pool: self.pool.clone(),
            plan: self.plan.clone(),
            _slot: slot,
        }
    }
}

/// The end of a wait in the queue.
enum Waited {
    Obtained(Box<Lock>),
    /// Another key is held, or the longest wait is over: it is tried again at once.
    Again,
    /// It is tried again after a pause.
    Refused,
}
