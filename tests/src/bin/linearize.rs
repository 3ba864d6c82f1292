//! Whether the answers of a real server can have come from one operation after the other.
//!
//! `linearize [--latchd PATH] [--seed N] [--operations N] [--clients N] [--keys N] [--threads N]`
//! starts a server with 4 threads on a free port. By default, 8 clients send it 1,000,000
//! operations about 4 keys a round, and the program judges their answers. The clients are threads
//! of 2 processes (`--processes`; with 1, of this one): this program again, with `--record
//! ADDRESS`. It prints the seed and its counts. The exit code is 1 if no order explains an answer,
//! if a history takes too much to be judged, or if a required case was never met. See
//! docs/VERIFICATION.md.
//!
//! `linearize --check FILE` judges a history that another program has written (`told.rs`).
//!
//! `linearize --restarts N` kills the server N times and starts it again. Besides such clients, 4
//! processes (`--processes`) use the client library: this program again, with `--believe ADDRESS`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use latchd_tests::abuse::target::{Kind, Start, Target};
use latchd_tests::linear::believer::believe;
use latchd_tests::linear::told::Told;
use latchd_tests::linear::{Failure, Restarts, Setting, Survived, Tally, play, record, survive};

const USAGE: &str = "usage: linearize [--latchd PATH] [--seed N] [--operations N] [--clients N] [--keys N] \
                     [--threads N] [--restarts N] [--processes N]\n       \
                     linearize --check FILE";

/// The most clients: each is a thread here.
const CLIENTS_MAX: u64 = 256;

/// The most processes beside this one.
const PROCESSES_MAX: u64 = 64;

/// The most keys a round.
const KEYS_MAX: usize = 1024;

struct Arguments {
    latchd: PathBuf,
    seed: u64,
    operations: u64,
    clients: u64,
    keys: usize,
    threads: u16,
    restarts: u64,
    processes: Option<u64>,
    believe: Option<String>,
    record: Option<String>,
    check: Option<PathBuf>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let mut arguments = Arguments {
        latchd: PathBuf::from("target/release/latchd"),
        seed: u64::from(since.subsec_nanos()),
        operations: 1_000_000,
        clients: 8,
        keys: 4,
        threads: 4,
        restarts: 0,
        processes: None,
        believe: None,
        record: None,
        check: None,
    };
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--latchd" => arguments.latchd = value.into(),
            "--seed" => arguments.seed = value.parse().ok()?,
            "--operations" => arguments.operations = value.parse().ok()?,
            "--clients" => arguments.clients = value.parse().ok()?,
            "--keys" => arguments.keys = value.parse().ok()?,
            "--threads" => arguments.threads = value.parse().ok()?,
            "--restarts" => arguments.restarts = value.parse().ok()?,
            "--processes" => arguments.processes = Some(value.parse().ok()?),
            "--believe" => arguments.believe = Some(value),
            "--record" => arguments.record = Some(value),
            "--check" => arguments.check = Some(value.into()),
            _ => return None,
        }
    }
    let is_possible = (1..=CLIENTS_MAX).contains(&arguments.clients)
        && (1..=KEYS_MAX).contains(&arguments.keys)
        && arguments
            .processes
            .is_none_or(|processes| (1..=PROCESSES_MAX).contains(&processes))
        && arguments.operations > 0;
    is_possible.then_some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(path) = &arguments.check {
        return check(path);
    }
    let told = arguments.believe.as_ref().or(arguments.record.as_ref());
    if let Some(address) = told {
        let done = match arguments.believe {
            Some(_) => believe(address, arguments.seed),
            None => record(address),
        };
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{address}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    println!("seed {}", arguments.seed);
    if arguments.restarts > 0 {
        return survive_all(&arguments);
    }
    let began = Instant::now();
    match run(&arguments) {
        Ok(tally) => {
            print!("{tally}");
            println!("took {:.1} s", began.elapsed().as_secs_f64());
            let unseen = tally.unseen();
            if unseen.is_empty() {
                println!("all of it is linearizable");
                return ExitCode::SUCCESS;
            }
            println!("never seen: {}", unseen.join("; "));
        }
        Err(failure) => println!("seed {}: {failure}", arguments.seed),
    }
    ExitCode::FAILURE
}

fn check(path: &Path) -> ExitCode {
    let judged = fs::read_to_string(path)
        .map_err(|error| error.to_string())
        .and_then(|text| Told::parse(&text)?.judge());
    match judged {
        Ok(judged) if judged.grants > 0 && judged.hits > 0 => {
            println!("{judged}\nall of it is linearizable");
            return ExitCode::SUCCESS;
        }
        Ok(judged) => println!("{judged}: too little for a verdict"),
        Err(what) => println!("{}: {what}", path.display()),
    }
    ExitCode::FAILURE
}

fn survive_all(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let threads = arguments.threads.to_string();
    let survived = survive(&Restarts {
        latchd: &arguments.latchd,
        flags: &["-t", &threads, "-m", "256"],
        seed: arguments.seed,
        kills: arguments.restarts,
        clients: arguments.clients,
        processes: arguments.processes.unwrap_or(4),
        keys: arguments.keys,
    });
    match survived {
        Ok(survived) => {
            let Survived {
                tally,
                beliefs,
                cut_short,
                again,
            } = &survived;
            print!("{tally}");
            println!("sure: {beliefs:?}, until the server was killed: {cut_short:?}");
            println!("{again} times a lock or value had a believer before and after a restart");
            println!("took {:.1} s", began.elapsed().as_secs_f64());
            let unseen = survived.unseen();
            if unseen.is_empty() {
                println!("all of it bears {} restarts", arguments.restarts);
                return ExitCode::SUCCESS;
            }
            println!("never seen: {}", unseen.join("; "));
        }
        Err(failure) => println!("seed {}: {failure}", arguments.seed),
    }
    ExitCode::FAILURE
}

fn run(arguments: &Arguments) -> Result<Tally, Failure> {
    let threads = arguments.threads.to_string();
    let flags = ["-t", &threads, "-m", "256"];
    let server = Target::start(Kind::Latchd, &arguments.latchd, &Start::new(&flags))?;
    play(&Setting {
        address: server.address,
        seed: arguments.seed,
        operations: arguments.operations,
        clients: arguments.clients,
        processes: arguments.processes.unwrap_or(2).min(arguments.clients),
        keys: arguments.keys,
    })
}
