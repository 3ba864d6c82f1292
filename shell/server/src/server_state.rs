//! The state that all threads of a server share.
//!
//! Every thread uses it at any time: a constant configuration, counters, and mutexes that are held for one
//! command.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use latchd_core::{ConnId, Instant, Limits, Owner};
use latchd_protocol::command::ScanCursor;
use latchd_protocol::stats::{StatsLine, StatsTopic};
use latchd_protocol::watch::{Topic, of_session};
use latchd_protocol::wire::{Admission, Protocols, WireLimits};

use crate::beliefs::Beliefs;
use crate::clients::budget::Budget;
use crate::clients::connection_table::ConnectionTable;
use crate::clients::mailbox::{Mailbox, Message};
use crate::clients::passwords::Passwords;
use crate::clients::waiters::Waiters;
use crate::clients::watch::Watch;
use crate::cluster::Member;
use crate::config::Config;
use crate::net::listen::Address;
use crate::net::tls::Keys;
use crate::os::threads::spawn_thread;
use crate::shards::{Shards, StatsPage, shard_count};
use crate::stats::connection_stats::{ConnectionStats, line, settings_lines};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::channel::{Receiver, Sender, bounded};
use crate::sync::clock::Clock;

/// The number of no connection.
const NOBODY: u64 = 0;

/// One server, as each of its threads sees it.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) shards: Shards,
    /// The limits of a connection, derived from those of the shards.
    pub(crate) wire_limits: WireLimits,
    pub(crate) connection_stats: ConnectionStats,
    /// The watchers.
    pub(crate) watch: Watch,
    /// The last number that a connection or a session got.
    last_number: AtomicU64,
    /// The connected clients.
    pub(crate) connection_table: ConnectionTable,
    /// The server's TLS keys, if it uses TLS.
    pub(crate) keys: Option<Keys>,
    /// The names and passwords; `None`: every client is accepted.
    pub(crate) passwords: Option<Passwords>,
    /// The memory of incomplete requests.
    pub(crate) unfinished: Budget,
    /// The memory of unread replies.
    pub(crate) unsent: Budget,
    /// The number of sockets of closed clients, kept until the clients have read the error
    /// ([`crate::net::lingering`]).
    pub(crate) lingering: AtomicUsize,
    pub(crate) is_stopping: AtomicBool,
    /// The time of the last tick of the items, in milliseconds.
    pub(crate) ticked_ms: AtomicU64,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    /// The waiting clients.
    pub(crate) waiters: Arc<Waiters>,
    /// Notifies the acceptor that a client is closed. It holds one message, which is enough for any number of
    /// clients.
    pub(crate) tell_closed: Sender<()>,
    /// The receiver of these messages.
    pub(crate) closed: Receiver<()>,
    /// Receives a message when a client requests a shutdown.
    pub(crate) tell_shutdown: Sender<()>,
    /// The part in a cluster; `None`: the server serves from its start on.
    pub(crate) member: Option<Arc<Member>>,
    /// The record of times that clients rely on after the end of the process, if there is a place for it.
    pub(crate) beliefs: Option<Arc<Beliefs>>,
    /// Until when no lock is granted after the start, in milliseconds; 0 if locks are granted.
    withheld_until_ms: AtomicU64,
    /// The thread that begins the record anew.
    recorder: Mutex<Option<JoinHandle<()>>>,
}

impl ServerState {
    /// The state of a server before its threads start, and the receiver of a client's shutdown request. It
    /// listens on `addresses`. As a `member` of a cluster, it serves only while it is the primary.
    ///
    /// # Errors
    /// The kernel's, if there are no descriptors left.
    pub(crate) fn new(
        config: Config,
        addresses: &[Address],
        keys: Option<Keys>,
        passwords: Option<Passwords>,
        member: Option<Arc<Member>>,
        beliefs: Option<Arc<Beliefs>>,
    ) -> io::Result<(Self, Receiver<()>)> {
        let threads = config.threads.get();
        let mut limits = Limits::new(config.memory_bytes_max, config.value_bytes_max);
        limits.evict = config.evict;
        limits.erase = config.secure_erase;
        limits.locks_per_connection_max = config.locks_per_connection_max;
        let mut wire_limits = WireLimits::from(&limits);
        wire_limits.allowed = config.allowed;
        wire_limits.waits = true;
        if passwords.is_some() {
            wire_limits.allowed.admission = match (config.sasl, config.allowed.protocols) {
                (false, _) => Admission::ByPassword,
                (true, Protocols::Binary) => Admission::BySasl,
                (true, Protocols::Any | Protocols::Text) => Admission::Either,
            };
        }
        let clock = Clock::start();
        let mailboxes: Arc<[Mailbox]> = (0..threads)
            .map(|_| Mailbox::new())
            .collect::<Result<_, _>>()?;
        let waiters = Arc::new(Waiters::new(Arc::clone(&mailboxes), config.verbosity >= 3));
        let (tell_closed, closed) = bounded(1);
        let (tell_shutdown, shutdowns) = bounded(1);
        let connection_table = ConnectionTable::new(addresses);
        let mut items = latchd_core::Config::new(limits, clock.unix_s_at_start())
            .with_sessions(config.sessions);
        items.prefix_delimiter = config.prefix_delimiter;
        let shared = Self {
            last_number: AtomicU64::new(connection_table.last_listener()),
            shards: Shards::new(shard_count(threads, &limits), items, Arc::clone(&waiters)),
            wire_limits,
            connection_table,
            keys,
            passwords,
            connection_stats: ConnectionStats::new(config.connections_max, threads),
            watch: Watch::new(config.watcher_bytes_max),
            unfinished: Budget::new(config.unfinished_bytes_max()),
            unsent: Budget::new(config.unsent_bytes_max()),
            lingering: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            ticked_ms: AtomicU64::new(clock.now().as_millis()),
            mailboxes,
            waiters,
            clock,
            config,
            tell_closed,
            closed,
            tell_shutdown,
            member,
            beliefs,
            withheld_until_ms: AtomicU64::new(0),
            recorder: Mutex::new(None),
        };
        Ok((shared, shutdowns))
    }

    /// Stops every worker: sets the flag, then wakes them.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for mailbox in &*self.mailboxes {
            mailbox.wake();
        }
    }

    /// Whether the server may serve at this moment (E2).
    #[inline]
    pub(crate) fn serves(&self) -> bool {
        let member = self.member.as_ref();
        member.is_none_or(|member| member.serves())
    }

    /// Grants no lock for so long, since clients may believe in locks of the previous process.
    pub(crate) fn withhold_grants(&self, span: Duration) {
        if span.is_zero() {
            return;
        }
        let now = self.clock.now();
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        // The clock shows whole milliseconds that have begun.
        let until = now.as_millis().saturating_add(span_ms).saturating_add(1);
        self.shards
            .withhold_grants(now, Some(Instant::from_millis(until)));
        self.withheld_until_ms.store(until, Ordering::Relaxed);
        tracing::warn!(
            event = "locks_withheld",
            ms = span_ms,
            "no lock is granted for {:.1} s: clients of the previous process may still believe in their locks",
            span.as_secs_f64()
        );
    }

    /// It is `now`: locks may be granted again.
    pub(crate) fn pass_withheld(&self, now: Instant) {
        let until_ms = self.withheld_until_ms.load(Ordering::Relaxed);
        if until_ms == 0 || now.as_millis() < until_ms {
            return;
        }
        self.withheld_until_ms.store(0, Ordering::Relaxed);
        tracing::info!(event = "locks_granted", "locks are granted again");
        if let Some(beliefs) = self.beliefs.clone() {
            // The clock does not wait for the disk. Without a thread, the record keeps the longer time.
            let started = spawn_thread("latchd-record", move || beliefs.begin_anew()).ok();
            *self.recorder.lock().expect("it is held for a moment") = started;
        }
    }

    /// Whether no lock is granted for a while after the start.
    pub(crate) fn are_withheld(&self) -> bool {
        self.withheld_until_ms.load(Ordering::Relaxed) != 0
    }

    /// The thread that writes the record, if it was started. The claim to the record must not end before it does.
    pub(crate) fn take_recorder(&self) -> Option<JoinHandle<()>> {
        let mut recorder = self.recorder.lock().expect("it is held for a moment");
        recorder.take()
    }

    /// The seconds, rounded up, for which no lock is granted after the start.
    fn withheld_s(&self) -> u64 {
        let until_ms = self.withheld_until_ms.load(Ordering::Relaxed);
        let left_ms = until_ms.saturating_sub(self.clock.now().as_millis());
        left_ms.div_ceil(1000)
    }

    /// Whether connections, logins and sessions are logged.
    pub(crate) fn is_verbose(&self) -> bool {
        self.config.verbosity > 0
    }

    /// Whether a connection is logged before it sends anything. Probes would fill the log of `-v`.
    pub(crate) fn logs_probes(&self) -> bool {
        self.config.verbosity > 1
    }

    /// A number that no connection and no session has had.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The mailbox of a worker.
    pub(crate) fn mailbox(&self, worker: usize) -> &Mailbox {
        &self.mailboxes[worker]
    }

    /// Sends a line to the watchers of its topic; `about` is the connection that the line is about.
    pub(crate) fn tell(&self, topic: Topic, about: u64, text: &str) {
        for holder in self.watch.tell(topic, about, text) {
            self.mailbox(holder.worker).post(Message::News(holder.name));
        }
    }

    /// Reports an event of a session to the log and to the watchers of locks.
    pub(crate) fn tell_session(&self, event: &'static str, session: Owner, conn: Option<ConnId>) {
        let about = conn.map_or(NOBODY, ConnId::number);
        if self.is_verbose() {
            let (number, session) = (about, session.number());
            tracing::info!(
                event = "session",
                conn = number,
                session,
                "session {session}: {event}"
            );
        }
        if self.watch.wanted().contain(Topic::Locks) {
            self.tell(Topic::Locks, about, &of_session(event, session, conn));
        }
    }

    /// Sends the evictions since the last call to the watchers.
    pub(crate) fn tell_evicted(&self) {
        let is_watched = self.watch.wanted().contain(Topic::Evictions);
        let (evicted, missed) = self.shards.evicted(is_watched);
        self.watch.count_dropped(missed);
        for item in &evicted {
            self.tell(Topic::Evictions, NOBODY, &item.line());
        }
    }

    /// The `stats` lines of the server outside the core, and the start of the next page.
    pub(crate) fn stats_page(&self, topic: StatsTopic) -> StatsPage {
        if let StatsTopic::Conns(ScanCursor(behind)) = topic {
            let (lines, next) = self.connection_table.lines(self.clock.now(), behind);
            return (lines, next.map(ScanCursor));
        }
        if let StatsTopic::Sessions(behind) = topic {
            return self.shards.session_lines(self.clock.now(), behind);
        }
        (self.stats_lines(topic), None)
    }

    /// The lines of a topic with one page.
    pub(crate) fn stats_lines(&self, topic: StatsTopic) -> Vec<StatsLine> {
        match topic {
            StatsTopic::General => {
                let mut lines = self
                    .connection_stats
                    .general_lines(&self.config, &self.clock);
                let (count, bytes) = self.unsent.kept_now();
                lines.push(line("response_obj_count", count));
                lines.push(line("response_obj_bytes", bytes));
                let (count, bytes) = self.unfinished.kept_now();
                lines.push(line("read_buf_count", count));
                lines.push(line("read_buf_bytes", bytes));
                lines.push(line("read_buf_bytes_free", 0));
                lines.extend(self.watch.stats_lines());
                lines.extend(self.shards.session_counts(self.clock.now()));
                lines.push(line("locks_withheld_s", self.withheld_s()));
                if let Some(member) = &self.member {
                    lines.extend(member.number_lines());
                }
                let keys = self.keys.iter();
                lines.extend(keys.flat_map(|keys| {
                    let (age, end) = (keys.age(), keys.not_after_unix_s());
                    self.connection_stats.tls_lines(age, end)
                }));
                lines
            }
            StatsTopic::Settings => settings_lines(&self.config),
            StatsTopic::Cluster => self
                .member
                .iter()
                .flat_map(|member| member.lines())
                .collect(),
            StatsTopic::Items
            | StatsTopic::Slabs
            | StatsTopic::Sizes
            | StatsTopic::Conns(_)
            | StatsTopic::Sessions(_)
            | StatsTopic::Locks(_)
            | StatsTopic::Detail(_)
            | StatsTopic::DetailOn
            | StatsTopic::DetailOff
            | StatsTopic::Extstore => Vec::new(),
        }
    }

    /// The time since the last tick of the items.
    pub(crate) fn since_tick(&self) -> Duration {
        let now_ms = self.clock.now().as_millis();
        Duration::from_millis(now_ms.saturating_sub(self.ticked_ms.load(Ordering::Relaxed)))
    }

    /// Chooses the worker of a new client: the one with the fewest clients.
    pub(crate) fn assign(&self) -> usize {
        let load = |mailbox: &Mailbox| mailbox.clients().load(Ordering::Relaxed);
        let (worker, mailbox) = self
            .mailboxes
            .iter()
            .enumerate()
            .min_by_key(|(_, mailbox)| load(mailbox))
            .expect("there is at least one worker");
        mailbox.clients().fetch_add(1, Ordering::Relaxed);
        worker
    }

    /// Counts a client that has left its worker; the acceptor may be waiting for this.
    pub(crate) fn count_closed(&self, worker: usize) {
        self.mailbox(worker)
            .clients()
            .fetch_sub(1, Ordering::Relaxed);
        self.connection_stats.count_closed();
        // If the channel is full, the acceptor knows already.
        let _ = self.tell_closed.try_send(());
    }
}
