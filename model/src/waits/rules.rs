//! What must hold: of what clients are answered and told, and of the cores beside that.

use std::iter;

use latchd_core::wait::{Notice, Outcome};

use super::world::{Client, Held, LEASE_MS, Parked, World, key};
use super::{Asks, Bounds, Happening, KEYS_MAX, Witness};
use crate::frame::{CLIENTS_MAX, Judged, must};

impl World {
    /// A client was answered that it holds a lock.
    pub(super) fn given(&mut self, client: usize, key: usize, asks: Asks, fence: u64) -> Judged {
        let lease_until_ms = asks.is_leased().then_some(self.now_ms + LEASE_MS);
        let mut shares = self.held[key].iter_mut();
        let Some(held) = shares.find(|held| held.client == client) else {
            let nobody = self.lines[key].is_empty();
            must(
                nobody,
                "Q7: given to one who has not waited, past those who have",
            )?;
            return self.grant(client, key, asks, fence);
        };
        must(held.fence == fence, "L12: a renewal is another grant")?;
        if asks.is_leased() {
            held.lease_until_ms = lease_until_ms;
            held.is_of_key = true;
        }
        Ok(())
    }

    fn grant(&mut self, client: usize, key: usize, asks: Asks, fence: u64) -> Judged {
        must(fence > self.fence_last[key], "L12: a fence does not rise")?;
        must(
            self.has_room(key, asks.among()),
            "L1: two hold a lock, or more than may share it",
        )?;
        self.fence_last[key] = fence;
        self.held[key].push(Held {
            client,
            fence,
            lease_until_ms: asks.is_leased().then_some(self.now_ms + LEASE_MS),
            is_of_key: asks != Asks::Lock,
            among: asks.among(),
        });
        if self.held[key].len() > 1 {
            self.witness(Witness::TwoShare);
        }
        Ok(())
    }

    /// A client was refused a lock because it is held.
    pub(super) fn refused(&mut self, client: usize, key: usize, asks: Asks) -> Judged {
        if self.holds(client, key) {
            return Ok(());
        }
        let has_room = self.has_room(key, asks.among());
        let is_waited = !self.lines[key].is_empty();
        must(
            is_waited || !has_room,
            "Q6: a lock that could be had is refused",
        )?;
        if is_waited {
            self.witness(Witness::NobodyBarges);
            if has_room {
                self.witness(Witness::ShareBehind);
            }
        } else if self.held[key].len() > 1 && asks.mode().is_shared() {
            self.witness(Witness::ShareIsFull);
        }
        Ok(())
    }

    /// Whether one who has no part in a key could be given it, among so many, by those who hold it now.
    pub(super) fn has_room(&self, key: usize, among: u32) -> bool {
        let all = self.held[key].iter().map(|held| held.among);
        let least = all.fold(among, u32::min);
        self.held[key].len() < least as usize
    }

    /// Takes in what a core tells those who have waited.
    pub(super) fn take_notices(&mut self, shard: usize) -> Judged {
        let core = &mut self.cores[shard];
        let notices: Vec<Notice> = iter::from_fn(|| core.next_notice()).collect();
        let mut given = [0; KEYS_MAX];
        for Notice { conn, outcome } in notices {
            let Some(client) = self.client_of(conn) else {
                // It may have been told in the call that ends it, before that: then it is nobody's.
                must(
                    self.closing == Some(conn),
                    "Q8: a notice for one who has gone",
                )?;
                self.witness(Witness::ToldInItsEnd);
                continue;
            };
            let parked = self.clients[client].parked.as_mut();
            let parked = parked.ok_or("Q10: told something, and did not wait")?;
            must(parked.told.is_none(), "Q10: a wait is answered twice")?;
            parked.told = Some(outcome);
            let Parked {
                key,
                asks,
                until_ms,
                ..
            } = *parked;
            must(self.shard_of(key) == shard, "Q10: told by another core")?;
            let is_over = until_ms <= self.now_ms;
            let before = &self.lines[key];
            let place = before.iter().position(|other| *other == client);
            let place = place.ok_or("Q1: told something, and stood in no line")?;
            // Before it stand those alone whose time is over, and who are told of it later.
            let has_item = self.cores[shard].peek(super::world::key(key)).is_some();
            let is_first = before[..place].iter().all(|other| {
                let other = self.clients[*other].parked;
                other.is_some_and(|other| other.until_ms <= self.now_ms)
            });
            self.lines[key].remove(place);
            match outcome {
                Outcome::TimedOut => {
                    must(is_over, "Q10: too late before its time")?;
                    self.witness(Witness::TimedOut);
                }
                Outcome::Granted => {
                    must(!is_over, "Q8: given to one whose time is over")?;
                    must(is_first, "Q2: given out of turn")?;
                    let lock = self.cores[shard].locks();
                    let lock = lock.held_as(super::world::key(key), conn);
                    let lock = lock.ok_or("Q10: told that it holds a lock, and does not")?;
                    must(
                        has_item || !asks.needs_item(),
                        "L6: given without the item that was asked for",
                    )?;
                    self.grant(client, key, asks, lock.fence.number())?;
                    self.witness(Witness::GivenInTurn);
                    given[key] += 1;
                    if given[key] > 1 {
                        self.witness(Witness::GivenTogether);
                    }
                    if !self.lines[key].is_empty() {
                        self.witness(Witness::OneOfTwo);
                    }
                }
                Outcome::NotFound => {
                    must(is_first, "Q2: refused out of turn")?;
                    must(
                        asks.needs_item() && !has_item,
                        "Q10: not found, and not asked for",
                    )?;
                    let has_room = self.has_room(key, asks.among());
                    must(has_room, "Q10: refused while it is held")?;
                }
                Outcome::TooManyLocks => return Err("Q10: one lock is too many".into()),
            }
        }
        Ok(())
    }

    /// What a client waits for, and among how many.
    pub(super) fn sought_by(&self, client: usize) -> Option<(usize, u32)> {
        let parked = self.clients[client].parked?;
        parked
            .told
            .is_none()
            .then(|| (parked.key, parked.asks.among()))
    }

    /// Whether somebody who waited for this key would come to wait for himself.
    pub(super) fn would_close(&self, client: usize, key: usize, asks: Asks) -> bool {
        // One connection holds a key once.
        self.holds(client, key) || !self.answered(Some((client, key, asks.among())))[client]
    }

    /// Who comes to be answered if everybody who does not wait gives back what he has, and then whoever was
    /// answered: also one more who waits, behind all others, for a key and among so many.
    fn answered(&self, more: Option<(usize, usize, u32)>) -> [bool; CLIENTS_MAX] {
        let mut answered = [false; CLIENTS_MAX];
        loop {
            let before = answered;
            for (client, is_answered) in answered.iter_mut().enumerate() {
                let more = more.filter(|(one, ..)| *one == client);
                let sought = more.map(|(_, key, among)| (key, among));
                let Some((key, among)) = sought.or_else(|| self.sought_by(client)) else {
                    *is_answered = true;
                    continue;
                };
                let line = self.lines[key].iter();
                let mut ahead = line.take_while(|other| **other != client);
                let stay = self.held[key].iter().filter(|held| !before[held.client]);
                let least = stay.clone().map(|held| held.among).fold(among, u32::min);
                *is_answered = ahead.all(|other| before[*other]) && stay.count() < least as usize;
            }
            if answered == before {
                return answered;
            }
        }
    }

    /// What must hold in every state.
    pub(super) fn judge(&self, bounds: &Bounds) -> Judged {
        for number in 0..bounds.keys {
            self.judge_key(bounds, number)?;
        }
        let all = self.answered(None).iter().all(|answered| *answered);
        must(all, "Q9: waits for itself")?;
        for core in &self.cores {
            core.check();
        }
        self.leads_to_answers(bounds)
    }

    fn judge_key(&self, bounds: &Bounds, number: usize) -> Judged {
        let core = &self.cores[self.shard_of(number)];
        let (name, line) = (key(number), &self.lines[number]);
        let held = &self.held[number];
        let queue = core.waits().queue(name);
        let queue: Vec<_> = queue.map(|(conn, _)| self.client_of(conn)).collect();
        let due: Vec<_> = line.iter().copied().map(Some).collect();
        must(queue == due, "Q2: the line is another one")?;
        let is_now = core.clock().now == self.now();
        if !is_now {
            // Nobody has told it the time: what is over is still to end.
            return Ok(());
        }
        let holders = core.locks().holders_of(name);
        let holders: Vec<_> = holders
            .map(|(conn, among)| (self.client_of(conn), among))
            .collect();
        let due = held.iter().map(|held| (Some(held.client), held.among));
        let due: Vec<_> = due.collect();
        must(holders == due, "L5: who holds a lock is another one")?;
        let next = core.next_deadline();
        let has_more = next.is_some_and(|next| next <= self.now()) && !bounds.settles_together();
        let first = line.first().and_then(|first| self.sought_by(*first));
        let is_to_be_had = first.is_some_and(|(_, among)| self.has_room(number, among));
        must(
            !is_to_be_had || has_more,
            "Q6: a lock could be had, and somebody waits for it",
        )?;
        for client in line {
            let parked = self.clients[*client].parked;
            let until_ms = parked.map_or(0, |parked| parked.until_ms);
            must(until_ms > self.now_ms || has_more, "Q3: waits too long")?;
            let lease = held.iter().filter_map(|held| held.lease_until_ms).min();
            let due = lease.map_or(until_ms, |lease| lease.min(until_ms));
            let told = next.is_some_and(|next| next.as_millis() <= due);
            must(told, "Q3: nobody is told when a wait ends")?;
        }
        Ok(())
    }

    /// Q11: while somebody waits, there is one who can give back or hear, which leads on.
    fn leads_to_answers(&self, bounds: &Bounds) -> Judged {
        let waits = |client: &&Client| client.parked.is_some();
        if self.clients.iter().filter(waits).count() == 0 {
            return Ok(());
        }
        let mut happenings = Vec::new();
        super::happenings(bounds, self, &mut happenings);
        let leads_on = happenings.iter().any(|happening| self.leads_on(*happening));
        // Or it is over, and a core need only be told.
        must(
            leads_on || self.is_due(),
            "Q11: nobody can end a wait but time",
        )
    }

    /// Whether somebody gives back what it holds, or hears what has become of its wait.
    pub(super) fn leads_on(&self, happening: Happening) -> bool {
        if let Happening::Release(client, key) = happening {
            self.holds(client, key)
        } else {
            matches!(happening, Happening::Hear(_))
        }
    }
}
