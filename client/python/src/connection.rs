//! A connection to a daemon, and what can be asked there.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use echo_client::message::{GroupRow, MemberRow, Refusal, RefusalKind, TableDetails, Wait};
use echo_client::{
    AccessList, ArraySpec, Client as Inner, ConnectOptions, DType, GroupFrom, HugePages, LatestOptions, Pin,
    ReaderOptions, Rule, SamplerOptions, TableKind, TableSpec,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure;
use crate::late::Whose;
use crate::latest::LatestReader;
use crate::publisher::Publisher;
use crate::reader::Reader;
use crate::replay_settings::{self, settings_of};
use crate::replay_writer::ReplayWriter;
use crate::sampler::Sampler;
use crate::structure::Structure;
use crate::waiting::{ask, duration, interruptible_telling};
use crate::writer::Writer;

/// An array as Python says it: its name, its dtype's, and the shape of one sample's.
pub(crate) type Described = (String, String, Vec<u64>);

/// A connection. `echod.Connection` is what people use.
#[pyclass(frozen, module = "echod._native")]
pub(crate) struct Client {
    inner: Inner,
    socket: PathBuf,
    timeout: Duration,
}

#[pymethods]
impl Client {
    #[new]
    fn new(py: Python<'_>, socket: Option<PathBuf>, name: String, timeout: f64) -> PyResult<Self> {
        let timeout = duration(Some(timeout))?.unwrap_or(Duration::MAX);
        // Found now, so that others can find the same one.
        let socket = echo_client::search(socket.as_deref()).map_err(|error| failure::of(py, error))?;
        let options = ConnectOptions { socket: Some(socket.clone()), name, timeout };
        let inner = ask(py, move || Inner::connect(&options))?;
        Ok(Self { inner, socket, timeout })
    }

    /// The daemon's socket.
    #[getter]
    fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// This client's number, as echoctl shows it.
    #[getter]
    fn id(&self) -> u64 {
        self.inner.id().0
    }

    /// Whether this process was forked from the one that connected.
    #[getter]
    fn is_elsewhere(&self) -> bool {
        self.inner.is_elsewhere()
    }

    /// Why the daemon is gone, if that is known.
    #[getter]
    fn gone(&self) -> Option<String> {
        self.inner.gone()
    }

    /// Whether the daemon still answers.
    #[getter]
    fn is_alive(&self, py: Python<'_>) -> bool {
        let inner = self.inner.clone();
        ask(py, move || inner.list_tables()).is_ok()
    }

    /// Makes a table, or finds an equal one: whether it was made. `arrays` are (name, dtype, shape); `progress` is called
    /// with the bytes that are resident, and all of them, whenever there are more.
    #[expect(clippy::too_many_arguments, reason = "what a table is; named in Python")]
    fn create_table(
        &self,
        py: Python<'_>,
        name: String,
        arrays: Vec<Described>,
        batch_size: u32,
        capacity: u32,
        max_capacity: Option<u32>,
        pin: &str,
        huge_pages: &str,
        access: Option<Vec<String>>,
        progress: Option<Bound<'_, PyAny>>,
        kind: &str,
        replay: Option<Bound<'_, PyDict>>,
    ) -> PyResult<bool> {
        let arrays = specs(arrays)?;
        let kind = TableKind::ALL
            .into_iter()
            .find(|known| known.name() == kind)
            .ok_or_else(|| PyValueError::new_err(format!("kind is 'queue' or 'latest', not {kind:?}")))?;
        let sized = match &replay {
            // How many blocks it has follows from its settings.
            Some(settings) => TableSpec::replay(name, arrays, settings_of(settings)?),
            None => TableSpec {
                kind,
                max_capacity: max_capacity.unwrap_or(capacity),
                ..TableSpec::new(name, arrays, batch_size, capacity)
            },
        };
        let spec = TableSpec {
            pin: match pin {
                "required" => Pin::Required,
                "best-effort" => Pin::BestEffort,
                "off" => Pin::Off,
                other => {
                    let message = format!("pin is 'required', 'best-effort' or 'off', not {other:?}");
                    return Err(PyValueError::new_err(message));
                }
            },
            huge_pages: match huge_pages {
                "auto" => HugePages::Auto,
                "required" => HugePages::Required,
                "off" => HugePages::Off,
                other => {
                    let message = format!("huge_pages is 'auto', 'required' or 'off', not {other:?}");
                    return Err(PyValueError::new_err(message));
                }
            },
            ..sized
        };
        let access = access.map(|rules| rules.iter().map(|rule| parse(rule)).collect::<PyResult<_>>());
        let (inner, access) = (self.inner.clone(), access.transpose()?.map(AccessList));
        let Some(progress) = progress else {
            let made = ask(py, move || match &access {
                None => inner.create_table(&spec),
                Some(access) => inner.create_table_for(&spec, access),
            })?;
            return Ok(made.created);
        };
        // What is heard in the other thread is told in this one.
        let heard: Arc<Mutex<Option<(u64, u64)>>> = Arc::default();
        let hears = heard.clone();
        let create = move || {
            inner.create_table_telling(&spec, access.as_ref(), |resident, total| {
                *hears.lock().unwrap_or_else(PoisonError::into_inner) = Some((resident, total));
            })
        };
        let mut told = None;
        let tell = || {
            let now = *heard.lock().unwrap_or_else(PoisonError::into_inner);
            match now {
                Some((resident, total)) if told != Some(resident) => {
                    told = Some(resident);
                    progress.call1((resident, total)).map(drop)
                }
                _ => Ok(()),
            }
        };
        let made = interruptible_telling(py, create, tell)?.map_err(|error| failure::of(py, error))?;
        Ok(made.created)
    }

    /// One table, in full.
    fn show_table<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.inner.clone();
        let details = ask(py, move || inner.show_table(&name))?;
        described(py, &details)
    }

    /// The names of all tables.
    fn list_tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let inner = self.inner.clone();
        let rows = ask(py, move || inner.list_tables())?;
        Ok(rows.into_iter().map(|row| row.name).collect())
    }

    /// Ends a table for everybody.
    fn drop_table(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let inner = self.inner.clone();
        ask(py, move || inner.drop_table(&name))
    }

    /// Removes all items of a replay table, and counts from zero.
    fn reset_table(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let inner = self.inner.clone();
        ask(py, move || inner.reset_table(&name))
    }

    /// Has another group read a queue table: batches from the next one on, or all that are still there.
    fn add_group(
        &self,
        py: Python<'_>,
        table: String,
        group: String,
        from_newest: bool,
        max_lag: Option<u64>,
    ) -> PyResult<()> {
        let from = if from_newest { GroupFrom::Newest } else { GroupFrom::Oldest };
        let inner = self.inner.clone();
        ask(py, move || inner.add_group(&table, &group, from, max_lag))
    }

    /// Lets a group go.
    fn remove_group(&self, py: Python<'_>, table: String, group: String) -> PyResult<()> {
        let inner = self.inner.clone();
        ask(py, move || inner.remove_group(&table, &group))
    }

    /// Has a group read once more what is still there: how many batches.
    fn rewind_group(&self, py: Python<'_>, table: String, group: String) -> PyResult<u64> {
        let inner = self.inner.clone();
        ask(py, move || inner.rewind_group(&table, &group))
    }

    /// Says anew who may do what with a table.
    fn set_access(&self, py: Python<'_>, name: String, access: Vec<String>) -> PyResult<()> {
        let access = AccessList(access.iter().map(|rule| parse(rule)).collect::<PyResult<_>>()?);
        let inner = self.inner.clone();
        ask(py, move || inner.set_access(&name, &access))
    }

    /// What is being waited for at a table, and who holds it up.
    fn why(&self, py: Python<'_>, name: String) -> PyResult<Vec<String>> {
        let inner = self.inner.clone();
        let waits = ask(py, move || inner.why(&name))?;
        Ok(waits.iter().map(said).collect())
    }
}

impl Client {
    /// How long a writer's calls wait that do not say it themselves, and who said that.
    fn waits(&self, own: Option<f64>) -> (f64, Whose) {
        own.map_or((self.timeout.as_secs_f64(), Whose::Connection), |own| (own, Whose::Writer))
    }

    /// A writer of a table. If `arrays` is given the table's must be these: it may have been made anew since they were known.
    pub(crate) fn writer(
        &self,
        py: Python<'_>,
        table: String,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
        arrays: Option<Vec<Described>>,
    ) -> PyResult<Writer> {
        let (inner, arrays) = (self.inner.clone(), arrays.map(specs).transpose()?);
        let writer = ask(py, move || inner.attach_writer(&table, arrays.as_deref()))?;
        Writer::new(py, writer, structure, self.waits(timeout))
    }

    /// A reader of a table, one of that group. If `arrays` and `batch_size` are given the table's must be these, as for a writer.
    #[expect(clippy::too_many_arguments, reason = "what a reader is; called once")]
    pub(crate) fn reader(
        &self,
        py: Python<'_>,
        table: String,
        structure: Option<Py<Structure>>,
        options: ReaderOptions,
        copy: bool,
        patience: Option<f64>,
        arrays: Option<Vec<Described>>,
        batch_size: Option<u32>,
        group: Option<String>,
    ) -> PyResult<Reader> {
        let (inner, arrays) = (self.inner.clone(), arrays.map(specs).transpose()?);
        let reader = ask(py, move || match group {
            None => inner.attach_reader(&table, arrays.as_deref(), options),
            Some(group) => inner.attach_group_reader(&table, &group, arrays.as_deref(), options),
        })?;
        let (name, has) = (&reader.spec().name, reader.spec().batch_size);
        if let Some(asked) = batch_size.filter(|&asked| asked != has) {
            let message = format!(
                "table {name:?} is another one (-: the table, +: asked for):\n- batch_size {has}\n+ batch_size {asked}"
            );
            let refusal = Refusal { kind: RefusalKind::SpecMismatch, message };
            return Err(failure::of(py, echo_client::Error::Refused(refusal)));
        }
        Reader::new(py, reader, structure, copy, patience)
    }

    /// A publisher of a latest table. Of `arrays` see [`Client::writer`].
    pub(crate) fn publisher(
        &self,
        py: Python<'_>,
        table: String,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
        arrays: Option<Vec<Described>>,
    ) -> PyResult<Publisher> {
        let (inner, arrays) = (self.inner.clone(), arrays.map(specs).transpose()?);
        let publisher = ask(py, move || inner.attach_publisher(&table, arrays.as_deref()))?;
        Publisher::new(py, publisher, structure, self.waits(timeout))
    }

    /// A reader of a latest table. Of `arrays` see [`Client::writer`].
    pub(crate) fn latest(
        &self,
        py: Python<'_>,
        table: String,
        structure: Option<Py<Structure>>,
        options: LatestOptions,
        copy: bool,
        arrays: Option<Vec<Described>>,
    ) -> PyResult<LatestReader> {
        let (inner, arrays) = (self.inner.clone(), arrays.map(specs).transpose()?);
        let reader = ask(py, move || inner.attach_latest(&table, arrays.as_deref(), options))?;
        LatestReader::new(py, reader, structure, copy)
    }
}

impl Client {
    /// A writer of a replay table. Of `arrays` see [`Client::writer`].
    pub(crate) fn replay_writer(
        &self,
        py: Python<'_>,
        table: String,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
        arrays: Option<Vec<Described>>,
    ) -> PyResult<ReplayWriter> {
        let (inner, arrays) = (self.inner.clone(), arrays.map(specs).transpose()?);
        let writer = ask(py, move || inner.attach_replay_writer(&table, arrays.as_deref()))?;
        ReplayWriter::new(py, writer, structure, self.waits(timeout))
    }

    /// A sampler of a replay table. Of `arrays` see [`Client::writer`].
    #[expect(clippy::too_many_arguments, reason = "what a sampler is; called once")]
    pub(crate) fn sampler(
        &self,
        py: Python<'_>,
        table: String,
        structure: Option<Py<Structure>>,
        options: SamplerOptions,
        copy: bool,
        patience: Option<f64>,
        arrays: Option<Vec<Described>>,
    ) -> PyResult<Sampler> {
        let (inner, arrays) = (self.inner.clone(), arrays.map(specs).transpose()?);
        let sampler = ask(py, move || inner.attach_sampler(&table, arrays.as_deref(), options))?;
        Sampler::new(py, sampler, structure, copy, patience, self.timeout)
    }
}

/// As the client takes them.
fn specs(arrays: Vec<Described>) -> PyResult<Vec<ArraySpec>> {
    let array = |(path, dtype, shape): Described| {
        let dtype = DType::from_name(&dtype).ok_or_else(|| {
            PyTypeError::new_err(format!("leaf {path:?} has dtype {dtype}, which a table cannot hold"))
        })?;
        Ok(ArraySpec::new(path, dtype, shape))
    };
    arrays.into_iter().map(array).collect()
}

/// `writer worker (pid 41) waits for room (for 1.5 s): held by trainer (pid 42): reads batch 0 (for 2.0 s)`
fn said(wait: &Wait) -> String {
    let age = |ms: u64| format!("(for {}.{} s)", ms / 1000, ms % 1000 / 100);
    let mut text = format!("{} waits for {} {}", wait.who, wait.waits_for, age(wait.for_ms));
    for holder in &wait.held_by {
        let process =
            if holder.pid == 0 { "its pid is not known".into() } else { format!("pid {}", holder.pid) };
        text += &format!(": held by {} ({process}): {} {}", holder.name, holder.what, age(holder.for_ms));
    }
    text
}

fn parse(rule: &str) -> PyResult<Rule> {
    rule.parse().map_err(|error| PyValueError::new_err(format!("access rule {rule:?}: {error}")))
}

fn described<'py>(py: Python<'py>, details: &TableDetails) -> PyResult<Bound<'py, PyDict>> {
    let TableDetails { row, spec, access, members, .. } = details;
    let shown = PyDict::new(py);
    let array = |array: &ArraySpec| (array.path.clone(), array.dtype.name(), array.shape.clone());
    let rules: Vec<String> = access.0.iter().map(ToString::to_string).collect();
    shown.set_item("name", &row.name)?;
    shown.set_item("kind", row.kind.name())?;
    shown.set_item("state", &row.state)?;
    shown.set_item("arrays", spec.arrays.iter().map(array).collect::<Vec<_>>())?;
    shown.set_item("batch_size", spec.batch_size)?;
    shown.set_item("capacity", spec.capacity)?;
    shown.set_item("max_capacity", spec.max_capacity)?;
    shown.set_item("access", rules)?;
    shown.set_item("sample_bytes", row.sample_bytes)?;
    shown.set_item("committed_bytes", row.committed_bytes)?;
    shown.set_item("writers", row.writers)?;
    shown.set_item("readers", row.readers)?;
    shown.set_item("samples_committed", row.samples.committed)?;
    shown.set_item("samples_delivered", row.samples.delivered)?;
    shown.set_item("samples_pending", row.samples.pending)?;
    shown.set_item("batches_delivered", details.batches_delivered)?;
    shown.set_item("newest", details.newest)?;
    shown.set_item("replay", replay_settings::described(py, details)?)?;
    let groups: Vec<_> =
        details.groups.iter().map(|group| described_group(py, group)).collect::<PyResult<_>>()?;
    shown.set_item("groups", groups)?;
    let members: Vec<_> =
        members.iter().map(|member| described_member(py, member)).collect::<PyResult<_>>()?;
    shown.set_item("members", members)?;
    Ok(shown)
}

fn described_group<'py>(py: Python<'py>, group: &GroupRow) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("name", &group.name)?;
    shown.set_item("readers", group.readers)?;
    shown.set_item("lag", group.lag)?;
    shown.set_item("max_lag", group.max_lag)?;
    shown.set_item("batches_delivered", group.batches)?;
    shown.set_item("batches_skipped", group.skipped)?;
    Ok(shown)
}

fn described_member<'py>(py: Python<'py>, member: &MemberRow) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    shown.set_item("name", &member.name)?;
    shown.set_item("pid", member.pid)?;
    shown.set_item("writer", member.writer)?;
    shown.set_item("state", &member.state)?;
    shown.set_item("done", member.done)?;
    shown.set_item("waits", member.waits)?;
    Ok(shown)
}
