//! Reads a transcript.

use std::time::Duration;

use super::binary::Packet;
use super::{Action, End, Expected, Number, Piece, Scenario, ScenarioStep, Tags, Transcript};

/// A mistake in a transcript.
#[derive(Debug)]
pub struct Mistake {
    /// Where it was read.
    pub file: String,
    /// In which line.
    pub line: usize,
    /// The error.
    pub what: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Reads a transcript from the text of `file`.
///
/// # Errors
/// The first line that cannot be understood.
pub fn parse(file: &str, text: &str) -> Result<Transcript, Mistake> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let mut file_tags = Tags::default();
    // R2: whether a comment is directly above.
    let mut reason_given = false;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let mistake = |what: String| Mistake {
            file: file.to_owned(),
            line: number,
            what,
        };
        if line.ends_with([' ', '\t']) {
            return Err(mistake(
                "a blank at the end cannot be seen: write \\x20".to_owned(),
            ));
        }
        if line.is_empty() {
            reason_given = false;
        } else if line.starts_with('#') {
            reason_given = true;
        } else if let Some(title) = line.strip_prefix("== ") {
            reason_given = false;
            scenarios.push(Scenario {
                title: title.to_owned(),
                tags: file_tags.clone(),
                rows: Vec::new(),
                line: number,
                steps: Vec::new(),
            });
        } else if let Some(row) = line.strip_prefix("@row ") {
            match scenarios.last_mut() {
                Some(scenario) if scenario.steps.is_empty() => scenario.rows.push(row.to_owned()),
                _ => return Err(mistake("a scenario's rows stand below its title".into())),
            }
        } else if let Some(tag) = line.strip_prefix('@') {
            let tags = scope(tag).map_err(mistake)?;
            match scenarios.last_mut() {
                None => file_tags = tags,
                Some(scenario) if scenario.steps.is_empty() => scenario.tags = tags,
                Some(_) => return Err(mistake("a scenario's tags stand below its title".into())),
            }
        } else {
            let step = step(number, line).map_err(&mistake)?;
            if !step.tags.is_empty() && !reason_given {
                return Err(mistake(
                    "a tag needs its reason: a comment above it".to_owned(),
                ));
            }
            match scenarios.last_mut() {
                Some(scenario) => scenario.steps.push(step),
                None => return Err(mistake("a scenario begins with == TITLE".to_owned())),
            }
        }
    }
    Ok(Transcript {
        file: file.to_owned(),
        scenarios,
    })
}

/// `latchd yrmcds: reason`, the rest of a line that begins with `@`.
fn scope(text: &str) -> Result<Tags, String> {
    match text.split_once(": ") {
        Some((tags, reason)) if !reason.trim().is_empty() => Tags::parse(tags),
        _ => Err("a tag needs its reason: @TAG: reason".to_owned()),
    }
}

fn step(line: usize, text: &str) -> Result<ScenarioStep, String> {
    let verb = text.split(' ').next().unwrap_or_default();
    if let Some(how) = match verb {
        "close" => Some(End::Close),
        "half-close" => Some(End::HalfClose),
        "reset" => Some(End::Reset),
        _ => None,
    } {
        let conn = text.strip_prefix(verb).unwrap_or_default().trim();
        let conn = match conn.as_bytes() {
            [] => 'A',
            [name @ b'A'..=b'Z'] => char::from(*name),
            _ => return Err(format!("{conn} is not the name of a connection")),
        };
        return Ok(ScenarioStep {
            line,
            tags: Tags::default(),
            action: Action::End { conn, how },
        });
    }
    if verb == "wait" {
        let span = text
            .strip_prefix("wait ")
            .and_then(|span| span.strip_suffix('s'));
        let seconds: f64 = span
            .and_then(|span| span.parse().ok())
            .ok_or("how long? wait 2s".to_owned())?;
        let action = Action::Wait(Duration::from_secs_f64(seconds));
        return Ok(ScenarioStep {
            line,
            tags: Tags::default(),
            action,
        });
    }

    let (conn, rest) = match text.as_bytes() {
        [name @ b'A'..=b'Z', b'>' | b'<', ..] => (char::from(*name), text.get(1..)),
        _ => ('A', Some(text)),
    };
    let rest = rest.unwrap_or_default();
    let (mark, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let (mark, tags) = match mark.split_once('@') {
        Some((mark, tags)) => (mark, Tags::parse(tags)?),
        None => (mark, Tags::default()),
    };
    let action = match mark {
        ">" => Action::Send {
            conn,
            pieces: line_pieces(text)?,
        },
        ">-" => Action::Send {
            conn,
            pieces: pieces(text)?,
        },
        ">bin" => Action::SendBinary {
            conn,
            packet: Packet::parse(text)?,
        },
        "<" => Action::Expect {
            conn,
            expected: match text {
                "..." => Expected::Lines,
                "nothing" => Expected::Nothing,
                "closed" => Expected::Closed,
                _ => Expected::Bytes(line_pieces(text)?),
            },
        },
        "<-" => Action::Expect {
            conn,
            expected: Expected::Bytes(pieces(text)?),
        },
        "<bin" => Action::Expect {
            conn,
            expected: Expected::Binary(Packet::parse(text)?),
        },
        _ => return Err(format!("a line begins with > or <, not with {mark}")),
    };
    Ok(ScenarioStep { line, tags, action })
}

fn line_pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = pieces(text)?;
    push_literal(&mut pieces, b"\r\n");
    Ok(pieces)
}

/// Reads text with escapes (`\r \n \t \\ \{ \} \xNN`), repeats (`{10000*text}`) and wildcards.
///
/// # Errors
/// Text that cannot be read.
pub fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = rest.get(first.len_utf8()..).unwrap_or_default();
        rest = match first {
            '\\' => {
                let (byte, after) = escape(after)?;
                push_literal(&mut pieces, &[byte]);
                after
            }
            '{' => {
                let (inside, after) = after
                    .split_once('}')
                    .ok_or("a { without a }; write \\{".to_owned())?;
                match inside.split_once('*') {
                    Some((count, text)) => {
                        let count: usize = count
                            .parse()
                            .map_err(|_| format!("{count} is not a number"))?;
                        push_literal(&mut pieces, &repeat(count, text)?);
                    }
                    None => pieces.push(wildcard(inside)?),
                }
                after
            }
            _ => {
                let mut bytes = [0; 4];
                push_literal(&mut pieces, first.encode_utf8(&mut bytes).as_bytes());
                after
            }
        };
    }
    Ok(pieces)
}

fn escape(text: &str) -> Result<(u8, &str), String> {
    let wrong = || format!("\\{text} is not an escape");
    let first = text.chars().next().ok_or_else(wrong)?;
    let rest = text.get(first.len_utf8()..).unwrap_or_default();
    Ok(match first {
        'r' => (b'\r', rest),
        'n' => (b'\n', rest),
        't' => (b'\t', rest),
        '\\' | '{' | '}' => (text.as_bytes()[0], rest),
        'x' => {
            let digits = rest.get(..2).ok_or_else(wrong)?;
            let byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
            (byte, rest.get(2..).unwrap_or_default())
        }
        _ => return Err(wrong()),
    })
}

/// `text` this many times, its escapes read; a `#` in it is the number of the repeat, from 1.
fn repeat(count: usize, text: &str) -> Result<Vec<u8>, String> {
    let one = |number: usize| match pieces(&text.replace('#', &number.to_string()))?.as_slice() {
        [] => Ok(Vec::new()),
        [Piece::Literal(literal)] => Ok(literal.clone()),
        _ => Err("a repeat has no wildcards".to_owned()),
    };
    if text.contains('#') {
        let all: Result<Vec<_>, String> = (1..=count).map(one).collect();
        all.map(|all| all.concat())
    } else {
        one(1).map(|literal| literal.repeat(count))
    }
}

fn wildcard(text: &str) -> Result<Piece, String> {
    if text == "any" {
        return Ok(Piece::Word);
    }
    if text == "line" {
        return Ok(Piece::Rest);
    }
    if let Some(seconds) = text.strip_prefix('~') {
        let seconds = seconds
            .parse()
            .map_err(|_| format!("{seconds} is not a number"))?;
        return Ok(Piece::Number(Number::Seconds(seconds)));
    }
    if let Some((bound, floor)) = text.split_once('>') {
        let bound = if bound.is_empty() {
            None
        } else {
            Some(name(bound)?)
        };
        return Ok(Piece::Number(Number::Above {
            floor: name(floor)?,
            name: bound,
        }));
    }
    let (variable, plus) = match text.find(['+', '-']) {
        Some(at) => {
            let (variable, plus) = text.split_at(at);
            (
                variable,
                plus.parse()
                    .map_err(|_| format!("{plus} is not a number"))?,
            )
        }
        None => (text, 0),
    };
    Ok(Piece::Number(Number::Variable {
        name: name(variable)?,
        plus,
    }))
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty()
        || !text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    {
        return Err(format!("{text} is not the name of a variable"));
    }
    Ok(text.to_owned())
}

fn push_literal(pieces: &mut Vec<Piece>, bytes: &[u8]) {
    match pieces.last_mut() {
        Some(Piece::Literal(literal)) => literal.extend_from_slice(bytes),
        _ => pieces.push(Piece::Literal(bytes.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(bytes: &[u8]) -> Piece {
        Piece::Literal(bytes.to_vec())
    }

    #[test]
    fn escapes_and_repeats_are_bytes() {
        assert_eq!(pieces("a\\x00\\r\\{").unwrap(), [literal(b"a\0\r{")]);
        assert_eq!(pieces("get{3* k#}").unwrap(), [literal(b"get k1 k2 k3")]);
        assert_eq!(pieces("{2*\\x00#}").unwrap(), [literal(b"\x001\x002")]);
        assert!(pieces("\\q").is_err());
        assert!(pieces("{3*").is_err());
    }

    #[test]
    fn wildcards_are_told_apart() {
        let variable = |name: &str, plus| Number::Variable {
            name: name.to_owned(),
            plus,
        };
        assert_eq!(pieces("{x}").unwrap(), [Piece::Number(variable("x", 0))]);
        assert_eq!(pieces("{x-1}").unwrap(), [Piece::Number(variable("x", -1))]);
        assert_eq!(
            pieces("{~30}").unwrap(),
            [Piece::Number(Number::Seconds(30))]
        );
        assert_eq!(
            pieces("{y>x}").unwrap(),
            [Piece::Number(Number::Above {
                floor: "x".into(),
                name: Some("y".into())
            })]
        );
        assert_eq!(pieces("{any}").unwrap(), [Piece::Word]);
    }

    #[test]
    fn a_tag_without_a_reason_is_a_mistake() {
        let with = "== t\n> a\n# differs: because\n<@latchd b\n<@memcached c\n";
        assert_eq!(parse("f", with).unwrap().scenarios[0].steps.len(), 3);
        assert_eq!(parse("f", "== t\n> a\n<@latchd b\n").unwrap_err().line, 3);
        assert_eq!(parse("f", "@latchd\n== t\n").unwrap_err().line, 1);
        assert_eq!(parse("f", "@row a | b\n== t\n").unwrap_err().line, 1);
        assert_eq!(
            parse("f", "== t\n> a\n# r\n<@nobody b\n").unwrap_err().line,
            4
        );
    }

    #[test]
    fn connections_have_names() {
        let transcript = parse("f", "== t\nB> get a\nreset B\n> x\n").unwrap();
        let steps = &transcript.scenarios[0].steps;
        assert!(matches!(steps[0].action, Action::Send { conn: 'B', .. }));
        assert!(matches!(
            steps[1].action,
            Action::End {
                conn: 'B',
                how: End::Reset
            }
        ));
        assert!(matches!(steps[2].action, Action::Send { conn: 'A', .. }));
        assert!(parse("f", "== t\nclose BB\n").is_err());
    }
}
