//! Checks the data of records.

use domain::base::rdata::{ComposeRecordData, ParseRecordData};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;

/// Returns true if `data` is valid, uncompressed data of type `rtype`. Parses the data and composes
/// it again, which must reproduce `data`. `recomposed` is a scratch buffer.
pub(crate) fn is_data_of(rtype: u16, data: &[u8], recomposed: &mut Vec<u8>) -> bool {
    recomposed.clear();
    let mut parser = Parser::from_ref(data);
    let parsed =
        ZoneRecordData::<_, domain::base::ParsedName<_>>::parse_rdata(rtype.into(), &mut parser);
    parsed.is_ok_and(|parsed| {
        parsed.is_some_and(|parsed| {
            let Ok(()) = parsed.compose_rdata(recomposed);
            parser.remaining() == 0 && recomposed == data
        })
    })
}
