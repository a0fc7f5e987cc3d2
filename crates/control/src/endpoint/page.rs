//! The status page for a browser.

use std::io;

/// The page. `NONCE` stands for a random word.
const PAGE: &str = include_str!("page.html");
const PLACE: &str = "NONCE";

/// A status page that a browser runs under the strictest policy that fits it.
#[derive(Debug)]
pub(super) struct Page {
    /// The HTML.
    pub(super) html: String,
    /// The value of the header `Content-Security-Policy`.
    pub(super) policy: String,
}

impl Page {
    /// Creates a page. Its policy allows only the script and the style in the page itself, and only
    /// requests to the server that sent the page.
    ///
    /// # Errors
    /// If the system returns no random bytes.
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        let nonce = format!("{:032x}", u128::from_ne_bytes(bytes));
        let own = format!("'nonce-{nonce}'");
        Ok(Self {
            html: PAGE.replace(PLACE, &nonce),
            policy: format!(
                "default-src 'none'; script-src {own}; style-src {own}; connect-src 'self'; \
                 img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = Page::new().unwrap();
        assert!(!page.html.contains(PLACE));
        // The name of a namespace is no address to load from.
        let html = page.html.replace("http://www.w3.org/2000/svg", "");
        for foreign in ["http:", "https:", "src=", "@import", "url(", "//cdn"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
        for unsafe_way in ["innerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!html.contains(unsafe_way), "{unsafe_way}");
        }
    }

    #[test]
    fn script_and_style_are_allowed_by_a_word_that_nobody_can_guess() {
        let [first, second] = [(); 2].map(|()| Page::new().unwrap());
        let (_, rest) = first.policy.split_once("script-src 'nonce-").unwrap();
        let (nonce, _) = rest.split_once('\'').unwrap();
        assert_eq!(nonce.len(), 32);
        for tag in ["<script", "<style"] {
            let whole = format!("{tag} nonce=\"{nonce}\">");
            assert_eq!(first.html.matches(tag).count(), 1);
            assert!(first.html.contains(&whole), "{whole}");
        }
        assert_ne!(first.policy, second.policy);
        assert!(!first.policy.contains("unsafe"));
    }
}
