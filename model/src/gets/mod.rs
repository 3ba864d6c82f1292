//! Wins that end with their connections, and gets that wait for a value: a real core, clients that ask, wait and go, and
//! the time, to the end of every interleaving.
//!
//! What a client knows it knows by answers and notices, and of these alone a state is made in which the
//! rules are stated, in other words than the core's; then both are compared.
//!
//! - R1, R2: a win goes to one until it is opened again, and whoever asks while it is open is told.
//! - Z5: a wait and an item that is waited for end on time, and the core has said when, and wants to be called at no
//!   other moment.
//! - Z7: a bound win ends with its connection, and nothing is left of one that has ended, be it as winner or in a line.
//! - Z8: after every call nobody waits where a win is open, a value is there or nothing is; where little is done
//!   in one call, the core says that there is more.
//! - Z9: nobody is told of a win past those who have waited for it.
//! - Z10: who was given a win is told so once; what was given to one who ends is passed on, once and in order of arrival.
//! - Z11: everybody who waits is told exactly once how that has ended.
//! - Z12: nobody waits for ever: while somebody waits, either the winner can end that, whatever it does brings the state nearer
//!   to one in which nobody waits, and so does whoever hears what it was told; or the winner has gone or waits itself, and then
//!   the core has named the moment at which the wait is over.
//!
//! Times count from now, so the states come to an end by themselves.

mod bounds;
mod rules;
mod view;
mod world;

use latchd_harness::alphabet::ReplyKind;

use crate::frame::{Bounded, Judged};

pub use bounds::{ALL, Bounds, Does, Gets, Witness};
use bounds::{ALWAYS_SEEN, SEEN_OF_THREE};
pub use world::World;

/// The most keys.
const KEYS_MAX: usize = 2;

/// What can happen.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(missing_docs)] // The names say it; the numbers are a client's and a key's.
pub enum Happening {
    Open(usize),
    Close(usize),
    Time,
    Pass,
    Tick,
    Get(usize, usize, Gets),
    Hear(usize),
    Set(usize, usize),
    SetExpiring(usize, usize),
    Mark(usize, usize),
    Delete(usize, usize),
    Touch(usize, usize),
    Lock(usize, usize),
    Release(usize, usize),
    UnlockAll(usize),
    Flush,
    FlushLater,
}

/// Everything that can happen to a world.
fn happenings(bounds: &Bounds, world: &World, happenings: &mut Vec<Happening>) {
    happenings.push(Happening::Time);
    if world.is_due() {
        happenings.push(Happening::Pass);
    }
    for does in bounds.does {
        match does {
            Does::Flush => happenings.push(Happening::Flush),
            Does::FlushLater => happenings.push(Happening::FlushLater),
            Does::Tick => happenings.push(Happening::Tick),
            Does::Set
            | Does::SetExpiring
            | Does::Mark
            | Does::Delete
            | Does::Touch
            | Does::Lock
            | Does::Release
            | Does::UnlockAll => {}
        }
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
        if bounds.does.contains(&Does::UnlockAll) {
            happenings.push(Happening::UnlockAll(client));
        }
        for key in 0..bounds.keys {
            let gets = bounds.gets.iter();
            happenings.extend(gets.map(|gets| Happening::Get(client, key, *gets)));
            happenings.extend(
                bounds
                    .does
                    .iter()
                    .filter_map(|does| of_key(*does, client, key)),
            );
        }
    }
}

/// What a client does to a key; `None` if it is not about one.
const fn of_key(does: Does, client: usize, key: usize) -> Option<Happening> {
    Some(match does {
        Does::Set => Happening::Set(client, key),
        Does::SetExpiring => Happening::SetExpiring(client, key),
        Does::Mark => Happening::Mark(client, key),
        Does::Delete => Happening::Delete(client, key),
        Does::Touch => Happening::Touch(client, key),
        Does::Lock => Happening::Lock(client, key),
        Does::Release => Happening::Release(client, key),
        Does::UnlockAll | Does::Flush | Does::FlushLater | Does::Tick => return None,
    })
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
        happenings(self, world, all);
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
            Happening::Get(_, key, gets) => Happening::Get(0, key, gets),
            Happening::Hear(_) => Happening::Hear(0),
            Happening::Set(_, key) => Happening::Set(0, key),
            Happening::SetExpiring(_, key) => Happening::SetExpiring(0, key),
            Happening::Mark(_, key) => Happening::Mark(0, key),
            Happening::Delete(_, key) => Happening::Delete(0, key),
            Happening::Touch(_, key) => Happening::Touch(0, key),
            Happening::Lock(_, key) => Happening::Lock(0, key),
            Happening::Release(_, key) => Happening::Release(0, key),
            Happening::UnlockAll(_) => Happening::UnlockAll(0),
            of_nobody @ (Happening::Time
            | Happening::Pass
            | Happening::Tick
            | Happening::Flush
            | Happening::FlushLater) => of_nobody,
        }
    }

    fn answered(world: &World) -> Option<ReplyKind> {
        world.answered
    }

    fn seen(world: &World) -> u32 {
        world.seen
    }

    fn must_see(&self) -> Vec<(u32, String)> {
        let of_three = if self.clients > 2 { SEEN_OF_THREE } else { &[] };
        let all = self.witnesses.iter().chain(ALWAYS_SEEN).chain(of_three);
        all.map(|witness| (witness.bit(), format!("{witness:?}")))
            .collect()
    }
}
