//! Wins that end with their winners, and gets that wait.
//!
//! An item knows everything of its win. All waiting gets of a key stand in one queue. Whenever an
//! item may have changed, the answer to the first waiting get is tried anew.

use latchd_core::Owner;
use latchd_protocol::command::{Get, NewCas, TtlSteps};
use latchd_protocol::key::KeyForm;
use latchd_protocol::reply::Refusal;
use latchd_protocol::time::Exptime;
use latchd_protocol::wait::{Notice, Outcome};

use super::tables::TableEntry;
use super::{Oracle, OwnedReply};

/// The winner, if its win ends with its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Winner {
    /// The winner's connection.
    pub conn: Owner,
    /// The get has made the item for its win.
    pub made: bool,
    /// It has waited for the win, and has not sent a request since.
    pub is_unheard: bool,
    /// The win stays bound after the winner's next request.
    pub stays: bool,
}

/// A get that waits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Getting {
    /// The connection of the waiting get.
    pub conn: Owner,
    /// The key of the item.
    pub key: Vec<u8>,
    /// Its deadline.
    pub until_ms: u64,
    steps: TtlSteps,
    key_form: KeyForm,
    new_cas: NewCas,
    bump: bool,
    bound_to_owner: bool,
}

impl Oracle {
    /// The gets that wait for a key, the first to come first.
    pub fn gets(&self, key: &[u8]) -> impl Iterator<Item = &Getting> {
        self.gets.iter().filter(move |getting| getting.key == key)
    }

    /// The next moment at which a wait ends, or an item expires.
    pub(super) fn next_get_ms(&self) -> Option<u64> {
        let of_get = |getting: &Getting| {
            let is_held = self.locks.contains_key(&getting.key);
            let item = self.items.get(&getting.key).filter(|_| !is_held);
            let gone_at_ms = item.and_then(|item| item.gone_at_ms);
            gone_at_ms.map_or(getting.until_ms, |at_ms| at_ms.min(getting.until_ms))
        };
        self.gets.iter().map(of_get).min()
    }

    /// A get that waits, since another client has the win.
    pub(super) fn wait(&mut self, conn: Owner, get: &Get<'_>) -> OwnedReply {
        if !self.open.contains(&conn) {
            return OwnedReply::Refused(Refusal::ConnectionClosed);
        }
        if conn.is_session() {
            self.leave_all(conn);
        }
        if !self.may_be_bound(conn, TableEntry::Get, get.key.as_bytes()) {
            return OwnedReply::Refused(Refusal::TooManyLocks);
        }
        self.counters.get_waits += 1;
        self.gets.push(Getting {
            conn,
            key: get.key.as_bytes().to_vec(),
            until_ms: self.end_ms(get.wait_ms),
            steps: get.steps,
            key_form: get.key_form,
            new_cas: get.new_cas,
            bump: get.bump,
            bound_to_owner: get.bound_to_owner,
        });
        OwnedReply::Waits
    }

    /// Whether the win of `key` may be bound to `conn`, or waited for by it.
    pub(super) fn may_be_bound(&mut self, conn: Owner, place: TableEntry, key: &[u8]) -> bool {
        !self.has_won_enough(conn) && self.has_room_in_tables(place, key)
    }

    /// Every win that ends with its winner, of items that are gone as well.
    pub(super) fn winners(&self) -> impl Iterator<Item = (&Vec<u8>, Winner)> {
        let winner = |key| self.items.get(key).and_then(|item| item.bound);
        self.with_winners
            .iter()
            .filter_map(move |key| Some((key, winner(key)?)))
    }

    /// Whether as many wins are bound to `conn` as may be.
    fn has_won_enough(&mut self, conn: Owner) -> bool {
        let items = &self.items;
        let has_winner = |key: &Vec<u8>| {
            items
                .get(key)
                .and_then(|item| item.bound.as_ref())
                .is_some()
        };
        self.with_winners.retain(has_winner);
        let wins = self.winners().filter(|(_, winner)| winner.conn == conn);
        let wins = wins.filter(|(key, _)| self.visible(key).is_some());
        let has_enough = wins.count() >= self.limits.bound_wins_per_connection_max;
        self.judged.too_many_wins += u64::from(has_enough);
        has_enough
    }

    /// Gives the item to the gets that wait for a key.
    pub(super) fn serve_gets(&mut self, key: &[u8]) {
        loop {
            let is_won = self.visible(key).is_some_and(|item| item.won);
            let place = self.gets.iter().position(|getting| getting.key == key);
            let Some(place) = place.filter(|_| !is_won) else {
                return;
            };
            let first = self.gets.remove(place);
            let conn = first.conn;
            let outcome = if first.until_ms <= self.now_ms {
                self.counters.get_wait_timeouts += 1;
                Outcome::TimedOut
            } else {
                self.offer(key, &first)
            };
            self.notices.push(Notice {
                owner: conn,
                outcome,
            });
        }
    }

    fn offer(&mut self, key: &[u8], first: &Getting) -> Outcome {
        self.reclaim(key);
        let is_missing = !self.items.contains_key(key);
        let is_shared = self.lock_of(key).is_some_and(|lock| lock.mode.is_shared());
        let holder = self.holder(key);
        let is_others = is_shared || holder.is_some_and(|holder| holder != first.conn);
        if is_missing && (!first.steps.vivifies() || is_others) {
            self.count_get(&first.steps, true, false);
            self.miss(key);
            return Outcome::NotFound;
        }
        if is_missing {
            // If the item is gone at once, it is not kept, and each get makes its own.
            let (gone_at_ms, _, _) = self.walk(None, &first.steps, true);
            if gone_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms) {
                self.version(first.new_cas);
                return Outcome::Granted;
            }
            // The lack of room is the answer to its next request.
            if !self.has_room_for(key, 0) {
                return Outcome::Granted;
            }
            let cas = self.version(first.new_cas);
            let mut item = self.fresh(b"", 0, Exptime::Never, first.key_form, cas);
            item.gone_at_ms = gone_at_ms;
            item.fetched = first.bump;
            self.items.insert(key.to_vec(), item);
        }
        let item = &self.items[key];
        let (_, _, short) = self.walk(item.gone_at_ms, &first.steps, false);
        let item = self.items.get_mut(key).expect("found or made above");
        if is_missing || item.stale || item.open || short {
            item.bound = Some(Winner {
                conn: first.conn,
                made: is_missing || item.open,
                is_unheard: true,
                stays: first.bound_to_owner,
            });
            self.with_winners.insert(key.to_vec());
            (item.won, item.open) = (true, false);
        }
        Outcome::Granted
    }

    /// Ends the gets that have waited long enough, and removes expired items.
    pub(super) fn end_gets(&mut self) {
        let now_ms = self.now_ms;
        let over = self
            .gets
            .extract_if(.., |getting| getting.until_ms <= now_ms);
        for Getting { conn, .. } in over {
            let outcome = Outcome::TimedOut;
            self.notices.push(Notice {
                owner: conn,
                outcome,
            });
            self.counters.get_wait_timeouts += 1;
        }
        let gone = |key: &Vec<u8>| {
            let is_gone = self.visible(key).is_none();
            let at_ms = self.items.get(key).and_then(|item| item.gone_at_ms);
            is_gone.then(|| (at_ms, key.clone()))
        };
        let mut gone: Vec<_> = self.gets.iter().filter_map(|it| gone(&it.key)).collect();
        gone.sort();
        for (_, key) in gone {
            self.serve_gets(&key);
        }
    }

    /// Every item may have expired.
    pub(super) fn serve_all_gets(&mut self) {
        let mut keys: Vec<_> = self.gets.iter().map(|it| it.key.clone()).collect();
        keys.sort();
        for key in keys {
            self.serve_gets(&key);
        }
    }

    /// The connection has ended: its place is gone, its wins are open, and its locks are free.
    pub(super) fn end_wins(&mut self, conn: Owner) {
        let won = self.winners().filter(|(_, winner)| winner.conn == conn);
        let keys: Vec<Vec<u8>> = won.map(|(key, _)| key.clone()).collect();
        for key in keys {
            if self.own(&key, conn).is_some() {
                self.unlock(&key, conn);
                self.counters.lock_died += 1;
            }
            self.reclaim(&key);
            if let Some(item) = self.items.get_mut(&key)
                && let Some(winner) = item.bound.take_if(|winner| winner.conn == conn)
            {
                self.counters.win_reopened += 1;
                item.won = false;
                item.open = winner.made && !item.stale;
            }
            self.serve_gets(&key);
        }
    }
}
