//! Every way in which latchd's answers may differ from a peer's, with the reason.
//!
//! An entry says as exactly as possible when it applies. The reasons are those of docs/PROTOCOL.md;
//! an entry for the behaviour of an older memcached applies to that dialect only.

use latchd_harness::transcript::Dialect;
use latchd_protocol::wire::binary::Opcode as O;

use super::reply::{Message, Part};
use super::run::is_same_ttl;

/// Two answers that differ.
#[derive(Clone, Copy, Debug)]
pub struct Differing<'a> {
    /// The request, as latchd got it.
    pub request: &'a [u8],
    /// The peer's answers.
    pub theirs: &'a [Message],
    /// latchd's answers.
    pub ours: &'a [Message],
    /// The kind of peer.
    pub dialect: Dialect,
    /// How many seconds the times that the two tell may be apart.
    pub apart_s: u64,
    /// The entry that the request itself names.
    pub allows: Option<&'static str>,
}

/// One allowed difference.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name in the report.
    pub id: &'static str,
    /// The reason for the difference.
    pub reason: &'static str,
    /// Whether it explains a difference.
    pub explains: fn(&Differing<'_>) -> bool,
}

/// Noted by the comparison itself: the time of the last access is coarser on the peer.
pub const ACCESS_TIME: &str = "access-time";
/// Noted by the comparison itself: the bytes of an item, and its slab class.
pub const ITEM_SIZE: &str = "item-size";

/// Noted by the comparison itself: the TTL of an item that has already expired.
pub const PAST_TTL: &str = "past-ttl";

/// The reason why the comparison itself allows a difference.
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
        reason: "delete answers arguments behind the key as 1.6.18 does: 1.6.45 fails memccapable",
        explains: |d| {
            d.dialect == Dialect::Memcached1645
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
            (d.allows == Some("counting-is-no-fetch") || d.verb() == b"me")
                && d.parts_differ(|theirs, ours| {
                    is_word(theirs, b"h0") && is_word(ours, b"h1")
                        || is_word(theirs, b"fetch=no") && is_word(ours, b"fetch=yes")
                        || matches!((theirs, ours), (Part::Cas(_), Part::Cas(_)))
                        || matches!((theirs, ours), (Part::Size(_), Part::Size(_)))
                })
        },
    },
    Entry {
        id: "clear-keeps-win",
        reason: "`md x` hands out no second win for one version (docs/PROTOCOL.md, `md`)",
        explains: |d| d.allows == Some("clear-keeps-win") && d.we_add(b"Z"),
    },
    Entry {
        id: "binary-key-mark",
        reason: "an item that a meta command makes by the way keeps that its key is in base64",
        explains: |d| {
            let base64 = |part: &Part| matches!(part, Part::Same(word) if word.starts_with(b"k"));
            d.allows == Some("binary-key-mark")
                && d.we_add(b"b")
                && d.ours.iter().flatten().any(base64)
        },
    },
    Entry {
        id: "counting-keeps-staleness",
        reason: "a number derived from one that is out of date is out of date; memcached forgets \
                 that, and the win, when it gains a digit",
        explains: |d| {
            d.allows == Some("counting-keeps-staleness") && d.we_only_add(&[b"X", b"W", b"Z"])
        },
    },
    Entry {
        id: "counting-loses-flags",
        reason: "`T` and `E` of `ma` hold for the item as it is then; memcached sets them on the \
                 item that was there before the number gained a digit",
        explains: |d| d.allows == Some("counting-loses-flags") && d.verb() == b"mg",
    },
    Entry {
        id: "exptime-beyond-32-bits",
        reason: "a date far away is that date; memcached keeps the low 32 bits, a date in 2008",
        explains: |d| d.allows == Some("exptime-beyond-32-bits") && d.verb() == b"get",
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
        id: "old-error-wording",
        reason: "1.6.40 made many an `ERROR` a `CLIENT_ERROR bad command line format`",
        explains: |d| {
            d.is_old() && d.theirs.len() == d.ours.len() && d.begin_alike_but_for_wording()
        },
    },
    Entry {
        id: "old-body-as-commands",
        reason: "before 1.6.40 the body behind a bad request line was read as commands",
        explains: |d| {
            d.is_old()
                && d.theirs.len() > d.ours.len()
                && says(d.ours, b"CLIENT_ERROR")
                && d.begin_alike_but_for_wording()
                && d.theirs[d.ours.len()..]
                    .iter()
                    .all(|extra| is_line(extra, b"ERROR"))
        },
    },
    Entry {
        id: "old-debug-ttl",
        reason: "before 1.6.40 `me` showed a TTL below 0",
        explains: |d| {
            d.is_old()
                && d.verb() == b"me"
                && d.parts_differ(|theirs, ours| match (theirs, ours) {
                    (Part::Ttl(theirs), Part::Ttl(ours)) => theirs.abs_diff(-*ours) <= 1,
                    (Part::Cas(_), Part::Cas(_))
                    | (Part::Size(_), Part::Size(_))
                    | (Part::Age(_), Part::Age(_)) => true,
                    _ => is_word(theirs, b"fetch=no") && is_word(ours, b"fetch=yes"),
                })
        },
    },
    Entry {
        id: "old-quiet-create",
        reason: "before 1.6.40 `ma N q` answered when it made the item",
        explains: |d| d.is_old() && d.verb() == b"ma" && d.they_say(b"HD") && d.ours.is_empty(),
    },
    Entry {
        id: "old-flag-errors",
        reason: "1.6.40 gave `md` errors of its own, and `ma` and unknown flags others than before",
        explains: |d| {
            d.is_old()
                && d.verb().starts_with(b"m")
                && (d.they_say(b"CLIENT_ERROR invalid or duplicate flag")
                    || d.they_say(b"CLIENT_ERROR invalid flag")
                    || d.verb() == b"ma" && d.they_say(b"CLIENT_ERROR bad command line format"))
                && d.we_say(b"CLIENT_ERROR")
        },
    },
    Entry {
        id: "old-mode-length",
        reason: "before 1.6.40 a mode of no or several letters was an error of its own",
        explains: |d| {
            d.is_old()
                && d.they_say(b"CLIENT_ERROR incorrect length for M token")
                && d.we_say(b"CLIENT_ERROR invalid mode for ms M token")
        },
    },
    Entry {
        id: "old-verbosity",
        reason: "before 1.6.40 `verbosity` took one word",
        explains: |d| d.is_old() && d.verb() == b"verbosity" && d.words() > 2 && d.we_say(b"OK"),
    },
    Entry {
        id: "old-gat-without-key",
        reason: "before 1.6.40 `gat` without a key found none",
        explains: |d| d.is_old() && d.verb() == b"gat" && d.words() == 2 && d.they_say(b"END"),
    },
    Entry {
        id: "old-leading-blanks",
        reason: "before 1.6.40 blanks before a command did not matter",
        explains: |d| d.is_old() && d.request.starts_with(b" ") && d.we_say(b"ERROR"),
    },
    Entry {
        id: "binary-unknown-with-body",
        reason: "an unknown command is read past whole; memcached then waits for its body once more",
        explains: |d| {
            d.is_binary()
                && d.theirs.len() == 1
                && d.theirs.first() == d.ours.first()
                && d.theirs
                    .first()
                    .is_some_and(|message| status(message) == Some(0x81))
        },
    },
    Entry {
        id: "binary-verbosity",
        reason: "verbosity is a command of the binary protocol; memcached does not know it",
        explains: |d| {
            d.is_packet(O::Verbosity)
                && d.theirs
                    .first()
                    .is_some_and(|message| status(message) == Some(0x81))
                && d.ours
                    .first()
                    .is_some_and(|message| status(message) == Some(0))
        },
    },
    Entry {
        id: "yrmcds-binary-append",
        reason: "an append to nothing is `Not stored`, as in memcached; yrmcds says `Not found`",
        explains: |d| {
            const APPENDS: [O; 4] = [O::Append, O::AppendQ, O::Prepend, O::PrependQ];
            d.dialect == Dialect::Yrmcds
                && APPENDS.into_iter().any(|opcode| d.is_packet(opcode))
                && d.statuses() == Some((0x0001, 0x0005))
        },
    },
    Entry {
        id: "yrmcds-error-words",
        reason: "the text beside a status is memcached's, the key of a missed GetK included",
        explains: |d| {
            d.dialect == Dialect::Yrmcds
                && d.statuses()
                    .is_some_and(|(theirs, ours)| theirs == ours && theirs != 0)
        },
    },
    Entry {
        id: "yrmcds-touch-flags",
        reason: "Touch answers with the client flags, as memcached does",
        explains: |d| {
            d.dialect == Dialect::Yrmcds && d.is_packet(O::Touch) && d.statuses() == Some((0, 0))
        },
    },
    Entry {
        id: "yrmcds-quiet-delete",
        reason: "DeleteQ reports a miss, as memcached does",
        explains: |d| d.only_we_say_not_found(O::DeleteQ),
    },
    Entry {
        id: "yrmcds-lagkq-miss",
        reason: "LaGKQ reports a miss, as the lock specification has it",
        explains: |d| d.only_we_say_not_found(O::LaGKQ),
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

    fn is_old(&self) -> bool {
        self.dialect == Dialect::Memcached1618
    }

    fn is_binary(&self) -> bool {
        self.request.first() == Some(&0x80)
    }

    fn is_packet(&self, opcode: O) -> bool {
        self.is_binary() && self.request.get(1) == Some(&opcode.byte())
    }

    /// The statuses of both, if each gives one answer.
    fn statuses(&self) -> Option<(u16, u16)> {
        match (self.theirs, self.ours) {
            ([theirs], [ours]) => Some((status(theirs)?, status(ours)?)),
            _ => None,
        }
    }

    /// Whether yrmcds is silent on a miss of this command, and latchd is not.
    fn only_we_say_not_found(&self, opcode: O) -> bool {
        self.dialect == Dialect::Yrmcds
            && self.is_packet(opcode)
            && self.theirs.is_empty()
            && matches!(self.ours, [message] if status(message) == Some(0x0001))
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

    /// Whether the peer's first answers are latchd's, or `ERROR` where latchd says more.
    fn begin_alike_but_for_wording(&self) -> bool {
        self.theirs.len() >= self.ours.len()
            && self.theirs.iter().zip(self.ours).all(|(theirs, ours)| {
                theirs == ours
                    || is_line(theirs, b"ERROR")
                        && is_line(ours, b"CLIENT_ERROR bad command line format")
            })
    }

    /// Whether the answers have the same parts except for some, all of which `alike` explains.
    fn parts_differ(&self, alike: fn(&Part, &Part) -> bool) -> bool {
        let theirs: Vec<&Part> = self.theirs.iter().flatten().collect();
        let ours: Vec<&Part> = self.ours.iter().flatten().collect();
        theirs.len() == ours.len()
            && theirs.iter().zip(ours).all(|(theirs, ours)| {
                let is_same = match (theirs, ours) {
                    (Part::Ttl(theirs), Part::Ttl(ours)) => {
                        is_same_ttl(*theirs, *ours, self.apart_s)
                    }
                    // That an access is noted now and then only is no difference either ([`ACCESS_TIME`]).
                    (Part::Age(theirs), Part::Age(ours)) => {
                        *ours <= theirs.saturating_add_unsigned(self.apart_s)
                    }
                    _ => *theirs == ours,
                };
                is_same || alike(theirs, ours)
            })
    }

    /// Whether latchd's answer has this word more than the peer's.
    fn we_add(&self, word: &[u8]) -> bool {
        let has = |messages: &[Message]| messages.iter().flatten().any(|part| is_word(part, word));
        has(self.ours) && !has(self.theirs)
    }

    /// Whether latchd's answer is the peer's and some of these words.
    fn we_only_add(&self, words: &[&[u8]]) -> bool {
        let extra = |part: &&Part| words.iter().any(|word| is_word(part, word));
        let rest: Vec<&Part> = self
            .ours
            .iter()
            .flatten()
            .filter(|part| !extra(part))
            .collect();
        let theirs: Vec<&Part> = self.theirs.iter().flatten().collect();
        theirs == rest && self.ours.iter().flatten().any(|part| extra(&part))
    }
}

fn is_word(part: &Part, word: &[u8]) -> bool {
    matches!(part, Part::Same(bytes) if bytes == word)
}

/// The status of a binary answer.
fn status(message: &Message) -> Option<u16> {
    match message.first() {
        Some(Part::Same(header)) if header.first() == Some(&0x81) => {
            Some(u16::from_be_bytes(header.get(6..8)?.try_into().ok()?))
        }
        _ => None,
    }
}

fn is_line(message: &Message, line: &[u8]) -> bool {
    matches!(message.as_slice(), [part] if is_word(part, line))
}

fn says(messages: &[Message], beginning: &[u8]) -> bool {
    matches!(
        messages.first().map(Vec::as_slice),
        Some([Part::Same(line), ..]) if line.starts_with(beginning)
    )
}
