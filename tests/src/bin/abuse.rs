//! Attacks a server, and reports the delays of other clients.
//!
//! `abuse [NAME…] [--without NAME] [--latchd PATH] [--peer PATH] [--quick] [--trials N] [--slack
//! N]` plays the named attacks, or all of them except one, on servers of its own, and prints a row
//! for each. With `--peer`, memcached is attacked in the same way where that is possible. `--quick`
//! takes small stores and short spans. `--slack N` multiplies each time limit by N (1), for a
//! machine that other programs use as well.
//!
//! A row past its limits is played again, up to `--trials N` times (3): a busy machine does not
//! repeat a delay by chance each time; before each trial the delays of the quiet machine are
//! measured anew. The exit code is 1 if an attack went past its limits each time.
//!
//! The column `idle` has the longest wait of a client of a second latchd, which is idle. If it is as long as that
//! of the innocent clients (`worst`), the machine caused both.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use latchd_tests::abuse::attacks::hold_elsewhere;
use latchd_tests::abuse::target::{Start, Target};
use latchd_tests::abuse::{ATTACKS, Attack, Kind, Outcome, QUIET, Quiet, Setting, Stage};

const USAGE: &str = "usage: abuse [NAME…] [--without NAME] [--latchd PATH] [--peer PATH] [--quick] [--trials N] [--slack N]";

struct Arguments {
    names: Vec<String>,
    trials: usize,
    slack: u32,
    setting: Setting,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut setting = Setting {
        latchd: PathBuf::from("target/release/latchd"),
        peer: None,
        holder: std::env::current_exe().ok()?,
        items: 1_000_000,
        locks: 500_000,
        span: Duration::from_secs(3),
    };
    let mut names = Vec::new();
    let (mut trials, mut slack) = (3, 1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--latchd" => setting.latchd = words.next()?.into(),
            "--without" => {
                let unwanted = words.next()?;
                let all = ATTACKS.iter().map(|attack| attack.name.to_owned());
                names.extend(all.filter(|name| *name != unwanted));
            }
            "--peer" => setting.peer = Some(words.next()?.into()),
            "--trials" => trials = words.next()?.parse().ok().filter(|trials| *trials > 0)?,
            "--slack" => slack = words.next()?.parse().ok().filter(|slack| *slack > 0)?,
            "--quick" => {
                (setting.items, setting.locks) = (100_000, 50_000);
                setting.span = Duration::from_secs(1);
            }
            name if ATTACKS.iter().any(|attack| attack.name == name) => names.push(word),
            _ => return None,
        }
    }
    Some(Arguments {
        names,
        trials,
        slack,
        setting,
    })
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let [flag, address, how] = &words[..]
        && flag == "--hold"
    {
        let _ = hold_elsewhere(address, how);
        return ExitCode::FAILURE;
    }
    let Some(arguments) = parse(words.into_iter()) else {
        eprintln!("{USAGE}");
        for attack in ATTACKS {
            eprintln!("  {:18} {}", attack.name, attack.about);
        }
        return ExitCode::from(2);
    };
    println!(
        "{:18} {:9} {:>10} {:>10} {:>10} {:>10} {:>6}",
        "attack", "server", "worst", "p99", "fresh", "idle", "MiB"
    );
    let start = Start::new(&["-t", "1"]);
    let idle = match Target::start(Kind::Latchd, &arguments.setting.latchd, &start) {
        Ok(idle) => idle,
        Err(error) => {
            eprintln!("the idle server: {error}");
            return ExitCode::FAILURE;
        }
    };
    let failed = play_all(&arguments, idle.address);
    if failed.is_empty() {
        println!("all of them were borne");
        return ExitCode::SUCCESS;
    }
    println!("not borne: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Returns the names of the attacks that exceeded a limit.
fn play_all(arguments: &Arguments, idle: SocketAddr) -> Vec<&'static str> {
    let Arguments {
        names,
        trials,
        slack,
        setting,
    } = arguments;
    let is_chosen = |attack: &Attack| names.is_empty() || names.iter().any(|n| n == attack.name);
    let mut quiet = Quiet {
        slack: *slack,
        ..Quiet::default()
    };
    let mut failed = Vec::new();
    let on = |kind| Stage {
        setting,
        kind,
        idle,
    };
    measure_quiet(&on(Kind::Latchd), &mut quiet);
    for attack in ATTACKS.iter().filter(|attack| is_chosen(attack)) {
        let is_borne = (0..*trials).any(|trial| {
            if trial > 0 {
                measure_quiet(&on(Kind::Latchd), &mut quiet);
            }
            play(attack, &on(Kind::Latchd), &quiet)
        });
        if !is_borne {
            failed.push(attack.name);
        }
        if attack.has_peer && setting.peer.is_some() {
            play(attack, &on(Kind::Memcached), &quiet);
        }
    }
    failed
}

/// Measures the delays of the machine without an attack. The worst of all measurements counts.
fn measure_quiet(stage: &Stage<'_>, quiet: &mut Quiet) {
    if let Some(seen) = (QUIET.play)(stage).ok().and_then(|outcome| outcome.seen) {
        quiet.worst = quiet.worst.max(seen.worst);
        quiet.fresh_worst = quiet.fresh_worst.max(seen.fresh_worst);
    }
}

/// Plays an attack and prints its row. Returns whether the server kept the limits, or the attack is
/// not possible here.
fn play(attack: &Attack, stage: &Stage<'_>, quiet: &Quiet) -> bool {
    let (played, kind) = ((attack.play)(stage), stage.kind);
    let faults = match (&played, kind) {
        (_, Kind::Memcached) => Vec::new(),
        (Ok(outcome), Kind::Latchd) => outcome.faults(quiet),
        (Err(error), _) if error.kind() == io::ErrorKind::Unsupported => Vec::new(),
        (Err(error), Kind::Latchd) => vec![error.to_string()],
    };
    print_row(attack, kind, &played, &faults);
    faults.is_empty()
}

fn print_row(attack: &Attack, kind: Kind, played: &io::Result<Outcome>, faults: &[String]) {
    let row = match played {
        Ok(outcome) => outcome.row(),
        Err(error) => format!("{:54} {error}", ""),
    };
    let verdict = if faults.is_empty() {
        String::new()
    } else {
        format!("  PAST ITS LIMIT: {}", faults.join("; "))
    };
    println!("{:18} {:9}{row}{verdict}", attack.name, kind.name());
}
