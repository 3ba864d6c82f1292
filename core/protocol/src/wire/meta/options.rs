//! The flags of a meta request, read in one pass and checked as a whole.
//!
//! If there are several errors, the first in this order counts: a word that cannot be a flag, the key's length,
//! the number of words, then the flags. Flags are read from left to right up to the first doubled or unknown
//! one; of these, the last unreadable token counts.
//!
//! Source: memcached 1.6.45 `proto_parser.c`, `_meta_flag_preparse`, and `mcmc.c`,
//! `_mcmc_tokenize_meta`.

use super::flag::BadFlag;
use super::{Flag, KeyBuffer, MetaEnvelope, Verb};
use crate::command::{Guard, Lease, LockAfter, Mode as LockMode, NewCas, TtlStep, TtlSteps};
use crate::fence::Fence;
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::session::Token;
use crate::time::Exptime;
use crate::wire::Envelope;
use crate::wire::limits::{META_TOKENS_MAX, OPAQUE_BYTES_MAX, TOKENS_MAX};
use crate::wire::scan::Tokens;

const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
const TOO_MANY: &str = "CLIENT_ERROR options flags are too long";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";

/// The flags of a request, before they get a meaning.
#[derive(Clone, Copy, Debug)]
// Each bool is a flag of its own, and every combination is possible.
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Options<'a> {
    verb: Verb,
    pub(super) key: Key<'a>,
    pub(super) key_form: KeyForm,
    pub(super) cas: Option<u64>,
    /// `G`.
    pub(super) fence: Option<Fence>,
    /// `F` of `mu`.
    pub(super) own_fence: Option<Fence>,
    pub(super) unlocks: bool,
    /// `T` of `ml`.
    pub(super) lease: Option<Lease>,
    /// `w` of `ml` and `mg`.
    pub(super) wait_ms: u64,
    /// `B` of `mg`.
    pub(super) bound_to_owner: bool,
    /// `S` of `ml`.
    pub(super) lock_mode: LockMode,
    /// `j`.
    pub(super) session: Option<Token<'a>>,
    /// Some flag shows a field of the item.
    pub(super) reads_item: bool,
    /// `H` of `ml`.
    pub(super) shows_hold: bool,
    pub(super) new_cas: NewCas,
    pub(super) touch: Option<Exptime>,
    pub(super) vivify: Option<Exptime>,
    pub(super) steps: TtlSteps,
    pub(super) client_flags: u32,
    pub(super) mode: Option<u8>,
    pub(super) delta: u64,
    pub(super) initial: u64,
    pub(super) invalidate: bool,
    pub(super) clear: bool,
    pub(super) bump: bool,
    pub(super) quiet: bool,
    pub(super) with_value: bool,
    pub(super) long_opaque: bool,
}

pub(super) enum BadLine {
    /// It could not be split into words.
    Words,
    Flags(&'static str),
}

impl<'a> Options<'a> {
    /// A request without flags, about the key that is written as `key`.
    pub(super) const fn new(verb: Verb, key: Key<'a>) -> Self {
        Self {
            verb,
            key,
            key_form: KeyForm::Plain,
            cas: None,
            fence: None,
            own_fence: None,
            unlocks: false,
            lease: None,
            wait_ms: 0,
            bound_to_owner: false,
            lock_mode: LockMode::Exclusive,
            session: None,
            reads_item: false,
            shows_hold: false,
            new_cas: NewCas::Next,
            touch: None,
            vivify: None,
            steps: TtlSteps::NONE,
            client_flags: 0,
            mode: None,
            delta: 1,
            initial: 0,
            invalidate: false,
            clear: false,
            bump: true,
            quiet: false,
            with_value: false,
            long_opaque: false,
        }
    }

    /// Reads the flags in `text`, behind `taken` words.
    ///
    /// # Errors
    /// If any of them is invalid; then nothing of the request counts.
    pub(super) fn read(
        &mut self,
        text: &'a [u8],
        taken: usize,
        key_buffer: &'a mut KeyBuffer,
    ) -> Result<(), BadLine> {
        let mut key_buffer = Some(key_buffer);
        let mut seen = 0_u64;
        let mut words = taken;
        let mut fault = None;
        let mut stopped = false;
        for word in Tokens::new(text).take(TOKENS_MAX - taken) {
            words += 1;
            // memcached splits the line before it reads any word: this error comes before all others.
            let Some(bit) = word.first().copied().and_then(flag_bit) else {
                return Err(BadLine::Words);
            };
            // The error is known, but a later word may still not be one.
            if stopped {
                continue;
            }
            if seen & bit != 0 {
                (fault, stopped) = (Some(DUPLICATE), true);
                continue;
            }
            seen |= bit;
            match Flag::decode(self.verb, word) {
                Ok(Flag::BinaryKey) => {
                    self.key_form = KeyForm::Binary;
                    let encoded = self.key.as_bytes();
                    match key_buffer.take().and_then(|buffer| buffer.decode(encoded)) {
                        Some(key) => self.key = key,
                        None => fault = Some(BAD_KEY),
                    }
                }
                Ok(flag) => self.note(flag),
                Err(bad) => {
                    fault = Some(bad.text(fault));
                    stopped = bad == BadFlag::Unknown;
                }
            }
        }
        if words > META_TOKENS_MAX {
            fault = Some(TOO_MANY);
        }
        fault.map_or(Ok(()), |text| Err(BadLine::Flags(text)))
    }

    fn note(&mut self, flag: Flag<'a>) {
        let step = match flag {
            Flag::Touch(exptime) => {
                self.touch = Some(exptime);
                TtlStep::Touch(exptime)
            }
            Flag::Vivify(exptime) => {
                self.vivify = Some(exptime);
                TtlStep::Vivify(exptime)
            }
            Flag::Recache(exptime) => TtlStep::Recache(exptime),
            Flag::Cas(cas) => return self.cas = Some(cas),
            Flag::NewCas(cas) => {
                return self.new_cas = Cas::new(cas).map_or(NewCas::Next, NewCas::Is);
            }
            Flag::ClientFlags(client_flags) => return self.client_flags = client_flags,
            Flag::Mode(mode) => return self.mode = Some(mode),
            Flag::Delta(delta) => return self.delta = delta,
            Flag::Initial(initial) => return self.initial = initial,
            Flag::Opaque(opaque) => return self.long_opaque = opaque.len() > OPAQUE_BYTES_MAX,
            Flag::Invalidate => return self.invalidate = true,
            Flag::Clear => return self.clear = true,
            Flag::NoBump => return self.bump = false,
            Flag::Quiet => return self.quiet = true,
            Flag::InGrant(fence) => return self.fence = Some(fence),
            Flag::OfGrant(fence) => return self.own_fence = Some(fence),
            Flag::Lease(lease) => return self.lease = Some(lease),
            Flag::Wait(ms) => return self.wait_ms = ms,
            Flag::Bind => return self.bound_to_owner = true,
            Flag::Shared(max_sharers) => return self.lock_mode = LockMode::Shared { max_sharers },
            Flag::Unlock => return self.unlocks = true,
            Flag::ShowHold => return self.shows_hold = true,
            Flag::InSession(token) => return self.session = Some(token),
            Flag::Value => {
                self.with_value = true;
                return self.reads_item = true;
            }
            // The reply reads these from the request again.
            Flag::ShowCas
            | Flag::ShowClientFlags
            | Flag::ShowFetched
            | Flag::ShowLastAccess
            | Flag::ShowSize
            | Flag::ShowTtl => return self.reads_item = true,
            // The request reads the metadata again, so that no other request has a place for it.
            Flag::Metadata(_)
            | Flag::ShowMetadata
            | Flag::BinaryKey
            | Flag::ShowKey
            | Flag::ShowFence
            | Flag::Proxy => return,
        };
        // A flag that another verb uses is ignored. `ms` and `md` take their exptime from `T` and `N` in any
        // order.
        let acts = match (self.verb, step) {
            (Verb::Get, _) | (Verb::Arithmetic, TtlStep::Touch(_) | TtlStep::Vivify(_)) => true,
            (Verb::Arithmetic, TtlStep::Recache(_))
            | (Verb::Set | Verb::Delete | Verb::Debug | Verb::Lock | Verb::Unlock, _) => false,
        };
        if acts && let Some(steps) = self.steps.then(step) {
            self.steps = steps;
        }
    }

    pub(super) fn envelope(&self, text: &'a [u8], value_bytes: usize) -> Envelope<'a> {
        let Self {
            verb,
            key,
            key_form,
            quiet,
            with_value,
            ..
        } = *self;
        Envelope::Meta(MetaEnvelope {
            verb,
            key,
            key_form,
            flags: text,
            quiet,
            with_value,
            value_bytes,
        })
    }

    pub(super) fn exptime(&self) -> Exptime {
        self.touch.unwrap_or_default()
    }

    /// The effect on the lock.
    pub(super) const fn lock_after(&self) -> LockAfter {
        if self.unlocks {
            LockAfter::Release
        } else {
            LockAfter::Keep
        }
    }

    /// `C`; 0 is a version that no item has.
    pub(super) fn guard(&self) -> Guard {
        self.cas.map_or(Guard::None, |cas| {
            Cas::new(cas).map_or(Guard::Never, Guard::Match)
        })
    }

    /// `C`; 0 means no version.
    pub(super) fn guard_unless_zero(&self) -> Guard {
        self.cas
            .and_then(Cas::new)
            .map_or(Guard::None, Guard::Match)
    }
}

/// The flags of a get that only shows fields: the result equals that of [`Options`], in fewer steps.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a letter, or is not there"
)]
pub(super) struct BareFlags {
    pub(super) bump: bool,
    quiet: bool,
    with_value: bool,
    /// One of them shows a field.
    shows: bool,
}

impl BareFlags {
    /// Letters that need no token and do not change the item.
    const LETTERS: u64 = bits(b"cfhklqstuv");

    /// Letters among these that a reply reads again, to show a field for each.
    const SHOWN: u64 = bits(b"cfhklst");

    /// `None` unless each word is one of those letters, comes once, and has one blank before it. Other flags
    /// need [`Options::read`].
    #[inline]
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let (words, rest) = text.as_chunks::<2>();
        if !rest.is_empty() {
            return None;
        }
        let mut seen = 0_u64;
        for [blank, letter] in words {
            let bit = flag_bit(*letter)?;
            if *blank != b' ' || Self::LETTERS & !seen & bit == 0 {
                return None;
            }
            seen |= bit;
        }
        Some(Self {
            bump: seen & bits(b"u") == 0,
            quiet: seen & bits(b"q") != 0,
            with_value: seen & bits(b"v") != 0,
            shows: seen & Self::SHOWN != 0,
        })
    }

    #[inline]
    pub(super) const fn envelope<'a>(self, key: Key<'a>, text: &'a [u8]) -> Envelope<'a> {
        Envelope::Meta(MetaEnvelope {
            verb: Verb::Get,
            key,
            key_form: KeyForm::Plain,
            flags: if self.shows { text } else { &[] },
            quiet: self.quiet,
            with_value: self.with_value,
            value_bytes: 0,
        })
    }
}

/// The bits of these letters.
const fn bits(letters: &[u8]) -> u64 {
    match letters {
        [letter, rest @ ..] => match flag_bit(*letter) {
            Some(bit) => bit | bits(rest),
            None => bits(rest),
        },
        [] => 0,
    }
}

/// One bit for each letter that a flag may have; `None` for a byte that cannot begin a flag. A digit can, when
/// a line is split into words; later it is an unknown flag.
pub(super) const fn flag_bit(byte: u8) -> Option<u64> {
    match byte {
        letter @ b'A'..=b'z' => Some(1 << (letter - b'A')),
        b'0'..=b'9' => Some(1 << 63),
        _ => None,
    }
}
