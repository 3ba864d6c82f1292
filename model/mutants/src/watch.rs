//! A program with tests, run until it ends or one of them fails.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// How a program ended.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Passed,
    /// With the name of a failing test, if it printed one.
    Failed(Option<String>),
    Killed,
}

/// When a program with a failing test is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Until {
    /// At once: the failure is enough.
    Failure,
    /// When it has printed the reason, too.
    End,
}

/// Runs a program, and gives `hear` each line that it writes to its output.
///
/// # Errors
/// It cannot be run, or its output cannot be read.
pub(crate) fn watch(
    command: &mut Command,
    until: Until,
    mut hear: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<Verdict, String> {
    let name = command.get_program().display().to_string();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let said = child.stdout.take().expect("it is piped");
    for line in BufReader::new(said).split(b'\n') {
        let line = line.map_err(failed)?;
        hear(&line).map_err(failed)?;
        let Some(test) = failed_test(&line).filter(|_| until == Until::Failure) else {
            continue;
        };
        end(&mut child);
        return Ok(Verdict::Failed(Some(test)));
    }
    let status = child.wait().map_err(failed)?;
    Ok(match status.code() {
        Some(0) => Verdict::Passed,
        // `timeout` kills with itself; and so does a limit on the processor's time.
        None | Some(124 | 128..) => Verdict::Killed,
        Some(_) => Verdict::Failed(None),
    })
}

/// The failing test, if the line names one.
fn failed_test(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let test = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(test.to_owned())
}

/// Ends a program, and those that it has started if it leads a group of them, as `timeout` does.
fn end(child: &mut Child) {
    let group = format!("-{}", child.id());
    let mut kill = Command::new("kill");
    let _ = kill
        .args(["-KILL", "--", &group])
        .stderr(Stdio::null())
        .status();
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome of a shell that runs this, and its output.
    fn outcome(script: &str, until: Until) -> (Verdict, String) {
        let mut heard = Vec::new();
        let verdict = watch(Command::new("sh").args(["-c", script]), until, |line| {
            heard.extend_from_slice(line);
            heard.push(b'\n');
            Ok(())
        });
        (verdict.unwrap(), String::from_utf8(heard).unwrap())
    }

    #[test]
    fn the_first_failing_test_ends_the_program() {
        const FAILS: &str = "echo 'test a ... ok'; echo 'test b ... FAILED'; echo why; exit 101";
        let (verdict, heard) = outcome(FAILS, Until::Failure);
        assert_eq!(verdict, Verdict::Failed(Some("b".to_owned())));
        assert_eq!(heard, "test a ... ok\ntest b ... FAILED\n");

        let (verdict, heard) = outcome(FAILS, Until::End);
        assert_eq!(verdict, Verdict::Failed(None));
        assert_eq!(heard, "test a ... ok\ntest b ... FAILED\nwhy\n");
    }

    #[test]
    fn a_program_passes_fails_or_is_killed() {
        assert_eq!(outcome("exit 0", Until::Failure).0, Verdict::Passed);
        assert_eq!(outcome("exit 1", Until::Failure).0, Verdict::Failed(None));
        assert_eq!(outcome("kill -9 $$", Until::End).0, Verdict::Killed);
    }
}
