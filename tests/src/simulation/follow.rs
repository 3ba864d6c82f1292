//! A core's counters of removed items, beside the oracle.
//!
//! When a log evicts, and when it notices an expired item, depends on how records lie in its
//! segments. So whenever its counters of that have moved and the oracle does not know why, the
//! missing items are searched for: there must be as many as the counters say, each as the oracle
//! knows it. Only a tick crawls, and its counters must be possible.

use std::mem;

use latchd_core::engine::{Core, Event};
use latchd_core::store::Store;
use latchd_harness::alphabet::Input;
use latchd_harness::lockstep::{Sizes, is_reset, knows_flushed, there};
use latchd_harness::oracle::{Between, Crawled, Evicted, Expired, Oracle};
use latchd_protocol::command::Command;
use latchd_protocol::key::Key;

/// The earlier counters of a core.
#[derive(Debug, Default)]
pub(super) struct Follow {
    crawled: Crawled,
    reclaimed: u64,
}

impl Follow {
    /// After `input`: finds the items that the core has evicted or reclaimed, if its counters say
    /// that there are any, and tells `oracle`.
    ///
    /// # Errors
    /// The description of a counter that differs.
    pub(super) fn compare<S: Store>(
        &mut self,
        core: &Core<S>,
        oracle: &mut Oracle,
        input: &Input<'_>,
        evicts: bool,
    ) -> Result<(), String> {
        let counters = core.counters();
        let told = (Evicted::of(&counters), Expired::of(&counters));
        let is_reset = is_reset(input);
        oracle.follow_misses(|key| knows_flushed(core, key));
        if is_reset || due(oracle, &told) != told {
            if evicts {
                follow_evicted(core, oracle, input);
            }
            oracle.follow_expired(|key| there(core, key));
            if is_reset {
                oracle.forget_followed();
            }
            let due = due(oracle, &told);
            if told != due {
                return Err(format!(
                    "evicted and expired by what is gone: {due:?}, as the core counts: {told:?}"
                ));
            }
        }
        let reclaimed_before = mem::replace(&mut self.reclaimed, told.1.reclaimed);
        let between = if is_reset {
            Between::Reset
        } else if matches!(input, Input::Event(Event::Tick)) {
            Between::Tick {
                reclaimed: told.1.reclaimed - reclaimed_before,
                items_max: core.limits().crawl_items_max as u64,
            }
        } else {
            Between::Nothing
        };
        let crawled = Crawled::of(&counters);
        let before = mem::replace(&mut self.crawled, crawled);
        if crawled.since(before, between).is_none() {
            return Err(format!(
                "crawled: {before:?} before {between:?}, then {crawled:?}"
            ));
        }
        Ok(())
    }
}

fn due(oracle: &mut Oracle, told: &(Evicted, Expired)) -> (Evicted, Expired) {
    (oracle.evicted(&told.0), oracle.expired(&told.1))
}

fn follow_evicted<S: Store>(core: &Core<S>, oracle: &mut Oracle, input: &Input<'_>) {
    let asked_for = input.command().and_then(Command::key);
    let may_go = |bytes: &[u8]| {
        let key = Key::new(bytes).expect("it was made from a key");
        asked_for != Some(key) && oracle.holder(bytes).is_none() && core.peek(key).is_none()
    };
    let items = oracle.items().map(|(key, _)| key);
    let gone = items.filter(|key| may_go(key));
    let gone: Vec<Vec<u8>> = gone.map(<[u8]>::to_vec).collect();
    oracle.evict(&gone);
}

/// Compares the shown number of items and bytes, expired items included, with the oracle's.
///
/// # Errors
/// The description of a difference.
pub(super) fn compare_sizes<S: Store>(
    core: &Core<S>,
    oracle: &mut Oracle,
    told: Sizes,
) -> Result<(), String> {
    oracle.follow_expired(|key| there(core, key));
    let due = Sizes::of_all(core, oracle);
    if told == due {
        return Ok(());
    }
    Err(format!("{due:?} by what is there, the core has {told:?}"))
}
