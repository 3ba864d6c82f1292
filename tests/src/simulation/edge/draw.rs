//! What clients ask for: what fills buffers, and what empties them.

use super::ask::{Ask, Local};
use super::world::World;
use super::{KEYS, LARGEST_KEY, SMALL_KEYS, VALUE_BYTES_MAX};

impl World {
    /// What a client asks for next.
    pub(super) fn draw(&mut self, client: usize) -> Ask {
        self.asked += 1;
        let number = self.number(client);
        let tag = self.asked;
        match self.below(64) {
            0..6 => Ask::Local {
                said: *self
                    .random
                    .choose(&[Local::Version, Local::Noop, Local::Unknown]),
                times: self.count(&[1, 1, 1, 20, 1_000]),
            },
            6..22 => {
                let keys = self.count(&[1, 3, 40, 40, 400]);
                // Now and then one whose answer alone is far past every bound.
                let keys = if self.below(512) == 0 { 10_000 } else { keys };
                let choice = self.below(4);
                Ask::Get {
                    touches: choice & 1 != 0,
                    with_cas: choice & 2 != 0,
                    from: self.below(if keys == 1 { KEYS } else { SMALL_KEYS }),
                    keys: keys as usize,
                }
            }
            22..28 => Ask::Look {
                key: self.below(KEYS),
                number,
            },
            28..42 => self.draw_set(tag),
            42..54 => self.draw_lock(number),
            54..63 => Ask::Unlock {
                key: self.below(self.setting.locks),
                number,
            },
            _ => Ask::UnlockAll,
        }
    }

    /// One of these, or less.
    fn count(&mut self, of: &[u32]) -> u32 {
        let most = *self.random.choose(of);
        let less = u32::try_from(self.random.below(u64::from(most))).expect("less");
        if less.is_multiple_of(2) { most } else { less }
    }

    fn draw_set(&mut self, tag: u32) -> Ask {
        let (key, bytes) = match self.below(64) {
            // Past what one read brings and a turn sends; past what may be stored; past what is copied.
            0 => (LARGEST_KEY, VALUE_BYTES_MAX - self.below(100)),
            1 => (SMALL_KEYS, VALUE_BYTES_MAX + 1 + self.below(100)),
            2..6 => {
                let others = LARGEST_KEY - SMALL_KEYS;
                (SMALL_KEYS + self.below(others), 16_000 + self.below(60_000))
            }
            _ => (self.below(SMALL_KEYS), 1 + self.below(200)),
        };
        Ask::Set {
            key,
            bytes,
            tag,
            noreply: self.below(8) == 0,
        }
    }

    pub(super) fn draw_lock(&mut self, number: u32) -> Ask {
        Ask::Lock {
            key: self.below(self.setting.locks),
            wait_ms: match self.below(3) {
                0 => 0,
                _ => 1 + self.below(2_000) as u64,
            },
            number,
        }
    }
}
