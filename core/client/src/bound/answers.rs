//! The meaning of the answer to each request.

use alloc::boxed::Box;

use latchd_protocol::item::Cas;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::classic::reply::ClassicResponse;
use latchd_protocol::wire::meta::reply::Code;

use super::{
    Bound, BoundGoal, BoundNews, CREATIONS_MAX, Item, Job, LOCK_ITEM, Mark, MissingItem, Query,
    Release,
};
use crate::machine::{Failure, Loss, NotObtained};
use crate::moment::after;
use crate::session::AnyResponse;
use crate::terms::LEASE_ITEM;

/// Whether the item that an answer shows is a leased lock (B6).
pub(super) fn is_leased(answer: &AnyResponse<'_>) -> bool {
    answer.number(b'f') == Some(u64::from(LEASE_ITEM))
}

/// Whether the item that an answer to `me` shows is one of a locked key.
fn is_locked(answer: &AnyResponse<'_>) -> bool {
    let AnyResponse::Meta(shown) = answer else {
        return false;
    };
    // The key comes first, even if it looks like a field.
    let mut words = shown.flags.split(|byte| *byte == b' ').skip(1);
    words.any(|word| word.starts_with(b"lock="))
}

impl Bound {
    pub(super) fn locked(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        match (answer, &self.terms.mark) {
            (AnyResponse::Classic(ClassicResponse::Ok), Mark::None) => self.obtained(),
            (AnyResponse::Classic(ClassicResponse::Ok), Mark::Note(..)) if !self.ours => {
                self.begin(Query::Look, now);
            }
            (AnyResponse::Classic(ClassicResponse::Ok), Mark::Number | Mark::Note(..)) => {
                self.begin(Query::Mark, now);
            }
            (AnyResponse::Classic(ClassicResponse::Locked), _) => self.back_off(now),
            (AnyResponse::Classic(ClassicResponse::NotFound), _) => match self.terms.missing {
                MissingItem::Refuse => self.end(BoundNews::NotObtained(NotObtained::NoItem)),
                MissingItem::Create(_) if self.creations >= CREATIONS_MAX => {
                    self.end(BoundNews::NotObtained(NotObtained::NoItem));
                }
                MissingItem::Create(_) => {
                    self.creations += 1;
                    self.begin(Query::Create, now);
                }
            },
            _ => self.end(BoundNews::Failed(Failure::from_answer(answer))),
        }
    }

    pub(super) fn back_off(&mut self, now: Instant) {
        let BoundGoal::Obtain { until, .. } = self.goal else {
            return;
        };
        let is_over = self.has_waited_enough(now);
        let last = until.unwrap_or(Instant::from_millis(u64::MAX));
        (self.creations, self.ours, self.heard_held) = (0, false, true);
        match self.retries.next_wait() {
            _ if now >= last => self.end(BoundNews::NotObtained(NotObtained::Deadline)),
            _ if is_over => self.end(BoundNews::NotObtained(NotObtained::Held)),
            Some(wait) => {
                let query = if self.is_obstructed {
                    Query::Obstacle
                } else {
                    Query::Lock
                };
                self.begin(query, after(now, wait).min(last));
            }
            None => self.end(BoundNews::NotObtained(NotObtained::Held)),
        }
    }

    pub(super) fn created(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        match answer {
            // Not stored: another client has made the item in the meantime.
            AnyResponse::Classic(made @ (ClassicResponse::Stored | ClassicResponse::NotStored)) => {
                self.ours = *made == ClassicResponse::Stored;
                self.begin(Query::Lock, now);
            }
            AnyResponse::Classic(ClassicResponse::Locked) => self.back_off(now),
            AnyResponse::Classic(_)
            | AnyResponse::Meta(_)
            | AnyResponse::Session(_)
            | AnyResponse::Silent => {
                self.end(BoundNews::Failed(Failure::from_answer(answer)));
            }
        }
    }

    /// B4.
    pub(super) fn looked(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        match (answer.code(), answer.number(b'f')) {
            (Some(Code::Done), Some(flags)) if flags == u64::from(LOCK_ITEM) => {
                // The item of a holder that has died: it is ours now.
                self.ours = true;
                self.begin(Query::Mark, now);
            }
            (Some(Code::Done), Some(_)) => self.begin(Query::GiveUp, now),
            _ => self.end(BoundNews::Failed(Failure::from_answer(answer))),
        }
    }

    /// B6, E3.
    pub(super) fn saw_obstacle(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        match answer.code() {
            Some(Code::Done) if is_leased(answer) => self.back_off(now),
            Some(Code::Debug) if !is_locked(answer) => self.back_off(now),
            // It is gone, or its key has a queue by now.
            Some(Code::Done | Code::Debug | Code::Miss) => {
                self.is_obstructed = false;
                self.begin(Query::Lock, now);
            }
            _ => self.end(BoundNews::Failed(Failure::from_answer(answer))),
        }
    }

    /// The lock was granted, but the item of the key stands for another client's lock: the grant is released.
    pub(super) fn obstructed(&mut self, now: Instant) {
        (self.is_obstructed, self.heard_held) = (true, true);
        self.begin(Query::GiveUp, now);
    }

    pub(super) fn gave_up(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let is_done = answer.code() == Some(Code::Done)
            || *answer == AnyResponse::Classic(ClassicResponse::Ok);
        if is_done && self.is_obstructed {
            return self.back_off(now);
        }
        self.end(if is_done {
            BoundNews::NotObtained(NotObtained::HasValue)
        } else {
            // The connection is closed, which releases the lock.
            BoundNews::Failed(Failure::from_answer(answer))
        });
    }

    pub(super) fn marked(&mut self, answer: &AnyResponse<'_>) {
        let version = answer.number(b'c').filter(|version| *version > 0);
        if answer.code() == Some(Code::Done) && version.is_some() {
            // A fence is the better number.
            self.number = self.number.or(version);
            self.obtained();
        } else {
            // The connection is closed, which releases the lock.
            self.end(BoundNews::Failed(Failure::from_answer(answer)));
        }
    }

    pub(super) fn did(&mut self, job: Job, answer: &AnyResponse<'_>) {
        if job == Job::Check && answer.code() == Some(Code::Noop) {
            return self.news.push_back(BoundNews::Checked);
        }
        if let (Job::Unlock { .. }, Some(code)) = (&job, answer.code()) {
            return self.gave_back(job, code);
        }
        let Some(response) = self.in_classic_words(&job, answer) else {
            return self.news.push_back(BoundNews::Undone(Failure::Unexpected));
        };
        match (job, response) {
            (Job::Read, ClassicResponse::End) => {
                let makes = matches!(self.terms.missing, MissingItem::Create(_));
                let news = match self.item.take() {
                    Some(item) => BoundNews::Read(item),
                    // Elsewhere an empty one would have been made for the lock.
                    None if self.of_key && makes => BoundNews::Read(Item {
                        value: Box::default(),
                        cas: None,
                        client_flags: LOCK_ITEM,
                    }),
                    None => BoundNews::Undone(Failure::Refused("the item is not there".into())),
                };
                self.news.push_back(news);
            }
            (Job::Write { unlock: true, .. }, ClassicResponse::Stored) => {
                self.ours = false;
                self.jobs.push_front(Job::Unlock { is_written: true });
            }
            (Job::Write { .. }, ClassicResponse::Stored) => {
                self.ours = false;
                self.news.push_back(BoundNews::Written);
            }
            // The item of a key with a shared lock cannot be changed.
            (Job::Write { .. }, ClassicResponse::Locked) if self.terms.mode.is_shared() => {
                let failure = Failure::Refused("LOCKED: the lock is a shared one".into());
                self.news.push_back(BoundNews::Undone(failure));
            }
            (Job::Write { .. }, ClassicResponse::Locked) => self.end(BoundNews::Lost(Loss::Taken)),
            (Job::Unlock { .. }, ClassicResponse::Ok | ClassicResponse::Deleted) => {
                self.end(BoundNews::Released);
            }
            (
                Job::Unlock { .. },
                ClassicResponse::ClientError(_)
                | ClassicResponse::NotFound
                | ClassicResponse::Locked,
            ) => {
                self.end(BoundNews::NotHeld);
            }
            (Job::Check | Job::Refresh | Job::Read | Job::Write { .. } | Job::Unlock { .. }, _) => {
                let failure = Failure::from_answer(answer);
                self.news.push_back(BoundNews::Undone(failure));
            }
        }
    }

    /// The answer to a read or a write in its classic form. A key with blanks is read and written by meta
    /// commands.
    fn in_classic_words<'a>(
        &mut self,
        job: &Job,
        answer: &AnyResponse<'a>,
    ) -> Option<ClassicResponse<'a>> {
        let meta = match answer {
            AnyResponse::Classic(response) => return Some(*response),
            AnyResponse::Meta(meta) => meta,
            AnyResponse::Session(_) | AnyResponse::Silent => return None,
        };
        match (job, meta.code) {
            (Job::Read, Code::Value) => {
                let client_flags = answer.number(b'f').unwrap_or_default();
                self.item = Some(Item {
                    value: meta.value.into(),
                    cas: answer.number(b'c').and_then(Cas::new),
                    client_flags: u32::try_from(client_flags).ok()?,
                });
                Some(ClassicResponse::End)
            }
            (Job::Read, Code::Miss) => Some(ClassicResponse::End),
            (Job::Write { .. }, Code::Done) => Some(ClassicResponse::Stored),
            (Job::Write { .. }, Code::Locked) => Some(ClassicResponse::Locked),
            _ => None,
        }
    }

    /// The answer to `mu`, or to `md … U`.
    fn gave_back(&mut self, job: Job, code: Code) {
        match code {
            Code::Done => self.end(BoundNews::Released),
            // The item made for the lock is gone already, which does not end the lock.
            Code::NotFound if self.ours => {
                self.ours = false;
                self.jobs.push_front(job);
            }
            // The request whose reply was lost has released it.
            Code::NotFound if self.release == Release::Unanswered => self.end(BoundNews::Released),
            Code::Value
            | Code::Miss
            | Code::NotFound
            | Code::NotStored
            | Code::Exists
            | Code::Locked
            | Code::Debug
            | Code::Noop => self.end(BoundNews::NotHeld),
        }
    }
}
