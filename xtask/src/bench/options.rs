//! What the command line asks for.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::results::FIGURES;
use crate::shell::{Failure, Result};

/// Figures that are not made of runs, beside [`FIGURES`].
pub(crate) const TIME_LINE: &str = "time-line";

/// Selections, and the figures that each stands for.
const SELECTIONS: &[(&str, &[&str])] = &[
    ("limit", &["limit"]),
    ("dns", &["dns-cost", "dns-names", "dns-batch"]),
    (
        "web",
        &[
            "web-cost",
            "web-sizes",
            "web-offload",
            "web-mix",
            "web-loss",
        ],
    ),
    (
        "paper",
        &[
            "dns-names",
            "dns-batch",
            "web-sizes",
            "web-offload",
            "web-mix",
            "web-loss",
            "delta-t",
            TIME_LINE,
        ],
    ),
];

/// What is run when nothing is selected.
const DEFAULT: &[&str] = &["limit", "dns", "web"];

/// Bounds of `--seconds` and `--repeats`.
const SECONDS: std::ops::RangeInclusive<f64> = 0.2..=600.0;
const REPEATS: std::ops::RangeInclusive<u32> = 1..=100;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Names of figures.
    pub(crate) figures: BTreeSet<&'static str>,
    /// Those of them that were asked for by their own names.
    named: BTreeSet<&'static str>,
    /// Instructions are counted as well.
    pub(crate) instructions: bool,
    pub(crate) quick: bool,
    /// Length of each measured part.
    pub(crate) seconds: Option<f64>,
    pub(crate) repeats: Option<u32>,
    /// A Debian tree with an NSD that has an XDP mode.
    pub(crate) nsd_xdp: Option<PathBuf>,
    /// Only servers whose name contains this.
    pub(crate) server: String,
    /// Packages are installed and programs built: we were run again, as root.
    pub(crate) built: bool,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = |what: &str| {
                args.next()
                    .ok_or_else(|| Failure::new(format!("{arg} wants {what}")))
            };
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--built" => options.built = true,
                "--seconds" => {
                    let text = value("a number of seconds")?;
                    let number = text.parse().ok().filter(|n| SECONDS.contains(n));
                    options.seconds = Some(number.ok_or_else(|| {
                        Failure::new(format!(
                            "--seconds {text}: not a number from {} to {}",
                            SECONDS.start(),
                            SECONDS.end()
                        ))
                    })?);
                }
                "--repeats" => {
                    let text = value("a number")?;
                    let number = text.parse().ok().filter(|n| REPEATS.contains(n));
                    options.repeats = Some(number.ok_or_else(|| {
                        Failure::new(format!(
                            "--repeats {text}: not a number from {} to {}",
                            REPEATS.start(),
                            REPEATS.end()
                        ))
                    })?);
                }
                "--server" => value("a part of a server's name")?.clone_into(&mut options.server),
                "--peer" => {
                    let text = value("nsd-xdp=FOLDER")?;
                    let Some(folder) = text.strip_prefix("nsd-xdp=") else {
                        return Err(Failure::new(format!(
                            "--peer {text}: the only peer that is given so is nsd-xdp=FOLDER"
                        )));
                    };
                    options.nsd_xdp = Some(PathBuf::from(folder));
                }
                word if word.starts_with('-') => {
                    return Err(Failure::new(format!("unexpected argument {word}")));
                }
                word => {
                    options.instructions |= word == "all";
                    let figures = select(word)?;
                    options
                        .named
                        .extend(figures.iter().filter(|name| **name == word));
                    options.figures.extend(figures);
                }
            }
        }
        if options.figures.is_empty() {
            for word in DEFAULT {
                options.figures.extend(select(word)?);
            }
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, figure: &str) -> bool {
        self.figures.contains(figure)
    }

    /// Whether a figure was asked for by its own name, and not with others.
    pub(crate) fn names(&self, figure: &str) -> bool {
        self.named.contains(figure)
    }
}

fn figures() -> impl Iterator<Item = &'static str> {
    let names = FIGURES.iter().map(|(name, _, _)| *name);
    names.chain(std::iter::once(TIME_LINE))
}

/// The figures that a word of the command line stands for.
fn select(word: &str) -> Result<Vec<&'static str>> {
    if word == "all" {
        return Ok(figures().collect());
    }
    if let Some((_, figures)) = SELECTIONS.iter().find(|(name, _)| *name == word) {
        return Ok(figures.to_vec());
    }
    if let Some(figure) = figures().find(|name| *name == word) {
        return Ok(vec![figure]);
    }
    let selections: Vec<&str> = SELECTIONS.iter().map(|(name, _)| *name).collect();
    Err(Failure::new(format!(
        "no selection or figure is called {word}. Selections: {}, all. Figures: {}",
        selections.join(", "),
        figures().collect::<Vec<_>>().join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args)
    }

    #[test]
    fn selections_are_figures_and_may_be_joined() {
        let options = parse("limit dns-batch --seconds 2 --repeats 5").unwrap();
        assert_eq!(
            options.figures.into_iter().collect::<Vec<_>>(),
            ["dns-batch", "limit"]
        );
        assert_eq!(options.seconds, Some(2.0));
        assert_eq!(options.repeats, Some(5));
        assert_eq!(parse("all").unwrap().figures.len(), FIGURES.len() + 1);
        assert!(parse("--quick").unwrap().wants("web-cost"));
        assert!(parse("web-cost").unwrap().names("web-cost"));
        assert!(!parse("web").unwrap().names("web-cost"));
        let tree = parse("dns --peer nsd-xdp=/srv/tree").unwrap().nsd_xdp;
        assert_eq!(tree, Some(PathBuf::from("/srv/tree")));
    }

    #[test]
    fn every_selected_figure_exists() {
        for (name, selected) in SELECTIONS {
            for figure in *selected {
                assert!(figures().any(|one| one == *figure), "{name}: {figure}");
            }
        }
    }

    #[test]
    fn what_does_not_exist_is_refused_by_name() {
        for (line, name) in [
            ("wbe", "wbe"),
            ("web dns-nmes", "dns-nmes"),
            ("--fast", "--fast"),
            ("--seconds 0", "--seconds 0"),
            ("--seconds", "--seconds"),
            ("--repeats x", "--repeats x"),
            ("--peer bind=/x", "bind=/x"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(name), "{line}: {error}");
        }
        let error = parse("wbe").unwrap_err().to_string();
        assert!(
            error.contains("web-mix") && error.contains("paper"),
            "{error}"
        );
    }
}
