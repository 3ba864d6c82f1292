//! Invariants of a state as a whole: between the clients and the core, and for the case that all
//! clients leave.

use latchd_core::engine::Event;
use latchd_core::{Instant, Owner};
use latchd_harness::alphabet::{ReplyKind, RequestKind as Kind};
use latchd_protocol::command::{Command, Delete, Get, ItemCommand, Removal, Set};
use latchd_protocol::reply::Reply;

use crate::action::{key, name};
use crate::frame::{Judged, Shown};
use crate::invariants::Witness;
use crate::reply_seen::ReplySeen;
use crate::rules::{Cause, demand};
use crate::setup::{CLIENT_KEYS_MAX, Setup};
use crate::snapshot::Snapshot;
use crate::world::World;

/// L1, L4 and L5.
pub(crate) fn check(world: &World, setup: &Setup) -> Judged {
    let clients = || world.clients.iter().take(setup.clients);
    for number in 0..setup.keys {
        let believers = clients().filter(|client| client.holds[number]).count();
        demand!(
            OneBeliever,
            believers <= 1,
            "{believers} clients believe that they hold {}",
            name(number)
        )?;
        let owner = world.snapshot.locks[number].map(|lock| lock.owner);
        let holder = clients().find(|client| client.conn.is_some() && client.conn == owner);
        demand!(
            HolderIsOpen,
            owner.is_none() || holder.is_some(),
            "{owner:?} holds {} and is not connected",
            name(number)
        )?;
        let lock = world.snapshot.locks[number];
        for client in clients().filter(|client| client.holds[number]) {
            let (told, is) = (
                client.lease_until_ms[number],
                lock.and_then(|lock| lock.lease_until_ms),
            );
            demand!(
                BeliefIsTruth,
                told == is,
                "{told:?} ms is the end of the lease as told, and {is:?} in truth"
            )?;
        }
        for client in clients() {
            let owns = client.conn.is_some() && client.conn == owner;
            let (is_sure, conn) = (client.holds[number], client.conn.map_or(0, Owner::number));
            demand!(
                BeliefIsTruth,
                is_sure == owns,
                "{conn} believes {is_sure}, and holds {owns}"
            )?;
        }
    }
    let connected = clients().filter_map(|client| client.conn);
    let expected = connected.clone().count();
    let open = world.snapshot.connections.iter().flatten();
    let is_known = |conn: &&Owner| connected.clone().any(|it| it == **conn);
    let (known, open) = (open.clone().filter(is_known).count(), open.count());
    demand!(
        HolderIsOpen,
        known == open && open == expected,
        "{open} connections are open in the core, {known} of {expected} are clients'"
    )?;
    Ok(())
}

/// The witnesses that a state shows by itself.
pub(crate) fn shown(world: &World) -> Shown {
    let mut shown = Shown::default();
    let held = |number: usize| world.snapshot.locks[number].map(|lock| lock.owner);
    match (held(0), held(1)) {
        (Some(first), Some(second)) if first == second => shown.add(Witness::TwoLocks),
        (Some(_), Some(_)) => shown.add(Witness::TwoHolders),
        (Some(_) | None, None) | (None, Some(_)) => {}
    }
    if held(0).or(held(1)).is_some() {
        shown.add(Witness::CheckedWithLocks);
    }
    if world.ghosts.iter().any(|ghost| ghost.win_out) {
        shown.add(Witness::CheckedWithWin);
    }
    shown
}

/// Whether another client can now have a lock that has ended.
pub(crate) fn handover(
    world: &World,
    cause: &Cause<'_>,
    before: &Snapshot,
    answer: Option<ReplySeen>,
) -> Shown {
    let mut shown = Shown::default();
    let (conn, witness) = match (cause, answer) {
        (Cause::Closed { conn }, _) => (*conn, Witness::HandoverByDeath),
        (Cause::Asked { conn, .. } | Cause::AskedAll { conn, .. }, Some(ReplySeen::Unlocked)) => {
            (*conn, Witness::HandoverByUnlock)
        }
        (Cause::Asked { .. } | Cause::AskedAll { .. } | Cause::Time, _) => return shown,
    };
    for number in 0..CLIENT_KEYS_MAX {
        let lock = before.locks[number].filter(|lock| lock.owner == conn);
        let was_held = lock.is_some() && before.items[number].is_some();
        let mut others = world.clients.iter().filter_map(|client| client.conn);
        let other = others.find(|id| *id != conn);
        if let (true, Some(other)) = (was_held, other) {
            let mut core = world.core.clone();
            let lock = Command::Item(ItemCommand::Lock { key: key(number) });
            let now = Instant::from_millis(world.now_ms);
            if core.execute(now, other, &lock) == Reply::Locked {
                shown.add(witness);
            }
        }
    }
    shown
}

/// L8 and R5: the state after all clients leave now. It stands for "eventually", which no search
/// over a graph with cycles can decide.
pub(crate) fn escape(world: &World, setup: &Setup) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let newcomer = Owner::from_number(world.connections + 1);
    let now = Instant::from_millis(world.now_ms);
    let mut core = world.core.clone();
    for conn in world.clients.iter().filter_map(|client| client.conn) {
        core.handle(now, Event::Closed(conn));
    }
    core.handle(now, Event::Opened(newcomer));
    for number in 0..setup.keys {
        let key = key(number);
        let mut ask = |command: &Command<'_>| ReplyKind::of(&core.execute(now, newcomer, command));
        if setup.asks(Kind::MarkStale) {
            let mark = Delete {
                removal: Removal::MarkStale { exptime: None },
                ..Delete::new(key)
            };
            if ask(&mark.into()) == ReplyKind::Deleted {
                let get = Command::from(Get {
                    recaches: true,
                    ..Get::new(key)
                });
                let (first, second) = (ask(&get), ask(&get));
                let is_won = |kind| matches!(kind, ReplyKind::HitWon | ReplyKind::HitStaleWon);
                demand!(
                    EscapeWin,
                    is_won(first) && !is_won(second),
                    "the first to ask: {first:?}; the second: {second:?}"
                )?;
                if world.ghosts[number].win_out {
                    shown.add(Witness::EscapeOverWin);
                }
            }
        }
        let steps = [
            (Command::from(Set::new(key, b"0000")), ReplyKind::Stored),
            (Command::Item(ItemCommand::Lock { key }), ReplyKind::Locked),
            (Command::from(Delete::new(key)), ReplyKind::Deleted),
        ];
        for (command, wanted) in steps {
            let outcome = ask(&command);
            demand!(
                Escape,
                outcome == wanted,
                "{} is to be {wanted:?} once everybody has gone: {outcome:?}",
                name(number)
            )?;
        }
        if world.snapshot.locks[number].is_some() {
            shown.add(Witness::EscapeOverLock);
        }
    }
    Ok(shown)
}
