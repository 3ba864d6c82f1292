//! The mutants that are known to survive, with the reason of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::edit::Number;
use super::list::Listed;

/// Mutants that no layer finds: the name of each, and the reason.
#[derive(Debug)]
pub(crate) struct Known(BTreeMap<String, String>);

impl Known {
    /// The content of a file: a name a line, `: ` behind it, and the reason; a line that starts
    /// with `#` is a comment, and an empty line means nothing.
    ///
    /// # Errors
    /// It cannot be read, or a line has no reason or comes twice.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| said(&error))?;
        Self::parse(&text).map_err(|error| said(&error))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut known = BTreeMap::new();
        let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in text.lines().filter(says) {
            let (name, reason) = line
                .split_once(" -- ")
                .filter(|(_, reason)| !reason.trim().is_empty())
                .ok_or_else(|| format!("no reason behind ` -- `: {line}"))?;
            if known.insert(name.to_owned(), reason.to_owned()).is_some() {
                return Err(format!("this is there twice: {name}"));
            }
        }
        Ok(Self(known))
    }

    /// The messages about mutants that are not known and that no layer finds.
    pub(crate) fn unknown<'a>(&self, names: &'a [String], missed: &[Number]) -> Vec<&'a str> {
        let names = missed.iter().map(|number| names[*number].as_str());
        names.filter(|name| !self.0.contains_key(*name)).collect()
    }

    /// The known survivors that are no mutants any more, or that a layer finds now.
    pub(crate) fn outdated(&self, names: &[String], missed: &[Number]) -> Vec<&str> {
        let missed: BTreeSet<_> = missed.iter().map(|number| &names[*number]).collect();
        let outdated = self.0.keys().filter(|name| !missed.contains(name));
        outdated.map(String::as_str).collect()
    }
}

/// Names of mutants that stay when lines have moved: the file, the function, and the change. If the
/// change is possible in several places of the function, the number of the place.
pub(crate) fn names(mutants: &[Listed]) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let name = |mutant: &Listed| {
        // As in `core/protocol/src/time.rs:218:13: delete match arm 0 in Exptime::from_wire`.
        let what = mutant.name.splitn(4, ':').nth(3).unwrap_or(&mutant.name);
        let name = format!("{}:{what}", mutant.file);
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 {
            name
        } else {
            format!("{name} ({count})")
        }
    };
    mutants.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str) -> Listed {
        let json = format!(
            r#"{{"file":"a.rs","genre":"FnValue","name":"{name}","replacement":"",
                "span":{{"start":{{"line":1,"column":1}}}}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn mutant_names_do_not_depend_on_lines() {
        let mutants = [
            "a.rs:3:4: replace + with - in S::f",
            "a.rs:9:1: replace + with - in S::f",
        ];
        let names = names(&mutants.map(listed));
        assert_eq!(
            names,
            [
                "a.rs: replace + with - in S::f",
                "a.rs: replace + with - in S::f (2)"
            ]
        );
        let known = "# Why.\n\na.rs: replace + with - in S::f (2) -- is 0\na.rs: gone -- is gone\n";
        let known = Known::parse(known).unwrap();
        assert_eq!(
            known.unknown(&names, &[0, 1]),
            ["a.rs: replace + with - in S::f"]
        );
        assert_eq!(known.outdated(&names, &[0, 1]), ["a.rs: gone"]);
        assert_eq!(known.outdated(&names, &[0]).len(), 2);
        assert!(Known::parse("a.rs: b\n").is_err());
        assert!(Known::parse("a.rs: b -- \n").is_err());
        assert!(Known::parse("a.rs: b -- c\na.rs: b -- d\n").is_err());
    }
}
