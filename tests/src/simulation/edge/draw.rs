//! Requests of clients: those that fill buffers, and those that empty them.

use latchd_harness::alphabet::{
    ReleaseChoice, SmallAcquire, SmallGet, SmallKey, SmallRequest, SmallSet, SmallValue,
};
use latchd_harness::wording::Protocol;
use latchd_protocol::command::{TtlStep, TtlSteps};
use latchd_protocol::time::Exptime;

use super::world::World;
use super::{ITEMS, LARGEST_KEY, SMALL_KEYS, VALUE_BYTES_MAX};
use crate::simulation::ask::{Ask, What};
use crate::simulation::workload::intent::Text;

/// `request` about a key, in meta text or, if its word stands there, in classic text.
fn say(what: What, protocol: Protocol, request: SmallRequest, key: usize) -> Ask {
    let mut ask = Ask::new(what, protocol, 0);
    ask.request = Some(request);
    ask.first = key;
    ask
}

/// `mg`, with the value.
pub(super) fn look(key: usize) -> Ask {
    let get = SmallGet {
        recaches: true,
        ..SmallGet::new(SmallKey::default())
    };
    let mut ask = say(What::Get, Protocol::Meta, SmallRequest::Get(get), key);
    ask.style.with_value = true;
    ask
}

impl World {
    /// The next request of a client, and how often it is sent.
    pub(super) fn draw(&mut self) -> (Ask, u32) {
        self.asked += 1;
        let tag = self.asked;
        let ask = match self.below(64) {
            0..6 => {
                let (what, protocol) = *self.random.choose(&[
                    (What::Version, Protocol::Classic),
                    (What::Noop, Protocol::Meta),
                    (What::Unknown, Protocol::Classic),
                ]);
                let times = self.count(&[1, 1, 1, 20, 1_000]);
                return (Ask::new(what, protocol, 0), times);
            }
            6..22 => self.draw_get(),
            22..28 => look(self.below(ITEMS)),
            28..42 => self.draw_set(tag),
            42..54 => self.draw_lock(),
            54..63 => {
                let key = SmallKey::default();
                let release = SmallRequest::Release {
                    key,
                    of: ReleaseChoice::Own,
                };
                say(What::Release, Protocol::Meta, release, self.lock())
            }
            _ => say(
                What::UnlockAll,
                Protocol::Classic,
                SmallRequest::UnlockAll,
                0,
            ),
        };
        (ask, 1)
    }

    /// The key of a lock.
    fn lock(&mut self) -> usize {
        ITEMS + self.below(self.setting.keys - ITEMS)
    }

    /// One of these, or less.
    fn count(&mut self, of: &[u32]) -> u32 {
        let most = *self.random.choose(of);
        let less = u32::try_from(self.random.below(u64::from(most))).expect("less");
        if less.is_multiple_of(2) { most } else { less }
    }

    /// `get`, `gets`, `gat` or `gats`.
    fn draw_get(&mut self) -> Ask {
        let keys = self.count(&[1, 3, 40, 40, 400]);
        // Now and then one with an answer that alone is far past every bound.
        let keys = if self.below(512) == 0 { 10_000 } else { keys };
        let choice = self.below(4);
        let mut get = SmallGet::new(SmallKey::default());
        if choice & 1 != 0 {
            get.steps = TtlSteps::one(TtlStep::Touch(Exptime::Never));
        }
        let from = self.below(if keys == 1 { ITEMS } else { SMALL_KEYS });
        let mut ask = say(What::Get, Protocol::Classic, SmallRequest::Get(get), from);
        ask.style.with_value = true;
        ask.style.with_cas = choice & 2 != 0;
        ask.key_count = keys as usize;
        if keys > 1 {
            ask.max_sharers = SMALL_KEYS;
        }
        ask
    }

    fn draw_set(&mut self, tag: u32) -> Ask {
        let (key, bytes) = match self.below(64) {
            // Past the bytes of one read and of one send; past the largest value; past the copied
            // bytes.
            0 => (LARGEST_KEY, VALUE_BYTES_MAX - self.below(100)),
            1 => (SMALL_KEYS, VALUE_BYTES_MAX + 1 + self.below(100)),
            2..6 => {
                let others = LARGEST_KEY - SMALL_KEYS;
                (SMALL_KEYS + self.below(others), 16_000 + self.below(60_000))
            }
            _ => (self.below(SMALL_KEYS), 1 + self.below(200)),
        };
        let set = SmallSet {
            client_flags: tag,
            ..SmallSet::new(SmallKey::default(), SmallValue::Long)
        };
        let mut ask = say(What::Set, Protocol::Classic, SmallRequest::Set(set), key);
        ask.text = Text::Letters { tag, bytes };
        ask.is_too_large = bytes > VALUE_BYTES_MAX;
        ask.style.quiet = self.below(8) == 0;
        ask
    }

    pub(super) fn draw_lock(&mut self) -> Ask {
        let wait_ms = match self.below(3) {
            0 => None,
            _ => Some(1 + u32::try_from(self.below(2_000)).expect("two seconds")),
        };
        let acquire = SmallAcquire {
            wait_ms,
            ..SmallAcquire::new(SmallKey::default())
        };
        let acquire = SmallRequest::Acquire(acquire);
        say(What::Acquire, Protocol::Meta, acquire, self.lock())
    }
}
