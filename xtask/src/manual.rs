//! Man pages and completions, made from the command lines themselves: `cargo xtask manual`.
//!
//! They are committed, so that whoever installs echo need not build this, and `cargo xtask check` compares them with
//! what the command lines say. Only `docs/man/echod.toml.5` is written by hand, since a file's grammar is no command
//! line; it is checked to name every setting. One page for `echoctl` and not one a subcommand: they are few, and a
//! person searches one page.

mod completions;
mod page;
mod pages;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use echod::config::Key;

const CONFIG_PAGE: &str = "docs/man/echod.toml.5";

/// A file that is made.
struct Made {
    /// From the repository's root.
    path: &'static str,
    text: String,
}

/// Writes all files, or with `--check` compares them.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let made: Vec<Made> = pages::all().into_iter().chain(completions::all()).collect();
    let problems = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => made.iter().filter_map(|made| written(made).err()).collect(),
        ["--check"] => {
            made.iter().filter_map(|made| compared(made).err()).chain(unnamed_settings()).collect()
        }
        _ => vec!["usage: cargo xtask manual [--check]".to_owned()],
    };
    for problem in &problems {
        eprintln!("xtask: {problem}");
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A path from the repository's root, wherever this is started.
fn from_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn written(made: &Made) -> Result<(), String> {
    let path = from_root(made.path);
    let write = || -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, &made.text)
    };
    write().map_err(|error| format!("cannot write {}: {error}", made.path))
}

fn compared(made: &Made) -> Result<(), String> {
    match fs::read_to_string(from_root(made.path)) {
        Ok(text) if text == made.text => Ok(()),
        Ok(_) => Err(format!(
            "{} is not what the command line says any more: run 'cargo xtask manual' and commit it",
            made.path
        )),
        Err(error) => {
            Err(format!("cannot read {}: {error}: run 'cargo xtask manual' and commit it", made.path))
        }
    }
}

/// The settings that the page on the configuration file does not tell of.
fn unnamed_settings() -> Vec<String> {
    let page = match fs::read_to_string(from_root(CONFIG_PAGE)) {
        Ok(page) => page,
        Err(error) => return vec![format!("cannot read {CONFIG_PAGE}: {error}")],
    };
    let unnamed = Key::ALL.into_iter().filter(|key| !page.contains(&format!(".It Ic {} ", key.name())));
    unnamed
        .map(|key| format!("{CONFIG_PAGE} does not tell of the setting {}: write it there", key.name()))
        .collect()
}
