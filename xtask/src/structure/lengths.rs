//! Lengths of the functions of a module.

use syn::Item;
use syn::visit::{self, Visit};

use super::tree::Module;

/// Returns the functions of a module with their lengths in lines, from `fn` to the closing brace.
pub(super) fn functions(module: &Module<'_>) -> Vec<(String, usize)> {
    let mut functions = Functions::default();
    for item in &module.items {
        // The tree has a separate entry for each inline module, so do not count its functions
        // twice.
        if !matches!(item, Item::Mod(_)) {
            functions.visit_item(item);
        }
    }
    functions.found
}

#[derive(Default)]
struct Functions {
    found: Vec<(String, usize)>,
}

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        self.found
            .push((signature.ident.to_string(), last + 1 - first));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}
