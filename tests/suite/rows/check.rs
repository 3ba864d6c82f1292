//! The kinds of checks of a row, and whether a check exists.

use latchd_harness::transcript::{Dialect, parse};
use latchd_tests::abuse::ATTACKS;
use latchd_tests::differential::allow;

/// A check of a row, or the word that there is none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Check {
    /// `transcripts/FILE.txt: TITLE`, a scenario that is played against latchd.
    Scenario {
        /// Its file below tests/transcripts/, from `transcripts/` on.
        file: String,
        /// The title behind its `==`.
        title: String,
    },
    /// `FILE.rs: NAME`, a test or a property.
    Test {
        /// Its file, from the top of the checkout.
        file: String,
        /// Its function.
        name: String,
    },
    /// `differential: ID`, a difference that the comparison with a live server allows.
    Difference {
        /// As `tests/src/differential/allow.rs` has it.
        id: String,
    },
    /// `abuse: NAME`, an attack on a real server.
    Attack {
        /// As `tests/src/abuse/attacks/` has it.
        name: String,
    },
    /// `nothing: REASON`.
    Nothing {
        /// Why it cannot be checked.
        reason: String,
    },
    /// `but not: PART, REASON`, beside the checks of the rest.
    ButNot {
        /// Which part, and why it cannot be checked.
        what: String,
    },
}

impl Check {
    /// Reads one line.
    ///
    /// # Errors
    /// The mistake, and its remedy.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let unreadable = || {
            format!(
                "\"{line}\" names nothing that checks a row: transcripts/FILE.txt: TITLE, FILE.rs: TEST, \
                 differential: ID, abuse: ATTACK, nothing: REASON, or but not: PART, REASON"
            )
        };
        let (what, rest) = line.split_once(": ").ok_or_else(unreadable)?;
        let (what, rest) = (what.to_owned(), rest.to_owned());
        let is_of = |extension: &str| what.strip_suffix(extension).is_some();
        Ok(match what.as_str() {
            "nothing" => Self::Nothing { reason: rest },
            "but not" => Self::ButNot { what: rest },
            "differential" => Self::Difference { id: rest },
            "abuse" => Self::Attack { name: rest },
            file if file.starts_with("transcripts/") && is_of(".txt") => Self::Scenario {
                file: what,
                title: rest,
            },
            _ if is_of(".rs") => Self::Test {
                file: what,
                name: rest,
            },
            _ => return Err(unreadable()),
        })
    }
}

/// Where files are read.
pub(super) trait Files {
    /// The text of a file, by its path from the top of the checkout; `None` if there is none.
    fn read(&self, path: &str) -> Option<String>;
}

/// Why this checks nothing, with the remedy; `None` if it is there.
pub(super) fn fault(check: &Check, files: &impl Files) -> Option<String> {
    match check {
        Check::Scenario { file, title } => fault_of_scenario(file, title, files),
        Check::Test { file, name } => fault_of_test(file, name, files),
        Check::Difference { id } => {
            let is_noted = allow::NOTES.iter().any(|(noted, _)| noted == id);
            let is_there = is_noted || allow::LIST.iter().any(|entry| entry.id == id);
            (!is_there).then(|| {
                format!("the differential run allows no \"{id}\": tests/src/differential/allow.rs has the ids")
            })
        }
        Check::Attack { name } => {
            let is_there = ATTACKS.iter().any(|attack| attack.name == name);
            (!is_there).then(|| {
                format!("there is no attack \"{name}\": tests/src/abuse/attacks/ has the names")
            })
        }
        Check::Nothing { .. } | Check::ButNot { .. } => None,
    }
}

fn fault_of_scenario(file: &str, title: &str, files: &impl Files) -> Option<String> {
    let path = format!("tests/{file}");
    let Some(text) = files.read(&path) else {
        return Some(format!(
            "there is no file {path}: name the one that has \"{title}\""
        ));
    };
    let transcript = match parse::parse(&path, &text) {
        Ok(transcript) => transcript,
        Err(mistake) => return Some(mistake.to_string()),
    };
    let mut of_this_title = transcript
        .scenarios
        .iter()
        .filter(|scenario| scenario.title == title);
    match (of_this_title.next(), of_this_title.next()) {
        (None, _) => Some(format!(
            "{path} has no scenario \"{title}\": name one that is there, and checks the row"
        )),
        (Some(_), Some(second)) => Some(format!(
            "{path}:{}: there are two scenarios \"{title}\": give one of them another title",
            second.line
        )),
        (Some(scenario), None) => (!scenario.admits(Dialect::Latchd)).then(|| {
            format!("{path}: \"{title}\" is not played against latchd, so it does not check what latchd does")
        }),
    }
}

fn fault_of_test(file: &str, name: &str, files: &impl Files) -> Option<String> {
    let Some(text) = files.read(file) else {
        return Some(format!(
            "there is no file {file}: name the one that has the test {name}"
        ));
    };
    let fault = match is_test(&text, name) {
        Some(true) => return None,
        Some(false) => "a function, and no test or property: name one",
        None => "not there: name a test that is, and checks the row",
    };
    Some(format!("{name} in {file} is {fault}"))
}

/// Whether the function of this name is a test, or a property; `None` if there is no such function.
fn is_test(text: &str, name: &str) -> Option<bool> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = format!("fn {name}(");
    let at = lines.iter().position(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.starts_with(&begins)
    })?;
    let above = || lines[..at].iter().rev();
    let is_marked = above()
        .map(|line| line.trim_start())
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .any(|line| line == "#[test]");
    // A property is within its macro, which ends with the next brace at the beginning of a line.
    let is_property = above()
        .find(|line| !line.is_empty() && !line.starts_with(' '))
        .is_some_and(|line| *line == "quickcheck! {");
    Some(is_marked || is_property)
}
