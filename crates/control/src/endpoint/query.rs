//! Queries of URLs.

use percent_encoding::percent_decode_str;

/// Passes the decoded name and value of each part of a query to `set`. `set` returns `None` if it does
/// not know the name or cannot use the value.
///
/// # Errors
/// The first part that cannot be used.
pub(super) fn for_each_part(
    query: Option<&str>,
    mut set: impl FnMut(&str, &str) -> Option<()>,
) -> Result<(), String> {
    let parts = query.unwrap_or_default().split('&');
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = percent_decode_str(value).decode_utf8().ok();
        if value.and_then(|value| set(name, &value)).is_none() {
            return Err(part.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_decoded_and_the_first_bad_one_is_named() {
        let mut parts = Vec::new();
        let query = Some("peer=2001%3adb8::%2f32&&limit=7");
        for_each_part(query, |name, value| {
            parts.push(format!("{name} {value}"));
            Some(())
        })
        .unwrap();
        assert_eq!(parts, ["peer 2001:db8::/32", "limit 7"]);
        let only_a = |name: &str, _: &str| (name == "a").then_some(());
        assert_eq!(for_each_part(None, only_a), Ok(()));
        assert_eq!(for_each_part(Some("a=1&b=2"), only_a), Err("b=2".into()));
        assert_eq!(for_each_part(Some("a=%ff"), only_a), Err("a=%ff".into()));
    }
}
