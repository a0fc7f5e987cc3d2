//! Runs each target on the inputs of the committed corpus.

use std::path::Path;

use arbitrary::{Arbitrary as _, Unstructured};

/// Defines a test for each target. It makes inputs from bytes as libFuzzer does.
macro_rules! targets {
    ($($target:ident $input:ty;)*) => {$(
        #[test]
        fn $target() {
            for bytes in inputs(stringify!($target)) {
                if let Ok(input) = <$input>::arbitrary_take_rest(Unstructured::new(&bytes)) {
                    crate::$target::run(&input);
                }
            }
        }
    )*};
}

targets! {
    device_name &str;
    dns_batch crate::dns_batch::Input;
    dns_hook crate::dns_hook::Input;
    dns_query crate::dns_query::Input;
    dns_signed crate::dns_signed::Input;
    http_app crate::http_app::Input;
    http_request crate::http_request::Input;
    ip_receive crate::ip_receive::Frame;
    site_rules crate::site_rules::Input;
    tcp_segments crate::tcp_segments::Input;
    udp_datagram crate::udp_datagram::Input;
    zone_text &str;
}

/// Returns the inputs for a target. The output of a failed test ends with the name of its file.
fn inputs(target: &str) -> impl Iterator<Item = Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let files = std::fs::read_dir(folder).expect("the target has a corpus");
    files.map(|file| {
        let path = file.expect("a file").path();
        println!("{}", path.display());
        std::fs::read(path).expect("a readable file")
    })
}
