//! A file with users and hashes of their passwords, in the format of `htpasswd`.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::Path;

use argon2::password_hash::PasswordVerifier as _;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params};
use control::{Mistakes, open_ordinary};

/// Maximum length of a file in bytes.
const MAX_LEN: u64 = 1 << 20;
/// Maximum cost of a bcrypt hash. Each step doubles the time. With this cost, a check takes more than a
/// second.
const MAX_BCRYPT_COST: u32 = 15;
/// Maximum memory of an Argon2 hash in KiB, and maximum passes over it.
const MAX_ARGON2_KIB: u32 = 256 << 10;
const MAX_ARGON2_PASSES: u32 = 16;

/// Memory of an Argon2 hash in KiB that one pass fills in about the time of a round of bcrypt.
const ARGON2_KIB_OF_ROUND: u64 = 64;

/// Users and hashes of their passwords.
#[derive(Debug)]
pub(crate) struct Users {
    hashes: HashMap<Box<[u8]>, Hash>,
    /// The hash among these whose check takes longest. If there are several, it is any one of them.
    slowest: Hash,
}

impl PartialEq for Users {
    /// Compares the names and the hashes. Among equally slow hashes, the chosen one does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.hashes == other.hashes
    }
}

impl Eq for Users {}

/// A hash of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hash {
    Argon2(Box<str>),
    Bcrypt(Box<str>),
}

/// Why a file with users cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    #[error("cannot be read: {0}; name a file that the server's user can read")]
    Unreadable(#[from] io::Error),
    #[error("has more than {MAX_LEN} bytes; shorten it")]
    TooLong,
    #[error("names no user; add lines such as those of htpasswd -nB NAME")]
    Empty,
    #[error("has {0}")]
    Lines(Mistakes),
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineFault {
    #[error("there is no colon; write NAME:HASH, as htpasswd -nB NAME does")]
    NoColon,
    #[error("there is no name before the colon; write NAME:HASH")]
    NoName,
    #[error("the user has a line already; remove one of them")]
    Twice,
    #[error(
        "the hash is neither bcrypt ($2y$) nor Argon2 ($argon2id$); make one with htpasswd -nB NAME"
    )]
    OtherHash,
    #[error("the hash is damaged; make a new one with htpasswd -nB NAME")]
    Damaged,
    #[error(
        "a check of the hash takes too long; use a bcrypt cost of at most {MAX_BCRYPT_COST}, or Argon2 \
         with at most {} MiB and {MAX_ARGON2_PASSES} passes",
        MAX_ARGON2_KIB >> 10
    )]
    TooCostly,
}

impl Users {
    /// Reads a file.
    pub(crate) fn load(path: &Path) -> Result<Self, UsersError> {
        let mut text = Vec::new();
        let file = open_ordinary(path)?;
        file.take(MAX_LEN + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_LEN {
            return Err(UsersError::TooLong);
        }
        Self::read(&text)
    }

    /// Reads lines of the form `NAME:HASH`. Empty lines and those that begin with `#` are comments.
    pub(crate) fn read(text: &[u8]) -> Result<Self, UsersError> {
        let (mut users, mut wrong) = (HashMap::new(), Mistakes::default());
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let indent = line.len() - line.trim_ascii_start().len();
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let (name, hash) = parts(line);
            let column = indent + 1;
            match user(name, hash) {
                Ok(hash) => {
                    if users.insert(Box::from(name), hash).is_some() {
                        wrong.add((number, column), LineFault::Twice);
                    }
                }
                Err(why @ (LineFault::NoColon | LineFault::NoName)) => {
                    wrong.add((number, column), why);
                }
                Err(why) => {
                    let name = String::from_utf8_lossy(name).chars().count();
                    wrong.add((number, column + name + 1), why);
                }
            }
        }
        if !wrong.is_empty() {
            return Err(UsersError::Lines(wrong));
        }
        let slowest = users.values().max_by_key(|hash| hash.cost());
        let slowest = slowest.ok_or(UsersError::Empty)?.clone();
        Ok(Self {
            hashes: users,
            slowest,
        })
    }

    /// Number of users.
    pub(crate) fn len(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// Returns true if there is a user with this name and password.
    pub(super) fn accept(&self, name: &[u8], password: &[u8]) -> bool {
        self.hash_for(name).is_of(password) && self.hashes.contains_key(name)
    }

    /// Returns the hash to check for a name. For a name that is not there, it is the slowest one, so no
    /// user has a check that takes longer.
    fn hash_for(&self, name: &[u8]) -> &Hash {
        self.hashes.get(name).unwrap_or(&self.slowest)
    }
}

/// Returns the name in a line, and what follows a colon.
fn parts(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b':', line) {
        Some(at) => (&line[..at], Some(&line[at + 1..])),
        None => (line, None),
    }
}

/// Reads the parts of a line.
fn user(name: &[u8], hash: Option<&[u8]>) -> Result<Hash, LineFault> {
    let hash = hash.ok_or(LineFault::NoColon)?;
    if name.is_empty() {
        return Err(LineFault::NoName);
    }
    Hash::read(std::str::from_utf8(hash).map_err(|_| LineFault::Damaged)?)
}

impl Hash {
    fn read(text: &str) -> Result<Self, LineFault> {
        if text.starts_with("$argon2") {
            let hash = PasswordHash::new(text).map_err(|_| LineFault::Damaged)?;
            let params = Params::try_from(&hash).map_err(|_| LineFault::Damaged)?;
            let (memory, passes) = (params.m_cost(), params.t_cost());
            if memory > MAX_ARGON2_KIB || passes > MAX_ARGON2_PASSES {
                return Err(LineFault::TooCostly);
            }
            return Ok(Self::Argon2(text.into()));
        }
        if !text.starts_with("$2") {
            return Err(LineFault::OtherHash);
        }
        let parts: bcrypt::HashParts = text.parse().map_err(|_| LineFault::Damaged)?;
        match parts.get_cost() {
            4..=MAX_BCRYPT_COST => Ok(Self::Bcrypt(text.into())),
            0..4 => Err(LineFault::Damaged),
            _ => Err(LineFault::TooCostly),
        }
    }

    /// Returns about how long a check takes, in KiB that Argon2 fills.
    fn cost(&self) -> u64 {
        match self {
            Self::Argon2(hash) => {
                let hash = PasswordHash::new(hash).ok();
                let params = hash.and_then(|hash| Params::try_from(&hash).ok());
                params.map_or(0, |one| u64::from(one.m_cost()) * u64::from(one.t_cost()))
            }
            Self::Bcrypt(hash) => {
                let parts = hash.parse::<bcrypt::HashParts>();
                parts.map_or(0, |parts| ARGON2_KIB_OF_ROUND << parts.get_cost())
            }
        }
    }

    /// Returns true if this is the hash of `password`.
    fn is_of(&self, password: &[u8]) -> bool {
        match self {
            Self::Argon2(hash) => PasswordHash::new(hash).is_ok_and(|hash| {
                let verified = Argon2::default().verify_password(password, &hash);
                verified.is_ok()
            }),
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sesame`, hashed by htpasswd of Apache 2.4 and by the command argon2 of Debian.
    const USERS: &str = "\
# Comments and empty lines do not matter.

ali:$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au
\u{fc}ser:$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$/R9hXoGbAiwKP+ntM3ojEFnB6i6+iZ89I2MLejgbnBI
";
    fn fault(text: &str) -> LineFault {
        let (name, hash) = parts(text.trim_end().as_bytes());
        user(name, hash).unwrap_err()
    }

    #[test]
    fn a_fifo_is_refused_at_once() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("users");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let users = Users::load(&fifo).map(drop).unwrap_err().to_string();
            let key = crate::tag_key::TagKey::load(&fifo);
            tell.send([users, key.map(drop).unwrap_err().to_string()])
        });
        let errors = told.recv_timeout(std::time::Duration::from_secs(5));
        for error in errors.unwrap() {
            assert!(error.starts_with("cannot be read: it is a FIFO"), "{error}");
        }
    }

    #[test]
    fn names_and_passwords_are_compared_with_the_file() {
        let users = Users::read(USERS.as_bytes()).unwrap();
        let accept =
            |name: &str, password: &str| users.accept(name.as_bytes(), password.as_bytes());
        for name in ["ali", "\u{fc}ser"] {
            assert!(accept(name, "sesame"));
            assert!(!accept(name, "Sesame") && !accept(name, "") && !accept(name, "sesame "));
        }
        assert!(!accept("", "sesame") && !accept("Ali", "sesame") && !accept("nobody", "sesame"));
    }

    #[test]
    fn a_name_that_is_not_there_takes_as_long_as_the_slowest_hash() {
        let lines: Vec<_> = USERS.lines().skip(2).collect();
        let [bcrypt, argon2] = lines[..] else {
            panic!("{lines:?}");
        };
        for (name, slow) in [
            ("b", bcrypt.replace("$05$", "$08$")),
            ("a", argon2.replace("m=64,t=1", "m=65536,t=3")),
            ("c", bcrypt.replace("$05$", "$13$")),
            ("d", argon2.replace("m=64,t=1", "m=262144,t=3")),
        ] {
            let slow = slow.split_once(':').unwrap().1;
            // The order in a hash table is another one each time.
            for _ in 0..20 {
                let users = format!("{USERS}{name}:{slow}\n");
                let users = Users::read(users.as_bytes()).unwrap();
                let (Hash::Argon2(hash) | Hash::Bcrypt(hash)) = users.hash_for(b"nobody");
                assert_eq!(&**hash, slow);
            }
        }
        let cost = |line: &str| Hash::read(line.split_once(':').unwrap().1).unwrap().cost();
        let costs = [
            bcrypt.replace("$05$", "$10$"),
            argon2.replace("m=64,t=1", "m=65536,t=3"),
            bcrypt.replace("$05$", "$13$"),
            argon2.replace("m=64,t=1", "m=262144,t=16"),
        ];
        assert!(costs.map(|line| cost(&line)).is_sorted());
    }

    #[test]
    fn wrong_lines_are_named_with_a_remedy() {
        assert_eq!(fault("ali"), LineFault::NoColon);
        assert_eq!(fault(":x"), LineFault::NoName);
        for other in [
            "",
            "sesame",
            "$apr1$a$b",
            "{SHA}abc",
            "$1$a$b",
            "$y$j9T$a$b",
        ] {
            assert_eq!(
                fault(&format!("ali:{other}")),
                LineFault::OtherHash,
                "{other}"
            );
        }
        let hash = USERS.lines().nth(2).unwrap();
        assert_eq!(fault(&hash[..hash.len() - 1]), LineFault::Damaged);
        assert_eq!(fault(&hash.replace("$05$", "$16$")), LineFault::TooCostly);
        assert_eq!(fault(&hash.replace("$05$", "$03$")), LineFault::Damaged);
        let hash = USERS.lines().nth(3).unwrap();
        assert_eq!(
            fault(&hash.replace("m=64", "m=262145")),
            LineFault::TooCostly
        );
        assert_eq!(fault(&hash.replace("t=1", "t=17")), LineFault::TooCostly);
        assert_eq!(fault(&hash.replace("m=64", "m=x")), LineFault::Damaged);
        let twice = [USERS, " ali:x\n", USERS, "\u{fc}ber"].concat();
        let error = Users::read(twice.as_bytes()).unwrap_err().to_string();
        let lines: Vec<_> = error.lines().collect();
        assert_eq!(lines[0], "has 4 mistakes");
        for (line, expected) in [
            (1, "  line 5, column 6: the hash is neither bcrypt"),
            (
                2,
                "  line 8, column 1: the user has a line already; remove one of them",
            ),
            (3, "  line 9, column 1: the user has"),
            (4, "  line 10, column 1: there is no colon; write NAME:HASH"),
        ] {
            assert!(lines[line].starts_with(expected), "{error}");
        }
        for empty in ["", "\n# ali:x\n"] {
            assert!(matches!(
                Users::read(empty.as_bytes()),
                Err(UsersError::Empty)
            ));
        }
    }

    #[test]
    fn a_file_that_is_missing_or_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        assert!(matches!(Users::load(&path), Err(UsersError::Unreadable(_))));
        std::fs::write(&path, vec![b'\n'; MAX_LEN as usize + 1]).unwrap();
        assert!(matches!(Users::load(&path), Err(UsersError::TooLong)));
        std::fs::write(&path, USERS).unwrap();
        assert!(Users::load(&path).unwrap().accept(b"ali", b"sesame"));
    }
}
