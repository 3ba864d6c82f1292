//! All mutants of a file at once, each behind a switch of its own.
//!
//! With all switches off, the code is the original one: operands are evaluated once, in their
//! order, and `&&` and `||` still skip their right side.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, BinOp, Block, Expr, ExprBinary, ExprStruct, ExprUnary};

use super::edit::{Blame, Edit, Left, Number, Piece};
use super::list::{Genre, Listed, Place};

/// The edits to a file, and the mutants that are in it then.
#[derive(Debug, Default)]
pub(crate) struct Planted {
    /// The edits.
    pub(crate) edits: Vec<Edit>,
    /// Those that found their place.
    pub(crate) numbers: HashSet<Number>,
    /// Those that are no Rust: `let` stands beside `&&` and nowhere else.
    pub(crate) impossible: HashSet<Number>,
}

/// Plants the mutants of a file.
///
/// # Errors
/// It is no Rust.
pub(crate) fn planted(text: &str, mutants: &[(Number, &Listed)]) -> Result<Planted, syn::Error> {
    let file = syn::parse_file(text)?;
    let mut by_place: HashMap<_, Vec<_>> = HashMap::new();
    for (number, mutant) in mutants {
        let key = (mutant.genre, mutant.place());
        by_place.entry(key).or_default().push((*number, *mutant));
    }
    let mut planter = Planter {
        text,
        by_place,
        planted: Planted::default(),
    };
    planter.visit_file(&file);
    Ok(planter.planted)
}

struct Planter<'a> {
    text: &'a str,
    by_place: HashMap<(Genre, Place), Vec<(Number, &'a Listed)>>,
    planted: Planted,
}

/// Whether a mutant is switched on.
fn is(number: Number) -> String {
    format!("crate::switch::is({number})")
}

fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

fn range(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

/// `if` one is switched on, its text, `else` the next; the caller appends the original text.
fn choice(mutants: &[(Number, &Listed)], says: impl Fn(&Listed) -> String) -> Vec<Piece> {
    let choose = |(number, mutant): &(Number, &Listed)| {
        let text = format!("if {} {{ {} }} else ", is(*number), says(mutant));
        Piece::Mutant(*number, text)
    };
    mutants.iter().map(choose).collect()
}

impl<'a> Planter<'a> {
    /// The mutants of a kind that start where something does.
    fn at(&self, genre: Genre, start: LineColumn) -> Vec<(Number, &'a Listed)> {
        let place = Place {
            line: start.line,
            column: start.column + 1,
        };
        self.by_place
            .get(&(genre, place))
            .cloned()
            .unwrap_or_default()
    }

    fn plant(&mut self, range: Range<usize>, mutants: &[(Number, &Listed)], pieces: Vec<Piece>) {
        let mutants: Vec<_> = mutants.iter().map(|(number, _)| *number).collect();
        self.planted.numbers.extend(&mutants);
        let left = Left::CannotBeSwitched;
        self.planted.edits.push(Edit {
            range,
            blame: Blame { mutants, left },
            pieces,
        });
    }

    fn body(&mut self, block: &Block) {
        let Some(first) = block.stmts.first() else {
            return;
        };
        let mutants = self.at(Genre::FnValue, first.span().start());
        if mutants.is_empty() {
            return;
        }
        if mutants
            .iter()
            .any(|(_, mutant)| mutant.hidden_type().is_some())
        {
            return self.nothing_of(block, mutants);
        }
        let returns = |(number, mutant): &(Number, &Listed)| {
            let text = format!(" if {} {{ return {}; }}", is(*number), mutant.replacement);
            Piece::Mutant(*number, text)
        };
        let open = block.brace_token.span.open().byte_range().end;
        let pieces = mutants.iter().map(returns).collect();
        self.plant(open..open, &mutants, pieces);
    }

    /// An iterator of a type that only the body names may still say nothing at all.
    fn nothing_of(&mut self, block: &Block, mut mutants: Vec<(Number, &Listed)>) {
        mutants.retain(|(_, mutant)| {
            let gives = mutant.hidden_type();
            gives.is_some_and(|gives| gives.starts_with("impl Iterator"))
                && mutant.replacement == "::std::iter::empty()"
        });
        let [(number, _)] = mutants[..] else { return };
        let braces = block.brace_token.span;
        let inner = braces.open().byte_range().end..braces.close().byte_range().start;
        let none = format!("}}, if {} {{ 0 }} else {{ usize::MAX }})", is(number));
        let pieces = vec![
            text("core::iter::Iterator::take({"),
            Piece::Source(inner.clone()),
            Piece::Mutant(number, none),
        ];
        self.plant(inner, &mutants, pieces);
    }

    fn binary(&mut self, expr: &ExprBinary) {
        let mutants = self.at(Genre::BinaryOperator, expr.op.span().start());
        if mutants.is_empty() {
            return;
        }
        let (left, right) = (range(&*expr.left), range(&*expr.right));
        let place = &self.text[left.clone()];
        let (left, right) = (Piece::Source(left), Piece::Source(right));
        let written = &self.text[range(&expr.op)];
        let pieces = match written {
            "&&" | "||" => {
                let [(number, _)] = mutants[..] else { return };
                if has_let(&expr.left) || has_let(&expr.right) {
                    self.planted.impossible.insert(number);
                    return;
                }
                // The other of the two asks the right side just where this one does not.
                let test = if written == "&&" { "!=" } else { "==" };
                let switch = format!("; if left__ {test} {} {{ ", is(number));
                vec![
                    text("({ let left__: bool = "),
                    left,
                    Piece::Mutant(number, switch),
                    right,
                    text(" } else { left__ } })"),
                ]
            }
            "==" | "!=" | "<" | "<=" | ">" | ">=" => {
                let mut pieces = vec![
                    text("(match (&("),
                    left,
                    text("), &("),
                    right,
                    text(")) { (left__, right__) => "),
                ];
                let says = |mutant: &Listed| format!("*left__ {} *right__", mutant.replacement);
                pieces.extend(choice(&mutants, says));
                pieces.push(text(format!("{{ *left__ {written} *right__ }} }})")));
                pieces
            }
            // It assigns: to a place, which is looked up once in either case.
            _ if written.ends_with('=') => {
                let mut pieces = vec![text("{ let right__ = "), right, text("; ")];
                let says = |mutant: &Listed| format!("{place} {} right__", mutant.replacement);
                pieces.extend(choice(&mutants, says));
                let otherwise = [text("{ "), left, text(format!(" {written} right__ }} }}"))];
                pieces.extend(otherwise);
                pieces
            }
            _ => {
                let mut pieces = vec![
                    text("(match ("),
                    left,
                    text(", "),
                    right,
                    text(") { (left__, right__) => "),
                ];
                let says = |mutant: &Listed| format!("left__ {} right__", mutant.replacement);
                pieces.extend(choice(&mutants, says));
                pieces.push(text(format!("{{ left__ {written} right__ }} }})")));
                pieces
            }
        };
        self.plant(range(expr), &mutants, pieces);
    }

    fn unary(&mut self, expr: &ExprUnary) {
        let mutants = self.at(Genre::UnaryOperator, expr.op.span().start());
        if mutants.is_empty() {
            return;
        }
        let written = &self.text[range(&expr.op)];
        let mut pieces = vec![
            text("({ let value__ = "),
            Piece::Source(range(&*expr.expr)),
            text("; "),
        ];
        pieces.extend(choice(&mutants, |_| "value__".to_owned()));
        pieces.push(text(format!("{{ {written}value__ }} }})")));
        self.plant(range(expr), &mutants, pieces);
    }

    fn arm(&mut self, arm: &Arm) {
        let mut mutants = self.at(Genre::MatchArm, arm.span().start());
        let not = |(number, _): &(Number, &Listed)| format!("!{} && ", is(*number));
        let deleted = mutants.iter().map(not).collect::<Vec<_>>().concat();
        let Some((_, guard)) = &arm.guard else {
            if let [(number, _)] = mutants[..] {
                let end = range(&arm.pat).end;
                let piece = Piece::Mutant(number, format!(" if !{}", is(number)));
                self.plant(end..end, &mutants, vec![piece]);
            }
            return;
        };
        let replaced = self.at(Genre::MatchArmGuard, guard.span().start());
        if mutants.is_empty() && replaced.is_empty() || has_let(guard) {
            return;
        }
        let (always, never): (Vec<_>, Vec<_>) = replaced
            .iter()
            .partition(|(_, mutant)| mutant.replacement == "true");
        let always = always
            .iter()
            .map(|(number, _)| format!("{} || ", is(*number)));
        let never = never.iter().map(not);
        let before = always.chain(never).collect::<Vec<_>>().concat();
        mutants.extend(&replaced);
        let pieces = vec![
            text(format!("{deleted}({before}(")),
            Piece::Source(range(&**guard)),
            text("))"),
        ];
        self.plant(range(&**guard), &mutants, pieces);
    }

    fn fields(&mut self, expr: &ExprStruct) {
        let Some(dots) = &expr.dot2_token else { return };
        let whole = range(expr);
        let starts: Vec<_> = expr.fields.iter().map(|field| range(field).start).collect();
        let (mut all, mut pieces) = (Vec::new(), vec![text("(")]);
        for (place, field) in expr.fields.iter().enumerate() {
            let mutants = self.at(Genre::StructField, field.span().start());
            let next = starts.get(place + 1).copied().unwrap_or(range(dots).start);
            let (before, after) = (
                &self.text[whole.start..starts[place]],
                &self.text[next..whole.end],
            );
            pieces.extend(choice(&mutants, |_| format!("{before}{after}")));
            all.extend(mutants);
        }
        if all.is_empty() {
            return;
        }
        pieces.extend([text("{ "), Piece::Source(whole.clone()), text(" })")]);
        self.plant(whole, &all, pieces);
    }
}

/// Whether a condition binds names, which code around it would not see any more.
fn has_let(expr: &Expr) -> bool {
    if let Expr::Binary(ExprBinary {
        left,
        op: BinOp::And(_),
        right,
        ..
    }) = expr
    {
        return has_let(left) || has_let(right);
    }
    matches!(expr, Expr::Let(_))
}

impl<'ast> Visit<'ast> for Planter<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.body(&function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.body(&function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    // A constant computed at compile time has no switch.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}

    fn visit_type_array(&mut self, _: &'ast syn::TypeArray) {}

    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast ExprBinary) {
        self.binary(expr);
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast ExprUnary) {
        self.unary(expr);
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        // An arm with a guard may be removed without another arm for it.
        let arms = expr.arms.iter().filter(|arm| arm.guard.is_none());
        let gone = arms.flat_map(|arm| self.at(Genre::MatchArm, arm.span().start()));
        let gone: Vec<_> = gone.map(|(number, _)| number).collect();
        if !gone.is_empty() {
            let range = range(&*expr.expr);
            let pieces = vec![Piece::Source(range.clone())];
            let (mutants, left) = (gone, Left::DoesNotCompile);
            self.planted.edits.push(Edit {
                range,
                blame: Blame { mutants, left },
                pieces,
            });
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        self.arm(arm);
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expr: &'ast ExprStruct) {
        self.fields(expr);
        visit::visit_expr_struct(self, expr);
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::Rendered;
    use super::*;

    /// A text with mutants in it: the genre, the replaced text (at its first place), and the
    /// replacement.
    fn with(text: &str, mutants: &[(&str, &str, &str)]) -> String {
        let listed = |(genre, replaced, replacement): &(&str, &str, &str)| -> Listed {
            let before = &text[..text.find(replaced).unwrap()];
            let line = before.lines().count().max(1);
            let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
            let json = format!(
                r#"{{"file":"core/src/a.rs","genre":"{genre}","name":"","replacement":"{replacement}",
                    "span":{{"start":{{"line":{line},"column":{column}}}}}}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        let listed: Vec<_> = mutants.iter().map(listed).collect();
        let numbered: Vec<_> = listed.iter().enumerate().collect();
        let done = planted(text, &numbered).unwrap();
        assert_eq!(done.numbers.len(), mutants.len(), "some found no place");
        Rendered::of(text, done.edits)
            .text
            .replace("crate::switch::is", "is")
    }

    #[test]
    fn operands_are_looked_at_once_and_in_their_order() {
        let sum = with(
            "fn f() -> u8 { a() + b() }",
            &[("BinaryOperator", "+", "-"), ("BinaryOperator", "+", "*")],
        );
        assert_eq!(
            sum,
            "fn f() -> u8 { (match (a(), b()) { (left__, right__) => if is(0) { left__ - right__ } else \
             if is(1) { left__ * right__ } else { left__ + right__ } }) }"
        );
        let less = with("fn f() -> bool { a < b }", &[("BinaryOperator", "<", "<=")]);
        assert_eq!(
            less,
            "fn f() -> bool { (match (&(a), &(b)) { (left__, right__) => if is(0) { *left__ <= *right__ } else \
             { *left__ < *right__ } }) }"
        );
        let more = with("fn f() { a[i()] += 1; }", &[("BinaryOperator", "+=", "-=")]);
        assert_eq!(
            more,
            "fn f() { { let right__ = 1; if is(0) { a[i()] -= right__ } else { a[i()] += right__ } }; }"
        );
    }

    #[test]
    fn short_circuits_stay_short() {
        let text = "fn f() -> bool { a && !b || c }";
        let planted = with(
            text,
            &[
                ("BinaryOperator", "&&", "||"),
                ("BinaryOperator", "||", "&&"),
                ("UnaryOperator", "!", ""),
            ],
        );
        assert_eq!(
            planted,
            "fn f() -> bool { ({ let left__: bool = ({ let left__: bool = a; if left__ != is(0) { \
             ({ let value__ = b; if is(2) { value__ } else { !value__ } }) } else { left__ } }); \
             if left__ == is(1) { c } else { left__ } }) }"
        );
        let text = "fn f() { if let Some(a) = b && a {} }";
        let listed = r#"{"file":"","genre":"BinaryOperator","name":"","replacement":"||",
            "span":{"start":{"line":1,"column":29}}}"#;
        let listed: Listed = serde_json::from_str(listed).unwrap();
        let done = planted_alone(text, &listed);
        assert!(done.numbers.is_empty() && done.edits.is_empty());
        assert!(done.impossible.contains(&0));
    }

    fn planted_alone(text: &str, listed: &Listed) -> Planted {
        planted(text, &[(0, listed)]).unwrap()
    }

    #[test]
    fn constants_have_no_switch() {
        let listed = r#"{"file":"","genre":"BinaryOperator","name":"","replacement":"-",
            "span":{"start":{"line":1,"column":COLUMN}}}"#;
        for text in [
            "const A: usize = 1 + 2;",
            "fn f() { const A: usize = 1 + 2; }",
            "impl A { const A: usize = 1 + 2; }",
            "fn f() -> [u8; 1 + 2] { [0; 1 + 2] }",
            "fn f() { g::<{ 1 + 2 }>() }",
        ] {
            for (at, _) in text.match_indices('+') {
                let listed = listed.replace("COLUMN", &(at + 1).to_string());
                let listed: Listed = serde_json::from_str(&listed).unwrap();
                assert!(planted_alone(text, &listed).numbers.is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn functions_arms_guards_and_fields_have_their_switch() {
        let function = with(
            "fn f() -> bool {\n    g()\n}",
            &[("FnValue", "g()", "true")],
        );
        assert_eq!(
            function,
            "fn f() -> bool { if is(0) { return true; }\n    g()\n}"
        );
        let arms = with(
            "fn f() { match a { B if c => d, E => f, _ => g } }",
            &[
                ("MatchArm", "B if", ""),
                ("MatchArmGuard", "c =>", "false"),
                ("MatchArmGuard", "c =>", "true"),
                ("MatchArm", "E", ""),
            ],
        );
        assert_eq!(
            arms,
            "fn f() { match a { B if !is(0) && (is(2) || !is(1) && (c)) => d, E if !is(3) => f, _ => g } }"
        );
        let fields = with(
            "fn f() -> A { A { b: 1, c: 2, ..d() } }",
            &[("StructField", "b: 1", ""), ("StructField", "c: 2", "")],
        );
        assert_eq!(
            fields,
            "fn f() -> A { (if is(0) { A { c: 2, ..d() } } else if is(1) { A { b: 1, ..d() } } else \
             { A { b: 1, c: 2, ..d() } }) }"
        );
    }
}
