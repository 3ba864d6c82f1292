//! Tables as text: columns as wide as their widest cell, the first to the left, the others to the right.

use std::fmt::{self, Write};

/// A heading and rows of cells.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this heading and no rows yet.
    pub fn new<'a>(heading: impl IntoIterator<Item = &'a str>) -> Self {
        let heading = heading.into_iter().map(str::to_owned).collect();
        Self {
            rows: vec![heading],
        }
    }

    /// Adds a row with as many cells as the heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.rows[0].len(), "one cell a column");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = format!("  {:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(line, "  {cell:>width$}")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number with commas between its thousands.
#[must_use]
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number <= -0.5 {
        text.insert(0, '-');
    }
    text
}

/// Bytes in MiB, with one decimal.
#[must_use]
pub fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["server", "op/s"]);
        table.row(["a".into(), "1,000".into()]);
        table.row(["longer name".into(), "7".into()]);
        let expected = "  server        op/s\n  a            1,000\n  longer name      7\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1_000.0), "1,000");
        assert_eq!(grouped(1_234_567.8), "1,234,568");
        assert_eq!(grouped(-1_234.0), "-1,234");
        assert_eq!(grouped(-0.2), "0");
    }

    #[test]
    fn mebibytes_have_one_decimal() {
        assert_eq!(mib(3 << 19), "1.5");
    }
}
