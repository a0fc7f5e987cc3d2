//! Hostile text in HTML.

/// Writes a name or path as text that has no meaning in HTML and hides nothing.
pub(super) fn write_text(text: &[u8], page: &mut String) {
    for char in String::from_utf8_lossy(text).chars() {
        match char {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            // Unicode has a symbol for each control character of ASCII.
            '\0'..=' ' if char != ' ' => page.extend(char::from_u32(0x2400 + u32::from(char))),
            '\x7f' => page.push('\u{2421}'),
            _ if is_invisible(char) => page.extend(char.escape_unicode()),
            _ => page.push(char),
        }
    }
}

/// Returns true for control characters, line separators, and characters that change the direction
/// of text. The latter can make `exe.txt` out of `txt.exe`.
fn is_invisible(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}
