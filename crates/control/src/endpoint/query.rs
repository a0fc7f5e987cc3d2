//! Queries of URLs.

use percent_encoding::percent_decode_str;

/// Why a part of a query cannot be used: `None` if there is no such part, and else the rule for its
/// value.
pub(super) type Refusal = Option<String>;

/// Passes the decoded name and value of each part of a query to `set`.
///
/// # Errors
/// The first part that cannot be used, and why. `known` lists the parts that there are.
pub(super) fn for_each_part(
    query: Option<&str>,
    known: &str,
    mut set: impl FnMut(&str, &str) -> Result<(), Refusal>,
) -> Result<(), String> {
    let parts = query.unwrap_or_default().split('&');
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| format!("{part}: the value is not UTF-8\n"))?;
        set(name, &value).map_err(|refusal| match refusal {
            None => format!("{part}: there is no such part of the query; there are {known}\n"),
            Some(rule) => format!("{part}: {rule}\n"),
        })?;
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
        for_each_part(query, "all", |name, value| {
            parts.push(format!("{name} {value}"));
            Ok(())
        })
        .unwrap();
        assert_eq!(parts, ["peer 2001:db8::/32", "limit 7"]);
        let only_1 = |name: &str, value: &str| match (name, value) {
            ("a", "1") => Ok(()),
            ("a", _) => Err(Some("give 1".to_owned())),
            _ => Err(None),
        };
        let refusal = |query| for_each_part(query, "a", only_1).err();
        assert_eq!(refusal(None), None);
        for (query, why) in [
            (
                "a=1&b=2",
                "b=2: there is no such part of the query; there are a\n",
            ),
            ("a=2&b=2", "a=2: give 1\n"),
            ("a=%ff", "a=%ff: the value is not UTF-8\n"),
        ] {
            assert_eq!(refusal(Some(query)).as_deref(), Some(why));
        }
    }
}
