//! Writes the manual pages and the shell completions into a folder, from the definition of the options. `packaging/deb`
//! runs it; by hand: `cargo run -p latchd --example manual -- FOLDER`, then `man -l FOLDER/latchd.1`.

use std::path::Path;
use std::{env, fs, io};

use anyhow::{Context, anyhow};
use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

fn main() -> anyhow::Result<()> {
    let mut arguments = env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        return Err(anyhow!("usage: manual FOLDER"));
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, text) in files()? {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// All files, with their names.
fn files() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut program = latchd::command();
    program.build();
    let mut files = Vec::new();
    add_pages(&program, &mut files)?;
    for shell in Shell::value_variants() {
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut latchd::command(), "latchd", &mut text);
        files.push((format!("latchd.{shell}"), text));
    }
    Ok(files)
}

/// Adds the page of a task, and those of its own tasks.
fn add_pages(task: &Command, files: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let name = task.get_display_name().unwrap_or_else(|| task.get_name());
    let mut text = Vec::new();
    render(task, name.to_owned(), &mut text)?;
    if name == "latchd" {
        sections(task).to_writer(&mut text)?;
    }
    files.push((format!("{name}.1"), text));
    tasks(task).try_for_each(|task| add_pages(task, files))
}

/// The tasks of the program or of a task that have pages.
fn tasks(program: &Command) -> impl Iterator<Item = &Command> {
    program
        .get_subcommands()
        .filter(|task| task.get_name() != "help")
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

/// The sections of the program that do not come from its flags.
fn sections(program: &Command) -> Roff {
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
    for (code, meaning) in latchd::EXIT_CODES {
        roff.control("TP", []);
        roff.text([bold(code)]);
        roff.text([roman(meaning)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for task in tasks(program) {
        line.push(bold(task.get_display_name().unwrap_or_default()));
        line.push(roman("(1), "));
    }
    line.extend([bold("memcached"), roman("(1)")]);
    roff.text(line);
    roff
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn synopsis_shows_values_and_repetition() {
        let text = |name| shown(name).replace('\\', "");
        let (page, of_lock) = (text("latchd.1"), text("latchd-lock.1"));
        for (page, part) in [
            (
                &of_lock,
                "fBlatchd lockfR [--keys-from <FILE>] [-s|--server <ADDRESS>] [--tls] ",
            ),
            (&of_lock, " [-h|--help] [KEY]... -- <COMMAND>...\n"),
            (&page, " [-D <CHARACTER>] [-v|--verbose]... [-d|--daemon] "),
            (&page, " [COMMAND]\n"),
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn each_task_has_a_page() {
        let names = files().unwrap().into_iter().map(|(name, _)| name);
        let pages: Vec<_> = names.filter(|name| name.ends_with(".1")).collect();
        assert_eq!(
            pages,
            [
                "latchd.1",
                "latchd-lock.1",
                "latchd-locks.1",
                "latchd-unlock.1",
                "latchd-cli.1",
                "latchd-check.1",
                "latchd-cluster.1",
                "latchd-cluster-init.1",
                "latchd-cluster-status.1",
                "latchd-bench.1",
            ]
        );
        for page in pages {
            let title = page.strip_suffix(".1").unwrap();
            assert!(shown(&page).contains(&format!(".TH {title} 1")), "{page}");
        }
        assert!(shown("latchd-cluster-init.1").contains("PARTITION"));
    }

    #[test]
    fn pages_and_completions_know_the_flags() {
        let page = shown("latchd.1");
        assert!(page.contains("\\-\\-max\\-item\\-size"), "{page}");
        assert!(page.contains("EXIT STATUS"), "{page}");
        for shell in ["bash", "zsh", "fish"] {
            let text = shown(&format!("latchd.{shell}"));
            assert!(text.contains("max-item-size"), "{shell}");
        }
    }

    /// The text of a file.
    fn shown(name: &str) -> String {
        let mut files = files().unwrap().into_iter();
        let (_, text) = files.find(|(of, _)| of == name).unwrap();
        String::from_utf8(text).unwrap()
    }
}
