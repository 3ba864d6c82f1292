//! The invariants of notices, and of the core in every state.

use std::collections::VecDeque;

use latchd_core::Instant;
use latchd_protocol::command::{Command, ItemCommand, Wait};
use latchd_protocol::item::WinMark;
use latchd_protocol::wait::{Notice, Outcome};

use super::word::ASKED_WAIT_MS;
use super::world::{Parked, World, name_of};
use super::{Bounds, Happening, KEYS_MAX, Witness};
use crate::frame::{Judged, must};

impl World {
    /// Whether a client does not wait, or waits past its deadline.
    pub(super) fn is_over(&self, client: usize) -> bool {
        let parked = self.clients[client].parked;
        parked.is_none_or(|parked| parked.until_ms <= self.now_ms)
    }

    /// Whether a waiter of a key is due for a notice now.
    fn is_unsettled(&self, key: usize) -> bool {
        let known = &self.keys[key];
        let first = known.line.first().and_then(|first| self.sought_by(*first));
        let is_free = first.is_some_and(|(_, max_sharers)| self.has_room(key, max_sharers));
        let is_out = known.item.is_some() && known.win.is_some();
        let mut waiting = known.line.iter().chain(&known.gets);
        is_free || !known.gets.is_empty() && !is_out || waiting.any(|client| self.is_over(*client))
    }

    /// Accepts notices, as far as there is a reason for them now.
    pub(super) fn take_in(&mut self, notices: &mut VecDeque<Notice>) -> Judged {
        for key in 0..KEYS_MAX {
            while self.is_unsettled(key) {
                let known = &self.keys[key];
                let is_of_key = |notice: &Notice| {
                    let client = self.client_of(notice.owner);
                    client.is_some_and(|it| known.line.contains(&it) || known.gets.contains(&it))
                };
                let Some(place) = notices.iter().position(is_of_key) else {
                    break;
                };
                let Notice {
                    owner: conn,
                    outcome,
                } = notices.remove(place).expect("it was there");
                let client = self.client_of(conn).expect("it stands in the line");
                self.tell_one(client, key, outcome)?;
            }
        }
        Ok(())
    }

    /// Q2, Q8, Q10, Z8, Z10, Z11: a waiter gets a notice of how its wait has ended.
    fn tell_one(&mut self, client: usize, key: usize, outcome: Outcome) -> Judged {
        let parked = self.clients[client].parked;
        let parked = parked.filter(|parked| parked.told.is_none());
        let parked = parked.ok_or("Q10, Z11: told something twice, or did not wait")?;
        let word = parked.word;
        let is_over = self.is_over(client);
        let line = |world: &Self| {
            let known = &world.keys[key];
            if word.is_get() {
                known.gets.clone()
            } else {
                known.line.clone()
            }
        };
        // Only waiters past their deadline stand before it: they get that notice later, or go in
        // this call.
        let before = line(self).into_iter().take_while(|other| *other != client);
        let goes = |client: usize| self.closing == Some(client) || self.is_over(client);
        let is_first = before.into_iter().all(goes);
        self.keys[key].line.retain(|other| *other != client);
        self.keys[key].gets.retain(|other| *other != client);
        let is_there = self.keys[key].item.is_some();
        let mut was_given = false;
        if outcome == Outcome::TimedOut {
            self.seen.add(Witness::TimedOut);
            must(is_over, "Q10, Z11: too late before its time")?;
        } else {
            must(!is_over, "Q8, Z11: given to one whose time is over")?;
            must(is_first, "Q2, Z10: told out of turn")?;
        }
        match outcome {
            Outcome::TimedOut => {}
            Outcome::TooManyLocks => return Err("Q10, Z11: one is too many".into()),
            Outcome::NotFound if word.is_get() => {
                self.seen.add(if word.has("N") {
                    Witness::HeldByAnother
                } else {
                    Witness::NotFound
                });
                let is_nothing = !is_there && !self.makes(client, key, word);
                must(is_nothing, "Z11: told that there is nothing")?;
            }
            Outcome::NotFound => {
                self.seen.add(Witness::NotFound);
                let is_due = word.has("x") && !is_there && self.has_room(key, word.max_sharers());
                must(is_due, "Q10: not found, and held, there, or not asked for")?;
            }
            Outcome::Granted if word.is_get() => {
                let is_out = self.keys[key].win.is_some();
                must(!is_out, "Z10: told while another has the win")?;
                let is_something = is_there || self.makes(client, key, word);
                must(is_something, "Z11: told of something, and there is nothing")?;
                was_given = self.give_value(client, key, word);
            }
            Outcome::Granted => {
                let is_meant = is_there || !word.has("x");
                must(is_meant, "L6: given without the item that was asked for")?;
                let locks = self.core.locks();
                let lock = locks.held_as(name_of(key), self.conn(client));
                let fence = lock.map(|lock| lock.fence.number());
                // In the call that ends its connection it may be given a lock and lose it again.
                if fence.is_some() || self.closing != Some(client) {
                    let fence = fence.ok_or("Q10: told that it holds a lock, and does not")?;
                    self.grant(client, key, word, fence)?;
                    was_given = true;
                    self.seen.add(Witness::GivenInTurn);
                    self.given[key] += 1;
                    if self.given[key] > 1 {
                        self.seen.add(Witness::GivenTogether);
                    }
                }
            }
        }
        if was_given && !line(self).is_empty() {
            self.seen.add(Witness::OneOfTwo);
        }
        self.clients[client].parked = Some(Parked {
            told: Some(outcome),
            was_given,
            ..parked
        });
        Ok(())
    }

    /// A client gets its notice, and repeats its request without the wait.
    pub(super) fn hear(&mut self, client: usize) -> Judged {
        let parked = self.clients[client].parked.take().expect("it has waited");
        let Parked {
            key,
            word,
            was_given,
            ..
        } = parked;
        let told = parked.told.expect("it was told");
        if told == Outcome::NotFound {
            // That is the reply.
            return Ok(());
        }
        self.advance_to();
        let own = self.share(client, key).filter(|_| !word.is_get());
        let has_it = own.is_some() || self.has_untold(client, key);
        self.seen.add(match (was_given, has_it) {
            (true, true) => Witness::HeardInTime,
            (true, false) => Witness::LostBeforeHeard,
            (false, _) => Witness::HeardTooLate,
        });
        if word.is_get() {
            let command = Command::from(word.get(name_of(key)));
            return self.get(client, key, word, command.without_wait());
        }
        let acquire = word.acquire(name_of(key), Wait::UpTo { ms: ASKED_WAIT_MS });
        let command = Command::Item(ItemCommand::Acquire(acquire)).without_wait();
        let Command::Item(ItemCommand::Acquire(acquire)) = command else {
            unreachable!("it stays one");
        };
        self.acquire(client, key, word, acquire, own)
    }

    /// Applies the invariants of every state.
    pub(super) fn judge(&self, bounds: &Bounds, happening: Happening) -> Judged {
        self.core.check();
        for key in 0..KEYS_MAX {
            self.judge_lines(key)?;
            // A core that does not know the time yet still has locks and items that are over.
            if self.core.clock().now == self.now() {
                self.judge_locks(key)?;
                self.judge_item(bounds, key, happening)?;
            }
        }
        self.judge_deadline(bounds)?;
        let all = self.answered(None).iter().all(|answered| *answered);
        must(all, "Q9: waits for itself")?;
        self.leads_to_answers(bounds)
    }

    /// Q2, Z7: each queue of the core has the clients that wait, in order of arrival.
    fn judge_lines(&self, key: usize) -> Judged {
        let (core, name) = (&self.core, name_of(key));
        let due = |line: &[usize]| {
            let of = |client: &usize| {
                let parked = self.clients[*client].parked;
                (Some(*client), parked.map_or(0, |parked| parked.until_ms))
            };
            line.iter().map(of).collect::<Vec<_>>()
        };
        let locks = core.waits().queue(name);
        let locks = locks.map(|(conn, it)| (self.client_of(conn), it.until.as_millis()));
        must(
            locks.eq(due(&self.keys[key].line)),
            "Q2: the line is another one",
        )?;
        let gets = core.win_waits().queue(name);
        let gets = gets.map(|(conn, it)| (self.client_of(conn), it.until.as_millis()));
        must(
            gets.eq(due(&self.keys[key].gets)),
            "Z7: the line is another one",
        )
    }

    fn judge_locks(&self, key: usize) -> Judged {
        let holders = self.core.locks().holders_of(name_of(key));
        let holders = holders.map(|(conn, max_sharers)| (self.client_of(conn), max_sharers));
        let due = self.keys[key].held.iter();
        let due = due.map(|held| (Some(held.client), held.max_sharers));
        must(holders.eq(due), "L5: who holds a lock is another one")
    }

    fn judge_item(&self, bounds: &Bounds, key: usize, happening: Happening) -> Judged {
        let (core, known) = (&self.core, &self.keys[key]);
        let has_more = self.is_due() && !bounds.settles_together();
        must(
            has_more || !self.is_unsettled(key),
            "Q6, Z8: somebody waits for what is there, or too long",
        )?;
        let seen = core.peek(name_of(key)).map(|(header, _)| header);
        must(
            seen.is_some() == known.item.is_some() || has_more,
            "E6: an item is there that should not be, or is not",
        )?;
        if let (Some(header), Some(item)) = (seen, known.item) {
            let mark = match (known.win.is_some(), known.is_open) {
                (true, _) => WinMark::Sent,
                (false, true) => WinMark::Open,
                (false, false) => WinMark::None,
            };
            let is_so = header.win == mark;
            must(is_so, "R1: the win is out, or open, and wrongly")?;
            must(header.stale == item.is_stale, "E6: it is stale, or not")?;
        }
        let bound = core.bound_wins().get(name_of(key));
        let Some(due) = known.win.filter(|won| won.is_bound) else {
            // Until the next tick, notes may exist of an item that has gone unnoticed.
            let is_forgotten = known.item.is_none() && happening.word.verb() != "tick";
            let has_left = bound.is_some() && !is_forgotten;
            return must(!has_left, "Z7: a win is noted that is over");
        };
        let bound = bound.ok_or("Z7: a bound win is noted nowhere")?;
        let is_it = self.client_of(bound.winner) == due.client
            && bound.is_unacknowledged == due.is_unacknowledged
            && bound.is_made == due.is_made;
        must(is_it, "Z7: a win is bound to another, or otherwise")
    }

    /// Q3, Z5: the next deadline of the core.
    fn judge_deadline(&self, bounds: &Bounds) -> Judged {
        let keys = self.keys.iter();
        if !bounds.settles_together() && self.is_due() {
            // A lock may still be on its way to a waiter that has gone.
            let mut keys = keys;
            let waits = !bounds.waits_for_values() || keys.any(|known| !known.gets.is_empty());
            return must(waits, "Z5: there is more to do, and nobody waits");
        }
        let until = |client: &usize| Some(self.clients[*client].parked?.until_ms);
        let due = keys.flat_map(|known| {
            let waits = known.line.iter().chain(&known.gets).filter_map(until);
            let leases = known.held.iter().filter(|_| !known.line.is_empty());
            let leases = leases.filter_map(|held| held.lease_until_ms);
            let is_awaited = !known.gets.is_empty() && known.held.is_empty();
            let item = known.item.filter(|_| is_awaited);
            waits
                .chain(leases)
                .chain(item.and_then(|item| item.gone_at_ms))
        });
        let next = self.core.next_deadline();
        must(
            next.map(Instant::as_millis) == due.min(),
            "Q3, Z5: the core wants to be called at another moment",
        )
    }

    /// The distance to a state without waiters.
    pub(super) fn distance(&self) -> usize {
        let parked = self.clients.iter().filter_map(|client| client.parked);
        let parked = parked.map(|parked| if parked.told.is_some() { 2 } else { 4 });
        let held = self.keys.iter().map(|known| known.held.len());
        held.sum::<usize>() + parked.sum::<usize>()
    }

    /// Whether a step brings a state nearer to one without waiters: a client releases a lock; a
    /// winner closes or opens the win that another client waits for; or a waiter hears its notice.
    pub(super) fn leads_on(&self, happening: Happening) -> bool {
        let Happening { word, client, key } = happening;
        let is_waited = |key: usize| {
            let known = &self.keys[key];
            let won = known.win.filter(|won| won.client == Some(client));
            won.filter(|_| known.gets.iter().any(|other| *other != client))
        };
        match word.verb() {
            "hear" => true,
            "mu" => self.share(client, key).is_some(),
            "close" => (0..KEYS_MAX).any(|key| is_waited(key).is_some_and(|won| won.is_bound)),
            "ms" | "md" => is_waited(key).is_some() && self.may_change(client, key),
            _ => false,
        }
    }

    /// Q11, Z12: while a client waits, another can take a step that leads on, or the core has named
    /// the deadline of the wait.
    fn leads_to_answers(&self, bounds: &Bounds) -> Judged {
        if self.clients.iter().all(|client| client.parked.is_none()) {
            return Ok(());
        }
        let mut all = Vec::new();
        self.happenings(bounds, &mut all);
        let leads_on = all.iter().filter(|happening| self.leads_on(**happening));
        let able: Vec<usize> = leads_on.map(|happening| happening.client).collect();
        let waits = (0..bounds.clients).any(|client| self.sought_by(client).is_some());
        let is_ended = !waits || !able.is_empty() || self.is_due();
        must(is_ended, "Q11: nobody can end a wait but time")?;
        let mut lasts = (0..bounds.clients).filter_map(|client| self.last_waited(client));
        must(
            lasts.all(|last| able.contains(&last)),
            "Z12: a winner can end no wait",
        )
    }

    /// The client that a client waits for in the end, one winner after the other: the first that
    /// does not wait itself; `None` if only time can help.
    fn last_waited(&self, client: usize) -> Option<usize> {
        let mut waiting = client;
        for _ in 0..self.clients.len() {
            let key = self.waits_for(waiting)?;
            let winner = self.keys[key].win?.client?;
            if self.waits_for(winner).is_none() {
                let can_hear = self.clients[winner].parked.is_some();
                return (can_hear || self.may_change(winner, key)).then_some(winner);
            }
            waiting = winner;
        }
        None
    }
}
