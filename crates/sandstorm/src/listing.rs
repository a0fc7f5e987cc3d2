//! Pages that list the entries of a folder, for people and for programs.
//!
//! Names come from whoever may write to the folder, so they are hostile. A link begins with `./` and
//! percent-encodes all other characters than letters, digits and `-._~`. So no name can be read as a
//! scheme, a host or a query. In text, characters with a meaning in HTML are escaped, and control
//! characters are replaced by visible ones.

mod entry;
mod order;
mod text;

use serde_json::{Value, json};

pub(crate) use self::entry::ListingEntry;
use self::text::write_text;

/// The beginning of the page, before its title.
const BEFORE_TITLE: &str = "\
<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>";

/// The text between title and heading. On narrow screens, size and date stand below the name.
const AFTER_TITLE: &str = "</title>
<style>
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }
body { margin: 0 auto; max-width: 60rem; padding: 1rem }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; white-space: pre-wrap }
table { border-collapse: collapse; width: 100% }
th { text-align: left }
td, th { border-bottom: 1px solid #8884; padding: .3rem 1rem .3rem 0; vertical-align: top }
td:first-child { overflow-wrap: anywhere; white-space: pre-wrap; width: 100% }
td + td, th + th { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap }
td:last-child, th:last-child { padding-right: 0 }
a { text-decoration: none }
a:hover, a:focus { text-decoration: underline }
@media (max-width: 36rem) {
thead { display: none }
tr { border-bottom: 1px solid #8884; display: block; padding: .3rem 0 }
td { border: 0; padding: 0 }
td:first-child { display: block; width: auto }
td + td { display: inline-block; font-size: .85rem; margin-right: 1rem }
td:empty { display: none }
}
</style>
</head>
<body>
<h1>";

/// The text between the heading and the first row.
const BEFORE_ROWS: &str = "</h1>
<table>
<thead><tr><th>Name</th><th>Size</th><th>Modified (UTC)</th></tr></thead>
<tbody>
";

const AFTER_ROWS: &str = "</tbody>
</table>
</body>
</html>
";

/// The row that leads to the parent folder.
const PARENT: &str = "<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n";

/// Makes a page in HTML that lists `entries`. `path` is the decoded path of the folder, with a slash
/// at both ends.
///
/// Folders come first, then files, each in the natural order of their names. All folders except the
/// root have a link to their parent.
pub(crate) fn html(path: &[u8], entries: &[ListingEntry]) -> String {
    let mut page = String::from(BEFORE_TITLE);
    write_heading(path, &mut page);
    page.push_str(AFTER_TITLE);
    write_heading(path, &mut page);
    page.push_str(BEFORE_ROWS);
    if path != b"/" {
        page.push_str(PARENT);
    }
    for entry in order::sorted(entries) {
        entry.write_row(&mut page);
    }
    page.push_str(AFTER_ROWS);
    page
}

/// Makes a list of `entries` in JSON, in the order of [`html`]. `path` is the decoded path of the
/// folder, with a slash at both ends.
///
/// ```json
/// {"path": "/a/", "entries": [{"name": "b.css", "href": "./b.css", "type": "file", "size": 17,
/// "modified": "2026-11-27T14:05:09Z"}]}
/// ```
///
/// Bytes of a name that are not UTF-8 become U+FFFD, so only `href` identifies an entry. A folder
/// has the type `folder`, its `href` ends with a slash, and it has no size.
pub(crate) fn json(path: &[u8], entries: &[ListingEntry]) -> String {
    let entries = order::sorted(entries);
    let entries: Vec<Value> = entries.into_iter().map(ListingEntry::to_json).collect();
    json!({ "path": String::from_utf8_lossy(path), "entries": entries }).to_string()
}

fn write_heading(path: &[u8], page: &mut String) {
    page.push_str("Index of ");
    write_text(path, page);
}

#[cfg(test)]
mod tests;
