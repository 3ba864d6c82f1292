//! The manual page and the completions of shells, made of the flags themselves: they cannot disagree.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Print a manual page: `latchd man | man -l -`
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Which one
    #[arg(value_enum, default_value_t = Page::Latchd)]
    page: Page,
}

/// The pages there are.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    /// The server.
    Latchd,
    /// A command under locks.
    Lock,
    /// Talking to a server.
    Cli,
    /// What the server needs of the system.
    Check,
}

/// Print completions for a shell: `source <(latchd completions bash)`
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints a page, as roff.
pub(crate) fn print_page(args: &ManArgs, program: Command) -> ExitCode {
    print(|out| page(args.page, program, out))
}

/// Prints the completions.
pub(crate) fn print_completions(args: &CompletionsArgs, mut program: Command) -> ExitCode {
    print(|out| {
        clap_complete::generate(args.shell, &mut program, "latchd", out);
        Ok(())
    })
}

/// Writes to standard output at once. Nobody has to read it to its end.
fn print(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> ExitCode {
    let mut text = Vec::new();
    match write(&mut text).and_then(|()| io::stdout().write_all(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => super::fail(&error.to_string()),
    }
}

fn page(page: Page, mut program: Command, out: &mut Vec<u8>) -> io::Result<()> {
    program.build();
    let task = match page {
        Page::Latchd => {
            Man::new(program).render(out)?;
            return sections().to_writer(out);
        }
        Page::Lock => "lock",
        Page::Cli => "cli",
        Page::Check => "check",
    };
    let found = program.find_subcommand(task).cloned();
    let task = found.ok_or_else(|| io::Error::other("there is no such page"))?;
    let name = task.get_display_name().unwrap_or_default().to_owned();
    Man::new(task).title(name).render(out)
}

/// What no flag says.
fn sections() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SIGNALS"]);
    for (signal, meaning) in [
        (
            "INT, TERM, USR1",
            "The server stops listening, frees every lock and ends with exit code 0.",
        ),
        (
            "HUP",
            "The log file is opened anew and the passwords are read anew.",
        ),
    ] {
        roff.control("TP", []);
        roff.text([bold(signal)]);
        roff.text([roman(meaning)]);
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in [
        ("0", "A signal or a client has ended it."),
        ("2", "A flag is wrong; the message says which."),
        ("67", "-u names nobody."),
        ("70", "An assertion of latchd has failed."),
        ("71", "The system refuses what the server needs."),
    ] {
        roff.control("TP", []);
        roff.text([bold(code)]);
        roff.text([roman(meaning)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("latchd-lock"),
        roman("(1), "),
        bold("latchd-cli"),
        roman("(1), "),
        bold("latchd-check"),
        roman("(1), "),
        bold("memcached"),
        roman("(1)"),
    ]);
    roff
}
