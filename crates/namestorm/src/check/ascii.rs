//! Finds international names that are not in their ASCII form (RFC 5890). Clients ask for that form.

use super::problems::Problems;
use crate::name::{self, Shown};
use crate::zone::NameRef;

/// What follows from such names, and what to do.
pub(super) const REMEDY: &str =
    "clients ask for that form, which begins with xn--: the command idn2 prints it";

/// Adds an owner with a label of UTF-8 text to `wrong`. The text before a label such as `_http` is the name of
/// a service, which clients ask for as it is (RFC 6763, section 4.1.3).
pub(super) fn check(name: NameRef<'_>, wrong: &mut Problems) {
    let owner = name.owner();
    if owner.is_ascii() {
        return;
    }
    let above = name::labels(owner).skip(1).chain([&b""[..]]);
    let mut hosts = name::labels(owner).zip(above);
    let text = hosts.find_map(|(label, above)| {
        let is_host = !label.is_ascii() && !above.starts_with(b"_");
        str::from_utf8(label).ok().filter(|_| is_host)
    });
    if let (Some(text), Some(rrset)) = (text, name.rrsets().next()) {
        wrong.add(rrset.place(), || {
            format!("{text:?} in {} is not in its ASCII form", Shown(owner))
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::load::load_text;

    #[test]
    fn the_first_international_name_causes_a_warning() {
        let warnings = |text: &str| {
            let start = "@ 60 SOA ns.far.net. h 1 2 3 4 5\n@ 60 NS ns.far.net.\n";
            let loaded = load_text("f", Some("example.org"), &format!("{start}{text}"));
            loaded.unwrap().report.to_string()
        };
        let told = warnings("www.münchen 60 A 192.0.2.1\nbücher 60 A 192.0.2.1\n");
        let expected = "f:4:1: warning: \"bücher\" in b\\195\\188cher.example.org. is not in its ASCII form; \
                        another one is wrong too; clients ask for that form, which begins with xn--: ";
        assert!(told.starts_with(expected), "{told}");
        let told = warnings("*.münchen 60 A 192.0.2.1\n");
        assert!(
            told.contains("\"münchen\" in *.m\\195\\188nchen.example.org. is"),
            "{told}"
        );
        // A service may have any name, and bytes that are no text are meant.
        let right = "xn--mnchen-3ya 60 A 192.0.2.1\nBüro._ipp._tcp 60 SRV 0 0 631 p\n\\255 60 A 192.0.2.1\n";
        assert_eq!(warnings(right), "");
    }
}
