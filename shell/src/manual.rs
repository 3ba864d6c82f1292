//! Manual pages and shell completions, generated from the flags.

use std::io;
use std::process::ExitCode;

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::exit;
use crate::output;

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
    match write(&mut text) {
        Ok(()) => output::print(&text).err().unwrap_or(0).into(),
        Err(error) => super::fail(&error.to_string()),
    }
}

fn page(page: Page, mut program: Command, out: &mut Vec<u8>) -> io::Result<()> {
    program.build();
    let task = match page {
        Page::Latchd => {
            render(&program, "latchd".into(), out)?;
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
    render(&task, name, out)
}

/// Renders a page as [`Man::render`] does, with a synopsis of its own.
fn render(program: &Command, title: String, out: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(program.clone()).title(title);
    man.render_title(out)?;
    man.render_name_section(out)?;
    synopsis(program).to_writer(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if program.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    if program.get_after_help().is_some() || program.get_after_long_help().is_some() {
        man.render_extra_section(out)?;
    }
    if program.get_version().is_some() {
        man.render_version_section(out)?;
    }
    Ok(())
}

/// The synopsis. That of `clap_mangen` leaves out the values of options, and the `...` behind repeated arguments.
fn synopsis(program: &Command) -> Roff {
    let name = program.get_bin_name().unwrap_or_else(|| program.get_name());
    let mut line = vec![bold(name)];
    let (operands, options): (Vec<_>, Vec<_>) = program
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .partition(|arg| arg.is_positional());
    for arg in options {
        // As in `--help`.
        let shown = arg.to_string();
        let (shown, dots) = match shown.strip_suffix("...") {
            Some(shown) => (shown, "..."),
            None => (&*shown, ""),
        };
        let short = arg.get_short().filter(|_| arg.get_long().is_some());
        let short = short.map_or(String::new(), |short| format!("-{short}|"));
        line.push(roman(format!(" [{short}{shown}]{dots}")));
    }
    for arg in operands {
        let dashes = if arg.is_last_set() { "-- " } else { "" };
        line.push(roman(format!(" {dashes}{arg}")));
    }
    if program.has_subcommands() {
        line.push(roman(if program.is_subcommand_required_set() {
            " <COMMAND>"
        } else {
            " [COMMAND]"
        }));
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(line);
    roff
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
    for (code, meaning) in exit::TABLE {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synopsis_shows_values_and_repetition() {
        let mut text = Vec::new();
        page(Page::Lock, crate::args::command(), &mut text).unwrap();
        page(Page::Latchd, crate::args::command(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap().replace('\\', "");
        for part in [
            "fBlatchd lockfR [--keys-from <FILE>] [-s|--server <ADDRESS>] [--tls] ",
            " [-h|--help] [KEY]... -- <COMMAND>...\n",
            " [-D <CHARACTER>] [-v|--verbose]... [-d|--daemon] ",
            " [COMMAND]\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
