//! Who should hold what and who should wait, by the rules of waiting and nothing else.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::KEYS;
use crate::command::Mode;
use crate::conn_id::ConnId;
use crate::wait::Outcome;

/// Who holds a key: in which mode, until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holds {
    pub(super) conn: ConnId,
    pub(super) mode: Mode,
    pub(super) until: Option<u64>,
}

/// Who waits for a key: in which mode, with what lease, until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) conn: ConnId,
    pub(super) mode: Mode,
    pub(super) lease_ms: Option<u64>,
    pub(super) until: u64,
}

/// Who holds a key, in the order of the grants, and who waits for it, in that of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) held: Vec<Holds>,
    pub(super) waits: VecDeque<Waits>,
}

impl Line {
    /// Whether the lock can be had in this mode, by one whose turn it is.
    pub(super) fn fits(&self, mode: Mode) -> bool {
        let modes = self.held.iter().map(|it| it.mode);
        let among = modes.map(Mode::among).fold(mode.among(), u32::min);
        let all_share = mode.is_shared() && self.held.iter().all(|it| it.mode.is_shared());
        self.held.is_empty() || all_share && self.held.len() < among as usize
    }

    pub(super) fn of(&self, conn: ConnId) -> Option<&Holds> {
        self.held.iter().find(|it| it.conn == conn)
    }
}

/// What should be, by the rules and nothing else.
#[derive(Clone, Default)]
pub(super) struct Lines {
    pub(super) now_ms: u64,
    pub(super) by_key: [Line; KEYS.len()],
    pub(super) told: Vec<(ConnId, Outcome)>,
}

impl Lines {
    /// What time ends, moment by moment, as if somebody looked at each.
    pub(super) fn pass(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            self.now_ms += 1;
            let now_ms = self.now_ms;
            for key in 0..KEYS.len() {
                let line = &mut self.by_key[key];
                let is_over = |until: u64| until <= now_ms;
                for wait in line.waits.iter().filter(|wait| is_over(wait.until)) {
                    self.told.push((wait.conn, Outcome::TimedOut));
                }
                line.waits.retain(|wait| !is_over(wait.until));
                line.held.retain(|it| !it.until.is_some_and(is_over));
                self.hands_over(key);
            }
        }
    }

    /// Whoever comes first is given what he can have.
    pub(super) fn hands_over(&mut self, key: usize) {
        let line = &mut self.by_key[key];
        while let Some(first) = line.waits.front().copied()
            && line.fits(first.mode)
        {
            line.waits.pop_front();
            line.held.push(Holds {
                conn: first.conn,
                mode: first.mode,
                until: first.lease_ms.map(|ms| self.now_ms + ms),
            });
            self.told.push((first.conn, Outcome::Granted));
        }
    }

    pub(super) fn frees(&mut self, key: usize, conn: ConnId) {
        self.by_key[key].held.retain(|it| it.conn != conn);
        self.hands_over(key);
    }

    pub(super) fn frees_all(&mut self, conn: ConnId) {
        for key in 0..KEYS.len() {
            self.frees(key, conn);
        }
    }

    pub(super) fn waits_for(&self, conn: ConnId) -> Option<usize> {
        let waits = |line: &Line| line.waits.iter().any(|wait| wait.conn == conn);
        self.by_key.iter().position(waits)
    }

    /// Whether one who waited for `key` would do so in vain, though all others gave back what they have as soon as they
    /// could.
    pub(super) fn is_in_vain(&self, conn: ConnId, key: usize, mode: Mode) -> bool {
        let mut lines = self.clone();
        lines.by_key[key].waits.push_back(Waits {
            conn,
            mode,
            lease_ms: None,
            until: u64::MAX,
        });
        loop {
            let told = lines.told.len();
            let free: Vec<ConnId> = lines
                .by_key
                .iter()
                .flat_map(|line| &line.held)
                .map(|it| it.conn)
                .collect();
            for conn in free
                .into_iter()
                .filter(|it| lines.waits_for(*it).is_none())
                .collect::<Vec<_>>()
            {
                lines.frees_all(conn);
            }
            if lines.waits_for(conn).is_none() {
                return false;
            }
            if lines.told.len() == told {
                return true;
            }
        }
    }
}
