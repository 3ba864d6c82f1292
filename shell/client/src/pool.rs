//! The connections to one server: shared ones for cache calls, those of its locks, and idle ones for computed values.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchd_client_core::{
    AnyRequest, AnyResponse, Grants, Kept, Leases, LockState, NotObtained, OwnerTerms,
    SessionTerms, TermsError,
};
use latchd_protocol::session::{SessionAction, SessionRequest, Token as SessionToken};
use latchd_protocol::wire::meta::session::SessionResponse;

use super::background;
use super::clock;
use super::connector::Connector;
use super::driver::Driver;
use super::endpoint::Endpoint;
use super::error::{Error, ErrorKind};
use super::keeper::Keeper;
use super::mutex::lock;
use super::options::ClientOptions;
use super::shared_connection::{Share, SharedConnection};
use super::shared_values::Computes;
use super::turns::{Permits, Turns};

/// The most idle connections kept for the next computed value, and the most idle keepers for the next wait.
const IDLE_MAX: usize = 8;

/// The most unanswered requests on a shared connection. A session can have four times as many.
const LOAD_MAX: usize = 1_000;

/// A token that no session has: to ask whether the server has sessions.
const NO_SESSION: &[u8] = b"latchd-client-asks-for-sessions";

/// The connections to one server. Clones share them.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

pub(super) struct Inner {
    pub(super) connector: Connector,
    pub(super) options: ClientOptions,
    /// The waits for keys of this server.
    pub(super) turns: Turns,
    /// The computed values of this server that tasks want.
    pub(super) computes: Arc<Computes>,
    idle: Mutex<Vec<(Driver, Kept)>>,
    shared: Mutex<Vec<SharedConnection>>,
    kind: Mutex<Option<ServerKind>>,
    /// One task at a time asks for the kind.
    asks_kind: Permits,
    keepers: Mutex<Vec<(Owner, Arc<Keeper>)>>,
    /// Keepers that wait for no key and hold none.
    slots: Mutex<Vec<(Owner, Arc<Keeper>)>>,
}

/// What a server has told about itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ServerKind {
    Latchd,
    /// memcached, or another server with its meta commands.
    Memcached,
    Other,
}

/// What has a lock on the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    /// A session of so many seconds.
    Session(u32),
    Connection,
    /// An item of memcached.
    Item,
}

/// A keeper for one wait, and for the lock that was waited for.
pub(super) struct Slot {
    pool: Pool,
    owner: Owner,
    keeper: Arc<Keeper>,
}

impl Slot {
    pub(super) const fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = lock(&self.pool.slots);
        if slots.len() < IDLE_MAX {
            slots.push((self.owner, Arc::clone(&self.keeper)));
        }
    }
}

impl Deref for Pool {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Pool {
    /// A pool without connections.
    pub(super) fn new(connector: Connector, options: ClientOptions) -> Self {
        Self(Arc::new(Inner {
            connector,
            turns: Turns::new(options.waits_max),
            computes: Computes::new(options.waits_max),
            options,
            idle: Mutex::default(),
            shared: Mutex::default(),
            kind: Mutex::default(),
            asks_kind: Permits::new(1),
            keepers: Mutex::default(),
            slots: Mutex::default(),
        }))
    }

    /// The address of the server.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.connector.endpoint()
    }

    /// An error of this server.
    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        Error::at(Arc::clone(self.endpoint().name()), kind)
    }

    /// The error of a call that has met another holder.
    pub(super) fn not_obtained(&self, why: NotObtained, holder: LockState) -> Error {
        Error::held(Arc::clone(self.endpoint().name()), why, holder)
    }

    /// Whether this process can use the client.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`].
    pub(super) fn check_process(&self) -> Result<(), Error> {
        if background::is_forked() {
            return Err(self.error(ErrorKind::Forked));
        }
        Ok(())
    }

    /// A place on a shared connection, with this share of its load. It is on an unused one, or on a new one
    /// while there are fewer than the options allow, or on the one with the lowest load.
    pub(super) fn share(&self, load: usize) -> Share {
        let mut shared = lock(&self.shared);
        let least = shared
            .iter()
            .map(|one| (one.load(), one))
            .min_by_key(|(load, _)| *load);
        let is_full = shared.len() >= self.options.connections;
        if let Some((other, one)) = least
            && (other == 0 || is_full && other + load <= LOAD_MAX)
        {
            return one.share(load);
        }
        let one = SharedConnection::new(self.connector.clone(), &self.options);
        let share = one.share(load);
        shared.push(one);
        share
    }

    /// What the server is. It is asked once; the question changes nothing on any server.
    ///
    /// # Errors
    /// The server's refusal, or the reason why it cannot be reached.
    pub(super) async fn kind(&self) -> Result<ServerKind, Error> {
        let known = || *lock(&self.kind);
        if let Some(kind) = known() {
            return Ok(kind);
        }
        let _turn = self.asks_kind.permit().await;
        if let Some(kind) = known() {
            return Ok(kind);
        }
        let token = SessionToken::new(NO_SESSION).expect("it is long enough, and has no blanks");
        let resume = AnyRequest::Session(SessionRequest {
            token,
            action: SessionAction::Open {
                seconds: 1,
                only_resumes: true,
            },
        });
        let (mut kind, mut refusal) = (ServerKind::Other, None);
        let each = |place: usize, answer: &AnyResponse<'_>| match (place, answer) {
            (0, AnyResponse::Session(SessionResponse::NotFound)) => kind = ServerKind::Latchd,
            (_, AnyResponse::Meta(_)) if kind == ServerKind::Other => kind = ServerKind::Memcached,
            (0, _) => refusal = answer.refusal().filter(|words| &**words != "ERROR"),
            _ => {}
        };
        let asked = self.share(2).ask(&[resume, AnyRequest::Noop], each).await;
        // A server that refuses may close the connection before the second answer.
        if let Some(words) = refusal {
            return Err(self.error(ErrorKind::refused(words)));
        }
        asked?;
        *lock(&self.kind) = Some(kind);
        Ok(kind)
    }

    /// Asks the server at the next call again what it is: its replies do not fit.
    pub(super) fn forget_kind(&self) {
        *lock(&self.kind) = None;
        lock(&self.keepers).clear();
        lock(&self.slots).clear();
    }

    /// The keeper of all locks of this kind that are free when they are asked for.
    ///
    /// # Errors
    /// [`TermsError`] if no session has this time.
    pub(super) fn keeper(&self, owner: Owner) -> Result<Arc<Keeper>, TermsError> {
        let mut keepers = lock(&self.keepers);
        if let Some((_, keeper)) = keepers.iter().find(|(one, _)| *one == owner) {
            return Ok(Arc::clone(keeper));
        }
        let keeper = self.new_keeper(owner, None)?;
        keepers.push((owner, Arc::clone(&keeper)));
        Ok(keeper)
    }

    /// A keeper for one wait.
    ///
    /// # Errors
    /// As [`keeper`](Self::keeper).
    pub(super) fn slot(&self, owner: Owner) -> Result<Slot, TermsError> {
        let idle = {
            let mut slots = lock(&self.slots);
            let place = slots.iter().rposition(|(one, _)| *one == owner);
            place.map(|place| slots.swap_remove(place).1)
        };
        let keeper = match idle {
            Some(keeper) => keeper,
            None => self.new_keeper(owner, None)?,
        };
        Ok(Slot {
            pool: self.clone(),
            owner,
            keeper,
        })
    }

    /// A keeper with a connection of its own, and with this session if there is one.
    ///
    /// # Errors
    /// As [`keeper`](Self::keeper).
    pub(super) fn new_keeper(
        &self,
        owner: Owner,
        session: Option<SessionTerms>,
    ) -> Result<Arc<Keeper>, TermsError> {
        let options = &self.options;
        let driver = Driver::new(self.connector.clone(), options);
        let server = Arc::clone(self.endpoint().name());
        let session = match (session, owner) {
            (None, Owner::Session(seconds)) => {
                let ttl = Duration::from_secs(seconds.into());
                Some(SessionTerms::new(clock::random(), ttl)?)
            }
            (session, Owner::Session(_) | Owner::Connection | Owner::Item) => session,
        };
        if owner == Owner::Item {
            let machine = Leases::new(options.reply_timeout);
            return Ok(Keeper::start(server, machine, driver));
        }
        let machine = Grants::new(OwnerTerms {
            session,
            heartbeat: options.heartbeat,
            reply_timeout: options.reply_timeout,
            seed: clock::seed(),
        });
        Ok(Keeper::start(server, machine, driver))
    }

    /// An idle open connection, attached to a session or not, or one still to be opened.
    pub(super) async fn driver(&self, is_attached: bool) -> (Driver, Option<Kept>) {
        let fits = |(_, kept): &(Driver, Kept)| kept.is_attached() == is_attached;
        loop {
            let found = {
                let mut idle = lock(&self.idle);
                let place = idle.iter().rposition(fits);
                place.map(|place| idle.remove(place))
            };
            let Some((mut driver, kept)) = found else {
                let driver = Driver::new(self.connector.clone(), &self.options);
                return (driver, None);
            };
            // The server may have closed it: after a restart, or because it was idle.
            if driver.is_fit().await {
                return (driver, Some(kept));
            }
        }
    }

    /// Keeps a connection for the next call, if it is usable.
    pub(super) fn give_back(&self, driver: Driver, kept: Kept) {
        let mut idle = lock(&self.idle);
        if driver.is_quiet() && idle.len() < IDLE_MAX {
            idle.push((driver, kept));
        }
    }

    /// The number of connections kept for the next call.
    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        lock(&self.idle).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    /// A pool without a server: nothing here opens a connection.
    fn pool(connections: usize) -> Pool {
        let options = ClientOptions::new().connections(connections);
        Client::new("127.0.0.1:1", options).unwrap().first().clone()
    }

    fn loads(pool: &Pool) -> Vec<usize> {
        lock(&pool.shared)
            .iter()
            .map(SharedConnection::load)
            .collect()
    }

    #[test]
    fn the_least_loaded_connection_is_shared() {
        let pool = pool(2);
        let first = pool.share(3);
        assert_eq!(loads(&pool), [3]);
        let second = pool.share(1);
        assert_eq!(loads(&pool), [3, 1], "there may be two");
        let _third = pool.share(4);
        assert_eq!(loads(&pool), [3, 5]);
        let _fourth = pool.share(LOAD_MAX - 3);
        assert_eq!(loads(&pool), [LOAD_MAX, 5], "it is not too much");
        let _fifth = pool.share(LOAD_MAX - 4);
        let all = [LOAD_MAX, 5, LOAD_MAX - 4];
        assert_eq!(loads(&pool), all, "a third one, since it is too much");
        drop((first, second));
        assert_eq!(loads(&pool), [LOAD_MAX - 3, 4, LOAD_MAX - 4]);
    }

    #[test]
    fn unused_connection_is_used_again() {
        let pool = pool(8);
        drop(pool.share(2));
        let _link = pool.share(5);
        assert_eq!(loads(&pool), [5]);
    }

    #[test]
    fn locks_of_one_kind_share_a_keeper() {
        let pool = pool(1);
        let ten = pool.keeper(Owner::Session(10)).unwrap();
        assert!(Arc::ptr_eq(&ten, &pool.keeper(Owner::Session(10)).unwrap()));
        assert!(!Arc::ptr_eq(&ten, &pool.keeper(Owner::Connection).unwrap()));
        let slot = pool.slot(Owner::Connection).unwrap();
        let keeper = Arc::clone(slot.keeper());
        drop(slot);
        let again = pool.slot(Owner::Connection).unwrap();
        assert!(Arc::ptr_eq(&keeper, again.keeper()));
        assert!(pool.keeper(Owner::Session(0)).is_err());
    }
}
