//! What of a world can matter to what comes, the same for worlds that differ in names alone: the least
//! over all orders of the clients.

use latchd_core::ConnId;
use latchd_core::engine::{Core, Holding, Taken, View};
use latchd_core::key::Key;
use latchd_core::wait::Outcome;

use super::world::{Client, Parked, World};
use super::{Bounds, CLIENTS_MAX};

/// Who has gone.
const GONE: u8 = 0xfe;

/// No such thing.
const NONE: u8 = 0xff;

pub(super) fn of(bounds: &Bounds, world: &World) -> Vec<u8> {
    let cores: Vec<View<'_>> = world.cores.iter().map(Core::view).collect();
    let mut least: Option<Vec<u8>> = None;
    let mut names = [0; CLIENTS_MAX];
    for (place, name) in (0..).zip(&mut names) {
        *name = place;
    }
    permute(&mut names, bounds.clients, &mut |names| {
        let view = under(world, &cores, names);
        if least.as_ref().is_none_or(|least| view < *least) {
            least = Some(view);
        }
    });
    least.expect("there is one order")
}

/// Heap's algorithm, over the first so many.
fn permute(names: &mut [u8; CLIENTS_MAX], count: usize, each: &mut impl FnMut([u8; CLIENTS_MAX])) {
    if count <= 1 {
        return each(*names);
    }
    for place in 0..count {
        permute(names, count - 1, each);
        let other = if count.is_multiple_of(2) { place } else { 0 };
        names.swap(other, count - 1);
    }
}

/// Among how many; the models know few numbers.
fn among(among: u32) -> u8 {
    u8::try_from(among).unwrap_or(NONE)
}

fn under(world: &World, cores: &[View<'_>], names: [u8; CLIENTS_MAX]) -> Vec<u8> {
    let now_ms = world.now_ms;
    let mut out = Vec::with_capacity(96);
    let mut by_name = [Client::default(); CLIENTS_MAX];
    for (client, name) in world.clients.iter().zip(&names) {
        by_name[usize::from(*name)] = *client;
    }
    // Who is late is late, however much.
    let left = |until_ms: u64| u8::try_from(until_ms.saturating_sub(now_ms) / 100).unwrap_or(NONE);
    for Client { conn, parked } in by_name {
        let told = |told| match told {
            None => 0,
            Some(Outcome::Granted) => 1,
            Some(Outcome::TimedOut) => 2,
            Some(Outcome::NotFound) => 3,
            Some(Outcome::TooManyLocks) => 4,
        };
        let parked = parked.map_or([NONE; 4], |parked| {
            let Parked {
                key,
                asks,
                until_ms,
                told: said,
            } = parked;
            let until = if said.is_some() { 0 } else { left(until_ms) };
            [
                u8::try_from(key).unwrap_or(NONE),
                asks as u8,
                until,
                told(said),
            ]
        });
        out.push(conn.is_some().into());
        out.extend(parked);
    }
    let name = |conn: ConnId| {
        let client = world.client_of(conn);
        client.map_or(GONE, |client| names[client])
    };
    for (number, line) in world.lines.iter().enumerate() {
        // In the order of the line; who stands in it is said above.
        out.extend(line.iter().map(|client| names[*client]));
        out.push(NONE);
        // A core that was not told the time may not know yet what was given is over.
        for held in &world.held[number] {
            let lease = held.lease_until_ms.map_or(NONE, left);
            out.extend([names[held.client], lease, among(held.among)]);
        }
        out.push(NONE);
    }
    for core in cores {
        let View {
            store,
            shares,
            locks,
            connections,
            ended,
            waits,
            // Nobody gets anything.
            bound_wins: _,
            win_waits: _,
            // Taken after every call.
            notices: _,
            limits: _,
            clock,
            // Nobody asks for one.
            next_cas: _,
            cas_stride: _,
            // Nobody flushes.
            flush_at: _,
        } = core;
        out.push(left(clock.now.as_millis()));
        out.push((clock.now.as_millis() == now_ms).into());
        // Nothing is ever evicted, so their order decides nothing.
        let mut items: Vec<_> = store
            .entries
            .iter()
            .map(|item| item.key.as_bytes())
            .collect();
        items.sort_unstable();
        out.extend(items.concat());
        out.push(NONE);
        let laid_open = |holding: &Holding| {
            let marks = [
                holding.is_over,
                holding.is_expired,
                holding.has_item,
                holding.is_waited,
                holding.is_untold,
                holding.taken == Taken::ForKey,
            ];
            let bits = marks
                .iter()
                .fold(0, |bits, mark| bits << 1 | u8::from(*mark));
            let lease = holding.lease_until.map_or(NONE, |at| left(at.as_millis()));
            let among = among(holding.mode.among());
            [name(holding.owner), bits, lease, among]
        };
        for (key, holding) in locks {
            out.extend(key.as_bytes());
            out.extend(laid_open(holding));
        }
        out.push(NONE);
        for (key, shares) in shares {
            out.extend(key.as_bytes());
            out.extend(shares.iter().flat_map(laid_open));
            out.push(NONE);
        }
        out.push(NONE);
        let mut connections: Vec<_> = connections
            .iter()
            .map(|(conn, keys, _)| (name(*conn), keys))
            .collect();
        connections.sort();
        for (conn, keys) in connections {
            out.push(conn);
            out.extend(keys.iter().flat_map(Key::as_bytes));
        }
        out.push(NONE);
        out.extend(ended.iter().flat_map(Key::as_bytes));
        out.push(NONE);
        for (key, queue) in waits {
            out.extend(key.as_bytes());
            for (conn, waiter) in queue {
                let until = left(waiter.until.as_millis());
                let bits = u8::from(waiter.lease.is_some()) << 1 | u8::from(waiter.needs_item);
                out.extend([name(*conn), until, bits, among(waiter.mode.among())]);
            }
        }
    }
    out
}
