//! Plain cache calls: read, store, count, remove. They go over the connections that leases share, so what
//! is asked at the same time is on its way at the same time.
//!
//! - P1: a call is one request to the server, which is not repeated once it may have been sent: nobody knows
//!   whether it has been executed.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Meta Commands"; `flush_all` and `stats` are classic.

use bytes::Bytes;
use latchd_core::client::{AnyRequest, AnyResponse, Flags, Loss, leased_key};
use latchd_core::command::{Command, GlobalCommand};
use latchd_core::fence::Fence;
use latchd_core::key::Key;
use latchd_core::stats::StatsTopic;
use latchd_core::time::Exptime;
use latchd_core::wire::classic::ClassicEnvelope;
use latchd_core::wire::classic::reply::ClassicResponse;
use latchd_core::wire::meta::reply::{Code, MetaResponse};
use latchd_core::wire::meta::{Flag, Verb};

use super::error::{Error, ErrorKind};
use super::server::Client;

/// How many keys are asked for over one connection at a time.
const KEYS_AT_A_TIME: usize = 500;

/// An item as it was read.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CacheItem {
    /// Its value.
    pub value: Bytes,
    /// The number that was stored beside it.
    pub client_flags: u32,
    /// Its version, for [`StoreOptions::cas`].
    pub cas: u64,
    /// How long it lasts, in seconds; `None` is for ever.
    pub ttl_s: Option<u64>,
    /// Whether it is marked stale.
    pub stale: bool,
    /// Whether it is this reader's to compute it anew.
    pub won: bool,
}

/// What has become of a store, a count or a removal.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// It is done.
    Done,
    /// There was an item for an add, or none for the others.
    NotStored,
    /// There is no such item.
    NotFound,
    /// The item has another version than the one compared with.
    Exists,
    /// A connection holds the item's lock.
    Locked,
}

/// Which way a number goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CountMode {
    Up,
    Down,
}

/// Which kind of store.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum StoreMode {
    /// Whether or not there is an item.
    #[default]
    Set,
    /// Only if there is none.
    Add,
    /// Only if there is one.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
}

/// How a value is stored. The default: whatever is there, and for ever.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreOptions {
    mode: StoreMode,
    exptime: Exptime,
    client_flags: u32,
    pub(super) cas: Option<u64>,
    invalidate: bool,
}

impl StoreOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Which kind of store it is (`M`).
    #[must_use]
    pub const fn mode(mut self, mode: StoreMode) -> Self {
        self.mode = mode;
        self
    }

    /// When the item expires (`T`); an append and a prepend leave that as it is.
    #[must_use]
    pub const fn exptime(mut self, exptime: Exptime) -> Self {
        self.exptime = exptime;
        self
    }

    /// A number that is stored beside the value (`F`).
    #[must_use]
    pub const fn client_flags(mut self, client_flags: u32) -> Self {
        self.client_flags = client_flags;
        self
    }

    /// Only if the item has this version still (`C`).
    #[must_use]
    pub const fn cas(mut self, cas: u64) -> Self {
        self.cas = Some(cas);
        self
    }

    /// With [`cas`](Self::cas): stores over an older version as well, and marks it stale (`I`).
    #[must_use]
    pub const fn invalidate(mut self) -> Self {
        self.invalidate = true;
        self
    }
}

/// How an item is read. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GetOptions {
    touch: Option<Exptime>,
    vivify: Option<Exptime>,
    recache: Option<Exptime>,
}

impl GetOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives it this exptime (`T`).
    #[must_use]
    pub const fn touch(mut self, exptime: Exptime) -> Self {
        self.touch = Some(exptime);
        self
    }

    /// Makes an empty item with this exptime if there is none, and the reader has won it (`N`).
    #[must_use]
    pub const fn vivify(mut self, exptime: Exptime) -> Self {
        self.vivify = Some(exptime);
        self
    }

    /// One reader wins an item that has less than this left (`R`).
    #[must_use]
    pub const fn recache(mut self, left: Exptime) -> Self {
        self.recache = Some(left);
        self
    }
}

/// Plain cache calls. Each may fail as [`ErrorKind::Key`], [`ErrorKind::Unreachable`] or
/// [`ErrorKind::Refused`].
impl Client {
    /// Reads an item; `None` if there is none.
    ///
    /// # Errors
    /// As above.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<CacheItem>, Error> {
        self.get_with(key, &GetOptions::new()).await
    }

    /// Reads an item as the options say; `None` if there is none.
    ///
    /// # Errors
    /// As above.
    pub async fn get_with(
        &self,
        key: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Option<CacheItem>, Error> {
        let request = read(leased_key(key.as_ref())?, options);
        let mut found = Ok(None);
        self.ask(&[request], |_, answer| found = item(answer))
            .await?;
        found.map_err(|kind| self.pool.error(kind))
    }

    /// Reads many items at a time, in the order of the keys; `None` for each that is not there.
    ///
    /// # Errors
    /// As above, of the first that is refused.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<CacheItem>>, Error> {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut all = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_AT_A_TIME) {
            let requests = some
                .iter()
                .map(|key| Ok(read(leased_key(key.as_ref())?, &GetOptions::new())))
                .collect::<Result<Vec<_>, Error>>()?;
            let mut found = Vec::with_capacity(requests.len());
            self.ask(&requests, |_, answer| found.push(item(answer)))
                .await?;
            for item in found {
                all.push(item.map_err(|kind| self.pool.error(kind))?);
            }
        }
        Ok(all)
    }

    /// Stores a value, whatever is there.
    ///
    /// # Errors
    /// As above.
    pub async fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        exptime: Exptime,
    ) -> Result<Outcome, Error> {
        self.store(key, value, &StoreOptions::new().exptime(exptime))
            .await
    }

    /// Stores a value as the options say.
    ///
    /// # Errors
    /// As above.
    pub async fn store(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &StoreOptions,
    ) -> Result<Outcome, Error> {
        self.store_in(None, key.as_ref(), value.as_ref(), options)
            .await
    }

    /// As [`store`](Self::store), if a grant is said only while that is in force.
    pub(super) async fn store_in(
        &self,
        grant: Option<Fence>,
        key: &[u8],
        value: &[u8],
        options: &StoreOptions,
    ) -> Result<Outcome, Error> {
        let mode = match options.mode {
            StoreMode::Set => b'S',
            StoreMode::Add => b'E',
            StoreMode::Replace => b'R',
            StoreMode::Append => b'A',
            StoreMode::Prepend => b'P',
        };
        let mut flags = vec![Flag::Mode(mode), Flag::ClientFlags(options.client_flags)];
        if options.exptime != Exptime::Never {
            flags.push(Flag::Touch(options.exptime));
        }
        flags.extend(options.cas.map(Flag::Cas));
        flags.extend(options.invalidate.then_some(Flag::Invalidate));
        flags.extend(grant.map(Flag::InGrant));
        let request = meta(Verb::Set, leased_key(key)?, &flags, value);
        self.change(request).await
    }

    /// Removes an item.
    ///
    /// # Errors
    /// As above.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<Outcome, Error> {
        self.delete_in(None, key.as_ref()).await
    }

    /// As [`delete`](Self::delete), if a grant is said only while that is in force.
    pub(super) async fn delete_in(
        &self,
        grant: Option<Fence>,
        key: &[u8],
    ) -> Result<Outcome, Error> {
        let flags: Vec<_> = grant.map(Flag::InGrant).into_iter().collect();
        let request = meta(Verb::Delete, leased_key(key)?, &flags, &[]);
        self.change(request).await
    }

    /// Gives an item a new exptime.
    ///
    /// # Errors
    /// As above.
    pub async fn touch(&self, key: impl AsRef<[u8]>, exptime: Exptime) -> Result<Outcome, Error> {
        let key = leased_key(key.as_ref())?;
        let flags = [Flag::Touch(exptime)];
        self.change(meta(Verb::Get, key, &flags, &[])).await
    }

    /// Adds to the number that an item holds in decimal, and returns the sum, which begins again at 0
    /// past 64 bits; `None` if there is no item.
    ///
    /// # Errors
    /// As above; [`ErrorKind::Refused`] also if it holds no number, or is locked by another.
    pub async fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(None, key.as_ref(), CountMode::Up, delta).await
    }

    /// As [`incr`](Self::incr), but takes away, down to 0.
    ///
    /// # Errors
    /// As [`incr`](Self::incr).
    pub async fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(None, key.as_ref(), CountMode::Down, delta).await
    }

    /// Removes all items that nobody has locked.
    ///
    /// # Errors
    /// As above.
    pub async fn flush_all(&self) -> Result<(), Error> {
        let flush = AnyRequest::Classic {
            command: Command::Global(GlobalCommand::FlushAll { at: Exptime::Never }),
            envelope: ClassicEnvelope::Change { noreply: false },
        };
        let mut flushed = Ok(());
        self.ask(&[flush], |_, answer| {
            flushed = match answer {
                AnyResponse::Classic(ClassicResponse::Ok) => Ok(()),
                AnyResponse::Meta(_) | AnyResponse::Classic(_) | AnyResponse::Silent => {
                    Err(refusal(answer))
                }
            };
        })
        .await?;
        flushed.map_err(|kind| self.pool.error(kind))
    }

    /// What the server counts: names and values, as it shows them.
    ///
    /// # Errors
    /// As above.
    pub async fn stats(&self) -> Result<Vec<(String, String)>, Error> {
        let stats = AnyRequest::Classic {
            command: Command::Global(GlobalCommand::Stats(StatsTopic::General)),
            envelope: ClassicEnvelope::Stats(StatsTopic::General),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut all = Vec::new();
        let mut refused = None;
        self.ask(&[stats], |_, answer| match answer {
            AnyResponse::Classic(ClassicResponse::Stat { name, value }) => {
                all.push((text(name), text(value)));
            }
            AnyResponse::Classic(ClassicResponse::End) => {}
            AnyResponse::Meta(_) | AnyResponse::Classic(_) | AnyResponse::Silent => {
                refused = Some(refusal(answer));
            }
        })
        .await?;
        match refused {
            Some(kind) => Err(self.pool.error(kind)),
            None => Ok(all),
        }
    }

    pub(super) async fn count(
        &self,
        grant: Option<Fence>,
        key: &[u8],
        mode: CountMode,
        delta: u64,
    ) -> Result<Option<u64>, Error> {
        let mode = match mode {
            CountMode::Up => b'I',
            CountMode::Down => b'D',
        };
        let mut flags = vec![Flag::Mode(mode), Flag::Delta(delta), Flag::Value];
        flags.extend(grant.map(Flag::InGrant));
        let request = meta(Verb::Arithmetic, leased_key(key)?, &flags, &[]);
        let mut number = Ok(None);
        self.ask(&[request], |_, answer| {
            number = match answer {
                AnyResponse::Meta(MetaResponse {
                    code: Code::Value,
                    value,
                    ..
                }) => number_in(value).map(Some),
                AnyResponse::Meta(MetaResponse {
                    code: Code::NotFound,
                    ..
                }) => Ok(None),
                AnyResponse::Meta(MetaResponse {
                    code: Code::Exists, ..
                }) => Err(ErrorKind::NotHeld(Some(Loss::Taken))),
                AnyResponse::Meta(_) | AnyResponse::Classic(_) | AnyResponse::Silent => {
                    Err(refusal(answer))
                }
            };
        })
        .await?;
        number.map_err(|kind| self.pool.error(kind))
    }

    async fn change(&self, request: AnyRequest<'_>) -> Result<Outcome, Error> {
        let mut outcome = Ok(Outcome::Done);
        self.ask(&[request], |_, answer| {
            outcome = match answer.code() {
                Some(Code::Done) => Ok(Outcome::Done),
                Some(Code::NotStored) => Ok(Outcome::NotStored),
                Some(Code::NotFound | Code::Miss) => Ok(Outcome::NotFound),
                Some(Code::Exists) => Ok(Outcome::Exists),
                Some(Code::Locked) => Ok(Outcome::Locked),
                Some(Code::Value | Code::Debug | Code::Noop) | None => Err(refusal(answer)),
            };
        })
        .await?;
        outcome.map_err(|kind| self.pool.error(kind))
    }

    async fn ask(
        &self,
        requests: &[AnyRequest<'_>],
        each: impl FnMut(usize, &AnyResponse<'_>),
    ) -> Result<(), Error> {
        let mut link = self.pool.link(requests.len());
        let within = self.pool.options().reply_timeout;
        let asked = link.ask(requests, within, each).await;
        asked.map_err(|error| self.pool.error(ErrorKind::of_socket(error)))
    }
}

fn meta<'a>(verb: Verb, key: Key<'a>, flags: &[Flag<'a>], value: &'a [u8]) -> AnyRequest<'a> {
    AnyRequest::Meta {
        verb,
        key,
        flags: Flags::new(flags).expect("no call has eight flags"),
        value,
    }
}

fn read<'a>(key: Key<'a>, options: &GetOptions) -> AnyRequest<'a> {
    let mut flags = vec![
        Flag::Value,
        Flag::ShowClientFlags,
        Flag::ShowCas,
        Flag::ShowTtl,
    ];
    flags.extend(options.touch.map(Flag::Touch));
    flags.extend(options.vivify.map(Flag::Vivify));
    flags.extend(options.recache.map(Flag::Recache));
    meta(Verb::Get, key, &flags, &[])
}

fn item(answer: &AnyResponse<'_>) -> Result<Option<CacheItem>, ErrorKind> {
    match answer {
        AnyResponse::Meta(MetaResponse {
            code: Code::Value,
            value,
            ..
        }) => Ok(Some(CacheItem {
            value: Bytes::copy_from_slice(value),
            client_flags: answer
                .number(b'f')
                .and_then(|flags| u32::try_from(flags).ok())
                .unwrap_or_default(),
            cas: answer.number(b'c').unwrap_or_default(),
            // -1 is for ever, and no number.
            ttl_s: answer.number(b't'),
            stale: answer.has(b'X'),
            won: answer.has(b'W'),
        })),
        AnyResponse::Meta(MetaResponse {
            code: Code::Miss, ..
        }) => Ok(None),
        AnyResponse::Meta(_) | AnyResponse::Classic(_) | AnyResponse::Silent => {
            Err(refusal(answer))
        }
    }
}

fn number_in(value: &[u8]) -> Result<u64, ErrorKind> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let no_number = |_| ErrorKind::Refused("no number".into());
    text.trim_end().parse().map_err(no_number)
}

/// Why a call was not answered as it should be.
fn refusal(answer: &AnyResponse<'_>) -> ErrorKind {
    if answer.code() == Some(Code::Locked) {
        return ErrorKind::Refused("LOCKED".into());
    }
    let words = answer.refusal();
    ErrorKind::refused(words.unwrap_or_else(|| "an answer to something else".into()))
}
