//! The command of a packet: its opcode. The opcode also decides about quiet, the key in the reply, and the
//! allowed lengths of a request.
//!
//! - O1: An opcode that is not named here gets the reply "unknown command".
//! - O2: The header alone shows whether a request is well formed, so no bytes of a malformed one are waited
//!   for.
//!
//! Sources: memcached 1.6.45 `protocol_binary.h` (opcodes) and `proto_bin.c`,
//! `dispatch_bin_command` (lengths); yrmcds `docs/locking.md` (0x40 to 0x4b) and
//! `src/memcache/memcache.hpp` (0x50).

/// Declares the opcodes once: the enum, the way from a byte and the way to the verb cannot
/// disagree.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $byte:literal: $verb:ident,)*) => {
        /// The opcode of a packet: the command, whether it is quiet, and whether the response repeats the key.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $byte,)*
        }

        impl Opcode {
            /// Every opcode, in the order of this table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The opcode with this number; `None` if it is not ours (O1).
            #[must_use]
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The command, independent of quiet and of the key in the response.
            #[must_use]
            pub const fn verb(self) -> Verb {
                match self {
                    $(Self::$name => Verb::$verb,)*
                }
            }
        }
    };
}

opcodes! {
    /// Reads an item.
    Get = 0x00: Get,
    /// [`Opcode::Get`], silent on a miss.
    GetQ = 0x09: Get,
    /// [`Opcode::Get`] with the key in the response.
    GetK = 0x0c: Get,
    /// [`Opcode::GetK`], silent on a miss.
    GetKQ = 0x0d: Get,
    /// Stores a value.
    Set = 0x01: Set,
    /// [`Opcode::Set`], silent on success.
    SetQ = 0x11: Set,
    /// Stores a value if there is none.
    Add = 0x02: Add,
    /// [`Opcode::Add`], silent on success.
    AddQ = 0x12: Add,
    /// Stores a value if there is one.
    Replace = 0x03: Replace,
    /// [`Opcode::Replace`], silent on success.
    ReplaceQ = 0x13: Replace,
    /// Removes an item.
    Delete = 0x04: Delete,
    /// [`Opcode::Delete`], silent on success.
    DeleteQ = 0x14: Delete,
    /// Adds to a number.
    Increment = 0x05: Increment,
    /// [`Opcode::Increment`], silent on success.
    IncrementQ = 0x15: Increment,
    /// Subtracts from a number.
    Decrement = 0x06: Decrement,
    /// [`Opcode::Decrement`], silent on success.
    DecrementQ = 0x16: Decrement,
    /// Ends the connection after a response.
    Quit = 0x07: Quit,
    /// Ends the connection.
    QuitQ = 0x17: Quit,
    /// Removes every item, now or later.
    Flush = 0x08: Flush,
    /// [`Opcode::Flush`], silent on success.
    FlushQ = 0x18: Flush,
    /// Does nothing, and answers: all quiet requests before it are done.
    Noop = 0x0a: Noop,
    /// Asks for the server's version.
    Version = 0x0b: Version,
    /// Puts bytes behind a value.
    Append = 0x0e: Append,
    /// [`Opcode::Append`], silent on success.
    AppendQ = 0x19: Append,
    /// Puts bytes before a value.
    Prepend = 0x0f: Prepend,
    /// [`Opcode::Prepend`], silent on success.
    PrependQ = 0x1a: Prepend,
    /// Reads or resets counters.
    Stat = 0x10: Stat,
    /// Sets how much the server logs.
    Verbosity = 0x1b: Verbosity,
    /// Gives an item a new exptime.
    Touch = 0x1c: Touch,
    /// Gives an item a new exptime and reads it.
    Gat = 0x1d: Gat,
    /// [`Opcode::Gat`], silent on a miss.
    GatQ = 0x1e: Gat,
    /// [`Opcode::Gat`] with the key in the response.
    GatK = 0x23: Gat,
    /// [`Opcode::GatK`], silent on a miss.
    GatKQ = 0x24: Gat,
    /// Asks how a client may authenticate.
    SaslListMechanisms = 0x20: SaslListMechanisms,
    /// Starts to authenticate.
    SaslAuth = 0x21: SaslAuth,
    /// Goes on to authenticate.
    SaslStep = 0x22: SaslStep,
    /// Acquires the lock of an item.
    Lock = 0x40: Lock,
    /// [`Opcode::Lock`], silent on success.
    LockQ = 0x41: Lock,
    /// Releases the lock of an item.
    Unlock = 0x42: Unlock,
    /// [`Opcode::Unlock`], silent on success.
    UnlockQ = 0x43: Unlock,
    /// Releases every lock of the connection.
    UnlockAll = 0x44: UnlockAll,
    /// [`Opcode::UnlockAll`], silent.
    UnlockAllQ = 0x45: UnlockAll,
    /// Acquires the lock of an item and reads it.
    LaG = 0x46: LockAndGet,
    /// [`Opcode::LaG`]; answers a miss all the same.
    LaGQ = 0x47: LockAndGet,
    /// [`Opcode::LaG`] with the key in the response.
    LaGK = 0x48: LockAndGet,
    /// [`Opcode::LaGK`]; answers a miss all the same.
    LaGKQ = 0x49: LockAndGet,
    /// Stores a value in a locked item and releases its lock.
    RaU = 0x4a: ReplaceAndUnlock,
    /// [`Opcode::RaU`], silent on success.
    RaUQ = 0x4b: ReplaceAndUnlock,
    /// Lists keys.
    Keys = 0x50: Keys,
}

/// The command, independent of the form of the response.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verb {
    /// [`Opcode::Get`] in all its forms.
    Get,
    /// [`Opcode::Set`] in all its forms.
    Set,
    /// [`Opcode::Add`] in all its forms.
    Add,
    /// [`Opcode::Replace`] in all its forms.
    Replace,
    /// [`Opcode::Delete`] in all its forms.
    Delete,
    /// [`Opcode::Increment`] in all its forms.
    Increment,
    /// [`Opcode::Decrement`] in all its forms.
    Decrement,
    /// [`Opcode::Quit`] in all its forms.
    Quit,
    /// [`Opcode::Flush`] in all its forms.
    Flush,
    /// [`Opcode::Noop`].
    Noop,
    /// [`Opcode::Version`].
    Version,
    /// [`Opcode::Append`] in all its forms.
    Append,
    /// [`Opcode::Prepend`] in all its forms.
    Prepend,
    /// [`Opcode::Stat`].
    Stat,
    /// [`Opcode::Verbosity`].
    Verbosity,
    /// [`Opcode::Touch`].
    Touch,
    /// [`Opcode::Gat`] in all its forms.
    Gat,
    /// [`Opcode::SaslListMechanisms`].
    SaslListMechanisms,
    /// [`Opcode::SaslAuth`].
    SaslAuth,
    /// [`Opcode::SaslStep`].
    SaslStep,
    /// [`Opcode::Lock`] in all its forms.
    Lock,
    /// [`Opcode::Unlock`] in all its forms.
    Unlock,
    /// [`Opcode::UnlockAll`] in all its forms.
    UnlockAll,
    /// [`Opcode::LaG`] in all its forms.
    LockAndGet,
    /// [`Opcode::RaU`] in all its forms.
    ReplaceAndUnlock,
    /// [`Opcode::Keys`].
    Keys,
}

/// Whether a part of a request is required, optional or forbidden.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Presence {
    /// A packet that has it is malformed.
    None,
    /// Its length says whether it is there.
    Optional,
    /// A packet without it is malformed.
    Required,
}

impl Presence {
    /// Whether a part of `bytes` bytes is allowed.
    const fn allows(self, bytes: usize) -> bool {
        match self {
            Self::None => bytes == 0,
            Self::Optional => true,
            Self::Required => bytes != 0,
        }
    }
}

/// The extras of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ExtrasShape {
    /// The key begins behind the header.
    None,
    /// An exptime: 4 bytes, without a sign.
    Exptime,
    /// As either of the above: its length says which.
    OptionalExptime,
    /// Client flags and exptime: 8 bytes.
    Store,
    /// Delta, initial number and exptime: 20 bytes.
    Arithmetic,
    /// A level of verbosity: 4 bytes.
    Level,
}

impl ExtrasShape {
    const fn allows(self, bytes: usize) -> bool {
        match self {
            Self::None => bytes == 0,
            Self::Exptime | Self::Level => bytes == 4,
            Self::OptionalExptime => bytes == 0 || bytes == 4,
            Self::Store => bytes == 8,
            Self::Arithmetic => bytes == 20,
        }
    }
}

/// The lengths that a request of a verb may have.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Shape {
    /// The command's numbers. Their length must be that of the shape, or the packet is malformed.
    pub extras: ExtrasShape,
    /// For Stat a topic, for Keys a prefix, otherwise an item's.
    pub key: Presence,
    /// The rest of the body behind extras and key.
    pub value: Presence,
}

impl Shape {
    const fn new(extras: ExtrasShape, key: Presence, value: Presence) -> Self {
        Self { extras, key, value }
    }

    /// Whether a request with parts of these lengths is well formed.
    #[must_use]
    pub const fn allows(&self, extras_bytes: usize, key_bytes: usize, value_bytes: usize) -> bool {
        self.extras.allows(extras_bytes)
            && self.key.allows(key_bytes)
            && self.value.allows(value_bytes)
    }
}

impl Verb {
    /// The lengths that a request may have.
    ///
    /// memcached ignores some parts of a packet (a value behind Touch, GAT or Stat, which it then reads as the
    /// next request). latchd checks the whole packet: docs/PROTOCOL.md, "Binary".
    #[must_use]
    pub const fn shape(self) -> Shape {
        use ExtrasShape::{Arithmetic, Exptime, Level, OptionalExptime, Store};
        use Presence::{None, Optional, Required};
        match self {
            Self::Get | Self::Delete | Self::Lock | Self::Unlock => {
                Shape::new(ExtrasShape::None, Required, None)
            }
            Self::Touch | Self::Gat => Shape::new(Exptime, Required, None),
            Self::LockAndGet => Shape::new(OptionalExptime, Required, None),
            Self::Set | Self::Add | Self::Replace => Shape::new(Store, Required, Optional),
            // The documentation requires the value, and yrmcds checks that.
            Self::ReplaceAndUnlock => Shape::new(Store, Required, Required),
            Self::Append | Self::Prepend | Self::SaslAuth | Self::SaslStep => {
                Shape::new(ExtrasShape::None, Required, Optional)
            }
            Self::Increment | Self::Decrement => Shape::new(Arithmetic, Required, None),
            Self::Flush => Shape::new(OptionalExptime, None, None),
            Self::Verbosity => Shape::new(Level, None, None),
            Self::Stat | Self::Keys => Shape::new(ExtrasShape::None, Optional, None),
            Self::Quit
            | Self::Noop
            | Self::Version
            | Self::UnlockAll
            | Self::SaslListMechanisms => Shape::new(ExtrasShape::None, None, None),
        }
    }
}

impl Opcode {
    /// The opcode as byte 1 of a header.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Whether the usual response is left out: a miss for gets, success for the others. Errors are always sent.
    #[must_use]
    pub const fn is_quiet(self) -> bool {
        matches!(
            self,
            Self::GetQ
                | Self::GetKQ
                | Self::SetQ
                | Self::AddQ
                | Self::ReplaceQ
                | Self::DeleteQ
                | Self::IncrementQ
                | Self::DecrementQ
                | Self::QuitQ
                | Self::FlushQ
                | Self::AppendQ
                | Self::PrependQ
                | Self::GatQ
                | Self::GatKQ
                | Self::LockQ
                | Self::UnlockQ
                | Self::UnlockAllQ
                | Self::LaGQ
                | Self::LaGKQ
                | Self::RaUQ
        )
    }

    /// Whether a hit repeats the key.
    #[must_use]
    pub const fn echoes_key(self) -> bool {
        matches!(
            self,
            Self::GetK | Self::GetKQ | Self::GatK | Self::GatKQ | Self::LaGK | Self::LaGKQ
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opcode_and_its_byte_are_the_same_thing() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_byte(opcode.byte()), Some(opcode));
        }
        let named = (0..=u8::MAX)
            .filter(|byte| Opcode::from_byte(*byte).is_some())
            .count();
        assert_eq!(named, Opcode::ALL.len());
        assert_eq!(Opcode::from_byte(0x51), None);
    }

    #[test]
    fn quiet_opcodes_mean_their_loud_ones() {
        for (quiet, loud) in [
            (Opcode::GetKQ, Opcode::GetK),
            (Opcode::SetQ, Opcode::Set),
            (Opcode::GatQ, Opcode::Gat),
            (Opcode::RaUQ, Opcode::RaU),
        ] {
            assert!(quiet.is_quiet());
            assert!(!loud.is_quiet());
            assert_eq!(quiet.verb(), loud.verb());
            assert_eq!(quiet.echoes_key(), loud.echoes_key());
        }
    }

    #[test]
    fn request_shapes_follow_the_documentation() {
        assert!(Verb::Get.shape().allows(0, 1, 0));
        assert!(!Verb::Get.shape().allows(4, 1, 0));
        assert!(!Verb::Get.shape().allows(0, 0, 0));
        assert!(!Verb::Get.shape().allows(0, 1, 1));
        assert!(Verb::Set.shape().allows(8, 1, 0));
        assert!(!Verb::ReplaceAndUnlock.shape().allows(8, 1, 0));
        assert!(Verb::Flush.shape().allows(0, 0, 0) && Verb::Flush.shape().allows(4, 0, 0));
        assert!(!Verb::UnlockAll.shape().allows(0, 1, 0));
    }
}
