//! What a shell needs to complete a command line.

use clap::{Command, CommandFactory};
use clap_complete::{Generator, Shell, generate};

use super::Made;

/// Those of both commands for every shell, named as the shells look for them.
pub(super) fn all() -> Vec<Made> {
    let (echod, echoctl) = (echod::cli::Cli::command(), echoctl::cli::Cli::command());
    vec![
        made("docs/completions/echod.bash", Shell::Bash, &echod),
        made("docs/completions/_echod", Shell::Zsh, &echod),
        made("docs/completions/echod.fish", Shell::Fish, &echod),
        made("docs/completions/echoctl.bash", Shell::Bash, &echoctl),
        made("docs/completions/_echoctl", Shell::Zsh, &echoctl),
        made("docs/completions/echoctl.fish", Shell::Fish, &echoctl),
    ]
}

fn made(path: &'static str, shell: impl Generator, command: &Command) -> Made {
    let mut bytes = Vec::new();
    generate(shell, &mut command.clone(), command.get_name(), &mut bytes);
    let text = String::from_utf8(bytes).expect("definitions are text");
    // The repository has no trailing blanks.
    Made { path, text: text.lines().map(|line| line.trim_end().to_owned() + "\n").collect() }
}
