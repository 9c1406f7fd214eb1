//! Asking: each command, and what comes back.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use echo_client::message::{ClientRow, LeaseRow, Status, TableDetails, TableRow, Wait};
use echo_client::{AccessList, Client, ConnectOptions};

use crate::cli::{self, Command, Connect};
use crate::doctor::{self, Report, Verdict};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::{json, view, watch};
use echod::bytes::Bytes;

/// What a command found or did.
#[derive(Debug)]
#[expect(missing_docs, reason = "named as the commands are")]
pub enum Answer {
    Status { socket: PathBuf, status: Status },
    Tables(Vec<TableRow>),
    Table(Box<TableDetails>),
    Created { name: String, created: bool },
    Dropped { name: String },
    Reset { name: String },
    Groups(Box<TableDetails>),
    GroupChanged { table: String, group: String, what: GroupChange },
    Access(Box<TableDetails>),
    Clients(Vec<ClientRow>),
    Why { table: String, waits: Vec<Wait> },
    Leases(Vec<LeaseRow>),
    Doctor(Report),
}

/// What became of a group.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "named as the commands are")]
pub enum GroupChange {
    Added,
    Removed,
    Rewound { batches: u64 },
}

impl Answer {
    /// What standard output gets.
    pub fn render(&self, json: bool) -> String {
        if json { format!("{:#}\n", json::answer(self)) } else { view::answer(self) }
    }

    /// How the command ends that found this.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Doctor(report) if report.verdict() != Verdict::Works => Exit::No,
            _ => Exit::Done,
        }
    }
}

/// Does what was asked, prints what came of it, and says how that ends.
///
/// # Errors
/// If no daemon answers, it refuses, or the answer cannot be printed.
pub fn run(command: &Command, connect: &Connect, json: bool) -> Result<Exit, Failure> {
    let client = || self::client(connect);
    let answer = match command {
        Command::Status => status(connect.socket.as_deref(), connect)?,
        Command::Table(cli::Table::List) => Answer::Tables(client()?.list_tables()?),
        Command::Table(cli::Table::Show { name }) => Answer::Table(Box::new(client()?.show_table(name)?)),
        Command::Table(cli::Table::Create(create)) => {
            let spec = create.spec().expect("checked with the rest of the command line");
            let made = match &create.access[..] {
                [] => client()?.create_table(&spec)?,
                rules => client()?.create_table_for(&spec, &AccessList(rules.to_vec()))?,
            };
            Answer::Created { name: create.name.clone(), created: made.created }
        }
        Command::Table(cli::Table::Drop { name }) => {
            client()?.drop_table(name)?;
            Answer::Dropped { name: name.clone() }
        }
        Command::Table(cli::Table::Reset { name }) => {
            client()?.reset_table(name)?;
            Answer::Reset { name: name.clone() }
        }
        Command::Table(cli::Table::Access(access)) => {
            let client = client()?;
            if access.clear || !access.rules.is_empty() {
                client.set_access(&access.name, &AccessList(access.rules.clone()))?;
            }
            Answer::Access(Box::new(client.show_table(&access.name)?))
        }
        Command::Group(group) => self::group(&client()?, group)?,
        Command::Client(cli::Client::List) => {
            let client = client()?;
            let mut rows = client.list_clients()?;
            // The question itself is nobody's client.
            rows.retain(|row| row.client != client.id());
            Answer::Clients(rows)
        }
        Command::Lease(cli::Lease::List { table }) => {
            Answer::Leases(client()?.list_leases(table.as_deref())?)
        }
        Command::Why { table } => Answer::Why { table: table.clone(), waits: client()?.why(table)? },
        Command::Watch(watch) => return watch::run(watch, connect, json).map(|()| Exit::Done),
        Command::Doctor(doctor) => Answer::Doctor(doctor::examine(doctor, connect)),
    };
    print(&answer.render(json))?;
    Ok(answer.exit())
}

fn group(client: &Client, group: &cli::Group) -> Result<Answer, Failure> {
    let (table, group, what) = match group {
        cli::Group::List { table } => return Ok(Answer::Groups(Box::new(client.show_table(table)?))),
        cli::Group::Add(add) => {
            let max_lag = add.max_lag.map(|Bytes(bytes)| bytes);
            client.add_group(&add.table, &add.group, add.from, max_lag)?;
            (&add.table, &add.group, GroupChange::Added)
        }
        cli::Group::Remove { table, group } => {
            client.remove_group(table, group)?;
            (table, group, GroupChange::Removed)
        }
        cli::Group::Rewind { table, group } => {
            (table, group, GroupChange::Rewound { batches: client.rewind_group(table, group)? })
        }
    };
    Ok(Answer::GroupChanged { table: table.clone(), group: group.clone(), what })
}

/// A connection.
pub(crate) fn client(connect: &Connect) -> echo_client::Result<Client> {
    Client::connect(&ConnectOptions {
        socket: connect.socket.clone(),
        name: "echoctl".into(),
        timeout: connect.timeout,
    })
}

/// Writes to standard output, at once.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Print)
}

fn status(socket: Option<&Path>, connect: &Connect) -> Result<Answer, Failure> {
    let socket = echo_client::search(socket)?;
    let status = echo_client::status(Some(&socket), connect.timeout)?;
    Ok(Answer::Status { socket, status })
}
