//! The tables of a document in Markdown: their rows, each with the heading above it.
//!
//! A table is a line of cells, a line of dashes, and rows up to the first other line. A fenced
//! block contains no table.

/// A row of a table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Row {
    /// The nearest heading above it, without its `#`.
    pub(super) section: String,
    /// Its first cell as it stands.
    pub(super) cell: String,
}

/// All rows, in order.
pub(super) fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut section, mut is_fenced, mut is_table) = (String::new(), false, false);
    let mut previous = "";
    for line in text.lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        }
        if is_fenced {
            continue;
        }
        if let Some(heading) = heading(line) {
            heading.clone_into(&mut section);
        }
        if !line.starts_with('|') {
            is_table = false;
        } else if is_table {
            rows.push(Row {
                section: section.clone(),
                cell: first_cell(line),
            });
        } else if is_dashes(line) && previous.starts_with('|') {
            is_table = true;
        }
        previous = line;
    }
    rows
}

/// The text of a heading, of any level.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len()).then_some(text)?.strip_prefix(' ')
}

fn is_dashes(line: &str) -> bool {
    line.contains('-') && line.chars().all(|char| "|-: ".contains(char))
}

/// The text before the second bar; one behind a backslash is none.
fn first_cell(line: &str) -> String {
    let cells = line.strip_prefix('|').unwrap_or(line);
    let mut is_escaped = false;
    let end = cells.find(|char| {
        let is_bar = char == '|' && !is_escaped;
        is_escaped = char == '\\' && !is_escaped;
        is_bar
    });
    cells
        .get(..end.unwrap_or(cells.len()))
        .unwrap_or(cells)
        .trim()
        .to_owned()
}

#[test]
fn rows_have_heading_and_first_cell() {
    let text = "# One\n\n| a | b |\n| --- | --- |\n| `x` | 1 |\n| y \\| z | 2 |\ntext | no row |\n\
                ### Two\n```\n| in | a block |\n| --- | --- |\n| no | row |\n```\n\
                | | |\n|:-|-:|\n| z | 3 |\n\n| no | table |\n| above | it |\n";
    let of = |section: &str, cell: &str| Row {
        section: section.to_owned(),
        cell: cell.to_owned(),
    };
    assert_eq!(
        rows(text),
        [of("One", "`x`"), of("One", "y \\| z"), of("Two", "z")]
    );
}
