//! A command as a client writes it: as a line of classic or meta text, or as a packet.
//!
//! The inverse of a server's decoders, for callers that start from a command: the clients of the
//! simulation, a model's path as a transcript, and the test that clients can ask for every request
//! of the alphabet. Text is put together here and not by the core's own encoders. A server also
//! meets forms that the encoders leave out: flags in other orders, and options that state a
//! default.
//!
//! - W1: a written request is understood as the command it was written from.
//!
//! Source: docs/PROTOCOL.md.

mod classic;
mod meta;
mod packet;
mod translate;

use std::io::Write as _;

use latchd_protocol::command::{Command, Guard, ItemCommand, Set};
use latchd_protocol::time::Exptime;

use crate::alphabet::{Meaning, SmallRequest};

pub use classic::write as classic;
pub use meta::write as meta;
pub use packet::packet;
pub use translate::{at_moment, nearest};

/// The protocol of a client. Classic and meta text may be mixed on a connection; packets stand
/// alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// Classic text.
    Classic,
    /// Text with flags.
    Meta,
    /// Packets.
    Binary,
}

/// How a request is written where its protocol leaves a choice, and the parts that its answer
/// shows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of a request, and they are independent"
)]
pub struct Style {
    /// `noreply`, `q`, or a quiet opcode.
    pub quiet: bool,
    /// The answer shows the item's version.
    pub with_cas: bool,
    /// The value is to be shown; if not, a request that touches an item is a `touch`, except in
    /// meta text.
    pub with_value: bool,
    /// The answer shows the key.
    pub with_key: bool,
    /// Meta: the answer shows the client flags.
    pub with_client_flags: bool,
    /// Meta: the steps after which the answer shows the TTL.
    pub ttl_after: Option<u8>,
    /// A guarded set is written as a guarded replace, which is the same.
    pub as_replace: bool,
    /// Meta: the value of `O`.
    pub opaque: Option<u32>,
    /// Meta: flags that state a default are written too.
    pub says_all: bool,
    /// Chooses among several ways to write the same, by its bits.
    pub order: u8,
}

impl Style {
    /// Whether the answer shows any part of an item.
    const fn reads_item(&self) -> bool {
        self.with_cas || self.with_value || self.with_client_flags || self.ttl_after.is_some()
    }

    /// Whether the exptime of a flush is left out; it may also be written for an immediate one.
    fn leaves_out(&self, exptime: Exptime) -> bool {
        exptime == Exptime::Never && self.order & 1 == 0
    }
}

/// The request in text, in classic text where that has words for it; `None` if neither has.
/// A value that is too large has one byte more than `value_bytes_max`.
pub fn text<'a>(
    request: &SmallRequest,
    meaning: &impl Meaning<'a>,
    value_bytes_max: usize,
) -> Option<Vec<u8>> {
    let says = |protocol| nearest(request, protocol) == Some(*request);
    let mut out = Vec::new();
    let mut style = Style::default();
    if let SmallRequest::SetTooLarge { key } = request {
        let value = vec![b'x'; value_bytes_max + 1];
        let set = Command::from(Set::new(meaning.key(*key), &value));
        classic(&set, &[], &style, &mut out);
    } else if says(Protocol::Classic) {
        style.with_cas = true;
        classic(&request.lower(meaning), &[], &style, &mut out);
    } else if let (true, Command::Item(command)) = (says(Protocol::Meta), request.lower(meaning)) {
        style.with_value = matches!(command, ItemCommand::Get(_) | ItemCommand::Arithmetic(_));
        style.with_cas = style.with_value;
        meta(&command, &style, &mut out);
    } else {
        return None;
    }
    Some(out)
}

/// The request as a packet, which is appended to `out`; `None` if the binary protocol has none for
/// it.
pub fn binary<'a>(
    request: &SmallRequest,
    meaning: &impl Meaning<'a>,
) -> Option<latchd_protocol::wire::binary::RequestPacket<'a>> {
    (nearest(request, Protocol::Binary) == Some(*request)).then_some(())?;
    packet(&request.lower(meaning), &Style::default())
}

/// Appends a number in decimal digits.
///
/// # Panics
/// Unreachable: writing to a vector cannot fail.
pub fn put_number(out: &mut Vec<u8>, number: impl Into<i128>) {
    write!(out, "{}", number.into()).expect("writing to a vector cannot fail");
}

/// Appends the prefix of an exptime, and its number.
fn put_exptime(out: &mut Vec<u8>, before: &[u8], exptime: Exptime) {
    out.extend_from_slice(before);
    put_number(out, exptime.to_wire());
}

/// The number behind a `C` or a `cas`, if there is one.
fn guard_number(guard: Guard) -> Option<u64> {
    match guard {
        Guard::None => None,
        Guard::Match(cas) | Guard::MatchElseStale(cas) => Some(cas.number()),
        Guard::Never => Some(0),
    }
}
