//! A lock that was left behind, for the client that goes on with it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use latchd_client_core::{LeaseTerms, LockItem, LockTerms, Token, TokenValue};
use latchd_protocol::time::saturating_millis;
use latchd_protocol::uri::{self, UriEncoded};

use super::error::{Error, ErrorKind};
use super::keeper::Part;
use super::lock::Lock;
use super::obtain::in_order;
use super::options::{Plan, session_of};
use super::pool::{Owner, Pool};

/// The first word of the text, with the version of its form.
const FORM: &str = "latchd-lock-1";

/// A lock that its holder has left behind; see [`Lock::detach`]. As text it is one line without blanks at its ends, for a
/// file or a message. The text has the token, which is the right to the lock.
#[derive(Clone, Eq, PartialEq)]
pub struct Detached {
    server: Arc<str>,
    keys: Vec<Box<[u8]>>,
    plan: Plan,
}

impl Detached {
    pub(super) fn of(lock: &Lock) -> Self {
        let mut plan = lock.plan.clone();
        plan.terms.is_adopted = true;
        if let Some(lease) = &mut plan.terms.lease {
            lease.hold_max = None;
        }
        if let Some(item) = &mut plan.terms.item {
            item.own_token = true;
        }
        Self {
            server: Arc::clone(lock.pool.endpoint().name()),
            keys: lock.keys().map(Box::from).collect(),
            plan,
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
        let plan = self.plan.clone();
        let keeper = match &plan.session {
            Some(_) => pool.new_keeper(plan.owner, plan.session.clone())?,
            None => pool.keeper(plan.owner)?,
        };
        let mut parts: Vec<Part> = Vec::new();
        for key in &self.keys {
            let found = keeper.attempt(key, plan.terms.clone(), None).await?;
            parts.push(found.map_err(|_| pool.error(ErrorKind::NotHeld(None)))?);
        }
        Ok(Lock {
            parts,
            pool: pool.clone(),
            plan,
            _slot: None,
        })
    }
}

impl fmt::Display for Detached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan {
            owner,
            terms,
            token,
            ..
        } = &self.plan;
        let seconds = match owner {
            Owner::Session(seconds) => *seconds,
            Owner::Connection | Owner::Item => 0,
        };
        let ttl_ms = terms.lease.map_or(0, |lease| saturating_millis(lease.ttl));
        let renews = u8::from(terms.lease.is_some_and(|lease| lease.renews));
        let item_ms = terms
            .item
            .as_ref()
            .map_or(0, |item| saturating_millis(item.ttl));
        let metadata = UriEncoded(&terms.metadata);
        write!(
            formatter,
            "{FORM} {} {token} {seconds} {ttl_ms} {renews} {item_ms} x{metadata}",
            self.server
        )?;
        self.keys
            .iter()
            .try_for_each(|key| write!(formatter, " {}", UriEncoded(key)))
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
    let token: Token = words.next()?.parse().ok()?;
    let owner = match words.next()?.parse().ok()? {
        0 => Owner::Item,
        seconds => Owner::Session(seconds),
    };
    let mut terms = LockTerms::new();
    terms.is_adopted = true;
    let ttl_ms = words.next()?.parse().ok()?;
    let renews = words.next()? == "1";
    terms.lease = (ttl_ms > 0).then(|| LeaseTerms {
        ttl: Duration::from_millis(ttl_ms),
        renews,
        hold_max: None,
    });
    let item_ms = words.next()?.parse().ok()?;
    terms.metadata = decode(words.next()?.strip_prefix('x')?);
    terms.item = (item_ms > 0).then(|| LockItem {
        value: TokenValue::new(token.clone(), &terms.metadata),
        ttl: Duration::from_millis(item_ms),
        own_token: true,
    });
    let keys = in_order(words.map(decode)).ok()?;
    Some(Detached {
        plan: Plan {
            owner,
            session: session_of(owner, &token, &keys).ok()?,
            is_inheritable: false,
            terms,
            token,
        },
        server,
        keys,
    })
}

fn decode(word: &str) -> Box<[u8]> {
    uri::decode(word.as_bytes()).into()
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
        let text = "latchd-lock-1 h:1 t 10 0 0 5 xm%20n a b%0A";
        let detached: Detached = text.parse().unwrap();
        assert_eq!(detached.to_string(), text);
        assert!(detached.keys().eq([&b"a"[..], b"b\n"]));
        assert_eq!(detached.to_string().parse::<Detached>().unwrap(), detached);
        for text in ["", "latchd-lock-1 h:1", "latchd-lock-1 h:1 t 1 0 0 0 x "] {
            assert!(text.parse::<Detached>().is_err(), "{text}");
        }
    }
}
