//! Tests of rules for response fields.

use proptest::prelude::*;

use super::*;

/// The rules of a text without wrong lines.
fn rules(text: &str) -> HeaderRules {
    let (rules, errors) = parse_headers(text);
    assert_eq!(errors, []);
    rules.into_iter().collect()
}

const TEXT: &str = "\
# fields of all files
/*
  X-Frame-Options: DENY
  Cache-Control: no-cache
  Content-Type: text/plain

/assets/*  # hashed
\tcache-control:max-age=31536000, immutable # kept
  Link: </a.css>; rel=preload
  Link: </b.css>; rel=preload
  ! X-Frame-Options

/assets/:name
  cache-control: no-store
";

#[test]
fn a_placeholder_of_the_path_in_a_value_is_refused() {
    for (pattern, value, placeholder) in [
        ("/a/:name", "</b/:name>", "name"),
        ("/a/*", "https://b.test/:splat", "splat"),
        ("/:a/:b", "x: :b", "b"),
    ] {
        let rule = format!("{pattern} Link: {value}").parse::<HeaderRule>();
        let placeholder = placeholder.to_owned();
        let wrong = rule.unwrap_err();
        let why = RuleError::PlaceholderInValue { placeholder };
        let at = pattern.len() + " Link: ".len();
        assert_eq!(wrong.iter().collect::<Vec<_>>(), [(at, &why)]);
    }
    for rule in [
        "/a/:name Link: https://b.test:8080/:names",
        "/a Link: </:name>",
        "/* Link: https://b.test/: :",
    ] {
        assert!(rule.parse::<HeaderRule>().is_ok(), "{rule}");
    }
}

#[test]
fn later_rules_replace_the_fields_of_earlier_ones() {
    let rules = rules(TEXT);
    for (path, lines) in [
        (
            "/",
            "X-Frame-Options: DENY\r\nCache-Control: no-cache\r\nContent-Type: text/plain\r\n",
        ),
        (
            "/assets/a/b",
            "Content-Type: text/plain\r\n\
             cache-control: max-age=31536000, immutable # kept\r\n\
             Link: </a.css>; rel=preload\r\nLink: </b.css>; rel=preload\r\n",
        ),
        (
            "/assets/a",
            "Content-Type: text/plain\r\n\
             Link: </a.css>; rel=preload\r\nLink: </b.css>; rel=preload\r\n\
             cache-control: no-store\r\n",
        ),
    ] {
        assert_eq!(
            rules.fields_for(&[path.as_bytes()]).lines(),
            lines,
            "{path}"
        );
    }
    assert_eq!(rules.for_everything().lines(), "X-Frame-Options: DENY\r\n");
    assert!(HeaderRules::default().fields_for(&[b"/"]).is_empty());
}

#[test]
fn a_rule_with_a_star_before_an_extension_narrows_a_wider_one() {
    let text = "/*\n Cache-Control: max-age=31536000\n/*.html\n Cache-Control: no-cache\n";
    let rules = rules(text);
    for (paths, value) in [
        (["/a/b.html", "/a/b"], "no-cache"),
        (["/index.html", "/"], "no-cache"),
        (["/a.css", "/a.css"], "max-age=31536000"),
    ] {
        let lines = format!("Cache-Control: {value}\r\n");
        assert_eq!(rules.fields_for(&paths.map(str::as_bytes)).lines(), lines);
    }
    assert!(rules.for_errors().is_empty());
}

#[test]
fn a_rule_removes_only_fields_of_earlier_rules_and_of_all_responses() {
    let rules = rules("/*\n A: 1\n B: 1\n/x\n A: 2\n ! A\n ! b\n ! C\n/*\n ! E\n");
    assert_eq!(rules.fields_for(&[b"/x"]).lines(), "A: 2\r\n");
    assert_eq!(rules.fields_for(&[b"/y"]).lines(), "A: 1\r\nB: 1\r\n");
    let common = Fields::of_all([("c", "3"), ("D", "3"), ("E", "3")]).unwrap();
    let common_for = |path| rules.common_for(&common, &[b"/z", path]);
    assert_eq!(common_for(b"/x").lines(), "D: 3\r\n");
    assert_eq!(common_for(b"/y").lines(), "c: 3\r\nD: 3\r\n");
    let everywhere = rules.common_for_everything(&common);
    assert_eq!(everywhere.lines(), "c: 3\r\nD: 3\r\n");
    assert!(rules.matching(b"/x").replaces("C"));
    assert!(!rules.matching(b"/y").replaces("C"));
}

#[test]
fn rules_add_to_lists() {
    let text = "/*\n Vary: Origin\n Server-Timing: a\n Link: </a>\n/x/*\n vary: Accept\n Link: </b>\n\
                /x/y/*\n Vary: Origin\n ! link\n Link: </c>\n Cache-Control: no-cache\n";
    let rules = rules(text);
    for (path, lines) in [
        ("/", "Vary: Origin\r\nServer-Timing: a\r\nLink: </a>\r\n"),
        (
            "/x",
            "Vary: Origin\r\nServer-Timing: a\r\nLink: </a>\r\nvary: Accept\r\nLink: </b>\r\n",
        ),
        (
            "/x/y",
            "Server-Timing: a\r\nvary: Accept\r\nVary: Origin\r\nLink: </c>\r\n\
             Cache-Control: no-cache\r\n",
        ),
    ] {
        let path = path.as_bytes();
        assert_eq!(rules.fields_for(&[path]).lines(), lines);
        let of_error: String = rules.matching(path).lines().collect();
        assert_eq!(of_error, lines);
    }
    assert!(!rules.matching(b"/x").replaces("Link"));
    assert!(rules.matching(b"/x/y").replaces("Link"));
}

#[test]
fn wrong_lines_are_left_out() {
    let text = "\u{feff} A: early\n/a\nB: bare\n C: 1\n D\n ETag: x\n Date: x\n E: \x01\n! C\n\
                /none\nhttps://a.test/*\n F: 1\n/a b\n G: 1\n/b\n ! age\n ! \n/c\n";
    let (rules, errors) = parse_headers(text);
    assert_eq!(rules, ["/a C: 1".parse().unwrap()]);
    let name = |name: &str| name.to_owned();
    let expected = [
        (1, 2, RuleError::NoPath),
        (3, 1, RuleError::NotIndented),
        (5, 2, RuleError::NotAField { text: name("D") }),
        (6, 2, RuleError::OfFiles { name: name("ETag") }),
        (7, 2, FieldError::Ours { name: name("Date") }.into()),
        (8, 5, FieldError::BadValue { name: name("E") }.into()),
        (9, 1, RuleError::NotIndented),
        (10, 1, RuleError::NoFields),
        (
            11,
            1,
            RuleError::Domain {
                text: name("https://a.test/*"),
            },
        ),
        (13, 1, RuleError::BadByte),
        (16, 4, RuleError::OfFiles { name: name("age") }),
        (17, 3, FieldError::BadName { name: name("") }.into()),
        (18, 1, RuleError::NoFields),
    ];
    let error = |(line, column, why)| LineError { line, column, why };
    assert_eq!(errors, expected.map(error));
}

#[test]
fn an_option_is_one_rule_with_one_field() {
    let options = [
        "/*  A: x: y ",
        "/*\tVary: Accept",
        "/b ! a",
        "/b Content-Language: de",
    ];
    let rules: HeaderRules = options
        .map(|text| text.parse().unwrap())
        .into_iter()
        .collect();
    let lines = |path: &[u8]| rules.fields_for(&[path]).lines().to_owned();
    assert_eq!(lines(b"/"), "A: x: y\r\nVary: Accept\r\n");
    assert_eq!(lines(b"/b"), "Vary: Accept\r\nContent-Language: de\r\n");
    let errors = |text: &str| {
        let wrong = text.parse::<HeaderRule>().unwrap_err();
        wrong.iter().map(|(_, why)| why.clone()).collect::<Vec<_>>()
    };
    let no_field = |text: &str| RuleError::NotAField { text: text.into() };
    assert_eq!(errors("/a"), [no_field("")]);
    assert_eq!(errors("/a b"), [no_field("b")]);
    let no_path = RuleError::NotAPath { text: "A:".into() };
    assert_eq!(errors("A: b"), [no_path, no_field("b")]);
    let name = "Last-Modified".into();
    assert_eq!(errors("/a Last-Modified: x"), [RuleError::OfFiles { name }]);
}

#[test]
fn all_wrong_words_of_a_rule_are_named() {
    let places = |text: &str| {
        let wrong = text.parse::<HeaderRule>().unwrap_err();
        wrong.iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(places(" a ETag: \x01"), [1, 3, 9]);
    assert_eq!(places("a b"), [0, 2]);
    let (rules, errors) = parse_headers("/:a\n A: 1\n ETag: x:a\n Age: :a\n");
    // A field with a wrong word is left out.
    assert_eq!(rules, ["/:a A: 1".parse().unwrap()]);
    let columns: Vec<_> = errors.iter().map(|one| (one.line, one.column)).collect();
    assert_eq!(columns, [(3, 2), (3, 8), (4, 2), (4, 7)]);
}

#[test]
fn a_field_that_does_not_fit_is_left_out() {
    let long = "x".repeat(MAX_FIELDS_LEN - 100);
    let text = format!("/*\n A: {long}\n/a\n B: {long}\n C: 1\n/b\n A: 1\n");
    let rules = rules(&text);
    let names = |path: &[u8]| -> Vec<String> {
        let fields = rules.fields_for(&[path]);
        assert!(fields.lines().len() <= MAX_FIELDS_LEN);
        fields.iter().map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(names(b"/a"), ["A", "C"]);
    assert_eq!(rules.fields_for(&[b"/b"]).lines(), "A: 1\r\n");
}

#[test]
fn the_number_of_rules_is_limited() {
    let text = "/a\n A: 1\n".repeat(MAX_HEADER_RULES + 1);
    let (rules, errors) = parse_headers(&text);
    assert_eq!(rules.len(), MAX_HEADER_RULES);
    let why = RuleError::TooManyHeaderRules;
    let line = 2 * MAX_HEADER_RULES + 1;
    let column = 1;
    assert_eq!(errors, [LineError { line, column, why }]);
}

proptest! {
    /// Checks that each error has a place in the text, that no text causes a panic, and that an HTTP parser accepts
    /// the fields.
    #[test]
    fn no_text_causes_a_panic(
        text in "(\\PC{0,9}|(/\\*?|\n [A-Ca-c]: ?[a-z#!:\r\t]{0,3}|\n ! ?[A-C])|[\r\n\t #!:é]){0,20}",
    ) {
        let (rules, errors) = parse_headers(&text);
        let mut wrong: Vec<_> = errors.iter().map(|error| error.line).collect();
        wrong.dedup();
        prop_assert!(rules.len() + wrong.len() <= text.lines().count());
        prop_assert!(errors.iter().all(|error| error.is_in(&text)), "{errors:?}");
        let _ = text.parse::<HeaderRule>();
        let rules: HeaderRules = rules.into_iter().collect();
        for fields in [rules.fields_for(&[b"/"]), rules.for_everything()] {
            let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", fields.lines());
            let mut read = [httparse::EMPTY_HEADER; 64];
            let mut response = httparse::Response::new(&mut read);
            prop_assert!(response.parse(head.as_bytes()).unwrap().is_complete());
            prop_assert_eq!(response.headers.len(), fields.iter().count());
        }
    }
}

#[test]
fn a_path_without_fields_is_reported_at_its_own_column() {
    for (text, at) in [("/a\n/b\n  A: b\n", 1), ("\r/a\n", 2), ("\u{c}\r/a", 3)] {
        let (_, errors) = parse_headers(text);
        let [error] = &errors[..] else {
            panic!("{text:?}: {errors:?}");
        };
        assert_eq!((error.line, error.column), (1, at), "{text:?}");
        assert_eq!(error.why, RuleError::NoFields, "{text:?}");
    }
}
