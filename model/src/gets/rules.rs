//! What must hold: of what clients are answered and told, and of the core beside that.

use std::collections::VecDeque;

use latchd_core::item::WinMark;
use latchd_core::reply::{Reply, Win};
use latchd_core::wait::{Notice, Outcome};

use super::world::{Client, Item, Parked, SHORT_S, STEP_MS, TTL_S, WAIT_MS, Won, World, name_of};
use super::{Bounds, Gets, Happening, KEYS_MAX, Witness};
use crate::frame::{Judged, must};

/// What a get is answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Got {
    Hit { win: Win, is_stale: bool },
    Miss,
    Waits,
}

impl Got {
    /// # Errors
    /// It is another answer, and wrong.
    #[allow(clippy::wildcard_enum_match_arm)] // Whatever else it is, it is wrong.
    pub(super) fn of(reply: &Reply<'_>) -> Result<Self, String> {
        match reply {
            Reply::Hit(hit) => Ok(Self::Hit {
                win: hit.win,
                is_stale: hit.stale,
            }),
            Reply::Miss => Ok(Self::Miss),
            Reply::Waits => Ok(Self::Waits),
            _ => Err(format!("Z11: a get is answered {reply:?}")),
        }
    }
}

impl World {
    /// What is over by now is gone.
    pub(super) fn come_to_now(&mut self) {
        if self.flush_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms) {
            self.flush();
        }
        for key in 0..KEYS_MAX {
            let known = &self.keys[key];
            let gone_at_ms = known.item.and_then(|item| item.gone_at_ms);
            if known.holder.is_none() && gone_at_ms.is_some_and(|at_ms| at_ms <= self.now_ms) {
                if !known.line.is_empty() {
                    self.witness(Witness::ExpiresWaited);
                }
                self.set_item(key, None);
            }
        }
    }

    /// A key has another item, or none: whatever win there was is over.
    pub(super) fn set_item(&mut self, key: usize, item: Option<Item>) {
        let known = &mut self.keys[key];
        known.item = item;
        known.win = None;
        known.is_open = false;
    }

    pub(super) fn flush(&mut self) {
        self.flush_at_ms = None;
        for key in 0..KEYS_MAX {
            let known = &mut self.keys[key];
            match (&mut known.item, known.holder) {
                (Some(item), Some(_)) => item.is_flushed = true,
                _ => self.set_item(key, None),
            }
        }
    }

    /// The lock of a key ends, if the client has it: what it has held off happens.
    pub(super) fn let_go(&mut self, client: usize, key: usize) {
        let now_ms = self.now_ms;
        let known = &mut self.keys[key];
        if known.holder != Some(client) {
            return;
        }
        known.holder = None;
        let is_past = |item: Item| item.gone_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if known
            .item
            .is_some_and(|item| item.is_flushed || is_past(item))
        {
            self.set_item(key, None);
        }
    }

    /// Z7.
    pub(super) fn close(&mut self, client: usize) {
        self.clients[client] = Client::default();
        for key in 0..KEYS_MAX {
            let others_wait = self.leave_line(client, key);
            let won = self.keys[key].win.filter(|won| won.client == Some(client));
            let is_held = self.keys[key].holder == Some(client);
            self.let_go(client, key);
            let Some(won) = won else {
                continue;
            };
            if won.is_bound && is_held && others_wait && self.keys[key].item.is_none() {
                self.witness(Witness::MadeBehindLock);
            }
            let known = &mut self.keys[key];
            let (Some(item), Some(out)) = (known.item, &mut known.win) else {
                continue;
            };
            if !won.is_bound {
                out.client = None;
                if others_wait {
                    self.witness(Witness::UnboundGoes);
                }
                continue;
            }
            known.win = None;
            known.is_open = won.is_made && !item.is_stale;
            if item.is_stale {
                self.witness(Witness::ReopenedStale);
            }
            self.witness(match (others_wait, won.is_untold) {
                (true, true) => Witness::GivenToDead,
                (true, false) => Witness::WinnerGoesWaited,
                (false, _) => Witness::WinnerGoes,
            });
        }
    }

    /// Its place in the line is gone. Says whether others stand there.
    fn leave_line(&mut self, client: usize, key: usize) -> bool {
        let line = &mut self.keys[key].line;
        let before = line.len();
        line.retain(|other| *other != client);
        let (has_left, others_wait) = (line.len() < before, !line.is_empty());
        if has_left && others_wait {
            self.witness(Witness::WaiterGoes);
        }
        others_wait
    }

    /// Whether a get would be told to recache the item, if nobody else is.
    fn is_to_recache(&self, key: usize, gets: Gets) -> bool {
        let known = &self.keys[key];
        known.item.is_some_and(|item| {
            let left_ms = item
                .gone_at_ms
                .map(|at_ms| at_ms.saturating_sub(self.now_ms));
            let short_ms = u64::from(SHORT_S) * STEP_MS;
            let is_short = gets.recaches() && left_ms.is_some_and(|left_ms| left_ms < short_ms);
            item.is_stale || known.is_open || is_short
        })
    }

    /// Whether a get makes the item of a key that has none.
    fn makes(&self, client: usize, key: usize, gets: Gets) -> bool {
        gets.makes() && self.may_change(client, key)
    }

    fn win(&mut self, client: usize, key: usize, won: Won) {
        let known = &mut self.keys[key];
        if known.item.is_none() {
            let gone_at_ms = self.now_ms + u64::from(TTL_S) * STEP_MS;
            known.item = Some(Item::new(Some(gone_at_ms)));
        }
        known.is_open = false;
        known.win = Some(Won {
            client: Some(client),
            ..won
        });
    }

    /// Whether a client was given the win of a key and has not heard of it.
    pub(super) fn has_untold(&self, client: usize, key: usize) -> bool {
        let won = self.keys[key].win;
        won.is_some_and(|won| won.client == Some(client) && won.is_untold)
    }

    /// R1, R2, Z9, Z10: what a get is answered, and what comes of that. It may wait if it says so.
    pub(super) fn judge_get(
        &mut self,
        client: usize,
        key: usize,
        (gets, waits): (Gets, bool),
        got: Got,
    ) -> Judged {
        let known = &self.keys[key];
        let is_stale = known.item.is_some_and(|item| item.is_stale);
        let is_made = known.item.is_none() || known.is_open;
        let (is_out, is_there) = (known.win.is_some(), known.item.is_some());
        let has_untold = self.has_untold(client, key);
        let wins = if is_there {
            !is_out && self.is_to_recache(key, gets)
        } else {
            self.makes(client, key, gets)
        };
        let due = match (is_there, is_out) {
            (true, true) if has_untold => Got::Hit {
                win: Win::Won,
                is_stale,
            },
            (true, true) if waits => Got::Waits,
            (true, true) => Got::Hit {
                win: Win::Sent,
                is_stale,
            },
            _ if wins => Got::Hit {
                win: Win::Won,
                is_stale,
            },
            (true, false) => Got::Hit {
                win: Win::None,
                is_stale,
            },
            (false, _) => Got::Miss,
        };
        if got != due {
            let is_won = |got| matches!(got, Got::Hit { win: Win::Won, .. });
            let rule = match (is_won(got), is_won(due)) {
                (true, false) => "R1",
                (false, true) if has_untold => "Z10",
                (false, true) => "R2",
                _ => "Z8",
            };
            return Err(format!(
                "{rule}: a get is answered {got:?}, and not {due:?}"
            ));
        }
        if has_untold {
            let won = self.keys[key].win.as_mut().expect("it is out");
            won.is_untold = false;
            won.is_bound = gets.binds();
            return Ok(());
        }
        if wins {
            let nobody = self.keys[key].line.is_empty();
            must(nobody, "Z9: told of a win past those who wait for it")?;
            let won = Won {
                client: None,
                is_bound: gets.binds(),
                is_made,
                is_untold: false,
            };
            self.win(client, key, won);
        } else if is_out {
            if self.keys[key].win.is_some_and(|won| won.is_untold) {
                self.witness(Witness::NobodyPasses);
            }
            if waits {
                self.wait(client, key, gets);
            }
        }
        Ok(())
    }

    fn wait(&mut self, client: usize, key: usize, gets: Gets) {
        let known = &mut self.keys[key];
        known.line.push(client);
        let winner = known.win.and_then(|won| won.client);
        let are_two = known.line.len() > 1;
        if are_two {
            self.witness(Witness::TwoWait);
        }
        let waits_too = winner.and_then(|winner| self.waits_for(winner));
        if winner == Some(client) {
            self.witness(Witness::WaitsForItself);
        } else if let Some(other) = waits_too
            && self.keys[other]
                .win
                .is_some_and(|won| won.client == Some(client))
        {
            self.witness(Witness::Circle);
        }
        self.clients[client].parked = Some(Parked {
            key,
            gets,
            until_ms: self.now_ms + WAIT_MS,
            told: None,
            has_won: false,
        });
    }

    /// The key that a client waits for, and has not been told of.
    fn waits_for(&self, client: usize) -> Option<usize> {
        let parked = self.clients[client].parked?;
        parked.told.is_none().then_some(parked.key)
    }

    /// Whether somebody who waits for a key is to be told something now.
    fn is_unsettled(&self, key: usize) -> bool {
        let known = &self.keys[key];
        let is_over = |client: &usize| {
            let parked = self.clients[*client].parked;
            parked.is_none_or(|parked| parked.until_ms <= self.now_ms)
        };
        let is_out = known.item.is_some() && known.win.is_some();
        !known.line.is_empty() && !is_out || known.line.iter().any(is_over)
    }

    /// Takes in what those are told who have waited, as far as there is a reason for it now.
    pub(super) fn take_in(&mut self, notices: &mut VecDeque<Notice>) -> Judged {
        for key in 0..KEYS_MAX {
            while self.is_unsettled(key) {
                let is_of_key = |notice: &Notice| {
                    let client = self.client_of(notice.conn);
                    client.is_some_and(|client| self.keys[key].line.contains(&client))
                };
                let Some(place) = notices.iter().position(is_of_key) else {
                    break;
                };
                let notice = notices.remove(place).expect("it was there");
                let client = self.client_of(notice.conn).expect("it stands in the line");
                self.tell_one(client, key, notice.outcome)?;
            }
        }
        Ok(())
    }

    /// Z8, Z10, Z11: one who waits is told how that has ended.
    fn tell_one(&mut self, client: usize, key: usize, outcome: Outcome) -> Judged {
        let is_over = |client: usize| {
            let parked: Option<Parked> = self.clients[client].parked;
            parked.is_some_and(|parked| parked.until_ms <= self.now_ms)
        };
        let line = self.keys[key].line.iter();
        let mut before = line.take_while(|other| **other != client);
        // Before it stand those alone whose time is over, and who are told of that.
        let is_first = before.all(|other| is_over(*other));
        let is_over = is_over(client);
        self.keys[key].line.retain(|other| *other != client);
        let parked = self.clients[client].parked.as_mut();
        let parked = parked.filter(|parked| parked.told.is_none());
        let parked = parked.ok_or("Z11: told something twice, or did not wait")?;
        parked.told = Some(outcome);
        let gets = parked.gets;
        if outcome == Outcome::TimedOut {
            self.witness(Witness::TimedOut);
            return must(is_over, "Z11: too late before its time");
        }
        must(!is_over, "Z11: told of what comes when its time is over")?;
        must(is_first, "Z10: told out of turn")?;
        let is_there = self.keys[key].item.is_some();
        let makes = self.makes(client, key, gets);
        match outcome {
            Outcome::NotFound => {
                self.witness(if gets.makes() {
                    Witness::HeldByAnother
                } else {
                    Witness::NotFound
                });
                must(!is_there && !makes, "Z11: told that there is nothing")
            }
            Outcome::Granted => {
                let is_out = self.keys[key].win.is_some();
                must(!is_out, "Z10: told while another has the win")?;
                must(
                    is_there || makes,
                    "Z11: told of something, and there is nothing",
                )?;
                self.grant(client, key, gets);
                Ok(())
            }
            Outcome::TooManyLocks | Outcome::TimedOut => Err("Z11: refused".into()),
        }
    }

    /// One who waits is told of the value, or that the win is its.
    fn grant(&mut self, client: usize, key: usize, gets: Gets) {
        let is_there = self.keys[key].item.is_some();
        if is_there && !self.is_to_recache(key, gets) {
            self.told_values += 1;
            self.witness(Witness::ValueTold);
            if self.told_values > 1 {
                self.witness(Witness::ToldTogether);
            }
            return;
        }
        self.witness(if is_there {
            Witness::WonInTurn
        } else {
            Witness::MadeInTurn
        });
        if !self.keys[key].line.is_empty() {
            self.witness(Witness::OneOfTwo);
        }
        if let Some(parked) = &mut self.clients[client].parked {
            parked.has_won = true;
        }
        let won = Won {
            client: None,
            // As long as it has not heard of it at any rate.
            is_bound: true,
            is_made: !is_there || self.keys[key].is_open,
            is_untold: true,
        };
        self.win(client, key, won);
    }

    /// What must hold in every state.
    pub(super) fn judge(&self, bounds: &Bounds, happening: Happening) -> Judged {
        self.core.check();
        for key in 0..bounds.keys {
            self.judge_line(key)?;
            // Unless nobody has told it the time: what is over is still to end.
            if self.core.clock().now == self.now() {
                self.judge_key(bounds, key, happening)?;
            }
        }
        self.judge_deadline(bounds)?;
        self.leads_to_answers(bounds)
    }

    /// Z7: who waits is who was answered so, and no one who has gone.
    fn judge_line(&self, key: usize) -> Judged {
        let queue = self.core.win_waits().queue(name_of(key));
        let queue = queue.map(|(conn, waiter)| (self.client_of(conn), waiter.until.as_millis()));
        let due = self.keys[key].line.iter().map(|client| {
            let parked = self.clients[*client].parked;
            (Some(*client), parked.map_or(0, |parked| parked.until_ms))
        });
        must(queue.eq(due), "Z7: the line is another one")
    }

    fn judge_key(&self, bounds: &Bounds, key: usize, happening: Happening) -> Judged {
        let known = &self.keys[key];
        let has_more = self.is_due() && !bounds.settles_together();
        must(
            has_more || !self.is_unsettled(key),
            "Z8: somebody waits for what is there",
        )?;
        let seen = self.core.peek(name_of(key)).map(|(header, _)| header);
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
            must(
                header.win == mark,
                "R1: the win is out, or open, and wrongly",
            )?;
            must(header.stale == item.is_stale, "E6: it is stale, or not")?;
        }
        let bound = self.core.bound_wins().get(name_of(key));
        let due = known.win.filter(|won| won.is_bound);
        let Some(due) = due else {
            // Of an item that has gone unseen something may be noted until a tick comes by.
            let is_forgotten = known.item.is_none() && happening != Happening::Tick;
            let has_left = bound.is_some() && !is_forgotten;
            return must(!has_left, "Z7: a win is noted that is over");
        };
        let bound = bound.ok_or("Z7: a bound win is noted nowhere")?;
        let is_it = self.client_of(bound.winner) == due.client
            && bound.is_untold == due.is_untold
            && bound.is_made == due.is_made;
        must(is_it, "Z7: a win is bound to another, or otherwise")
    }

    /// Z5: when the core wants to be called.
    fn judge_deadline(&self, bounds: &Bounds) -> Judged {
        let next = self.core.next_deadline();
        if !bounds.settles_together() && self.is_due() {
            let nobody_waits = self.keys.iter().all(|known| known.line.is_empty());
            return must(!nobody_waits, "Z5: there is more to do, and nobody waits");
        }
        let waiting = self.keys.iter().filter(|known| !known.line.is_empty());
        let ends = waiting.filter(|known| known.holder.is_none());
        let ends = ends.filter_map(|known| known.item?.gone_at_ms);
        let parked = self.clients.iter().filter_map(|client| client.parked);
        let untold = parked.filter(|parked| parked.told.is_none());
        let due = untold.map(|parked| parked.until_ms).chain(ends).min();
        must(
            next.map(latchd_core::Instant::as_millis) == due,
            "Z5: the core wants to be called at another moment",
        )
    }

    /// How far it is to where nobody waits: what winners do, and who hears, bring every state nearer.
    pub(super) fn distance(&self) -> usize {
        let parked = self.clients.iter().filter_map(|client| client.parked);
        parked
            .map(|parked| if parked.told.is_some() { 1 } else { 2 })
            .sum()
    }

    /// Whether a winner for whose item somebody else waits closes or opens its win, or somebody hears what has become of
    /// its wait.
    #[allow(clippy::wildcard_enum_match_arm)] // What else can happen leads nowhere of itself.
    pub(super) fn leads_on(&self, happening: Happening) -> bool {
        let is_waited = |client: usize, key: usize| {
            let known = &self.keys[key];
            let is_its = known.win.is_some_and(|won| won.client == Some(client));
            is_its && known.line.iter().any(|other| *other != client)
        };
        let is_bound = |key: usize| self.keys[key].win.is_some_and(|won| won.is_bound);
        match happening {
            Happening::Hear(_) => true,
            Happening::Close(client) => {
                (0..KEYS_MAX).any(|key| is_waited(client, key) && is_bound(key))
            }
            Happening::Set(client, key)
            | Happening::SetExpiring(client, key)
            | Happening::Mark(client, key)
            | Happening::Delete(client, key) => {
                is_waited(client, key) && self.may_change(client, key)
            }
            _ => false,
        }
    }

    /// Z12: of everybody who waits, one whom it waits for can do something, unless that one waits for itself, or has
    /// gone, or may not; then it is time that ends it, and Z5 holds.
    fn leads_to_answers(&self, bounds: &Bounds) -> Judged {
        let mut happenings = Vec::new();
        super::happenings(bounds, self, &mut happenings);
        let leads_on = |client: usize| {
            let is_its = |happening: &&Happening| happening.client() == Some(client);
            let mut its = happenings.iter().filter(is_its);
            its.any(|happening| self.leads_on(*happening))
        };
        for client in 0..bounds.clients {
            if let Some(last) = self.last_waited(client) {
                must(leads_on(last), "Z12: a winner can end no wait")?;
            }
        }
        Ok(())
    }

    /// Whom a client waits for in the end, one winner after the other: the first who does not wait itself; `None` if it does
    /// not wait, and if time alone can help.
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

impl Happening {
    /// Who does it, if it is a client.
    const fn client(self) -> Option<usize> {
        match self {
            Self::Open(client)
            | Self::Close(client)
            | Self::Get(client, _, _)
            | Self::Hear(client)
            | Self::Set(client, _)
            | Self::SetExpiring(client, _)
            | Self::Mark(client, _)
            | Self::Delete(client, _)
            | Self::Touch(client, _)
            | Self::Lock(client, _)
            | Self::Release(client, _)
            | Self::UnlockAll(client) => Some(client),
            Self::Time | Self::Pass | Self::Tick | Self::Flush | Self::FlushLater => None,
        }
    }
}
