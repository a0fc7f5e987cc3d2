//! Tests that no pair of rules tells whether a protected file exists.

use super::*;

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
