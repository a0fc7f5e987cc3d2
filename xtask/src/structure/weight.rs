//! Counts the product's lines, so that the size of the tools can be compared with them.

use std::path::Path;

/// Folders of the developer tools.
pub(super) const TOOLS: [&str; 3] = ["xtask", "benches", "fuzz"];

/// Returns the number of lines in one of the product's source files, without its tests.
pub(super) fn product_lines(file: &Path, text: &str) -> usize {
    let is_test = |part: &std::ffi::OsStr| {
        let name = part.to_string_lossy();
        let name = name.trim_end_matches(".rs");
        name.ends_with("tests") || name == "testing"
    };
    if !file.starts_with("src") || file.iter().any(is_test) {
        return 0;
    }
    // Inline test modules are at the end of their file.
    let code = text.split("\n#[cfg(test)]\nmod tests {").next();
    code.unwrap_or_default().lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_does_not_count_as_product_code() {
        let lines = |file| product_lines(Path::new(file), "a\nb\n#[cfg(test)]\nmod tests {\n}\n");
        assert_eq!(lines("src/lib.rs"), 2);
        for file in [
            "src/a/tests.rs",
            "src/a_tests.rs",
            "src/tests/a.rs",
            "tests/a.rs",
        ] {
            assert_eq!(lines(file), 0, "{file}");
        }
    }
}
