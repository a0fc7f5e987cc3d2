//! How a folder becomes a site.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::WrongWords;

use crate::coder::Coder;
use crate::fields::{FieldError, Fields};
use crate::login::{RealmFile, RealmText};
use crate::memory_budget::MemoryBudget;
use crate::root::FollowLinks;
use crate::rules::{HeaderRules, Redirect, RuleError};
use crate::site::MediaTypes;
use crate::status::Status;

/// The fields of `--security-headers`. They are the usual protection against pages that embed the
/// site, guess media types, or keep a handle to its windows.
const SECURITY: [(&str, &str); 5] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Content-Security-Policy", "frame-ancestors 'self'"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

/// How a folder becomes a site: fields, media types, redirects, and pages that no file has.
///
/// ```
/// use sandstorm::{Limits, Settings, Site};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("index.html"), "")?;
/// # let folder = folder.path();
/// let mut settings = Settings::default();
/// settings.add_redirect("/old/* /new/:splat 308")?;
/// settings.add_header("/assets/* Cache-Control: public, max-age=31536000, immutable")?;
/// settings.clean_urls = true;
/// let site = Site::load_with(folder, &Limits::default(), &settings, |_progress| {})?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The fields of all responses.
    pub fields: Fields,
    /// Whether `/page` leads to the file `page.html`, unless it leads to something else.
    pub clean_urls: bool,
    /// Whether a folder without an `index.html` gets a page that lists its entries, and an
    /// `index.json` with the same content.
    pub listings: bool,
    /// Whether files with a hash in their name, such as `app.3f9a1b2c.js`, may be cached forever.
    pub immutable: bool,
    /// Whether files and folders are served whose names begin with a dot.
    pub hidden: bool,
    /// Which symbolic links are followed.
    pub follow_links: FollowLinks,
    /// Own media types of extensions.
    pub(crate) media_types: MediaTypes,
    pub(crate) redirects: Vec<Redirect>,
    /// Whether a star in the host of a redirect stands for the host of the request.
    pub(crate) redirects_to_own_host: bool,
    pub(crate) headers: HeaderRules,
    /// Makes coded forms of files. `None`: there are none.
    pub(crate) coder: Option<Arc<Coder>>,
    /// The memory for files. `None`: all files stay in memory.
    pub(crate) memory: Option<MemoryBudget>,
    /// The decoded paths of the pages for errors.
    pub(crate) error_pages: Vec<(Status, Arc<[u8]>)>,
    /// The file with the key of entity tags.
    pub(crate) tag_key: Option<PathBuf>,
    /// The parts that need a name and a password, each with its file of users.
    pub(crate) realms: Vec<RealmFile>,
    /// The texts that browsers may show with the question for a password.
    pub(crate) realm_texts: Vec<RealmText>,
}

impl Settings {
    /// Whether the responses with a file have the same heads with both settings. Rules for fields and the key
    /// of tags do not count.
    pub(crate) fn makes_heads_of(&self, other: &Self) -> bool {
        self.fields == other.fields
            && self.immutable == other.immutable
            && self.media_types == other.media_types
            && self.coder.is_some() == other.coder.is_some()
    }

    /// Whether a file has the same place with both settings, in memory or on the disk.
    pub(crate) fn has_memory_of(&self, other: &Self) -> bool {
        let budget = |settings: &Self| settings.memory.map(MemoryBudget::bytes);
        budget(self) == budget(other)
    }

    /// Adds fields that tell browsers to protect the site against other sites.
    ///
    /// # Errors
    /// [`FieldError::TooLong`] if there is no room for them.
    pub fn add_security_headers(&mut self) -> Result<(), FieldError> {
        for (name, value) in SECURITY {
            if !self.fields.has(name) {
                self.fields.add(name, value)?;
            }
        }
        Ok(())
    }

    /// Sets the media type of files whose names end with a dot and `extension`. The case of letters does
    /// not matter.
    ///
    /// # Errors
    /// [`FieldError`] if the media type cannot be the value of a field.
    pub fn add_media_type(&mut self, extension: &str, media_type: &str) -> Result<(), FieldError> {
        Fields::new().add("Content-Type", media_type)?;
        self.media_types.add(extension, media_type);
        Ok(())
    }

    /// Makes the file at the decoded `path` the page that is sent for an error. The path begins with a
    /// slash. Without this, `404.html` is the page for missing files, also in a folder below.
    pub fn add_error_page(&mut self, status: Status, path: &[u8]) {
        self.error_pages.push((status, path.into()));
    }

    /// Asks for a name and a password at a path and below it, in the form `PATH=FILE`. The file has a
    /// line `NAME:HASH` for each user, with a hash by bcrypt or Argon2, as `htpasswd -B` makes them.
    ///
    /// A [`Sandstorm`](crate::Sandstorm) checks passwords on a thread of its own. An
    /// [`Http`](crate::Http) without one answers requests with credentials with 503.
    ///
    /// # Errors
    /// A message for each wrong part, if the text has another form. The file is read when the site is loaded.
    pub fn add_basic_auth(&mut self, text: &str) -> Result<(), WrongWords<String>> {
        self.realms.push(text.parse()?);
        Ok(())
    }

    /// Makes the entity tags of files with the key in a file. Servers with the same key make the same
    /// tags, and nobody else can compute them. The file is read when the site is loaded, and has 16 to
    /// 64 bytes. Without this, tags are a hash without a key.
    pub fn set_etag_key(&mut self, file: &Path) {
        self.tag_key = Some(file.to_owned());
    }

    /// Adds a redirect in the form `FROM TO [STATUS]`, as in a file `_redirects`. It comes before
    /// those of the folder.
    ///
    /// # Errors
    /// A [`RuleError`] for each wrong word of the rule.
    pub fn add_redirect(&mut self, rule: &str) -> Result<(), WrongWords<RuleError>> {
        self.redirects.push(rule.parse()?);
        Ok(())
    }

    /// Adds a field in the form `PATTERN NAME: VALUE` to the responses of files whose path matches
    /// the pattern. It replaces fields of this name from earlier rules and from the folder, but it adds to
    /// `Link`, `Server-Timing` and `Vary`. `PATTERN ! NAME` removes them, and those of all responses.
    ///
    /// # Errors
    /// A [`RuleError`] for each wrong word of the rule.
    pub fn add_header(&mut self, rule: &str) -> Result<(), WrongWords<RuleError>> {
        self.headers.push(rule.parse()?);
        Ok(())
    }
}
