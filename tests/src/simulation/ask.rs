//! A request of a simulated client, before it is bytes: what it asks for, in which protocol, and
//! how it wants to be answered.
//!
//! It is a small plain value, so that a client can remember what it waits for, and the journal what
//! happened, without allocating.

/// The protocol of a connection. Classic and meta text may be mixed on one; binary stands alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wire {
    Classic,
    Meta,
    Binary,
}

/// What is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// `get`, `gets`, `mg`, `Get…`; several keys in classic text. With `exptime`, `gat`.
    Get,
    Touch,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    /// Binary only: replace-and-unlock.
    ReplaceAndUnlock,
    Delete,
    /// Meta only: `md I`.
    MarkStale,
    /// Meta only: `md x`.
    Clear,
    /// Meta only: `md x I`.
    ClearAndMarkStale,
    Increment,
    Decrement,
    Lock,
    /// Binary only.
    LockAndGet,
    Unlock,
    UnlockAll,
    /// `flush_all`, with `exptime` as its delay.
    Flush,
    Keys,
    Stats,
    /// Meta only: `me`.
    Debug,
    Version,
    /// `mn`, `Noop`: what stands before it has been answered.
    Noop,
    /// No command of this protocol: an error, and nothing else happens.
    Unknown,
    /// A body of another length than announced, with a line end where the next line is to begin.
    BadBody,
    /// The last request: `quit`.
    Quit,
    /// A line without an end, or a packet that does not begin as one: the server is to close.
    Nonsense,
}

/// What a value consists of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Text {
    /// Letters that no other value has.
    Letters { tag: u32, bytes: u16 },
    /// Decimal digits.
    Digits(u32),
}

/// The most keys in one `get`.
pub(super) const KEYS_MAX: usize = 6;

/// One request.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of a request, and they are independent"
)]
pub(super) struct Ask {
    pub(super) what: What,
    pub(super) wire: Wire,
    /// Of `keys`, those that are asked for; one but for a classic get.
    pub(super) key_count: u8,
    /// Numbers of keys.
    pub(super) keys: [u8; KEYS_MAX],
    pub(super) text: Text,
    /// In seconds from now; `None` if the request says nothing.
    pub(super) exptime: Option<i32>,
    /// `N`, and the exptime of a binary number that may be made.
    pub(super) vivify: Option<u16>,
    /// `R`.
    pub(super) recache: Option<u16>,
    /// The version to compare with; 0 for none.
    pub(super) guard: u64,
    /// With `guard`: `I`.
    pub(super) else_stale: bool,
    /// The item's version is to be shown.
    pub(super) with_cas: bool,
    /// The value is to be shown.
    pub(super) with_value: bool,
    /// The key is to be shown, and (meta) is written in base64.
    pub(super) with_key: bool,
    pub(super) in_base64: bool,
    /// `noreply`, `q`, or a quiet opcode.
    pub(super) quiet: bool,
    pub(super) delta: u32,
    pub(super) initial: u64,
    /// Its number on its connection; what `O` and the opaque of a packet say.
    pub(super) number: u32,
    /// Where in the bytes of its connection it begins and ends.
    pub(super) start: u64,
    pub(super) end: u64,
    /// It has been answered (or passed over in silence), though its bytes are not all done with.
    pub(super) answered: bool,
    /// Of a classic get: how many keys are answered.
    pub(super) keys_answered: u8,
}

impl Ask {
    pub(super) const fn new(what: What, wire: Wire) -> Self {
        Self {
            what,
            wire,
            key_count: 1,
            keys: [0; KEYS_MAX],
            text: Text::Digits(0),
            exptime: None,
            vivify: None,
            recache: None,
            guard: 0,
            else_stale: false,
            with_cas: false,
            with_value: false,
            with_key: false,
            in_base64: false,
            quiet: false,
            delta: 0,
            initial: 0,
            number: 0,
            start: 0,
            end: 0,
            answered: false,
            keys_answered: 0,
        }
    }

    pub(super) const fn key(&self) -> usize {
        self.keys[0] as usize
    }

    /// It carries a value.
    pub(super) const fn stores(&self) -> bool {
        matches!(
            self.what,
            What::Set
                | What::Add
                | What::Replace
                | What::Append
                | What::Prepend
                | What::ReplaceAndUnlock
                | What::BadBody
        )
    }

    /// `noreply`: nothing is ever sent.
    pub(super) fn is_unanswered(&self) -> bool {
        self.quiet && self.wire == Wire::Classic
    }

    /// The client means the connection to end.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self.what, What::Quit | What::Nonsense)
    }

    /// Whether a client that sends it may not count on the lock of `key` any more. A value over
    /// `value_bytes_max` takes the item away, and its lock with it.
    pub(super) fn gives_up_lock(&self, key: usize, value_bytes_max: usize) -> bool {
        match self.what {
            What::UnlockAll | What::Quit | What::Nonsense => true,
            What::Unlock | What::ReplaceAndUnlock | What::Delete => self.key() == key,
            What::Set | What::Add | What::Replace | What::Append | What::Prepend => {
                self.key() == key && self.text.bytes() > value_bytes_max
            }
            What::Get
            | What::Touch
            | What::MarkStale
            | What::Clear
            | What::ClearAndMarkStale
            | What::Increment
            | What::Decrement
            | What::Lock
            | What::LockAndGet
            | What::Flush
            | What::Keys
            | What::Stats
            | What::Debug
            | What::Version
            | What::Noop
            | What::Unknown
            | What::BadBody => false,
        }
    }
}

impl Text {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Letters { bytes, .. } => usize::from(bytes),
            Self::Digits(number) => number.checked_ilog10().map_or(1, |log| log as usize + 1),
        }
    }

    /// Appends the value to `out`.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Letters { tag, bytes } => {
                let mut block = [0; 8];
                for (nibble, letter) in block.iter_mut().enumerate() {
                    let bits = u8::try_from(tag >> (4 * nibble) & 15).expect("four bits");
                    *letter = b'a' + bits;
                }
                let mut left = usize::from(bytes);
                while left > 0 {
                    let part = left.min(block.len());
                    out.extend_from_slice(&block[..part]);
                    left -= part;
                }
            }
            Self::Digits(number) => write_number(out, number.into()),
        }
    }
}

/// Appends a number in decimal digits.
pub(super) fn write_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
