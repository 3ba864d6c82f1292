//! When an item is gone (B4), and what touch, vivify and recache make of that, one after the other.

use latchd_core::command::{TtlStep, TtlSteps};
use latchd_core::time::Exptime;

use super::super::observed::Ttl;
use super::{Auditor, Belief, Breach, breach};

/// How long an expired item may still be read. Source: the protocol page of latchd, "Time".
const GRACE_MS: u64 = 250;

/// When an item is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gone {
    Never,
    /// From this moment on, in milliseconds.
    At(u64),
    Unknown,
}

/// What became of an item's end while steps were taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// After the last one.
    pub(super) gone: Gone,
    /// Where the TTL was to be shown.
    shown: Gone,
    /// Whether a recache found that little is left: it may have, and it must have.
    pub(super) may_run_short: bool,
    pub(super) must_run_short: bool,
}

impl Belief {
    pub(super) fn is_surely_expired(&self, now_ms: u64) -> bool {
        matches!(self.gone, Gone::At(ms) if ms.saturating_add(GRACE_MS) <= now_ms)
    }

    pub(super) const fn may_be_expired(&self, now_ms: u64) -> bool {
        match self.gone {
            Gone::Never => false,
            Gone::At(ms) => ms <= now_ms,
            Gone::Unknown => true,
        }
    }
}

impl Auditor {
    /// When an item with this exptime is gone. A date is a span from now, so that what the wall
    /// clock shows later does not matter.
    pub(super) fn gone(&self, exptime: Exptime) -> Gone {
        let now_ms = self.now_ms;
        match exptime {
            Exptime::Never => Gone::Never,
            Exptime::Past => Gone::At(now_ms),
            Exptime::In { seconds } => Gone::At(now_ms + u64::from(seconds) * 1000),
            Exptime::At { unix_s } => {
                let seconds = unix_s.saturating_sub(self.unix_s_at_start);
                Gone::At(now_ms.max(seconds * 1000))
            }
        }
    }

    /// Takes `steps` on an item that was to be `gone`. `is_made` if the command has just made it;
    /// `None` if nobody can tell.
    pub(super) fn walk(
        &self,
        gone: Gone,
        steps: &TtlSteps,
        is_made: Option<bool>,
        shown_after: Option<u8>,
    ) -> Walk {
        let shown_after = shown_after.map(usize::from);
        let mut walk = Walk {
            gone,
            shown: gone,
            may_run_short: false,
            must_run_short: false,
        };
        for (taken, step) in steps.iter().enumerate() {
            match step {
                TtlStep::Touch(exptime) => walk.gone = self.gone(exptime),
                TtlStep::Vivify(exptime) => match is_made {
                    Some(true) => walk.gone = self.gone(exptime),
                    Some(false) => {}
                    None => walk.gone = Gone::Unknown,
                },
                TtlStep::Recache(threshold) => {
                    let (may, must) = self.runs_short(walk.gone, threshold);
                    walk.may_run_short |= may;
                    walk.must_run_short |= must;
                }
            }
            if shown_after.is_some_and(|after| after > taken) {
                walk.shown = walk.gone;
            }
        }
        walk
    }

    /// Whether less than `threshold` is left: it may be, and it must be. What is left is rounded to
    /// a second, up by less than 1 s and down by less than a half.
    fn runs_short(&self, gone: Gone, threshold: Exptime) -> (bool, bool) {
        if let Exptime::Never | Exptime::Past = threshold {
            return (false, false);
        }
        match (gone, self.gone(threshold)) {
            (Gone::Never, _) => (false, false),
            (Gone::At(end), Gone::At(least)) => (end < least + 500, end + 1000 < least),
            (Gone::Unknown, _) | (_, Gone::Never | Gone::Unknown) => (true, false),
        }
    }

    /// The TTL that an answer shows is what is left (B4).
    pub(super) fn showed_ttl(
        &self,
        key: usize,
        walk: &Walk,
        shown: Option<Ttl>,
    ) -> Result<(), Breach> {
        let is_right = match (shown, walk.shown) {
            (None, _) | (Some(_), Gone::Unknown) | (Some(Ttl::Never), Gone::Never) => true,
            (Some(Ttl::Never), Gone::At(_)) | (Some(Ttl::Seconds(_)), Gone::Never) => false,
            (Some(Ttl::Seconds(seconds)), Gone::At(end)) => {
                let (left, shown) = (end.saturating_sub(self.now_ms), seconds * 1000);
                shown <= left + 1000 && left <= shown + 500
            }
        };
        if !is_right {
            let (now_ms, gone) = (self.now_ms, walk.shown);
            breach!(
                "B4",
                "key {key} is shown with TTL {shown:?} at {now_ms} ms, and is to be {gone:?}"
            );
        }
        Ok(())
    }
}
