//! The table in `docs/wrong-requests.md`.

/// A row of the table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DocRow {
    /// The request.
    pub request: String,
    /// What rxe answers.
    pub rxe: String,
    /// What we answer.
    pub ours: String,
    /// Why they differ; empty if they do not.
    pub why: String,
}

/// Reads every row of every table whose first column is `request`.
pub fn parse(text: &str) -> Vec<DocRow> {
    let mut rows = Vec::new();
    let mut in_table = false;
    for line in text.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        match cells[..] {
            ["request", _, _, _] => in_table = true,
            [first, ..] if first.starts_with("---") => {}
            [request, rxe, ours, why] if in_table => rows.push(DocRow {
                request: request.into(),
                rxe: rxe.into(),
                ours: ours.into(),
                why: why.into(),
            }),
            _ => in_table = false,
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_other_tables_are_not() {
        let text = "# x\n| a | b |\n|---|---|\n| 1 | 2 |\n\n| request | rxe | userdma | why |\n|---|---|---|---|\n| r | s | t | |\n\ntext | x | y | z\n";
        let row = DocRow { request: "r".into(), rxe: "s".into(), ours: "t".into(), why: String::new() };
        assert_eq!(parse(text), [row]);
    }
}
