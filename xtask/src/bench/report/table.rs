//! A table of the page.

use std::fmt::Write as _;

use super::page::escape;

/// A table of HTML.
pub(super) struct Table {
    columns: Vec<String>,
    text: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|head| escape(head)).collect(),
            text: vec![0],
            rows: Vec::new(),
        }
    }

    /// Columns of words, which may be broken.
    pub(super) fn text_columns(&mut self, columns: &[usize]) {
        self.text = columns.to_vec();
    }

    /// Cells are HTML.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(super) fn write(&self, html: &mut String) {
        html.push_str("<div class=\"wide\"><table>\n<thead><tr>");
        for (at, head) in self.columns.iter().enumerate() {
            let class = if self.text.contains(&at) {
                " class=\"text\""
            } else {
                ""
            };
            let _ = write!(html, "<th{class}>{head}</th>");
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                let class = if self.text.contains(&at) {
                    " class=\"text\""
                } else {
                    ""
                };
                let _ = write!(html, "<td{class}>{cell}</td>");
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody>\n</table></div>\n");
    }
}
