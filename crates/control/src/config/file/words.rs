//! Turns the values of keys into words of a command line, and lets the command check them.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use nmio::WrongWords;
use toml::Spanned;
use toml::de::DeValue;

use super::settings::Word;
use crate::config::example::is_text;
use crate::config::keys::Key;
use crate::config::problem::nearest;
use crate::config::value::toml_value;

/// Returns one value of a key as a word of a command line, or what is wrong with it.
pub(super) fn word(key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    let name = key.name();
    let is_text = is_text(key);
    let text = match value.get_ref() {
        DeValue::Boolean(is_set) if key.is_flag() => is_set.to_string(),
        _ if key.is_flag() => return Err(format!("{name} must be true or false")),
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 && !is_text => {
            number.as_str().replace('_', "")
        }
        DeValue::Float(number) if !is_text => number.as_str().to_owned(),
        _ => {
            let values = key.arg.get_possible_values();
            let values: Vec<_> = values
                .iter()
                .map(|value| toml_value(value.get_name()))
                .collect();
            let number = if is_text { "" } else { " or a decimal number" };
            return Err(if values.is_empty() {
                format!("{name} must be a text in quotes{number}")
            } else {
                format!("{name} must be one of {}", values.join(", "))
            });
        }
    };
    if text.contains('\0') {
        return Err(format!("{name} must not contain a NUL character"));
    }
    Ok(key.words(&text))
}

/// Returns where the byte at `at` of a value stands in the `file`. Returns `None` if the file does not have the
/// same text between the quotes, for example because of escapes.
pub(super) fn place_in(file: &str, value: &Spanned<DeValue<'_>>, at: usize) -> Option<usize> {
    let DeValue::String(text) = value.get_ref() else {
        return None;
    };
    let span = value.span();
    let quoted = file.get(span.clone())?;
    // A line end that follows three quotes is not part of the text.
    let long = ["'''", "\"\"\""]
        .iter()
        .find_map(|quotes| quoted.strip_prefix(quotes));
    let inner = match long {
        Some(inner) => inner
            .strip_prefix("\r\n")
            .or(inner.strip_prefix('\n'))
            .unwrap_or(inner),
        None => quoted.get(1..)?,
    };
    inner
        .starts_with(&**text)
        .then_some(span.end - inner.len() + at)
}

/// Lets the command check one option. Other errors, such as a missing option, do not count.
///
/// # Errors
/// What is wrong with the value, or with each of its words. A word has its offset in the value.
pub(super) fn check(command: &Command, words: &[Word]) -> Result<(), Vec<(Option<usize>, String)>> {
    let words = words.iter().map(|word| word.text.as_str());
    let line = std::iter::once(command.get_name()).chain(words);
    let Err(error) = command.clone().try_get_matches_from(line) else {
        return Ok(());
    };
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    let reason = match error.kind() {
        ErrorKind::InvalidValue => {
            let (value, all) = (
                text(ContextKind::InvalidValue),
                text(ContextKind::ValidValue),
            );
            if all.is_empty() {
                "it must not be empty".to_owned()
            } else {
                match nearest(&value, all.split(", ")) {
                    Some(near) => format!("there is no value {value:?}; did you mean {near:?}?"),
                    None => format!("there is no value {value:?}; values are {all}"),
                }
            }
        }
        ErrorKind::ValueValidation => {
            let source = std::error::Error::source(&error);
            if let Some(wrong) =
                source.and_then(|source| source.downcast_ref::<WrongWords<String>>())
            {
                return Err(wrong
                    .iter()
                    .map(|(at, why)| (Some(at), why.clone()))
                    .collect());
            }
            source.map(ToString::to_string).unwrap_or_default()
        }
        _ => return Ok(()),
    };
    Err(vec![(None, reason)])
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    #[test]
    fn a_byte_of_a_text_is_found_behind_the_quotes() {
        for (value, expected) in [
            ("'ab'", Some(1)),
            ("''", Some(1)),
            ("\"\"\"ab\"\"\"", Some(3)),
            ("'''\nab'''", Some(4)),
            ("'''\r\nab'''", Some(5)),
            ("\"\\\"\"", None),
            ("7", None),
        ] {
            let file = format!("a = {value}");
            let table = DeTable::parse(&file).unwrap();
            let found = place_in(&file, &table.get_ref()["a"], 0);
            assert_eq!(found, expected.map(|at: usize| at + 4), "{value}");
        }
    }
}
