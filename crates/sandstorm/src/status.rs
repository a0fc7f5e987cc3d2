//! Status codes: those that the server itself sends, and those available to an application.

use std::fmt::{self, Display};

/// The statuses that the server sends itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// The file is sent.
    Ok,
    /// The methods are listed that the target supports.
    NoContent,
    /// Parts of the file are sent.
    PartialContent,
    /// The target has moved for good, for example because the path of a folder lacks its final slash.
    MovedPermanently,
    /// The target has moved for now.
    Found,
    /// Another target has the answer.
    SeeOther,
    /// The client already has the file.
    NotModified,
    /// The target has moved for now, and the method stays the same.
    TemporaryRedirect,
    /// The target has moved for good, and the method stays the same.
    PermanentRedirect,
    /// The request is invalid.
    BadRequest,
    /// The target needs a name and a password, and the request has no right ones.
    Unauthorized,
    /// A rule of the site forbids the target.
    Forbidden,
    /// The file does not exist.
    NotFound,
    /// Files do not support the method.
    MethodNotAllowed,
    /// The target is gone for good, by a rule of the site.
    Gone,
    /// `If-Match` or `If-Unmodified-Since` does not hold.
    PreconditionFailed,
    /// The body is longer than the application accepts.
    ContentTooLarge,
    /// The request line is too long.
    UriTooLong,
    /// The file has none of the bytes that the client asks for.
    RangeNotSatisfiable,
    /// `Expect` contains something other than `100-continue`.
    ExpectationFailed,
    /// No site is served for the host.
    MisdirectedRequest,
    /// There are too many fields, or they are too long.
    HeadTooLarge,
    /// The application's response cannot be sent.
    InternalServerError,
    /// The method or a transfer coding is unknown.
    NotImplemented,
    /// The server has no memory for the request, or has evicted the request to free memory.
    ServiceUnavailable,
    /// The application has not answered in time.
    GatewayTimeout,
    /// The major version of HTTP is not 1.
    VersionNotSupported,
}

impl Status {
    /// All statuses, in the order of their codes.
    pub const ALL: [Self; 27] = [
        Self::Ok,
        Self::NoContent,
        Self::PartialContent,
        Self::MovedPermanently,
        Self::Found,
        Self::SeeOther,
        Self::NotModified,
        Self::TemporaryRedirect,
        Self::PermanentRedirect,
        Self::BadRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Gone,
        Self::PreconditionFailed,
        Self::ContentTooLarge,
        Self::UriTooLong,
        Self::RangeNotSatisfiable,
        Self::ExpectationFailed,
        Self::MisdirectedRequest,
        Self::HeadTooLarge,
        Self::InternalServerError,
        Self::NotImplemented,
        Self::ServiceUnavailable,
        Self::GatewayTimeout,
        Self::VersionNotSupported,
    ];

    /// The three-digit code.
    pub const fn code(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::NoContent => 204,
            Self::PartialContent => 206,
            Self::MovedPermanently => 301,
            Self::Found => 302,
            Self::SeeOther => 303,
            Self::NotModified => 304,
            Self::TemporaryRedirect => 307,
            Self::PermanentRedirect => 308,
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Gone => 410,
            Self::PreconditionFailed => 412,
            Self::ContentTooLarge => 413,
            Self::UriTooLong => 414,
            Self::RangeNotSatisfiable => 416,
            Self::ExpectationFailed => 417,
            Self::MisdirectedRequest => 421,
            Self::HeadTooLarge => 431,
            Self::InternalServerError => 500,
            Self::NotImplemented => 501,
            Self::ServiceUnavailable => 503,
            Self::GatewayTimeout => 504,
            Self::VersionNotSupported => 505,
        }
    }

    /// Returns the status of the server with this code, if it has one.
    pub(crate) fn of_code(code: StatusCode) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|status| status.code() == code.code())
    }

    /// The three digits of the code, as text.
    pub const fn digits(self) -> &'static str {
        match self {
            Self::Ok => "200",
            Self::NoContent => "204",
            Self::PartialContent => "206",
            Self::MovedPermanently => "301",
            Self::Found => "302",
            Self::SeeOther => "303",
            Self::NotModified => "304",
            Self::TemporaryRedirect => "307",
            Self::PermanentRedirect => "308",
            Self::BadRequest => "400",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::NotFound => "404",
            Self::MethodNotAllowed => "405",
            Self::Gone => "410",
            Self::PreconditionFailed => "412",
            Self::ContentTooLarge => "413",
            Self::UriTooLong => "414",
            Self::RangeNotSatisfiable => "416",
            Self::ExpectationFailed => "417",
            Self::MisdirectedRequest => "421",
            Self::HeadTooLarge => "431",
            Self::InternalServerError => "500",
            Self::NotImplemented => "501",
            Self::ServiceUnavailable => "503",
            Self::GatewayTimeout => "504",
            Self::VersionNotSupported => "505",
        }
    }

    /// The reason phrase.
    pub const fn reason(self) -> &'static str {
        reason(self.code())
    }

    /// The explanation on the page about this status.
    pub(crate) const fn explanation(self) -> &'static str {
        match self {
            Self::Ok
            | Self::NoContent
            | Self::PartialContent
            | Self::MovedPermanently
            | Self::Found
            | Self::SeeOther
            | Self::NotModified
            | Self::TemporaryRedirect
            | Self::PermanentRedirect
            | Self::Forbidden
            | Self::Gone => "",
            Self::Unauthorized => "This page needs a name and a password.",
            Self::BadRequest => "What was received is no valid HTTP request.",
            Self::NotFound => "There is no file of this name.",
            Self::MethodNotAllowed => "This method is not allowed here.",
            Self::PreconditionFailed => "The file is not the one that the request is about.",
            Self::ContentTooLarge => "The request's body is longer than this server takes.",
            Self::UriTooLong => "The request line is longer than this server reads.",
            Self::RangeNotSatisfiable => "The file has none of these bytes.",
            Self::MisdirectedRequest => "This server has no site for this host.",
            Self::ExpectationFailed => "This server meets no expectation but 100-continue.",
            Self::HeadTooLarge => "The request has more fields than this server reads.",
            Self::InternalServerError => "This server has no answer that it can send.",
            Self::ServiceUnavailable => "The server cannot send this now; try again later.",
            Self::GatewayTimeout => "The answer did not come in time.",
            Self::NotImplemented => {
                "This server does not know the request's method, or its transfer coding."
            }
            Self::VersionNotSupported => "This server speaks HTTP/1.0 and HTTP/1.1.",
        }
    }
}

impl Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code(), self.reason())
    }
}

/// The status of a response that an application makes: 200 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatusCode(u16);

impl StatusCode {
    /// The code 200.
    pub const OK: Self = Self(200);

    /// Makes a status from a three-digit code. Returns `None` if the code is not from 200 to 599,
    /// because other codes are not for final responses (RFC 9110, section 15).
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            200..=599 => Some(Self(code)),
            _ => None,
        }
    }

    /// The three-digit code.
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Returns true if responses with this status never have a body (RFC 9110, section 6.4.1).
    pub(crate) const fn is_bodiless(self) -> bool {
        matches!(self.0, 204 | 304)
    }
}

impl From<Status> for StatusCode {
    fn from(status: Status) -> Self {
        Self(status.code())
    }
}

impl Display for StatusCode {
    /// Writes the code and, if it is known, the reason phrase.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, reason(self.0))
    }
}

/// Returns the reason phrase of a code (RFC 9110, section 15; RFC 6585), or an empty string if the
/// code is not in this list.
const fn reason(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_index_and_a_reason() {
        for (place, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, place);
            assert_ne!(status.reason(), "");
            assert_eq!(status.digits(), status.code().to_string());
            assert_eq!(StatusCode::from(status).to_string(), status.to_string());
        }
        assert!(Status::ALL.is_sorted_by_key(|status| status.code()));
    }

    #[test]
    fn only_codes_of_final_responses_are_accepted() {
        for (code, is_final) in [
            (100, false),
            (199, false),
            (200, true),
            (599, true),
            (600, false),
        ] {
            assert_eq!(StatusCode::new(code).is_some(), is_final, "{code}");
        }
        assert_eq!(StatusCode::new(299).unwrap().to_string(), "299 ");
    }
}
