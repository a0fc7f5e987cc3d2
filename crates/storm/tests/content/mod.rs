//! Content for a server whose figures a test looks at.

use std::fs;
use std::path::Path;

/// Makes a folder with one page and a file with the zone `a.test` in `folder`. Returns the path of
/// the site's folder, which is called `site`, of the zone's file, and of a control socket.
pub(crate) fn content(folder: &Path, site: &str) -> [String; 3] {
    let [www, zone, socket] = [site, "a.zone", "socket"].map(|name| folder.join(name));
    fs::create_dir(&www).unwrap();
    fs::write(www.join("index.html"), "a page").unwrap();
    let records = "@ 60 IN SOA a a 1 1 1 1 1\n@ 60 IN NS a\na 60 IN A 192.0.2.1\n";
    fs::write(&zone, format!("$ORIGIN a.test.\n{records}")).unwrap();
    [www, zone, socket].map(|path| path.to_str().unwrap().to_owned())
}
