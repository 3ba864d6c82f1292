//! The meaning of the alphabet's small words in the simulation. Keys are names that the clients
//! share. Versions and fences are numbers that answers have shown. A value is one that no other
//! request has brought, as far as its kind lets it: so a read tells which client stored it.

use latchd_harness::alphabet::{
    CasChoice, FenceChoice, Meaning, SmallKey, SmallRequest, SmallValue, Told,
};
use latchd_harness::wording::put_number;
use latchd_protocol::command::{Command, ItemCommand, Set};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;

use super::super::ask::Ask;
use super::super::names::Names;

/// The content of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in super::super) enum Text {
    /// Letters that no other value has, once there are eight of them.
    Letters { tag: u32, bytes: usize },
    /// Decimal digits, and blanks behind them.
    Digits { number: u64, blanks: u8 },
}

/// How many letters tell a tag.
const TAG_LETTERS: u8 = 8;

impl Text {
    /// A value of this kind; `tag` is a number that no other value has, and chance decides the
    /// rest.
    pub(in super::super) fn of(value: SmallValue, tag: u32, bytes_max: usize, chance: u64) -> Self {
        let max = bytes_max as u64;
        let letters = |bytes: u64| Self::Letters {
            tag,
            bytes: usize::try_from(bytes).expect("a small limit"),
        };
        let digits = |number| Self::Digits { number, blanks: 0 };
        match value {
            SmallValue::Empty => letters(0),
            SmallValue::Word => letters(u64::from(TAG_LETTERS) + chance % 56),
            SmallValue::Number => digits(tag.into()),
            SmallValue::Greatest => digits(u64::MAX),
            // From here it is one step to a digit less, or more.
            SmallValue::Round => {
                let power = u32::from(chance.to_le_bytes()[0] & 3);
                digits(10_u64.pow(1 + power) - (chance >> 2 & 1))
            }
            SmallValue::Padded => Self::Digits {
                number: tag.into(),
                blanks: 1,
            },
            SmallValue::Long => match chance & 7 {
                0 => letters(max + 1 + (chance >> 3) % 40),
                1 | 2 => letters(max),
                _ => letters((chance >> 3) % (max + 1)),
            },
        }
    }

    /// A value over the limit.
    pub(in super::super) fn too_large(tag: u32, bytes_max: usize, chance: u64) -> Self {
        let more = usize::try_from(chance % 40).expect("a few");
        Self::Letters {
            tag,
            bytes: bytes_max + 1 + more,
        }
    }

    pub(in super::super) fn bytes(self) -> usize {
        match self {
            Self::Letters { bytes, .. } => bytes,
            Self::Digits { number, blanks } => {
                let digits = number.checked_ilog10().map_or(1, |log| log as usize + 1);
                digits + usize::from(blanks)
            }
        }
    }

    /// Appends the value to `out`.
    pub(in super::super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Letters { tag, bytes } => {
                let mut block = [0; TAG_LETTERS as usize];
                for (nibble, letter) in block.iter_mut().enumerate() {
                    let bits = u8::try_from(tag >> (4 * nibble) & 15).expect("four bits");
                    *letter = b'a' + bits;
                }
                let mut left = bytes;
                while left > 0 {
                    let part = left.min(block.len());
                    out.extend_from_slice(&block[..part]);
                    left -= part;
                }
            }
            Self::Digits { number, blanks } => {
                put_number(out, number);
                out.resize(out.len() + usize::from(blanks), b' ');
            }
        }
    }
}

/// The words of one request.
struct Words<'a> {
    key: Key<'a>,
    value: &'a [u8],
    told: Told,
}

impl<'a> Meaning<'a> for Words<'a> {
    fn key(&self, _: SmallKey) -> Key<'a> {
        self.key
    }

    fn value(&self, _: SmallValue) -> &'a [u8] {
        self.value
    }

    fn version(&self, _: SmallKey, choice: CasChoice) -> Cas {
        self.told.version(choice)
    }

    fn fence(&self, _: SmallKey, choice: FenceChoice) -> Fence {
        self.told.fence(choice)
    }
}

/// The request of `written` to the core, which comes from `ask`.
pub(in super::super) const fn intended<'a>(ask: &Ask, written: Command<'a>) -> Command<'a> {
    match written {
        Command::Item(ItemCommand::Set(Set { key, .. })) if ask.is_too_large => {
            Command::Item(ItemCommand::SetTooLarge { key })
        }
        command => command,
    }
}

/// The command of `ask` for its `place`th key, a value that is too large included; `None` if it is
/// of a wire only. `value` is room for a value.
pub(in super::super) fn written<'a>(
    ask: &Ask,
    place: usize,
    names: &'a Names,
    value: &'a mut Vec<u8>,
) -> Option<Command<'a>> {
    let request = ask.request?;
    value.clear();
    if let SmallRequest::Set(_) = request {
        ask.text.write(value);
    }
    Some(request.lower(&Words {
        key: names.key(ask.key(place)),
        value,
        told: ask.told,
    }))
}
