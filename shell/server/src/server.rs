//! A running server: its threads, and its shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::acceptor;
use crate::beliefs::Beliefs;
use crate::clients::passwords::Passwords;
use crate::config::Config;
use crate::election::{Candidacy, Standing};
use crate::memory_file::{self, Claim, MemoryFile};
use crate::net::listen::{self, Address};
use crate::net::tls::Keys;
use crate::os::threads::{join, spawn_thread, start_reactor};
use crate::server_state::ServerState;
use crate::status::StatusPort;
use crate::status::health;
use crate::sync::channel::{Receiver, Sender, bounded};
use crate::time_keeper::keep_time;
use crate::worker::Worker;

/// A running server. Dropping it ends it, as [`Server::shutdown`] does.
///
/// If an assertion of the core fails, the thread panics, and the items of that shard are not used again. A
/// program that embeds a server should abort on panic, as `latchd` does.
#[derive(Debug)]
pub struct Server {
    shared: Arc<ServerState>,
    addresses: Vec<Address>,
    status_addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    /// The accepting thread; it ends when the sender is dropped.
    acceptor: Option<(Sender<()>, JoinHandle<()>)>,
    /// The threads of the clock and of the status port end when this is dropped.
    stop_clock: Option<Sender<()>>,
    /// The errors of workers that cannot continue.
    failures: Receiver<io::Error>,
    /// Receives a message when a client has requested a shutdown.
    shutdowns: Receiver<()>,
    /// Whether it has all its items: only then does it write them when it ends.
    is_complete: bool,
    /// The claim to the memory file, held until the items are written.
    _memory_claim: Option<Claim>,
    /// The part in a cluster.
    cluster: Option<Standing>,
}

impl Config {
    /// Reads the passwords as a start does.
    ///
    /// # Errors
    /// Those of a start: the file cannot be read, or has a mistake.
    pub fn check_passwords(&self) -> io::Result<()> {
        passwords(self).map(drop)
    }

    /// Reads the certificates and the key as a start does.
    ///
    /// # Errors
    /// Those of a start: a file cannot be read, or has a mistake.
    pub fn check_certificates(&self) -> io::Result<()> {
        keys(self).map(drop)
    }
}

fn passwords(config: &Config) -> io::Result<Option<Passwords>> {
    config.auth_file.as_deref().map(Passwords::load).transpose()
}

fn keys(config: &Config) -> io::Result<Option<Keys>> {
    config.tls.as_ref().map(Keys::load).transpose()
}

impl Server {
    /// Listens, starts the threads, and returns. From then on clients are served; as a member of a cluster
    /// (`Config::cluster`) only while it is the primary, and until then no socket listens.
    ///
    /// # Errors
    /// An address that fails ([`io::ErrorKind::AddrInUse`] if another process has it), a lack of descriptors
    /// or threads, or a contradictory configuration ([`io::ErrorKind::InvalidInput`]). Nothing runs then.
    pub fn start(config: Config) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        config.check().map_err(invalid)?;
        start_reactor()?;
        let threads = config.threads.get();
        let passwords = passwords(&config)?;
        let keys = keys(&config)?;
        let listeners = listen::listen(&config)?;
        let status_port = config.status.as_ref();
        let status_port =
            status_port.map(|wanted| StatusPort::listen(wanted, &config.status_hosts));
        let status_port = status_port.transpose()?;
        let status_addresses = status_port
            .as_ref()
            .map_or(Ok(Vec::new()), StatusPort::addresses)?;
        let addresses: Vec<_> = listeners
            .iter()
            .map(|listener| listener.address().clone())
            .collect();
        let memory_path = config.memory_file.as_deref();
        memory_path.map(memory_file::check).transpose()?;
        // A member of a cluster reads the file when its term begins.
        let own_path = memory_path.filter(|_| !config.is_member());
        let memory_claim = own_path.map(Claim::to).transpose()?;
        let memory_file = own_path.map(|path| MemoryFile::open(path, config.value_bytes_max));
        let memory_file = memory_file.transpose()?.flatten();
        let beliefs = if config.is_member() {
            None
        } else {
            Beliefs::open(&config)?
        };
        let (beliefs, believed) = beliefs.unzip();
        let candidacy = Candidacy::new(&config, &addresses)?;
        let member = candidacy.as_ref().map(|one| Arc::clone(one.member()));
        let beliefs = beliefs.map(Arc::new);
        let (shared, shutdowns) =
            ServerState::new(config, &addresses, keys, passwords, member, beliefs)?;
        let shared = Arc::new(shared);
        shared.withhold_grants(believed.unwrap_or_default());
        // The channel has space for one error of each thread.
        let (fail, failures) = bounded(threads + 1);
        // From here on, dropping it ends the threads started so far.
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
            _memory_claim: memory_claim,
            cluster: None,
        };
        if let Some(file) = memory_file {
            file.restore_alone(&server.shared.shards, &server.shared.clock)?;
        }
        server.is_complete = true;
        for index in 0..threads {
            let shared = Arc::clone(&server.shared);
            let worker = Worker::new(index, shared)?;
            let fail = fail.clone();
            server.spawn(&format!("latchd-{index}"), move || {
                if let Err(error) = worker.run() {
                    tracing::error!("worker {index} failed: {error}");
                    // Without a receiver, the error is dropped.
                    let _ = fail.try_send(error);
                }
            })?;
        }
        let (stop_clock, stopped) = bounded(1);
        server.stop_clock = Some(stop_clock);
        let stop_status = stopped.clone();
        let shared = Arc::clone(&server.shared);
        server.spawn("latchd-clock", move || {
            smol::block_on(keep_time(&shared, &stopped));
        })?;
        if let Some(port) = status_port {
            let shared = Arc::clone(&server.shared);
            server.spawn("latchd-status", move || {
                if let Err(error) = smol::block_on(port.serve(&shared, stop_status)) {
                    // The server still serves its clients.
                    tracing::error!("status port failed: {error}");
                }
            })?;
        }
        let mut begins = None;
        if let Some(candidacy) = candidacy {
            let (begin, first) = bounded(1);
            begins = Some(first);
            server.cluster = Some(candidacy.stand(&server.shared, begin)?);
        }
        // Last: every accepted client is served.
        let (stop, stopped) = bounded(1);
        let shared = Arc::clone(&server.shared);
        let thread = spawn_thread("latchd-accept", move || {
            let accepted = acceptor::accept(&listeners, &shared, begins, &stopped);
            if let Err(error) = accepted {
                tracing::error!("accepting connections failed: {error}");
                let _ = fail.try_send(error);
            }
        })?;
        server.acceptor = Some((stop, thread));
        Ok(server)
    }

    /// The addresses of its listeners, with the actual ports, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The addresses of its status port; empty without one ([`Config::status`](crate::Config::status)).
    #[must_use]
    pub fn status_addresses(&self) -> &[SocketAddr] {
        &self.status_addresses
    }

    /// Waits for a thread that cannot continue, which only the kernel can cause, and returns its error. Its
    /// clients are closed and their locks released. New clients assigned to it would not be served, so the
    /// caller should shut the server down. While all threads serve, this waits.
    pub async fn failed(&self) -> io::Error {
        match self.failures.recv().await {
            Ok(error) => error,
            // All threads have ended without a failure: in a shutdown, which waits for `self`.
            Err(_) => smol::future::pending().await,
        }
    }

    /// Waits until a client requests a shutdown, if [`Config::allowed`](crate::Config::allowed) permits that.
    /// The caller should then shut the server down.
    pub async fn asked_to_end(&self) {
        if self.shutdowns.recv().await.is_err() {
            // No client is left to request it: the server has ended.
            smol::future::pending::<()>().await;
        }
    }

    /// Waits until the part in a cluster is over. The caller ends the process at once; if it does not, the
    /// process ends by itself after 100 ms. Without a cluster, this waits for ever.
    #[cfg(feature = "cluster")]
    pub async fn over(&self) -> latchd_cluster::Over {
        match &self.cluster {
            Some(cluster) => cluster.over().await,
            None => smol::future::pending().await,
        }
    }

    /// Waits until the ring of the cluster has accepted this process or refused it ([`Self::over`]), or the authority has
    /// not answered for 3 s. Without a cluster, this does not wait.
    #[cfg(feature = "cluster")]
    pub async fn decided(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.decided().await;
        }
    }

    /// The check for a watchdog: whether every thread responds, and the clock's ticks reach the items. It
    /// takes a few microseconds if so, and 3 s if not.
    pub async fn is_well(&self) -> bool {
        health::is_well(&self.shared).await
    }

    /// Reloads the names and passwords of [`Config::auth_file`](crate::Config::auth_file), and the
    /// certificates of [`Config::tls`](crate::Config::tls) and of the authority. They apply to new connections. Each
    /// connection to the authority is opened anew.
    ///
    /// # Errors
    /// The defect of the first file that fails; the data of that file is unchanged then.
    pub fn reload(&self) -> io::Result<()> {
        let ServerState {
            passwords, keys, ..
        } = &*self.shared;
        let passwords = passwords.as_ref().map_or(Ok(()), Passwords::reload);
        let keys = keys.as_ref().map_or(Ok(()), Keys::reload);
        let cluster = self.cluster.as_ref().map_or(Ok(()), Standing::reload);
        passwords.and(keys).and(cluster)
    }

    /// Shuts the server down: it stops listening, releases every lock, closes every connection, and removes
    /// its Unix socket. If it has a memory file ([`Config::memory_file`](crate::Config::memory_file)), it
    /// writes its items. It returns when all this is done. The primary of a partition first announces that it leaves. It
    /// serves on for 400 ms, until every standby looks for the end more often, and until no client relies on its hold.
    #[expect(
        clippy::must_use_candidate,
        reason = "without a memory file it is always clean"
    )]
    pub fn shutdown(mut self) -> Ended {
        self.end()
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(spawn_thread(name, body)?);
        Ok(())
    }
}

/// The outcome of a [shutdown](Server::shutdown).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// The items are written, or there is no memory file for them.
    Clean,
    /// The items cannot be written to the memory file; the log says why.
    ItemsLost,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl Server {
    /// Ends it. The second call, of the drop after a shutdown, finds nothing left to end or to write.
    fn end(&mut self) -> Ended {
        // A client that is granted a lock now could not know that it ends at once.
        let shared = &self.shared;
        shared.shards.withhold_grants(shared.clock.now(), None);
        if let Some(cluster) = &self.cluster {
            cluster.leave();
        }
        // The acceptor first: a new client could see locks of clients that are about to be closed.
        if let Some((stop, thread)) = self.acceptor.take() {
            drop(stop);
            join(thread);
        }
        self.shared.stop();
        self.stop_clock = None;
        self.threads.drain(..).for_each(join);
        self.shared.take_recorder().into_iter().for_each(join);
        let mut writer = None;
        if let Some(cluster) = &self.cluster {
            writer = cluster.ended();
            self.is_complete &= writer.is_some();
        }
        let ServerState {
            config,
            shards,
            clock,
            ..
        } = &*self.shared;
        // A thread that has failed may have left an incomplete change.
        let is_complete = std::mem::take(&mut self.is_complete) && !shards.have_failed();
        let is_saved = match config.memory_file.as_deref().filter(|_| is_complete) {
            Some(path) => memory_file::save(path, shards, clock, writer),
            None => true,
        };
        if let Some(cluster) = self.cluster.take() {
            cluster.close();
        }
        if is_saved {
            Ended::Clean
        } else {
            Ended::ItemsLost
        }
    }
}
