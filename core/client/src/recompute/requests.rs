//! The next request, and its bytes.

use core::time::Duration;

use latchd_protocol::key::Key;
use latchd_protocol::stats::StatsTopic;
use latchd_protocol::time::{Exptime, Instant};
use latchd_protocol::wire::meta::{Flag, Verb};

use super::{Query, Recompute, RecomputeGoal, Win};
use crate::session::{AnyRequest, Flags};
use crate::terms::{TTL_MAX, TTL_MIN};

impl Recompute {
    /// The next request to send.
    pub(super) fn query(&self, now: Instant) -> Query {
        if self.is_to_attach(now) {
            return Query::Attach;
        }
        match self.goal {
            RecomputeGoal::Read { .. } if self.heard_busy => self
                .wait_left(now)
                .map_or(Query::Goal, |ms| Query::Wait { ms }),
            RecomputeGoal::Store { .. } | RecomputeGoal::GiveBack if !self.is_proven => {
                Query::Uptime
            }
            RecomputeGoal::Store { .. }
            | RecomputeGoal::GiveBack
            | RecomputeGoal::None
            | RecomputeGoal::Compute
            | RecomputeGoal::Abandon
            | RecomputeGoal::EndSession
            | RecomputeGoal::Read { .. } => Query::Goal,
        }
    }

    pub(super) fn request(&self, query: Query) -> AnyRequest<'_> {
        if query == Query::Uptime {
            return AnyRequest::Stats(StatsTopic::General);
        }
        if let Some(session) = &self.session {
            if query == Query::Attach {
                return session.attach(self.won.is_some());
            }
            if self.goal == RecomputeGoal::EndSession {
                return session.end();
            }
        }
        let key = Key::new(&self.key).expect("these bytes were taken from a key");
        let (cas, is_claim) = match self.won {
            Some(Win { cas, is_claim, .. }) => (Flag::Cas(cas.number()), is_claim),
            None => (Flag::Cas(0), false),
        };
        match &self.goal {
            RecomputeGoal::Store { value } => AnyRequest::Meta {
                verb: Verb::Set,
                key,
                flags: Flags::of([cas, Flag::Touch(whole_seconds(self.terms.ttl))]),
                value,
            },
            RecomputeGoal::GiveBack if is_claim => {
                AnyRequest::meta(Verb::Delete, key, Flags::of([cas]))
            }
            RecomputeGoal::GiveBack => {
                AnyRequest::meta(Verb::Delete, key, Flags::of([cas, Flag::Invalidate]))
            }
            RecomputeGoal::None
            | RecomputeGoal::Compute
            | RecomputeGoal::Abandon
            | RecomputeGoal::EndSession
            | RecomputeGoal::Read { .. } => {
                let claim = Flag::Vivify(whole_seconds(self.terms.claim.max(TTL_MIN)));
                let read = [Flag::Value, Flag::ShowCas, claim];
                let flags = if self.terms.early.is_zero() {
                    Flags::of(read)
                } else {
                    let [value, cas, claim] = read;
                    let early = Flag::Recache(whole_seconds(self.terms.early));
                    Flags::of([value, cas, claim, early])
                };
                let flags = if self.binds() {
                    flags.with(Flag::Bind)
                } else {
                    flags
                };
                let flags = match query {
                    Query::Wait { ms } => flags.with(Flag::Wait(ms)),
                    Query::Goal | Query::Uptime | Query::Attach => flags,
                };
                AnyRequest::meta(Verb::Get, key, flags)
            }
        }
    }
}

/// A span as an exptime, rounded up to a second and at most [`TTL_MAX`]; 0 is "never".
fn whole_seconds(span: Duration) -> Exptime {
    match u32::try_from(span.min(TTL_MAX).as_millis().div_ceil(1000)) {
        Ok(seconds @ 1..) => Exptime::In { seconds },
        Ok(0) | Err(_) => Exptime::Never,
    }
}
