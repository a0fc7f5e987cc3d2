//! Writes the zones that are loaded. Each has a record that tells its version.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::bench::content::{ORIGIN, origin_of};
use crate::shell;

/// Number of addresses at the target of [`Body::Addresses`].
const ADDRESSES: u32 = 60;
/// Number of strings of 255 bytes in the text of [`Body::Text`]: 48 kB.
const STRINGS: usize = 188;
/// Of many zones, the one that changes. It has [`CHANGED_HOSTS`] records in addition to those of the others.
const CHANGED_ZONE: u32 = 67_291;
const CHANGED_HOSTS: u32 = 1_000;
/// Version of the zones at first. Each change adds 1.
pub(super) const FIRST: u8 = 100;

/// What a zone holds, in so many pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Names with an address each.
    Hosts(u32),
    /// Names with records of four types each.
    Types(u32),
    /// Delegations to two servers with an address each.
    Delegations(u32),
    /// Aliases to one name with 60 addresses.
    Addresses(u32),
    /// Aliases to one name with a text of 48 kB.
    Text(u32),
    /// Names with an address each, signed by `ldns-signzone` with these options.
    Signed(u32, &'static str),
    /// As many zones with eight records each.
    Zones(u32),
}

impl Body {
    /// Writes the lines of piece `i`.
    fn write_piece(self, i: u32, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let [_, a, b, c] = i.to_be_bytes();
        let ip = format!("10.{a}.{b}.{c}");
        match self {
            Self::Hosts(_) | Self::Signed(..) => writeln!(out, "host{i} A {ip}"),
            Self::Types(_) => writeln!(
                out,
                "host{i} A {ip}\nhost{i} AAAA 2001:db8::{:x}:{:x}\nhost{i} MX 10 ns\nhost{i} TXT \"text {i}\"",
                i >> 16,
                i & 0xffff
            ),
            Self::Delegations(_) => writeln!(
                out,
                "sub{i} NS a.sub{i}\nsub{i} NS b.sub{i}\na.sub{i} A {ip}\nb.sub{i} A {ip}"
            ),
            Self::Addresses(_) | Self::Text(_) => writeln!(out, "alias{i} CNAME target"),
            Self::Zones(_) => Ok(()),
        }
    }

    /// Writes the text of a whole zone.
    fn write(
        self,
        origin: &str,
        version: u8,
        out: &mut impl std::io::Write,
    ) -> std::io::Result<()> {
        writeln!(
            out,
            "$ORIGIN {origin}.\n$TTL 300\n@ SOA ns host {version} 7200 3600 1209600 300\n@ NS ns\n\
             ns A 192.0.2.53"
        )?;
        let pieces = match self {
            Self::Addresses(pieces) => {
                (0..ADDRESSES).try_for_each(|n| writeln!(out, "target A 10.1.0.{n}"))?;
                pieces
            }
            Self::Text(pieces) => {
                let string = format!(" \"{}\"", "x".repeat(255));
                writeln!(out, "target TXT{}", string.repeat(STRINGS))?;
                pieces
            }
            Self::Zones(_) => {
                writeln!(
                    out,
                    "@ A 192.0.2.80\nwww A 192.0.2.80\n@ MX 10 mail\nmail A 192.0.2.25"
                )?;
                if origin == origin_of(CHANGED_ZONE) {
                    let hosts = Self::Hosts(CHANGED_HOSTS);
                    (0..CHANGED_HOSTS).try_for_each(|i| hosts.write_piece(i, out))?;
                }
                0
            }
            Self::Hosts(pieces)
            | Self::Types(pieces)
            | Self::Delegations(pieces)
            | Self::Signed(pieces, _) => pieces,
        };
        (0..pieces).try_for_each(|i| self.write_piece(i, out))?;
        writeln!(out, "last A 192.0.2.{version}")
    }
}

/// Zones in a folder.
pub(super) struct Zones<'a> {
    folder: &'a Path,
    body: Body,
}

impl<'a> Zones<'a> {
    /// Writes all zones into an empty folder.
    pub(super) fn write(folder: &'a Path, body: Body) -> Result<Self> {
        let zones = Self { folder, body };
        for [origin, file] in zones.all() {
            zones.write_one(&origin, Path::new(&file), FIRST)?;
        }
        if let Body::Signed(_, options) = body {
            zones.sign(options)?;
        }
        Ok(zones)
    }

    /// Returns the name and the file of each zone.
    pub(super) fn all(&self) -> impl Iterator<Item = [String; 2]> {
        let many = match self.body {
            Body::Zones(count) => Some(count),
            _ => None,
        };
        (0..many.unwrap_or(1)).map(move |number| {
            let origin = many.map_or_else(|| ORIGIN.to_owned(), |_| origin_of(number));
            let file = self.file(&origin).display().to_string();
            [origin, file]
        })
    }

    /// Returns Namestorm's options.
    pub(super) fn options(&self) -> String {
        match self.body {
            Body::Zones(_) => format!("--zones-from {}/*.zone", self.folder.display()),
            _ => format!("--zone {ORIGIN}={}", self.file(ORIGIN).display()),
        }
    }

    /// Returns the name of the zone that changes.
    pub(super) fn changed(&self) -> String {
        match self.body {
            Body::Zones(_) => origin_of(CHANGED_ZONE),
            _ => ORIGIN.to_owned(),
        }
    }

    /// Returns the name of the last zone.
    pub(super) fn last(&self) -> String {
        match self.body {
            Body::Zones(count) => origin_of(count - 1),
            _ => ORIGIN.to_owned(),
        }
    }

    /// Replaces the zone that changes by another version.
    pub(super) fn change(&self, version: u8) -> Result<()> {
        let origin = self.changed();
        let next = self.folder.join("next");
        self.write_one(&origin, &next, version)?;
        fs::rename(&next, self.file(&origin)).context("replacing a zone")
    }

    fn file(&self, origin: &str) -> PathBuf {
        self.folder.join(format!("{origin}.zone"))
    }

    fn write_one(&self, origin: &str, file: &Path, version: u8) -> Result<()> {
        let error = || format!("writing {}", file.display());
        let mut out = BufWriter::new(File::create(file).with_context(error)?);
        let written = self.body.write(origin, version, &mut out);
        written.and_then(|()| out.flush()).with_context(error)
    }

    /// Replaces the zone by its signed form.
    fn sign(&self, options: &str) -> Result<()> {
        let mut keygen = Command::new("ldns-keygen");
        keygen
            .current_dir(self.folder)
            .args(["-k", "-a", "ECDSAP256SHA256"]);
        let key = shell::capture_text(keygen.args(["-r", "/dev/urandom", ORIGIN]))?;
        let file = self.file(ORIGIN);
        let mut sign = Command::new("ldns-signzone");
        sign.current_dir(self.folder)
            .args(options.split_whitespace());
        sign.arg("-f").arg(&file).arg(&file).arg(key.trim());
        shell::capture(&mut sign).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: Body, origin: &str) -> String {
        let mut out = Vec::new();
        body.write(origin, FIRST, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_zone_has_all_its_pieces_and_tells_its_version() {
        for (body, lines) in [
            (Body::Hosts(300), 300),
            (Body::Types(10), 40),
            (Body::Delegations(10), 40),
            (Body::Addresses(10), 70),
            (Body::Text(10), 11),
            (Body::Zones(10), 4),
        ] {
            let text = text(body, ORIGIN);
            assert_eq!(text.lines().count(), 6 + lines, "{body:?}");
            assert!(
                text.contains("\n@ SOA ns host 100 ") && text.ends_with("\nlast A 192.0.2.100\n")
            );
        }
        assert!(text(Body::Hosts(300), ORIGIN).contains("\nhost299 A 10.0.1.43\n"));
        assert!(text(Body::Text(1), ORIGIN).len() > 48_000);
        let types = text(Body::Types(70_000), ORIGIN);
        assert!(types.contains("\nhost69999 AAAA 2001:db8::1:116f\n"));
    }

    #[test]
    fn one_of_many_zones_has_a_thousand_records_more_and_changes() {
        let changed = text(Body::Zones(100_000), &origin_of(CHANGED_ZONE));
        assert_eq!(changed.lines().count(), 10 + 1_000);
        let folder = shell::scratch("zones").unwrap();
        let zones = Zones::write(folder.path(), Body::Hosts(3)).unwrap();
        zones.change(FIRST + 1).unwrap();
        let text = shell::read(&folder.path().join("bench.test.zone")).unwrap();
        assert!(text.contains("host2 A") && text.ends_with("\nlast A 192.0.2.101\n"));
    }
}
