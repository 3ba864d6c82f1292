//! The part of a world that matters to later steps, the same for worlds that differ in names alone: the least over all orders
//! of the clients.
//!
//! Of the core it is made by destructuring, without `..`. Each omitted field is omitted by name, with
//! the reason.

use latchd_core::engine::{Holding, LockScope, View};
use latchd_core::{Instant, Owner};
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::time::Deadline;
use latchd_protocol::wait::Outcome;

use super::Bounds;
use super::world::{Client, Known, World};
use crate::frame::{CLIENTS_MAX, least_view};

/// A client that has gone.
const GONE: u8 = 0xfe;

/// No such thing.
const NONE: u8 = 0xff;

pub(super) fn of(bounds: &Bounds, world: &World) -> Vec<u8> {
    let core = world.core.view();
    let clients = world.clients.iter().take(bounds.clients);
    let clients: Vec<_> = clients.map(|one| client(bounds, world, one)).collect();
    let mut sorted = clients.clone();
    sorted.sort_unstable();
    least_view(&clients, |names| {
        let shown = Named { world, names };
        let mut view = Vec::with_capacity(128);
        view.extend(sorted.iter().flatten());
        view.push(shown.left(world.flush_at_ms));
        for known in world.keys.iter().take(bounds.keys) {
            shown.known(known, &mut view);
        }
        shown.core(&core, world.core.next_deadline(), &mut view);
        if !bounds.is_punctual && !bounds.settles_together() {
            shown.order(&core, &mut view);
        }
        view
    })
}

/// A client, without the names of others.
fn client(bounds: &Bounds, world: &World, client: &Client) -> [u8; 5] {
    let is_open = u8::from(client.conn.is_some());
    let Some(parked) = client.parked else {
        return [is_open, NONE, NONE, NONE, NONE];
    };
    let told = match parked.told {
        None => 0,
        Some(Outcome::Granted) => 1,
        Some(Outcome::TimedOut) => 2,
        Some(Outcome::NotFound) => 3,
        Some(Outcome::TooManyLocks) => 4,
    };
    let until_ms = parked.told.is_none().then_some(parked.until_ms);
    [
        is_open,
        number(parked.key),
        number(bounds.words().position(|word| word == parked.word)),
        told << 1 | u8::from(parked.was_given),
        left(world.now_ms, until_ms),
    ]
}

/// A small number.
fn number(number: impl Into<Option<usize>>) -> u8 {
    let number = number.into().and_then(|number| u8::try_from(number).ok());
    number.unwrap_or(NONE)
}

/// How far it is to a moment. Late is late, however much.
fn left(now_ms: u64, until_ms: Option<u64>) -> u8 {
    until_ms.map_or(NONE, |until_ms| {
        u8::try_from(until_ms.saturating_sub(now_ms) / 100).unwrap_or(NONE)
    })
}

/// Among how many. The models know few numbers.
fn max_sharers(max_sharers: u32) -> u8 {
    u8::try_from(max_sharers).unwrap_or(NONE)
}

fn bits(marks: &[bool]) -> u8 {
    let bit = |bits, mark: &bool| bits << 1 | u8::from(*mark);
    marks.iter().fold(0, bit)
}

fn keys(keys: &[Key<'_>], out: &mut Vec<u8>) {
    out.extend(keys.iter().flat_map(Key::as_bytes));
    out.push(NONE);
}

/// A world with these names for its clients.
struct Named<'a> {
    world: &'a World,
    names: [u8; CLIENTS_MAX],
}

impl Named<'_> {
    fn left(&self, until_ms: Option<u64>) -> u8 {
        left(self.world.now_ms, until_ms)
    }

    fn left_until(&self, until: Option<Instant>) -> u8 {
        self.left(until.map(Instant::as_millis))
    }

    fn name(&self, client: Option<usize>) -> u8 {
        client.map_or(GONE, |client| self.names[client])
    }

    fn name_of(&self, conn: Owner) -> u8 {
        self.name(self.world.client_of(conn))
    }

    fn known(&self, known: &Known, out: &mut Vec<u8>) {
        let Known {
            held,
            // Below all that are still to come (L12).
            fence_last: _,
            line,
            item,
            win,
            is_open,
            gets,
        } = known;
        // A core that does not know the time yet may not know that something is over.
        for held in held {
            let lease = self.left(held.lease_until_ms);
            out.extend([
                self.names[held.client],
                lease,
                max_sharers(held.max_sharers),
            ]);
        }
        out.push(NONE);
        if let Some(item) = item {
            out.push(self.left(item.gone_at_ms));
            out.push(bits(&[item.is_stale, item.is_flushed]));
        }
        out.push(NONE);
        if let Some(won) = win {
            out.push(self.name(won.client));
            out.push(bits(&[won.is_bound, won.is_made, won.is_unacknowledged]));
        }
        out.push(NONE);
        // In the order of the queues; the words before say which clients are in them.
        out.extend(line.iter().chain(gets).map(|client| self.names[*client]));
        out.extend([NONE, (*is_open).into()]);
    }

    fn core(&self, core: &View<'_>, next: Option<Instant>, out: &mut Vec<u8>) {
        let View {
            stores,
            shares,
            locks,
            // No request of a model has metadata.
            metadata: _,
            connections,
            handovers,
            ended_shares,
            ended,
            left,
            // No model withholds grants.
            withheld: _,
            waits,
            bound_wins,
            wins_ended,
            win_waits,
            // LockScope after every call.
            notices: _,
            // The same from beginning to end.
            limits: _,
            clock,
            // No client asks for one.
            next_cas: _,
            flush_at,
            // `sessions` has models of its own.
            sessions: _,
        } = core;
        out.push((clock.now == self.world.now()).into());
        // Whether there is more to do, and so whether items are still looked at.
        out.extend([self.left_until(*flush_at), self.left_until(next)]);
        // Nothing is evicted, so the order of items decides nothing.
        let entries = stores.iter().flat_map(|store| &store.entries);
        let mut items: Vec<_> = entries.collect();
        items.sort_unstable_by_key(|item| item.key);
        for item in items {
            out.extend(item.key.as_bytes());
            out.extend(self.header(item.header));
        }
        out.push(NONE);
        for (key, holding) in locks {
            out.extend(key.as_bytes());
            out.extend(self.holding(holding));
        }
        out.push(NONE);
        for (key, shares) in shares {
            out.extend(key.as_bytes());
            out.extend(shares.iter().flat_map(|share| self.holding(share)));
            out.push(NONE);
        }
        out.push(NONE);
        let connections = connections.iter();
        // In the order of the grants: so they are released.
        let connections = connections.map(|(conn, keys)| (self.name_of(*conn), keys));
        let mut connections: Vec<_> = connections.collect();
        connections.sort();
        for (conn, held) in connections {
            out.push(conn);
            out.extend(held.iter().flat_map(Key::as_bytes));
        }
        out.push(NONE);
        keys(handovers, out);
        keys(ended_shares, out);
        keys(ended, out);
        keys(left, out);
        for (key, queue) in waits {
            out.extend(key.as_bytes());
            for (conn, waiter) in queue {
                let until = self.left_until(Some(waiter.until));
                let marks = bits(&[waiter.lease.is_some(), waiter.needs_item]);
                out.extend([
                    self.name_of(*conn),
                    until,
                    marks,
                    max_sharers(waiter.mode.max_sharers()),
                ]);
            }
        }
        out.push(NONE);
        for (key, win) in bound_wins {
            out.extend(key.as_bytes());
            let marks = bits(&[win.is_made, win.is_unacknowledged, win.stays]);
            out.extend([self.name_of(win.winner), marks]);
        }
        out.push(NONE);
        keys(wins_ended, out);
        for (key, queue) in win_waits {
            out.extend(key.as_bytes());
            for (conn, waiter) in queue {
                // The steps are those of the word, which is in the client's part.
                out.extend([self.name_of(*conn), self.left_until(Some(waiter.until))]);
            }
        }
    }

    /// Of leases and waits that are late, the first to be over is settled first, however late it is; of several waits, that
    /// of the first connection.
    fn order(&self, core: &View<'_>, out: &mut Vec<u8>) {
        let locks = core.locks.iter();
        let leases = locks.filter_map(|(key, holding)| Some((holding.lease_until?, *key)));
        let mut leases: Vec<_> = leases.collect();
        leases.sort_unstable_by_key(|(until, key)| (*until, key.as_bytes()));
        out.extend(leases.iter().flat_map(|(_, key)| key.as_bytes()));
        out.push(NONE);
        let waits = core.waits.iter().flat_map(|(_, queue)| queue);
        let mut waits: Vec<_> = waits.map(|(conn, waiter)| (waiter.until, *conn)).collect();
        waits.sort_unstable();
        out.extend(waits.iter().map(|(_, conn)| self.name_of(*conn)));
        out.push(NONE);
        let mut conns: Vec<_> = core.connections.iter().map(|(conn, _)| *conn).collect();
        conns.sort_unstable();
        out.extend(conns.iter().map(|conn| self.name_of(*conn)));
    }

    fn holding(&self, holding: &Holding) -> [u8; 4] {
        let marks = bits(&[
            holding.is_over,
            holding.is_expired,
            holding.has_item,
            holding.is_waited,
            holding.is_unacknowledged,
            holding.flush_pending,
            holding.scope == LockScope::Key,
        ]);
        let lease = self.left_until(holding.lease_until);
        let max_sharers = max_sharers(holding.mode.max_sharers());
        [self.name_of(holding.owner), marks, lease, max_sharers]
    }

    fn header(&self, header: &ItemHeader) -> [u8; 3] {
        let ItemHeader {
            // No client asks for a version, looks at these, or writes a key in two forms.
            cas: _,
            last_access: _,
            client_flags: _,
            key_form: _,
            fetched: _,
            deadline,
            stale,
            win,
            locked,
        } = header;
        let gone_at_ms = deadline.map(|at| Deadline::begins(at).as_millis());
        let win = match win {
            WinMark::None => 0,
            WinMark::Sent => 1,
            WinMark::Open => 2,
        };
        [self.left(gone_at_ms), bits(&[*stale, *locked]), win]
    }
}
