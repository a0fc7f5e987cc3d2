//! Writes manual pages and shell completions, for packages.

use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_complete::{Shell, generate_to};

/// The shells that a completion file is written for.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

/// Writes a manual page of the program and of each subcommand to `folder/man1`, and a completion file
/// for each shell to `folder/completions`.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn write(command: &Command, folder: &Path) -> io::Result<()> {
    let [pages, completions] = ["man1", "completions"].map(|name| folder.join(name));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(command.clone(), pages)?;
    let name = command.get_name();
    for shell in SHELLS {
        generate_to(shell, &mut command.clone(), name, &completions)?;
    }
    Ok(())
}
