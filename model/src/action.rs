//! The events of one step of a model.
//!
//! An action is small and free of numbers that grow: a client, a word of the alphabet, a key. It
//! stands for an [`Op`]; the meaning of the op's words follows from the numbers that the client has
//! been told and from the model's bounds ([`Words`]).

use std::fmt;

use latchd_harness::alphabet::{
    CasChoice, ClientNumber, FenceChoice, Meaning, Op, SmallKey, SmallValue,
};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;

use crate::setup::{CLIENTS_MAX, Setup};
use crate::verb::{Scope, Verb};

/// The keys of the clients, and behind them the one of [`Verb::Pressure`].
pub(crate) const KEYS: [&[u8]; 3] = [b"a", b"b", b"p"];

/// The index in `KEYS` that only [`Verb::Pressure`] stores.
pub(crate) const PRESSURE_KEY: usize = 2;

/// The version that a client chooses: above all that a search can reach.
pub(crate) const CHOSEN_CAS: u64 = 1 << 40;

/// The version that a client claims to know and that does not exist: above all others.
const FUTURE_CAS: u64 = 1 << 41;

/// A number that no grant has: above all that a search can reach.
const NO_FENCE: Fence = Fence::FIRST.step(1 << 40);

/// The index of a client that has gone: none of the clients. It sends requests under the id that
/// ended last.
pub(crate) const GONE: usize = CLIENTS_MAX;

/// Milliseconds in a step of time.
const STEP_MS: u32 = 1000;

/// One step of a model.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub(crate) struct Action {
    /// Which client; 0 where none has part in it.
    pub(crate) client: u8,
    /// The event.
    pub(crate) verb: Verb,
    /// Which of `KEYS`; 0 where it is about none.
    pub(crate) key: u8,
}

impl Action {
    /// The client's place in the world.
    #[must_use]
    pub(crate) const fn client(self) -> usize {
        self.client as usize
    }

    /// The letter that transcripts call the client by.
    #[must_use]
    pub(crate) const fn letter(self) -> char {
        (b'A' + self.client) as char
    }

    /// The op that it is.
    #[must_use]
    pub(crate) fn op(self, setup: &Setup) -> Op {
        let client = ClientNumber::new(self.client);
        let request = || {
            let request = self.verb.request(SmallKey::new(self.key), setup.ttl_s);
            request.expect("it asks")
        };
        match self.verb {
            Verb::Open => Op::Open { client },
            Verb::Close => Op::Close { client },
            Verb::Ask(..) => Op::Request {
                client,
                request: request(),
            },
            Verb::Late(_) => Op::Request {
                client: ClientNumber::new(u8::try_from(GONE).expect("there are few")),
                request: request(),
            },
            Verb::Pass => Op::Advance { ms: STEP_MS },
            Verb::Tick => Op::Tick,
            Verb::StepBack => Op::Rewind { ms: STEP_MS },
            Verb::WallClock => Op::WallClock { ahead_s: 1 },
            Verb::Pressure => Op::Pressure { key: 0 },
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, letter, key) = (self.verb, self.letter(), name(self.key.into()));
        match verb.scope() {
            Scope::World => write!(out, "{verb}"),
            Scope::Key => write!(out, "{verb} {key}"),
            Scope::Absent | Scope::Client => write!(out, "{letter}: {verb}"),
            Scope::Item | Scope::Version => write!(out, "{letter}: {verb} {key}"),
        }
    }
}

/// The meaning of the words of a client's request.
pub(crate) struct Words<'a> {
    /// The next value: as many bytes as every value has, and others each time.
    pub(crate) value: &'a [u8],
    /// The version that the client was told last.
    pub(crate) known: Option<Cas>,
    /// The number of the key's last grant that any client was told: clients that share a right tell
    /// each other.
    pub(crate) fence: Option<u64>,
}

impl<'a> Meaning<'a> for Words<'a> {
    fn key(&self, key: SmallKey) -> Key<'a> {
        self::key(key.among(KEYS.len()))
    }

    fn value(&self, value: SmallValue) -> &'a [u8] {
        match value {
            SmallValue::Empty | SmallValue::Long => value.bytes(),
            SmallValue::Word
            | SmallValue::Number
            | SmallValue::Greatest
            | SmallValue::Round
            | SmallValue::Padded => self.value,
        }
    }

    fn version(&self, _: SmallKey, choice: CasChoice) -> Cas {
        match choice {
            // A client that knows none does not ask for it (`Scope::Version`).
            CasChoice::Current | CasChoice::Former => self.known.unwrap_or(Cas::FIRST),
            CasChoice::Higher => Cas::new(CHOSEN_CAS).expect("not 0"),
            CasChoice::Highest => Cas::new(FUTURE_CAS).expect("not 0"),
        }
    }

    fn fence(&self, _: SmallKey, _: FenceChoice) -> Fence {
        self.fence.and_then(Fence::new).unwrap_or(NO_FENCE)
    }
}

/// The name of one of `KEYS`.
#[must_use]
pub(crate) fn key(number: usize) -> Key<'static> {
    Key::new(KEYS[number]).expect("each has one byte")
}

/// The letter of one of `KEYS`.
#[must_use]
pub(crate) const fn name(number: usize) -> char {
    KEYS[number][0] as char
}
