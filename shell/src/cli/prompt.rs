//! The prompt: a line editor with a history.
//!
//! - Q1: After a wrong line, a refusal or a lost server, the prompt reads the next line.
//! - Q2: If a connection has ended, a message says that its locks are released.

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::answer::Verdict;
use super::commands;
use super::connection::Broken;
use super::history::{History, LINES_MAX};
use super::request::{self, Asked, Head, Request};
use super::{Session, help};
use crate::output::{Failure, complain};

/// Completes the first word of a line.
struct Words;

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..position).unwrap_or_default();
        let (before, word) = match typed.rsplit_once(' ') {
            Some((before, word)) => (before.trim(), word),
            None => ("", typed),
        };
        let own = if before.is_empty() {
            &["help", "quit"][..]
        } else {
            &[]
        };
        let words = commands::words().chain(own.iter().copied());
        let is_command = before.is_empty() || before == "help";
        let fitting = words.filter(|known| is_command && known.starts_with(word));
        Ok((
            position - word.len(),
            fitting.map(|word| format!("{word} ")).collect(),
        ))
    }
}

impl Hinter for Words {
    type Hint = String;
}
impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

/// A session at a terminal.
struct Prompt {
    editor: Editor<Words, MemHistory>,
    history: Option<History>,
    session: Session,
}

/// Runs the typed commands until the input ends.
pub(super) fn run(mut session: Session) -> Result<(), Failure> {
    let config = Config::builder()
        .max_history_size(LINES_MAX)
        .and_then(|config| config.history_ignore_dups(true))
        // Several pasted lines are several commands.
        .map(|config| {
            config
                .history_ignore_space(true)
                .bracketed_paste(false)
                .build()
        });
    let editor = config.and_then(|config| {
        let history = MemHistory::with_config(&config);
        Editor::with_history(config, history)
    });
    let unusable = |error| Failure::usage(format!("cannot use this terminal: {error}"));
    let mut editor = editor.map_err(unusable)?;
    editor.set_helper(Some(Words));
    let (history, lines) = History::open().unzip();
    for line in lines.unwrap_or_default() {
        // The editor leaves out repetitions.
        let _ = editor.add_history_entry(line);
    }
    let greeted = session.greet();
    let mut prompt = Prompt {
        editor,
        history,
        session,
    };
    if let Err(broken) = greeted {
        prompt.failed(&broken);
    }
    prompt
        .session
        .tell("`help` lists the commands, Ctrl-D leaves\n");
    prompt.work()
}

impl Prompt {
    fn work(&mut self) -> Result<(), Failure> {
        let sign = format!("{}> ", self.session.client.address());
        loop {
            match self.editor.readline(&sign) {
                Ok(line) => {
                    self.keep(&line);
                    match request::of_line(line.as_bytes()) {
                        Ok(Asked::Leave) => return Ok(()),
                        asked => self.answer(asked),
                    }
                }
                // Ctrl-C discards the line, as in a shell.
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => {
                    let why = format!("cannot read from the terminal: {error}");
                    return Err(Failure::usage(why));
                }
            }
        }
    }

    /// Adds a line to the history, if the editor does.
    fn keep(&mut self, line: &str) {
        let is_added = self.editor.add_history_entry(line).unwrap_or(false);
        if let Some(history) = self.history.as_mut().filter(|_| is_added) {
            history.add(line);
        }
    }

    /// Q1.
    fn answer(&mut self, asked: Result<Asked, Failure>) {
        let request = match asked {
            Ok(Asked::Request(request)) => Ok(request),
            Ok(Asked::WithValue(head)) => self.value(&head),
            Ok(Asked::Help(topic)) => {
                help(&mut self.session, &topic);
                return;
            }
            Ok(Asked::Nothing | Asked::Leave) => return,
            Err(mistake) => Err(mistake),
        };
        match request.map(|request| self.session.ask(&request)) {
            // The reply has been shown, including a refusal.
            Ok(Ok(Verdict::Done | Verdict::No | Verdict::Refused(_))) => {}
            Ok(Err(broken)) => self.failed(&broken),
            Err(mistake) => _ = mistake.report(),
        }
    }

    /// Reads a value in the protocol's form: lines until it has the given length.
    fn value(&mut self, head: &Head) -> Result<Request, Failure> {
        let length = head.value_bytes.unwrap_or_default();
        let mut value = Vec::new();
        loop {
            let missing = length.saturating_sub(value.len());
            match self.editor.readline(&format!("{missing} bytes> ")) {
                Ok(line) => value.extend_from_slice(line.as_bytes()),
                Err(_) => return Err(Failure::usage("nothing was sent")),
            }
            if value.len() >= length {
                return head.with_all(&value);
            }
            // The line end belongs to the value. If the value ends with it, an empty line follows.
            value.extend_from_slice(b"\r\n");
            if value.len() > length {
                return head.with_all(&value);
            }
        }
    }

    /// Q2.
    fn failed(&self, broken: &Broken) {
        let after = match broken {
            Broken::Unreachable(_) => "the next command connects again",
            Broken::Silent(_)
            | Broken::Closed
            | Broken::Socket(_)
            | Broken::Foreign
            | Broken::Tls => "its locks are released; the next command connects again",
            // The terminal is closed. Reading the next line ends the prompt.
            Broken::Unwritten(_) => return,
        };
        let address = self.session.client.address();
        complain(&format!("{address}: {broken}; {after}"));
    }
}
