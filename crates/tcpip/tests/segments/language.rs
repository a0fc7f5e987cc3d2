//! From text to cases. The language is described in `README.md` beside the
//! cases.

use std::time::Duration;

use testkit::{ACK, LETTERS, Opt, Segment};

use crate::expr::{Expr, Symbols};

/// One case: a rule of an RFC, and an exchange that shows whether it is
/// obeyed.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) file: String,
    /// Of its heading, from 1.
    pub(crate) line: usize,
    /// `RFC 9293, 3.5`.
    pub(crate) section: String,
    pub(crate) name: String,
    /// What the RFC asks for, in a few words.
    pub(crate) rule: String,
    pub(crate) lines: Vec<Line>,
}

impl Case {
    pub(crate) fn title(&self) -> String {
        format!(
            "{}:{}: {}: {}",
            self.file, self.line, self.section, self.name
        )
    }
}

/// One line of an exchange.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
    /// Since the line before.
    pub(crate) pause: Duration,
    pub(crate) command: Command,
}

#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// `<`: a segment goes in.
    In(Template),
    /// `>`: a segment comes out.
    Out(Template),
    /// Nothing comes out.
    Silence,
    Open {
        /// The options of the SYN; without them the MSS alone.
        options: Vec<OptionTemplate>,
        window: Option<Expr>,
        rtt: Duration,
        /// With an ECN-setup SYN.
        ecn: bool,
    },
    App(Vec<String>),
    Log(String),
    Count(String, Expr),
    Connections(Expr),
    Peer {
        name: String,
        like: Option<String>,
    },
    /// The next SYN-ACK begins a new numbering.
    Again,
    Isn {
        of: String,
        from: String,
        relation: Relation,
    },
    Icmp {
        message: Icmp,
        about: Expr,
    },
    Ring(Expr),
    Set(String, String),
    Only(String),
    Control(String),
}

/// How one initial sequence number lies to another.
#[derive(Debug, Clone)]
pub(crate) enum Relation {
    Differs,
    Ahead,
    By(Expr),
}

#[derive(Debug, Clone)]
pub(crate) enum Icmp {
    TooBig(Expr),
    Unreachable(Expr),
    TimeExceeded,
}

/// An option whose numbers are still expressions.
#[derive(Debug, Clone)]
pub(crate) enum OptionTemplate {
    Mss(Expr),
    Scale(Expr),
    SackPermitted,
    Timestamps(Expr, Expr),
    /// Any value that is not behind the last one.
    AnyTimestamp(Expr),
    /// No timestamps, though they were negotiated.
    NoTimestamps,
    Sack(Vec<(Expr, Expr)>),
    UserTimeout(Expr),
    Raw(Vec<u8>),
}

/// A segment, or a row of them, whose numbers are still expressions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Template {
    pub(crate) bits: u16,
    pub(crate) seq: Expr,
    pub(crate) len: Expr,
    pub(crate) ack: Option<Expr>,
    pub(crate) window: Option<Expr>,
    pub(crate) urgent: Option<Expr>,
    pub(crate) options: Vec<OptionTemplate>,
    /// The ECN field of the IP header.
    pub(crate) ecn: u8,
    pub(crate) times: u32,
    /// By how much the acknowledgement grows from one to the next of a row.
    pub(crate) by: Option<Expr>,
    pub(crate) bad_checksum: bool,
    /// What the data offset field says instead of the truth.
    pub(crate) offset: Option<Expr>,
    /// Our port, where it is not the usual one.
    pub(crate) port: Option<Expr>,
}

impl OptionTemplate {
    /// `None` for [`OptionTemplate::NoTimestamps`].
    pub(crate) fn value(&self, symbols: &Symbols) -> Option<Opt> {
        let number = |expr: &Expr| expr.value(symbols);
        Some(match self {
            Self::Mss(mss) => Opt::Mss(number(mss) as u16),
            Self::Scale(shift) => Opt::Scale(number(shift) as u8),
            Self::SackPermitted => Opt::SackPermitted,
            Self::Timestamps(value, echo) => Opt::Timestamps(number(value), number(echo)),
            Self::AnyTimestamp(echo) => Opt::Timestamps(0, number(echo)),
            Self::NoTimestamps => return None,
            Self::Sack(blocks) => Opt::Sack(
                blocks
                    .iter()
                    .map(|(left, right)| (number(left), number(right)))
                    .collect(),
            ),
            Self::UserTimeout(seconds) => {
                Opt::Other(28, (number(seconds) as u16).to_be_bytes().into())
            }
            Self::Raw(bytes) => Opt::Raw(bytes.clone()),
        })
    }
}

impl Template {
    /// Whether it leaves the timestamps to what was said before.
    pub(crate) fn leaves_timestamps(&self) -> bool {
        let says = |option: &OptionTemplate| {
            matches!(
                option,
                OptionTemplate::NoTimestamps
                    | OptionTemplate::Timestamps(..)
                    | OptionTemplate::AnyTimestamp(_)
            )
        };
        !self.options.iter().any(says)
    }

    /// The segment, without options and data.
    pub(crate) fn value(&self, symbols: &Symbols) -> Segment {
        let number = |expr: &Expr| expr.value(symbols);
        Segment {
            bits: self.bits,
            seq: number(&self.seq),
            ack: self.ack.as_ref().map_or(0, number),
            window: self.window.as_ref().map_or(0, number) as u16,
            urgent: self.urgent.as_ref().map_or(0, number) as u16,
            ecn: self.ecn,
            options: Vec::new(),
            data: Vec::new(),
        }
    }
}

/// Reads a file of cases.
///
/// # Errors
/// What is wrong, with file and line.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let number = index + 1;
        let fail = |what: String| format!("{file}:{number}: {what}\n    {raw}");
        let line = raw.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        if let Some(heading) = line.strip_prefix("RFC ") {
            cases.push(parse_heading(file, number, heading).map_err(fail)?);
            continue;
        }
        let Some(case) = cases.last_mut() else {
            return Err(fail(
                "a file begins with the heading of a case: RFC n, section: name".into(),
            ));
        };
        if let Some(rule) = line.strip_prefix('|') {
            case.rule.push_str(rule);
        } else {
            let line = parse_line(number, line).map_err(fail)?;
            case.lines.push(line);
        }
    }
    if let Some(case) = cases.iter().find(|case| case.rule.trim().is_empty()) {
        return Err(format!(
            "{}: no rule (a line that begins with |)",
            case.title()
        ));
    }
    Ok(cases)
}

fn parse_heading(file: &str, line: usize, heading: &str) -> Result<Case, String> {
    let (section, name) = heading
        .split_once(": ")
        .ok_or("a heading is: RFC n, section: name")?;
    let (rfc, place) = section
        .split_once(", ")
        .ok_or("a heading names the section after the RFC's number")?;
    rfc.parse::<u16>().map_err(|_| "an RFC has a number")?;
    Ok(Case {
        file: file.to_owned(),
        line,
        section: format!("RFC {rfc}, {place}"),
        name: name.trim().to_owned(),
        rule: String::new(),
        lines: Vec::new(),
    })
}

fn parse_line(number: usize, text: &str) -> Result<Line, String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let pause = match words.first().and_then(|word| word.strip_prefix('+')) {
        Some(seconds) => {
            words.remove(0);
            parse_seconds(seconds)?
        }
        None => Duration::ZERO,
    };
    let Some((&verb, rest)) = words.split_first() else {
        return Err("a pause alone says nothing; write: +time silence".into());
    };
    Ok(Line {
        number,
        text: text.to_owned(),
        pause,
        command: parse_command(verb, rest)?,
    })
}

/// `0.25` in seconds.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is no time in seconds");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let nanos: u32 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    Ok(Duration::new(whole, nanos))
}

fn parse_command(verb: &str, rest: &[&str]) -> Result<Command, String> {
    let word = |at: usize| {
        rest.get(at)
            .copied()
            .ok_or_else(|| format!("{verb}: something is missing behind it"))
    };
    let expr = |at: usize| word(at).and_then(Expr::parse);
    let command = match verb {
        "<" => Command::In(parse_segment(rest)?),
        ">" => Command::Out(parse_segment(rest)?),
        "silence" => Command::Silence,
        "open" => parse_open(rest)?,
        "app" => Command::App(rest.iter().map(ToString::to_string).collect()),
        "log" => Command::Log(rest.join(" ")),
        "count" => Command::Count(word(0)?.to_owned(), expr(1)?),
        "connections" => Command::Connections(expr(0)?),
        "ring" => Command::Ring(expr(0)?),
        "peer" => Command::Peer {
            name: word(0)?.to_owned(),
            like: match rest.get(1) {
                None => None,
                Some(&"like") => Some(word(2)?.to_owned()),
                Some(other) => return Err(format!("{other}: it is: peer name like name")),
            },
        },
        "again" => Command::Again,
        "isn" => Command::Isn {
            of: word(0)?.to_owned(),
            relation: match word(1)? {
                "differs" => Relation::Differs,
                "ahead" => Relation::Ahead,
                number => Relation::By(Expr::parse(number)?),
            },
            from: word(2)?.to_owned(),
        },
        "icmp" => parse_icmp(rest)?,
        "set" => Command::Set(word(0)?.to_owned(), word(1)?.to_owned()),
        "only" => Command::Only(word(0)?.to_owned()),
        "control" => Command::Control(word(0)?.to_owned()),
        other => return Err(format!("{other} is no command")),
    };
    Ok(command)
}

fn parse_open(words: &[&str]) -> Result<Command, String> {
    let (words, options) = cut_options(words)?;
    let mut window = None;
    let mut rtt = Duration::ZERO;
    let mut ecn = false;
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut number = || words.next().ok_or(format!("a number follows {word}"));
        match word {
            "win" => window = Some(Expr::parse(number()?)?),
            "rtt" => rtt = parse_seconds(number()?)?,
            "ecn" => ecn = true,
            other => return Err(format!("open: {other} is neither win, rtt nor ecn")),
        }
    }
    Ok(Command::Open {
        options,
        window,
        rtt,
        ecn,
    })
}

fn parse_icmp(words: &[&str]) -> Result<Command, String> {
    let (message, about) = match words {
        ["too-big", mtu, "about", about] => (Icmp::TooBig(Expr::parse(mtu)?), about),
        ["unreachable", code, "about", about] => (Icmp::Unreachable(Expr::parse(code)?), about),
        ["time-exceeded", "about", about] => (Icmp::TimeExceeded, about),
        _ => {
            return Err(
                "it is: icmp too-big MTU about SEQ (or unreachable CODE, time-exceeded)".into(),
            );
        }
    };
    Ok(Command::Icmp {
        message,
        about: Expr::parse(about)?,
    })
}

/// Takes `<…>` from the end.
fn cut_options<'a>(words: &[&'a str]) -> Result<(Vec<&'a str>, Vec<OptionTemplate>), String> {
    let Some(at) = words.iter().position(|word| word.starts_with('<')) else {
        return Ok((words.to_vec(), Vec::new()));
    };
    let end = words
        .iter()
        .position(|word| word.ends_with('>'))
        .ok_or("options end with >")?;
    let list = words[at..=end].join(" ");
    let mut others = words[..at].to_vec();
    others.extend(&words[end + 1..]);
    let mut options = Vec::new();
    for item in list[1..list.len() - 1].split(',') {
        options.push(parse_option(item)?);
    }
    Ok((others, options))
}

fn parse_option(item: &str) -> Result<OptionTemplate, String> {
    let words: Vec<&str> = item.split_whitespace().collect();
    Ok(match words.as_slice() {
        ["mss", mss] => OptionTemplate::Mss(Expr::parse(mss)?),
        ["wscale", shift] => OptionTemplate::Scale(Expr::parse(shift)?),
        ["sackOK"] => OptionTemplate::SackPermitted,
        ["ts", "?", echo] => OptionTemplate::AnyTimestamp(Expr::parse(echo)?),
        ["ts", value, echo] => OptionTemplate::Timestamps(Expr::parse(value)?, Expr::parse(echo)?),
        ["no-ts"] => OptionTemplate::NoTimestamps,
        ["uto", seconds] => OptionTemplate::UserTimeout(Expr::parse(seconds)?),
        ["sack", blocks @ ..] if !blocks.is_empty() => {
            let mut list = Vec::new();
            for block in blocks {
                let (left, right) = block
                    .split_once(':')
                    .ok_or_else(|| format!("{block} is no block left:right"))?;
                list.push((Expr::parse(left)?, Expr::parse(right)?));
            }
            OptionTemplate::Sack(list)
        }
        ["raw", bytes @ ..] => {
            let mut raw = Vec::new();
            for byte in bytes {
                raw.push(u8::from_str_radix(byte, 16).map_err(|_| format!("{byte} is no byte"))?);
            }
            OptionTemplate::Raw(raw)
        }
        _ => return Err(format!("{item} is no option")),
    })
}

fn parse_segment(words: &[&str]) -> Result<Template, String> {
    let (words, options) = cut_options(words)?;
    let mut words = words.into_iter();
    let letters = words
        .next()
        .ok_or("a segment begins with its control bits")?;
    let place = words
        .next()
        .ok_or("a sequence number follows the control bits")?;
    let (seq, len) = match place.split_once('(') {
        Some((seq, len)) => (seq, len.strip_suffix(')').ok_or("a length ends with )")?),
        None => (place, "0"),
    };
    let mut segment = Template {
        bits: parse_bits(letters)?,
        seq: Expr::parse(seq)?,
        len: Expr::parse(len)?,
        options,
        times: 1,
        ..Template::default()
    };
    while let Some(word) = words.next() {
        let mut expr = || {
            let value = words.next().ok_or(format!("a number follows {word}"))?;
            Expr::parse(value).map(Some)
        };
        match word {
            "ack" => segment.ack = expr()?,
            "win" => segment.window = expr()?,
            "urg" => segment.urgent = expr()?,
            "offset" => segment.offset = expr()?,
            "port" => segment.port = expr()?,
            "by" => segment.by = expr()?,
            "bad-checksum" => segment.bad_checksum = true,
            "ect0" => segment.ecn = 2,
            "ect1" => segment.ecn = 1,
            "ce" => segment.ecn = 3,
            _ => {
                let times = word.strip_prefix('x').and_then(|n| n.parse().ok());
                segment.times = times.ok_or_else(|| format!("{word} is no part of a segment"))?;
            }
        }
    }
    let has_ack = segment.bits & ACK != 0;
    if has_ack != segment.ack.is_some() {
        return Err("ack stands where the control bits have an A, and only there".into());
    }
    Ok(segment)
}

fn parse_bits(letters: &str) -> Result<u16, String> {
    if letters == "-" {
        return Ok(0);
    }
    letters.chars().try_fold(0, |bits, letter| {
        let letter = if letter == 'A' { '.' } else { letter };
        let bit = LETTERS.iter().find(|(name, _)| *name == letter);
        bit.map(|(_, bit)| bits | bit)
            .ok_or_else(|| format!("{letter} is no control bit"))
    })
}
