//! The steps of a measurement: connect, check the server, store the keys, measure.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use latchd_client::blocking::Client;
use latchd_client::{Error, ErrorKind};
use latchd_load::latencies::Latencies;
use latchd_load::wire::{Ask, Reply, Requests, shown};
use latchd_load::workload::{Fill, GetsSets, Keys, Locks};
use latchd_load::zipf::Zipf;
use latchd_load::{Load, Meter, Stop, Workload};
use rustix::time::{ClockId, clock_gettime};

use super::attend::{Attendant, Shared};
use super::report::{Measured, Report};
use super::stream::{Opened, Plain, Tls};
use super::work::{Figures, Handover, Requested, Work};
use super::{BenchArgs, Distribution, EXIT_INTERRUPTED, Kind, Protocol, name};
use crate::os::{descriptors, processes};
use crate::output::Failure;

/// The skew of `--distribution zipf`: the key of rank r is drawn in proportion to r^-1.
const SKEW: f64 = 1.0;

/// The requests at a time on each connection while the keys are stored, and the most bytes of values for that.
const FILL_DEPTH: u32 = 64;
const FILL_BYTES_MAX: u64 = 64 << 20;

/// The descriptors besides those of the clients: the standard ones, those of the event loop and of the signals, an
/// epoll per thread, two more while a connection is opened.
const DESCRIPTORS: usize = 16;

/// The threads besides those of the load: the event loop, a name lookup, one in reserve.
const PROCESSES: usize = 3;

/// Measures.
///
/// # Errors
/// [`Failure`].
pub(super) fn measure(args: &BenchArgs) -> Result<Report, Failure> {
    let needed = (args.clients + args.threads) as usize + DESCRIPTORS;
    descriptors::check(needed)
        .and_then(|()| processes::check(args.threads as usize + PROCESSES))
        .map_err(Failure::system)?;
    let client = args.server.client(args.timeout);
    let client = client.map_err(Failure::usage)?;
    if args.server.access.is_tls() {
        Bench::<Tls>::connect(args, &client)?.measure()
    } else {
        Bench::<Plain>::connect(args, &client)?.measure()
    }
}

/// The connections to the server, and the way to report on them.
struct Bench<'a, S> {
    args: &'a BenchArgs,
    address: String,
    /// The connections of each thread.
    loads: Vec<Load<S>>,
    /// Which of all connections each thread has.
    parts: Vec<Range<u32>>,
    attendant: Attendant,
}

impl<'a, S: Opened> Bench<'a, S> {
    /// Checks the server, and opens the connections.
    fn connect(args: &'a BenchArgs, client: &Client) -> Result<Self, Failure> {
        let address = client.address().to_owned();
        let open = || {
            let connection = client.open().map_err(|error| unreachable(&error))?;
            S::of(connection).map_err(|error| Failure::unavailable(format!("{address}: {error}")))
        };
        check(args, &address, open()?)?;
        let threads = args.threads.min(args.clients);
        let edge = |thread: u32| share(args.clients, thread as usize, threads as usize);
        let parts: Vec<_> = (0..threads)
            .map(|thread| edge(thread)..edge(thread + 1))
            .collect();
        let mut loads = Vec::new();
        for part in &parts {
            let streams = part.clone().map(|_| open()).collect::<Result<_, _>>()?;
            let load = Load::over(streams, args.pipeline as usize);
            loads.push(load.map_err(|error| failed(&address, &error))?);
        }
        // Until now, a signal ends the process.
        let attendant = Attendant::new().map_err(|error| Failure::system(error.to_string()))?;
        Ok(Self {
            args,
            address,
            loads,
            parts,
            attendant,
        })
    }

    fn measure(mut self) -> Result<Report, Failure> {
        let args = self.args;
        let mut requests = Requests::new(args.protocol.dialect(), args.value_size as usize, 0);
        if args.workload != Kind::Handover && !args.no_fill {
            self.fill(&requests)?;
        }
        if args.workload == Kind::Handover {
            requests = requests.waiting();
        }
        if self.attendant.is_interrupted {
            let why = "interrupted before anything was measured";
            return Err(Failure::new(EXIT_INTERRUPTED, why));
        }
        let released: Vec<_> = match args.workload {
            Kind::Handover => (0..args.keys()).map(|_| AtomicU64::new(0)).collect(),
            Kind::Cache | Kind::Lock => Vec::new(),
        };
        let (keys, epoch) = (self.keys(), Instant::now());
        let requested = |thread: usize, part: Range<u32>| {
            let connections = part.len();
            let seed = 1 + thread as u64;
            match args.workload {
                Kind::Cache => Requested::Cache(GetsSets::of(seed, keys.clone(), 100 - args.gets)),
                Kind::Lock => {
                    let each = args.keys() / args.clients;
                    let keys = part.start * each..part.end * each;
                    Requested::Lock(Locks::new(seed, keys, connections))
                }
                Kind::Handover => {
                    Requested::Handover(Handover::new(seed, &released, epoch, connections))
                }
            }
        };
        let name = name(&args.workload);
        let measured = self.phase(&name, &requests, requested, args.requests, args.time())?;
        let is_interrupted = self.attendant.is_interrupted;
        Ok(Report::new(args, &self.address, &measured, is_interrupted))
    }

    fn keys(&self) -> Keys {
        let keys = self.args.keys();
        match self.args.distribution {
            Distribution::Uniform => Keys::Evenly(keys),
            Distribution::Zipf => Keys::Zipf(Zipf::new(keys, SKEW)),
        }
    }

    /// Stores all keys, each thread a part of them.
    fn fill(&mut self, requests: &Requests) -> Result<(), Failure> {
        let args = self.args;
        let fits = FILL_BYTES_MAX / args.under_way(1);
        let fits = u32::try_from(fits).unwrap_or(FILL_DEPTH);
        let depth = fits.min(FILL_DEPTH).max(args.pipeline);
        self.set_depth(depth);
        let threads = self.loads.len();
        let edge = |thread: usize| share(args.keys(), thread, threads);
        let requested =
            |thread: usize, _| Requested::Fill(Fill::new(edge(thread)..edge(thread + 1)));
        self.phase("storing the keys", requests, requested, None, None)?;
        self.set_depth(args.pipeline);
        Ok(())
    }

    fn set_depth(&mut self, depth: u32) {
        for load in &mut self.loads {
            load.set_depth(depth as usize);
        }
    }

    /// Lets each thread send its requests, until one of the limits.
    fn phase<'w>(
        &mut self,
        name: &str,
        requests: &Requests,
        requested: impl Fn(usize, Range<u32>) -> Requested<'w>,
        limit: Option<u64>,
        time: Option<Duration>,
    ) -> Result<Measured, Failure> {
        let threads = self.loads.len();
        let shared = Shared::new(threads);
        let (sender, ended) = smol::channel::bounded(1);
        let started = Instant::now();
        let results: Vec<_> = thread::scope(|scope| {
            let mut handles = Vec::new();
            for (thread, load) in self.loads.iter_mut().enumerate() {
                let left = limit.map_or(u64::MAX, |limit| {
                    let (each, rest) = (limit / threads as u64, limit % threads as u64);
                    each + u64::from((thread as u64) < rest)
                });
                let requested = requested(thread, self.parts[thread].clone());
                let (shared, sender) = (&shared, sender.clone());
                let work = move || {
                    let work = Work::new(requested, left, shared, thread);
                    let result = run(load, requests, work);
                    if result.is_err() {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                    drop(sender);
                    result
                };
                handles.push(scope.spawn(work));
            }
            drop(sender);
            self.attendant.attend(name, &shared, &ended, time);
            let join = |handle: thread::ScopedJoinHandle<'_, _>| {
                handle.join().expect("a thread of the load does not panic")
            };
            handles.into_iter().map(join).collect()
        });
        let elapsed = started.elapsed();
        let mut phase = Measured {
            figures: Figures::default(),
            all: Latencies::new(),
            elapsed,
            busy: 0.0,
        };
        for result in results {
            let (figures, all, processor) = result.map_err(|error| {
                let answers = shared.answers();
                let secs = elapsed.as_secs_f64();
                let error =
                    error.context(format!("{name}, after {answers} replies in {secs:.1} s"));
                failed(&self.address, &error)
            })?;
            phase.figures.add(&figures);
            phase.all.add(&all);
            phase.busy = (processor.as_secs_f64() / elapsed.as_secs_f64()).max(phase.busy);
        }
        Ok(phase)
    }
}

/// The work of one thread; also the processor time that it used.
fn run<S: Opened>(
    load: &mut Load<S>,
    requests: &Requests,
    mut work: Work<'_>,
) -> anyhow::Result<(Figures, Latencies, Duration)> {
    let mut meter = Meter::new();
    let before = processor_time();
    load.run(requests, &mut work, Stop::AtTheEnd, &mut meter)?;
    let processor = processor_time().saturating_sub(before);
    Ok((work.figures, meter.latencies, processor))
}

/// The processor time of this thread so far.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The first of `count` things that part `part` of `parts` has.
fn share(count: u32, part: usize, parts: usize) -> u32 {
    let edge = u64::from(count) * part as u64 / parts as u64;
    u32::try_from(edge).unwrap_or(count)
}

/// One request of each kind, before the load: the server speaks the protocol, and has locks if the load needs them.
struct Probe {
    asks: std::vec::IntoIter<Ask>,
    /// The server's words, if the reply is none of success.
    refusal: Option<(Ask, String)>,
}

impl Workload for Probe {
    fn next(&mut self, _connection: usize) -> Option<Ask> {
        self.asks.next().filter(|_| self.refusal.is_none())
    }

    fn judge(&mut self, _requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        // Only items can be locked in classic text and binary, and the keys are stored later.
        let is_lock = matches!(ask, Ask::Lock(_) | Ask::Unlock(_));
        if let Reply::Other(words) = reply
            && !(is_lock && is_not_found(words))
        {
            self.refusal = Some((ask, shown(words)));
        }
        true
    }
}

fn check<S: Opened>(args: &BenchArgs, address: &str, stream: S) -> Result<(), Failure> {
    let requests = Requests::new(args.protocol.dialect(), args.value_size as usize, 0);
    let asks = match args.workload {
        Kind::Cache => vec![Ask::Get(0)],
        Kind::Lock | Kind::Handover => vec![Ask::Lock(0), Ask::Unlock(0)],
    };
    let mut probe = Probe {
        asks: asks.into_iter(),
        refusal: None,
    };
    let probed = Load::over(vec![stream], 1)
        .and_then(|mut load| load.run(&requests, &mut probe, Stop::AtTheEnd, &mut Meter::new()));
    probed.map_err(|error| {
        let hint = match args.workload {
            Kind::Cache => "",
            // memcached does not reply to a binary command that it does not know.
            Kind::Lock | Kind::Handover => "; the server may have no locks",
        };
        let name = name(&args.workload);
        Failure::unavailable(format!(
            "{address}: {name}, the first request: {error:#}{hint}{}",
            advice(&error)
        ))
    })?;
    let Some((ask, words)) = probe.refusal else {
        return Ok(());
    };
    let why = match ask {
        Ask::Lock(_) if is_unknown(&words) => {
            let other = match args.workload {
                Kind::Lock if args.protocol == Protocol::Meta => " or, with -B text, yrmcds",
                Kind::Lock => " or yrmcds",
                Kind::Cache | Kind::Handover => "",
            };
            format!(
                "{address}: the server has no such locks: it replied `{words}`; use latchd{other}"
            )
        }
        Ask::Lock(_) if is_locked(&words) => {
            return Err(Failure::no(format!(
                "{address}: a key of the load is locked: the server replied `{words}`; wait until no other benchmark \
                 runs"
            )));
        }
        Ask::Get(_) | Ask::Set(_) | Ask::Lock(_) | Ask::Unlock(_) => {
            format!("{address}: the server refused {ask:?}: {words}")
        }
    };
    Err(Failure::usage(why))
}

/// Whether the key has no item.
fn is_not_found(words: &[u8]) -> bool {
    words.eq_ignore_ascii_case(b"not_found") || words.eq_ignore_ascii_case(b"not found")
}

/// Whether the server does not know the command.
fn is_unknown(words: &str) -> bool {
    words.starts_with("ERROR") || words.eq_ignore_ascii_case("unknown command")
}

/// Whether another connection has the lock.
fn is_locked(words: &str) -> bool {
    words.starts_with("LK ") || words.eq_ignore_ascii_case("locked")
}

fn unreachable(error: &Error) -> Failure {
    if matches!(
        error.kind(),
        ErrorKind::Unreachable(_) | ErrorKind::Unauthenticated(_)
    ) {
        Failure::unavailable(error.to_string())
    } else {
        Failure::usage(error.to_string())
    }
}

fn failed(address: &str, error: &anyhow::Error) -> Failure {
    Failure::unavailable(format!("{address}: {error:#}{}", advice(error)))
}

/// The way out, where the error has one.
fn advice(error: &anyhow::Error) -> &'static str {
    // memcached and latchd say it when they close a connection at their limit.
    if format!("{error:#}").contains("Too many open connections") {
        "; raise -c of the server, or lower --clients"
    } else {
        ""
    }
}
