//! Locks that are waited for: real cores, clients that ask and wait, and the time, to the end of every
//! interleaving.
//!
//! What a client knows it knows by answers and notices, and of these alone a state is made in which the
//! rules are stated, in other words than the core's; then both are compared.
//!
//! - L1, L5, L6, L12: as in the other models, for locks that come by waiting, and for shares, too: none beside one who holds a key
//!   alone, and never more than the least that one of them has asked for.
//! - L15: while a key is shared nobody changes its item, nor makes one.
//! - Q2, Q7: a lock is given to the first in line whose time is not over, and to nobody who has not waited
//!   past one who has.
//! - Q3: a wait and a lease that somebody waits for end on time, and the core has said when.
//! - Q6: after every call no lock could be had that somebody waits for; where little is done in one call, the core says
//!   that there is more, and whoever asks for that lock finds it given.
//! - Q8: nothing is given to one who has gone or whose time is over.
//! - Q9: a request is refused as a deadlock if and only if it would never be answered, whoever gives back what he can, over all cores.
//! - Q10: everybody who waits is told exactly once how that has ended, and then answered.
//! - Q11: whoever waits is answered if those who hold locks give them back: while somebody waits, there is one who can, and
//!   each who gives back or hears what it was told brings the state nearer to one in which nobody waits. (A sum that falls with
//!   each such step: so every way of them ends, and where it ends nobody waits.)
//!
//! Times count from now, so the states come to an end by themselves.

mod asks;
mod bounds;
mod rules;
mod view;
mod world;

use latchd_harness::alphabet::ReplyKind;

use crate::frame::{Bounded, Judged};

pub use bounds::{ALL, Asks, Bounds, Gives, Witness};
use bounds::{ALWAYS_SEEN, SEEN_OF_TIME};
pub use world::World;

/// The most keys.
const KEYS_MAX: usize = 3;

/// With how many places left over by locks that have ended a state is still gone on from.
const LEFT_OVER_MAX: usize = 5;

/// What can happen.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(missing_docs)] // The names say it; the numbers are a client's and a key's.
pub enum Happening {
    Open(usize),
    Close(usize),
    Time,
    Pass,
    Ask(usize, usize, Asks),
    Hear(usize),
    Release(usize, usize),
    Unlock(usize, usize),
    UnlockAll(usize),
    DeleteAndUnlock(usize, usize),
    Delete(usize, usize),
    Set(usize, usize),
}

/// Everything that can happen to a world.
fn happenings(bounds: &Bounds, world: &World, happenings: &mut Vec<Happening>) {
    if bounds.has_time {
        happenings.push(Happening::Time);
    }
    if world.is_due() {
        happenings.push(Happening::Pass);
    }
    for (client, one) in world.clients.iter().enumerate().take(bounds.clients) {
        if one.conn.is_none() {
            happenings.push(Happening::Open(client));
            continue;
        }
        happenings.push(Happening::Close(client));
        if let Some(parked) = one.parked {
            // It asks nothing else.
            if parked.told.is_some() {
                happenings.push(Happening::Hear(client));
            }
            continue;
        }
        if bounds.gives.contains(&Gives::UnlockAll) {
            happenings.push(Happening::UnlockAll(client));
        }
        for key in 0..bounds.keys {
            let asks = bounds.asks.iter();
            happenings.extend(asks.map(|asks| Happening::Ask(client, key, *asks)));
            happenings.push(Happening::Release(client, key));
            for gives in bounds.gives {
                match gives {
                    Gives::Unlock => happenings.push(Happening::Unlock(client, key)),
                    Gives::DeleteAndUnlock => {
                        happenings.push(Happening::DeleteAndUnlock(client, key));
                    }
                    Gives::Items => {
                        happenings.push(Happening::Delete(client, key));
                        happenings.push(Happening::Set(client, key));
                    }
                    Gives::UnlockAll => {}
                }
            }
        }
    }
}

impl Bounded for Bounds {
    type World = World;
    type Happening = Happening;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pinned(&self) -> (usize, usize) {
        self.pinned
    }

    fn first(&self) -> World {
        World::new(self)
    }

    fn happenings(&self, world: &World, all: &mut Vec<Happening>) {
        // Where a call lets go of one lock alone, what is left of ended ones piles up until a tick comes.
        if world.left_over() <= LEFT_OVER_MAX {
            happenings(self, world, all);
        }
    }

    fn happen(&self, world: &mut World, happening: Happening) -> Judged {
        world.happen(self, happening)
    }

    fn view(&self, world: &World) -> Vec<u8> {
        view::of(self, world)
    }

    fn by_anybody(happening: Happening) -> Happening {
        match happening {
            Happening::Open(_) => Happening::Open(0),
            Happening::Close(_) => Happening::Close(0),
            Happening::Time => Happening::Time,
            Happening::Pass => Happening::Pass,
            Happening::Ask(_, key, asks) => Happening::Ask(0, key, asks),
            Happening::Hear(_) => Happening::Hear(0),
            Happening::Release(_, key) => Happening::Release(0, key),
            Happening::Unlock(_, key) => Happening::Unlock(0, key),
            Happening::UnlockAll(_) => Happening::UnlockAll(0),
            Happening::DeleteAndUnlock(_, key) => Happening::DeleteAndUnlock(0, key),
            Happening::Delete(_, key) => Happening::Delete(0, key),
            Happening::Set(_, key) => Happening::Set(0, key),
        }
    }

    fn answered(world: &World) -> Option<ReplyKind> {
        world.answered
    }

    fn seen(world: &World) -> u32 {
        world.seen
    }

    fn must_see(&self) -> Vec<(u32, String)> {
        let of_time = if self.has_time { SEEN_OF_TIME } else { &[] };
        let all = self.witnesses.iter().chain(ALWAYS_SEEN).chain(of_time);
        all.map(|witness| (witness.bit(), format!("{witness:?}")))
            .collect()
    }
}
