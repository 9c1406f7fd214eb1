//! Asking again and again: `echoctl watch`.
//!
//! The first look is not shown: it is what the second is compared with, and it fails as any other command does. From
//! then on whatever goes wrong is shown like a look, and tried again: a daemon that is replaced under a running
//! `watch` is what it is for. It ends when it was told to, or when nobody reads what it prints.

mod paper;
pub mod rates;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use echo_client::{Client, Error};

use crate::cli::{Connect, Watch};
use crate::commands;
use crate::failure::Failure;
use paper::Paper;
use rates::{Look, TableLook};

/// Watches until it is told to end.
///
/// # Errors
/// If the first look fails, the last of as many as were wanted does, or nothing can be printed.
pub fn run(watch: &Watch, connect: &Connect, json: bool) -> Result<(), Failure> {
    let mut watcher = Watcher { watch, connect, client: None, started: Instant::now() };
    let mut paper = match json {
        true => Paper::Objects,
        false if is_screen() => Paper::Screen { drawn: 0 },
        false => Paper::Rows { headed: false },
    };
    let mut before = watcher.look()?;
    let mut next = Instant::now();
    let mut looks = 0;
    loop {
        next = (next + watch.interval).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let seen = watcher.look().map_err(Failure::from);
        commands::print(&paper.write(seen.as_ref(), &before))?;
        looks += 1;
        if watch.count.is_some_and(|count| looks >= count) {
            return seen.map(drop);
        }
        // After a failure the next rates are over the whole gap, if it is the same daemon still.
        if let Ok(look) = seen {
            before = look;
        }
    }
}

/// Whether what is printed can be drawn over.
fn is_screen() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

struct Watcher<'a> {
    watch: &'a Watch,
    connect: &'a Connect,
    /// None while the daemon is gone.
    client: Option<Client>,
    started: Instant,
}

impl Watcher<'_> {
    fn look(&mut self) -> Result<Look, Error> {
        let client = match self.client.take() {
            Some(client) => client,
            None => commands::client(self.connect)?,
        };
        let look = self.look_with(&client);
        // What the daemon refuses says that it is there; after anything else there is a new connection.
        if matches!(look, Ok(_) | Err(Error::Refused(_))) {
            self.client = Some(client);
        }
        look
    }

    fn look_with(&self, client: &Client) -> Result<Look, Error> {
        let tables = match &self.watch.table {
            Some(name) => vec![self.look_at(client, name)?],
            None => {
                let mut tables = Vec::new();
                for row in client.list_tables()? {
                    match self.look_at(client, &row.name) {
                        Ok(table) => tables.push(table),
                        // It was dropped since, or is none of ours.
                        Err(Error::Refused(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                tables
            }
        };
        Ok(Look { instance: client.instance(), tables })
    }

    fn look_at(&self, client: &Client, name: &str) -> Result<TableLook, Error> {
        let details = client.show_table(name)?;
        // Before the next question: the counts are of this moment.
        let at: Duration = self.started.elapsed();
        let wait = client.why(name)?.into_iter().next();
        Ok(TableLook { at, row: details.row, batches: details.batches_delivered, wait })
    }
}
