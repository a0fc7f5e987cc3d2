//! Checks the lengths of sentences in comments and documents.

use std::path::Path;

/// Maximum number of words in a sentence.
pub(super) const MAX_WORDS: usize = 25;

/// Returns the sentences that have more than [`MAX_WORDS`] words. Each has the number of the line
/// on which its paragraph begins.
pub(super) fn long_sentences(file: &Path, text: &str) -> Vec<(usize, String)> {
    let is_code = file.extension().is_some_and(|end| end == "rs");
    let lines = text.lines().map(|line| match (is_code, line.trim()) {
        (false, line) => line,
        (true, line) => comment(line).unwrap_or(""),
    });
    let sentences = paragraphs(lines).into_iter().flat_map(|(line, words)| {
        let sentences = split(&words).into_iter();
        sentences.map(move |sentence| (line, sentence.join(" ")))
    });
    let is_long = |sentence: &str| sentence.split(' ').count() > MAX_WORDS;
    sentences
        .filter(|(_, sentence)| is_long(sentence))
        .collect()
}

/// Returns the text of a comment line, or `None` if the line is code.
fn comment(line: &str) -> Option<&str> {
    let text = line.strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

/// Splits lines of Markdown into paragraphs. Each has the number of its first line, and its words.
/// Code blocks, tables and headings are skipped.
fn paragraphs<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(usize, Vec<&'a str>)> {
    let mut paragraphs: Vec<(usize, Vec<&str>)> = Vec::new();
    let (mut is_fenced, mut is_open) = (false, false);
    for (number, line) in (1..).zip(lines) {
        let line = line.trim();
        is_fenced ^= line.starts_with("```");
        let is_prose = !line.is_empty() && !line.starts_with(['|', '#', '<']);
        if is_fenced || !is_prose || line.starts_with("```") {
            is_open = false;
            continue;
        }
        let marker = line.split(' ').next().unwrap_or_default();
        let is_item = ["-", "*"].contains(&marker) || marker.ends_with('.') && marker.len() < 4;
        if is_item || !is_open {
            paragraphs.push((number, Vec::new()));
        }
        is_open = true;
        if let Some((_, words)) = paragraphs.last_mut() {
            words.extend(line.split_whitespace().skip(usize::from(is_item)));
        }
    }
    paragraphs
}

/// Splits a paragraph's words into sentences.
fn split<'a>(words: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut sentences = vec![Vec::new()];
    for (at, word) in words.iter().enumerate() {
        sentences
            .last_mut()
            .expect("there is a sentence")
            .push(*word);
        let ends = word
            .trim_end_matches(['"', ')', '`', '*'])
            .ends_with(['.', '!', '?', ':']);
        let begins =
            |next: &&str| next.starts_with(|c: char| c.is_uppercase() || "`\"[(*".contains(c));
        if ends && words.get(at + 1).is_some_and(begins) {
            sentences.push(Vec::new());
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_is_found_with_its_line() {
        let long = "word ".repeat(MAX_WORDS) + "end.";
        let code = format!("fn f() {{\n    // Short.\n\n    /// {long}\n    /// Next.\n}}\n");
        let found = long_sentences(Path::new("a.rs"), &code);
        assert_eq!(found, [(4, long.clone())]);
        let page = format!("# Title\n\nShort.\n- {long}\n\n```sh\n{long}\n```\n| {long} |\n");
        assert_eq!(long_sentences(Path::new("a.md"), &page), [(4, long)]);
    }

    #[test]
    fn two_sentences_do_not_count_as_one() {
        let half = "word ".repeat(15);
        let text = format!("{half}end. `{half}` begins a new one (see there).");
        assert_eq!(long_sentences(Path::new("a.md"), &text), []);
    }
}
