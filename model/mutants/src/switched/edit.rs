//! A text with edits in it that may stand within each other, and the place of each edit afterwards.

use std::ops::Range;

/// The number of a mutant: its place in the list.
pub(crate) type Number = usize;

/// The replacement of a part of a text.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The part, in bytes. If nothing is replaced, it is empty, and the pieces come before its
    /// start.
    pub(crate) range: Range<usize>,
    /// The mutants to blame if it does not fit.
    pub(crate) blame: Blame,
    /// The pieces of the replacement, one after the other.
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of the replacement.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Text for all of its mutants.
    Text(String),
    /// Text for one mutant alone.
    Mutant(Number, String),
    /// This part of the original text, with the edits in it.
    Source(Range<usize>),
}

/// A text after its edits.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    /// The text.
    pub(crate) text: String,
    /// The place of each edit: of two parts of which one is in the other, the inner one comes
    /// first.
    parts: Vec<(Range<usize>, Blame)>,
}

/// The mutants to take out if the compiler finds an error. An error in a mutant's own text blames
/// that one; an error in the planting blames all of them. An error in a match from which mutants
/// take arms blames those too, since it hides the error of these arms.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Blame {
    pub(crate) mutants: Vec<Number>,
    /// Why they are not in the build then.
    pub(crate) left: Left,
}

/// Why a mutant is not in the build.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Left {
    /// It does not compile alone.
    DoesNotCompile,
    /// It can be built, but not beside the original code, or it is computed while the core is
    /// compiled.
    CannotBeSwitched,
}

impl Rendered {
    /// The text with its edits. Two edits lie within each other or apart; of two of the same part the first is around the second.
    pub(crate) fn of(text: &str, mut edits: Vec<Edit>) -> Self {
        edits.sort_by_key(|edit| {
            let Range { start, end } = edit.range;
            // A stable order: the outer edit comes first, and an insertion before a part comes
            // before that part.
            (start, !edit.range.is_empty(), usize::MAX - end)
        });
        let mut rendered = Self::default();
        rendered.write(text, &edits, 0..text.len());
        rendered
    }

    /// The mutants to blame for an error at a byte: the narrowest part around it; `None` if that
    /// was there before.
    pub(crate) fn blame(&self, byte: usize) -> Option<&Blame> {
        let part = self.parts.iter().find(|(part, _)| part.contains(&byte));
        part.map(|(_, blame)| blame)
    }

    /// Writes a part of the text, with those of the edits that are in it.
    fn write(&mut self, text: &str, mut edits: &[Edit], part: Range<usize>) {
        let mut written = part.start;
        while let Some((edit, rest)) = edits.split_first() {
            edits = rest;
            if edit.range.start < written {
                continue;
            }
            if edit.range.start >= part.end {
                break;
            }
            self.text.push_str(&text[written..edit.range.start]);
            written = edit.range.end;
            let start = self.text.len();
            for piece in &edit.pieces {
                let start = self.text.len();
                match piece {
                    Piece::Text(text) => self.text.push_str(text),
                    Piece::Mutant(number, text) => {
                        self.text.push_str(text);
                        let blame = Blame {
                            mutants: vec![*number],
                            left: Left::DoesNotCompile,
                        };
                        self.parts.push((start..self.text.len(), blame));
                    }
                    Piece::Source(inner) => self.write(text, rest, inner.clone()),
                }
            }
            self.parts
                .push((start..self.text.len(), edit.blame.clone()));
        }
        self.text.push_str(&text[written..part.end]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planting(mutants: Vec<Number>) -> Blame {
        let left = Left::CannotBeSwitched;
        Blame { mutants, left }
    }

    fn of(mutant: Number) -> Blame {
        let (mutants, left) = (vec![mutant], Left::DoesNotCompile);
        Blame { mutants, left }
    }

    fn edit(range: Range<usize>, pieces: Vec<Piece>) -> Edit {
        let mutants = pieces.iter().filter_map(|piece| match piece {
            Piece::Mutant(number, _) => Some(*number),
            Piece::Text(_) | Piece::Source(_) => None,
        });
        Edit {
            range,
            blame: planting(mutants.collect()),
            pieces,
        }
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    #[test]
    fn edits_stand_within_each_other() {
        let source = "a + b * c";
        let rendered = Rendered::of(
            source,
            vec![
                edit(
                    4..9,
                    vec![
                        text("["),
                        Piece::Source(4..5),
                        text("]"),
                        Piece::Mutant(2, "/".into()),
                    ],
                ),
                edit(
                    0..9,
                    vec![
                        Piece::Mutant(1, "-".into()),
                        text("("),
                        Piece::Source(0..9),
                        text(")"),
                    ],
                ),
                edit(8..8, vec![text("never seen: ")]),
                edit(0..0, vec![text("let ")]),
            ],
        );
        assert_eq!(rendered.text, "let -(a + [b]/)");
        assert_eq!(rendered.blame(4), Some(&of(1)));
        assert_eq!(rendered.blame(13), Some(&of(2)));
        assert_eq!(rendered.blame(11), Some(&planting(vec![2])));
        assert_eq!(rendered.blame(6), Some(&planting(vec![1])));
        assert_eq!(rendered.blame(99), None);
    }
}
