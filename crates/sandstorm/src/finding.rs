//! What is probably a mistake in the rules and passwords of a site. It shows when all files are known.

use control::report;

/// What is probably a mistake.
#[derive(Debug)]
pub(crate) enum Finding {
    /// A rule leads to a path that no page has, so it does not hold.
    NoTarget {
        /// The decoded path.
        path: Box<[u8]>,
        /// The start of the rule's text.
        rule: String,
    },
    /// Something that is served nevertheless.
    Warning(Warning),
}

/// Something of which the operator is warned. The site is served as the settings say.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A rule sends a page to clients without the password that the page itself needs.
    #[error(
        "{rule:?} sends {page} to everybody, but {realm} needs a password; name another page, or leave \
         the rule out"
    )]
    OpenPage {
        /// The start of the rule's text.
        rule: String,
        /// The percent-encoded path of the page.
        page: String,
        /// The path that needs a password.
        realm: String,
    },
    /// A rule or an option sends a page with the status of an error, but there is no such page, or it cannot
    /// be sent.
    #[error(
        "{rule:?} leads to {page}, but {}, so clients get a page of the server{}; add or correct the file, \
         or name another one",
        if *is_there { "this file is longer than 16 MiB or cannot be read" } else { "there is no such file" },
        if *replaces_files { ", and no 404.html is used either" } else { "" }
    )]
    NoErrorPage {
        /// The start of the rule's text.
        rule: String,
        /// The percent-encoded path of the page.
        page: String,
        /// Whether there is such a file.
        is_there: bool,
        /// Whether the page would be in the place of all files `404.html`.
        replaces_files: bool,
    },
    /// A redirect leads back to its own path, or to longer and longer ones.
    #[error("{rule:?} leads in a circle, or on and on, so it does not hold; write another target")]
    Endless {
        /// The start of the rule's text.
        rule: String,
    },
    /// The heads and tables of all files do not fit into the budget.
    #[error(
        "the heads, tables and short files take {} of memory, which is more than the budget of {}; raise \
         --memory, or serve fewer files",
        report::bytes(*memory), report::bytes(*budget)
    )]
    OverBudget {
        /// What has to stay in memory, in bytes.
        memory: u64,
        /// The budget in bytes.
        budget: u64,
    },
    /// Many folders have a page about missing files.
    #[error(
        "more than {} folders have a 404.html, and only the outer ones are used; remove some, or name one \
         with --error-page",
        report::count(*limit as u64)
    )]
    ErrorPages {
        /// Maximum number of these folders.
        limit: usize,
    },
    /// The page of a folder about missing files is long.
    #[error(
        "{page} has more than {} bytes, so it is not sent for missing files; shorten it",
        report::count(*limit)
    )]
    LongErrorPage {
        /// The percent-encoded path of the page.
        page: String,
        /// Maximum length in bytes.
        limit: u64,
    },
    /// A path needs a password, but nothing is there.
    #[error("--basic-auth names {realm}, but the folder has nothing there; correct the path")]
    NothingThere {
        /// The path that needs a password.
        realm: String,
    },
}

/// Receives what is probably a mistake.
pub(crate) type Report<'r> = dyn FnMut(Finding) + 'r;

/// The finding that a rule leads to a path that no page has.
pub(crate) fn no_target(path: &[u8], rule: &str) -> Finding {
    Finding::NoTarget {
        path: path.into(),
        rule: rule.to_owned(),
    }
}
