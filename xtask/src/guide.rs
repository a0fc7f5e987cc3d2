//! `xtask guide`: builds the example project of `docs/extending.md`, outside the workspace.

use std::path::Path;
use std::process::Command;

use crate::shell;
use anyhow::{Context as _, Result};

const GUIDE: &str = "docs/extending.md";
/// The path by which the guide's manifest refers to this repository.
const CHECKOUT: &str = "../sandstorm/";

/// The settings of the workspace's development profile that concern this project.
const PROFILE: [&str; 3] = [
    "profile.dev.debug='line-tables-only'",
    "profile.dev.lto='off'",
    "profile.dev.package.'*'.debug=false",
];

/// Extracts `Cargo.toml` and `src/main.rs` from the guide, builds the project, and runs its program
/// with `--help`.
pub(crate) fn run() -> Result<()> {
    let root = shell::repository();
    let guide = shell::read(&root.join(GUIDE))?;
    let project = shell::scratch("guide")?;
    write(&guide, &root, project.path())?;
    // The lock file selects versions that cargo has already downloaded, so the build can be
    // offline.
    let lock = shell::read(&root.join("Cargo.lock"))?;
    shell::write(&project.path().join("Cargo.lock"), lock)?;
    let build = |more: &[&str]| {
        let mut build = shell::cargo();
        build.current_dir(project.path()).arg("build");
        // This is the workspace's profile, so that both share what they build.
        for setting in PROFILE {
            build.args(["--config", setting]);
        }
        shell::run(build.args(more))
    };
    build(&["--offline"]).or_else(|_| build(&[]))?;
    let program = shell::target_folder()?.join("debug/hello");
    shell::run(Command::new(program).arg("--help"))
}

fn write(guide: &str, root: &Path, project: &Path) -> Result<()> {
    let checkout = format!("{}/", root.display());
    let manifest = block(guide, "# Cargo.toml\n")?.replace(CHECKOUT, &checkout);
    shell::write(&project.join("Cargo.toml"), manifest)?;
    shell::make_folder(&project.join("src"))?;
    shell::write(
        &project.join("src/main.rs"),
        block(guide, "// src/main.rs\n")?,
    )
}

/// Returns the guide's code block that begins with `start`.
fn block<'g>(guide: &'g str, start: &str) -> Result<&'g str> {
    let block = guide.find(start);
    block
        .and_then(|at| guide[at..].split("```").next())
        .with_context(|| format!("{GUIDE} has no block that begins with {start:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_of_the_guide_refers_to_the_checkout() {
        let guide = "```toml\n# Cargo.toml\na = { path = \"../sandstorm/crates/a\" }\n```\n\
                     ```rust\n// src/main.rs\nfn main() {}\n```\n";
        let project = shell::scratch("guide-test").unwrap();
        write(guide, Path::new("/checkout"), project.path()).unwrap();
        let read = |file| shell::read(&project.path().join(file)).unwrap();
        assert_eq!(
            read("Cargo.toml"),
            "# Cargo.toml\na = { path = \"/checkout/crates/a\" }\n"
        );
        assert_eq!(read("src/main.rs"), "// src/main.rs\nfn main() {}\n");
        assert!(block("```sh\nls\n```", "# Cargo.toml\n").is_err());
    }
}
