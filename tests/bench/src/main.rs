//! Measures latchd beside memcached and yrmcds, all under the same load, in alternation.
//!
//! - A figure that comes from a wrong answer is never printed: every reply is checked, and a wrong
//!   one ends the run.
//! - Measurements before a run ends are printed and written.
//!
//! The usage, and the meaning of the figures: docs/PERFORMANCE.md. Linux only (epoll, /proc).

// Figures of measurements: none of them has more digits than a float keeps.
#![allow(clippy::cast_precision_loss)]

mod figures;
mod load;
mod options;
mod progress;
mod report;
mod server;
mod tasks;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::options::{Options, Task};
use crate::progress::Progress;
use crate::report::{Machine, Report};
use crate::server::cores::Cores;
use crate::server::peer::{Kind, Peer};
use crate::tasks::speed::rows::{LOCKS, Row, SPEED};
use crate::tasks::speed::standing::Standings;
use crate::tasks::{hits, instructions, memory, pauses, speed};

fn main() -> ExitCode {
    let options = Options::parse();
    let mut report = Report {
        machine: Machine::here(),
        command: std::env::args().skip(1).collect(),
        ..Report::default()
    };
    let outcome = measure(&options, &mut report);
    let written = write(&options, &report);
    match outcome.and(written) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latchd-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    server::stop_all_at_signals().context("signals")?;
    raise_descriptors()?;
    let mut run = Run::new(options, report)?;
    let Machine {
        processor,
        processors,
        kernel,
        load_average,
    } = &run.report.machine;
    println!(
        "{processor}, {processors} processors, Linux {kernel}, load average {load_average:.2}\n"
    );
    for task in &options.tasks {
        run.measure(*task)?;
    }
    for note in &report.notes {
        println!("note: {note}");
    }
    Ok(())
}

/// The parts that all tasks use.
struct Run<'a> {
    options: &'a Options,
    report: &'a mut Report,
    /// latchd first.
    peers: Vec<Peer>,
    /// For servers with one thread, and with two.
    cores: [Cores; 2],
    /// Why system calls cannot be counted.
    no_perf: Option<String>,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options, report: &'a mut Report) -> Result<Self> {
        let latchd = options.latchd.display().to_string();
        ensure!(
            options.latchd.is_file(),
            "{latchd} is not there: build it with `cargo build --release -p latchd`, or say where \
             it is with --latchd"
        );
        // A bare name is a file here, not one on PATH.
        let here = std::path::absolute(&options.latchd)?;
        let mut peers = vec![Peer::find(&here.display().to_string())?];
        ensure!(peers[0].kind == Kind::Latchd, "{latchd} is not a latchd");
        // Published figures are of the build that was measured, which may be between two versions.
        peers[0].label = "latchd".into();
        for words in options.peers() {
            match Peer::find(&words) {
                Ok(mut peer) => {
                    // Two servers of one version differ by their place.
                    if peers.iter().any(|other| other.label == peer.label) {
                        peer.label = format!("{} ({words})", peer.label);
                    }
                    peers.push(peer);
                }
                Err(error) => {
                    let note = format!("left out: {error:#}");
                    eprintln!("{note}");
                    report.notes.push(note);
                }
            }
        }
        if cfg!(debug_assertions) {
            report
                .notes
                .push("this is a debug build: use cargo run --release".into());
        }
        Ok(Self {
            options,
            report,
            peers,
            cores: [Cores::new(1)?, Cores::new(2)?],
            no_perf: None,
        })
    }

    fn measure(&mut self, task: Task) -> Result<()> {
        let Options { quick, .. } = *self.options;
        let items = self.options.items();
        let peers = &self.peers;
        let [cores, _] = &self.cores;
        match task {
            Task::Speed => {
                let rows = self.rows(SPEED)?;
                self.table(&rows, |report| &mut report.speed)
            }
            Task::Locks => {
                let rows = self.rows(LOCKS)?;
                self.table(&rows, |report| &mut report.locks)
            }
            Task::Memory => {
                let size = memory::Size {
                    items,
                    churn_mib: if quick { 32 } else { 256 },
                    still: Duration::from_millis(if quick { 300 } else { 1_000 }),
                };
                let mut progress = Progress::new(memory::steps(peers));
                let memory = memory::run(peers, size, cores, &mut progress)?;
                progress.clear();
                println!("{memory}");
                self.report.memory = Some(memory);
                Ok(())
            }
            Task::Hits => {
                let requests = if quick { 100_000 } else { 2_000_000 };
                self.check_rows()?;
                let is_wanted = |name: &str| self.is_wanted(name);
                let mut progress = Progress::new(hits::steps(peers, &is_wanted));
                let hits = hits::run(peers, requests, &is_wanted, cores, &mut progress)?;
                progress.clear();
                println!("{hits}");
                self.report.hits = Some(hits);
                Ok(())
            }
            Task::Pauses => {
                let mut progress = Progress::new(pauses::steps(peers));
                let size = pauses::Size {
                    items,
                    span: self.options.plan().span,
                    patience: Duration::from_secs(if quick { 4 } else { 15 }),
                };
                let pauses = pauses::run(peers, size, cores, &mut progress)?;
                progress.clear();
                println!("{pauses}");
                self.report.pauses = Some(pauses);
                Ok(())
            }
            Task::Instructions => self.instructions(),
        }
    }

    /// Those of `all` that `--row` names, or all.
    fn rows(&self, all: &[Row]) -> Result<Vec<Row>> {
        self.check_rows()?;
        let wanted = all.iter().filter(|row| self.is_wanted(row.name));
        Ok(wanted.copied().collect())
    }

    /// Checks that each `--row` names a row.
    fn check_rows(&self) -> Result<()> {
        let of_speed = || SPEED.iter().chain(LOCKS).map(|row| row.name);
        for name in &self.options.row {
            let is_known = of_speed().chain(hits::names()).any(|row| row == name);
            ensure!(is_known, "--row {name}: there is no such row");
        }
        Ok(())
    }

    /// Whether `--row` names this row, or none.
    fn is_wanted(&self, name: &str) -> bool {
        let names = &self.options.row;
        names.is_empty() || names.iter().any(|wanted| wanted == name)
    }

    fn table(&mut self, rows: &[Row], place: fn(&mut Report) -> &mut Vec<Standings>) -> Result<()> {
        let plan = self.options.plan();
        let mut progress = Progress::new(speed::steps(rows, &self.peers, plan));
        for row in rows {
            let cores = &self.cores[row.threads.min(2) - 1];
            let no_perf = &mut self.no_perf;
            let knew = no_perf.is_some();
            let standings = speed::run(row, &self.peers, cores, plan, &mut progress, no_perf)?;
            progress.clear();
            println!("{standings}");
            place(self.report).push(standings);
            if let (false, Some(why)) = (knew, &self.no_perf) {
                let note = format!("system calls are not counted: {why}");
                self.report.notes.push(note);
            }
        }
        Ok(())
    }

    fn instructions(&mut self) -> Result<()> {
        let descriptors = match instructions::descriptors() {
            Ok(descriptors) => descriptors,
            Err(error) => {
                ensure!(self.options.gate.is_none(), "instructions: {error:#}");
                let note = format!("instructions are not counted: {error:#}");
                self.report.notes.push(note);
                return Ok(());
            }
        };
        let operations = if self.options.quick { 10_000 } else { 100_000 };
        let mut progress = Progress::new(instructions::steps(&self.peers));
        let [cores, _] = &self.cores;
        let counts = instructions::run(&self.peers, operations, descriptors, cores, &mut progress)?;
        progress.clear();
        println!("{counts}");
        let gate = self.options.gate.as_deref();
        let verdict = gate.map_or(Ok(()), |file| counts.gate(file));
        self.report.instructions = Some(counts);
        verdict
    }
}

/// Many connections need many descriptors, here and in the servers, which inherit the limit.
fn raise_descriptors() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).context("the limit of descriptors")
}

fn write(options: &Options, report: &Report) -> Result<()> {
    if let Some(file) = &options.json {
        report.write_json(file)?;
    }
    if let Some(file) = &options.svg {
        report.write_svg(file)?;
    }
    Ok(())
}
