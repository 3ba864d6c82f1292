//! Lines of meta text: flags in many orders; flags with a meaningful order keep it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latchd_protocol::command::{
    Arithmetic, Delete, Direction, Get, Guard, ItemCommand, Lease, LockAfter, Mode, NewCas,
    ReleaseOf, Removal, Set, SetMode, TtlStep, TtlSteps, Wait,
};
use latchd_protocol::fence::Fence;
use latchd_protocol::key::{Key, KeyForm};
use latchd_protocol::time::Exptime;

use super::{Style, guard_number, put_exptime, put_number};

/// Appends the line of a command that meta text has words for, and its value.
///
/// # Panics
/// If it has none.
pub fn write(command: &ItemCommand<'_>, style: &Style, out: &mut Vec<u8>) {
    match command {
        ItemCommand::Get(get) if !get.bump && !get.recaches => {
            put_verb(out, b"me ", get.key, get.key_form, None);
            out.extend_from_slice(b"\r\n");
        }
        ItemCommand::Get(get) => {
            put_verb(out, b"mg ", get.key, get.key_form, None);
            put_flags(get.steps, style, out, |flags| flags.put_get(get));
            out.extend_from_slice(b"\r\n");
        }
        ItemCommand::Set(set) => {
            put_verb(out, b"ms ", set.key, set.key_form, Some(&set.value));
            put_flags(TtlSteps::NONE, style, out, |flags| {
                flags.put_set(set, style);
            });
            out.extend_from_slice(match set.mode {
                SetMode::Set if style.as_replace => b" MR",
                SetMode::Set if style.says_all => b" MS",
                SetMode::Set => b"",
                SetMode::Add => b" ME",
                SetMode::Replace => b" MR",
                SetMode::Append { .. } => b" MA",
                SetMode::Prepend { .. } => b" MP",
            });
            for part in [&b"\r\n"[..], &set.value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        ItemCommand::Delete(delete) => {
            put_verb(out, b"md ", delete.key, delete.key_form, None);
            put_flags(TtlSteps::NONE, style, out, |flags| {
                flags.put_delete(delete, style);
            });
            out.extend_from_slice(b"\r\n");
        }
        ItemCommand::Arithmetic(sum) => {
            put_verb(out, b"ma ", sum.key, sum.key_form, None);
            put_flags(sum.steps, style, out, |flags| flags.put_sum(sum, style));
            out.extend_from_slice(match (sum.direction, style.says_all) {
                (Direction::Increment, false) => b"\r\n",
                (Direction::Increment, true) => b" MI\r\n",
                (Direction::Decrement, false) => b" MD\r\n",
                (Direction::Decrement, true) => b" M-\r\n",
            });
        }
        ItemCommand::Acquire(acquire) => {
            put_verb(out, b"ml ", acquire.key, KeyForm::Plain, None);
            put_flags(TtlSteps::NONE, style, out, |flags| {
                flags.put(b'F', None);
                match acquire.mode {
                    Mode::Exclusive => {}
                    Mode::Shared { max_sharers } => {
                        flags.put(
                            b'S',
                            max_sharers.map(|max_sharers| max_sharers.get().into()),
                        );
                    }
                }
                if let Some(lease) = acquire.lease {
                    flags.put_lease(lease);
                }
                if let Wait::UpTo { ms } = acquire.wait {
                    flags.put(b'w', Some(ms));
                }
                if acquire.needs_item {
                    flags.put(b'x', None);
                }
                // It changes only the reply of a refusal.
                if style.order & 4 == 0 {
                    flags.put(b'm', None);
                }
                if let Some(metadata) = acquire.metadata {
                    flags.put(b'M', None);
                    let text = STANDARD.encode(metadata.to_bytes());
                    flags.out.extend_from_slice(text.as_bytes());
                }
                // A part of an item is shown by a look at it.
                if acquire.reads_item && !style.reads_item() {
                    flags.put(b's', None);
                }
            });
            out.extend_from_slice(b"\r\n");
        }
        ItemCommand::Release(release) => {
            put_verb(out, b"mu ", release.key, KeyForm::Plain, None);
            put_flags(TtlSteps::NONE, style, out, |flags| match release.of {
                ReleaseOf::Own => {}
                ReleaseOf::OwnGrant(fence) => flags.put(b'F', Some(fence.number())),
                ReleaseOf::Grant(fence) => flags.put(b'G', Some(fence.number())),
            });
            out.extend_from_slice(b"\r\n");
        }
        ItemCommand::SetTooLarge { .. } | ItemCommand::Lock { .. } | ItemCommand::Unlock { .. } => {
            unreachable!("not in meta text")
        }
    }
}

/// Appends the text before the flags, and the flag `b`, which `me` expects right behind the key.
fn put_verb(out: &mut Vec<u8>, verb: &[u8], key: Key<'_>, key_form: KeyForm, value: Option<&[u8]>) {
    out.extend_from_slice(verb);
    match key_form {
        KeyForm::Plain => out.extend_from_slice(key.as_bytes()),
        KeyForm::Binary => out.extend_from_slice(STANDARD.encode(key.as_bytes()).as_bytes()),
    }
    if let Some(value) = value {
        out.push(b' ');
        put_number(out, value.len() as u64);
    }
    if key_form == KeyForm::Binary {
        out.extend_from_slice(b" b");
    }
}

/// Appends the flags for shown parts and those for requests, in one of two orders, so that no flag
/// is always the first.
fn put_flags(
    steps: TtlSteps,
    style: &Style,
    out: &mut Vec<u8>,
    put_asked: impl FnOnce(&mut Flags<'_>),
) {
    let mut flags = Flags::new(steps, style, out);
    if style.order & 2 == 0 {
        flags.put_shown(style);
        put_asked(&mut flags);
    } else {
        put_asked(&mut flags);
        flags.put_shown(style);
    }
    flags.finish();
}

/// The flags of a line: flags with a meaningful order keep it, and the style places the others
/// among them.
struct Flags<'a> {
    out: &'a mut Vec<u8>,
    /// Which of the next flags have one of those in order before them, bit by bit.
    order: u8,
    in_order: [Option<InOrder>; 4],
    next: usize,
}

/// A flag that depends on the flags before it.
#[derive(Clone, Copy, Debug)]
enum InOrder {
    Step(TtlStep),
    /// `t`.
    ShowTtl,
}

impl<'a> Flags<'a> {
    fn new(steps: TtlSteps, style: &Style, out: &'a mut Vec<u8>) -> Self {
        let mut in_order = [None; 4];
        let mut places = in_order.iter_mut();
        let mut put = |flag| *places.next().expect("three steps and one `t`") = Some(flag);
        let shown_after = style.ttl_after.map(usize::from);
        if shown_after == Some(0) {
            put(InOrder::ShowTtl);
        }
        for (taken, step) in steps.iter().enumerate() {
            put(InOrder::Step(step));
            if shown_after == Some(taken + 1) {
                put(InOrder::ShowTtl);
            }
        }
        Self {
            out,
            order: style.order,
            in_order,
            next: 0,
        }
    }

    /// Writes a flag, and perhaps one of those in order before it.
    fn put(&mut self, letter: u8, token: Option<u64>) {
        if self.order & 1 != 0 {
            self.put_in_order();
        }
        self.order = self.order.rotate_right(1);
        self.out.extend_from_slice(&[b' ', letter]);
        if let Some(token) = token {
            put_number(self.out, token);
        }
    }

    fn put_in_order(&mut self) {
        let Some(flag) = self.in_order.get(self.next).copied().flatten() else {
            return;
        };
        self.next += 1;
        match flag {
            InOrder::ShowTtl => self.out.extend_from_slice(b" t"),
            InOrder::Step(TtlStep::Touch(exptime)) => put_exptime(self.out, b" T", exptime),
            InOrder::Step(TtlStep::Vivify(exptime)) => put_exptime(self.out, b" N", exptime),
            InOrder::Step(TtlStep::Recache(exptime)) => put_exptime(self.out, b" R", exptime),
        }
    }

    /// Writes those in order that are left.
    fn finish(mut self) {
        for _ in 0..self.in_order.len() {
            self.put_in_order();
        }
    }

    fn put_shown(&mut self, style: &Style) {
        for (given, letter) in [
            (style.with_cas, b'c'),
            (style.with_key, b'k'),
            (style.with_value, b'v'),
            (style.with_client_flags, b'f'),
            (style.quiet, b'q'),
        ] {
            if given {
                self.put(letter, None);
            }
        }
        if let Some(opaque) = style.opaque {
            self.put(b'O', Some(opaque.into()));
        }
    }

    fn put_get(&mut self, get: &Get<'_>) {
        self.put_versions(get.known_cas.map_or(Guard::None, Guard::Match), get.new_cas);
        if !get.bump {
            self.put(b'u', None);
        }
        if get.bound_to_owner {
            self.put(b'B', None);
        }
        if get.wait_ms > 0 {
            self.put(b'w', Some(get.wait_ms));
        }
    }

    fn put_lease(&mut self, lease: Lease) {
        match lease {
            Lease::Off => self.out.extend_from_slice(b" T-1"),
            Lease::For { ms } => {
                self.put(b'T', Some(ms / 1000));
                if ms % 1000 > 0 {
                    let decimals = format!(".{:03}", ms % 1000);
                    self.out.extend_from_slice(decimals.as_bytes());
                }
            }
        }
    }

    fn put_right(&mut self, fence: Option<Fence>, lock: LockAfter) {
        if let Some(fence) = fence {
            self.put(b'G', Some(fence.number()));
        }
        if lock == LockAfter::Release {
            self.put(b'U', None);
        }
    }

    fn put_set(&mut self, set: &Set<'_>, style: &Style) {
        self.put_right(set.fence, set.lock);
        self.put_versions(set.guard, set.new_cas);
        self.put_client_flags(set.client_flags, style.says_all);
        if let Guard::MatchElseStale(_) = set.guard {
            self.put(b'I', None);
        }
        if set.mode.creates() {
            put_exptime(self.out, b" N", set.exptime);
        } else {
            self.put_exptime(set.exptime, style);
        }
    }

    fn put_delete(&mut self, delete: &Delete<'_>, style: &Style) {
        self.put_right(delete.fence, delete.lock);
        self.put_versions(delete.guard, delete.new_cas);
        match delete.removal {
            Removal::Remove => {}
            Removal::MarkStale { exptime } => {
                self.put(b'I', None);
                // Without `T` the TTL stays, and does not end.
                if let Some(exptime) = exptime {
                    put_exptime(self.out, b" T", exptime);
                }
            }
            Removal::Clear {
                exptime,
                client_flags,
            } => {
                self.put_client_flags(client_flags, false);
                self.put(b'x', None);
                self.put_exptime(exptime, style);
            }
            Removal::ClearAndMarkStale {
                exptime,
                client_flags,
            } => {
                self.put_client_flags(client_flags, false);
                self.put(b'x', None);
                self.put(b'I', None);
                self.put_exptime(exptime, style);
            }
        }
    }

    fn put_sum(&mut self, sum: &Arithmetic<'_>, style: &Style) {
        self.put_right(sum.fence, sum.lock);
        self.put_versions(sum.guard, sum.new_cas);
        if sum.delta != 1 || style.says_all {
            self.put(b'D', Some(sum.delta));
        }
        if sum.initial != 0 || style.says_all {
            self.put(b'J', Some(sum.initial));
        }
    }

    fn put_versions(&mut self, guard: Guard, new_cas: NewCas) {
        if let Some(cas) = guard_number(guard) {
            self.put(b'C', Some(cas));
        }
        if let NewCas::Is(cas) = new_cas {
            self.put(b'E', Some(cas.number()));
        }
    }

    fn put_client_flags(&mut self, client_flags: u32, says_all: bool) {
        if client_flags != 0 || says_all {
            self.put(b'F', Some(client_flags.into()));
        }
    }

    fn put_exptime(&mut self, exptime: Exptime, style: &Style) {
        if exptime != Exptime::Never || style.says_all {
            put_exptime(self.out, b" T", exptime);
        }
    }
}
