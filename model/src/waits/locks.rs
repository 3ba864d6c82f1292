//! Requests for locks: a client's request, and the due reply.

use latchd_harness::alphabet::ReplyKind;
use latchd_protocol::command::{Acquire, Command, ItemCommand, Wait};

use super::word::{ASKED_WAIT_MS, LEASE_MS};
use super::world::{Held, World, name_of};
use super::{Witness, Word};
use crate::frame::{CLIENTS_MAX, Judged, must};

impl World {
    #[allow(clippy::wildcard_enum_match_arm)] // Any other reply is wrong.
    pub(super) fn lock(&mut self, client: usize, key: usize, word: Word) -> Judged {
        let name = name_of(key);
        if word.verb() == "lock" {
            let command = Command::Item(ItemCommand::Lock { key: name });
            return self.ask(client, command, |world, kind, _| match kind {
                ReplyKind::Locked => {
                    let lock = world.core.locks().in_force(name);
                    let fence = lock.map_or(0, |lock| lock.fence.number());
                    world.granted(client, key, word, fence)
                }
                ReplyKind::RefusedLocked => world.refused(client, key, word),
                // Only an item has a lock of that kind.
                _ => {
                    let known = &world.keys[key];
                    let is_nothing = known.held.is_empty() && known.item.is_none();
                    must(is_nothing, "L6: a lock, or an item, is not seen")
                }
            });
        }
        let wait = if word.has("w") {
            Wait::UpTo { ms: ASKED_WAIT_MS }
        } else {
            Wait::No
        };
        let acquire = word.acquire(name, wait);
        self.acquire(client, key, word, acquire, None)
    }

    /// Asks with `ml`. `told` is the lock that the client holds already, and was told of by a
    /// notice.
    #[allow(clippy::wildcard_enum_match_arm)] // Any other reply is wrong.
    pub(super) fn acquire(
        &mut self,
        client: usize,
        key: usize,
        word: Word,
        acquire: Acquire<'_>,
        told: Option<Held>,
    ) -> Judged {
        let may_wait = acquire.wait != Wait::No;
        let command = Command::Item(ItemCommand::Acquire(acquire));
        self.ask(client, command, |world, kind, fence| {
            let is_granted = matches!(kind, ReplyKind::Granted | ReplyKind::GrantedItem);
            if let Some(told) = told {
                // It gets nothing new: its lease does not begin again either.
                let is_same = is_granted && fence == told.fence;
                return must(is_same, "Q10: has a lock, and hears something else");
            }
            match kind {
                ReplyKind::Granted | ReplyKind::GrantedItem => {
                    world.granted(client, key, word, fence)
                }
                ReplyKind::Contended => {
                    must(!may_wait, "Q10: refused a wait")?;
                    world.refused(client, key, word)
                }
                ReplyKind::WouldDeadlock => {
                    let is_cycle = world.would_close(client, key, word);
                    must(is_cycle, "Q9: refused as a deadlock without one")?;
                    world.show_deadlock(client, key);
                    Ok(())
                }
                ReplyKind::Waits => {
                    let would_close = world.would_close(client, key, word);
                    must(may_wait && !would_close, "Q9: waits for ever")?;
                    let nobody = world.keys[key].line.is_empty();
                    let is_to_be_had = nobody && world.has_room(key, word.max_sharers());
                    must(!is_to_be_had, "Q6: waits for a lock that it could have")?;
                    if world.is_waited_by_holder(client, key) {
                        world.seen.add(Witness::OtherMakesRoom);
                    }
                    world.park(client, key, word);
                    Ok(())
                }
                ReplyKind::NotFound => {
                    let is_due = word.has("x") && world.keys[key].item.is_none();
                    must(is_due, "Q10: not found, and not asked for")
                }
                _ => Err(format!("Q10: answered {kind:?}")),
            }
        })
    }

    /// The reply is that a client holds a lock.
    fn granted(&mut self, client: usize, key: usize, word: Word, fence: u64) -> Judged {
        let lease_until_ms = word.has("T").then_some(self.now_ms + LEASE_MS);
        let mut shares = self.keys[key].held.iter_mut();
        let Some(held) = shares.find(|held| held.client == client) else {
            let nobody = self.keys[key].line.is_empty();
            must(nobody, "Q7: given to a newcomer, past those that wait")?;
            return self.grant(client, key, word, fence);
        };
        must(held.fence == fence, "L12: a renewal is another grant")?;
        if word.has("T") {
            held.lease_until_ms = lease_until_ms;
            held.is_of_key = true;
        }
        Ok(())
    }

    pub(super) fn grant(&mut self, client: usize, key: usize, word: Word, fence: u64) -> Judged {
        let has_room = self.has_room(key, word.max_sharers());
        must(has_room, "L1: two hold a lock, or more than may share it")?;
        let known = &mut self.keys[key];
        must(fence > known.fence_last, "L12: a fence does not rise")?;
        known.fence_last = fence;
        known.held.push(Held {
            client,
            fence,
            lease_until_ms: word.has("T").then_some(self.now_ms + LEASE_MS),
            is_of_key: word.verb() != "lock",
            max_sharers: word.max_sharers(),
        });
        if known.held.len() > 1 {
            self.seen.add(Witness::TwoShare);
        }
        Ok(())
    }

    /// The reply is that a lock is held.
    fn refused(&mut self, client: usize, key: usize, word: Word) -> Judged {
        if self.share(client, key).is_some() {
            return Ok(());
        }
        let has_room = self.has_room(key, word.max_sharers());
        let is_waited = !self.keys[key].line.is_empty();
        must(
            is_waited || !has_room,
            "Q6: a lock that could be had is refused",
        )?;
        if is_waited {
            self.seen.add(Witness::NobodyBarges);
            if has_room {
                self.seen.add(Witness::ShareBehind);
            }
        } else if self.keys[key].held.len() > 1 && word.mode().is_shared() {
            self.seen.add(Witness::ShareIsFull);
        }
        Ok(())
    }

    /// Whether the lock of a key has room for one more client with this limit, beside its holders.
    pub(super) fn has_room(&self, key: usize, max_sharers: u32) -> bool {
        let held = &self.keys[key].held;
        let all = held.iter().map(|held| held.max_sharers);
        held.len() < all.fold(max_sharers, u32::min) as usize
    }

    /// The witnesses of a request that was refused as a deadlock.
    fn show_deadlock(&mut self, client: usize, key: usize) {
        if self.share(client, key).is_some() {
            return self.seen.add(Witness::WaitsForItself);
        }
        self.seen.add(Witness::Deadlock);
        if !self.is_waited_by_holder(client, key) {
            self.seen.add(Witness::DeadlockOfThree);
        } else if self.keys[key].held.len() > 1 {
            self.seen.add(Witness::DeadlockByOneOfTwo);
        }
    }

    /// Whether a holder of `key` waits for a key that `client` holds.
    fn is_waited_by_holder(&self, client: usize, key: usize) -> bool {
        let mut holders = self.keys[key].held.iter();
        holders.any(|held| {
            let sought = self.sought_by(held.client);
            sought.is_some_and(|(sought, _)| self.share(client, sought).is_some())
        })
    }

    /// The key of the lock that a client waits for, and the number of sharers that it allows.
    pub(super) fn sought_by(&self, client: usize) -> Option<(usize, u32)> {
        let parked = self.clients[client].parked;
        let parked = parked.filter(|it| it.told.is_none() && !it.word.is_get())?;
        Some((parked.key, parked.word.max_sharers()))
    }

    /// Whether a client that waited for this key would come to wait for itself.
    fn would_close(&self, client: usize, key: usize, word: Word) -> bool {
        // One connection holds a key once.
        let holds = self.share(client, key).is_some();
        holds || !self.answered(Some((client, key, word.max_sharers())))[client]
    }

    /// The clients that would be answered if each client that does not wait releases its locks, and
    /// then each that was answered: also one more waiter, behind all others, for a key and among so
    /// many.
    pub(super) fn answered(&self, more: Option<(usize, usize, u32)>) -> [bool; CLIENTS_MAX] {
        let mut answered = [false; CLIENTS_MAX];
        loop {
            let before = answered;
            for (client, is_answered) in answered.iter_mut().enumerate() {
                let more = more.filter(|(one, ..)| *one == client);
                let sought = more.map(|(_, key, max_sharers)| (key, max_sharers));
                // A wait past its deadline ends by itself.
                let waits = || self.sought_by(client).filter(|_| !self.is_over(client));
                let Some((key, max_sharers)) = sought.or_else(waits) else {
                    *is_answered = true;
                    continue;
                };
                let line = self.keys[key].line.iter();
                let mut ahead = line.take_while(|other| **other != client);
                let held = self.keys[key].held.iter();
                let stay = held.filter(|held| !before[held.client]);
                let least = stay
                    .clone()
                    .map(|held| held.max_sharers)
                    .fold(max_sharers, u32::min);
                *is_answered = ahead.all(|other| before[*other]) && stay.count() < least as usize;
            }
            if answered == before {
                return answered;
            }
        }
    }
}
