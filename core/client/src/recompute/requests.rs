//! The next request, and its bytes.

use alloc::vec;
use core::time::Duration;

use latchd_protocol::key::Key;
use latchd_protocol::stats::StatsTopic;
use latchd_protocol::time::{Exptime, Instant};
use latchd_protocol::wire::meta::{Flag, Verb};

use super::{Query, Recompute, RecomputeGoal, Win};
use crate::session::AnyRequest;
use crate::terms::{TTL_MAX, TTL_MIN};

impl Recompute {
    /// The next request to send.
    pub(super) fn query(&self, now: Instant) -> Query {
        if self.is_to_attach(now) {
            return Query::Attach;
        }
        let stores = matches!(
            self.goal,
            RecomputeGoal::Store { .. } | RecomputeGoal::GiveBack
        );
        if stores && !self.is_proven {
            return Query::Uptime;
        }
        // Without a read there is no time left to wait.
        let wait = self.wait_left(now).filter(|_| self.heard_busy);
        wait.map_or(Query::Goal, |ms| Query::Wait { ms })
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
        if let RecomputeGoal::Store { value } = &self.goal {
            let flags = [cas, Flag::Touch(whole_seconds(self.terms.ttl))];
            return AnyRequest::meta(Verb::Set, key, flags, value);
        }
        if self.goal == RecomputeGoal::GiveBack {
            let mut flags = vec![cas];
            flags.extend((!is_claim).then_some(Flag::Invalidate));
            return AnyRequest::meta(Verb::Delete, key, flags, &[]);
        }
        let claim = Flag::Vivify(whole_seconds(self.terms.claim.max(TTL_MIN)));
        let mut flags = vec![Flag::Value, Flag::ShowCas, claim];
        if !self.terms.early.is_zero() {
            flags.push(Flag::Recache(whole_seconds(self.terms.early)));
        }
        flags.extend(self.binds().then_some(Flag::Bind));
        if let Query::Wait { ms } = query {
            flags.push(Flag::Wait(ms));
        }
        AnyRequest::meta(Verb::Get, key, flags, &[])
    }
}

/// A span as an exptime, rounded up to a second and at most [`TTL_MAX`]; 0 is "never".
fn whole_seconds(span: Duration) -> Exptime {
    match u32::try_from(span.min(TTL_MAX).as_millis().div_ceil(1000)) {
        Ok(seconds @ 1..) => Exptime::In { seconds },
        Ok(0) | Err(_) => Exptime::Never,
    }
}
