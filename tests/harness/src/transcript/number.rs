//! Numbers that the server chose: a transcript's knowledge of them, and whether they are as it
//! says.

use std::collections::BTreeMap;

use super::binary::literal_number;
use super::{Number, Piece, escaped};

/// The variables of a scenario that have a value.
#[derive(Clone, Debug, Default)]
pub struct Variables(BTreeMap<String, u64>);

impl Variables {
    /// The number that is sent for `number`.
    ///
    /// # Errors
    /// The variable has no value yet, or `number` is a wildcard.
    pub fn value_of(&self, number: &Number) -> Result<u64, String> {
        match number {
            Number::Variable { name, plus } => self
                .0
                .get(name)
                .map(|value| value.wrapping_add_signed(*plus))
                .ok_or(format!("{name} has no value yet")),
            Number::Above { .. } | Number::Seconds(_) => {
                Err("a request has no wildcards".to_owned())
            }
        }
    }

    /// Compares a received number with the expected one; the variable that has no value yet gets
    /// it. Seconds are exact only where time is the test's own.
    ///
    /// # Errors
    /// Why it differs.
    pub fn compare(&mut self, exact_time: bool, number: &Number, got: u64) -> Result<(), String> {
        let (holds, rule) = match number {
            Number::Variable { name, plus: 0 } if !self.0.contains_key(name) => {
                self.0.insert(name.clone(), got);
                (true, String::new())
            }
            Number::Variable { .. } => {
                let expected = self.value_of(number)?;
                (got == expected, format!("is {expected}"))
            }
            Number::Above { floor, name } => {
                let floor = *self
                    .0
                    .get(floor)
                    .ok_or(format!("{floor} has no value yet"))?;
                if let Some(name) = name {
                    self.0.insert(name.clone(), got);
                }
                (got > floor, format!("is above {floor}"))
            }
            Number::Seconds(seconds) => {
                let tolerance = u64::from(!exact_time);
                (got.abs_diff(*seconds) <= tolerance, format!("is {seconds}"))
            }
        };
        if holds {
            Ok(())
        } else {
            Err(format!("{got}, expected: {rule}"))
        }
    }

    /// As [`compare`](Self::compare), of a number in digits.
    ///
    /// # Errors
    /// Why it differs.
    pub fn compare_digits(
        &mut self,
        exact_time: bool,
        number: &Number,
        digits: &[u8],
    ) -> Result<(), String> {
        self.compare(exact_time, number, literal_number(digits)?)
    }

    /// The expected line, with the known values.
    #[must_use]
    pub fn describe(&self, pieces: &[Piece]) -> String {
        let shown = |piece: &Piece| match piece {
            Piece::Literal(literal) => escaped(literal),
            Piece::Number(Number::Variable { name, plus }) => match self.0.get(name) {
                Some(value) => value.wrapping_add_signed(*plus).to_string(),
                None => format!("{{{name}}}"),
            },
            Piece::Number(Number::Above { floor, .. }) => format!("{{>{floor}}}"),
            Piece::Number(Number::Seconds(seconds)) => format!("{{~{seconds}}}"),
            Piece::Word => "{any}".to_owned(),
            Piece::Rest => "{line}".to_owned(),
        };
        pieces.iter().map(shown).collect()
    }
}
