//! A lock that was left behind, for the client that goes on with it.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use latchd_client_core::{LeaseTerms, LockItem, LockTerms, SessionTerms, Token, TokenValue};
use latchd_protocol::time::saturating_millis;

use super::error::{Error, ErrorKind};
use super::keeper::{Attempt, Part};
use super::lock::Lock;
use super::obtain::in_order;
use super::pool::{Owner, Pool};

/// The first word of the text, with the version of its form.
const FORM: &str = "latchd-lock-1";

/// A lock that its holder has left behind; see [`Lock::detach`]. As text it is one line without blanks at its ends, for a
/// file or a message. The text has the token, which is the right to the lock.
#[derive(Clone, Eq, PartialEq)]
pub struct Detached {
    server: Arc<str>,
    keys: Vec<Box<[u8]>>,
    token: Token,
    owner: Owner,
    /// The lock's own time, and whether it is renewed.
    ttl_ms: u64,
    renews: bool,
    /// The time of its item; 0 without one.
    item_ms: u64,
    metadata: Box<[u8]>,
}

impl Detached {
    pub(super) fn new(
        pool: &Pool,
        keys: Vec<Box<[u8]>>,
        token: Token,
        terms: &LockTerms,
        owner: Owner,
    ) -> Self {
        Self {
            server: Arc::clone(pool.endpoint().name()),
            keys,
            token,
            owner,
            ttl_ms: terms.lease.map_or(0, |lease| saturating_millis(lease.ttl)),
            renews: terms.lease.is_some_and(|lease| lease.renews),
            item_ms: terms
                .item
                .as_ref()
                .map_or(0, |item| saturating_millis(item.ttl)),
            metadata: terms.metadata.clone(),
        }
    }

    /// The server that has the lock, as [`Client::connect`](super::Client::connect) takes it.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The keys, in the order of their bytes.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &**key)
    }

    /// Goes on with the lock.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it has ended.
    pub(super) async fn attach(&self, pool: &Pool) -> Result<Lock, Error> {
        pool.check_process()?;
        let ttl = Duration::from_millis(self.ttl_ms);
        let mut terms = LockTerms::new();
        terms.is_adopted = true;
        terms.metadata = self.metadata.clone();
        terms.lease = (self.ttl_ms > 0).then_some(LeaseTerms {
            ttl,
            renews: self.renews,
            hold_max: None,
        });
        terms.item = (self.item_ms > 0).then(|| LockItem {
            value: TokenValue::new(self.token.clone(), &self.metadata),
            ttl: Duration::from_millis(self.item_ms),
            own_token: true,
        });
        let session = match self.owner {
            Owner::Session(seconds) => {
                let time = Duration::from_secs(seconds.into());
                Some(SessionTerms::of_token(&self.token, self.keys(), time)?)
            }
            Owner::Connection | Owner::Item => None,
        };
        let keeper = match &session {
            Some(_) => pool.new_keeper(self.owner, session.clone())?,
            None => pool.keeper(self.owner)?,
        };
        let mut parts: Vec<Part> = Vec::new();
        for key in &self.keys {
            match keeper.attempt(key, terms.clone(), None).await? {
                Attempt::Obtained(part) => parts.push(part),
                Attempt::Held(_) | Attempt::Obstructed(_) | Attempt::HasValue => {
                    return Err(pool.error(ErrorKind::NotHeld(None)));
                }
            }
        }
        Ok(Lock {
            parts,
            pool: pool.clone(),
            owner: self.owner,
            terms,
            token: self.token.clone(),
            is_own: session.is_some(),
            is_inherited: false,
            _slot: None,
        })
    }
}

impl fmt::Display for Detached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = match self.owner {
            Owner::Session(seconds) => seconds,
            Owner::Connection | Owner::Item => 0,
        };
        let times = (seconds, self.ttl_ms, u8::from(self.renews), self.item_ms);
        write!(
            formatter,
            "{FORM} {} {} {} {} {} {} x{}",
            self.server,
            self.token,
            times.0,
            times.1,
            times.2,
            times.3,
            hex(&self.metadata)
        )?;
        self.keys
            .iter()
            .try_for_each(|key| write!(formatter, " {}", hex(key)))
    }
}

impl FromStr for Detached {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text)
            .ok_or_else(|| ErrorKind::Address("this is no lock that was left behind".into()).into())
    }
}

fn read(text: &str) -> Option<Detached> {
    let mut words = text.split(' ');
    if words.next()? != FORM {
        return None;
    }
    let server = words.next()?.into();
    let token = words.next()?.parse().ok()?;
    let owner = match words.next()?.parse().ok()? {
        0 => Owner::Item,
        seconds => Owner::Session(seconds),
    };
    let ttl_ms = words.next()?.parse().ok()?;
    let renews = words.next()? == "1";
    let item_ms = words.next()?.parse().ok()?;
    let metadata = from_hex(words.next()?.strip_prefix('x')?)?;
    let keys = words.map(from_hex).collect::<Option<Vec<_>>>()?;
    Some(Detached {
        server,
        keys: in_order(keys).ok()?,
        token,
        owner,
        ttl_ms,
        renews,
        item_ms,
        metadata,
    })
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // A string has no errors.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn from_hex(text: &str) -> Option<Box<[u8]>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs
        .map(|pair| byte(pair).filter(|_| pair.len() == 2))
        .collect()
}

/// Without the token, which is the right to the lock.
impl fmt::Debug for Detached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys().map(String::from_utf8_lossy).collect();
        formatter
            .debug_struct("Detached")
            .field("server", &self.server)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_is_shown() {
        let detached = Detached {
            server: "h:1".into(),
            keys: vec![b"a"[..].into(), b"b \n"[..].into()],
            token: Token::from_random([1; 16]),
            owner: Owner::Session(10),
            ttl_ms: 0,
            renews: false,
            item_ms: 5,
            metadata: Box::default(),
        };
        assert_eq!(detached.to_string().parse::<Detached>().unwrap(), detached);
        for text in ["", "latchd-lock-1 h:1", "latchd-lock-1 h:1 t 1 0 0 0 x 6"] {
            assert!(text.parse::<Detached>().is_err(), "{text}");
        }
    }
}
