//! Every way in which latchd's answers may differ from a peer's, with the reason.
//!
//! An entry says as exactly as it can when it applies. The reasons are those of docs/PROTOCOL.md;
//! where an entry is the drift of an older memcached, it applies to that dialect only.

use super::Dialect;
use super::reply::{Message, Part};

/// Two answers that differ.
#[derive(Clone, Copy, Debug)]
pub struct Differing<'a> {
    /// The request, as latchd was sent it.
    pub request: &'a [u8],
    /// What the peer answers.
    pub theirs: &'a [Message],
    /// What latchd answers.
    pub ours: &'a [Message],
    /// Who the peer is.
    pub dialect: Dialect,
}

/// One way.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it is called in the report.
    pub id: &'static str,
    /// Why it is so.
    pub reason: &'static str,
    /// Whether it explains a difference.
    pub explains: fn(&Differing<'_>) -> bool,
}

/// Noted by the comparison itself: the time of the last access is coarser on the peer.
pub const ACCESS_TIME: &str = "access-time";
/// Noted by the comparison itself: what an item takes of memory, and where.
pub const ITEM_SIZE: &str = "item-size";

/// Noted by the comparison itself: the TTL of an item that has already expired.
pub const PAST_TTL: &str = "past-ttl";

/// Why the comparison itself lets something through.
pub const NOTES: [(&str, &str); 3] = [
    (
        ACCESS_TIME,
        "memcached notes an access only now and then (items.c, do_item_bump)",
    ),
    (ITEM_SIZE, "slab class and item size are each server's own"),
    (
        PAST_TTL,
        "an item shown as it expires has a TTL of 0; memcached shows 2^32 less some seconds",
    ),
];

/// All of them.
pub const LIST: &[Entry] = &[
    Entry {
        id: "delete-extra-words",
        reason: "delete answers what lies behind the key as 1.6.18 does: 1.6.45 fails memccapable",
        explains: |d| {
            d.dialect == Dialect::Memcached
                && d.verb() == b"delete"
                && d.words() > 2
                && (d.we_say(b"CLIENT_ERROR bad command line format.  Usage") || d.we_say(b"ERROR"))
        },
    },
    Entry {
        id: "opaque-32",
        reason: "an opaque has up to 32 bytes, as the documentation says; the code counts the `O`",
        explains: |d| {
            d.they_say(b"CLIENT_ERROR opaque token too long")
                && d.request_words()
                    .any(|word| word.starts_with(b"O") && word.len() == 33)
        },
    },
    Entry {
        id: "counting-is-no-fetch",
        reason: "a number keeps that it was fetched; memcached forgets when it gains a digit",
        explains: |d| {
            d.verb() == b"mg"
                && d.parts_differ(|theirs, ours| {
                    theirs == &Part::Same(b"h0".to_vec()) && ours == &Part::Same(b"h1".to_vec())
                })
        },
    },
    Entry {
        id: "clear-keeps-win",
        reason: "`md x` hands out no second win for one version (docs/PROTOCOL.md, `md`)",
        explains: |d| d.verb() == b"mg" && d.we_add(b"Z"),
    },
    Entry {
        id: "binary-key-mark",
        reason: "an item that a meta command makes by the way keeps that its key is in base64",
        explains: |d| {
            let base64 = |part: &Part| matches!(part, Part::Same(word) if word.starts_with(b"k"));
            d.request_words().any(|word| word == b"b")
                && d.we_add(b"b")
                && d.ours.iter().flatten().any(base64)
        },
    },
    Entry {
        id: "counting-ends-staleness",
        reason: "counting stores a new value, so it ends win and staleness however long it is",
        explains: |d| d.verb() == b"mg" && d.theirs_only_has(&[b"X", b"W", b"Z"]),
    },
    Entry {
        id: "long-key-in-get",
        reason: "one error line; 1.6.45 sends an empty line behind it",
        explains: |d| {
            d.verb().starts_with(b"g")
                && d.they_say(b"CLIENT_ERROR bad command line format")
                && d.ours == &d.theirs[..1]
        },
    },
    Entry {
        id: "line-too-long",
        reason: "the client is told why the connection closes; memcached closes without a word",
        explains: |d| d.theirs.is_empty() && d.we_say(b"CLIENT_ERROR line too long"),
    },
];

impl<'a> Differing<'a> {
    /// The words of the request's line.
    fn request_words(&self) -> impl Iterator<Item = &'a [u8]> {
        let line = self
            .request
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
    }

    fn words(&self) -> usize {
        self.request_words().count()
    }

    fn verb(&self) -> &'a [u8] {
        self.request_words().next().unwrap_or_default()
    }

    fn we_say(&self, beginning: &[u8]) -> bool {
        says(self.ours, beginning)
    }

    fn they_say(&self, beginning: &[u8]) -> bool {
        says(self.theirs, beginning)
    }

    /// Whether the answers have the same parts but for some, all of which `alike` explains.
    fn parts_differ(&self, alike: fn(&Part, &Part) -> bool) -> bool {
        let theirs: Vec<&Part> = self.theirs.iter().flatten().collect();
        let ours: Vec<&Part> = self.ours.iter().flatten().collect();
        theirs.len() == ours.len()
            && theirs
                .iter()
                .zip(ours)
                .all(|(theirs, ours)| *theirs == ours || alike(theirs, ours))
    }

    /// Whether latchd's answer has this word more than the peer's.
    fn we_add(&self, word: &[u8]) -> bool {
        let has = |messages: &[Message]| messages.iter().flatten().any(|part| is_word(part, word));
        has(self.ours) && !has(self.theirs)
    }

    /// Whether the peer's answer is latchd's and some of these words.
    fn theirs_only_has(&self, words: &[&[u8]]) -> bool {
        let extra = |part: &&Part| words.iter().any(|word| is_word(part, word));
        let theirs: Vec<&Part> = self
            .theirs
            .iter()
            .flatten()
            .filter(|part| !extra(part))
            .collect();
        let ours: Vec<&Part> = self.ours.iter().flatten().collect();
        theirs == ours && self.theirs.iter().flatten().any(|part| extra(&part))
    }
}

fn is_word(part: &Part, word: &[u8]) -> bool {
    matches!(part, Part::Same(bytes) if bytes == word)
}

fn says(messages: &[Message], beginning: &[u8]) -> bool {
    matches!(
        messages.first().map(Vec::as_slice),
        Some([Part::Same(line), ..]) if line.starts_with(beginning)
    )
}
