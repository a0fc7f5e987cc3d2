//! Tests that no pair of rules tells whether a protected file exists.

use super::*;
use crate::coder::{Coder, Effort, Made};
use crate::coding::Coding;

/// Returns the statuses of paths, without a password and with it.
fn both(rules: &[&str], paths: &[&str]) -> (Vec<u16>, Vec<u16>) {
    let mut world = Place::new(rules).world(SiteOnly);
    let mut of = |pair| {
        let requests: Vec<_> = paths.iter().map(|path| get(path, pair)).collect();
        statuses(&mut world, &requests)
    };
    (of(""), of("ali:sesame"))
}

#[test]
fn a_forced_rewrite_of_a_file_asks_for_the_password_whether_or_not_its_target_exists() {
    let rules = ["/:name /private/:name 200!"];
    // The protected part has a file only for the first one.
    let (unknown, known) = both(&rules, &["/index.html", "/page.html", "/privately.txt"]);
    assert_eq!(unknown, [401; 3]);
    assert_eq!(known, [200; 3]);
    let (unknown, known) = both(&["/page.html /private/none 200!"], &["/page.html"]);
    assert_eq!((unknown, known), (vec![401], vec![200]));
}

#[test]
fn a_rule_for_one_path_behind_a_rewrite_asks_for_the_password_in_any_case() {
    for later in [
        "/below/none /page.html 200",
        "/below/none /page.html 302",
        "/below/none /page.html 404",
    ] {
        let there = later.replace("none", "index.html");
        let rules = ["/below/* /private/:splat 200", later, &there];
        let (unknown, known) = both(&rules, &["/below/none", "/below/index.html"]);
        assert_eq!(unknown, [401; 2], "{later}");
        let status = later[later.len() - 3..].parse().unwrap();
        assert_eq!(known, [status, 200], "{later}");
    }
}

#[test]
fn a_rule_that_holds_in_any_case_needs_no_password_because_of_later_ones() {
    let rules = [
        "/below/open* /page.html 200",
        "/below/moved* /page.html 302",
        "/below/file* /page.html 200",
        "/below/* /private/:splat 200",
        "/page.html /privately.txt 200!",
        "/:name /private/:name 200!",
    ];
    let (unknown, _) = both(
        &rules,
        &[
            "/below/open",
            "/below/moved",
            "/page.html",
            "/below/x",
            "/x",
        ],
    );
    assert_eq!(unknown, [200, 302, 200, 401, 401]);
}

#[test]
fn an_encoded_slash_does_not_lead_past_the_password() {
    let moved = "/below/:a/:b /page.html 302";
    for target in ["/private/none", "/private/index.html"] {
        let behind = format!("/below/* {target} 200");
        let (unknown, known) = both(&[moved, &behind], &["/below/a%2Fb", "/below/a/b"]);
        assert_eq!(unknown, [401, 302], "{target}");
        let status = if target.ends_with("none") { 404 } else { 200 };
        assert_eq!(known, [status, 302], "{target}");
    }
}

/// With this file, folders of the site are listed.
const LISTED: &str = "listed/x.txt";

/// A site with clean URLs where these parts need a password.
fn site_of(parts: &[&str], files: &[&str]) -> Arc<Site> {
    let place = Place::new(&["/rule /secret 200", "/secret /page.html 200"]);
    let site = place.folder.path().join("site");
    for file in files {
        fs::create_dir_all(site.join(file).parent().unwrap()).unwrap();
        fs::write(site.join(file), "content").unwrap();
    }
    let mut settings = place.settings.clone();
    settings.clean_urls = true;
    settings.listings = files.contains(&LISTED);
    let users = place.folder.path().join("users");
    for part in parts {
        let part = format!("{part}={}", users.display());
        settings.add_basic_auth(&part).unwrap();
    }
    let loaded = Site::load_with(&site, &Limits::default(), &settings, |_| {});
    Arc::new(loaded.unwrap())
}

/// The statuses of paths without a password, and with it, of a site where these files need one.
fn of_single_files(parts: &[&str], files: &[&str], paths: &[&str]) -> [Vec<u16>; 2] {
    let site = site_of(parts, files);
    ["", "ali:sesame"].map(|pair| {
        let mut world = world(&site, SiteOnly);
        let requests: String = paths.iter().map(|path| get(path, pair)).collect();
        let last = request("GET", "/none", "Connection: close\r\n");
        world.connect(&(requests + &last));
        assert!(world.run(|_| false));
        let mut rest = world.received(0);
        let status =
            |_: &&str| take_response(&mut rest, true).0["HTTP/1.1 ".len()..][..3].parse::<u16>();
        paths.iter().map(status).collect::<Result<_, _>>().unwrap()
    })
}

#[test]
fn all_paths_of_a_single_file_need_its_password_whether_or_not_it_is_there() {
    let names = [
        "/secret.html",
        "/secret",
        "/secret/",
        "/%73ecret",
        "/secret%2F",
        "/rule",
    ];
    let files = [&[][..], &["secret.html"]];
    for (files, status) in files.into_iter().zip([404, 200]) {
        let [unknown, known] = of_single_files(&["/secret.html"], files, &names);
        assert_eq!(unknown, [401; 6], "{files:?}");
        assert_eq!([known[0], known[5]], [status; 2], "{files:?}");
    }
    let names = [
        "/dir/index.html",
        "/dir/",
        "/dir",
        "/dir/index",
        "/dir/index/",
    ];
    let files = [&["dir/other.txt"][..], &["dir/index.html"]];
    let known = [vec![404; 5], vec![200, 200, 301, 200, 301]];
    for (files, known) in files.into_iter().zip(known) {
        for parts in [&["/dir/index.html"][..], &["/dir/index.html", "/"]] {
            let of = of_single_files(parts, files, &names);
            assert_eq!(of, [vec![401; 5], known.clone()], "{files:?}");
        }
    }
}

#[test]
fn a_path_with_the_page_of_another_file_stays_open() {
    let names = ["/secret.html", "/secret", "/secret/", "/secret/x.txt"];
    let files = ["secret/index.html", "secret/x.txt", "secret.html"];
    for files in [&files[..], &files[..2]] {
        let [unknown, _] = of_single_files(&["/secret.html"], files, &names);
        assert_eq!(unknown, [401, 301, 200, 200], "{files:?}");
    }
    // The page of a clean URL hides the folder, whose index needs the password.
    let of = of_single_files(
        &["/dir/index.html"],
        &["dir.html", "dir/x.txt"],
        &["/dir", "/dir/"],
    );
    assert_eq!(of, [[200, 401], [200, 301]]);
}

#[test]
fn what_lies_beside_a_protected_index_does_not_tell_whether_it_is_there() {
    let paths = ["/dir", "/dir/", "/dir/index", "/dir/index.json", "/dir?x"];
    for (beside, unknown) in [
        (&["dir.html", "dir/x.txt"][..], [200, 401, 401, 404, 200]),
        (&["dir.html", LISTED], [200, 401, 401, 401, 200]),
        (&["dir/x.txt", LISTED], [401; 5]),
        (&["dir/index.json", LISTED], [401, 401, 401, 200, 401]),
    ] {
        let with_index = [beside, &["dir/index.html"]].concat();
        for files in [beside, &with_index] {
            let [of, _] = of_single_files(&["/dir/index.html"], files, &paths);
            assert_eq!(of, unknown, "{files:?}");
        }
    }
    let files = ["dir.html", "dir/index.html"];
    let [_, known] = of_single_files(&["/dir/index.html"], &files, &paths);
    assert_eq!(known, [200, 200, 200, 404, 200]);
    // Without a password, the folder comes first.
    let [of, _] = of_single_files(&["/other"], &files, &paths);
    assert_eq!(of, [301, 200, 200, 404, 301]);
}

/// The list in JSON belongs to the part of the list in HTML, and shows the same entries.
#[test]
fn a_list_of_a_protected_index_needs_its_password() {
    let site = site_of(&["/dir/index.html"], &["dir/x.txt", LISTED]);
    for path in ["/dir/", "/dir/index.json"] {
        let part = site.realm(path.as_bytes(), site.find(path.as_bytes()).ok());
        assert_eq!(part.unwrap().describe(), "/dir/index.html", "{path}");
    }
}

/// A list of one part does not show the names of another part.
#[test]
fn a_list_in_json_with_a_password_of_its_own_leaves_out_what_needs_another_one() {
    for (parts, is_shown) in [
        (&["/listed"][..], true),
        (&["/listed", "/listed/index.json"], false),
    ] {
        let mut world = world(&site_of(parts, &[LISTED]), SiteOnly);
        let [(status, list)] =
            &exchange(&mut world, &[get("/listed/index.json", "ali:sesame")])[..]
        else {
            panic!("one response");
        };
        assert_eq!(*status, 200, "{list}");
        assert_eq!(list.contains("x.txt"), is_shown, "{list}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_protected_file_is_neither_the_form_nor_the_error_page_of_open_ones() {
    let place = Place::new(&[]);
    let site = place.folder.path().join("site");
    let long = "long ".repeat(200);
    let coder = Coder::open(Effort::Fast, None, u64::MAX).unwrap();
    let Made::Coded(coded) = coder.make(long.as_bytes(), Coding::Gzip) else {
        panic!("the text can be compressed");
    };
    fs::write(site.join("long.txt"), &long).unwrap();
    fs::write(site.join("long.txt.gz"), &coded[..]).unwrap();
    fs::write(site.join("404.html"), "of all").unwrap();
    for part in ["/other", "/long.txt.gz", "/404.html"] {
        let mut settings = place.settings.clone();
        let users = place.folder.path().join("users");
        let realm = format!("{part}={}", users.display());
        settings.add_basic_auth(&realm).unwrap();
        let loaded = Site::load_with(&site, &Limits::default(), &settings, |_| {}).unwrap();
        let mut world = world(&Arc::new(loaded), SiteOnly);
        let coded = request("GET", "/long.txt", "Accept-Encoding: gzip\r\n");
        let all = exchange(&mut world, &[coded, get("/none", "")]);
        let is_coded = all[0].1 != long;
        let has_page = all[1].1 == "of all";
        assert_eq!((all[0].0, all[1].0), (200, 404));
        assert_eq!(is_coded, part != "/long.txt.gz", "{part}");
        assert_eq!(has_page, part != "/404.html", "{part}");
    }
}

#[test]
fn a_path_that_has_a_part_of_its_own_does_not_belong_to_a_single_file() {
    for (parts, paths) in [
        (["/secret.html", "/secret"], ["/secret/", "/secret"]),
        (["/dir/index.html", "/dir"], ["/dir/", "/dir"]),
    ] {
        let site = site_of(&parts, &["dir/other.txt"]);
        for path in paths {
            let page = site.find(path.as_bytes()).ok();
            let part = site.realm(path.as_bytes(), page).unwrap();
            assert_eq!(part.describe(), parts[1], "{path}");
        }
    }
}

/// The answer to such a request belongs to its client.
#[test]
fn a_part_of_a_protected_file_is_never_kept() {
    let mut world = Place::new(&[]).world(SiteOnly);
    let contents = |world: &World| {
        let stack = world.server.transports.stack();
        stack.contents().totals().contents
    };
    let before = contents(&world);
    let of = |path: &str| {
        let close = "\r\nRange: bytes=1-3\r\nConnection: close\r\n\r\n";
        get(path, "ali:sesame").replace("\r\n\r\n", close)
    };
    for n in 0..4 {
        world.connect(&of("/private/index.html"));
        assert!(world.run(|_| false));
        let mut rest = world.received(n);
        let (line, _, body) = take_response(&mut rest, true);
        assert_eq!((line, body), ("HTTP/1.1 206 Partial Content", &b"ont"[..]));
    }
    assert_eq!(contents(&world), before);
}
