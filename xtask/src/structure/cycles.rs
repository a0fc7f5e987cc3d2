//! Imports between the files of a crate, and the cycles among them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Visibility};

use super::tree::{self, Tree};

/// For each pair of files, the paths by which the first file names items of the second.
pub(super) type Edges<'a> = BTreeMap<(&'a Path, &'a Path), BTreeSet<String>>;

/// Finds the edges. A `use` or a qualified path is an edge to the file that defines the item, even
/// if the path leads through re-exports. A parent's re-export of its child is not an edge.
pub(super) fn edges<'a>(tree: &Tree<'a>) -> Edges<'a> {
    let mut edges = Edges::new();
    for (index, module) in tree.modules.iter().enumerate() {
        let mut found = Paths::default();
        for item in &module.items {
            if !matches!(item, Item::Mod(_)) {
                found.visit_item(item);
            }
        }
        for (path, is_use, passed_on) in found.paths {
            if !is_use && !starts_elsewhere(tree, index, &path) {
                continue;
            }
            let Some(target) = tree.resolve(index, &path, &mut |_, _| {}) else {
                continue;
            };
            let defines = target.module();
            let to = tree.modules[defines].file;
            if to == module.file || (passed_on && tree.contains(index, defines)) {
                continue;
            }
            let paths = edges.entry((module.file, to)).or_default();
            paths.insert(path.join("::"));
        }
    }
    edges
}

/// Returns true if a path outside a `use` is an edge itself. A name that a private `use` brings in
/// is not, because that `use` is already an edge.
fn starts_elsewhere(tree: &Tree<'_>, module: usize, path: &[String]) -> bool {
    let module = &tree.modules[module];
    let qualified = path.len() > 1
        && (["crate", "self", "super"].contains(&path[0].as_str())
            || module.children.contains_key(&path[0]));
    let passed_on =
        |import: &tree::Import| import.passed_on && import.name.as_ref() == path.first();
    qualified || module.imports.iter().any(passed_on)
}

/// Returns the sets of files that all import each other, directly or through other files.
pub(super) fn cycles<'a>(edges: &Edges<'a>) -> Vec<BTreeSet<&'a Path>> {
    let files: BTreeSet<&Path> = edges.keys().map(|(from, _)| *from).collect();
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = files
        .iter()
        .map(|&file| (file, reached_from(edges, file)))
        .collect();
    let cycles: BTreeSet<BTreeSet<&Path>> = files
        .iter()
        .filter(|&file| reached[file].contains(file))
        .map(|&file| {
            let back = |other: &&&Path| reached.get(**other).is_some_and(|r| r.contains(file));
            reached[file].iter().filter(back).copied().collect()
        })
        .collect();
    cycles.into_iter().collect()
}

fn reached_from<'a>(edges: &Edges<'a>, file: &'a Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(from) = open.pop() {
        let next = edges.keys().filter(|(f, _)| *f == from).map(|(_, to)| *to);
        open.extend(next.filter(|to| reached.insert(*to)));
    }
    reached
}

/// Collects the paths in an item. Each path has two flags: whether it is in a `use`, and whether
/// that `use` re-exports its target.
#[derive(Default)]
struct Paths {
    paths: Vec<(Vec<String>, bool, bool)>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !tree::is_test(tree::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if !tree::is_test(tree::impl_attributes(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for import in tree::imports_of(item) {
            self.paths.push((import.path, true, import.passed_on));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|s| s.ident.to_string());
            self.paths.push((segments.collect(), false, false));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, macro_: &'ast syn::Macro) {
        visit::visit_macro(self, macro_);
        self.visit_tokens(macro_.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

impl Paths {
    /// Collects the token sequences in a macro's arguments that look like paths.
    fn visit_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = vec![];
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.paths.push((std::mem::take(&mut path), false, false));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.paths.push((std::mem::take(&mut path), false, false));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.visit_tokens(group.stream());
                    }
                }
            }
        }
        self.paths.push((path, false, false));
        self.paths.retain(|(path, ..)| !path.is_empty());
    }
}
