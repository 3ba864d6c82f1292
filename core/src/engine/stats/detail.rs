//! `stats detail`: how often keys of each prefix are asked for, while an operator wants to know.
//!
//! A prefix is the part of a key before the first delimiter (`:`); a key without one counts nowhere. Until counting is
//! turned on, a command reads one flag.
//!
//! - The number of prefixes is bounded ([`PREFIXES_MAX`]): those that come later are not counted.
//!
//! Source: memcached 1.6.45 `stats_prefix.c`. It counts no meta commands; here a command is counted
//! however it is written.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use latchd_protocol::command::ItemCommand;
use latchd_protocol::stats::StatsLine;

use crate::engine::items::Items;
use crate::engine::stats::lock_lines::printable;

/// How many prefixes a core counts. memcached counts 65,536.
pub const PREFIXES_MAX: usize = 4_096;

/// The byte after a prefix, unless `-D` says otherwise.
const DELIMITER: u8 = b':';

/// The counts by prefix.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Detail {
    is_on: bool,
    delimiter: u8,
    prefixes: Prefixes,
}

/// The counts of each prefix, of one core or of several added up.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Prefixes {
    counts: BTreeMap<Arc<[u8]>, PrefixCounts>,
    /// In the order in which they came, so that one that comes moves no page.
    order: Vec<Arc<[u8]>>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct PrefixCounts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

impl Detail {
    /// With a delimiter of the operator's it is on from the start.
    pub(in crate::engine) fn new(delimiter: Option<u8>) -> Self {
        Self {
            is_on: delimiter.is_some(),
            delimiter: delimiter.unwrap_or(DELIMITER),
            prefixes: Prefixes::default(),
        }
    }

    pub(in crate::engine) fn turn(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    pub(in crate::engine) fn forget(&mut self) {
        self.prefixes = Prefixes::default();
    }

    pub(in crate::engine) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// A command has come.
    pub(in crate::engine) fn note(&mut self, command: &ItemCommand<'_>) {
        let counts = |this: &mut Self, change: fn(&mut PrefixCounts)| {
            this.count(command.key().as_bytes(), change);
        };
        match command {
            // One that waits comes again.
            ItemCommand::Get(get) if get.wait_ms > 0 || get.is_look() => {}
            ItemCommand::Get(_) => counts(self, |counts| counts.gets += 1),
            ItemCommand::Set(_) | ItemCommand::SetTooLarge { .. } => {
                counts(self, |counts| counts.sets += 1);
            }
            ItemCommand::Delete(_) => counts(self, |counts| counts.deletes += 1),
            ItemCommand::Arithmetic(_)
            | ItemCommand::Acquire(_)
            | ItemCommand::Release(_)
            | ItemCommand::Lock { .. }
            | ItemCommand::Unlock { .. } => {}
        }
    }

    /// A get of this key that might have waited does not.
    pub(in crate::engine) fn note_get(&mut self, key: &[u8]) {
        self.count(key, |counts| counts.gets += 1);
    }

    /// A get of this key has found an item.
    pub(in crate::engine) fn note_hit(&mut self, key: &[u8]) {
        self.count(key, |counts| counts.hits += 1);
    }

    fn count(&mut self, key: &[u8], change: fn(&mut PrefixCounts)) {
        let Some(end) = memchr::memchr(self.delimiter, key) else {
            return;
        };
        let (prefix, _) = key.split_at(end);
        let Prefixes { counts, order } = &mut self.prefixes;
        if let Some(counts) = counts.get_mut(prefix) {
            change(counts);
        } else if order.len() < PREFIXES_MAX {
            let prefix: Arc<[u8]> = prefix.into();
            order.push(Arc::clone(&prefix));
            change(counts.entry(prefix).or_default());
        }
    }
}

impl Prefixes {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// At most `most` of them, from the one on that came after `from` others.
    pub fn page(&self, from: usize, most: usize) -> impl Iterator<Item = &Arc<[u8]>> {
        self.order.iter().skip(from).take(most)
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn has(&self, prefix: &[u8]) -> bool {
        self.counts.contains_key(prefix)
    }

    /// Adds the counts of another shard for these prefixes.
    pub fn add<'a>(&mut self, prefixes: impl IntoIterator<Item = &'a Arc<[u8]>>, other: &Self) {
        for prefix in prefixes {
            let Some(more) = other.counts.get(prefix) else {
                continue;
            };
            if !self.has(prefix) {
                self.order.push(Arc::clone(prefix));
            }
            let counts = self.counts.entry(Arc::clone(prefix)).or_default();
            counts.gets += more.gets;
            counts.hits += more.hits;
            counts.sets += more.sets;
            counts.deletes += more.deletes;
        }
    }

    /// Adds all counts of another shard.
    pub(in crate::engine) fn add_all(&mut self, other: &Self) {
        self.add(&other.order, other);
    }

    /// A line for each. Bytes that are not printable are written as in a URL.
    #[must_use]
    pub fn lines(&self) -> Vec<StatsLine> {
        let line = |prefix: &[u8], counts: &PrefixCounts| {
            let PrefixCounts {
                gets,
                hits,
                sets,
                deletes,
            } = counts;
            StatsLine {
                name: Cow::Owned(printable(prefix)),
                value: format!("get {gets} hit {hits} set {sets} del {deletes}"),
            }
        };
        self.counts
            .iter()
            .map(|(prefix, counts)| line(prefix, counts))
            .collect()
    }
}

impl<S> Items<S> {
    /// The counts by prefix since that was turned on, or since the last `stats reset`.
    #[must_use]
    pub const fn prefixes(&self) -> &Prefixes {
        &self.detail.prefixes
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use latchd_protocol::command::{Delete, Get, Set};
    use latchd_protocol::key::Key;

    fn counted(commands: &[ItemCommand<'_>]) -> Detail {
        let mut detail = Detail::new(Some(b':'));
        for command in commands {
            detail.note(command);
        }
        detail
    }

    fn shown(prefixes: &Prefixes) -> Vec<std::string::String> {
        let line = |line: StatsLine| format!("{} {}", line.name, line.value);
        prefixes.lines().into_iter().map(line).collect()
    }

    #[test]
    fn counts_of_two_cores_add_up() {
        let key = |name: &'static str| Key::new(name.as_bytes()).expect("it is one");
        let get = |name| ItemCommand::Get(Get::new(key(name)));
        let set = |name| ItemCommand::Set(Set::new(key(name), b"v"));
        let delete = |name| ItemCommand::Delete(Delete::new(key(name)));
        let mut one = counted(&[get("a:1"), get("a:2"), set("a:1"), set("none"), get("b:1")]);
        one.note_hit(b"a:1");
        let waits = ItemCommand::Get(Get {
            wait_ms: 1,
            ..Get::new(key("a:1"))
        });
        let mut other = counted(&[get("a:3"), set("a:3"), set("a:3"), delete("a:3"), waits]);
        for _ in 0..2 {
            other.note_hit(b"a:3");
        }
        let mut all = one.prefixes.clone();
        all.add(other.prefixes.page(0, usize::MAX), &other.prefixes);
        let in_order = all.page(0, usize::MAX).map(|prefix| &prefix[..]);
        assert!(in_order.eq([b"a", b"b"]));
        assert_eq!(all.page(1, 1).count(), 1);
        let expected = ["a get 3 hit 3 set 3 del 1", "b get 1 hit 0 set 0 del 0"];
        assert_eq!(shown(&all), expected);
        assert_eq!(shown(&one.prefixes)[0], "a get 2 hit 1 set 1 del 0");
    }

    #[test]
    fn prefixes_past_the_bound_are_not_counted() {
        let mut detail = Detail::new(Some(b':'));
        for number in 0..=PREFIXES_MAX {
            detail.note_get(format!("{number}:k").as_bytes());
        }
        detail.note_get(b"0:k");
        assert_eq!(detail.prefixes.len(), PREFIXES_MAX);
        assert_eq!(shown(&detail.prefixes)[0], "0 get 2 hit 0 set 0 del 0");
    }
}
