//! A part of a site for which a client needs a name and a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use control::WrongWords;
use percent_encoding::percent_encode;

use super::users::Users;
use crate::coding::Coding;
use crate::percent::{self, PATH};
use crate::site::ReplyId;

/// The end of the name of a file that a clean URL leads to.
const PAGE_SUFFIX: &[u8] = b".html";

/// Maximum length of the text of a [`RealmText`] in bytes.
const MAX_TEXT_LEN: usize = 200;

/// A path, and the file with the users who may see it and everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RealmFile {
    pub(crate) path: RealmPath,
    pub(crate) file: PathBuf,
}

/// A path that needs a password, and the text that browsers may show with the question for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RealmText {
    pub(crate) path: RealmPath,
    pub(crate) text: String,
}

/// A decoded path without a slash at its end. It is empty for a whole site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RealmPath(Box<[u8]>);

impl FromStr for RealmFile {
    type Err = WrongWords<String>;

    /// Parses `PATH=FILE`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let why = |why: &str| format!("{why}; write it as in /admin=/etc/admin.users");
        let Some((path, file)) = text.split_once('=') else {
            return Err(WrongWords::whole(why("there is no equals sign")));
        };
        let mut wrong = WrongWords::default();
        let read = if path.contains(['*', '?', '#']) {
            Err("the path has no pattern and no query, and stands for all paths below it")
        } else {
            RealmPath::read(path)
        };
        let path = wrong.take(text, path, read.map_err(why));
        if file.is_empty() {
            wrong.add(text, file, why("there is no file behind the equals sign"));
        }
        let file = file.into();
        wrong.finish(path.map(|path| Self { path, file }))
    }
}

impl FromStr for RealmText {
    type Err = WrongWords<String>;

    /// Parses `PATH=TEXT`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let why = |why: &str| format!("{why}; write it as in /admin=For our staff");
        let Some((path, shown)) = text.split_once('=') else {
            return Err(WrongWords::whole(why("there is no equals sign")));
        };
        let mut wrong = WrongWords::default();
        let path = wrong.take(text, path, RealmPath::read(path).map_err(why));
        let is_bad = |c: char| c.is_control() || c == '"' || c == '\\';
        if shown.is_empty() || shown.len() > MAX_TEXT_LEN || shown.contains(is_bad) {
            let form = "the text has 1 to 200 bytes, without quotation marks and backslashes";
            wrong.add(text, shown, why(form));
        }
        let text = shown.to_owned();
        wrong.finish(path.map(|path| Self { path, text }))
    }
}

impl RealmPath {
    /// Reads a path of the command line. The error is for the operator.
    fn read(path: &str) -> Result<Self, &'static str> {
        if !path.starts_with('/') {
            return Err("the path begins with a slash");
        }
        let path = percent::decode(path.trim_end_matches('/').as_bytes());
        let path = path.map(|byte| byte.map(|(byte, _)| byte));
        let path = path.collect::<Result<Vec<_>, _>>();
        let path = path.map_err(|_| "a percent sign is not followed by two hexadecimal digits")?;
        Ok(Self(path.into()))
    }

    /// Returns true if the realm has this decoded path: its own path, or one below it. Other forms of its
    /// file belong to it too, such as `/page.html` and `/page.html.gz` for `/page`.
    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        let has = |path: &[u8]| {
            path.strip_prefix(&*self.0).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with(b"/") || rest == PAGE_SUFFIX
            })
        };
        has(path) || Coding::of_path(path).is_some_and(|(plain, _)| has(plain))
    }

    /// Returns true if this decoded path is the realm's own one, with or without a slash at its end.
    pub(crate) fn is_at(&self, path: &[u8]) -> bool {
        path.strip_suffix(b"/").unwrap_or(path) == &*self.0
    }

    /// Returns the path of the page that this may be, and the other paths that lead to it. These are its folder,
    /// and its clean URL if the site has such. Lists may replace a missing index, so the name of the one in JSON
    /// leads to it too.
    pub(crate) fn page_and_names(
        &self,
        has_clean_urls: bool,
        list: Option<&[u8]>,
    ) -> (Vec<u8>, Vec<Vec<u8>>) {
        let stem = self.0.strip_suffix(PAGE_SUFFIX).unwrap_or(&self.0);
        let folder = stem.strip_suffix(b"/index");
        let clean = Some(stem).filter(|stem| has_clean_urls && !stem.ends_with(b"/"));
        let names = folder.into_iter().chain(clean);
        let names = names.flat_map(|name| [name.to_vec(), [name, b"/"].concat()]);
        let list = folder.zip(list);
        let list = list.map(|(folder, list)| [folder, b"/", list].concat());
        let page = [stem, PAGE_SUFFIX].concat();
        let names = names.filter(|name| !name.is_empty()).chain(list);
        (page, names.collect())
    }

    /// Returns the index of the one among `paths` that has a decoded path. Of several, it is the longest
    /// one.
    pub(crate) fn index_of<'p>(paths: impl Iterator<Item = &'p Self>, path: &[u8]) -> Option<u16> {
        let having = paths.zip(0..).filter(|(one, _)| one.contains(path));
        let longest = having.max_by_key(|(one, _)| one.0.len());
        longest.map(|(_, index)| index)
    }
}

impl fmt::Display for RealmPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            [] => f.write_str("/"),
            path => percent_encode(path, PATH).fmt(f),
        }
    }
}

/// A part of a site, and the users who may see it.
#[derive(Clone, Debug)]
pub(crate) struct Realm {
    path: RealmPath,
    users: Arc<Users>,
    /// The reply with status 401 for GET. The next reply is the one for HEAD.
    pub(crate) first: ReplyId,
}

impl Realm {
    pub(crate) fn new(path: RealmPath, users: Arc<Users>, first: ReplyId) -> Self {
        Self { path, users, first }
    }

    /// Returns the value of `WWW-Authenticate` (RFC 7617, section 2) for a path. Without a text, it has the
    /// path.
    pub(crate) fn challenge(path: &RealmPath, texts: &[RealmText]) -> String {
        let text = texts.iter().find(|one| one.path == *path);
        let text = text.map_or_else(|| path.to_string(), |one| one.text.clone());
        format!("Basic realm=\"{text}\", charset=\"UTF-8\"")
    }

    /// Returns the path, for the operator.
    pub(crate) fn describe(&self) -> String {
        self.path.to_string()
    }

    /// Whether this is the part at a path.
    pub(crate) fn is_at(&self, path: &RealmPath) -> bool {
        self.path == *path
    }

    /// The users who may see the part.
    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// Returns the index of the one among `realms` that has a decoded path. Of several, it is the smallest
    /// part.
    pub(crate) fn index_of(realms: &[Self], path: &[u8]) -> Option<u16> {
        RealmPath::index_of(realms.iter().map(|realm| &realm.path), path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realm_has_its_path_and_what_is_below_it() {
        let contains = |realm: &str, path: &str| {
            let realm: RealmFile = format!("{realm}=f").parse().unwrap();
            realm.path.contains(path.as_bytes())
        };
        for path in [
            "/a",
            "/a/",
            "/a/b",
            "/a.html",
            "/a.html.gz",
            "/a.br",
            "/a/b.zst",
        ] {
            assert!(
                contains("/a", path) && contains("/a/", path) && contains("/", path),
                "{path}"
            );
        }
        for path in [
            "/", "/ab", "/b/a", "/A", "/a.htm", "/ab.html", "/a.html/", "/a.txt",
        ] {
            assert!(!contains("/a", path) && contains("/", path), "{path}");
        }
        assert!(contains("/%c3%bc", "/\u{fc}/x"));
        assert!(contains("/a.html", "/a.html.gz"));
    }

    #[test]
    fn the_smallest_part_counts_and_the_challenge_names_its_path() {
        let users = Arc::new(
            Users::read(b"a:$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au").unwrap(),
        );
        let realms: Vec<Realm> = ["/", "/a/b\"", "/a"]
            .iter()
            .zip(0..)
            .map(|(path, n)| {
                let file: RealmFile = format!("{path}=f").parse().unwrap();
                Realm::new(file.path, Arc::clone(&users), ReplyId(n))
            })
            .collect();
        let of = |path: &str| Realm::index_of(&realms, path.as_bytes());
        assert_eq!(of("/x"), Some(0));
        assert_eq!(of("/a/x"), Some(2));
        assert_eq!(of("/a/b\"/x"), Some(1));
        assert_eq!(Realm::index_of(&realms[1..], b"/x"), None);
        let challenge = |at: usize| Realm::challenge(&realms[at].path, &[]);
        assert_eq!(challenge(0), "Basic realm=\"/\", charset=\"UTF-8\"");
        assert_eq!(challenge(1), "Basic realm=\"/a/b%22\", charset=\"UTF-8\"");
    }

    #[test]
    fn a_path_and_a_file_are_needed() {
        let parse = |text: &str| text.parse::<RealmFile>();
        assert_eq!(parse("/a=b=c").unwrap().file, PathBuf::from("b=c"));
        for wrong in [
            "", "/a", "a=b", "/a=", "/a/*=b", "=b", "/a?b=c", "/%zz=b", "/a%2=b",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains("write it as in"), "{wrong}: {error}");
        }
        let both = parse("a=").unwrap_err();
        let places: Vec<_> = both.iter().map(|(at, _)| at).collect();
        assert_eq!(places, [0, 2]);
        let error = "/%zz=b".parse::<RealmText>().unwrap_err().to_string();
        assert!(error.contains("two hexadecimal digits"), "{error}");
    }
}
