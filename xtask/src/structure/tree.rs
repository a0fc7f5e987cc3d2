//! The module tree of a crate without test code, and path resolution within it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree, Visibility};

/// All parsed files below a folder, by relative path.
pub(super) type Files = BTreeMap<PathBuf, File>;

pub(super) struct File {
    pub(super) parsed: syn::File,
    pub(super) lines: usize,
}

impl File {
    pub(super) fn parse(text: &str) -> syn::Result<Self> {
        Ok(Self {
            parsed: syn::parse_file(text)?,
            lines: text.lines().count(),
        })
    }
}

/// Index of the crate's root module in [`Tree::modules`].
pub(super) const ROOT: usize = 0;

pub(super) struct Tree<'a> {
    pub(super) modules: Vec<Module<'a>>,
}

pub(super) struct Module<'a> {
    pub(super) file: &'a Path,
    /// Items, except test code.
    pub(super) items: Vec<&'a Item>,
    pub(super) imports: Vec<Import>,
    pub(super) children: BTreeMap<String, usize>,
    /// Names of the items that the module defines, except child modules.
    names: Vec<String>,
    parent: Option<usize>,
}

/// One name that a `use` brings into a module.
pub(super) struct Import {
    /// The name in this module, or `None` for a glob import.
    pub(super) name: Option<String>,
    pub(super) path: Vec<String>,
    /// Whether other modules can import the name from this module.
    pub(super) passed_on: bool,
    pub(super) public: bool,
}

/// What a path names. Numbers are indexes in [`Tree::modules`]. An item also has its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Module(usize),
    Item(usize, String),
}

impl Target {
    /// Returns the target module, or the module that defines the target item.
    pub(super) fn module(&self) -> usize {
        match self {
            Self::Module(module) | Self::Item(module, _) => *module,
        }
    }
}

impl<'a> Tree<'a> {
    /// Builds the tree from a root file such as `src/lib.rs`.
    pub(super) fn of(files: &'a Files, root: &Path) -> Option<Self> {
        let (file, source) = files.get_key_value(root)?;
        let mut tree = Self { modules: vec![] };
        let folder = file.parent()?.to_owned();
        tree.add(files, file, &source.parsed.items, &folder, None);
        Some(tree)
    }

    fn add(
        &mut self,
        files: &'a Files,
        file: &'a Path,
        items: &'a [Item],
        folder: &Path,
        parent: Option<usize>,
    ) -> usize {
        let index = self.modules.len();
        let items: Vec<&Item> = items
            .iter()
            .filter(|item| !is_test(attributes(item)))
            .collect();
        self.modules.push(Module {
            file,
            imports: items.iter().flat_map(|item| imports(item)).collect(),
            names: items.iter().filter_map(|item| name(item)).collect(),
            items: items.clone(),
            children: BTreeMap::new(),
            parent,
        });
        for item in items {
            let Item::Mod(declared) = item else { continue };
            let name = declared.ident.to_string();
            let below = folder.join(&name);
            let (file, items) = if let Some((_, items)) = &declared.content {
                (file, items)
            } else {
                let places = [below.with_extension("rs"), below.join("mod.rs")];
                let mut found = places.iter().filter_map(|place| files.get_key_value(place));
                let Some((file, source)) = found.next() else {
                    continue;
                };
                (file.as_path(), &source.parsed.items)
            };
            let child = self.add(files, file, items, &below, Some(index));
            self.modules[index].children.insert(name, child);
        }
        index
    }

    /// Resolves a `path` that occurs in `module`. Calls `passed` for each import on the way, with
    /// the importing module and the imported name.
    pub(super) fn resolve(
        &self,
        module: usize,
        path: &[String],
        passed: &mut dyn FnMut(usize, &str),
    ) -> Option<Target> {
        self.walk(module, path, passed, 0)
    }

    fn walk(
        &self,
        mut module: usize,
        path: &[String],
        passed: &mut dyn FnMut(usize, &str),
        depth: usize,
    ) -> Option<Target> {
        // Give up on circular imports, which the compiler reports.
        if depth > 16 {
            return None;
        }
        for segment in path {
            match segment.as_str() {
                "crate" => module = ROOT,
                "self" => {}
                "super" => module = self.modules[module].parent?,
                name => {
                    let here = &self.modules[module];
                    if let Some(&child) = here.children.get(name) {
                        module = child;
                        continue;
                    }
                    if here.names.iter().any(|other| other == name) {
                        return Some(Target::Item(module, name.to_owned()));
                    }
                    match self.imported(module, name, passed, depth + 1)? {
                        Target::Module(found) => module = found,
                        item @ Target::Item(..) => return Some(item),
                    }
                }
            }
        }
        Some(Target::Module(module))
    }

    /// Resolves `name` through the imports of `module`.
    fn imported(
        &self,
        module: usize,
        name: &str,
        passed: &mut dyn FnMut(usize, &str),
        depth: usize,
    ) -> Option<Target> {
        let imports = &self.modules[module].imports;
        if let Some(import) = imports.iter().find(|i| i.name.as_deref() == Some(name)) {
            passed(module, name);
            return self.walk(module, &import.path, passed, depth);
        }
        imports.iter().filter(|i| i.name.is_none()).find_map(|all| {
            let Target::Module(from) = self.walk(module, &all.path, passed, depth)? else {
                return None;
            };
            (from != module)
                .then(|| self.walk(from, &[name.to_owned()], passed, depth + 1))
                .flatten()
        })
    }

    /// Returns true if `below` is `module` or a descendant of it.
    pub(super) fn contains(&self, module: usize, below: usize) -> bool {
        let mut at = Some(below);
        while let Some(one) = at {
            if one == module {
                return true;
            }
            at = self.modules[one].parent;
        }
        false
    }
}

/// Returns true if the attributes mark code of tests or of fuzzing builds.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "test" || word == "fuzzing")
                && !condition.contains("not")
        }
        syn::Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the name and the visibility of an item, if it defines a name.
pub(super) fn defined(item: &Item) -> Option<(&syn::Ident, &Visibility)> {
    Some(match item {
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Mod(item) => (&item.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        Item::Union(item) => (&item.ident, &item.vis),
        _ => return None,
    })
}

fn name(item: &Item) -> Option<String> {
    match item {
        Item::Mod(_) => None,
        Item::Macro(item) => item.ident.as_ref().map(ToString::to_string),
        item => defined(item).map(|(name, _)| name.to_string()),
    }
}

fn imports(item: &Item) -> Vec<Import> {
    let Item::Use(item) = item else {
        return vec![];
    };
    imports_of(item)
}

/// Splits a `use` into its imports.
pub(super) fn imports_of(item: &syn::ItemUse) -> Vec<Import> {
    let mut names = vec![];
    if item.leading_colon.is_none() {
        flatten(&item.tree, &mut vec![], &mut names);
    }
    let passed_on = !matches!(item.vis, Visibility::Inherited);
    let public = matches!(item.vis, Visibility::Public(_));
    names
        .into_iter()
        .map(|(name, path)| Import {
            name,
            path,
            passed_on,
            public,
        })
        .collect()
}

fn flatten(
    tree: &UseTree,
    prefix: &mut Vec<String>,
    names: &mut Vec<(Option<String>, Vec<String>)>,
) {
    let last = |ident: &syn::Ident| {
        let mut path = prefix.clone();
        // `a::{self}` means `a`.
        if ident != "self" || path.is_empty() {
            path.push(ident.to_string());
        }
        path
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, names);
            prefix.pop();
        }
        UseTree::Name(name) => {
            let path = last(&name.ident);
            names.push((path.last().cloned(), path));
        }
        UseTree::Rename(name) => names.push((Some(name.rename.to_string()), last(&name.ident))),
        UseTree::Glob(_) => names.push((None, prefix.clone())),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, names);
            }
        }
    }
}

pub(super) fn impl_attributes(item: &syn::ImplItem) -> &[Attribute] {
    match item {
        syn::ImplItem::Const(item) => &item.attrs,
        syn::ImplItem::Fn(item) => &item.attrs,
        syn::ImplItem::Type(item) => &item.attrs,
        _ => &[],
    }
}
