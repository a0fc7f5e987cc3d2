//! Finds code that depends on the operating system.

use std::collections::BTreeSet;
use std::path::Path;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Macro, Meta};

use super::tree::{self, Files, Tree};

/// Words of conditions and of paths that name a system.
const WORDS: [&str; 3] = ["target_os", "linux", "freebsd"];
/// Ports, the sandbox, one module of `control`, and the crates of encoders.
const ALLOWED: [&str; 7] = [
    "netmap-sys",
    "nmio",
    "control/src/privileges",
    "control/src/privileges.rs",
    "control/src/system",
    "control/src/system.rs",
    "sandstorm/src/coder.rs",
];

/// Returns the files and lines of a crate, except test code, that name a system where they may not.
pub(super) fn places<'a>(
    name: &str,
    files: &'a Files,
    tree: &Tree<'a>,
) -> BTreeSet<(&'a Path, usize)> {
    let mut places = BTreeSet::new();
    for module in &tree.modules {
        let path = Path::new(name).join(module.file);
        if ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        let mut found = Lines::default();
        for attribute in &files[module.file].parsed.attrs {
            found.visit_attribute(attribute);
        }
        for item in &module.items {
            found.visit_item(item);
        }
        places.extend(found.0.into_iter().map(|line| (module.file, line)));
    }
    places
}

/// Lines that name a system.
#[derive(Default)]
struct Lines(Vec<usize>);

impl<'ast> Visit<'ast> for Lines {
    fn visit_item(&mut self, item: &'ast Item) {
        if !tree::is_test(tree::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !tree::is_test(tree::impl_attributes(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.note(ident);
    }

    fn visit_macro(&mut self, macro_: &'ast Macro) {
        self.visit_tokens(macro_.tokens.clone());
        visit::visit_macro(self, macro_);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.visit_tokens(list.tokens.clone());
        }
    }
}

impl Lines {
    fn note(&mut self, ident: &Ident) {
        if WORDS.iter().any(|word| ident == word) {
            self.0.push(ident.span().start().line);
        }
    }

    fn visit_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => self.note(&ident),
                TokenTree::Group(group) => self.visit_tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}
