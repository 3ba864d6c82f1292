//! Waiting clients: a real core, clients that request and wait for a lock or for a value, and the time, to the end of every
//! interleaving.
//!
//! A client knows the content of its replies and notices. The expected state is built from these
//! alone, and the rules are stated on it in other words than the core's. Then both are compared.
//!
//! - L1, L5, L6, L12: as in the other models, for locks granted after a wait, and for shares: an
//!   exclusive lock has one holder, and a shared one never more than the least limit among its
//!   holders.
//! - L15: while a key is shared, no client changes or makes its item.
//! - Q2, Q7: a lock is given to the first waiter before its deadline, and to no newcomer past a
//!   waiter.
//! - Q3, Z5: a wait, a lease and an item that a client waits for end on time. The core names the
//!   moment, and no other.
//! - Q6, Z8: after every call no client waits for a lock, win or value that is free. If a call does
//!   only a part of the work, the core says that there is more, and a request finds it done.
//! - Q8: no notice goes to a client that has gone, and no lock to one past its deadline.
//! - Q9: a request is refused as a deadlock if and only if no release by others would ever answer it, over all shards.
//! - Q10, Z11: each waiter gets exactly one notice of how its wait has ended, and then its reply.
//! - Q11: while a client waits for a lock, some client can release one or hear a notice. Each such
//!   step lowers a sum that is 0 only if there are no waiters.
//! - R1, R2: a win goes to one client until it is opened again; the next requester while it is open
//!   gets it.
//! - Z7: a bound win ends with its connection, and nothing is left of a connection that has ended.
//! - Z9: no client is told of a win past the clients that wait for it.
//! - Z10: a winner that has waited gets one notice; if it ends before, the win is passed on once,
//!   in order of arrival.
//! - Z12: while a client waits for a value, the winner it waits for in the end can take a step.
//!   Each such step lowers the same sum. If that winner has gone or waits itself, the core has
//!   named the moment at which the wait ends.
//!
//! Times count from now, so the number of states is finite.

mod bounds;
mod gets;
mod locks;
mod rules;
mod view;
mod word;
mod world;

use std::fmt;

use latchd_harness::alphabet::ReplyKind;

use crate::frame::{Bounded, Judged, Shown, named};

pub use bounds::{ALL, Bounds, Witness};
use word::Scope;
pub use word::Word;
pub use world::World;

/// The most keys.
const KEYS_MAX: usize = 3;

/// The most places of ended locks in a state that is still explored.
const LEFT_OVER_MAX: usize = 5;

/// One step: a word, with the numbers of a client and a key. Both are 0 where it is about none.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(missing_docs)] // The names say it.
pub struct Happening {
    pub word: Word,
    pub client: usize,
    pub key: usize,
}

impl fmt::Debug for Happening {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { word, client, key } = self;
        match word.scope() {
            Scope::World => write!(out, "{word:?}"),
            Scope::Client => write!(out, "{client}: {word:?}"),
            Scope::Item => write!(out, "{client}: {word:?}, key {key}"),
        }
    }
}

named!(Bounds, |bounds| {
    let (clients, keys, shards) = (bounds.clients, bounds.keys, bounds.shards);
    format!("{clients}×{keys}, {shards} shard(s): {}", bounds.words)
});

impl Bounded for Bounds {
    type World = World;
    type Happening = Happening;
    type View = Vec<u8>;
    type Label = (Happening, Option<ReplyKind>, Shown);

    fn first(&self) -> World {
        World::new(self)
    }

    fn happenings(&self, world: &World, all: &mut Vec<Happening>) {
        // If a call releases one lock, ended ones pile up until a tick.
        if world.left_over() <= LEFT_OVER_MAX {
            world.happenings(self, all);
        }
    }

    fn happen(&self, world: &mut World, happening: Happening) -> Judged {
        world.happen(self, happening)
    }

    fn view(&self, world: &World) -> Vec<u8> {
        view::of(self, world)
    }

    fn label(happening: &Happening, next: &World) -> Self::Label {
        // Clients have other names in the other world.
        let by_anybody = Happening {
            client: 0,
            ..*happening
        };
        (by_anybody, next.answered, next.seen)
    }

    fn seen(world: &World) -> Shown {
        world.seen
    }
}
