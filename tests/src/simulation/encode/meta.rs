//! The lines of meta text: flags in many orders, and those whose order says something in theirs.

use latchd_core::command::{Guard, TtlStep};
use latchd_core::time::Exptime;
use latchd_harness::alphabet::{SmallGet, SmallRequest, SmallSet};

use super::super::ask::{Ask, What};
use super::super::names::Names;
use super::{amounts, guard_number, write_body, write_exptime, write_number};

/// Appends the line of a request, and its value.
pub(super) fn encode(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    let verb: &[u8] = match ask.what {
        What::Get => b"mg ",
        What::Set | What::Add | What::Replace | What::Append | What::Prepend => b"ms ",
        What::Delete | What::MarkStale | What::Clear | What::ClearAndMarkStale => b"md ",
        What::Increment | What::Decrement => b"ma ",
        What::Debug => b"me ",
        What::Noop => return out.extend_from_slice(b"mn\r\n"),
        _ => unreachable!("not in meta text"),
    };
    out.extend_from_slice(verb);
    out.extend_from_slice(if ask.is_in_base64() {
        names.base64(ask.key())
    } else {
        names.plain(ask.key())
    });
    if ask.stores() {
        out.push(b' ');
        write_number(out, ask.text.bytes() as u64);
    }
    if ask.is_in_base64() {
        out.extend_from_slice(b" b");
    }
    if ask.what != What::Debug {
        // Two ways round, so that no flag is always the first.
        let mut flags = Flags::new(ask, out);
        if ask.style & 2 == 0 {
            put_what_is_shown(ask, &mut flags);
            put_what_is_asked(ask, &mut flags);
        } else {
            put_what_is_asked(ask, &mut flags);
            put_what_is_shown(ask, &mut flags);
        }
        flags.finish();
        write_mode(ask, out);
    }
    out.extend_from_slice(b"\r\n");
    write_body(ask, out);
}

/// The flags of a meta line: those whose place says something in their order, and the others where
/// the style of the request has them.
struct Flags<'a> {
    out: &'a mut Vec<u8>,
    /// Which of the next flags have one of those in order before them, bit by bit.
    style: u8,
    in_order: [Option<InOrder>; 4],
    next: usize,
}

/// A flag to which it matters what stands before it.
#[derive(Clone, Copy, Debug)]
enum InOrder {
    Step(TtlStep),
    /// `t`.
    ShowTtl,
}

impl<'a> Flags<'a> {
    fn new(ask: &Ask, out: &'a mut Vec<u8>) -> Self {
        let mut in_order = [None; 4];
        let mut places = in_order.iter_mut();
        let mut put = |flag| *places.next().expect("three steps and one `t`") = Some(flag);
        let shown_after = ask.ttl_after.map(usize::from);
        if shown_after == Some(0) {
            put(InOrder::ShowTtl);
        }
        for (taken, step) in ask.steps().iter().enumerate() {
            put(InOrder::Step(step));
            if shown_after == Some(taken + 1) {
                put(InOrder::ShowTtl);
            }
        }
        Self {
            out,
            style: ask.style,
            in_order,
            next: 0,
        }
    }

    /// Writes a flag, and perhaps one of those in order before it.
    fn put(&mut self, letter: u8, token: Option<u64>) {
        if self.style & 1 != 0 {
            self.put_in_order();
        }
        self.style = self.style.rotate_right(1);
        self.out.extend_from_slice(&[b' ', letter]);
        if let Some(token) = token {
            write_number(self.out, token);
        }
    }

    fn put_exptime(&mut self, letter: u8, exptime: Exptime) {
        self.out.extend_from_slice(&[b' ', letter]);
        write_exptime(self.out, exptime);
    }

    fn put_in_order(&mut self) {
        let Some(flag) = self.in_order.get(self.next).copied().flatten() else {
            return;
        };
        self.next += 1;
        match flag {
            InOrder::ShowTtl => self.out.extend_from_slice(b" t"),
            InOrder::Step(TtlStep::Touch(exptime)) => self.put_exptime(b'T', exptime),
            InOrder::Step(TtlStep::Vivify(exptime)) => self.put_exptime(b'N', exptime),
            InOrder::Step(TtlStep::Recache(exptime)) => self.put_exptime(b'R', exptime),
        }
    }

    /// Writes those in order that are left.
    fn finish(mut self) {
        for _ in 0..self.in_order.len() {
            self.put_in_order();
        }
    }
}

fn put_what_is_shown(ask: &Ask, flags: &mut Flags<'_>) {
    for (given, letter) in [
        (ask.with_cas, b'c'),
        (ask.with_key, b'k'),
        (ask.with_value, b'v'),
        (ask.with_client_flags, b'f'),
        (ask.quiet, b'q'),
    ] {
        if given {
            flags.put(letter, None);
        }
    }
    flags.put(b'O', Some(ask.number.into()));
}

fn put_what_is_asked(ask: &Ask, flags: &mut Flags<'_>) {
    // Written at times though it goes without saying.
    let says_all = ask.style & 4 == 0;
    if let Some(cas) = guard_number(ask.guard()).or(ask.known_cas()) {
        flags.put(b'C', Some(cas));
    }
    if let Some(cas) = ask.new_cas() {
        flags.put(b'E', Some(cas));
    }
    if let Some(SmallRequest::Get(SmallGet { bump: false, .. })) = ask.request {
        flags.put(b'u', None);
    }
    if ask.client_flags() != 0 || says_all && ask.stores() {
        flags.put(b'F', Some(ask.client_flags().into()));
    }
    if matches!(ask.what, What::Clear | What::ClearAndMarkStale) {
        flags.put(b'x', None);
    }
    if matches!(ask.what, What::MarkStale | What::ClearAndMarkStale)
        || matches!(ask.guard(), Guard::MatchElseStale(_))
    {
        flags.put(b'I', None);
    }
    if ask.counts() {
        let (delta, initial) = amounts(ask);
        if delta != 1 || says_all {
            flags.put(b'D', Some(delta));
        }
        if initial != 0 || says_all {
            flags.put(b'J', Some(initial));
        }
    }
    if ask.stores() || ask.removes() {
        let creates =
            matches!(ask.request, Some(SmallRequest::Set(SmallSet { mode, .. })) if mode.creates());
        match ask.exptime() {
            Some(exptime) if creates => flags.put_exptime(b'N', exptime),
            // `md I` without `T` leaves the TTL, all others have none then.
            Some(Exptime::Never) if ask.what != What::MarkStale && !says_all => {}
            Some(exptime) => flags.put_exptime(b'T', exptime),
            None => {}
        }
    }
}

fn write_mode(ask: &Ask, out: &mut Vec<u8>) {
    let says_all = ask.style & 4 == 0;
    let mode: &[u8] = match ask.what {
        What::Set if says_all => b" MS",
        What::Add => b" ME",
        What::Replace => b" MR",
        What::Append => b" MA",
        What::Prepend => b" MP",
        What::Increment if says_all => b" MI",
        What::Decrement if says_all => b" M-",
        What::Decrement => b" MD",
        _ => b"",
    };
    out.extend_from_slice(mode);
}
