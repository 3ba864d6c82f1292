//! Turns ops into inputs: it knows the connections and their ids, the time, and the versions that
//! replies have shown.

use latchd_core::Owner;
use latchd_core::engine::Event;
use latchd_protocol::command::{Command, Set};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Granted, Reply};
use latchd_protocol::time::{Clock, Instant};
use latchd_protocol::wait::{Notice, Outcome};

use super::{
    CLIENTS, CasChoice, ClientNumber, FenceChoice, Input, KEYS, Meaning, Op, PRESSURE_KEYS,
    SmallKey, SmallRequest, UNIX_S_AT_START,
};

/// The value that [`Op::Pressure`] stores.
const PRESSURE_VALUE: &[u8] = &[b'p'; 48];

/// The keys that it stores, none of which is in [`KEYS`].
const PRESSURE: [&[u8]; PRESSURE_KEYS] = [
    b"~0", b"~1", b"~2", b"~3", b"~4", b"~5", b"~6", b"~7", b"~8", b"~9", b"~a", b"~b", b"~c",
    b"~d", b"~e", b"~f",
];

/// The input of [`Op::Pressure`]: the server itself stores an item. It takes no lock, so the core
/// need not know of it.
///
/// # Panics
/// Never: there is a name for each number.
#[must_use]
pub fn pressure(key: u8) -> Input<'static> {
    let name = PRESSURE.get(usize::from(key) % PRESSURE_KEYS).copied();
    let key = name.and_then(Key::new).expect("each has two letters");
    let nobody = Owner::from_number(0);
    Input::Command(nobody, Command::from(Set::new(key, PRESSURE_VALUE)))
}

/// The keys that [`Op::Pressure`] stores.
///
/// # Panics
/// Never: each has two letters.
pub fn pressure_keys() -> impl Iterator<Item = Key<'static>> {
    let key = |name| Key::new(name).expect("each has two letters");
    PRESSURE.into_iter().map(key)
}

/// The world around a core, as far as ops can change it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Environment {
    now_ms: u64,
    unix_s_at_start: u64,
    /// The id each client is connected under. A client that comes back gets a new one.
    connected: [Option<Owner>; CLIENTS],
    /// The id each client was last connected under.
    last: [Option<Owner>; CLIENTS],
    connections: u64,
    told: [Told; KEYS.len()],
    parked: [Option<Parked>; CLIENTS],
    /// The limit of memory at first, where it may change.
    memory_bytes: Option<usize>,
}

/// A request that waits, or has waited and is to be answered now.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Parked {
    request: SmallRequest,
    /// Its client has the notice that the wait is over.
    is_over: bool,
}

/// A client's request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// Which of the clients.
    client: usize,
    /// The request itself.
    pub request: SmallRequest,
    /// It has waited for that.
    pub has_waited: bool,
}

/// The numbers that clients were told about one key: the versions of its item, and the grants of
/// its lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Told {
    version: Option<Cas>,
    former_version: Option<Cas>,
    highest_version: u64,
    fence: Option<Fence>,
    former_fence: Option<Fence>,
}

impl Told {
    /// Nothing yet.
    pub const NOTHING: Self = Self {
        version: None,
        former_version: None,
        highest_version: 0,
        fence: None,
        former_fence: None,
    };

    /// Learns from a reply to a request about the key.
    pub fn learn(&mut self, reply: &Reply<'_>) {
        if let Reply::Granted(granted) = reply {
            self.former_fence = self.fence.replace(granted.fence);
        }
        let cas = match reply {
            Reply::Granted(Granted {
                item: Some(hit), ..
            })
            | Reply::Hit(hit) => hit.cas,
            Reply::Stored(stored) => stored.cas,
            Reply::Number(number) => number.cas,
            Reply::Miss
            | Reply::NotStored
            | Reply::Exists
            | Reply::NotFound
            | Reply::Deleted
            | Reply::Locked
            | Reply::Granted(Granted { item: None, .. })
            | Reply::Contended(_)
            | Reply::WouldDeadlock(_)
            | Reply::Withheld { .. }
            | Reply::Waits
            | Reply::Unlocked
            | Reply::Ok
            | Reply::Keys(_)
            | Reply::Stats(_)
            | Reply::Refused(_)
            | Reply::KeyOf(_) => return,
        };
        if self.version != Some(cas) {
            self.former_version = self.version.replace(cas);
            self.highest_version = self.highest_version.max(cas.number());
        }
    }

    /// The version that a client means.
    ///
    /// # Panics
    /// Never: no version is 0.
    #[must_use]
    pub fn version(&self, choice: CasChoice) -> Cas {
        let number = match choice {
            CasChoice::Current => self.version.map_or(1, Cas::number),
            CasChoice::Former => self.former_version.map_or(1, Cas::number),
            CasChoice::Higher => self.highest_version.saturating_add(3),
            CasChoice::Highest => u64::MAX,
        };
        Cas::new(number.max(1)).expect("it is at least 1")
    }

    /// The grant that a client means.
    #[must_use]
    pub fn fence(&self, choice: FenceChoice) -> Fence {
        let fence = match choice {
            FenceChoice::Current => self.fence,
            FenceChoice::Former => self.former_fence,
        };
        fence.unwrap_or(Fence::FIRST)
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment {
    /// An environment without connections, before the first event.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            now_ms: 0,
            unix_s_at_start: UNIX_S_AT_START,
            connected: [None; CLIENTS],
            last: [None; CLIENTS],
            connections: 0,
            told: [Told::NOTHING; KEYS.len()],
            parked: [None; CLIENTS],
            memory_bytes: None,
        }
    }

    /// The same around a core with this memory limit, in bytes, which may change.
    #[must_use]
    pub const fn within(mut self, memory_bytes: usize) -> Self {
        self.memory_bytes = Some(memory_bytes);
        self
    }

    /// The time.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        Clock {
            now: Instant::from_millis(self.now_ms),
            unix_s_at_start: self.unix_s_at_start,
        }
    }

    /// The input that `op` stands for; `None` if it stands for none (now).
    pub fn enact(&mut self, op: &Op) -> Option<Input<'static>> {
        match op {
            Op::Open { client } => {
                let slot = self.connected.get_mut(client.among(CLIENTS))?;
                if slot.is_some() {
                    return None;
                }
                self.connections += 1;
                let conn = if client.is_session() {
                    Owner::of_session(self.connections)
                } else {
                    Owner::from_number(self.connections)
                };
                *slot = Some(conn);
                *self.last.get_mut(client.among(CLIENTS))? = Some(conn);
                Some(Input::Event(Event::Opened(conn)))
            }
            Op::Close { client } => {
                let conn = self.connected.get_mut(client.among(CLIENTS))?.take()?;
                // The lock or win that it has waited for is given to no client.
                *self.parked.get_mut(client.among(CLIENTS))? = None;
                Some(Input::Event(Event::Closed(conn)))
            }
            Op::Detach { client } => {
                if client.is_session() {
                    *self.parked.get_mut(client.among(CLIENTS))? = None;
                }
                None
            }
            Op::Advance { ms } => {
                self.now_ms += u64::from(*ms);
                None
            }
            Op::Rewind { ms } => {
                self.now_ms = self.now_ms.saturating_sub(u64::from(*ms));
                None
            }
            Op::WallClock { ahead_s } => {
                self.unix_s_at_start = UNIX_S_AT_START + u64::from(*ahead_s);
                Some(Input::Event(Event::WallClock {
                    unix_s_at_start: self.unix_s_at_start,
                }))
            }
            Op::Tick => Some(Input::Event(Event::Tick)),
            Op::Due => Some(Input::Event(Event::Due)),
            Op::Withhold { ms } => {
                let until = Instant::from_millis(self.now_ms + u64::from(*ms));
                Some(Input::Event(Event::WithholdGrants(Some(until))))
            }
            Op::Pressure { key } => Some(pressure(*key)),
            Op::Limit { quarters } => {
                let quarter = self.memory_bytes? / 4;
                Some(Input::Memory {
                    bytes: quarter * usize::from(*quarters),
                })
            }
            Op::Request { client, .. } => {
                let Asked { request, .. } = self.asked(op)?;
                let conn = (*self.last.get(client.among(CLIENTS))?)?;
                *self.parked.get_mut(client.among(CLIENTS))? = None;
                Some(Input::Command(conn, request.lower(self)))
            }
        }
    }

    /// The request of `op`, if it stands for an input now.
    #[must_use]
    pub fn asked(&self, op: &Op) -> Option<Asked> {
        let Op::Request { client, request } = *op else {
            return None;
        };
        let client = client.among(CLIENTS);
        let parked = *self.parked.get(client)?;
        match parked {
            None => Some(Asked {
                client,
                request,
                has_waited: false,
            }),
            Some(parked) => parked.is_over.then_some(Asked {
                client,
                request: parked.request.without_wait(),
                has_waited: true,
            }),
        }
    }

    /// Notes that a wait is over. The client repeats its request without the wait, unless the
    /// notice answers it. No effect if the connection has gone.
    pub fn settle(&mut self, notice: Notice) {
        let client = self
            .connected
            .iter()
            .position(|conn| *conn == Some(notice.owner));
        let Some(parked) = client.and_then(|client| self.parked.get_mut(client)) else {
            return;
        };
        match (parked, notice.outcome) {
            (Some(parked), Outcome::Granted | Outcome::TimedOut) => parked.is_over = true,
            (parked, Outcome::NotFound | Outcome::TooManyLocks) => *parked = None,
            (None, Outcome::Granted | Outcome::TimedOut) => {}
        }
    }

    /// Learns the numbers of a reply: that its client waits, the number of the grant, the version
    /// of the item.
    pub fn learn(&mut self, asked: &Asked, reply: &Reply<'_>) {
        let Asked {
            client, request, ..
        } = asked;
        if let (Reply::Waits, Some(parked)) = (reply, self.parked.get_mut(*client)) {
            *parked = Some(Parked {
                request: *request,
                is_over: false,
            });
        }
        if let Some(key) = request.key()
            && let Some(told) = self.told.get_mut(key.among(KEYS.len()))
        {
            told.learn(reply);
        }
    }

    fn told(&self, key: SmallKey) -> Told {
        let told = self.told.get(key.among(KEYS.len()));
        told.copied().unwrap_or(Told::NOTHING)
    }

    /// The id a client is connected under.
    #[must_use]
    pub fn connection(&self, client: ClientNumber) -> Option<Owner> {
        *self.connected.get(client.among(CLIENTS))?
    }
}

impl Meaning<'static> for Environment {
    fn version(&self, key: SmallKey, choice: CasChoice) -> Cas {
        self.told(key).version(choice)
    }

    fn fence(&self, key: SmallKey, choice: FenceChoice) -> Fence {
        self.told(key).fence(choice)
    }
}
