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

use latchd_client::blocking::Client;

use answer::Verdict;
use connection::{Broken, Connection};
use request::{Asked, Request};
use screen::Screen;

use crate::flags::{NETWORK, ServerArgs, seconds};
use crate::os::{descriptors, processes};
use crate::output::{Failure, checked, concluded};

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
    /// Fail if connecting or a reply takes longer than SECS
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "5", help_heading = NETWORK,
        allow_negative_numbers = true)]
    timeout: Duration,
}

impl PeerArgs {
    /// The client that the options describe, and the limit for a reply.
    ///
    /// # Errors
    /// If the options contradict each other, or the system refuses descriptors or threads.
    pub(crate) fn client(&self) -> Result<(Client, Duration), Failure> {
        descriptors::check(DESCRIPTORS)
            .and_then(|()| processes::check(PROCESSES))
            .map_err(Failure::system)?;
        let client = self.server.client(self.timeout);
        Ok((client.map_err(Failure::usage)?, self.timeout))
    }
}

/// Runs the program. Returns the exit code.
pub(crate) fn run(args: &CliArgs) -> ExitCode {
    let (client, timeout) = match args.peer.client() {
        Ok(client) => client,
        Err(failure) => return failure.report().into(),
    };
    let at_terminal = io::stdout().is_terminal();
    let session = Session {
        client,
        timeout,
        connection: None,
        screen: Screen::new(args.readable || at_terminal && !args.raw),
    };
    let code = if !args.command.is_empty() {
        one(session, &args.command).unwrap_or_else(Failure::report)
    } else if at_terminal && io::stdin().is_terminal() {
        concluded(prompt::run(session))
    } else {
        lines::run(session, &mut io::stdin().lock())
    };
    code.into()
}

/// A session with a server, with the current connection if there is one.
struct Session {
    client: Client,
    timeout: Duration,
    connection: Option<Connection>,
    screen: Screen,
}

impl Session {
    /// Sends a request and shows the reply (C1). If the connection fails, the server releases its locks, and the next
    /// request opens a new one.
    fn ask(&mut self, request: &Request) -> Result<Verdict, Broken> {
        let connection = if let Some(connection) = &mut self.connection {
            connection
        } else {
            let opened = Connection::open(&self.client, self.timeout);
            self.connection.insert(opened?)
        };
        connection.waits(request.wait);
        let asked = connection
            .send(&request.bytes)
            .and_then(|()| answer::show(connection, request.answer, &mut self.screen));
        if asked.is_err() || connection.is_closed() {
            self.connection = None;
        }
        let flushed = self.screen.flush();
        let verdict = asked?;
        flushed.map(|()| verdict)
    }

    /// Reports why a request has no reply. Returns the exit code.
    fn failed(&self, broken: Broken) -> u8 {
        if let Broken::Unwritten(error) = broken {
            return concluded(checked(Err(error)));
        }
        Failure::from(broken).at(self.client.address()).report()
    }

    /// Shows a text of this program. Returns the exit code.
    fn tell(&mut self, text: &str) -> u8 {
        let shown = self.screen.tell(text).and_then(|()| self.screen.flush());
        shown.map_or_else(|broken| self.failed(broken), |()| 0)
    }
}

/// Runs one command. Returns the exit code.
fn one(mut session: Session, command: &[OsString]) -> Result<u8, Failure> {
    // This reports it.
    session.screen.hide_refusals();
    let words: Vec<_> = command.iter().map(|word| word.as_bytes()).collect();
    let asked = match words.as_slice() {
        // A single argument with blanks is a line, as at the prompt.
        [line] if line.contains(&b' ') => request::of_line(line),
        words => request::of_words(words),
    };
    let request = match asked? {
        Asked::Request(request) => request,
        Asked::WithValue(head) => {
            let mut value = Vec::new();
            let read = io::stdin().read_to_end(&mut value);
            read.map_err(|error| lines::unread(&error))?;
            head.with_all(&value)?
        }
        Asked::Help(topic) => return Ok(help(&mut session, &topic)),
        Asked::Nothing | Asked::Leave => return Ok(0),
    };
    match session.ask(&request) {
        Ok(Verdict::Refused(reply)) => {
            let typed = command.first().map(|word| word.to_string_lossy());
            let verb = typed.as_deref().unwrap_or_default().split(' ').next();
            let advice = commands::advice(verb.unwrap_or_default(), &reply);
            Err(Failure::usage(reply + &advice).at(session.client.address()))
        }
        Ok(verdict) => Ok(verdict.code()),
        Err(broken) => Ok(session.failed(broken)),
    }
}

/// Shows the help of one command, or of all. Returns the exit code.
fn help(session: &mut Session, topic: &str) -> u8 {
    if let Some(text) = commands::help(topic) {
        return session.tell(&text);
    }
    let why = format!("unknown command {topic}; `help` lists the commands");
    Failure::usage(why).report()
}
