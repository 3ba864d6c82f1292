//! Locks on latchd: two real clients, a real server, and a network that delays, loses and cuts.
//!
//! Both clients are the real [`Grants`](latchd_client_core::Grants). The server is the real core behind the real
//! [`Connection`](latchd_protocol::connection::Connection), and they exchange bytes. Bytes of one connection keep their order,
//! and each may take any time. A connection breaks on one side first: the server may execute a request that its client
//! has given up, and a client may go on with a connection that the server has closed. The network serves the first client
//! at once ([`Bounds::is_slow`]), and the second one's clock runs one percent slow. An operator may release a lock, and
//! another process may end a session by its token.
//!
//! - N1: At most one client believes at a time, each by its own clock. A client whose lock or session others have ended
//!   is wrong until it is told. So is one without a session whose connection the server has closed.
//! - N2: If a client believes, the grant on the server is its own.
//! - N3: A client is told of a loss only if its belief is over, or the grant is not its own any more. A lock that the client
//!   has released is not reported as lost, unless its session has ended before it was told: then it cannot know.
//! - N4: A client that does not believe any more was told.
//! - N5: Once the network is quiet, each grant belongs to a client that believes in it. Once all clients have released, the
//!   server has no lock, no session and no waiter.
//!
//! Time ends after [`Bounds::steps`] steps, so the search ends. What follows is quiet, and judged by N5.

mod client;
mod judge;
mod names;
mod view;
mod world;

use std::time::Duration;

use latchd_client_core::LeaseTerms;

use crate::frame::{Bounded, Judged, Shown, named, witnesses};

pub use world::World;

/// Milliseconds in a step of time. After three of them a session of a second is over, but not by the slow clock.
const STEP_MS: u64 = 335;

/// The bounds of a world.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// Steps of time.
    pub steps: u64,
    /// Whether bytes to and from each client may take any time, and its connection may break.
    pub is_slow: [bool; 2],
    /// Whether the locks are in a session, and not on a connection.
    pub in_session: bool,
    /// How long a request waits in the queue; 0 does not wait.
    pub wait_steps: u64,
    /// The locks' own time.
    pub lease: Option<LeaseTerms>,
    /// The obtains that each client may begin.
    pub obtains: u8,
    /// Connections that may break at the client first, in total.
    pub breaks: u8,
    /// Connections that may break at the server first, in total.
    pub cuts: u8,
    /// Obtains and locks that may be dropped, in total.
    pub drops: u8,
    /// Locks and sessions that others may end, in total.
    pub revokes: u8,
    /// States and transitions, as of the last intended change of model, client or core.
    pub pinned: (usize, usize),
}

/// Two clients in sessions, and a network; the others differ from it.
const CUT: Bounds = Bounds {
    name: "grants-cut",
    steps: 4,
    is_slow: [false, true],
    in_session: true,
    wait_steps: 0,
    lease: None,
    obtains: 1,
    breaks: 1,
    cuts: 1,
    drops: 0,
    revokes: 0,
    pinned: (243_895, 486_022),
};

/// The models that are checked.
pub const ALL: &[Bounds] = &[
    CUT,
    Bounds {
        name: "grants-wait",
        wait_steps: 3,
        cuts: 0,
        drops: 1,
        pinned: (344_079, 669_425),
        ..CUT
    },
    Bounds {
        name: "grants-revoked",
        steps: 3,
        cuts: 0,
        revokes: 1,
        pinned: (103_936, 203_786),
        ..CUT
    },
    Bounds {
        name: "grants-leased",
        lease: Some(LeaseTerms {
            ttl: Duration::from_millis(2 * STEP_MS),
            renews: true,
            hold_max: Some(Duration::from_millis(3 * STEP_MS)),
        }),
        wait_steps: 1,
        cuts: 0,
        pinned: (213_219, 392_308),
        ..CUT
    },
    Bounds {
        name: "grants-twice",
        steps: 3,
        breaks: 0,
        obtains: 2,
        cuts: 0,
        pinned: (64_712, 122_564),
        ..CUT
    },
    Bounds {
        name: "grants-bound",
        in_session: false,
        wait_steps: 2,
        drops: 1,
        pinned: (95_933, 327_030),
        ..CUT
    },
];

/// The events.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Happening {
    /// A step of time passes, and the server and each client do their due work.
    Time,
    /// A client begins to obtain.
    Obtain(usize),
    /// A client releases.
    Release(usize),
    /// A client drops its obtain or its lock.
    Drop(usize),
    /// The server gets what a client has sent.
    Serve(usize),
    /// A client gets what the server has sent, and the end of the connection behind it.
    Hear(usize),
    /// A client notices that its connection is broken. What it has sent is still on the way.
    Break(usize),
    /// The server notices that a client's connection is broken.
    Cut(usize),
    /// The server gets what was sent on a connection that its client has left, and its end.
    ServeLate(usize),
    /// The server gets the end of such a connection alone.
    LoseLate(usize),
    /// An operator releases the lock of this client.
    Revoke(usize),
    /// Another process ends the session of this client by its token.
    EndSession(usize),
}

witnesses! {
    &'static str, Bounds;
    HandedOver of "N1", "the lock changes hands", |_| true;
    WaitedFor of "N1", "a client has waited for the lock, and has it", |b| b.wait_steps > 0;
    WaitedLong of "N1", "a client has waited for the lock longer than its session lasts without a sign of life", |b| b.in_session && b.wait_steps > 2;
    Retried of "N2", "a client whose request was lost with its connection has the lock by another one", |b| b.breaks > 0;
    LateGrant of "N2", "a request that was given up is granted", |b| b.breaks > 0;
    Resumed of "N2", "a client resumes its session on another connection, and still has its lock", |b| b.in_session && b.breaks > 0;
    Expired of "N4", "a client is told that its time is over", |b| b.in_session;
    Capped of "N4", "a client is told that it has held the lock as long as it may", |b| b.lease.is_some();
    Taken of "N4", "a client is told that the server has given its lock away", |b| b.revokes > 0;
    Broken of "N4", "a client is told that its connection and so its lock is lost", |b| !b.in_session;
    ReleasedLate of "N3", "a lost reply to a release turns out to be that the lock is released", |b| b.in_session && b.breaks > 0;
    Overlap of "N1", "two clients believe, and the connection of one is closed on the server's side", |b| !b.in_session;
    Dropped of "N5", "an obtain is dropped while its request is under way", |b| b.drops > 0;
}

named!(Bounds, |bounds| format!("{bounds:?}"));

impl Bounded for Bounds {
    type World = World;
    type Happening = Happening;
    type View = u64;
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

    fn probe(&self, world: &World) -> Result<Shown, String> {
        if world.is_at_end(self) {
            world.clone().becomes_quiet(self)?;
        }
        Ok(Shown::default())
    }

    fn view(&self, world: &World) -> u64 {
        world.view()
    }

    fn label(happening: &Happening, next: &World) -> Self::Label {
        (*happening, next.seen)
    }

    fn seen(world: &World) -> Shown {
        world.seen
    }
}
