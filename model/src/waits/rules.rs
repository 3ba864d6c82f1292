//! What must hold: of what clients are answered and told, and of the cores beside that.

use std::iter;

use latchd_core::wait::{Notice, Outcome};

use super::world::{Client, Held, Judged, LEASE_MS, Parked, World, key, must};
use super::{Asks, Bounds, CLIENTS_MAX, Happening, Witness};

impl World {
    /// A client was answered that it holds a lock.
    pub(super) fn given(&mut self, client: usize, key: usize, asks: Asks, fence: u64) -> Judged {
        let lease_until_ms = asks.is_leased().then_some(self.now_ms + LEASE_MS);
        let Some(held) = &mut self.held[key] else {
            let nobody = self.lines[key].is_empty();
            must(
                nobody,
                "Q7: given to one who has not waited, past those who have",
            )?;
            return self.grant(client, key, asks, fence);
        };
        must(held.client == client, "L1: two hold a lock")?;
        must(held.fence == fence, "L12: a renewal is another grant")?;
        if asks.is_leased() {
            held.lease_until_ms = lease_until_ms;
            held.is_of_key = true;
        }
        Ok(())
    }

    fn grant(&mut self, client: usize, key: usize, asks: Asks, fence: u64) -> Judged {
        must(fence > self.fence_last[key], "L12: a fence does not rise")?;
        self.fence_last[key] = fence;
        self.held[key] = Some(Held {
            client,
            fence,
            lease_until_ms: asks.is_leased().then_some(self.now_ms + LEASE_MS),
            is_of_key: asks != Asks::Lock,
        });
        Ok(())
    }

    /// A client was refused a lock because it is held.
    pub(super) fn refused(&mut self, client: usize, key: usize) -> Judged {
        must(
            self.held[key].is_some(),
            "Q6: a lock that is free is refused",
        )?;
        if !self.holds(client, key) && !self.lines[key].is_empty() {
            self.witness(Witness::NobodyBarges);
        }
        Ok(())
    }

    /// Takes in what a core tells those who have waited.
    pub(super) fn take_notices(&mut self, shard: usize) -> Judged {
        let core = &mut self.cores[shard];
        let notices: Vec<Notice> = iter::from_fn(|| core.next_notice()).collect();
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
                    must(
                        self.held[key].is_none(),
                        "L1: given while somebody holds it",
                    )?;
                    let lock = self.cores[shard].locks().in_force(super::world::key(key));
                    let lock = lock.filter(|lock| lock.owner == conn);
                    let lock = lock.ok_or("Q10: told that it holds a lock, and does not")?;
                    must(
                        has_item || !asks.needs_item(),
                        "L6: given without the item that was asked for",
                    )?;
                    self.grant(client, key, asks, lock.fence.number())?;
                    self.witness(Witness::GivenInTurn);
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
                    must(self.held[key].is_none(), "Q10: refused while it is held")?;
                }
                Outcome::TooManyLocks => return Err("Q10: one lock is too many".into()),
            }
        }
        Ok(())
    }

    /// For whom a client waits.
    pub(super) fn awaited_by(&self, client: usize) -> Option<usize> {
        let parked = self.clients[client].parked?;
        if parked.told.is_some() {
            return None;
        }
        self.held[parked.key].map(|held| held.client)
    }

    /// Whether somebody who waited for this key would come to wait for himself.
    pub(super) fn would_close(&self, client: usize, key: usize) -> bool {
        let mut next = self.held[key].map(|held| held.client);
        for _ in 0..CLIENTS_MAX {
            match next {
                Some(other) if other == client => return true,
                Some(other) => next = self.awaited_by(other),
                None => return false,
            }
        }
        true
    }

    /// What must hold in every state.
    pub(super) fn judge(&self, bounds: &Bounds) -> Judged {
        for number in 0..bounds.keys {
            self.judge_key(bounds, number)?;
        }
        for client in 0..CLIENTS_MAX {
            let is_free = self.clients[client]
                .parked
                .is_none_or(|parked| !self.would_close_waiting(client, parked));
            must(is_free, "Q9: waits for itself")?;
        }
        for core in &self.cores {
            core.check();
        }
        self.leads_to_answers(bounds)
    }

    fn would_close_waiting(&self, client: usize, parked: Parked) -> bool {
        parked.told.is_none() && self.would_close(client, parked.key)
    }

    fn judge_key(&self, bounds: &Bounds, number: usize) -> Judged {
        let core = &self.cores[self.shard_of(number)];
        let (name, line) = (key(number), &self.lines[number]);
        let held = self.held[number];
        let queue = core.waits().queue(name);
        let queue: Vec<_> = queue.map(|(conn, _)| self.client_of(conn)).collect();
        let due: Vec<_> = line.iter().copied().map(Some).collect();
        must(queue == due, "Q2: the line is another one")?;
        let is_now = core.clock().now == self.now();
        if !is_now {
            // Nobody has told it the time: what is over is still to end.
            return Ok(());
        }
        let owner = core.locks().owner(name);
        let holder = held.map(|held| self.clients[held.client].conn);
        must(
            owner == holder.flatten(),
            "L5: who holds a lock is another one",
        )?;
        let next = core.next_deadline();
        let has_more = next.is_some_and(|next| next <= self.now()) && !bounds.settles_together();
        let is_free = held.is_none() && !line.is_empty();
        must(
            !is_free || has_more,
            "Q6: a lock is free, and somebody waits",
        )?;
        for client in line {
            let parked = self.clients[*client].parked;
            let until_ms = parked.map_or(0, |parked| parked.until_ms);
            must(until_ms > self.now_ms || has_more, "Q3: waits too long")?;
            let lease = held.and_then(|held| held.lease_until_ms);
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
