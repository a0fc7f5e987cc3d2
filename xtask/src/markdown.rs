//! Helpers for writing Markdown.

/// Escapes the characters that have a meaning in Markdown.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '|' | '<' | '*' | '_' | '`' | '\\' | '[' | ']' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Writes a table. The first column is aligned left, the others right.
pub(crate) fn write_table(text: &mut String, heads: &[String], rows: &[Vec<String>]) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    text.push_str(&line(heads));
    let rules = (0..heads.len()).map(|at| if at == 0 { "---" } else { "---:" });
    text.push_str(&line(&rules.map(str::to_owned).collect::<Vec<_>>()));
    for row in rows {
        text.push_str(&line(row));
    }
    text.push('\n');
}

/// Converts string slices to owned strings.
pub(crate) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
