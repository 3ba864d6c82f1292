//! Manual pages and shell completions, generated from the flags.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Print a manual page: `latchd man | man -l -`
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Print this page
    #[arg(value_enum, default_value_t = Page::Latchd)]
    page: Page,
}

/// The manual pages.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    /// The server.
    Latchd,
    /// Running a command under locks.
    Lock,
    /// Listing the locks of a server.
    Locks,
    /// Releasing the lock of another client.
    Unlock,
    /// Sending commands to a server.
    Cli,
    /// Checking the system for a server.
    Check,
    /// The programs for a cluster.
    Cluster,
    /// Creating a cluster.
    ClusterInit,
    /// Showing the primaries of a cluster.
    ClusterStatus,
    /// Measuring a server.
    Bench,
}

/// Print shell completions: `source <(latchd completions bash)`
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Print the completions for this shell
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

/// Writes to standard output in one piece. A reader that stops early is no error.
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
        Page::Lock => &["lock"][..],
        Page::Locks => &["locks"],
        Page::Unlock => &["unlock"],
        Page::Cli => &["cli"],
        Page::Check => &["check"],
        Page::Cluster => &["cluster"],
        Page::ClusterInit => &["cluster", "init"],
        Page::ClusterStatus => &["cluster", "status"],
        Page::Bench => &["bench"],
    };
    let of = |program: Command, task: &&str| program.find_subcommand(task).cloned();
    let found = task.iter().try_fold(program, of);
    let task = found.ok_or_else(|| io::Error::other("no such manual page"))?;
    let name = task.get_display_name().unwrap_or_default().to_owned();
    Man::new(task).title(name).render(out)
}

/// The sections that do not come from flags.
fn sections() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SIGNALS"]);
    for (signal, meaning) in [
        (
            "INT, TERM, USR1",
            "Stop: close all connections, release every lock and exit with code 0.",
        ),
        (
            "HUP",
            "Reload: reopen the log file and read the passwords and certificates again.",
        ),
    ] {
        roff.control("TP", []);
        roff.text([bold(signal)]);
        roff.text([roman(meaning)]);
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in [
        ("0", "A signal or a client stopped the server."),
        ("2", "An option is wrong; the message says which."),
        ("67", "The user of -u does not exist."),
        (
            "70",
            "An internal error; the last line of the log has its reason.",
        ),
        ("71", "The system refuses a resource that the server needs."),
        (
            "74",
            "The items of -e cannot be saved at the end; the log has the reason.",
        ),
        (
            "75",
            "The term in a cluster is over: start the process again, as a standby.",
        ),
    ] {
        roff.control("TP", []);
        roff.text([bold(code)]);
        roff.text([roman(meaning)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("latchd-lock"),
        roman("(1), "),
        bold("latchd-locks"),
        roman("(1), "),
        bold("latchd-unlock"),
        roman("(1), "),
        bold("latchd-cli"),
        roman("(1), "),
        bold("latchd-check"),
        roman("(1), "),
        bold("latchd-bench"),
        roman("(1), "),
        bold("latchd-cluster"),
        roman("(1), "),
        bold("memcached"),
        roman("(1)"),
    ]);
    roff
}
