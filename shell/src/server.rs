//! A running server: its threads, and how it ends.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use async_io::Timer;
use latchd_core::Limits;
use latchd_core::wire::{Admission, Protocols, WireLimits};
use smol::channel::{Receiver, Sender};
use smol::future::FutureExt;

use crate::acceptor;
use crate::budget::Budget;
use crate::clock::Clock;
use crate::config::Config;
use crate::connection_stats::ConnectionStats;
use crate::health;
use crate::listen::{self, Address};
use crate::mailbox::{Mailbox, Message};
use crate::memory_file::{self, MemoryFile};
use crate::passwords::Passwords;
use crate::roster::Roster;
use crate::shards::{Shards, shard_count};
use crate::shared::Shared;
use crate::status::StatusPort;
use crate::tls::Keys;
use crate::waiters::Waiters;
use crate::watch::Watch;
use crate::worker::Worker;

/// How often the shards are told that time has passed.
const TICK: Duration = Duration::from_millis(200);

/// How soon they are told again if there is more to take out than one tick does: a shard that has a
/// thousand items looked at every time gets through two hundred thousand a second, and is held for a
/// fraction of a millisecond.
const BUSY_TICK: Duration = Duration::from_millis(5);

/// How long it is between two looks for clients that are idle, or take too long over their handshake.
const SWEEP: Duration = Duration::from_secs(1);

/// A running server. Dropping it ends it, as [`Server::shutdown`] does.
///
/// When an assertion of the core fails, the thread panics and the items of that shard are not
/// touched again; a program that embeds a server does best to abort on panic, as `latchd` does.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<Address>,
    status_addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    /// The thread that accepts, which ends when this does.
    acceptor: Option<(Sender<()>, JoinHandle<()>)>,
    /// The threads of the clock and of the status port end when this does.
    stop_clock: Option<Sender<()>>,
    /// What a worker says that cannot go on.
    failures: Receiver<io::Error>,
    /// Told when a client has asked for the end.
    shutdowns: Receiver<()>,
    /// Whether it has all its items: then they are what is written at its end.
    is_complete: bool,
}

impl Server {
    /// Listens, starts the threads, and returns. From then on clients are served.
    ///
    /// # Errors
    /// An address that cannot be had ([`io::ErrorKind::AddrInUse`] if somebody has it), no more
    /// descriptors or threads, or a configuration that makes no sense
    /// ([`io::ErrorKind::InvalidInput`]). Nothing runs then.
    pub fn start(config: Config) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        config.check().map_err(invalid)?;
        let threads = config.threads.get();
        let mut limits = Limits::new(config.memory_bytes_max, config.value_bytes_max);
        limits.evict = config.evict;
        limits.locks_per_connection_max = config.locks_per_connection_max;
        let mut wire_limits = WireLimits::from(&limits);
        wire_limits.allowed = config.allowed;
        let passwords = match &config.auth_file {
            None => None,
            Some(path) => {
                wire_limits.allowed.admission = match (config.sasl, config.allowed.protocols) {
                    (false, _) => Admission::ByPassword,
                    (true, Protocols::Binary) => Admission::BySasl,
                    (true, Protocols::Any | Protocols::Text) => Admission::Either,
                };
                Some(Passwords::load(path)?)
            }
        };
        let keys = config.tls.as_ref().map(Keys::load).transpose()?;
        let listeners = listen::listen(&config)?;
        let status_port = config.status.as_ref().map(StatusPort::listen).transpose()?;
        let status_addresses = status_port
            .as_ref()
            .map_or(Ok(Vec::new()), StatusPort::addresses)?;
        let addresses: Vec<_> = listeners
            .iter()
            .map(|listener| listener.address().clone())
            .collect();
        let clock = Clock::start();
        let memory_file = config.memory_file.as_deref();
        let memory_file = memory_file.map(|path| MemoryFile::open(path, config.value_bytes_max));
        let memory_file = memory_file.transpose()?.flatten();
        let shards = shard_count(threads, &limits);
        let mailboxes: Arc<[Mailbox]> = (0..threads)
            .map(|_| Mailbox::new())
            .collect::<Result<_, _>>()?;
        let waiters = Arc::new(Waiters::new(Arc::clone(&mailboxes)));
        wire_limits.waits = true;
        let (tell_gone, gone) = smol::channel::bounded(1);
        let (tell_shutdown, shutdowns) = smol::channel::bounded(1);
        let shared = Arc::new(Shared {
            shards: Shards::new(
                shards,
                limits,
                clock.unix_s_at_start(),
                config.prefix_delimiter,
                Arc::clone(&waiters),
                memory_file.as_ref().map(|file| file.numbers),
            ),
            wire_limits,
            roster: Roster::new(&addresses),
            keys,
            passwords,
            connection_stats: ConnectionStats::new(config.connections_max, threads),
            watch: Watch::new(config.watcher_bytes_max),
            unfinished: Budget::new(config.unfinished_bytes_max()),
            unsent: Budget::new(config.unsent_bytes_max()),
            is_stopping: AtomicBool::new(false),
            ticked_ms: AtomicU64::new(clock.now().as_millis()),
            mailboxes,
            waiters,
            clock,
            config,
            tell_gone,
            gone,
            tell_shutdown,
        });
        // There is room for one from each thread.
        let (fail, failures) = smol::channel::bounded(threads + 1);
        // From here on dropping it ends what has been started.
        let mut server = Self {
            shared,
            addresses,
            status_addresses,
            threads: Vec::new(),
            acceptor: None,
            stop_clock: None,
            failures,
            shutdowns,
            is_complete: false,
        };
        if let Some(file) = memory_file {
            file.restore(&server.shared.shards, &server.shared.clock)?;
        }
        server.is_complete = true;
        for index in 0..threads {
            let shared = Arc::clone(&server.shared);
            let worker = Worker::new(index, shared)?;
            let fail = fail.clone();
            server.spawn(format!("latchd-{index}"), move || {
                if let Err(error) = smol::block_on(worker.run()) {
                    tracing::error!("worker {index} has ended: {error}");
                    // Nobody has to listen.
                    let _ = fail.try_send(error);
                }
            })?;
        }
        let (stop_clock, stopped) = smol::channel::bounded(1);
        server.stop_clock = Some(stop_clock);
        let stop_status = stopped.clone();
        let shared = Arc::clone(&server.shared);
        server.spawn("latchd-clock".into(), move || {
            smol::block_on(keep_time(&shared, &stopped));
        })?;
        if let Some(port) = status_port {
            let shared = Arc::clone(&server.shared);
            server.spawn("latchd-status".into(), move || {
                if let Err(error) = smol::block_on(port.serve(&shared, stop_status)) {
                    // Clients are served all the same.
                    tracing::error!("the status port has ended: {error}");
                }
            })?;
        }
        // Last: whoever is let in is served.
        let (stop, stopped) = smol::channel::bounded(1);
        let shared = Arc::clone(&server.shared);
        let thread = spawn("latchd-accept".into(), move || {
            if let Err(error) = smol::block_on(acceptor::accept(listeners, &shared, stopped)) {
                tracing::error!("accepting has ended: {error}");
                let _ = fail.try_send(error);
            }
        })?;
        server.acceptor = Some((stop, thread));
        Ok(server)
    }

    /// Where it can be reached: the real ports, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where its status port can be reached; empty if it has none
    /// ([`Config::status`](crate::Config::status)).
    #[must_use]
    pub fn status_addresses(&self) -> &[SocketAddr] {
        &self.status_addresses
    }

    /// Waits for a thread that cannot go on, which is nobody's doing but the kernel's, and says why.
    /// What clients it had are closed and their locks free; new ones would be given to it in vain,
    /// so the server is to be shut down. While all threads serve, this waits.
    pub async fn failed(&self) -> io::Error {
        match self.failures.recv().await {
            Ok(error) => error,
            // All have ended without a failure: at the server's end, which waits for `self`.
            Err(_) => smol::future::pending().await,
        }
    }

    /// Waits until a client has asked for the end of the server, which
    /// [`Config::allowed`](crate::Config::allowed) lets it. The server is to be shut down then.
    pub async fn asked_to_end(&self) {
        if self.shutdowns.recv().await.is_err() {
            // Nobody can ask any more: the server has ended.
            smol::future::pending::<()>().await;
        }
    }

    /// Whether every thread hears, and the items are told the time: what a watchdog asks. It takes a
    /// few microseconds if all is well, and 3 s if not.
    pub async fn is_well(&self) -> bool {
        health::is_well(&self.shared).await
    }

    /// Reads anew what can be read anew: the names and passwords of
    /// [`Config::auth_file`](crate::Config::auth_file), and the certificates of
    /// [`Config::tls`](crate::Config::tls), for connections to come.
    ///
    /// # Errors
    /// What is wrong with the first that is; what it is about stays as it was then.
    pub fn reload(&self) -> io::Result<()> {
        let Shared {
            passwords, keys, ..
        } = &*self.shared;
        let passwords = passwords.as_ref().map_or(Ok(()), Passwords::reload);
        let keys = keys.as_ref().map_or(Ok(()), Keys::reload);
        passwords.and(keys)
    }

    /// Ends the server: it stops listening, releases every lock, closes every connection, removes
    /// its Unix socket, writes its items down if it has a file for them
    /// ([`Config::memory_file`](crate::Config::memory_file)), and returns when all that is done.
    pub fn shutdown(self) {
        drop(self);
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(spawn(name, body)?);
        Ok(())
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(body)
}

fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    if thread.join().is_err() {
        tracing::error!("{name} had failed");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // New clients first: they could see locks of those that are about to be closed.
        if let Some((stop, thread)) = self.acceptor.take() {
            drop(stop);
            join(thread);
        }
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.stop_clock = None;
        for mailbox in &*self.shared.mailboxes {
            mailbox.ring();
        }
        self.threads.drain(..).for_each(join);
        let Shared {
            config,
            shards,
            clock,
            ..
        } = &*self.shared;
        // A thread that has failed may have left half a change behind.
        if let Some(path) = config.memory_file.as_deref().filter(|_| self.is_complete)
            && !shards.have_failed()
        {
            memory_file::save(path, shards, clock);
        }
    }
}

/// Ticks until the server stops; and lets waits and leases end when it is time, not a tick later.
async fn keep_time(shared: &Shared, stopped: &Receiver<()>) {
    let mut tick_at = Instant::now() + TICK;
    let mut swept = Instant::now();
    loop {
        let wake_at = shared.waiters.deadline().map(|at| {
            let now_ms = shared.clock.now().as_millis();
            Instant::now() + Duration::from_millis(at.as_millis().saturating_sub(now_ms))
        });
        let alarm = async {
            Timer::at(wake_at.map_or(tick_at, |at| at.min(tick_at))).await;
            true
        };
        let nearer = async {
            shared.waiters.nearer().await;
            true
        };
        let stop = async {
            // Nothing is ever sent: an error says that the other side has gone.
            let _ = stopped.recv().await;
            false
        };
        if !stop.or(alarm).or(nearer).await {
            return;
        }
        let now = shared.clock.now();
        // As they are let go of, the shards say when it is time again.
        shared.waiters.forget_deadline();
        if Instant::now() < tick_at {
            shared.shards.pass(now);
            continue;
        }
        let wants_more = shared.shards.tick(now, shared.clock.unix_s_at_start());
        shared.ticked_ms.store(now.as_millis(), Ordering::Relaxed);
        shared.tell_evicted();
        tick_at = Instant::now() + if wants_more { BUSY_TICK } else { TICK };
        let is_swept = shared.config.idle_timeout.is_some() || shared.keys.is_some();
        if is_swept && swept.elapsed() >= SWEEP {
            swept = Instant::now();
            for mailbox in &*shared.mailboxes {
                mailbox.post(Message::Sweep);
            }
        }
    }
}
