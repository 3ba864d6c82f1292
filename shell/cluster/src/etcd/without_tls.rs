//! Replaces TLS in builds without the feature `tls`. The options refuse URLs with https there.

use std::convert::Infallible;
use std::io;

use ureq::Error;
use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;

use super::error::AuthorityError;
use super::options::{AuthorityOptions, AuthorityUrl};

/// No settings.
pub(super) type Tls = Infallible;

/// # Errors
/// An endpoint uses TLS.
pub(super) fn read(options: &AuthorityOptions) -> io::Result<Option<Tls>> {
    if options.endpoints.iter().any(AuthorityUrl::is_secure) {
        let what = "--authority: this latchd was built without TLS (feature `tls`)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    Ok(None)
}

pub(super) fn configured(
    config: ConfigBuilder<AgentScope>,
    tls: Option<&Tls>,
) -> ConfigBuilder<AgentScope> {
    match tls {
        Some(tls) => match *tls {},
        None => config,
    }
}

pub(super) const fn meaning(error: Error) -> Result<AuthorityError, Error> {
    Err(error)
}

pub(super) const fn fault(_: &io::Error) -> Option<AuthorityError> {
    None
}
