//! The servers of `latchd lock`: one, or a primary and its standbys, of which one serves at a time.
//!
//! - L1: An unreachable server, or one that is not primary, is followed by the next of the list. After the last one
//!   the first is tried again until the time of `-w` is over.
//! - L2: With a list, the server is asked once a second while the lock is waited for, since a wait would otherwise
//!   go on until this server returns.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use latchd_client::{Client, ClientOptions, Error, ErrorKind, blocking};
use rustix::io::Errno;
use smol::Timer;
use smol::future::{self, FutureExt};

use super::LockArgs;
use super::held::Held;
use super::keys::Job;
use super::wait_notice::{self, Reason};

/// The pause before another attempt to reach unreachable servers.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// The pause before a server is asked again for a sign of life (L2).
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The servers, in the order of the list.
pub(super) struct Servers {
    clients: Vec<Client>,
    options: ClientOptions,
}

impl Servers {
    /// Clients of these addresses. No connection is opened.
    ///
    /// # Errors
    /// A message for the user, if an address is invalid.
    pub(super) fn new(addresses: &[String], options: &ClientOptions) -> Result<Self, String> {
        let clients = addresses.iter().map(|address| {
            Client::new(address, options.clone()).map_err(|error| error.to_string())
        });
        Ok(Self {
            clients: clients.collect::<Result<_, _>>()?,
            options: options.clone(),
        })
    }

    /// Acquires all locks or none, on the first server that serves (L1).
    ///
    /// # Errors
    /// The client's, of the last server that was tried.
    pub(super) async fn obtain(&self, args: &LockArgs, job: &Job) -> Result<Held, Error> {
        let reason = RefCell::new(Reason::Asked(self.clients[0].address().to_owned()));
        let obtained = self.obtain_in_turn(args, job, &reason);
        if args.quiet || !wait_notice::has_reader() {
            return obtained.await;
        }
        let connect = |address: &str| blocking::Client::new(address, self.options.clone()).ok();
        let names = job.names();
        let notice = wait_notice::tell(&names, &job.keys, &reason, connect);
        obtained
            .or(async {
                notice.await;
                future::pending().await
            })
            .await
    }

    async fn obtain_in_turn(
        &self,
        args: &LockArgs,
        job: &Job,
        reason: &RefCell<Reason>,
    ) -> Result<Held, Error> {
        let begun = Instant::now();
        let mut place = 0;
        loop {
            let left = args.wait.map(|wait| wait.saturating_sub(begun.elapsed()));
            let client = &self.clients[place];
            *reason.borrow_mut() = Reason::Asked(client.address().to_owned());
            let error = match self.obtain_at(client, args, job, left).await {
                Err(error) if is_absent(&error) => error,
                ended => return ended,
            };
            *reason.borrow_mut() = Reason::Absent(error.to_string());
            place = (place + 1) % self.clients.len();
            if place > 0 {
                continue;
            }
            if left.is_none_or(|left| left <= TRY_AGAIN) {
                return Err(error);
            }
            Timer::after(TRY_AGAIN).await;
        }
    }

    async fn obtain_at(
        &self,
        client: &Client,
        args: &LockArgs,
        job: &Job,
        left: Option<Duration>,
    ) -> Result<Held, Error> {
        let obtained = Held::obtain(args, &job.keys, client, left);
        if self.clients.len() == 1 {
            return obtained.await;
        }
        obtained.or(absence(client)).await
    }
}

/// Waits until the server does not serve any more (L2).
async fn absence(client: &Client) -> Result<Held, Error> {
    loop {
        Timer::after(ASK_EVERY).await;
        match client.ping().await {
            Err(error) if is_absent(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
}

/// Whether the error can disappear when a server starts later, or at another server.
fn is_absent(error: &Error) -> bool {
    use std::io::ErrorKind as Kind;
    if error.is_not_primary() {
        return true;
    }
    let ErrorKind::Unreachable(error) = error.kind() else {
        return false;
    };
    let no_descriptors = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    let is_wrong = [
        Kind::InvalidData,
        Kind::InvalidInput,
        Kind::PermissionDenied,
    ];
    !is_wrong.contains(&error.kind()) && !no_descriptors.contains(&error.raw_os_error())
}
