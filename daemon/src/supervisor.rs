//! The one task that owns all tables and clients.
//!
//! Connections, process exits, finished work and the clock send it [`Input`]s; it handles them one after the
//! other and answers through outboxes. It never waits: what takes long (making a table's memory) runs elsewhere
//! and comes back as an input. One owner means that an attach, a death and a drop cannot interleave. It is not
//! on any sample's way: it works per block, per death and per question.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use echo::access::AccessList;
use echo::ids::{ClientId, MemberId, TableId};
use echo::memory::MemoryGovernor;
use echo::peer::{Peer, ProofOfExit};
use echo::ring::record::{PAGE_BYTES, RECORDS};
use echo::spec::TableSpec;
use echo::sync::AtomicU64;
use echo::table::action::Action;
use echo::table::store::{Store, StoreError};
use echo::wire::message::{
    BUILD, EndReason, Event, Hello, LAYOUT_VERSION, PROTOCOL_MAX, PROTOCOL_MIN, RefusalKind, Refused,
    Request, Status, Welcome,
};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, info, warn};

use crate::burials::Burials;
use crate::client::Client;
use crate::door::Place;
use crate::exit_watch::ExitWatch;
use crate::limits::Limits;
use crate::outbox::{OUTBOX_BYTES, OUTBOX_MESSAGES, Outbox, Unsent};
use crate::table::Table;
use crate::{client_page, connection};

mod attaching;
pub(crate) mod creation;
mod grouping;
mod requests;
mod sampling;
mod turns;

/// How often everything is looked at.
pub const TICK: Duration = Duration::from_millis(100);
/// How often, while claims of dead workers wait to be settled or a table is ending.
pub const BUSY_TICK: Duration = Duration::from_millis(2);

/// Something that happened.
pub enum Input {
    /// A connection said hello.
    Hello {
        /// Who.
        peer: Peer,
        /// What it said.
        hello: Hello,
        /// Where answers go.
        outbox: Outbox,
        /// The client's id, or why it is none.
        accepted: oneshot::Sender<Result<ClientId, Refused>>,
    },
    /// A connection asked for the status instead.
    Status(oneshot::Sender<Status>),
    /// A client said something; its user has the place until that is done.
    Request(ClientId, Request, Place),
    /// A client's connection is gone, and why.
    Disconnected(ClientId, String),
    /// A client's process is gone.
    Exited(ClientId, ProofOfExit),
    /// The memory of a table was made, or not.
    Built(String, Result<Box<Store>, StoreError>),
    /// Stop serving: drain, then end.
    Drain,
    /// End now.
    Stop,
}

/// Bytes of a client's name that are kept.
const NAME: usize = 64;
/// Bytes of a client's build that are kept.
const BUILD_NAME: usize = 32;

/// A table whose memory is being made, and who waits for it.
pub(crate) struct Building {
    id: TableId,
    spec: TableSpec,
    uid: u32,
    access: AccessList,
    waiting: Vec<(ClientId, u32)>,
    /// Bytes that are resident so far.
    resident: Arc<AtomicU64>,
}

/// The owner of everything.
pub struct Supervisor {
    pub(crate) limits: Limits,
    pub(crate) governor: Arc<MemoryGovernor>,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    pub(crate) tables: BTreeMap<TableId, Table>,
    pub(crate) started: Instant,
    pub(crate) building: HashMap<String, Building>,
    burials: Burials,
    inputs: mpsc::Sender<Input>,
    instance: [u8; 16],
    last_client: u64,
    last_table: u32,
    drain_until: Option<Instant>,
    stopped: bool,
}

impl Supervisor {
    /// Nobody and nothing yet. `inputs` is where work that ends elsewhere reports.
    pub fn new(
        limits: Limits,
        governor: Arc<MemoryGovernor>,
        instance: [u8; 16],
        inputs: mpsc::Sender<Input>,
    ) -> Self {
        Self {
            limits,
            governor,
            clients: BTreeMap::new(),
            tables: BTreeMap::new(),
            started: Instant::now(),
            building: HashMap::new(),
            burials: Burials::default(),
            inputs,
            instance,
            last_client: 0,
            last_table: 0,
            drain_until: None,
            stopped: false,
        }
    }

    /// Handles inputs until it is told to drain, and has.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        let mut next_tick = Instant::now() + TICK;
        let mut next_full_tick = next_tick;
        // One timer, set anew only where it changes: a new one for each input would be a system call for each.
        let mut timer = pin!(tokio::time::sleep_until(next_tick.into()));
        loop {
            if timer.deadline() != next_tick.into() {
                timer.as_mut().reset(next_tick.into());
            }
            tokio::select! {
                biased;
                () = &mut timer => {
                    if Instant::now() >= next_full_tick {
                        self.tick();
                        next_full_tick = Instant::now() + TICK;
                    } else {
                        self.tick_unsettled();
                    }
                    let busy = self.tables.values().any(|table| table.store.machine().is_unsettled());
                    next_tick = if busy { next_full_tick.min(Instant::now() + BUSY_TICK) } else { next_full_tick };
                    if self.is_drained() {
                        break;
                    }
                }
                input = inputs.recv() => {
                    let Some(input) = input else { break };
                    self.handle(input);
                    if self.stopped {
                        break;
                    }
                    if self.tables.values().any(|table| table.store.machine().is_unsettled()) {
                        next_tick = next_tick.min(Instant::now() + BUSY_TICK);
                    }
                }
            }
        }
        for client in self.clients.values() {
            if let Some(outbox) = &client.outbox {
                // A full outbox closes as well, only without the reason.
                let _ = outbox.send(&Event::Closing { reason: "echod has stopped".into() });
            }
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Hello { peer, hello, outbox, accepted } => {
                let result = self.hello(peer, &hello, outbox);
                // A connection that has given up waiting does not know its id, so nobody else would say it.
                if let Err(Ok(id)) = accepted.send(result) {
                    self.disconnected(id, "it did not wait for its welcome");
                }
            }
            Input::Status(reply) => drop(reply.send(self.status())),
            Input::Request(client, request, place) => {
                let is_rated = connection::is_rated(&request);
                let before = busy();
                self.request(client, request);
                if is_rated {
                    place.took(busy().saturating_sub(before));
                }
            }
            Input::Disconnected(client, reason) => self.disconnected(client, &reason),
            Input::Exited(client, proof) => self.exited(client, proof),
            Input::Built(name, result) => self.built(&name, result),
            Input::Drain => self.drain(),
            Input::Stop => {
                warn!("told to stop twice: what is pending is lost");
                self.stopped = true;
            }
        }
    }

    fn hello(&mut self, peer: Peer, hello: &Hello, outbox: Outbox) -> Result<ClientId, Refused> {
        let refused = |reason: String| Refused {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            layout: LAYOUT_VERSION,
            build: BUILD.into(),
            reason,
        };
        if self.drain_until.is_some() {
            return Err(refused("echod is stopping: connect to its successor".into()));
        }
        if hello.protocol_min > PROTOCOL_MAX || hello.protocol_max < PROTOCOL_MIN {
            return Err(refused(format!(
                "the client speaks versions {} to {} of the protocol and echod {PROTOCOL_MIN} to \
                 {PROTOCOL_MAX}: upgrade the older of the two",
                hello.protocol_min, hello.protocol_max
            )));
        }
        if hello.layout != LAYOUT_VERSION {
            return Err(refused(format!(
                "the client knows version {} of the shared memory and echod makes {LAYOUT_VERSION}: upgrade \
                 the older of the two",
                hello.layout
            )));
        }
        if hello.features != 0 {
            let features = hello.features;
            return Err(refused(format!("the client requires features {features:#x} that echod lacks")));
        }
        let of_uid = self.clients.values().filter(|client| client.peer.uid() == peer.uid()).count();
        if of_uid >= self.limits.clients_per_uid as usize {
            return Err(refused(format!(
                "uid {} has {of_uid} clients already, which is the limit (max_clients)",
                peer.uid()
            )));
        }
        let (page, page_fd) = match client_page::create() {
            Ok(made) => made,
            Err(error) => return Err(refused(format!("no memory for the client page: {error}"))),
        };
        self.last_client += 1;
        let id = ClientId(self.last_client);
        let watch = match ExitWatch::begin(id, &peer, self.inputs.clone()) {
            Ok(watch) => watch,
            Err(error) => return Err(refused(format!("the client's process cannot be watched: {error}"))),
        };
        let client = Client::new(
            id,
            peer,
            watch,
            shortened(&hello.name, NAME),
            shortened(&hello.build, BUILD_NAME),
            self.now(),
            outbox,
            page,
            page_fd.clone(),
        );
        let welcome = Welcome {
            protocol: PROTOCOL_MAX.min(hello.protocol_max),
            instance: self.instance,
            client: id,
            page_bytes: PAGE_BYTES as u64,
            records: RECORDS,
        };
        if client.peer.pidfd().is_none() {
            let pid = client.peer.pid();
            warn!(client = %id, pid, "the kernel does not say when this client ends: what it holds stays until its goodbye");
        }
        debug!(client = %id, pid = client.peer.pid(), uid = client.peer.uid(), name = client.name, "connected");
        self.clients.insert(id, client);
        self.say_with(id, Event::Welcome(welcome), vec![page_fd]);
        Ok(id)
    }

    fn status(&self) -> Status {
        let usage = self.governor.host_usage();
        Status {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            layout: LAYOUT_VERSION,
            build: BUILD.into(),
            pid: std::process::id(),
            uptime_ms: self.now().as_millis() as u64,
            state: if self.drain_until.is_some() { "draining" } else { "serving" }.into(),
            tables: self.tables.values().filter(|table| !table.dropped).count() as u32,
            clients: self.clients.len() as u32,
            host_budget: usage.budget,
            host_used: usage.used,
        }
    }

    fn disconnected(&mut self, id: ClientId, reason: &str) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.outbox = None;
        debug!(client = %id, pid = client.peer.pid(), reason, "disconnected");
        // Nothing is mapped by a client without members; for the others the process decides.
        if client.members.is_empty() && client.gone.is_none() {
            self.clients.remove(&id);
            return;
        }
        let client = &self.clients[&id];
        let members: Vec<_> = client.members.iter().map(|(&m, at)| (client.key(m), at.table)).collect();
        for (key, table_id) in members {
            if let Some(table) = self.tables.get_mut(&table_id) {
                table.store.machine_mut().disconnect(key);
            }
            self.leave_turn(table_id, key);
        }
    }

    fn exited(&mut self, id: ClientId, proof: ProofOfExit) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.gone = Some(proof);
        let (writers, readers) = client.count_members();
        if writers + readers > 0 {
            info!(client = %id, pid = client.peer.pid(), name = client.name, writers, readers, "client is gone");
        }
        self.detach_all(id);
    }

    /// Detaches every member of a client that is gone, and forgets the client. What cannot be done yet is done
    /// by a later tick.
    fn detach_all(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id) else { return };
        for member in client.members.keys().copied().collect::<Vec<_>>() {
            self.detach(id, member);
        }
        if self.clients.get(&id).is_some_and(|client| client.members.is_empty() && client.gone.is_some()) {
            self.clients.remove(&id);
        }
    }

    fn detach(&mut self, id: ClientId, member: MemberId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let key = client.key(member);
        let Some(at) = client.members.get_mut(&member) else { return };
        let table_id = at.table;
        if let Some(table) = self.tables.get_mut(&table_id) {
            let mut actions = Vec::new();
            let done = table.store.machine_mut().detach(key, &mut actions);
            at.leaving = !done;
            self.leave_turn(table_id, key);
            self.perform(actions);
            if !done {
                return;
            }
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.members.remove(&member);
        }
        self.tick_table(table_id);
    }

    /// Ends a connection. Its process may live on, and then keeps what it holds.
    fn expel(&mut self, id: ClientId, reason: String) {
        if let Some(client) = self.clients.get_mut(&id)
            && let Some(outbox) = client.outbox.take()
        {
            warn!(client = %id, pid = client.peer.pid(), name = client.name, reason, "client is disconnected");
            // If its outbox is full it learns of the end without the reason.
            let _ = outbox.send(&Event::Closing { reason });
        }
    }

    fn say(&mut self, id: ClientId, event: Event) {
        self.say_with(id, event, Vec::new());
    }

    fn say_with(&mut self, id: ClientId, event: Event, descriptors: Vec<Arc<OwnedFd>>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(outbox) = &client.outbox else { return };
        client.messages.events += 1;
        if outbox.send_with(&event, descriptors) == Err(Unsent::Full) {
            let reason = format!("more than {OUTBOX_MESSAGES} messages or {OUTBOX_BYTES} bytes are unread");
            self.expel(id, reason);
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Grant { reader, grants } => {
                    self.say(reader.client, Event::Granted { member: reader.member, released: 0, grants });
                }
                Action::Sampled { reader, number, picks, least, short } => {
                    self.say_sampled(reader, number, &picks, least, short);
                }
                Action::End { member, reason, end } => {
                    self.say(member.client, Event::Ended { member: member.member, reason, end });
                }
            }
        }
    }

    /// Looks at everything.
    fn tick(&mut self) {
        let now = self.now();
        for id in self.tables.keys().copied().collect::<Vec<_>>() {
            self.tick_table(id);
            if let Some(table) = self.tables.get_mut(&id) {
                table.observe(now);
            }
        }
        self.detach_leaving();
    }

    /// Looks at the tables that wait for something to be settled.
    fn tick_unsettled(&mut self) {
        let unsettled = self.tables.iter().filter(|(_, table)| table.store.machine().is_unsettled());
        for id in unsettled.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.tick_table(id);
        }
        self.detach_leaving();
    }

    fn detach_leaving(&mut self) {
        let leaving: Vec<(ClientId, MemberId)> = self
            .clients
            .values()
            .flat_map(|c| c.members.iter().filter(|(_, m)| m.leaving).map(|(&member, _)| (c.id, member)))
            .collect();
        for (client, member) in leaving {
            self.detach(client, member);
            self.detach_if_gone(client);
        }
    }

    fn detach_if_gone(&mut self, id: ClientId) {
        if self.clients.get(&id).is_some_and(|client| client.gone.is_some()) {
            self.detach_all(id);
        }
    }

    fn tick_table(&mut self, id: TableId) {
        let Some(table) = self.tables.get_mut(&id) else { return };
        let was_poisoned = table.store.machine().intake().poison().is_some();
        let mut actions = Vec::new();
        table.store.tick(&mut actions);
        table.warn_of_poison(was_poisoned);
        self.perform(actions);
        self.refuse_turns_if_poisoned(id);
        self.forget_if_unused(id);
    }

    fn close_table(&mut self, id: TableId, reason: EndReason) {
        let mut actions = Vec::new();
        if let Some(table) = self.tables.get_mut(&id) {
            table.store.machine_mut().close(reason, &mut actions);
        }
        self.perform(actions);
        self.tick_table(id);
    }

    fn drain(&mut self) {
        if self.drain_until.is_some() {
            return;
        }
        let drain_timeout = self.limits.drain_timeout;
        info!(tables = self.tables.len(), clients = self.clients.len(), ?drain_timeout, "draining");
        self.drain_until = Some(Instant::now() + drain_timeout);
        for id in self.tables.keys().copied().collect::<Vec<_>>() {
            self.close_table(id, EndReason::Draining);
            self.refuse_turns(id, &requests::refusal(RefusalKind::Draining, "echod is stopping".into()));
        }
    }

    fn is_drained(&self) -> bool {
        let Some(until) = self.drain_until else { return false };
        let drained = |table: &Table| table.dropped || table.store.machine().is_drained();
        if self.building.is_empty() && self.tables.values().all(drained) {
            info!("drained");
            return true;
        }
        if Instant::now() < until {
            return false;
        }
        for table in self.tables.values().filter(|table| !drained(table)) {
            let pending = table.store.machine().intake().samples().pending;
            warn!(table = table.name(), pending, "not drained in time; what is pending is lost");
        }
        true
    }
}

/// How long this thread has had a core: what a stop or another process takes away is nobody's fault.
fn busy() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// At most so many bytes of a text, whole characters.
fn shortened(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or(0)].to_owned()
}
