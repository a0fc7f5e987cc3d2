//! An entry of a folder, as it is in the lists.

use std::fmt::Write as _;

use control::report;
use humantime::format_rfc3339_seconds;
use percent_encoding::percent_encode;
use serde_json::{Value, json};

use super::text::write_text;
use crate::date::write_with;
use crate::percent::NAME;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListingEntry {
    /// The name in its folder, which need not be UTF-8.
    pub(crate) name: Vec<u8>,
    /// False for a file.
    pub(crate) is_folder: bool,
    /// The length of a file in bytes. The lists do not show the length of a folder.
    pub(crate) len: u64,
    /// The time of the last modification, in seconds since 1970.
    pub(crate) modified: i64,
}

impl ListingEntry {
    /// Returns the link to the entry, relative to its folder.
    fn link(&self) -> String {
        let slash = if self.is_folder { "/" } else { "" };
        format!("./{}{slash}", percent_encode(&self.name, NAME))
    }

    /// Returns the time of the last modification, for example `2026-11-27T14:05:09Z`.
    fn modified(&self) -> String {
        write_with(self.modified, 0, |time| {
            format_rfc3339_seconds(time).to_string()
        })
    }

    /// Writes the row of the entry.
    pub(super) fn write_row(&self, page: &mut String) {
        let _ = write!(page, "<tr><td><a href=\"{}\">", self.link());
        write_text(&self.name, page);
        page.push_str(if self.is_folder { "/" } else { "" });
        page.push_str("</a></td><td>");
        if !self.is_folder {
            let exact = report::counted(self.len, "byte");
            let rounded = report::bytes(self.len);
            let _ = write!(page, "<span title=\"{exact}\">{rounded}</span>");
        }
        let modified = self.modified();
        let (date, time) = (&modified[..10], &modified[11..16]);
        let _ = writeln!(
            page,
            "</td><td><time datetime=\"{modified}\">{date} {time}</time></td></tr>"
        );
    }

    /// Returns the entry as an object in the list in JSON.
    pub(super) fn to_json(&self) -> Value {
        let mut object = json!({
            "name": String::from_utf8_lossy(&self.name),
            "href": self.link(),
            "type": if self.is_folder { "folder" } else { "file" },
            "modified": self.modified(),
        });
        if !self.is_folder {
            object["size"] = self.len.into();
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::LAST_SECOND;

    #[test]
    fn times_before_the_year_0_and_after_the_year_9999_are_cut() {
        for (modified, text) in [
            (i64::MIN, "0000-01-01T00:00:00Z"),
            (-310_522_000, "1960-02-28T23:53:20Z"),
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (LAST_SECOND, "9999-12-31T23:59:59Z"),
            (LAST_SECOND + 1, "9999-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            let entry = ListingEntry {
                name: b"a".to_vec(),
                is_folder: false,
                len: u64::MAX,
                modified,
            };
            assert_eq!(entry.modified(), text);
            let mut row = String::new();
            entry.write_row(&mut row);
            assert!(row.contains(&format!(">{} {}<", &text[..10], &text[11..16])));
        }
    }
}
