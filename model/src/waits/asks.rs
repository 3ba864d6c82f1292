//! Requests for locks: what a client asks, what a transport does first, and what becomes of the answer.

use latchd_core::command::{Acquire, Command, ItemCommand, Lease, Wait};
use latchd_core::reply::{Refusal, Reply};
use latchd_core::wait::{Outcome, would_deadlock};

use super::world::{LEASE_MS, Parked, WAIT_MS, World, key as name_of, place_of};
use super::{Asks, Witness};
use crate::frame::{Judged, must};

impl World {
    pub(super) fn ask(&mut self, client: usize, key: usize, asks: Asks) -> Judged {
        let shard = self.shard_of(key);
        self.come_to(shard);
        if asks == Asks::Lock {
            let command = Command::Item(ItemCommand::Lock { key: name_of(key) });
            let (is_locked, is_refused) = self.execute(shard, client, command, |reply| {
                let refused = matches!(reply, Reply::Refused(Refusal::Locked));
                (matches!(reply, Reply::Locked), refused)
            });
            self.take_notices(shard)?;
            if is_locked {
                let lock = self.cores[shard].locks().in_force(name_of(key));
                let fence = lock.map_or(0, |lock| lock.fence.number());
                return self.given(client, key, asks, fence);
            }
            if is_refused {
                return self.refused(client, key, asks);
            }
            // Only an item that is there has a lock of that kind.
            return must(self.held[key].is_empty(), "L6: a lock is not seen");
        }
        let acquire = Acquire {
            key: name_of(key),
            mode: asks.mode(),
            lease: asks.is_leased().then_some(Lease::For { ms: LEASE_MS }),
            needs_item: asks.needs_item(),
            looks: false,
            wait: if asks.waits() {
                self.may_wait(client, key, asks)?
            } else {
                Wait::No
            },
        };
        self.acquire(client, key, asks, acquire).map(|_| ())
    }

    /// What a transport does before it lets a request wait, over several cores (`wait.rs`).
    fn may_wait(&mut self, client: usize, number: usize, asks: Asks) -> Result<Wait, String> {
        let wait = Wait::UpTo { ms: WAIT_MS };
        if self.cores.len() == 1 {
            return Ok(wait);
        }
        let conn = self.clients[client].conn.expect("it is open");
        let shard = self.shard_of(number);
        let now = self.now();
        let asked = Acquire {
            mode: asks.mode(),
            ..Acquire::new(name_of(number))
        };
        let would_contend = self.cores[shard].would_contend(now, conn, &asked);
        self.take_notices(shard)?;
        if !would_contend {
            return Ok(wait);
        }
        for other in 0..self.cores.len() {
            self.come_to(other);
            self.cores[other].pass(now);
            self.take_notices(other)?;
        }
        self.cores[shard].would_contend(now, conn, &asked);
        let chain = would_deadlock(
            conn,
            self.cores[shard].sought(&asked),
            self.cores[shard].limits().wait_chain_max,
            |key| {
                let core = &self.cores[self.shard_of(place_of(key))];
                core.locks().holders_of(key)
            },
            |conn| {
                self.cores
                    .iter()
                    .find_map(|core| core.waits().sought_by(conn))
            },
        );
        match chain.judge(wait) {
            Wait::TooLong => Err("Q9: a chain of a few is too long".into()),
            wait @ (Wait::No | Wait::UpTo { .. } | Wait::WouldDeadlock) => Ok(wait),
        }
    }

    pub(super) fn hear(&mut self, client: usize) -> Judged {
        let parked = self.clients[client].parked.take().expect("it has waited");
        let Parked { key, asks, .. } = parked;
        match parked.told.expect("it was told") {
            Outcome::NotFound => {
                self.witness(Witness::NotFound);
                return must(asks.needs_item(), "Q10: not found, and not asked for");
            }
            Outcome::TooManyLocks => return Err("Q10: one lock is too many".into()),
            Outcome::Granted | Outcome::TimedOut => {}
        }
        self.come_to(self.shard_of(key));
        let is_his = self.holds(client, key);
        let command = Acquire {
            key: name_of(key),
            mode: asks.mode(),
            lease: asks.is_leased().then_some(Lease::For { ms: LEASE_MS }),
            needs_item: asks.needs_item(),
            looks: false,
            wait: Wait::UpTo { ms: WAIT_MS },
        };
        let Command::Item(ItemCommand::Acquire(acquire)) =
            Command::Item(ItemCommand::Acquire(command)).without_wait()
        else {
            unreachable!("it stays one");
        };
        self.witness(match (parked.told, is_his) {
            (Some(Outcome::Granted), true) => Witness::HeardInTime,
            (Some(Outcome::Granted), false) => Witness::LostBeforeHeard,
            _ => Witness::HeardTooLate,
        });
        if is_his {
            // It is told what it has, and gets nothing new: not a lease that begins now either.
            let before = self.share(client, key);
            let is_granted = self.acquire(client, key, asks.heard(), acquire)?;
            let is_same = is_granted && self.share(client, key) == before;
            return must(is_same, "Q10: has a lock, and hears something else");
        }
        self.acquire(client, key, asks, acquire).map(|_| ())
    }

    /// Says whether it was granted.
    fn acquire(
        &mut self,
        client: usize,
        key: usize,
        asks: Asks,
        acquire: Acquire<'_>,
    ) -> Result<bool, String> {
        enum Answer {
            Granted(u64),
            Contended,
            WouldDeadlock,
            Waits,
            NotFound,
        }
        let shard = self.shard_of(key);
        let command = Command::Item(ItemCommand::Acquire(acquire));
        #[allow(clippy::wildcard_enum_match_arm)] // Whatever else it is, it is wrong.
        let answer = self.execute(shard, client, command, |reply| match reply {
            Reply::Granted(granted) => Ok(Answer::Granted(granted.fence.number())),
            Reply::Contended(_) => Ok(Answer::Contended),
            Reply::WouldDeadlock(_) => Ok(Answer::WouldDeadlock),
            Reply::Waits => Ok(Answer::Waits),
            Reply::NotFound => Ok(Answer::NotFound),
            _ => Err(format!("Q10: answered {reply:?}")),
        })?;
        self.take_notices(shard)?;
        match answer {
            Answer::Granted(fence) => {
                self.given(client, key, asks, fence)?;
                return Ok(true);
            }
            Answer::Contended => {
                must(
                    !asks.waits() || acquire.wait == Wait::No,
                    "Q10: refused a wait",
                )?;
                self.refused(client, key, asks)?;
            }
            Answer::WouldDeadlock => {
                let is_cycle = self.would_close(client, key, asks);
                must(is_cycle, "Q9: refused as a deadlock without one")?;
                self.show_deadlock(client, key);
            }
            Answer::Waits => {
                let would_close = self.would_close(client, key, asks);
                must(!would_close, "Q9: waits for ever")?;
                let is_to_be_had = self.lines[key].is_empty() && self.has_room(key, asks.among());
                must(!is_to_be_had, "Q6: waits for a lock that it could have")?;
                if self.is_waited_by_holder(client, key) {
                    self.witness(Witness::OtherMakesRoom);
                }
                self.lines[key].push(client);
                if self.lines[key].len() > 1 {
                    self.witness(Witness::TwoWait);
                }
                self.clients[client].parked = Some(Parked {
                    key,
                    asks,
                    until_ms: self.now_ms + WAIT_MS,
                    told: None,
                });
            }
            Answer::NotFound => {
                let is_meant = acquire.needs_item;
                must(is_meant, "Q10: not found, and not asked for")?;
            }
        }
        Ok(false)
    }

    /// What a request that was refused as a deadlock has shown.
    fn show_deadlock(&mut self, client: usize, key: usize) {
        if self.holds(client, key) {
            return self.witness(Witness::WaitsForItself);
        }
        self.witness(Witness::Deadlock);
        if !self.is_waited_by_holder(client, key) {
            self.witness(Witness::DeadlockOfThree);
        } else if self.held[key].len() > 1 {
            self.witness(Witness::DeadlockByOneOfTwo);
        }
    }

    /// Whether one who holds `key` waits for a key that `client` holds.
    fn is_waited_by_holder(&self, client: usize, key: usize) -> bool {
        let mut holders = self.held[key].iter();
        holders.any(|held| {
            self.sought_by(held.client)
                .is_some_and(|(sought, _)| self.holds(client, sought))
        })
    }
}
