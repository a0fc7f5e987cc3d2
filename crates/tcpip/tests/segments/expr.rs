//! Parser of numbers that are sums of terms: `1+3seg`, `RECV-2`, `seg/2`.

/// Current values of the names in expressions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbols {
    /// Number of bytes of data in a full segment.
    pub(crate) seg: i64,
    /// Our own maximum segment size, in bytes.
    pub(crate) mss: i64,
    /// Size of the IP and the TCP header in bytes, without options.
    pub(crate) headers: i64,
    /// Size in bytes of the IP and TCP headers, with the space that each full segment leaves free
    /// for timestamps.
    pub(crate) room: i64,
    /// Size of the receive buffer in bytes.
    pub(crate) recv: i64,
    /// The window scale that we offer.
    pub(crate) scale: i64,
}

impl Symbols {
    fn get(&self, name: Name) -> i64 {
        match name {
            Name::One => 1,
            Name::Seg => self.seg,
            Name::Mss => self.mss,
            Name::Headers => self.headers,
            Name::Room => self.room,
            Name::Recv => self.recv,
            Name::Scale => self.scale,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Name {
    One,
    Seg,
    Mss,
    Headers,
    Room,
    Recv,
    Scale,
}

#[derive(Debug, Clone, Copy)]
struct Term {
    factor: i64,
    name: Name,
    divisor: i64,
}

/// A sum of terms.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expr(Vec<Term>);

impl Expr {
    pub(crate) fn number(number: u32) -> Self {
        Self(vec![Term {
            factor: number.into(),
            name: Name::One,
            divisor: 1,
        }])
    }

    /// Parses a sum.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a sum of numbers and known names.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is not a number");
        let mut terms = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (sign, tail) = match rest.strip_prefix('-') {
                Some(tail) => (-1, tail),
                None => (1, rest.strip_prefix('+').unwrap_or(rest)),
            };
            let end = tail.find(['+', '-']).unwrap_or(tail.len());
            let (term, after) = tail.split_at(end);
            rest = after;
            let (product, divisor) = term.split_once('/').unwrap_or((term, "1"));
            let digits = product
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(product.len());
            let (factor, name) = product.split_at(digits);
            let factor: i64 = match factor {
                "" if name.is_empty() => return Err(wrong()),
                "" => 1,
                number => number.parse().map_err(|_| wrong())?,
            };
            let name = match name {
                "" => Name::One,
                "seg" => Name::Seg,
                "MSS" => Name::Mss,
                "HDR" => Name::Headers,
                "ROOM" => Name::Room,
                "RECV" => Name::Recv,
                "WS" => Name::Scale,
                other => return Err(format!("{other} is not the name of a number")),
            };
            let divisor: i64 = divisor.parse().map_err(|_| wrong())?;
            if divisor == 0 {
                return Err(wrong());
            }
            terms.push(Term {
                factor: sign * factor,
                name,
                divisor,
            });
        }
        if terms.is_empty() {
            return Err(wrong());
        }
        Ok(Self(terms))
    }

    /// Returns the value of the sum. The value wraps at 2^32, like a sequence number.
    pub(crate) fn value(&self, symbols: &Symbols) -> u32 {
        let value = |term: &Term| term.factor * symbols.get(term.name) / term.divisor;
        self.0.iter().map(value).sum::<i64>().cast_unsigned() as u32
    }
}
