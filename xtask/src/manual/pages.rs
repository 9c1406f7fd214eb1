//! What the pages say: the command lines, and what these do not know of themselves.

use clap::{Command, CommandFactory};
use echo_client::SOCKET_VARIABLE;
use echod::config::{Key, SYSTEM_CONFIG};

use super::Made;
use super::page::Page;

/// The pages that are made.
pub(super) fn all() -> Vec<Made> {
    vec![
        Made { path: "docs/man/echod.8", text: echod() },
        Made { path: "docs/man/echoctl.1", text: echoctl() },
    ]
}

fn echod() -> String {
    let command = echod::cli::Cli::command();
    let mut page = Page::begin(&command, "8");
    let settings = Key::ALL.iter().map(|key| (key.env().to_owned(), key.flag()));
    let settings: Vec<(String, String)> =
        settings.map(|(env, flag)| (env, format!("As {flag}, which is stronger."))).collect();
    page.options(&command)
        .section("CONFIGURATION")
        .text(
            "A flag is stronger than an environment variable, which is stronger than the configuration file, which is \
             stronger than the default. 'echod --print-config' shows each value and where it came from. Tables are \
             declared in the file alone: see echod.toml(5).",
        )
        .section("SIGNALS")
        .entries([
            (
                "SIGTERM, SIGINT".to_owned(),
                "Drains: there are no new claims, readers get what was committed, and the daemon ends when they have \
                 given it back, or when drain_timeout is over. A second one ends it at once.",
            ),
        ])
        .section("EXIT STATUS")
        .entries(echod::exit::Exit::ALL.map(|(exit, meaning)| (exit.code().to_string(), meaning)))
        .text("64, 77 and 78 are what starting it again does not repair.")
        .section("ENVIRONMENT")
        .text("A variable that is empty counts as not set.")
        .entries(settings.iter().map(|(env, meaning)| (env.clone(), meaning.as_str())))
        .entries([
            ("ECHO_CONFIG".to_owned(), "The configuration file, which must exist. --config is stronger."),
            ("XDG_RUNTIME_DIR, XDG_CONFIG_HOME, HOME".to_owned(), "Where a user's socket and file are."),
            (
                "LISTEN_PID, LISTEN_FDS, NOTIFY_SOCKET, JOURNAL_STREAM".to_owned(),
                "Set by systemd: a socket that it listens on already, where to say that the daemon is ready, and \
                 whether standard error is the journal.",
            ),
        ])
        .section("FILES")
        .entries([
            ("$XDG_RUNTIME_DIR/echo/echod.sock".to_owned(), "The socket of a user's daemon."),
            ("/run/echo/echod.sock".to_owned(), "The socket of root's, and of one without XDG_RUNTIME_DIR."),
            ("$XDG_CONFIG_HOME/echo/echod.toml".to_owned(), "A user's configuration, before the machine's."),
            (SYSTEM_CONFIG.to_owned(), "The machine's configuration."),
        ])
        .section("EXAMPLES")
        .verbatim(echod::cli::EXAMPLES)
        .section("SEE ALSO")
        .text("echoctl(1), echod.toml(5), systemd.socket(5), systemd-socket-activate(1)")
        .end()
}

fn echoctl() -> String {
    let mut command =
        echoctl::cli::Cli::command().disable_help_subcommand(true).subcommand_value_name("command");
    command.build();
    let mut page = Page::begin(&command, "1");
    page.options(&command).section("COMMANDS");
    for leaf in leaves(&command) {
        page.command(&leaf);
    }
    page.section("OUTPUT FOR PROGRAMS")
        .text(
            "With --json there is one object on standard output, or on standard error if it did not work, but for a \
             command line that cannot be understood. Its \"schema\" is 1 until a field changes its meaning or goes; \
             others may come. Sizes are bytes, durations milliseconds. 'echoctl watch' prints an object a line, one \
             for each look; a look that failed has an \"error\" instead of \"tables\".",
        )
        .section("EXIT STATUS")
        .entries(echoctl::exit::Exit::ALL.map(|(exit, meaning)| (exit.code().to_string(), meaning)))
        .section("ENVIRONMENT")
        .entries([
            (SOCKET_VARIABLE.to_owned(), "The daemon's socket. --socket is stronger."),
            ("XDG_RUNTIME_DIR".to_owned(), "Where the socket of a user's daemon is."),
            (
                "ECHO_CUDART, ECHO_CUDA_VENDOR_ROOTS".to_owned(),
                "A CUDA runtime, and directories of NVIDIA's packages, for 'echoctl doctor' as for trainers. Its --cudart is \
                 stronger; its --vendor-root comes first. The variables of echod(8) say what it would configure.",
            ),
            (
                "TERM".to_owned(),
                "If it is dumb or not set, 'echoctl watch' appends lines instead of drawing over those before. Nothing \
                 is printed in colour.",
            ),
        ])
        .section("FILES")
        .text("The socket is the one that --socket or ECHO_SOCKET names, else the first of these that exists:")
        .entries([
            ("$XDG_RUNTIME_DIR/echo/echod.sock".to_owned(), "The socket of a user's daemon."),
            ("/run/echo/echod.sock".to_owned(), "The socket of root's."),
        ])
        .section("EXAMPLES")
        .verbatim(echoctl::cli::EXAMPLES)
        .section("SEE ALSO")
        .text("echod(8), echod.toml(5), jq(1)")
        .end()
}

/// The commands that do something, without the options that all of them have.
fn leaves(command: &Command) -> Vec<Command> {
    let mut leaves = Vec::new();
    for sub in command.get_subcommands() {
        match sub.has_subcommands() {
            true => leaves.extend(self::leaves(sub)),
            false => leaves.push(sub.clone().mut_args(|argument| {
                let is_everybodys = argument.is_global_set() || argument.get_id() == "help";
                argument.hide(is_everybodys)
            })),
        }
    }
    leaves
}
