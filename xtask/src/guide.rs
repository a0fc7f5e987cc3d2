//! The project that the guide makes (`docs/extending.md`), outside the workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{self, Context as _, Failure, Result, Scratch};

const GUIDE: &str = "docs/extending.md";
/// Where the guide's reader has this repository.
const CHECKOUT: &str = "../sandstorm/";

/// Makes the project of the guide's first two sections in a folder of its own, builds it
/// as the guide says, and asks the program for its help. What a release build of the
/// workspace has built serves it, too.
pub(crate) fn run() -> Result<()> {
    let root = shell::repository();
    let guide = fs::read_to_string(root.join(GUIDE)).context("reading the guide")?;
    let project = Scratch::create("guide")?;
    write(&guide, &root, project.path())?;
    // So that it has the versions that are there already.
    let lock = "Cargo.lock";
    fs::copy(root.join(lock), project.path().join(lock)).context("copying Cargo.lock")?;
    let build = |more: &[&str]| {
        let mut build = shell::cargo();
        build.current_dir(project.path());
        shell::run(build.args(["build", "--release"]).args(more))
    };
    // All that it needs is there, unless cargo wants to hear of newer versions.
    build(&["--offline"]).or_else(|_| build(&[]))?;
    let program = shell::target_folder()?.join("release/hello");
    shell::run(Command::new(program).arg("--help"))
}

fn write(guide: &str, root: &Path, project: &Path) -> Result<()> {
    let checkout = format!("{}/", root.display());
    let manifest = block(guide, "# Cargo.toml\n")?.replace(CHECKOUT, &checkout);
    let files: [(PathBuf, String); 2] = [
        (project.join("Cargo.toml"), manifest),
        (
            project.join("src/main.rs"),
            block(guide, "// src/main.rs\n")?.to_owned(),
        ),
    ];
    fs::create_dir(project.join("src")).context("making src")?;
    for (path, text) in files {
        fs::write(&path, text).context("writing the guide's project")?;
    }
    Ok(())
}

/// The guide's block of code that begins with `start`.
fn block<'g>(guide: &'g str, start: &str) -> Result<&'g str> {
    let block = guide
        .find(start)
        .and_then(|at| guide[at..].split("```").next());
    block.ok_or_else(|| Failure::new(format!("{GUIDE} has no block that begins with {start:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_project_is_beside_a_checkout() {
        let guide = "```toml\n# Cargo.toml\na = { path = \"../sandstorm/crates/a\" }\n```\n\
                     ```rust\n// src/main.rs\nfn main() {}\n```\n";
        let project = Scratch::create("guide-test").unwrap();
        write(guide, Path::new("/checkout"), project.path()).unwrap();
        let read = |file| fs::read_to_string(project.path().join(file)).unwrap();
        assert_eq!(
            read("Cargo.toml"),
            "# Cargo.toml\na = { path = \"/checkout/crates/a\" }\n"
        );
        assert_eq!(read("src/main.rs"), "// src/main.rs\nfn main() {}\n");
        assert!(block("```sh\nls\n```", "# Cargo.toml\n").is_err());
    }
}
