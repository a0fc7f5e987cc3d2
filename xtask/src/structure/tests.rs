//! Tests that the checks find each fault and accept correct code.

use super::*;

/// Builds a crate from files with paths below `src`.
fn sources(texts: &[(&str, &str)]) -> Files {
    let parse = |(path, text): &(&str, &str)| {
        let file = tree::File::parse(text).expect("the test's code is Rust");
        (Path::new("src").join(path), file)
    };
    texts.iter().map(parse).collect()
}

/// Returns all edges as `a.rs -> b.rs`, without the folder `src/`.
fn edges_of(texts: &[(&str, &str)]) -> Vec<String> {
    let files = sources(texts);
    let tree = trees(&files).next().expect("the test has a root");
    let edges = cycles::edges(&tree);
    let shown = |(from, to): &(&Path, &Path)| format!("{} -> {}", from.display(), to.display());
    edges
        .keys()
        .map(|edge| shown(edge).replace("src/", ""))
        .collect()
}

fn open_items_of(texts: &[(&str, &str)]) -> usize {
    open_items(&sources(texts)).values().sum()
}

const LIB: (&str, &str) = ("lib.rs", "mod a; mod b;");

#[test]
fn a_use_and_a_qualified_path_are_edges() {
    let used = ("a.rs", "use crate::b::B; fn f(_: B) {}");
    assert_eq!(
        edges_of(&[LIB, used, ("b.rs", "pub struct B;")]),
        ["a.rs -> b.rs"]
    );
    for code in [
        "fn f(_: crate::b::B) {}",
        "fn f() { super::b::g(); }",
        "fn f() { assert!(x == [crate::b::N]); }",
        "use crate::b::{self, g as h};",
        "use super::b::*;",
        "fn f() { use crate::b; b::g(); }",
        "mod inner { use super::super::b::g; }",
    ] {
        let b = ("b.rs", "pub struct B; pub fn g() {} pub const N: u8 = 0;");
        assert_eq!(
            edges_of(&[LIB, ("a.rs", code), b]),
            ["a.rs -> b.rs"],
            "{code}"
        );
    }
}

#[test]
fn an_edge_through_re_exports_leads_to_the_defining_file() {
    let lib = ("lib.rs", "mod a; mod b; pub use a::A; pub(crate) use b::c;");
    let a = ("a.rs", "pub struct A;");
    let b = ("b.rs", "pub(crate) mod c; use crate::A;");
    let c = ("b/c.rs", "use crate::A; fn f(_: A) {}");
    assert_eq!(
        edges_of(&[lib, a, b, c]),
        ["b/c.rs -> a.rs", "b.rs -> a.rs"]
    );
}

#[test]
fn declarations_and_re_exports_of_children_are_not_edges() {
    let quiet = "mod a; mod b; pub use a::A; pub(crate) use b::*;";
    let (a, b) = (("a.rs", "pub struct A;"), ("b.rs", "pub struct B;"));
    assert!(edges_of(&[("lib.rs", quiet), a, b]).is_empty());
    // A parent's code that uses its child's item depends on the child's file.
    let needs = "mod a; mod b; pub use a::A; struct Holder(A);";
    assert_eq!(edges_of(&[("lib.rs", needs), a, b]), ["lib.rs -> a.rs"]);
    // A re-export of a sibling is an edge.
    let sideways = ("a.rs", "pub(crate) use crate::b::B;");
    assert_eq!(edges_of(&[LIB, sideways, b]), ["a.rs -> b.rs"]);
}

#[test]
fn test_code_comments_and_other_crates_are_not_edges() {
    for code in [
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(any(test, feature = \"fuzzing\"))] fn f(_: crate::b::B) {}",
        "struct A; impl A { #[cfg(test)] fn f(_: crate::b::B) {} }",
        "/// [`crate::b::B`]\nstruct A; // crate::b::B\n",
        "fn f() { print(\"crate::b::B\"); }",
        "use std::fmt; use b::B; fn f(b: ::b::B) { let b = 1; b.g(); }",
        "pub(in crate::a) fn f() {}",
    ] {
        let b = ("b.rs", "pub struct B;");
        assert!(edges_of(&[LIB, ("a.rs", code), b]).is_empty(), "{code}");
    }
    let b = ("b.rs", "pub struct B;");
    let built = ("a.rs", "#[cfg(not(test))] use crate::b::B;");
    assert_eq!(edges_of(&[LIB, built, b]), ["a.rs -> b.rs"]);
}

#[test]
fn import_cycles_across_several_files_are_found() {
    let files = sources(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::a::A; pub struct C;"),
        // Files that only lead into or out of a cycle are not part of it.
        ("d.rs", "use crate::a::A; use crate::e::E;"),
        ("e.rs", "pub struct E;"),
    ]);
    let faults = cycle_faults("new", &files);
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].ends_with(": src/a.rs src/b.rs src/c.rs"),
        "{}",
        faults[0]
    );
}

#[test]
fn imports_in_one_direction_are_no_cycle() {
    let files = sources(&[LIB, ("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B;")]);
    assert!(cycle_faults("new", &files).is_empty());
}

#[test]
fn every_spelling_of_restricted_visibility_is_counted() {
    let a = "pub(crate) struct A { pub(super) x: u8, pub(in crate::a) y: u8, z: u8 }\n\
        impl A { pub(crate) fn f() { fn inner() {} } pub(self) const C: u8 = 0; fn g() {} }\n\
        pub(crate) enum E { X(u8) }\n\
        pub(crate) trait T { fn f(); }\n\
        pub(crate) use E::X;\n\
        #[cfg(test)] pub(crate) fn h() {}";
    assert_eq!(open_items_of(&[("lib.rs", "mod a;"), ("a.rs", a)]), 8);
    // Each name in braces counts as one item.
    let lib = ("lib.rs", "mod a; pub(crate) use a::{A, B};");
    let a = ("a.rs", "struct A; struct B;");
    assert_eq!(open_items_of(&[lib, a]), 2);
}

#[test]
fn public_items_are_counted_if_no_path_from_the_root_leads_to_them() {
    let a = "pub struct A { pub x: u8, y: u8 } impl A { pub fn f() {} fn g() {} }";
    let all = |lib: &str| open_items_of(&[("lib.rs", lib), ("a.rs", a)]);
    assert_eq!(all("mod a;"), 3);
    assert_eq!(all("pub mod a;"), 0);
    assert_eq!(all("mod a; pub use a::A;"), 0);
    assert_eq!(all("mod a; pub use a::A as Other;"), 0);
    assert_eq!(all("mod a; pub use a::*;"), 0);
    // The re-export leads through a private module, and another file has an `impl` of the type.
    let lib = ("lib.rs", "mod a; mod b; pub use b::A;");
    let b = (
        "b.rs",
        "pub use crate::a::A; use crate::a; impl a::A { pub fn h() {} }",
    );
    assert_eq!(open_items_of(&[lib, ("a.rs", a), b]), 0);
}

#[test]
fn long_functions_and_files_are_faults() {
    let body = "    let _ = 0;\n".repeat(MAX_FUNCTION_LINES - 2);
    let fits = format!("/// Two lines of\n/// documentation.\nfn f() {{\n{body}}}\n");
    let long = format!("impl A {{\nfn f(\n) {{\n{body}}}\n}}\n");
    let test = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert!(length_faults("new", &sources(&[("lib.rs", &fits), ("a.rs", &long)])).is_empty());
    assert!(length_faults("new", &sources(&[("lib.rs", &test)])).is_empty());
    let faults = length_faults("new", &sources(&[("lib.rs", "mod a;"), ("a.rs", &long)]));
    assert_eq!(faults, ["new/src/a.rs: f has 71 lines, above 70"]);
    let program = length_faults("new", &sources(&[("bin/a.rs", &long)]));
    assert_eq!(program, ["new/src/bin/a.rs: f has 71 lines, above 70"]);
    let longest = "\n".repeat(MAX_FILE_LINES);
    assert!(length_faults("new", &sources(&[("a.rs", &longest)])).is_empty());
    let faults = length_faults("new", &sources(&[("a.rs", &(longest + "\n"))]));
    assert_eq!(faults, ["new/src/a.rs has 701 lines, above 700"]);
}

#[test]
fn the_test_kit_is_a_dev_dependency_only() {
    let manifest = |section: &str| {
        format!("[package]\nname = \"a\"\n\n[{section}]\nlibc = \"1\"\ntestkit.workspace = true\n")
    };
    assert!(!needs_test_kit(&manifest("dev-dependencies")));
    for section in [
        "dependencies",
        "build-dependencies",
        "target.x.dependencies",
    ] {
        assert!(needs_test_kit(&manifest(section)), "{section}");
    }
    assert!(!needs_test_kit("[dependencies]\nlibc = \"1\"\n"));
}

#[test]
fn code_that_names_an_operating_system_is_found_outside_its_places() {
    let faults = |name: &str, code: &str| {
        let files = sources(&[("lib.rs", "mod system;"), ("system.rs", code)]);
        let crates = BTreeMap::from([(name.to_owned(), files)]);
        system_faults(&crates).len()
    };
    for code in [
        "#[cfg(target_os = \"linux\")] mod a;",
        "#[cfg_attr(not(target_os = \"linux\"), path = \"b.rs\")] mod a;",
        "const A: bool = cfg!(target_os = \"linux\");",
        "fn f() { if cfg!(target_os = \"linux\") {} }",
        "fn f() { #[cfg(target_os = \"linux\")] g(); }",
        "struct A { #[cfg(target_os = \"linux\")] a: u8 }",
        "use std::os::linux::net::SocketAddrExt as _;",
        "fn f() { assert!(std::os::linux::f()); }",
        "#![cfg(target_os = \"linux\")]",
    ] {
        assert_eq!(faults("namestorm", code), 1, "{code}");
        assert_eq!(faults("control", code), 0, "{code}");
        assert_eq!(faults("nmio", code), 0, "{code}");
        assert_eq!(faults(TEST_KIT, code), 0, "{code}");
    }
    for code in [
        "#[cfg(test)] mod tests { #[cfg(target_os = \"linux\")] fn f() {} }",
        "#[cfg(all(test, target_os = \"linux\"))] fn f() {}",
        "use std::os::unix::fs::FileExt as _;",
        "/// target_os\nfn f() {} // linux",
    ] {
        assert_eq!(faults("namestorm", code), 0, "{code}");
    }
}
