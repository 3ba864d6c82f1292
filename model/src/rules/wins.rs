//! The client that is told to recache an item.
//!
//! Source: docs/PROTOCOL.md, "mg".

use latchd_protocol::command::{ItemCommand, TtlStep};
use latchd_protocol::reply::Win;
use latchd_protocol::time::Exptime;

use super::Change;
use crate::frame::Judged;
use crate::invariants::Witness;
use crate::reply_seen::ReplySeen;
use crate::snapshot::described;

impl Change<'_> {
    /// R1, R2.
    pub(super) fn win(&mut self) -> Judged {
        let Some((_, key, ItemCommand::Get(get), ReplySeen::Hit(hit))) = self.asked() else {
            return Ok(());
        };
        if !get.recaches {
            return demand!(
                WinIsFound,
                hit.win == Win::None,
                "{:?} for a plain get",
                hit.win
            );
        }
        let item = self.before.items[key];
        let short = |token: Exptime| match (token, item.and_then(|seen| seen.deadline)) {
            (Exptime::In { seconds }, Some(deadline)) => {
                let left = deadline.count().saturating_sub(self.tick().count());
                left < seconds * 4
            }
            _ => false,
        };
        let is_short = get.steps.iter().any(|step| match step {
            TtlStep::Recache(token) => short(token),
            TtlStep::Touch(_) | TtlStep::Vivify(_) => false,
        });
        let is_out = self.ghosts[key].win_out;
        let is_open = !is_out && item.is_none_or(|seen| seen.stale || is_short);
        let expected = match (is_open, is_out) {
            (true, _) => Win::Won,
            (false, true) => Win::Sent,
            (false, false) => Win::None,
        };
        match (hit.win, item) {
            (Win::Won, None) => self.witnessed.add(Witness::WonByMaking),
            (Win::Won, Some(seen)) if seen.stale => self.witnessed.add(Witness::WonStale),
            (Win::Won, Some(_)) => self.witnessed.add(Witness::WonShort),
            (Win::Sent, _) => self.witnessed.add(Witness::AnotherHasWon),
            (Win::None, _) => {}
        }
        demand!(
            OneWin,
            !(hit.win == Win::Won && is_out),
            "somebody has the win already"
        )?;
        demand!(
            WinIsFound,
            hit.win == expected,
            "{:?}, and {expected:?} is due: {}",
            hit.win,
            described(item)
        )?;
        self.ghosts[key].win_out |= hit.win == Win::Won;
        Ok(())
    }
}
