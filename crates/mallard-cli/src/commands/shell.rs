//! What a shell and `man` need: completions and manual pages, made from the command line itself.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_complete::Shell;

use crate::terminal::output::{self, say};

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mallard completions bash > ~/.local/share/bash-completion/completions/mallard
  mallard completions zsh > ~/.zfunc/_mallard
  mallard completions fish > ~/.config/fish/completions/mallard.fish")]
pub struct Completions {
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Write the manual pages into a folder
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  mallard man ~/.local/share/man/man1 && man mallard-compare")]
pub struct Man {
    /// Created if it does not exist
    #[arg(value_name = "FOLDER")]
    pub folder: std::path::PathBuf,
}

/// Prints the completions of the whole command line.
pub fn completions(options: &Completions, mut commands: clap::Command) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut commands, "mallard", &mut text);
    output::text(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of the whole command line.
pub fn man(options: &Man, commands: clap::Command) -> Result<ExitCode> {
    let folder: &Path = &options.folder;
    let failed = || format!("cannot write manual pages into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(commands.disable_help_subcommand(true), folder)
        .with_context(failed)?;
    say!(
        "Wrote mallard.1 and a page for each command into {}",
        folder.display()
    )?;
    Ok(ExitCode::SUCCESS)
}
