//! Response codes (RFC 1035, section 4.1.1; RFC 6891, section 9).

/// No error.
pub const NOERROR: u16 = 0;
/// The query is malformed.
pub const FORMERR: u16 = 1;
/// A zone that is needed for the answer could not be loaded, or the hook returned an error.
pub const SERVFAIL: u16 = 2;
/// The name does not exist.
pub const NXDOMAIN: u16 = 3;
/// This kind of query is not supported.
pub const NOTIMP: u16 = 4;
/// The server does not answer this query, for example because the name is outside its zones.
pub const REFUSED: u16 = 5;
/// A DNAME substitution makes the name too long (RFC 6672).
pub const YXDOMAIN: u16 = 6;
/// The server has no zone of this name (RFC 5936, section 2.2.1).
pub const NOTAUTH: u16 = 9;
/// The query's EDNS version is not supported.
pub const BADVERS: u16 = 16;
/// The client must send the query again with the cookie of the reply (RFC 7873, section 8).
pub const BADCOOKIE: u16 = 23;
