//! The judgement of a state, of a client's news, and of the quiet after the end.

use latchd_client_core::{LockMachine as _, LockNews, Loss};

use super::client::Lock;
use super::world::{World, key};
use super::{Bounds, Witness};
use crate::frame::{Judged, must};

/// The steps of time after which nothing that has happened has an effect any more: the longest wait, and three sessions.
const QUIET_STEPS: u64 = 12;

impl World {
    /// Whether a client believes that it holds the lock.
    pub(super) fn believes(&self, client: usize) -> bool {
        let one = &self.clients[client];
        let now = self.clock(client);
        let belief = one.lock.id.and_then(|id| one.machine.belief(id));
        belief.is_some_and(|belief| {
            let until = [belief.until, one.machine.common_deadline()];
            belief.is_certain && until.into_iter().flatten().all(|until| now < until)
        })
    }

    /// Whether the grant on the server is this client's.
    pub(super) fn is_granted(&self, client: usize) -> bool {
        let one = &self.clients[client];
        let fence = one.lock.id.and_then(|id| one.machine.fence(id));
        fence.is_some() && self.granted() == fence
    }

    /// Applies the rules to a state (N1, N2, N4).
    pub(super) fn judge(&mut self, bounds: &Bounds) -> Judged {
        let believe = [0, 1].map(|client| self.believes(client));
        for (client, believes) in believe.into_iter().enumerate() {
            let one = &mut self.clients[client];
            one.lock.is_revoked &= believes;
            let is_told = one.lock.is_told && !one.lock.is_releasing;
            must(
                believes == is_told,
                "N4: a client does not believe, and was not told, or believes without news",
            )?;
        }
        if believe == [true, true] && !bounds.in_session {
            self.seen.add(Witness::Overlap);
        }
        let is_right = [0, 1].map(|client| {
            let one = &self.clients[client];
            let is_excused = one.lock.is_revoked || one.is_closed && !bounds.in_session;
            believe[client] && !is_excused
        });
        must(is_right != [true, true], "N1: two clients believe")?;
        for (client, is_right) in is_right.into_iter().enumerate() {
            must(
                !is_right || self.is_granted(client),
                "N2: a client believes, and the grant is not its own",
            )?;
        }
        Ok(())
    }

    /// Judges news of a lock, and notes them (N3).
    pub(super) fn tell(&mut self, client: usize, news: &LockNews) -> Judged {
        let (granted, believes) = (self.granted(), self.believes(client));
        let one = &mut self.clients[client];
        let is_granted = granted.is_some() && granted == one.lock.fence;
        match news {
            LockNews::Obtained => {
                one.lock.is_told = true;
                one.lock.fence = one.lock.id.and_then(|id| one.machine.fence(id));
                if self.last.replace(client).is_some_and(|last| last != client) {
                    self.seen.add(Witness::HandedOver);
                }
                let waited_ms = one.lock.waits_since.map_or(0, |at| self.now_ms - at);
                let shown = [
                    (waited_ms > 0, Witness::WaitedFor),
                    (waited_ms > 1_000, Witness::WaitedLong),
                    (one.lock.is_retry, Witness::Retried),
                ];
                let shown = shown.iter().filter(|(is_seen, _)| *is_seen);
                shown.for_each(|(_, witness)| self.seen.add(*witness));
            }
            LockNews::Lost(loss) => {
                let is_over = *loss != Loss::Taken || !is_granted;
                must(is_over, "N3: a client is told of a loss, and has the lock")?;
                must(
                    !one.lock.has_released || one.lock.is_unanswered,
                    "N3: a released lock is lost",
                )?;
                (one.lock.is_told, one.lock.is_revoked) = (false, false);
                let witnesses = [
                    (Loss::Expired, Witness::Expired),
                    (Loss::HeldTooLong, Witness::Capped),
                    (Loss::Taken, Witness::Taken),
                    (Loss::Disconnected, Witness::Broken),
                ];
                let shown = witnesses.iter().filter(|(of, _)| of == loss);
                shown.for_each(|(_, witness)| self.seen.add(*witness));
            }
            LockNews::Released => {
                must(!is_granted, "N3: a released lock is still granted")?;
                must(
                    one.lock.was_granted || one.lock.is_unanswered || !one.lock.is_told,
                    "N3: a client is told that it has released a lock that it had lost",
                )?;
                if one.lock.has_released && one.lock.is_unanswered {
                    self.seen.add(Witness::ReleasedLate);
                }
                one.lock.is_told = false;
            }
            LockNews::NotHeld => {
                must(
                    !one.lock.has_released || one.lock.is_unanswered,
                    "N3: a lock was released, and its client is told that it was not held",
                )?;
                one.lock.is_told = false;
            }
            LockNews::Failed(_) => {
                must(
                    !believes,
                    "N4: a request has failed, and its client believes",
                )?;
            }
            LockNews::Held(_)
            | LockNews::Obstructed(_)
            | LockNews::HasValue
            | LockNews::Confirmed(_)
            | LockNews::Undone(_) => {}
        }
        let one = &mut self.clients[client];
        if one.lock.id.is_some_and(|id| !one.machine.knows(id)) {
            one.lock = Lock::default();
        }
        Ok(())
    }

    /// Lets everything arrive at once, and time pass. Then clients that have the lock release it (N5).
    pub(super) fn becomes_quiet(mut self, bounds: &Bounds) -> Judged {
        for _ in 0..QUIET_STEPS {
            self.quiet_step(bounds)?;
        }
        let has = [0, 1].map(|client| self.clients[client].lock.is_told && self.is_granted(client));
        must(
            self.granted().is_none() || has != [false, false],
            "N5: a grant belongs to no client that believes",
        )?;
        let is_told = self.clients.iter().all(|one| !one.lock.is_revoked);
        must(is_told, "N5: a client was not told that its lock is lost")?;
        for _ in 0..QUIET_STEPS {
            for client in 0..2 {
                if self.clients[client].lock.is_told && !self.clients[client].lock.is_releasing {
                    self.release(client)?;
                }
            }
            self.quiet_step(bounds)?;
        }
        let has_lock = self.clients.iter().any(|one| one.lock.id.is_some());
        must(!has_lock, "N5: a client does not forget its lock")?;
        let core = self.server.machine();
        must(core.locks().in_force(key()).is_none(), "N5: a lock is left")?;
        must(
            core.manager().sessions().is_empty(),
            "N5: a session is left",
        )?;
        must(!core.has_waits(), "N5: a waiter is left")
    }

    fn quiet_step(&mut self, bounds: &Bounds) -> Judged {
        let mut turns = 0;
        while self.has_left() || self.has_bytes(0) || self.has_bytes(1) {
            for client in 0..2 {
                self.turn(client, &mut turns)?;
            }
            while self.has_left() {
                self.end_late(0, true);
            }
        }
        self.judge(bounds)?;
        self.pass()?;
        self.judge(bounds)
    }
}
