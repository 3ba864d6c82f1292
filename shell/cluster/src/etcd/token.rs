//! The proof of a login, which all connections to an endpoint share.
//!
//! - K1: One login is under way at a time. A request that needs its token meanwhile has no answer: it does not wait.
//! - K2: A token is dropped only if etcd has refused this one. Another connection may have logged in since.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use zeroize::Zeroizing;

use super::error::AuthorityError;
use super::options::AuthorityLogin;

/// The token of an endpoint.
#[derive(Debug)]
pub(super) struct Tokens {
    login: AuthorityLogin,
    state: Mutex<State>,
    login_under_way: Mutex<()>,
}

#[derive(Clone, Debug)]
enum State {
    Missing,
    /// etcd has no users.
    Unneeded,
    Held(Token),
}

/// A token.
#[derive(Clone)]
pub(super) struct Token(Arc<Zeroizing<String>>);

impl Token {
    pub(super) fn new(text: &str) -> Self {
        Self(Arc::new(Zeroizing::new(text.to_owned())))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("..")
    }
}

impl Tokens {
    pub(super) const fn new(login: AuthorityLogin) -> Self {
        Self {
            login,
            state: Mutex::new(State::Missing),
            login_under_way: Mutex::new(()),
        }
    }

    /// The token to use; `None` if etcd has no users. Without a token, `log_in` gets one, or `None` for an etcd without
    /// users.
    ///
    /// # Errors
    /// That of `log_in`; [`AuthorityError::Late`] if another login is under way (K1).
    pub(super) fn get(
        &self,
        log_in: impl FnOnce(&AuthorityLogin) -> Result<Option<Token>, AuthorityError>,
    ) -> Result<Option<Token>, AuthorityError> {
        match self.current() {
            State::Missing => {}
            State::Unneeded => return Ok(None),
            State::Held(token) => return Ok(Some(token)),
        }
        let _login = match self.login_under_way.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(AuthorityError::Late),
        };
        // The login of another connection may have ended just now.
        match self.current() {
            State::Missing => {}
            State::Unneeded => return Ok(None),
            State::Held(token) => return Ok(Some(token)),
        }
        let token = log_in(&self.login)?;
        *self.state() = token.clone().map_or(State::Unneeded, State::Held);
        Ok(token)
    }

    /// etcd has refused a request with this token, or without one (K2).
    pub(super) fn refused(&self, used: Option<&Token>) {
        let mut state = self.state();
        let is_current = match (&*state, used) {
            (State::Held(held), Some(used)) => Arc::ptr_eq(&held.0, &used.0),
            (State::Unneeded, None) => true,
            (State::Held(_) | State::Unneeded | State::Missing, Some(_) | None) => false,
        };
        if is_current {
            *state = State::Missing;
        }
    }

    fn current(&self) -> State {
        self.state().clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(got: Result<Option<Token>, AuthorityError>) -> Option<String> {
        got.unwrap().map(|token| token.text().to_owned())
    }

    #[test]
    fn logins_neither_overlap_nor_wait() {
        let tokens = Tokens::new(AuthorityLogin::new("latchd", "secret").unwrap());
        let got = tokens.get(|_| {
            let other = tokens.get(|_| panic!("a second login"));
            assert!(matches!(other, Err(AuthorityError::Late)), "{other:?}");
            Ok(Some(Token::new("one")))
        });
        assert_eq!(text(got).as_deref(), Some("one"));
        let failed = tokens.get(|_| panic!("a login in spite of the token"));
        assert_eq!(text(failed).as_deref(), Some("one"));
    }

    #[test]
    fn refused_token_does_not_drop_its_successor() {
        let tokens = Tokens::new(AuthorityLogin::new("latchd", "secret").unwrap());
        let old = tokens.get(|_| Ok(None)).unwrap();
        assert!(old.is_none());
        tokens.refused(None);
        let one = tokens.get(|_| Ok(Some(Token::new("one")))).unwrap();
        tokens.refused(None);
        tokens.refused(Some(&Token::new("one")));
        assert_eq!(
            text(tokens.get(|_| panic!("a login"))).as_deref(),
            Some("one")
        );
        tokens.refused(one.as_ref());
        let error = tokens.get(|_| Err(AuthorityError::NoLeader)).unwrap_err();
        assert_eq!(error, AuthorityError::NoLeader);
        let two = tokens.get(|_| Ok(Some(Token::new("two"))));
        assert_eq!(text(two).as_deref(), Some("two"));
    }
}
