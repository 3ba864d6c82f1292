//! `latchd cli`: what a person says to a server, and what it answers.
//!
//! A prompt where there is a terminal, one command where one stands behind the options, and otherwise the
//! lines of standard input, one after the other.
//!
//! - C1: the next request is sent only once the answer to this one is there as a whole, so that what is
//!   shown below a request is its answer.
//! - C2: what goes to a terminal is readable and cannot steer it; what goes anywhere else is what the
//!   server has sent, byte for byte.
//!
//! Exit codes: 0 done; 1 the server says no (not found, not stored, locked); 2 the request was refused,
//! or could not be sent as it stands; 69 (`EX_UNAVAILABLE`) there is no server, it does not let us in, or it has
//! stopped answering. Of several requests the highest one counts.

mod answer;
mod commands;
mod connection;
mod history;
mod lines;
mod prompt;
mod readable;
mod request;
mod screen;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use latchd_client::ClientOptions;
use latchd_client::blocking::Client;

use answer::Verdict;
use connection::{Broken, Connection};
use request::{Asked, Mistake, Request};
use screen::Screen;

use crate::flags::{AccessArgs, ServerArgs, seconds};
use crate::os::descriptors;

/// What stands under the options.
pub(crate) const HELP: &str = "\
Without a command there is a prompt, with a history (the arrows, Ctrl-R) and `help` for each command; what comes
through a pipe is taken line by line. Both text protocols of memcached are spoken, and latchd's own commands.

Where the protocol wants the length of a value the value itself can stand, so nobody counts bytes:
  set k 0 60 hello world      the rest of the line is the value
  set k 0 60 \"5\"              in quotes if it is a number; \\n \\r \\t \\\" \\\\ and \\xNN are bytes
  ms k \"hello world\" T60      in quotes if it has blanks, for a meta command
  set k 0 60 5                a length, as in the protocol: the value is the next line
Behind the options a value stands as the shell has it, a number too, and `-` is all of standard input.

A terminal is shown values as text, with other bytes as \\xNN and long ones cut; anything else gets the bytes
as they are, unless --readable or --raw says otherwise.

Exit codes:
   0  done
   1  the server says no: not found, not stored, another version, locked
   2  the server refuses the request, or it cannot be sent as it stands
  69  there is no server, it does not let us in, or it has stopped answering";

/// What we exit with when there is no server: `EX_UNAVAILABLE` of sysexits(3).
const EXIT_UNAVAILABLE: u8 = 69;

/// How many descriptors a conversation needs beside the standard ones: the event loop's three, a socket, those of a
/// look-up, a history.
const DESCRIPTORS: usize = 10;

/// Talk to a server: a prompt, or one command
#[derive(Debug, clap::Args)]
pub(crate) struct CliArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// How long connecting, or an answer, may take
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "5")]
    timeout: Duration,
    /// Show values as text even where there is no terminal
    #[arg(long, conflicts_with = "raw")]
    readable: bool,
    /// Show the bytes as they come even at a terminal
    #[arg(long)]
    raw: bool,
    /// The command and its arguments, as in `latchd cli get k`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// How it went, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Outcome {
    /// It is done, or was nothing for a server.
    Done,
    /// The server says no.
    No,
    /// The server refuses, or nothing could be sent.
    Refused,
    /// There is no server any more.
    Unavailable,
}

impl Outcome {
    const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Refused => 2,
            Self::Unavailable => EXIT_UNAVAILABLE,
        }
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::Done,
            Verdict::No => Self::No,
            Verdict::Refused(_) => Self::Refused,
        }
    }
}

/// Does what the arguments ask for, and returns what to exit with.
pub(crate) fn run(args: &CliArgs) -> ExitCode {
    let client = descriptors::check(DESCRIPTORS).and_then(|()| client(args));
    let client = match client {
        Ok(client) => client,
        Err(problem) => {
            complain(&problem);
            return ExitCode::from(Outcome::Refused.code());
        }
    };
    let at_terminal = io::stdout().is_terminal();
    let screen = Screen::new(args.readable || at_terminal && !args.raw);
    let session = Session {
        client,
        timeout: args.timeout,
        connection: None,
        screen,
    };
    let outcome = if !args.command.is_empty() {
        one(session, &args.command)
    } else if at_terminal && io::stdin().is_terminal() {
        prompt::run(session)
    } else {
        lines::run(session, &mut io::stdin().lock())
    };
    ExitCode::from(outcome.code())
}

/// The server, as the options say.
///
/// # Errors
/// The options make no sense; a sentence for a person.
fn client(args: &CliArgs) -> Result<Client, String> {
    // A span of 0 would be over before anything could be tried.
    let timeout = args.timeout.max(Duration::from_millis(1));
    let options = ClientOptions::new()
        .connect_timeout(timeout)
        .reply_timeout(timeout);
    let options = args.access.options(options)?;
    Client::new(&args.server.address()?, options).map_err(|error| error.to_string())
}

/// A conversation with a server: a connection when there is one.
struct Session {
    client: Client,
    timeout: Duration,
    connection: Option<Connection>,
    screen: Screen,
}

/// What keeps a request from being answered.
enum Failure {
    /// The connection is not, or no more. Its locks are free, and what is asked next goes over a new one.
    Broken(Broken),
    /// Whoever should read what we show does not.
    Unread,
}

impl Session {
    /// Asks, and shows the answer (C1).
    fn ask(&mut self, request: &Request) -> Result<Verdict, Failure> {
        let connection = if let Some(connection) = &mut self.connection {
            connection
        } else {
            let opened = Connection::open(&self.client, self.timeout);
            self.connection.insert(opened.map_err(Failure::Broken)?)
        };
        connection.waits(request.wait);
        let asked = connection
            .send(&request.bytes)
            .map_err(Failure::Broken)
            .and_then(|()| answer::show(connection, request.answer, &mut self.screen));
        if asked.is_err() || connection.is_closed() {
            self.connection = None;
        }
        let flushed = self.screen.flush();
        let verdict = asked?;
        flushed.map(|()| verdict).map_err(|_| Failure::Unread)
    }

    /// Shows a text of ours.
    fn tell(&mut self, text: &str) -> Outcome {
        let told = self.screen.tell(text).and_then(|()| self.screen.flush());
        told.map_or(Outcome::Unavailable, |()| Outcome::Done)
    }
}

/// Does one command.
fn one(mut session: Session, command: &[OsString]) -> Outcome {
    let words: Vec<_> = command.iter().map(|word| word.as_bytes()).collect();
    let asked = match words.as_slice() {
        // One argument with blanks is a line, as at the prompt.
        [line] if line.contains(&b' ') => request::of_line(line),
        words => request::of_words(words),
    };
    let request = match asked {
        Ok(Asked::Request(request)) => request,
        Ok(Asked::WithValue(head)) => {
            let mut value = Vec::new();
            if let Err(error) = io::stdin().read_to_end(&mut value) {
                complain(&format!("standard input: {error}"));
                return Outcome::Refused;
            }
            match head.with_all(&value) {
                Ok(request) => request,
                Err(mistake) => return mistaken(&mistake),
            }
        }
        Ok(Asked::Help(topic)) => return help(&mut session, &topic),
        Ok(Asked::Nothing | Asked::Leave) => return Outcome::Done,
        Err(mistake) => return mistaken(&mistake),
    };
    match session.ask(&request) {
        Ok(Verdict::Refused(words)) => {
            complain(&format!("{}: {words}", session.client.address()));
            Outcome::Refused
        }
        Ok(verdict) => verdict.into(),
        Err(Failure::Broken(broken)) => {
            complain(&format!("{}: {broken}", session.client.address()));
            Outcome::Unavailable
        }
        Err(Failure::Unread) => Outcome::Done,
    }
}

/// Tells about a command, or about all of them.
fn help(session: &mut Session, topic: &str) -> Outcome {
    if let Some(text) = commands::help(topic) {
        return session.tell(&text);
    }
    complain(&format!("there is no command {topic}: `help` lists them"));
    Outcome::Refused
}

fn mistaken(mistake: &Mistake) -> Outcome {
    complain(mistake);
    Outcome::Refused
}

/// Says on standard error what is wrong.
fn complain(problem: &(impl fmt::Display + ?Sized)) {
    // A standard error that is closed hears nothing.
    let _ = writeln!(io::stderr(), "latchd: {problem}");
}
