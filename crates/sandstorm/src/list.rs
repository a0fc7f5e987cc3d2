//! Lists in field values.

/// Returns the elements of a comma-separated list (RFC 9110, section 5.6.1). Quoted strings are not
/// supported: a comma inside a quoted string also separates elements.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}
