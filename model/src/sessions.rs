//! Sessions: the real core behind two connections, to the end of every interleaving.
//!
//! The transport of these models closes a connection that has lost its session in a step of its own, and lets it ask
//! until then, as the threads of the server do. The expected state is built from replies alone; after each step it
//! must be that of the core.
//!
//! - S1: At most one connection is attached to a session.
//! - S2, S8: Locks and places in queues end with their session, at the moment at which it was not heard for its time,
//!   and not earlier, unless a request releases them. A client that waits is heard.
//! - S3: A token whose session has ended resumes nothing: its next session has a new owner, which holds nothing.
//! - S5: A connection that has lost its session executes nothing in it, and is to be closed.
//! - S7: Another user is refused, and changes nothing.
//! - P1, P2: Each request about a session gets the replies of `Witness::of_pair`, each of them somewhere, and no other.
//!
//! Times count from now, so the number of states is finite.

mod world;

use std::fmt;

use latchd_protocol::session::{SessionRefusal, SessionReply};

use crate::frame::{Bounded, Judged, Shown, named, witnesses};

pub use world::World;

/// How many connections there are.
const CONNS: usize = 2;

/// The most sessions, and the most keys.
const MANY: usize = 2;

/// Milliseconds in a step of time. A span ends a millisecond after its length, and the time of a session has whole seconds.
const STEP_MS: u64 = 1001;

/// The time of a session.
const TTL_S: u32 = 2;

/// When a session ends that is not heard: within the second step, and not with the first.
const TTL_MS: u64 = TTL_S as u64 * 1000 + 1;

/// The bounds of one model.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// States and transitions, as of the last intended change of model or core.
    pub pinned: (usize, usize),
    /// How many sessions.
    pub tokens: usize,
    /// How many keys.
    pub keys: usize,
    /// Over how many shards of items the keys are spread.
    pub shards: usize,
    /// When a wait ends, in milliseconds from its request on.
    pub wait_ms: u64,
    /// The connections' words, besides opening and closing, with commas between.
    pub words: &'static str,
}

impl Bounds {
    fn has(&self, word: &str) -> bool {
        self.words.split(", ").any(|one| one == word)
    }
}

witnesses! {
    &'static str, Bounds;
    Survives of "S2", "a connection is granted again the lock that its session has, under the same fence", |b| b.has("ml");
    FoundByRetry of "S2", "a lock that was granted without a connection is found by the retry", |b| b.has("ml w");
    KeepsPlace of "S2", "a session that asks again keeps its place before a later one", |b| b.has("ml w");
    PlaceEnds of "S2", "a place in a queue ends, and its session goes on", |b| b.has("ml w");
    ByProxy of "S2", "a request changes a lock of a session that another connection is attached to", |b| b.has("mu j");
    Expires of "S8", "a session that holds a lock ends by time", |_| true;
    WaitIsHeard of "S8", "a session outlives its time while its client waits", |b| b.has("ml w") && b.wait_ms > 2 * STEP_MS;
    HandedOver of "S8", "a session ends, and a waiter has its lock", |b| b.wait_ms > STEP_MS;
    NothingToResume of "S3", "a request resumes nothing", |b| b.has("mo x");
    OpenedAgain of "S3", "a token opens a session after its last one has ended", |_| true;
    TakenOver of "S5", "a connection takes over", |_| true;
    LoserLocks of "S5", "a connection that has lost asks for a lock before it closes", |_| true;
    LoserWaits of "S5", "a connection loses its session while its request waits", |b| b.has("ml w");
    OtherUser of "S7", "another user is refused", |_| true;
    Opened of "P2", "mo: opened", |_| true;
    Resumed of "P2", "mo: resumed", |_| true;
    Lost of "P2", "mo: lost", |_| true;
    Attached of "P2", "mo: attached to another session", |_| true;
    Holds of "P2", "mo: holds locks of its own", |_| true;
    OnlyResumed of "P2", "mo x: resumed", |b| b.has("mo x");
    OnlyLost of "P2", "mo x: lost", |b| b.has("mo x");
    OnlyAttached of "P2", "mo x: attached to another session", |b| b.has("mo x");
    OnlyHolds of "P2", "mo x: holds locks of its own", |b| b.has("mo x");
    Ended of "P2", "mo T0: ended", |b| b.has("mo T0");
    EndLost of "P2", "mo T0: lost", |b| b.has("mo T0");
    NothingToEnd of "P2", "mo T0: not found", |b| b.has("mo T0");
    EndAttached of "P2", "mo T0: attached to another session", |b| b.has("mo T0");
    ByToken of "P2", "j: executed", |b| b.has("ml j");
    NoSession of "P2", "j: no session", |b| b.has("ml j");
    TokenAttached of "P2", "j: attached to another session", |b| b.has("ml j");
    TokenLost of "P2", "j: lost", |b| b.has("ml j");
}

impl Witness {
    /// The pair of a request about a session and its reply (P1).
    ///
    /// # Errors
    /// No such request gets such a reply.
    fn of_pair(word: &str, reply: SessionReply) -> Result<Self, String> {
        use SessionRefusal::{Attached, Holds, Lost, OtherUser};
        use SessionReply::{Ended, NotFound, Opened, Refused, Resumed};
        Ok(match (word, reply) {
            (_, Refused(OtherUser)) => Self::OtherUser,
            ("mo", Opened(_)) => Self::Opened,
            ("mo", Resumed(_)) => Self::Resumed,
            ("mo", Refused(Lost)) => Self::Lost,
            ("mo", Refused(Attached)) => Self::Attached,
            ("mo", Refused(Holds)) => Self::Holds,
            ("mo x", Resumed(_)) => Self::OnlyResumed,
            ("mo x", NotFound) => Self::NothingToResume,
            ("mo x", Refused(Lost)) => Self::OnlyLost,
            ("mo x", Refused(Attached)) => Self::OnlyAttached,
            ("mo x", Refused(Holds)) => Self::OnlyHolds,
            ("mo T0", Ended(_)) => Self::Ended,
            ("mo T0", Refused(Lost)) => Self::EndLost,
            ("mo T0", NotFound) => Self::NothingToEnd,
            ("mo T0", Refused(Attached)) => Self::EndAttached,
            _ => return Err(format!("P1: {word} gets {reply:?}")),
        })
    }

    /// The same for a request with `j`.
    fn of_token(done: Result<(), SessionRefusal>) -> Result<Self, String> {
        Ok(match done {
            Ok(()) => Self::ByToken,
            Err(SessionRefusal::NoSession) => Self::NoSession,
            Err(SessionRefusal::Attached) => Self::TokenAttached,
            Err(SessionRefusal::Lost) => Self::TokenLost,
            Err(SessionRefusal::OtherUser) => Self::OtherUser,
            Err(refusal) => return Err(format!("P1: j gets {refusal:?}")),
        })
    }
}

/// The models that are checked.
pub const ALL: &[Bounds] = &[
    Bounds {
        name: "sessions-2x2x1",
        pinned: (65_033, 1_149_651),
        tokens: 2,
        keys: 1,
        shards: 1,
        wait_ms: 3 * STEP_MS,
        words: "mo, mo x, mo T0, ml, ml w, mu, ml j, mu j",
    },
    Bounds {
        name: "sessions-2x2x2",
        pinned: (329_135, 3_271_657),
        tokens: 2,
        keys: 2,
        shards: 2,
        wait_ms: STEP_MS,
        words: "mo, ml w, mu",
    },
];

/// One step: a word, with the numbers of a connection, a token and a key; 0 where it is about none.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(missing_docs)] // The names say it.
pub struct Happening {
    pub word: &'static str,
    pub conn: usize,
    pub token: usize,
    pub key: usize,
}

impl fmt::Debug for Happening {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            word,
            conn,
            token,
            key,
        } = self;
        write!(out, "{conn}: {word}, token {token}, key {key}")
    }
}

named!(Bounds, |bounds| {
    let (tokens, keys, shards) = (bounds.tokens, bounds.keys, bounds.shards);
    format!(
        "{tokens}×{CONNS}×{keys}, {shards} shard(s): {}",
        bounds.words
    )
});

impl Bounded for Bounds {
    type World = World;
    type Happening = Happening;
    type View = Vec<u8>;
    type Label = (Happening, Shown);

    fn first(&self) -> World {
        World::new(self)
    }

    fn happenings(&self, world: &World, all: &mut Vec<Happening>) {
        world.happenings(self, all);
    }

    fn happen(&self, world: &mut World, happening: Happening) -> Judged {
        world.happen(self, happening)
    }

    fn view(&self, world: &World) -> Vec<u8> {
        world.view()
    }

    fn label(happening: &Happening, next: &World) -> Self::Label {
        (*happening, next.seen)
    }

    fn seen(world: &World) -> Shown {
        world.seen
    }
}
