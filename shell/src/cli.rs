//! `latchd cli`: sends commands to a server and shows the replies.
//!
//! It runs the command behind the options if there is one, shows a prompt at a terminal, and otherwise reads
//! commands from standard input line by line.
//!
//! - C1: The next request is sent after the reply to the previous one is complete, so each reply is shown below
//!   its request.
//! - C2: Output to a terminal is readable and contains no control sequences. Other output is the server's bytes,
//!   unchanged.
//!
//! Exit codes: those of all tasks (`exit.rs`). Of several requests the highest counts.

mod answer;
mod commands;
pub(crate) mod connection;
mod greeting;
mod history;
mod lines;
mod prompt;
pub(crate) mod readable;
mod request;
mod screen;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use latchd_client::ClientOptions;
use latchd_client::blocking::Client;

use answer::Verdict;
use connection::{Broken, Connection};
use request::{Asked, Mistake, Request};
use screen::Screen;

use crate::exit;
use crate::flags::{AccessArgs, NETWORK, ServerArgs, seconds};
use crate::os::{descriptors, processes};
use crate::output::{checked, complain};

/// The text under the options of `-h`.
pub(crate) const SHORT_HELP: &str = "\
Examples: latchd cli, latchd cli get k, latchd cli set k 0 60 hello
`--help` also explains values, output and exit codes.";

/// The text under the options of `--help`.
pub(crate) const HELP: &str = "\
Without a command there is a prompt with a history (arrow keys, Ctrl-R); `help` lists the commands.
Input from a pipe is read line by line. Commands are those of memcached's two text protocols and latchd's own.

Values: write the value itself instead of its length:
  set k 0 60 hello world      the value is the rest of the line
  set k 0 60 \"5\"              quote a number; \\n \\r \\t \\\" \\\\ and \\xNN are bytes
  ms k \"hello world\" T60      quote blanks in a meta command
  set k 0 60 5                a bare number is a length: the value is the next line
As arguments of the program, values need no such quotes, and `-` reads all of standard input.

Output: a terminal shows values as text, other bytes as \\xNN, and cuts long values. Files and pipes get the
bytes unchanged. --readable and --raw override this.

Exit codes:
   0  success
   1  not found, not stored, changed since it was read (cas), or locked
   2  the server refused the request, or it could not be sent
  69  the server is unreachable, refuses the login, or stopped replying
  71  the system refuses descriptors or threads
  74  the output cannot be written";

/// The threads besides this one: the event loop, a name lookup, one in reserve.
const PROCESSES: usize = 3;

/// The number of descriptors that a session needs besides the standard ones: three of the event loop, a socket,
/// those of a name lookup, the history.
const DESCRIPTORS: usize = 10;

/// The heading of the options about output.
const OUTPUT: &str = "Output";

/// Send commands to a server, at a prompt or as arguments
#[derive(Debug, clap::Args)]
pub(crate) struct CliArgs {
    #[command(flatten)]
    peer: PeerArgs,
    /// Show values as text, even without a terminal
    #[arg(long, conflicts_with = "raw", help_heading = OUTPUT)]
    readable: bool,
    /// Show bytes unchanged, even at a terminal
    #[arg(long, help_heading = OUTPUT)]
    raw: bool,
    /// Send this command instead of showing a prompt, as in `latchd cli get k`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// The server, and the way to it.
#[derive(Debug, clap::Args)]
pub(crate) struct PeerArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// Fail if connecting or a reply takes longer than SECS
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "5", help_heading = NETWORK,
        allow_negative_numbers = true)]
    timeout: Duration,
}

impl PeerArgs {
    /// The client that the options describe, and the limit for a reply.
    ///
    /// # Errors
    /// A message for the user, if the options contradict each other, or the system refuses descriptors or threads.
    pub(crate) fn client(&self) -> Result<(Client, Duration), (Outcome, String)> {
        descriptors::check(DESCRIPTORS)
            .and_then(|()| processes::check(PROCESSES))
            .map_err(|problem| (Outcome::SystemRefused, problem))?;
        self.described()
            .map_err(|problem| (Outcome::Refused, problem))
    }

    fn described(&self) -> Result<(Client, Duration), String> {
        // A timeout of 0 would expire before the first attempt.
        let timeout = self.timeout.max(Duration::from_millis(1));
        let options = ClientOptions::new()
            .connect_timeout(timeout)
            .reply_timeout(timeout);
        let options = self.access.options(options)?;
        let client = Client::new(&self.server.address()?, options);
        let client = client.map_err(|error| error.to_string())?;
        Ok((client, self.timeout))
    }
}

/// The outcome of a request, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Outcome {
    /// It succeeded, or needed no server.
    Done,
    /// The server replied not found, not stored or locked.
    No,
    /// The server refused it, or it could not be sent.
    Refused,
    /// The server is not available.
    Unavailable,
    /// The system refuses descriptors or threads.
    SystemRefused,
    /// The output cannot be written, which is reported.
    Unwritten,
}

impl Outcome {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => exit::NO,
            Self::Refused => exit::USAGE,
            Self::Unavailable => exit::UNAVAILABLE,
            Self::SystemRefused => exit::OS_ERROR,
            Self::Unwritten => exit::IO_ERROR,
        }
    }
}

impl Outcome {
    /// The outcome if standard output cannot be written, which this reports; a reader that has stopped is no failure.
    fn of_output(error: io::Error) -> Self {
        checked(Err(error)).map_or(Self::Unwritten, |()| Self::Done)
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

/// Runs the program. Returns the exit code.
pub(crate) fn run(args: &CliArgs) -> ExitCode {
    let (client, timeout) = match args.peer.client() {
        Ok(client) => client,
        Err((outcome, problem)) => {
            complain(&problem);
            return ExitCode::from(outcome.code());
        }
    };
    let at_terminal = io::stdout().is_terminal();
    let screen = Screen::new(args.readable || at_terminal && !args.raw);
    let session = Session {
        client,
        timeout,
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

/// A session with a server, with the current connection if there is one.
struct Session {
    client: Client,
    timeout: Duration,
    connection: Option<Connection>,
    screen: Screen,
}

/// The reason why a request has no reply.
enum Failure {
    /// The connection failed. The server releases its locks, and the next request opens a new connection.
    Broken(Broken),
    /// Standard output cannot be written.
    Unwritten(io::Error),
}

impl Session {
    /// Sends a request and shows the reply (C1).
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
        flushed.map(|()| verdict).map_err(Failure::Unwritten)
    }

    /// Shows a text of this program.
    fn tell(&mut self, text: &str) -> Outcome {
        let told = self.screen.tell(text).and_then(|()| self.screen.flush());
        told.map_or_else(Outcome::of_output, |()| Outcome::Done)
    }
}

/// Runs one command.
fn one(mut session: Session, command: &[OsString]) -> Outcome {
    // This reports it.
    session.screen.hide_refusals();
    let words: Vec<_> = command.iter().map(|word| word.as_bytes()).collect();
    let asked = match words.as_slice() {
        // A single argument with blanks is a line, as at the prompt.
        [line] if line.contains(&b' ') => request::of_line(line),
        words => request::of_words(words),
    };
    let request = match asked {
        Ok(Asked::Request(request)) => request,
        Ok(Asked::WithValue(head)) => {
            let mut value = Vec::new();
            if let Err(error) = io::stdin().read_to_end(&mut value) {
                complain(&format!("cannot read standard input: {error}"));
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
        Ok(Verdict::Refused(reply)) => {
            let typed = command.first().map(|word| word.to_string_lossy());
            let verb = typed.as_deref().unwrap_or_default().split(' ').next();
            let advice = commands::advice(verb.unwrap_or_default(), &reply);
            complain(&format!("{}: {reply}{advice}", session.client.address()));
            Outcome::Refused
        }
        Ok(verdict) => verdict.into(),
        Err(Failure::Broken(broken)) => {
            complain(&format!("{}: {broken}", session.client.address()));
            Outcome::Unavailable
        }
        Err(Failure::Unwritten(error)) => Outcome::of_output(error),
    }
}

/// Shows the help of one command, or of all.
fn help(session: &mut Session, topic: &str) -> Outcome {
    if let Some(text) = commands::help(topic) {
        return session.tell(&text);
    }
    complain(&format!(
        "unknown command {topic}; `help` lists the commands"
    ));
    Outcome::Refused
}

fn mistaken(mistake: &Mistake) -> Outcome {
    complain(mistake);
    Outcome::Refused
}
