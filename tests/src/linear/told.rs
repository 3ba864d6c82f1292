//! Histories that other programs have written: the clients of a cluster under faults (`tests/cluster/`).
//!
//! A line for each operation, with words that one blank separates:
//!
//! ```text
//! SENT ANSWERED CONNECTION PROCESS KEY OPERATION ANSWER
//! ```
//!
//! Times are nanoseconds of one clock, and `-` is the time of an answer that never came. A process serves one term.
//!
//! | operation | answer |
//! |---|---|
//! | `get` | `hit VALUE CAS`, `missing` |
//! | `set VALUE GUARD`, where `-` is no guard | `stored CAS`, `exists`, `missing` |
//! | `lock` | `granted FENCE`, `locked`, `withheld` |
//! | `unlock FENCE` | `done`, `missing` |
//! | `end`: the connection has ended after SENT | `-` |
//!
//! An operation without an answer has `-`. A line `heir PROCESS WRITER` says that a process may have begun with the items
//! of another one, which has left; any other begins with nothing.
//!
//! - H1: For each key and term there is an order of the operations in which each answer is right. It begins with nothing, so a
//!   term never shows an item of an earlier one. A heir begins with the items of its writer, or with nothing.
//! - H2: The fences of a key rise over all terms, and so do its CAS numbers: an operation that was sent after the
//!   answer to another one has the higher number.
//! - H3: A process withholds locks only before its first grant, or after its last one.

use std::collections::BTreeMap;
use std::fmt;

use latchd_harness::wording::Protocol;

use super::history::{Answer, Hit, Marks, NEVER, Operation, Record, Store};
use super::search::{self, Verdict};

/// The most operations of a history: a longer one is refused.
pub const OPERATIONS_MAX: usize = 20_000_000;

/// A history that was read.
#[derive(Debug, Default)]
pub struct Told {
    /// The operations of each key, by process.
    keys: BTreeMap<String, BTreeMap<u64, Vec<Record>>>,
    /// Heirs, and their writers.
    writers: BTreeMap<u64, u64>,
    /// The times of locks that a process withheld: sent, and answered.
    withheld: BTreeMap<u64, Vec<(u64, u64)>>,
}

/// The counts of a history without a violation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Judged {
    /// The operations.
    pub operations: usize,
    /// The histories of a key in a term.
    pub histories: usize,
    /// Locks that were granted.
    pub grants: usize,
    /// Items that were read.
    pub hits: usize,
}

impl Told {
    /// Reads a history.
    ///
    /// # Errors
    /// The number of a malformed line, and the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut told = Self::default();
        let mut places: BTreeMap<u64, u64> = BTreeMap::new();
        for (line, words) in text.lines().enumerate() {
            if line >= OPERATIONS_MAX {
                return Err(format!("more than {OPERATIONS_MAX} lines"));
            }
            let words: Vec<&str> = words.split(' ').collect();
            let read = told.read_line(&words, &mut places);
            read.ok_or_else(|| format!("line {}: malformed: {}", line + 1, words.join(" ")))?;
        }
        Ok(told)
    }

    fn read_line(&mut self, words: &[&str], places: &mut BTreeMap<u64, u64>) -> Option<()> {
        if let ["heir", heir, writer] = words {
            let (heir, writer) = (heir.parse().ok()?, writer.parse().ok()?);
            if !self.has_first(writer, heir) {
                return None;
            }
            self.writers.insert(heir, writer);
            return Some(());
        }
        let [sent, answered, conn, process, key, words @ ..] = words else {
            return None;
        };
        if let ["lock", "withheld"] = words {
            let times = (sent.parse().ok()?, answered.parse().ok()?);
            let of_process = self.withheld.entry(process.parse().ok()?);
            of_process.or_default().push(times);
            return Some(());
        }
        let (operation, answer) = read_words(words)?;
        let conn = conn.parse().ok()?;
        let place = places.entry(conn).or_default();
        *place += 1;
        let record = Record {
            conn,
            lane: 0,
            place: *place,
            key: None,
            protocol: Protocol::Meta,
            operation,
            invoked: sent.parse().ok()?,
            answered: match *answered {
                "-" => NEVER,
                answered => answered.parse().ok()?,
            },
            answer,
        };
        if record.answer.is_some() == (record.answered == NEVER) {
            return None;
        }
        let terms = self.keys.entry((*key).to_owned()).or_default();
        terms.entry(process.parse().ok()?).or_default().push(record);
        Some(())
    }

    /// Whether the writers before a process begin with one, and this one is not among them.
    fn has_first(&self, process: u64, but: u64) -> bool {
        let mut one = Some(process);
        while let Some(writer) = one.filter(|one| *one != but) {
            one = self.writers.get(&writer).copied();
        }
        one.is_none()
    }

    /// Judges the history.
    ///
    /// # Errors
    /// The first violation, or a key whose history takes too much to be judged.
    pub fn judge(&self) -> Result<Judged, String> {
        let mut judged = Judged::default();
        for (process, times) in &self.withheld {
            self.judge_withheld(*process, times)?;
            judged.operations += times.len();
        }
        for (key, terms) in &self.keys {
            let all: Vec<&Record> = terms.values().flatten().collect();
            judge_numbers(&all).map_err(|what| format!("{key}: {what}"))?;
            judged.operations += all.len();
            for record in all {
                judged.grants += usize::from(matches!(record.answer, Some(Answer::Granted { .. })));
                judged.hits += usize::from(matches!(record.answer, Some(Answer::Hit(_))));
            }
            for process in terms.keys() {
                judged.histories += 1;
                self.judge_term(key, terms, *process)?;
            }
        }
        Ok(judged)
    }

    /// Judges the times of locks that a process withheld (H3).
    fn judge_withheld(&self, process: u64, times: &[(u64, u64)]) -> Result<(), String> {
        let of_process = self.keys.values().filter_map(|terms| terms.get(&process));
        let is_grant = |record: &&Record| matches!(record.answer, Some(Answer::Granted { .. }));
        let grants: Vec<&Record> = of_process.flatten().filter(is_grant).collect();
        let first = grants.iter().map(|grant| grant.answered).min();
        let last = grants.iter().map(|grant| grant.invoked).max();
        let is_between = |(sent, answered): &&(u64, u64)| {
            first.is_some_and(|first| first < *sent) && last.is_some_and(|last| *answered < last)
        };
        match times.iter().find(is_between) {
            Some((sent, _)) => Err(format!(
                "process {process} withheld a lock at {sent}, between two grants"
            )),
            None => Ok(()),
        }
    }

    /// Judges a key in the term of a process: as that of an heir, and if that has no order, as one that began with nothing.
    fn judge_term(
        &self,
        key: &str,
        terms: &BTreeMap<u64, Vec<Record>>,
        process: u64,
    ) -> Result<(), String> {
        let own = terms.get(&process).map_or(&[][..], Vec::as_slice);
        let mut records = own.to_vec();
        let mut verdict = search::judge(own);
        let mut heir = process;
        while let (Verdict::Violation(_), Some(writer)) = (&verdict, self.writers.get(&heir)) {
            records.extend(terms.get(writer).into_iter().flatten().cloned());
            verdict = search::judge(&records);
            heir = *writer;
        }
        match verdict {
            Verdict::Linearizable { .. } => Ok(()),
            Verdict::Violation(what) => Err(format!("{key} at process {process}: {what}")),
            Verdict::Undecided => Err(format!(
                "{key} at process {process}: undecided, {} operations take more than {} states",
                own.len(),
                search::STATES_MAX
            )),
        }
    }
}

/// The words of an operation and of its answer.
fn read_words(words: &[&str]) -> Option<(Operation, Option<Answer>)> {
    let number = |word: &str| word.parse::<u64>().ok();
    Some(match words {
        ["get", "-"] => (Operation::Get, None),
        ["get", "missing"] => (Operation::Get, Some(Answer::Missing)),
        ["get", "hit", value, cas] => {
            let hit = Hit {
                value: value.as_bytes().into(),
                client_flags: 0,
                cas: Some(number(cas)?),
                marks: Some(Marks::default()),
            };
            (Operation::Get, Some(Answer::Hit(hit)))
        }
        ["set", value, guard, answer @ ..] => {
            let store = Store {
                guard: match *guard {
                    "-" => None,
                    guard => Some(number(guard)?),
                },
                ..Store::new(value.as_bytes())
            };
            let answer = match answer {
                ["-"] => None,
                ["stored", cas] => Some(Answer::Stored {
                    cas: Some(number(cas)?),
                }),
                ["exists"] => Some(Answer::Exists),
                ["missing"] => Some(Answer::Missing),
                _ => return None,
            };
            (Operation::Store(store), answer)
        }
        ["lock", "-"] => (Operation::Acquire, None),
        ["lock", "locked"] => (Operation::Acquire, Some(Answer::Locked)),
        ["lock", "granted", fence] => {
            let fence = number(fence)?;
            (Operation::Acquire, Some(Answer::Granted { fence }))
        }
        ["unlock", fence, answer] => {
            let fence = Some(number(fence)?);
            let answer = match *answer {
                "-" => None,
                "done" => Some(Answer::Done),
                "missing" => Some(Answer::Missing),
                _ => return None,
            };
            (Operation::Release { fence }, answer)
        }
        ["end", "-"] => (Operation::Death, None),
        _ => return None,
    })
}

/// H2, for one key.
fn judge_numbers(records: &[&Record]) -> Result<(), String> {
    let fence = |record: &Record| match record.answer {
        Some(Answer::Granted { fence }) => Some(fence),
        _ => None,
    };
    let version = |record: &Record| match record.answer {
        Some(Answer::Stored { cas }) => cas,
        _ => None,
    };
    judge_rise(records, "fence", fence)?;
    judge_rise(records, "CAS", version)
}

fn judge_rise(
    records: &[&Record],
    name: &str,
    number: impl Fn(&Record) -> Option<u64>,
) -> Result<(), String> {
    let numbered = records.iter().filter_map(|one| Some((number(one)?, *one)));
    let mut by_sent: Vec<(u64, &Record)> = numbered.collect();
    let mut by_answer = by_sent.clone();
    by_sent.sort_by_key(|(_, record)| record.invoked);
    by_answer.sort_by_key(|(_, record)| record.answered);
    let mut before = by_answer.into_iter().peekable();
    let mut highest: Option<(u64, &Record)> = None;
    for (number, record) in by_sent {
        while let Some(one) = before.next_if(|(_, one)| one.answered < record.invoked) {
            highest = highest.max_by_number(one);
        }
        if let Some((known, other)) = highest
            && known >= number
        {
            return Err(format!("the {name} does not rise:\n  {other}\n  {record}"));
        }
    }
    Ok(())
}

/// The record with the higher number.
trait Highest<'a> {
    fn max_by_number(self, one: (u64, &'a Record)) -> Self;
}

impl<'a> Highest<'a> for Option<(u64, &'a Record)> {
    fn max_by_number(self, one: (u64, &'a Record)) -> Self {
        match self {
            Some(known) if known.0 >= one.0 => self,
            Some(_) | None => Some(one),
        }
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operations,
            histories,
            grants,
            hits,
        } = self;
        write!(
            formatter,
            "{operations} operations in {histories} histories of a key in a term: {grants} grants, {hits} hits"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Told;

    fn judge(text: &str) -> Result<super::Judged, String> {
        Told::parse(text).expect("a legal history").judge()
    }

    fn violation(text: &str) -> String {
        judge(text).expect_err("a violation")
    }

    /// Two terms: what is written in the first is missing in the second, and numbers rise.
    const KEPT: &str = "\
1 2 1 100 k set a - stored 7
3 4 2 100 k get hit a 7
5 6 1 100 k set b 7 stored 8
7 8 1 100 k set c 7 exists
9 - 1 100 k set d - -
10 - 1 100 k end -
20 21 3 200 k get missing
22 23 3 200 k set e - stored 9
30 31 4 100 l lock granted 1
32 40 5 100 l lock granted 2
33 34 4 100 l unlock 1 done
41 - 5 100 l end -
45 46 6 100 l lock granted 3
50 51 7 200 l lock granted 4
52 53 8 200 l lock locked";

    #[test]
    fn terms_begin_with_nothing() {
        let judged = judge(KEPT).unwrap();
        assert_eq!((judged.operations, judged.histories), (15, 4));
        assert_eq!((judged.grants, judged.hits), (4, 1));
    }

    #[test]
    fn item_of_an_earlier_term_is_found() {
        let text = KEPT.replace("20 21 3 200 k get missing", "20 21 3 200 k get hit b 8");
        assert!(violation(&text).contains("no order"));
        assert!(judge(&format!("{text}\nheir 200 100")).is_ok());
        // The heir may have begun with nothing, too.
        assert!(judge(&format!("{KEPT}\nheir 200 100")).is_ok());
    }

    #[test]
    fn lost_and_older_values_are_found() {
        let lost = KEPT.replace("3 4 2 100 k get hit a 7", "3 4 2 100 k get missing");
        assert!(violation(&lost).contains("no order"));
        let older = format!("{KEPT}\n11 12 2 100 k get hit a 7");
        assert!(violation(&older).contains("no order"));
        let perhaps = format!("{KEPT}\n11 12 2 100 k get hit d 9");
        assert!(judge(&perhaps).is_ok());
    }

    #[test]
    fn two_holders_are_found() {
        let text = KEPT.replace("32 40 5", "31 32 5");
        assert!(violation(&text).contains("no order"));
        let text = KEPT.replace("52 53 8 200 l lock locked", "52 53 8 200 l lock granted 5");
        assert!(violation(&text).contains("no order"));
    }

    #[test]
    fn locks_are_withheld_only_before_and_after_grants() {
        let withheld = |times: &str| format!("{KEPT}\n{times} 9 100 l lock withheld");
        for times in ["5 20", "31 35", "44 60", "50 60"] {
            assert!(judge(&withheld(times)).is_ok(), "{times}");
        }
        assert!(violation(&withheld("41 44")).contains("between two grants"));
    }

    #[test]
    fn falling_numbers_are_found() {
        let text = KEPT.replace("lock granted 4", "lock granted 3");
        assert!(violation(&text).contains("fence does not rise"));
        let text = KEPT.replace("set e - stored 9", "set e - stored 8");
        assert!(violation(&text).contains("CAS does not rise"));
    }

    #[test]
    fn malformed_lines_are_refused() {
        let lines = [
            "1 2 1 100 k get",
            "1 - 1 100 k get missing",
            "1 2 1 100 k get -",
            "heir 1 1",
            "x",
        ];
        for line in lines {
            assert!(
                Told::parse(line)
                    .unwrap_err()
                    .starts_with("line 1: malformed")
            );
        }
    }
}
