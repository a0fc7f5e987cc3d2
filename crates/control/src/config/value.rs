//! Values as they are written in a file.

/// Returns a value in TOML: a number as it is, and any other text in quotes.
pub(super) fn toml_value(text: &str) -> String {
    let is_number = text == "0" || !text.starts_with(['0', '+']) && text.parse::<u64>().is_ok();
    if is_number {
        text.to_owned()
    } else {
        toml_text(text)
    }
}

/// Returns a text in quotes.
pub(super) fn toml_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
