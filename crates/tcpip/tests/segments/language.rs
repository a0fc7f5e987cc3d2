//! Parser of cases. `README.md` in this folder describes the language of the cases.

use std::time::Duration;

use testkit::{ACK, IcmpError, LETTERS, Opt, Segment};

use super::expr::{Expr, Symbols};

/// One case: a rule of an RFC, and an exchange that shows whether the stack obeys the rule.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) file: String,
    /// Line number of the heading, counted from 1.
    pub(crate) line: usize,
    /// The RFC and its section, for example `RFC 9293, 3.5`.
    pub(crate) section: String,
    pub(crate) name: String,
    /// The rule in a few words.
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
    pub(crate) time: Time,
    pub(crate) command: Command,
}

/// The time range in which a line's event must happen: from `earliest` to `latest`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// Whether both times are relative to the previous line, rather than to the beginning of the
    /// case.
    pub(crate) is_relative: bool,
    pub(crate) earliest: Duration,
    pub(crate) latest: Duration,
}

impl Time {
    /// The length of the time range that `*` stands for. The segment may be sent at any time in
    /// this range.
    const ANY: Duration = Duration::from_mins(10);

    /// Parses a time: `0.1`, `+0.1`, `+.1~+.2` or `*`.
    fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self {
                is_relative: true,
                earliest: Duration::ZERO,
                latest: Self::ANY,
            });
        }
        let (earliest, latest) = text.split_once('~').unwrap_or((text, text));
        let seconds = |text: &str| parse_seconds(text.strip_prefix('+').unwrap_or(text));
        Ok(Self {
            is_relative: text.starts_with('+'),
            earliest: seconds(earliest)?,
            latest: seconds(latest)?,
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// `<`: the server receives a segment.
    In(Template),
    /// `>`: the server sends a segment.
    Out(Template),
    /// `< icmp`: the server receives an ICMP error.
    Icmp(Icmp),
    /// `silence`: the server has sent no further segment.
    Silence,
    Open {
        /// Options of the SYN. If empty, the SYN has the default options.
        options: Vec<OptionTemplate>,
        window: Option<Expr>,
        rtt: Duration,
        /// Whether the SYN is an ECN-setup SYN.
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
    /// `again`: forgets our initial sequence number, so that the next SYN-ACK sets a new one.
    Again,
    Isn {
        of: String,
        from: String,
        relation: Relation,
    },
    Ring(Expr),
    /// `drain`: the drain begins. Later, `drain busy` and `drain done` check how far it is.
    Drain(Option<String>),
    /// `shut-down`: the stack ends all connections.
    ShutDown,
    Set(String, String),
    Only(String),
    Control(String),
}

/// Relation that must hold between two of our initial sequence numbers.
#[derive(Debug, Clone)]
pub(crate) enum Relation {
    Differs,
    Ahead,
    By(Expr),
}

/// An ICMP error about the segment at `seq`.
#[derive(Debug, Clone)]
pub(crate) struct Icmp {
    error: IcmpError,
    mtu: Expr,
    pub(crate) seq: Expr,
    pub(crate) len: Expr,
}

impl Icmp {
    pub(crate) fn error(&self, symbols: &Symbols) -> IcmpError {
        match self.error {
            IcmpError::TooBig(_) => IcmpError::TooBig(self.mtu.value(symbols)),
            other => other,
        }
    }
}

/// A TCP option whose numbers are expressions that are not evaluated yet.
#[derive(Debug, Clone)]
pub(crate) enum OptionTemplate {
    Mss(Expr),
    Scale(Expr),
    SackPermitted,
    Timestamps(Expr, Expr),
    /// `TS val ? ecr N`: timestamps with any TSval that is not older than our last TSval.
    AnyTimestamp(Expr),
    /// `noTS`: no timestamps, although they were negotiated.
    NoTimestamps,
    Sack(Vec<(Expr, Expr)>),
    UserTimeout(Expr),
    Raw(Vec<u8>),
    /// `...`: any options are accepted.
    Any,
}

/// A segment, or a row of segments, whose numbers are expressions that are not evaluated yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Template {
    pub(crate) bits: u16,
    pub(crate) seq: Expr,
    pub(crate) len: Expr,
    /// The sequence number after the data.
    pub(crate) end: Expr,
    pub(crate) ack: Option<Expr>,
    pub(crate) window: Option<Expr>,
    pub(crate) urgent: Option<Expr>,
    pub(crate) options: Vec<OptionTemplate>,
    /// The ECN field of the IP header.
    pub(crate) ecn: u8,
    pub(crate) times: u32,
    /// Growth of the acknowledgement number from one segment of a row to the next.
    pub(crate) by: Option<Expr>,
    pub(crate) bad_checksum: bool,
    /// The value of the data offset field, if the segment has a wrong one.
    pub(crate) offset: Option<Expr>,
    /// Our port, if the segment does not use the usual one.
    pub(crate) port: Option<Expr>,
}

impl OptionTemplate {
    /// Returns the option with its values, or `None` for `noTS` and `...`.
    pub(crate) fn value(&self, symbols: &Symbols) -> Option<Opt> {
        let number = |expr: &Expr| expr.value(symbols);
        Some(match self {
            Self::Mss(mss) => Opt::Mss(number(mss) as u16),
            Self::Scale(shift) => Opt::Scale(number(shift) as u8),
            Self::SackPermitted => Opt::SackPermitted,
            Self::Timestamps(value, echo) => Opt::Timestamps(number(value), number(echo)),
            Self::AnyTimestamp(echo) => Opt::Timestamps(0, number(echo)),
            Self::NoTimestamps | Self::Any => return None,
            Self::Sack(blocks) => {
                let blocks = blocks.iter();
                let numbers = blocks.map(|(left, right)| (number(left), number(right)));
                Opt::Sack(numbers.collect())
            }
            Self::UserTimeout(seconds) => {
                Opt::Other(28, (number(seconds) as u16).to_be_bytes().into())
            }
            Self::Raw(bytes) => Opt::Raw(bytes.clone()),
        })
    }
}

impl Template {
    /// Creates a segment without data. If the segment has an ACK, it acknowledges only the SYN.
    pub(crate) fn bare(bits: u16, seq: Expr) -> Self {
        Self {
            bits,
            end: seq.clone(),
            seq,
            ack: (bits & ACK != 0).then(|| Expr::number(1)),
            ..Self::default()
        }
    }

    /// Returns true if the line omits timestamps. Their values then follow from earlier lines.
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

    /// Returns the segment without options and data, and the length of its data.
    ///
    /// # Errors
    ///
    /// Fails if the start, the length and the end contradict each other.
    pub(crate) fn value(&self, symbols: &Symbols) -> Result<(Segment, u32), String> {
        let number = |expr: &Expr| expr.value(symbols);
        let (seq, len, end) = (number(&self.seq), number(&self.len), number(&self.end));
        if seq.wrapping_add(len) != end {
            return Err(format!("{seq} and {len} bytes do not end at {end}"));
        }
        let segment = Segment {
            bits: self.bits,
            seq,
            ack: self.ack.as_ref().map_or(0, number),
            window: self.window.as_ref().map_or(0, number) as u16,
            urgent: self.urgent.as_ref().map_or(0, number) as u16,
            ecn: self.ecn,
            ..Segment::default()
        };
        Ok((segment, len))
    }
}

/// Reads a file of cases.
///
/// # Errors
///
/// Returns the first mistake, with its file and line.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let number = index + 1;
        let fail = |what: String| format!("{file}:{number}: {what}\n    {raw}");
        let line = raw.split("//").next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        if let Some(heading) = line.strip_prefix("RFC ") {
            cases.push(parse_heading(file, number, heading).map_err(fail)?);
            continue;
        }
        let Some(case) = cases.last_mut() else {
            return Err(fail(
                "a file begins with a heading: RFC n, section: name".into(),
            ));
        };
        if let Some(rule) = line.strip_prefix('|') {
            case.rule.push_str(rule);
        } else {
            let line = parse_line(number, line).map_err(fail)?;
            case.lines.push(line);
        }
    }
    match cases.iter().find(|case| case.rule.trim().is_empty()) {
        Some(case) => Err(format!(
            "{}: there is no line | with the rule",
            case.title()
        )),
        None => Ok(cases),
    }
}

fn parse_heading(file: &str, line: usize, heading: &str) -> Result<Case, String> {
    let parts = heading.split_once(": ");
    let parts = parts.and_then(|(section, name)| Some((section.split_once(", ")?, name)));
    let ((rfc, place), name) = parts.ok_or("a heading is: RFC n, section: name")?;
    rfc.parse::<u16>().map_err(|_| "the RFC is not a number")?;
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
    let is_timed = words[0].starts_with(|c: char| c.is_ascii_digit() || "+*".contains(c));
    let time = Time::parse(if is_timed { words.remove(0) } else { "+0" })?;
    let Some((&verb, rest)) = words.split_first() else {
        return Err("a time alone is not a line; write: +time silence".into());
    };
    if !is_timed && (verb == "<" || verb == ">") {
        return Err("a time must come before < and >".into());
    }
    if time.earliest != time.latest && verb != ">" {
        return Err("only a line with > can have a range of times".into());
    }
    Ok(Line {
        number,
        text: text.to_owned(),
        time,
        command: parse_command(verb, rest)?,
    })
}

/// Parses a time in seconds, such as `0.25` or `.25`.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is not a time in seconds");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty() || fraction.len() > 9 {
        return Err(wrong());
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let nanos: u32 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    Ok(Duration::new(whole, nanos))
}

fn parse_command(verb: &str, rest: &[&str]) -> Result<Command, String> {
    let word = |at: usize| {
        let word = rest.get(at).copied();
        word.ok_or_else(|| format!("{verb}: an argument is missing"))
    };
    let expr = |at: usize| word(at).and_then(Expr::parse);
    let name = |at: usize| word(at).map(str::to_owned);
    Ok(match verb {
        "<" if rest.first() == Some(&"icmp") => Command::Icmp(parse_icmp(&rest[1..])?),
        "<" => Command::In(parse_segment(rest)?),
        ">" => Command::Out(parse_segment(rest)?),
        "silence" => Command::Silence,
        "open" => parse_open(rest)?,
        "app" => Command::App(rest.iter().map(ToString::to_string).collect()),
        "log" => Command::Log(rest.join(" ")),
        "count" => Command::Count(name(0)?, expr(1)?),
        "connections" => Command::Connections(expr(0)?),
        "ring" => Command::Ring(expr(0)?),
        "drain" => Command::Drain(rest.first().map(ToString::to_string)),
        "shut-down" => Command::ShutDown,
        "peer" => Command::Peer {
            name: name(0)?,
            like: match rest.get(1) {
                None => None,
                Some(&"like") => Some(name(2)?),
                Some(other) => return Err(format!("{other}: the syntax is: peer name like name")),
            },
        },
        "again" => Command::Again,
        "isn" => Command::Isn {
            of: name(0)?,
            relation: match word(1)? {
                "differs" => Relation::Differs,
                "ahead" => Relation::Ahead,
                number => Relation::By(Expr::parse(number)?),
            },
            from: name(2)?,
        },
        "set" => Command::Set(name(0)?, name(1)?),
        "only" => Command::Only(name(0)?),
        "control" => Command::Control(name(0)?),
        other => return Err(format!("{other} is not a command")),
    })
}

fn parse_open(words: &[&str]) -> Result<Command, String> {
    let (words, options) = cut_options(words)?;
    let (mut window, mut rtt, mut ecn) = (None, Duration::ZERO, false);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut number = || words.next().ok_or(format!("a number must follow {word}"));
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

fn parse_icmp(words: &[&str]) -> Result<Icmp, String> {
    let (error, mtu, about) = match words {
        ["unreachable", "frag_needed", "mtu", mtu, about] => (IcmpError::TooBig(0), *mtu, about),
        ["unreachable", "host_unreachable", about] => (IcmpError::Unreachable(1), "0", about),
        ["unreachable", "protocol_unreachable", about] => (IcmpError::Unreachable(2), "0", about),
        ["unreachable", "port_unreachable", about] => (IcmpError::Unreachable(3), "0", about),
        ["time_exceeded", about] => (IcmpError::TimeExceeded, "0", about),
        other => return Err(format!("{other:?} is not an ICMP error")),
    };
    let range = about
        .strip_prefix('[')
        .and_then(|about| about.strip_suffix(']'));
    let (seq, _, len) = parse_range(range.ok_or("an ICMP error must end with a segment in []")?)?;
    Ok(Icmp {
        error,
        mtu: Expr::parse(mtu)?,
        seq,
        len,
    })
}

/// Parses the options in `<…>`, and returns the other words of the line together with the options.
fn cut_options<'a>(words: &[&'a str]) -> Result<(Vec<&'a str>, Vec<OptionTemplate>), String> {
    let Some(at) = words.iter().position(|word| word.starts_with('<')) else {
        return Ok((words.to_vec(), Vec::new()));
    };
    let end = words.iter().position(|word| word.ends_with('>'));
    let end = end.ok_or("options must end with >")?;
    let list = words[at..=end].join(" ");
    let others = [&words[..at], &words[end + 1..]].concat();
    let mut options = Vec::new();
    for item in list[1..list.len() - 1].split(',') {
        options.extend(parse_option(item)?);
    }
    Ok((others, options))
}

fn parse_option(item: &str) -> Result<Option<OptionTemplate>, String> {
    let words: Vec<&str> = item.split_whitespace().collect();
    let expr = |text: &str| Expr::parse(text);
    Ok(Some(match words.as_slice() {
        // Padding is ignored here: the form of the case determines where padding is placed.
        ["nop" | "eol"] => return Ok(None),
        ["..."] => OptionTemplate::Any,
        ["mss", mss] => OptionTemplate::Mss(expr(mss)?),
        ["wscale", shift] => OptionTemplate::Scale(expr(shift)?),
        ["sackOK"] => OptionTemplate::SackPermitted,
        ["TS", "val", "?", "ecr", echo] => OptionTemplate::AnyTimestamp(expr(echo)?),
        ["TS", "val", value, "ecr", echo] => OptionTemplate::Timestamps(expr(value)?, expr(echo)?),
        ["noTS"] => OptionTemplate::NoTimestamps,
        ["uto", seconds] => OptionTemplate::UserTimeout(expr(seconds)?),
        ["sack", blocks @ ..] if !blocks.is_empty() => {
            let block = |block: &&str| {
                let edges = block.split_once(':');
                let (left, right) = edges.ok_or(format!("{block} is not a block left:right"))?;
                Ok((expr(left)?, expr(right)?))
            };
            OptionTemplate::Sack(blocks.iter().map(block).collect::<Result<_, String>>()?)
        }
        ["raw", bytes @ ..] => {
            let byte = |byte: &&str| u8::from_str_radix(byte, 16);
            let bytes: Result<_, _> = bytes.iter().map(byte).collect();
            OptionTemplate::Raw(bytes.map_err(|_| format!("{item} is not a list of bytes"))?)
        }
        _ => return Err(format!("{item} is not an option")),
    }))
}

/// Parses `SEQ:END(LEN)`.
fn parse_range(text: &str) -> Result<(Expr, Expr, Expr), String> {
    let parts = text.strip_suffix(')').and_then(|text| text.split_once('('));
    let parts = parts.and_then(|(range, len)| Some((range.split_once(':')?, len)));
    let ((seq, end), len) = parts.ok_or_else(|| format!("{text} is not start:end(length)"))?;
    Ok((Expr::parse(seq)?, Expr::parse(end)?, Expr::parse(len)?))
}

fn parse_segment(words: &[&str]) -> Result<Template, String> {
    let (words, options) = cut_options(words)?;
    let mut words = words.into_iter().peekable();
    let ecn = match words.next_if(|word| word.starts_with('[')) {
        None | Some("[noecn]") => 0,
        Some("[ect1]") => 1,
        Some("[ect0]") => 2,
        Some("[ce]") => 3,
        Some(other) => return Err(format!("{other} is not an ECN field")),
    };
    let letters = words
        .next()
        .ok_or("a segment must begin with its control bits")?;
    let range = words.next().ok_or("a range must follow the control bits")?;
    let (seq, end, len) = parse_range(range)?;
    let mut segment = Template {
        bits: parse_bits(letters)?,
        seq,
        end,
        len,
        options,
        ecn,
        times: 1,
        ..Template::default()
    };
    while let Some(word) = words.next() {
        let mut expr = || {
            let value = words.next().ok_or(format!("a number must follow {word}"))?;
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
            _ => {
                let times = word.strip_prefix('x').and_then(|n| n.parse().ok());
                segment.times = times.ok_or_else(|| format!("{word} is not part of a segment"))?;
            }
        }
    }
    if (segment.bits & ACK != 0) != segment.ack.is_some() {
        return Err("a segment must have ack if its control bits have a dot, and only then".into());
    }
    Ok(segment)
}

fn parse_bits(letters: &str) -> Result<u16, String> {
    if letters == "-" {
        return Ok(0);
    }
    letters.chars().try_fold(0, |bits, letter| {
        let bit = LETTERS.iter().find(|(name, _)| *name == letter);
        let (_, bit) = bit.ok_or_else(|| format!("{letter} is not a control bit"))?;
        Ok(bits | bit)
    })
}
