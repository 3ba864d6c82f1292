//! Dumps of all items: `lru_crawler metadump`, `lru_crawler mgdump` and `stats cachedump`.
//!
//! They are listings, like `keys`: a page per step, without expired items, with locked ones, and no snapshot.
//! All items are of one slab class, `1`.
//!
//! Source: memcached 1.6.45 `crawler.c`, `crawler_metadump_eval`, `crawler_mgdump_eval`; `items.c`,
//! `item_cachedump`; `proto_text.c`, `process_lru_crawler_command`, `process_stat`.

use alloc::vec::Vec;

use super::ClassicEnvelope;
use crate::key::KeyForm;
use crate::reply::{KeysPage, Listed};
use crate::uri;
use crate::wire::Envelope;
use crate::wire::allowed::Allowed;
use crate::wire::line::Line;
use crate::wire::meta::{listed_form, put_key};
use crate::wire::scan::{Tokens, is_plain, u32_from};
use crate::wire::status_line::{BAD_FORMAT, put_line, put_number};
use crate::wire::step::{Cursor, ListPlace, Step};

/// The slab class of all items.
const CLASS: u32 = 1;

/// The number of slab classes in memcached, including 0.
const CLASSES: u32 = 64;

/// The form of a page of a dump.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Dump {
    /// `lru_crawler metadump`: a line per item with all its metadata.
    Metadump {
        /// This is the first page.
        is_first: bool,
    },
    /// `lru_crawler mgdump`: the `mg` command for each item.
    Mgdump {
        /// This is the first page.
        is_first: bool,
    },
    /// `stats cachedump`: key, length and exptime, but not of binary keys.
    Cachedump {
        /// The number of items still to show; `None` means all.
        left: Option<u32>,
    },
}

impl Dump {
    /// The number of items of a page to show, and whether it is the last. Counted only if that is limited.
    pub(super) fn shows(self, page: &KeysPage<'_>) -> (u32, bool) {
        let Self::Cachedump { left: Some(left) } = self else {
            return (0, page.next.is_none());
        };
        let shown = page.items.iter().filter(|item| is_shown(item)).count();
        let shown = u32::try_from(shown).unwrap_or(u32::MAX).min(left);
        (shown, shown == left || page.next.is_none())
    }

    /// Appends the lines of a page, and after the last page the end.
    pub(super) fn encode(self, page: &KeysPage<'_>, out: &mut Vec<u8>) {
        let (_, is_last) = self.shows(page);
        let end = match self {
            Self::Metadump { is_first } => {
                put_opening(is_first, out);
                page.items.iter().for_each(|item| put_metadata(item, out));
                "END"
            }
            Self::Mgdump { is_first } => {
                put_opening(is_first, out);
                page.items.iter().for_each(|item| put_mg(item, out));
                "EN"
            }
            Self::Cachedump { left } => {
                let shown = page.items.iter().filter(|item| is_shown(item));
                let items_max = left.map_or(usize::MAX, |left| left as usize);
                shown.take(items_max).for_each(|item| put_size(item, out));
                "END"
            }
        };
        if is_last {
            put_line(out, end);
        }
    }
}

fn put_opening(is_first: bool, out: &mut Vec<u8>) {
    if is_first {
        put_line(out, "OK");
    }
}

/// The blank at its end and the line end without a carriage return are memcached's.
fn put_metadata(item: &Listed<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"key=");
    uri::put(item.key, out);
    out.extend_from_slice(b" exp=");
    match item.expires_unix_s {
        Some(unix_s) => put_number(out, unix_s),
        None => out.extend_from_slice(b"-1"),
    }
    out.extend_from_slice(b" la=");
    put_number(out, item.accessed_unix_s);
    out.extend_from_slice(b" cas=");
    put_number(out, item.cas.number());
    out.extend_from_slice(if item.fetched {
        b" fetch=yes"
    } else {
        b" fetch=no"
    });
    out.extend_from_slice(b" cls=");
    put_number(out, CLASS);
    out.extend_from_slice(b" size=");
    put_number(out, item.memory_bytes);
    out.extend_from_slice(b" flags=");
    put_number(out, item.client_flags);
    out.extend_from_slice(b" \n");
}

fn put_mg(item: &Listed<'_>, out: &mut Vec<u8>) {
    let form = match item.key_form {
        KeyForm::Plain => listed_form(item.key),
        KeyForm::Binary => KeyForm::Binary,
    };
    out.extend_from_slice(b"mg ");
    put_key(item.key, form, out);
    put_line(out, mark(form));
}

/// The text behind a key of this form.
pub(super) const fn mark(form: KeyForm) -> &'static str {
    match form {
        KeyForm::Plain => "",
        KeyForm::Binary => " b",
    }
}

fn put_size(item: &Listed<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ITEM ");
    out.extend_from_slice(item.key);
    out.extend_from_slice(b" [");
    put_number(out, item.value_bytes);
    out.extend_from_slice(b" b; ");
    put_number(out, item.expires_unix_s.unwrap_or(0));
    put_line(out, " s]");
}

/// Whether `cachedump` shows an item. As in memcached, it leaves out keys that are marked as binary, and also
/// keys that a line cannot carry.
fn is_shown(item: &Listed<'_>) -> bool {
    item.key_form == KeyForm::Plain && is_plain(item.key)
}

/// The dump with a name that begins with this argument of `lru_crawler`: memcached compares only that many
/// bytes.
fn named(what: &[u8]) -> Option<fn(bool) -> Dump> {
    if what.is_empty() || b"crawl".starts_with(what) {
        None
    } else if b"metadump".starts_with(what) {
        Some(|is_first| Dump::Metadump { is_first })
    } else if b"mgdump".starts_with(what) {
        Some(|is_first| Dump::Mgdump { is_first })
    } else {
        None
    }
}

/// The step of a line `lru_crawler <what> <classes>`; `None` if it is not a dump.
pub(super) fn decode<'a>(
    what: &[u8],
    classes: &[u8],
    line: Line<'a>,
    allowed: Allowed,
    cursor: &mut Cursor,
) -> Option<Step<'a>> {
    let dump = named(what)?;
    let (refused, empty) = match dump(true) {
        Dump::Metadump { .. } | Dump::Cachedump { .. } => {
            ("ERROR metadump not allowed", "OK\r\nEND")
        }
        Dump::Mgdump { .. } => ("ERROR key dump not allowed", "OK\r\nEN"),
    };
    if !allowed.listing {
        return Some(line.respond(refused));
    }
    Some(match is_ours_among(classes) {
        None => line.respond("BADCLASS invalid class id"),
        Some(false) => line.respond(empty),
        Some(true) => {
            let envelope =
                |place: ListPlace| Envelope::Classic(ClassicEnvelope::Dump(dump(place.is_first)));
            cursor.list(b"", envelope, line.bytes)
        }
    })
}

/// Whether a list of classes (`1,2`, `all`, `hash`) contains the class of all items; `None` if it is not such a
/// list.
fn is_ours_among(classes: &[u8]) -> Option<bool> {
    if matches!(classes, b"all" | b"hash") {
        return Some(true);
    }
    let mut is_ours = false;
    for class in classes.split(|byte| *byte == b',') {
        let class = u32_from(class).filter(|class| (1..CLASSES).contains(class))?;
        is_ours |= class == CLASS;
    }
    Some(is_ours)
}

/// The step of a line `stats cachedump <rest>`.
pub(super) fn decode_cachedump<'a>(
    rest: &[u8],
    line: Line<'a>,
    allowed: Allowed,
    cursor: &mut Cursor,
) -> Step<'a> {
    if !allowed.listing {
        return line.respond("CLIENT_ERROR stats cachedump not allowed");
    }
    let mut words = Tokens::new(rest);
    let (Some(class), Some(limit)) = (words.next(), words.next()) else {
        return line.respond("CLIENT_ERROR bad command line");
    };
    match (u32_from(class), u32_from(limit)) {
        (None, _) | (_, None) => line.respond(BAD_FORMAT),
        (Some(CLASSES..), Some(_)) => line.respond("CLIENT_ERROR Illegal slab id"),
        (Some(CLASS), Some(limit)) => {
            let envelope = |place: ListPlace| {
                let left = (limit > 0).then(|| limit.saturating_sub(place.shown));
                Envelope::Classic(ClassicEnvelope::Dump(Dump::Cachedump { left }))
            };
            cursor.list(b"", envelope, line.bytes)
        }
        (Some(_), Some(_)) => line.respond("END"),
    }
}
