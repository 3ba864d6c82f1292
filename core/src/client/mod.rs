//! The client half, without I/O: what to send, what an answer means, and when to wake.
//!
//! A [`Session`] mirrors the server's [`Connection`](crate::connection::Connection): it encodes
//! requests and decodes replies with the same wire modules. On top of it stand four state machines,
//! each behind the one door [`Machine`]:
//!
//! - [`Lease`]: a lock that the server ends by time. It works on any memcached that knows meta
//!   commands.
//! - [`Leases`]: several of them, all or none.
//! - [`Bound`]: a lock that latchd ends with the connection.
//! - [`Recompute`]: read a value, or be the one who computes it.
//!
//! Before any of them a [`Login`] says who the client is, where the server asks.
//!
//! There is no clock and no randomness here: every call takes the moment it is made at, and tokens
//! and jitter are made of bytes that the caller drew. So the same events give the same requests,
//! and the model checks the machines that ship.

mod bound;
mod keys;
mod lease;
mod leases;
mod login;
mod machine;
mod moment;
mod recompute;
mod retry;
mod session;
mod terms;
mod token;

pub use bound::{
    Bound, BoundNews, BoundTerms, Item, LOCK_ITEM, LeaseTerms, LockWords, Mark, MissingItem,
    SHORT_TTL_MIN,
};
pub use keys::{KeyError, wire_key};
pub use lease::{Lease, LeaseNews};
pub use leases::{KEYS_MAX, Leases, LeasesNews};
pub use login::{CREDENTIALS_BYTES_MAX, Credentials, CredentialsError, Login, LoginStep};
pub use machine::{Action, Failure, Feature, Loss, Machine, NotObtained};
pub use recompute::{Losers, Recompute, RecomputeNews, RecomputeTerms, WinWords};
pub use retry::{Retries, Retry};
pub use session::{
    AnyRequest, AnyResponse, Flags, PENDING_MAX, Received, SendError, Session, Ticket,
};
pub use terms::{LEASE_ITEM, OnDisconnect, TTL_MAX, TTL_MIN, Terms, TermsError, exptime_for};
pub use token::{METADATA_BYTES_MAX, TOKEN_BYTES_MAX, Token, TokenError, TokenValue};
