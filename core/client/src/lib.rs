//! The client half, without I/O: the requests to send, the meaning of replies, and the times to wake.
//!
//! A [`Session`] mirrors the server's [`Connection`](latchd_protocol::connection::Connection): it encodes requests and
//! decodes replies with the same wire modules. On top of it are three state machines with one interface,
//! [`Machine`]:
//!
//! - [`Grants`]: locks on latchd, which end with a connection, or with a session that outlives connections
//!   ([`SessionTerms`]).
//! - [`Leases`]: locks on memcached, which the server ends by time. Both are a [`LockMachine`].
//! - [`Recompute`]: reads a value, or makes this client the one that computes it.
//!
//! Before any of them, a [`Login`] authenticates the client, if the server requires that.
//!
//! There is no clock and no randomness here: every call takes the present moment, and tokens and jitter are
//! made of bytes that the caller drew. So the same events give the same requests, and the model checks the
//! machines that ship.
#![no_std]

extern crate alloc;

mod attachment;
mod grants;
mod keys;
mod leases;
mod lock;
mod login;
mod machine;
mod moment;
mod own;
mod recompute;
mod retry;
mod session;
mod terms;
mod token;

pub use attachment::SessionTerms;
pub use grants::{Grants, OwnerTerms};
pub use keys::wire_key;
pub use leases::Leases;
pub use lock::{Belief, LeaseTerms, LockId, LockItem, LockMachine, LockNews, LockState, LockTerms};
pub use login::{Credentials, Login, LoginStep};
pub use machine::{Action, Failure, Feature, Loss, Machine, NotObtained};
pub use recompute::{Kept, Losers, Recompute, RecomputeNews, RecomputeTerms};
pub use retry::{Retries, Retry};
pub use session::{AnyRequest, AnyResponse, Encoded, PENDING_MAX, Received, SendError, Session};
pub use terms::{TTL_MAX, TTL_MIN, TermsError};
pub use token::{METADATA_BYTES_MAX, Token, TokenValue};
