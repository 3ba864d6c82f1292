//! Requests for values: which reply is due, and which client has the win then.

use latchd_harness::alphabet::ReplyKind;
use latchd_protocol::command::{Command, ItemCommand};

use super::word::{SHORT_S, STEP_MS, TTL_S};
use super::world::{Item, Won, World};
use super::{Witness, Word};
use crate::frame::{Judged, must};

/// A get's view of a win.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Win {
    None,
    Won,
    Sent,
}

/// The kind of a reply that shows an item.
const fn hit(is_stale: bool, win: Win) -> ReplyKind {
    match (is_stale, win) {
        (false, Win::None) => ReplyKind::Hit,
        (false, Win::Won) => ReplyKind::HitWon,
        (false, Win::Sent) => ReplyKind::HitSent,
        (true, Win::None) => ReplyKind::HitStale,
        (true, Win::Won) => ReplyKind::HitStaleWon,
        (true, Win::Sent) => ReplyKind::HitStaleSent,
    }
}

impl World {
    /// R1, R2, Z9, Z10: the reply to a get, and its effects.
    pub(super) fn get(
        &mut self,
        client: usize,
        key: usize,
        word: Word,
        command: Command<'_>,
    ) -> Judged {
        let waits = matches!(&command, Command::Item(ItemCommand::Get(get)) if get.wait_ms > 0);
        self.ask(client, command, |world, kind, _| {
            world.judge_get(client, key, (word, waits), kind)
        })
    }

    fn judge_get(
        &mut self,
        client: usize,
        key: usize,
        (word, waits): (Word, bool),
        kind: ReplyKind,
    ) -> Judged {
        let known = &self.keys[key];
        let is_stale = known.item.is_some_and(|item| item.is_stale);
        let is_made = known.item.is_none() || known.is_open;
        let (is_out, is_there) = (known.win.is_some(), known.item.is_some());
        let nobody_waits = known.gets.is_empty();
        let has_untold = self.has_untold(client, key);
        let wins = if is_there {
            !is_out && self.is_to_recache(key, word)
        } else {
            self.makes(client, key, word)
        };
        let is_won = is_out && has_untold || wins;
        let due = match (is_there, is_out) {
            _ if is_won => hit(is_stale, Win::Won),
            (true, true) if waits => ReplyKind::Waits,
            (true, true) => hit(is_stale, Win::Sent),
            (true, false) => hit(is_stale, Win::None),
            (false, _) => ReplyKind::Miss,
        };
        if kind != due {
            let is_told = matches!(kind, ReplyKind::HitWon | ReplyKind::HitStaleWon);
            let rule = match (is_told, is_won) {
                (true, false) => "R1",
                (false, true) if has_untold => "Z10",
                (false, true) => "R2",
                _ => "Z8",
            };
            return Err(format!(
                "{rule}: a get is answered {kind:?}, and not {due:?}"
            ));
        }
        if has_untold {
            let won = self.keys[key].win.as_mut().expect("it is out");
            won.is_unacknowledged = false;
            won.is_bound = word.has("B");
        } else if wins {
            must(
                nobody_waits,
                "Z9: told of a win past those that wait for it",
            )?;
            self.win(client, key, word.has("B"), is_made, false);
        } else if is_out {
            if self.keys[key].win.is_some_and(|won| won.is_unacknowledged) {
                self.seen.add(Witness::NobodyPasses);
            }
            if waits {
                self.show_wait(client, key);
                self.park(client, key, word);
            }
        }
        Ok(())
    }

    /// The witnesses of a client that begins to wait for a key.
    fn show_wait(&mut self, client: usize, key: usize) {
        let won_by = |key: usize| self.keys[key].win.and_then(|won| won.client);
        let winner = won_by(key);
        if winner == Some(client) {
            self.seen.add(Witness::WaitsForItself);
        } else if let Some(other) = winner.and_then(|winner| self.waits_for(winner))
            && won_by(other) == Some(client)
        {
            self.seen.add(Witness::Circle);
        }
    }

    /// Whether a get would be told to recache the item, if no other client is.
    fn is_to_recache(&self, key: usize, word: Word) -> bool {
        let known = &self.keys[key];
        known.item.is_some_and(|item| {
            let gone_at_ms = item.gone_at_ms;
            let left_ms = gone_at_ms.map(|at_ms| at_ms.saturating_sub(self.now_ms));
            let short_ms = u64::from(SHORT_S) * STEP_MS;
            let is_short = word.has("R") && left_ms.is_some_and(|left_ms| left_ms < short_ms);
            item.is_stale || known.is_open || is_short
        })
    }

    /// Whether a get makes the item of a key that has none.
    pub(super) fn makes(&self, client: usize, key: usize, word: Word) -> bool {
        word.has("N") && self.may_change(client, key)
    }

    fn win(
        &mut self,
        client: usize,
        key: usize,
        is_bound: bool,
        is_made: bool,
        is_unacknowledged: bool,
    ) {
        let known = &mut self.keys[key];
        if known.item.is_none() {
            let gone_at_ms = self.now_ms + u64::from(TTL_S) * STEP_MS;
            known.item = Some(Item::new(Some(gone_at_ms)));
        }
        known.is_open = false;
        known.win = Some(Won {
            client: Some(client),
            is_bound,
            is_made,
            is_unacknowledged,
        });
    }

    /// Whether a client has the win of a key, and its notice is still under way.
    pub(super) fn has_untold(&self, client: usize, key: usize) -> bool {
        let won = self.keys[key].win;
        won.is_some_and(|won| won.client == Some(client) && won.is_unacknowledged)
    }

    /// The key with the value that a client waits for, and has not been told of.
    pub(super) fn waits_for(&self, client: usize) -> Option<usize> {
        let parked = self.clients[client].parked;
        let parked = parked.filter(|it| it.told.is_none() && it.word.is_get())?;
        Some(parked.key)
    }

    /// A waiter gets the value, or the win. Returns whether it has the win.
    pub(super) fn give_value(&mut self, client: usize, key: usize, word: Word) -> bool {
        let is_there = self.keys[key].item.is_some();
        if is_there && !self.is_to_recache(key, word) {
            self.seen.add(Witness::ValueTold);
            self.given[key] += 1;
            if self.given.iter().sum::<usize>() > 1 {
                self.seen.add(Witness::ToldTogether);
            }
            return false;
        }
        self.seen.add(if is_there {
            Witness::WonInTurn
        } else {
            Witness::MadeInTurn
        });
        let is_made = !is_there || self.keys[key].is_open;
        // It is bound at least until the winner gets its notice.
        self.win(client, key, true, is_made, true);
        true
    }
}
