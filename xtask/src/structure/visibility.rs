//! Counts open items: items with restricted visibility, and public items not reachable from outside
//! the crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::{Item, Type, Visibility};

use super::tree::{self, ROOT, Target, Tree};

/// Returns the number of open items per file. Methods, fields and re-exports count as items.
pub(super) fn counts<'a>(tree: &Tree<'a>) -> BTreeMap<&'a Path, usize> {
    let exposed = exposed(tree);
    let mut counts = BTreeMap::new();
    for (index, module) in tree.modules.iter().enumerate() {
        let mut count = Count {
            tree,
            exposed: &exposed,
            module: index,
            number: 0,
        };
        for item in &module.items {
            count.item(item);
        }
        *counts.entry(module.file).or_default() += count.number;
    }
    counts
}

/// Returns all items reachable from outside the crate, and the re-exports that lead to them.
fn exposed(tree: &Tree<'_>) -> BTreeSet<Target> {
    let mut exposed = BTreeSet::from([Target::Module(ROOT)]);
    let mut open = vec![ROOT];
    while let Some(index) = open.pop() {
        let module = &tree.modules[index];
        let mut found = vec![];
        for item in &module.items {
            if let Some((name, Visibility::Public(_))) = tree::defined(item) {
                let name = name.to_string();
                found.push(match module.children.get(&name) {
                    Some(&child) => Target::Module(child),
                    None => Target::Item(index, name),
                });
            }
        }
        for import in module.imports.iter().filter(|import| import.public) {
            let name = import.name.clone().unwrap_or_else(|| "*".to_owned());
            found.push(Target::Item(index, name));
            let mut pass = |by: usize, name: &str| found.push(Target::Item(by, name.to_owned()));
            let target = tree.resolve(index, &import.path, &mut pass);
            found.extend(target);
        }
        for target in found {
            if let Target::Module(module) = target
                && !exposed.contains(&target)
            {
                open.push(module);
            }
            exposed.insert(target);
        }
    }
    exposed
}

struct Count<'t, 'a> {
    tree: &'t Tree<'a>,
    exposed: &'t BTreeSet<Target>,
    module: usize,
    number: usize,
}

impl Count<'_, '_> {
    fn item(&mut self, item: &Item) {
        match item {
            Item::Use(item) => {
                for import in tree::imports_of(item) {
                    let name = import.name.unwrap_or_else(|| "*".to_owned());
                    let exposed = self.is_exposed(&Target::Item(self.module, name));
                    self.add(&item.vis, exposed);
                }
            }
            Item::Impl(item) => {
                let exposed = self.is_type_exposed(&item.self_ty);
                for item in &item.items {
                    if tree::is_test(tree::impl_attributes(item)) {
                        continue;
                    }
                    match item {
                        syn::ImplItem::Const(item) => self.add(&item.vis, exposed),
                        syn::ImplItem::Fn(item) => self.add(&item.vis, exposed),
                        syn::ImplItem::Type(item) => self.add(&item.vis, exposed),
                        _ => {}
                    }
                }
            }
            item => {
                let Some((name, vis)) = tree::defined(item) else {
                    return;
                };
                let name = name.to_string();
                let target = match self.tree.modules[self.module].children.get(&name) {
                    Some(&child) => Target::Module(child),
                    None => Target::Item(self.module, name),
                };
                let exposed = self.is_exposed(&target);
                self.add(vis, exposed);
                if let Item::Struct(item) = item {
                    for field in &item.fields {
                        if !tree::is_test(&field.attrs) {
                            self.add(&field.vis, exposed);
                        }
                    }
                }
            }
        }
    }

    fn add(&mut self, vis: &Visibility, exposed: bool) {
        self.number += usize::from(match vis {
            Visibility::Restricted(_) => true,
            Visibility::Public(_) => !exposed,
            Visibility::Inherited => false,
        });
    }

    fn is_exposed(&self, target: &Target) -> bool {
        self.exposed.contains(target)
    }

    fn is_type_exposed(&self, of: &Type) -> bool {
        let Type::Path(of) = of else { return false };
        let segments = of.path.segments.iter().map(|s| s.ident.to_string());
        let path: Vec<String> = segments.collect();
        self.tree
            .resolve(self.module, &path, &mut |_, _| {})
            .is_some_and(|target| self.is_exposed(&target))
    }
}
