//! The options that say how a folder becomes a site.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use control::WrongWords;
use control::units::by_word;
use percent_encoding::{percent_decode_str, percent_encode};

use crate::coder::{Coder, Effort};
use crate::fields::{FieldError, Fields};
use crate::load::{LoadError, check_secret_files};
use crate::loading::{GivenOption, NotLoaded};
use crate::login::{RealmFile, RealmText};
use crate::percent::PATH;
use crate::root::FollowLinks;
use crate::rules::{HeaderRule, Redirect};
use crate::settings::Settings;
use crate::site::errors_with_page;
use crate::status::Status;

/// Heading of the options for the site, and so its section in a configuration file.
pub(crate) const SITE: &str = "Web site";

/// The options that say how a folder becomes a site, for use with `#[command(flatten)]`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = SITE)]
pub(crate) struct RuleArgs {
    /// Redirect or rewrite a path, as a line of a file `_redirects` does: `FROM TO [STATUS]`. Repeat it
    /// for each. These rules come before those of the folder.
    ///
    /// `/old/* /new/:splat` redirects all paths below `/old`, and `/* /index.html 200` serves a page
    /// for all paths that have no file. `!` behind the status lets a rule also hold for paths that
    /// have a file.
    #[arg(long = "redirect", value_name = "RULE", value_parser = by_word::<Redirect, _>)]
    redirects: Vec<Redirect>,

    /// Add a field to the responses of files whose path matches: `PATTERN NAME: VALUE`. Repeat it for
    /// each. These rules come after those of a file `_headers` in the folder, so they replace them.
    ///
    /// `/*.html Cache-Control: no-cache` is about all HTML files, and `/embed/* ! X-Frame-Options` removes
    /// a field. `Link`, `Server-Timing` and `Vary` get the values of all rules.
    #[arg(long = "header", value_name = "RULE", value_parser = by_word::<HeaderRule, _>)]
    headers: Vec<HeaderRule>,

    /// Media type of the files with an extension, such as `wasm=application/wasm`. Repeat it for each.
    #[arg(long = "media-type", value_name = "EXT=TYPE", value_parser = media_type)]
    media_types: Vec<(String, String)>,

    /// Page of the site that is sent for an error, such as `404=/errors/missing.html`. Repeat it for
    /// each. Without this option, `404.html` is the page for missing files, also in a folder below.
    #[arg(long = "error-page", value_name = "STATUS=PATH", value_parser = error_page)]
    error_pages: Vec<(Status, Arc<[u8]>)>,

    /// Ask for a name and a password at a path and everything below it: `PATH=FILE`. Repeat it for each.
    /// The FILE has a line for each user, as `htpasswd -nB NAME` prints it. Hashes by bcrypt and Argon2
    /// are possible. Passwords travel in clear text, so put HTTPS in front.
    #[arg(long, value_name = "PATH=FILE")]
    basic_auth: Vec<RealmFile>,

    /// File with a key for entity tags, of 16 to 64 bytes, such as `openssl rand -hex 32` prints. Servers
    /// with the same key make the same tags, and nobody else can compute them. Without this option, tags
    /// are a hash without a key.
    #[arg(long, value_name = "FILE")]
    etag_key: Option<PathBuf>,

    /// Text that browsers may show with the question for a password at a path of `--basic-auth`:
    /// `PATH=TEXT`. Repeat it for each. Without this option, the text is the path.
    #[arg(long, value_name = "PATH=TEXT")]
    basic_auth_realm: Vec<RealmText>,

    /// Compressed forms of text files, which the server makes after its start: gzip, Brotli and zstd. A
    /// file `page.html.gz`, `.br` or `.zst` beside `page.html` is used in any case. Programs with an
    /// application make no compressed forms.
    #[arg(long, value_enum, default_value_t)]
    compress: Compress,

    /// Folder in which compressed forms are kept, so that the next start need not make them again. The
    /// server's user must be able to write there.
    #[arg(long, value_name = "DIR")]
    compress_cache: Option<PathBuf>,

    /// Let `/page` lead to the file `page.html`, if nothing else has this path.
    #[arg(long)]
    clean_urls: bool,

    /// Make a page that lists the entries of each folder without an index.html, and an index.json
    /// with the same content.
    #[arg(long)]
    listings: bool,

    /// Let browsers keep files with a hash in their name forever, such as `app.3f9a1b2c.js`.
    #[arg(long)]
    immutable: bool,

    /// Add fields to all responses that tell browsers to protect the site against other sites. A rule
    /// `! NAME` removes one of them.
    #[arg(long)]
    security_headers: bool,

    /// Which symbolic links are followed. With `all`, a link can make any file of this host public that
    /// the server can read at its start.
    #[arg(long, value_enum, default_value_t, value_name = "inside|all")]
    follow_links: FollowLinks,

    /// Serve files and folders whose names begin with a dot too. Such files are often private.
    #[arg(long)]
    hidden_files: bool,
}

/// Values of `--compress`.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Compress {
    /// Make none.
    Off,
    /// Make them quickly: tens of megabytes per second.
    #[default]
    Fast,
    /// Make them as short as possible: about half a megabyte per second.
    Best,
}

impl RuleArgs {
    /// Returns the settings that these options make. All responses contain `fields`. `coder` makes
    /// compressed forms.
    pub(crate) fn settings(
        &self,
        fields: Fields,
        coder: Option<Coder>,
    ) -> Result<Settings, FieldError> {
        let mut settings = Settings {
            fields,
            clean_urls: self.clean_urls,
            listings: self.listings,
            immutable: self.immutable,
            hidden: self.hidden_files,
            follow_links: self.follow_links,
            redirects: self.redirects.clone(),
            headers: self.headers.iter().cloned().collect(),
            error_pages: self.error_pages.clone(),
            realms: self.basic_auth.clone(),
            realm_texts: self.basic_auth_realm.clone(),
            tag_key: self.etag_key.clone(),
            ..Settings::default()
        };
        for (extension, media_type) in &self.media_types {
            settings.add_media_type(extension, media_type)?;
        }
        if self.security_headers {
            settings.add_security_headers()?;
        }
        settings.coder = coder.map(Arc::new);
        Ok(settings)
    }

    /// The folder in which compressed forms are kept, if they are.
    pub(crate) fn store(&self) -> Option<&Path> {
        let store = self.compress_cache.as_deref();
        store.filter(|_| self.compress != Compress::Off)
    }

    /// Which symbolic links are followed.
    pub(crate) fn follow_links(&self) -> FollowLinks {
        self.follow_links
    }

    /// Returns the option that an error is about, and the index of its value. Only options with paths of files
    /// and with texts for passwords are known.
    pub(crate) fn option_of(&self, error: &NotLoaded) -> Option<(&'static str, usize)> {
        match error {
            NotLoaded::Contradiction { options } => Some((options[1].id, options[1].index)),
            NotLoaded::Cache { .. } => Some(("compress_cache", 0)),
            NotLoaded::Load(LoadError::TagKey { .. }) => Some(("etag_key", 0)),
            NotLoaded::Load(LoadError::Users { path, .. }) => {
                let mut realms = self.basic_auth.iter();
                let index = realms.position(|realm| realm.file == *path)?;
                Some(("basic_auth", index))
            }
            NotLoaded::Load(LoadError::NoRealm { path }) => {
                let mut texts = self.basic_auth_realm.iter();
                let index = texts.position(|text| text.path.to_string() == *path)?;
                Some(("basic_auth_realm", index))
            }
            _ => None,
        }
    }

    /// Returns each option that may occur once per path, status or extension, with this key.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = (String, GivenOption)> {
        let realms = self.basic_auth.iter().map(|realm| {
            let file = realm.file.display().to_string();
            (realm.path.to_string(), file)
        });
        let texts = self.basic_auth_realm.iter();
        let texts = texts.map(|realm| (realm.path.to_string(), realm.text.clone()));
        let pages = self.error_pages.iter().map(|(status, path)| {
            let path = percent_encode(path, PATH).to_string();
            (status.digits().to_owned(), path)
        });
        let types = self.media_types.iter().map(|(extension, media_type)| {
            let extension = extension.to_ascii_lowercase();
            (extension, media_type.clone())
        });
        let realms = each("basic-auth", "basic_auth", realms);
        let texts = each("basic-auth-realm", "basic_auth_realm", texts);
        let pages = each("error-page", "error_pages", pages);
        let types = each("media-type", "media_types", types);
        realms.chain(texts).chain(pages).chain(types)
    }

    /// Returns what is wrong with the files with users and with a key, and with the texts for passwords.
    pub(crate) fn check_files(&self) -> Vec<NotLoaded> {
        let (realms, texts) = (&self.basic_auth, &self.basic_auth_realm);
        let errors = check_secret_files(self.etag_key.as_deref(), realms, texts);
        errors.into_iter().map(NotLoaded::Load).collect()
    }

    /// Returns the files with users and with a key.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = PathBuf> {
        let users = self.basic_auth.iter().map(|realm| realm.file.clone());
        users.chain(self.etag_key.clone())
    }

    /// Leaves out the option that an error is about. Returns false if it is about something else, or left out
    /// already.
    pub(crate) fn leave_out(&mut self, error: &NotLoaded) -> bool {
        match error {
            NotLoaded::Cache { .. } => self.compress_cache = None,
            NotLoaded::Load(LoadError::TagKey { .. }) => self.etag_key = None,
            NotLoaded::Load(LoadError::Users { path, .. }) => {
                let (wrong, rest) = std::mem::take(&mut self.basic_auth)
                    .into_iter()
                    .partition::<Vec<_>, _>(|realm| realm.file == *path);
                self.basic_auth = rest;
                let of_wrong = |text: &RealmText| wrong.iter().any(|realm| realm.path == text.path);
                self.basic_auth_realm.retain(|text| !of_wrong(text));
                return !wrong.is_empty();
            }
            NotLoaded::Load(LoadError::NoRealm { path }) => {
                let before = self.basic_auth_realm.len();
                self.basic_auth_realm
                    .retain(|text| text.path.to_string() != *path);
                return self.basic_auth_realm.len() < before;
            }
            _ => return false,
        }
        true
    }

    /// Leaves out the texts for passwords.
    pub(crate) fn leave_out_realm_texts(&mut self) {
        self.basic_auth_realm.clear();
    }

    /// Returns what makes compressed forms. `None`: the options want none. A site's responses have
    /// about `max_bytes` together with them.
    pub(crate) fn coder(&self, max_bytes: u64) -> Result<Option<Coder>, NotLoaded> {
        let effort = match self.compress {
            Compress::Off => return Ok(None),
            Compress::Fast => Effort::Fast,
            Compress::Best => Effort::Best,
        };
        let coder = Coder::open(effort, self.compress_cache.clone(), max_bytes);
        coder.map(Some).map_err(|source| NotLoaded::Cache {
            folder: self.compress_cache.clone().unwrap_or_default(),
            source,
        })
    }
}

/// Returns each value of an option with its key. The values are `KEY=REST`.
fn each(
    name: &'static str,
    id: &'static str,
    values: impl Iterator<Item = (String, String)>,
) -> impl Iterator<Item = (String, GivenOption)> {
    values.enumerate().map(move |(index, (key, rest))| {
        let option = GivenOption {
            name,
            value: format!("{key}={rest}"),
            id,
            index,
        };
        (format!("{name} {key}"), option)
    })
}

/// Parses the value of `--media-type`.
fn media_type(text: &str) -> Result<(String, String), WrongWords<String>> {
    let why = |why: &str| format!("{why}; write it as in wasm=application/wasm");
    let Some((extension, media_type)) = text.split_once('=') else {
        return Err(WrongWords::whole(why("there is no equals sign")));
    };
    let mut wrong = WrongWords::default();
    let extension = extension.strip_prefix('.').unwrap_or(extension);
    if extension.is_empty() || extension.contains(['.', '/']) {
        let form = "the extension is the part of a file's name behind its last dot";
        wrong.add(text, extension, why(form));
    }
    // The value is checked as it would be in a response.
    let is_field = Fields::new().add("Content-Type", media_type).is_ok();
    let is_whole = |(main, rest): (&str, &str)| !main.is_empty() && !rest.is_empty();
    if !is_field || !media_type.split_once('/').is_some_and(is_whole) {
        let form = "the media type has a type and a subtype with a slash between";
        wrong.add(text, media_type, why(form));
    }
    wrong.finish(Some((extension.to_owned(), media_type.to_owned())))
}

/// Parses the value of `--error-page`.
fn error_page(text: &str) -> Result<(Status, Arc<[u8]>), WrongWords<String>> {
    let why = |why: &str| format!("{why}; write it as in 404=/errors/missing.html");
    let Some((code, path)) = text.split_once('=') else {
        return Err(WrongWords::whole(why("there is no equals sign")));
    };
    let mut wrong = WrongWords::default();
    let status = errors_with_page().find(|status| status.digits() == code);
    if status.is_none() {
        let mut codes: Vec<_> = errors_with_page().map(Status::digits).collect();
        codes.sort_unstable();
        let codes = codes.join(", ");
        let possible = format!("pages are possible for the errors {codes}");
        wrong.add(text, code, why(&possible));
    }
    if !path.starts_with('/') {
        wrong.add(text, path, why("the path of the page begins with a slash"));
    }
    let path = percent_decode_str(path).collect::<Vec<_>>().into();
    wrong.finish(status.map(|status| (status, path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_has_an_extension_a_type_and_a_subtype() {
        let parsed = media_type(".wasm=application/wasm").unwrap();
        assert_eq!(parsed, ("wasm".to_owned(), "application/wasm".to_owned()));
        for wrong in [
            "", "wasm", "=a/b", "a.b=c/d", "a=b", "a=/b", "a=b/", "a=b/c\n",
        ] {
            let error = media_type(wrong).unwrap_err().to_string();
            assert!(error.contains("write it as in"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_error_page_has_the_status_of_an_error_and_a_path() {
        let (status, path) = error_page("404=/a%20b.html").unwrap();
        assert_eq!((status, &*path), (Status::NotFound, &b"/a b.html"[..]));
        for wrong in [
            "",
            "404",
            "404=a.html",
            "200=/a",
            "x=/a",
            "999=/a",
            "304=/a",
        ] {
            let error = error_page(wrong).unwrap_err().to_string();
            assert!(error.contains("write it as in"), "{wrong}: {error}");
        }
    }
}
