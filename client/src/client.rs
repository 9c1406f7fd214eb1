//! A connection to the daemon, as a person uses it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use echo::access::AccessList;
use echo::ids::{ClientId, TableId};
use echo::spec::{ArraySpec, TableSpec};
use echo::table::store::Rights;
use echo::wire::codec;
use echo::wire::message::{
    Answer, Attachment, BEING_MADE, Call, ClientRow, GroupFrom, LeasePlace, LeaseRow, Refusal, RefusalKind,
    TableDetails, TableRow, Wait,
};
use echo::wire::socket::SocketError;

use crate::connection::{Answered, Connection, Wanted, connect};
use crate::inbox::Inbox;
use crate::latest::{LatestOptions, LatestReader};
use crate::publisher::Publisher;
use crate::reader::{Reader, ReaderOptions};
use crate::replay_writer::ReplayWriter;
use crate::sampler::{Sampler, SamplerOptions};
use crate::table::Table;
use crate::writer::Writer;
use crate::{Error, Result, search};

/// How long a call may take by default.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer making a table may take, for each GiB of it: small pages take a second or three.
const TIMEOUT_PER_GIB: Duration = Duration::from_secs(10);

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The daemon's socket; if none is named it is searched for (see [`search`]).
    pub socket: Option<PathBuf>,
    /// What this client is called in `echoctl`. The program's name, by default.
    pub name: String,
    /// How long connecting and every call may take, and every wait of a writer unless it is told otherwise.
    pub timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        let program = std::env::args_os().next().map(PathBuf::from);
        let name = program.as_deref().and_then(|path| path.file_name()).unwrap_or_default();
        Self { socket: None, name: name.to_string_lossy().into_owned(), timeout: TIMEOUT }
    }
}

/// A connection to the daemon. Cloning gives another handle to the same one; it ends with the last handle,
/// writer, reader and batch.
#[derive(Clone)]
pub struct Client {
    connection: Arc<Connection>,
}

/// A table that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatedTable {
    /// Its id, for as long as the daemon knows it.
    pub id: TableId,
    /// Whether this call made it; else it was there, with an equal spec.
    pub created: bool,
}

impl Client {
    /// Connects to the daemon that is found, with the default options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_default() -> Result<Self> {
        Self::connect(&ConnectOptions::default())
    }

    /// Connects.
    ///
    /// # Errors
    /// If no daemon listens, it does not answer in time, or it refuses this version.
    pub fn connect(options: &ConnectOptions) -> Result<Self> {
        let path = search(options.socket.as_deref())?;
        let socket = connect(path, options.timeout)?;
        let connection = Connection::greet(socket, &options.name, options.timeout)?;
        Ok(Self { connection: Arc::new(connection) })
    }

    /// This client's id, as `echoctl` shows it.
    pub fn id(&self) -> ClientId {
        self.connection.welcome().client
    }

    /// The daemon, among all that ever ran: another one after a restart.
    pub fn instance(&self) -> [u8; 16] {
        self.connection.welcome().instance
    }

    /// Whether this process was forked from the one that connected, in which the connection is of no use.
    pub fn is_elsewhere(&self) -> bool {
        self.connection.is_elsewhere()
    }

    /// Why the daemon is gone, if that is known; nothing is asked.
    pub fn gone(&self) -> Option<String> {
        self.connection.gone()
    }

    /// Makes a table, or finds one of that name with an equal spec. Returns when its memory is resident, which
    /// takes a second a GiB.
    ///
    /// # Errors
    /// If there is a table of that name with another spec (the error shows the difference), if the spec is none
    /// that a table can have, or if a budget or the kernel refuses the memory.
    pub fn create_table(&self, spec: &TableSpec) -> Result<CreatedTable> {
        self.create(spec, None, None)
    }

    /// As [`Client::create_table`], and says who else may do what with the table: without that others may look at it.
    /// One of that name must have an equal list.
    ///
    /// # Errors
    /// As [`Client::create_table`].
    pub fn create_table_for(&self, spec: &TableSpec, access: &AccessList) -> Result<CreatedTable> {
        self.create(spec, Some(access.clone()), None)
    }

    /// As [`Client::create_table`] or [`Client::create_table_for`], for those who want to show how far it is: `told` hears
    /// ten times a second how many bytes are resident, and of how many, in the thread that calls.
    ///
    /// # Errors
    /// As [`Client::create_table`].
    pub fn create_table_telling(
        &self,
        spec: &TableSpec,
        access: Option<&AccessList>,
        told: impl Fn(u64, u64) + Send + Sync,
    ) -> Result<CreatedTable> {
        let tell = || {
            // One who cannot be told now is told later, or when it is done.
            let rows = self.list_tables().unwrap_or_default();
            let being_made = rows.iter().find(|row| row.name == spec.name && row.state == BEING_MADE);
            if let Some(row) = being_made {
                // With what a table needs beside its samples.
                told(row.committed_bytes.min(bytes_of(spec)), bytes_of(spec));
            }
            true
        };
        let created = self.create(spec, access.cloned(), Some(&tell))?;
        told(bytes_of(spec), bytes_of(spec));
        Ok(created)
    }

    fn create(
        &self,
        spec: &TableSpec,
        access: Option<AccessList>,
        wanted: Option<&Wanted<'_>>,
    ) -> Result<CreatedTable> {
        let valid = spec.validate().map_err(|error| error.to_string());
        // What no message holds could not even be refused.
        valid
            .and_then(|()| codec::check_spec(spec).map_err(|error| error.to_string()))
            .map_err(|message| Error::Refused(Refusal { kind: RefusalKind::InvalidSpec, message }))?;
        let gib = u32::try_from(bytes_of(spec) >> 30).unwrap_or(u32::MAX);
        let timeout = self.connection.timeout().saturating_add(TIMEOUT_PER_GIB.saturating_mul(gib));
        let call = Call::CreateTable { spec: spec.clone(), access };
        match self.connection.call_while(call, timeout, wanted)?.answer {
            Answer::Table { table, created } => Ok(CreatedTable { id: table, created }),
            other => Err(wrong(&other)),
        }
    }

    /// Ends a table for everybody. Its memory goes back when nobody has it mapped any more.
    ///
    /// # Errors
    /// If there is none, or it is another user's.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.call(Call::DropTable { name: name.into() }).map(drop)
    }

    /// Says anew who may do what with a table, beside its owner. Who is attached stays so.
    ///
    /// # Errors
    /// If there is no such table, or this user may not administer it.
    pub fn set_access(&self, table: &str, access: &AccessList) -> Result<()> {
        self.call(Call::SetAccess { table: table.into(), access: access.clone() }).map(drop)
    }

    /// The right to write samples into a table. If `arrays` is given it must be what the table's samples are.
    ///
    /// # Errors
    /// If there is no such table, its arrays are others, it has ended, or its access list does not allow it.
    pub fn attach_writer(&self, table: &str, arrays: Option<&[ArraySpec]>) -> Result<Writer> {
        let call = Call::AttachWriter { table: table.into(), arrays: arrays.map(<[_]>::to_vec) };
        let (table, attachment, inbox) = self.attach(call, Rights::Write)?;
        Writer::new(self.connection.clone(), table, &attachment, inbox)
    }

    /// The right to read batches out of a table. If `arrays` is given it must be what the table's samples are.
    ///
    /// # Errors
    /// If there is no such table, its arrays are others, the prefetch depth is none, or the table's access list does
    /// not allow it.
    pub fn attach_reader(
        &self,
        table: &str,
        arrays: Option<&[ArraySpec]>,
        options: ReaderOptions,
    ) -> Result<Reader> {
        let arrays = arrays.map(<[_]>::to_vec);
        let (prefetch, pin) = (options.prefetch, options.registrable);
        let call = Call::AttachReader { table: table.into(), arrays, prefetch, pin };
        let rights = if pin { Rights::Pin } else { Rights::Read };
        let (table, attachment, inbox) = self.attach(call, rights)?;
        Ok(Reader::new(self.connection.clone(), table, &attachment, inbox, options))
    }

    /// As [`Client::attach_reader`], as a reader of that group: each batch goes to one reader of every group.
    ///
    /// # Errors
    /// As that, and if there is no such group.
    pub fn attach_group_reader(
        &self,
        table: &str,
        group: &str,
        arrays: Option<&[ArraySpec]>,
        options: ReaderOptions,
    ) -> Result<Reader> {
        let (arrays, group) = (arrays.map(<[_]>::to_vec), group.into());
        let (prefetch, pin) = (options.prefetch, options.registrable);
        let call = Call::AttachGroupReader { table: table.into(), group, arrays, prefetch, pin };
        let rights = if pin { Rights::Pin } else { Rights::Read };
        let (table, attachment, inbox) = self.attach(call, rights)?;
        Ok(Reader::new(self.connection.clone(), table, &attachment, inbox, options))
    }

    /// Has another group read a queue table, from there on. With `max_lag` it skips the oldest batches when it lags by more
    /// bytes, rounded down to whole batches; without, workers wait for it. The table's owner may, and whom the access list
    /// lets administer.
    ///
    /// # Errors
    /// If there is no such queue table, this user may not, there is such a group already, or there are eight.
    pub fn add_group(&self, table: &str, group: &str, from: GroupFrom, max_lag: Option<u64>) -> Result<()> {
        let (table, group) = (table.into(), group.into());
        self.call(Call::AddGroup { table, group, from, max_lag }).map(drop)
    }

    /// Lets a group go, for which nobody waits any more.
    ///
    /// # Errors
    /// As [`Client::add_group`], and if the group has readers, or is the last one.
    pub fn remove_group(&self, table: &str, group: &str) -> Result<()> {
        self.call(Call::RemoveGroup { table: table.into(), group: group.into() }).map(drop)
    }

    /// Has a group read once more what is still there, since other groups are not done with it. How many batches.
    ///
    /// # Errors
    /// As [`Client::add_group`].
    pub fn rewind_group(&self, table: &str, group: &str) -> Result<u64> {
        match self.call(Call::RewindGroup { table: table.into(), group: group.into() })? {
            Answer::Counted { applied, .. } => Ok(applied),
            other => Err(wrong(&other)),
        }
    }

    /// The right to write samples into a replay table. If `arrays` is given it must be what the table's samples are.
    ///
    /// # Errors
    /// If there is no such table, it is of another kind, its arrays are others, it has ended, or its access list does not
    /// allow it.
    pub fn attach_replay_writer(&self, table: &str, arrays: Option<&[ArraySpec]>) -> Result<ReplayWriter> {
        let call = Call::AttachReplayWriter { table: table.into(), arrays: arrays.map(<[_]>::to_vec) };
        let (table, attachment, inbox) = self.attach(call, Rights::Write)?;
        Writer::new(self.connection.clone(), table, &attachment, inbox).map(ReplayWriter::new)
    }

    /// The right to sample a replay table. If `arrays` is given it must be what the table's samples are.
    ///
    /// # Errors
    /// If there is no such table, it is of another kind, its arrays are others, its access list does not allow it, or there
    /// is no memory for the batches.
    pub fn attach_sampler(
        &self,
        table: &str,
        arrays: Option<&[ArraySpec]>,
        options: SamplerOptions,
    ) -> Result<Sampler> {
        let arrays = arrays.map(<[_]>::to_vec);
        let call = Call::AttachSampler { table: table.into(), arrays, pin: false };
        let (table, attachment, inbox) = self.attach(call, Rights::Read)?;
        Sampler::new(self.connection.clone(), table, &attachment, inbox, options)
    }

    /// Removes all items of a replay table, and counts from zero. Its owner may, and whom the access list lets administer.
    ///
    /// # Errors
    /// If there is no such table, or this user may not.
    pub fn reset_table(&self, table: &str) -> Result<()> {
        self.call(Call::ResetTable { name: table.into() }).map(drop)
    }

    /// The right to publish values of a latest table, of which there is one at a time. If `arrays` is given it must be what
    /// the table's values are.
    ///
    /// # Errors
    /// If there is no such table, it is of another kind, its arrays are others, it has its publisher (the error names it),
    /// it has ended, or its access list does not allow it.
    pub fn attach_publisher(&self, table: &str, arrays: Option<&[ArraySpec]>) -> Result<Publisher> {
        let call = Call::AttachPublisher { table: table.into(), arrays: arrays.map(<[_]>::to_vec) };
        let (table, attachment, inbox) = self.attach(call, Rights::Write)?;
        Writer::new(self.connection.clone(), table, &attachment, inbox).map(Publisher::new)
    }

    /// The right to take the newest value of a latest table. If `arrays` is given it must be what the table's values are.
    ///
    /// # Errors
    /// If there is no such table, it is of another kind, its arrays are others, or its access list does not allow it.
    pub fn attach_latest(
        &self,
        table: &str,
        arrays: Option<&[ArraySpec]>,
        options: LatestOptions,
    ) -> Result<LatestReader> {
        let (arrays, pin) = (arrays.map(<[_]>::to_vec), options.registrable);
        let call = Call::AttachLatest { table: table.into(), arrays, pin };
        let rights = if pin { Rights::Pin } else { Rights::Read };
        let (table, attachment, inbox) = self.attach(call, rights)?;
        LatestReader::new(self.connection.clone(), table, &attachment, inbox, options)
    }

    fn attach(&self, call: Call, rights: Rights) -> Result<(Table, Attachment, Arc<Inbox>)> {
        let answered = self.connection.call(call, self.connection.timeout())?;
        let Answered { answer: Answer::Attached(attachment), descriptors, inbox: Some(inbox) } = answered
        else {
            return Err(wrong(&answered.answer));
        };
        let member = attachment.member;
        let descriptors = descriptors.ok_or(Error::Socket(SocketError::DescriptorsLost));
        match descriptors.and_then(|descriptors| Table::map(&attachment, descriptors, rights)) {
            Ok(table) => Ok((table, attachment, inbox)),
            Err(error) => {
                self.connection.detach(member);
                Err(error)
            }
        }
    }

    /// All tables, by name.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn list_tables(&self) -> Result<Vec<TableRow>> {
        let mut all: Vec<TableRow> = Vec::new();
        loop {
            match self.call(Call::ListTables { after: all.last().map(|row| row.name.clone()) })? {
                Answer::Tables { rows, more } => {
                    let ends = !more || rows.is_empty();
                    all.extend(rows);
                    if ends {
                        return Ok(all);
                    }
                }
                other => return Err(wrong(&other)),
            }
        }
    }

    /// One table, in full.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn show_table(&self, name: &str) -> Result<TableDetails> {
        match self.call(Call::ShowTable { name: name.into() })? {
            Answer::TableDetails(details) => Ok(details),
            other => Err(wrong(&other)),
        }
    }

    /// All clients, by id.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn list_clients(&self) -> Result<Vec<ClientRow>> {
        let mut all: Vec<ClientRow> = Vec::new();
        loop {
            match self.call(Call::ListClients { after: all.last().map(|row| row.client) })? {
                Answer::Clients { rows, more } => {
                    let ends = !more || rows.is_empty();
                    all.extend(rows);
                    if ends {
                        return Ok(all);
                    }
                }
                other => return Err(wrong(&other)),
            }
        }
    }

    /// What is being waited for at a table, and who holds it up; longest first.
    ///
    /// # Errors
    /// If there is no such table.
    pub fn why(&self, name: &str) -> Result<Vec<Wait>> {
        match self.call(Call::Why { name: name.into() })? {
            Answer::Why { waits } => Ok(waits),
            other => Err(wrong(&other)),
        }
    }

    /// The batches and values that readers hold, of one table or of all; in the order in which the tables were made, and
    /// each table's in the order of its batches.
    ///
    /// # Errors
    /// If there is no such table.
    pub fn list_leases(&self, table: Option<&str>) -> Result<Vec<LeaseRow>> {
        let mut all: Vec<LeaseRow> = Vec::new();
        loop {
            let place = |row: &LeaseRow| LeasePlace {
                table: row.table,
                seq: row.seq,
                client: row.client,
                member: row.member,
            };
            let after = all.last().map(place);
            match self.call(Call::ListLeases { table: table.map(str::to_owned), after })? {
                Answer::Leases { rows, more } => {
                    let ends = !more || rows.is_empty();
                    all.extend(rows);
                    if ends {
                        return Ok(all);
                    }
                }
                other => return Err(wrong(&other)),
            }
        }
    }

    fn call(&self, call: Call) -> Result<Answer> {
        Ok(self.connection.call(call, self.connection.timeout())?.answer)
    }
}

/// Bytes of the samples that a table of a valid spec has room for.
fn bytes_of(spec: &TableSpec) -> u64 {
    spec.sample_bytes().saturating_mul(u64::from(spec.batch_size) * u64::from(spec.capacity))
}

fn wrong(answer: &Answer) -> Error {
    Error::Announced(format!("the answer makes no sense: {answer:?}"))
}
