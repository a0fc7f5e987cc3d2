use percent_encoding::percent_decode;
use proptest::prelude::*;

use super::*;

/// 2026-11-27T14:05:09Z.
const MODIFIED: i64 = 1_795_788_309;

fn file(name: &[u8], len: u64) -> ListingEntry {
    ListingEntry {
        name: name.into(),
        is_folder: false,
        len,
        modified: MODIFIED,
    }
}

fn folder(name: &[u8]) -> ListingEntry {
    ListingEntry {
        is_folder: true,
        ..file(name, 4_096)
    }
}

/// Returns the links of a page and their texts, without the link to the parent.
fn links(page: &str) -> Vec<(&str, &str)> {
    page.split("<a href=\"")
        .skip(1)
        .map(|rest| {
            let (link, rest) = rest.split_once("\">").unwrap();
            (link, rest.split_once("</a>").unwrap().0)
        })
        .filter(|(link, _)| *link != "../")
        .collect()
}

#[test]
fn a_page_lists_folders_and_files() {
    let entries = [file(b"b.txt", 1_234), folder(b"z"), file(b"a", 1)];
    let page = html(b"/x y/", &entries);
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">\n"));
    assert!(page.contains("<title>Index of /x y/</title>\n"));
    let rows = page.split_once("<tbody>\n").unwrap().1;
    let time = "<time datetime=\"2026-11-27T14:05:09Z\">2026-11-27 14:05</time>";
    let expected = format!(
        "<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n\
         <tr><td><a href=\"./z/\">z/</a></td><td></td><td>{time}</td></tr>\n\
         <tr><td><a href=\"./a\">a</a></td>\
         <td><span title=\"1 byte\">1 B</span></td><td>{time}</td></tr>\n\
         <tr><td><a href=\"./b.txt\">b.txt</a></td>\
         <td><span title=\"1,234 bytes\">1.2 kB</span></td><td>{time}</td></tr>\n\
         </tbody>\n</table>\n</body>\n</html>\n"
    );
    assert_eq!(rows, expected);
}

#[test]
fn the_root_has_no_parent() {
    assert!(!html(b"/", &[]).contains("../"));
    assert!(html(b"/a/", &[]).contains("href=\"../\""));
}

#[test]
fn hostile_names_are_harmless() {
    let cases: &[(&[u8], &str, &str)] = &[
        (
            b"javascript:alert(1)",
            "./javascript%3Aalert%281%29",
            "javascript:alert(1)",
        ),
        (b"data:text,x", "./data%3Atext%2Cx", "data:text,x"),
        (b"//evil.test", "./%2F%2Fevil.test", "//evil.test"),
        (b"\\\\evil", "./%5C%5Cevil", "\\\\evil"),
        (b"a?b#c%41", "./a%3Fb%23c%2541", "a?b#c%41"),
        (
            b"<script>x</script>",
            "./%3Cscript%3Ex%3C%2Fscript%3E",
            "&lt;script&gt;x&lt;/script&gt;",
        ),
        (
            b"\" onclick=\"x",
            "./%22%20onclick%3D%22x",
            "&quot; onclick=&quot;x",
        ),
        (b"'&amp;", "./%27%26amp%3B", "&#39;&amp;amp;"),
        (b"</title>", "./%3C%2Ftitle%3E", "&lt;/title&gt;"),
        (b" a  b ", "./%20a%20%20b%20", " a  b "),
        (
            b"a\r\n\0\x1b[2J\x7f",
            "./a%0D%0A%00%1B%5B2J%7F",
            "a␍␊␀␛[2J␡",
        ),
        (
            "\u{85}\u{2028}".as_bytes(),
            "./%C2%85%E2%80%A8",
            "\\u{85}\\u{2028}",
        ),
        (
            "\u{202e}txt.exe".as_bytes(),
            "./%E2%80%AEtxt.exe",
            "\\u{202e}txt.exe",
        ),
        (b"\xff.txt", "./%FF.txt", "\u{fffd}.txt"),
        ("größe".as_bytes(), "./gr%C3%B6%C3%9Fe", "größe"),
        (b"...", "./...", "..."),
        (b"-_~", "./-_~", "-_~"),
    ];
    for (name, link, text) in cases {
        let page = html(b"/", &[file(name, 0)]);
        assert_eq!(links(&page), [(*link, *text)]);
        let path = [b"/", *name, b"/"].concat();
        let heading = format!("Index of /{text}/");
        let page = html(&path, &[]);
        assert!(page.contains(&format!("<title>{heading}</title>")));
        assert!(page.contains(&format!("<h1>{heading}</h1>")));
    }
}

#[test]
fn json_lists_folders_and_files() {
    let entries = [file(b"\xff\"<\n", 1_234), folder(b"z")];
    let list: Value = serde_json::from_str(&json(b"/x\xfe/", &entries)).unwrap();
    let expected = json!({
        "path": "/x\u{fffd}/",
        "entries": [
            {
                "name": "z",
                "href": "./z/",
                "type": "folder",
                "modified": "2026-11-27T14:05:09Z",
            },
            {
                "name": "\u{fffd}\"<\n",
                "href": "./%FF%22%3C%0A",
                "type": "file",
                "size": 1_234,
                "modified": "2026-11-27T14:05:09Z",
            },
        ],
    });
    assert_eq!(list, expected);
    assert_eq!(json(b"/", &[]), "{\"entries\":[],\"path\":\"/\"}");
}

/// Names with many characters that have a meaning in HTML or URLs.
fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(b"<>&\"'/\\%:?#\r\n ".as_slice()),
    ];
    prop::collection::vec(byte, 1..12)
}

proptest! {
    /// Checks that names add no tags, attributes or references to the page, and that each link leads
    /// to its name.
    #[test]
    fn names_have_no_meaning_in_html(
        names in prop::collection::vec((any_name(), any::<bool>()), 0..5),
    ) {
        let entry = |(name, is_folder): &(Vec<u8>, bool)| ListingEntry {
            is_folder: *is_folder,
            ..file(name, 1)
        };
        let entries: Vec<ListingEntry> = names.iter().map(entry).collect();
        let path = [b"/", &*names.first().map_or(vec![b'a'], |n| n.0.clone()), b"/"].concat();
        let page = html(&path, &entries);

        let plain: Vec<ListingEntry> = entries
            .iter()
            .map(|entry| ListingEntry { name: b"plain".into(), ..entry.clone() })
            .collect();
        let plain = html(b"/plain/", &plain);
        for char in ['<', '>', '"', '\''] {
            prop_assert_eq!(page.matches(char).count(), plain.matches(char).count());
        }
        prop_assert!(!page.contains(|c: char| c.is_control() && c != '\n'));
        prop_assert_eq!(page.lines().count(), plain.lines().count());
        for rest in page.split('&').skip(1) {
            let references = ["amp;", "lt;", "gt;", "quot;", "#39;"];
            prop_assert!(references.iter().any(|reference| rest.starts_with(reference)));
        }

        let mut linked: Vec<Vec<u8>> = Vec::new();
        for (link, _) in links(&page) {
            let name = link.strip_prefix("./").unwrap();
            let name = name.strip_suffix('/').unwrap_or(name);
            linked.push(percent_decode(name.as_bytes()).collect());
        }
        let mut expected: Vec<Vec<u8>> = entries.into_iter().map(|entry| entry.name).collect();
        expected.sort();
        linked.sort();
        prop_assert_eq!(linked, expected);
    }
}
