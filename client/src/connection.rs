//! The socket, and the thread that listens to it.
//!
//! One thread a connection receives everything: answers go to the callers that wait for them, grants and ends
//! into the inboxes of their members. It never calls into anybody's code and waits for nobody but the daemon, which
//! closing the socket ends, so it can always be joined. Sending is done by whoever has something to say, one packet at a time.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use echo::ids::{LeaseToken, MemberId};
use echo::memory::fork::Birthplace;
use echo::memory::memfd::Sealed;
use echo::memory::{Access, Mapping};
use echo::replay::settings::Real;
use echo::ring::hold::HoldLine;
use echo::ring::record::{ClientPage, Record};
use echo::ring::words::Words;
use echo::wire::codec;
use echo::wire::message::{
    Answer, BUILD, Call, Event, Hello, LAYOUT_VERSION, MAGIC, MAX_MESSAGE, MAX_TOKENS, PROTOCOL_MAX,
    PROTOCOL_MIN, PinReport, Request, Welcome,
};
use echo::wire::socket::{self, Packet, Received, Sent};

use crate::error::told;
use crate::inbox::{Inbox, Sampled};
use crate::wait::deadline_in;
use crate::{Error, Result};

/// Stack of the listening thread: it decodes messages of at most 64 KiB, on the heap.
const STACK: usize = 256 * 1024;

/// How often the listening thread of a client that reads looks whether batches came back untold.
const LOOK: Duration = Duration::from_millis(25);

/// How long the listening thread tries to send what it has to.
const LONG: Duration = Duration::from_secs(10);

/// How often one who may cease to want an answer is asked.
const ASK: Duration = Duration::from_millis(100);

/// Whether an answer is still waited for.
pub(crate) type Wanted<'a> = dyn Fn() -> bool + Send + Sync + 'a;

/// A connection.
pub(crate) struct Connection {
    birthplace: Birthplace,
    shared: Arc<Shared>,
    page: ClientPage,
    welcome: Welcome,
    timeout: Duration,
    listener: Option<JoinHandle<()>>,
}

/// What the thread and the callers share.
struct Shared {
    socket: OwnedFd,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    last_call: u32,
    /// Calls that are waited for; what was answered, once it was.
    calls: HashMap<u32, Option<Answered>>,
    inboxes: HashMap<MemberId, Arc<Inbox>>,
    /// What the daemon was told last that a reader has registered with CUDA.
    pinned: HashMap<MemberId, PinReport>,
    gone: Option<String>,
}

/// An answer, and what came with it.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    /// None if they were lost: this process has no room for them. Only this answer is worth nothing by that.
    pub(crate) descriptors: Option<Vec<OwnedFd>>,
    /// Of a member that was attached: in place before its first grant could arrive.
    pub(crate) inbox: Option<Arc<Inbox>>,
}

impl Connection {
    /// Says hello over a connected socket.
    pub(crate) fn greet(socket: OwnedFd, name: &str, timeout: Duration) -> Result<Self> {
        let deadline = deadline_in(timeout);
        let hello = Request::Hello(Hello {
            magic: MAGIC,
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            layout: LAYOUT_VERSION,
            features: 0,
            build: BUILD.into(),
            name: name.into(),
        });
        let (event, descriptors) = ask(&socket, &hello, deadline)?;
        let (welcome, page) = match event {
            Event::Welcome(welcome) => {
                let descriptors = descriptors.ok_or(socket::SocketError::DescriptorsLost)?;
                let page = client_page(&welcome, descriptors)?;
                (welcome, page)
            }
            Event::Refused(refused) => return Err(Error::Version(Box::new(refused))),
            Event::Closing { reason } => return Err(Error::Gone { reason }),
            other => return Err(unexpected(&other)),
        };
        send(&socket, &Request::Received, deadline)?;
        let shared = Arc::new(Shared { socket, state: Mutex::default(), answered: Condvar::new() });
        let listening = shared.clone();
        let listener = std::thread::Builder::new()
            .name("echo-client".into())
            .stack_size(STACK)
            .spawn(move || listening.listen())
            .map_err(Error::Thread)?;
        let birthplace = Birthplace::here();
        Ok(Self { birthplace, shared, page, welcome, timeout, listener: Some(listener) })
    }

    /// Whether this process was forked from the one that connected: nothing of the connection is to be touched then.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.birthplace.is_elsewhere()
    }

    /// Why the daemon is gone, if the listening thread has found that it is.
    pub(crate) fn gone(&self) -> Option<String> {
        if self.is_elsewhere() { None } else { self.shared.state().gone.clone() }
    }

    /// What the daemon said at the beginning.
    pub(crate) const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// How long calls may take.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A writer's record in the client page.
    #[inline]
    pub(crate) fn record(&self, index: u32) -> Option<Record<'_>> {
        self.page.record(index)
    }

    /// The line in the client page of a reader of a latest table.
    #[inline]
    pub(crate) fn holds(&self, index: u32) -> Option<HoldLine<'_>> {
        self.page.holds(index)
    }

    /// Asks for something and waits for the answer; a refusal is an error.
    pub(crate) fn call(&self, call: Call, timeout: Duration) -> Result<Answered> {
        self.call_while(call, timeout, None)
    }

    /// As [`Connection::call`], while the answer is `wanted`.
    pub(crate) fn call_while(
        &self,
        call: Call,
        timeout: Duration,
        wanted: Option<&Wanted<'_>>,
    ) -> Result<Answered> {
        let id = self.send_call(call, true)?;
        self.answer(id, "the answer of echod", timeout, wanted)
    }

    /// Waits for the answer of a call that was sent, while it is `wanted`. `what` took too long if it does not come.
    fn answer(
        &self,
        id: u32,
        what: &'static str,
        timeout: Duration,
        wanted: Option<&Wanted<'_>>,
    ) -> Result<Answered> {
        let deadline = deadline_in(timeout);
        let mut state = self.shared.state();
        loop {
            if let Some(Some(_)) = state.calls.get(&id)
                && let Some(Some(answered)) = state.calls.remove(&id)
            {
                return match answered.answer {
                    Answer::Refused(refusal) => Err(Error::Refused(refusal)),
                    _ => Ok(answered),
                };
            }
            if let Some(reason) = state.gone.clone() {
                state.calls.remove(&id);
                return Err(Error::Gone { reason });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // An answer that comes after all finds nobody.
                state.calls.remove(&id);
                return Err(Error::TimedOut { what, after: timeout });
            }
            let slice = if wanted.is_some() { left.min(ASK) } else { left };
            let waited = self.shared.answered.wait_timeout(state, slice);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(wanted) = wanted {
                // Somebody's code: not under the lock.
                drop(state);
                let goes_on = wanted();
                state = self.shared.state();
                if !goes_on {
                    state.calls.remove(&id);
                    return Err(Error::Cancelled);
                }
            }
        }
    }

    /// Asks for something whose answer says nothing.
    pub(crate) fn tell(&self, call: Call) -> Result<()> {
        self.send_call(call, false).map(drop)
    }

    /// Asks for something whose answer says nothing, and that need not be asked: not if it cannot be sent at once.
    pub(crate) fn hint(&self, call: Call) {
        if self.is_elsewhere() {
            return;
        }
        let id = {
            let mut state = self.shared.state();
            if state.gone.is_some() {
                return;
            }
            state.next_call()
        };
        if let Ok(bytes) = codec::encode_request(&Request::Call { id, call }) {
            // One whom nobody hears learns of that elsewhere.
            let _ = socket::send(self.shared.socket.as_fd(), &bytes, &[]);
        }
    }

    /// Sends a call, and keeps a place for its answer before that can come.
    fn send_call(&self, call: Call, answered: bool) -> Result<u32> {
        if self.is_elsewhere() {
            return Err(Error::Forked);
        }
        let id = {
            let mut state = self.shared.state();
            if let Some(reason) = &state.gone {
                return Err(Error::Gone { reason: reason.clone() });
            }
            let id = state.next_call();
            if answered {
                state.calls.insert(id, None);
            }
            id
        };
        let sent = send(&self.shared.socket, &Request::Call { id, call }, deadline_in(self.timeout));
        sent.map(|()| id).map_err(|error| {
            let mut state = self.shared.state();
            state.calls.remove(&id);
            match &state.gone {
                Some(reason) => Error::Gone { reason: reason.clone() },
                None => error,
            }
        })
    }

    /// Waits until it is this reader's turn to register its mapping with CUDA. The turn lasts until
    /// [`Connection::end_pin`] or [`Connection::end_turn`], and must not last longer than what it is for: other processes wait for it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if others have it for so long, and [`Error::Cancelled`] if it is not wanted any more: its place
    /// in the line is given up then. [`Error::Refused`] if the turn will not come: the table was dropped or is poisoned,
    /// or echod is stopping.
    pub(crate) fn begin_pin(
        &self,
        member: MemberId,
        timeout: Duration,
        wanted: Option<&Wanted<'_>>,
    ) -> Result<()> {
        let id = self.send_call(Call::BeginPin { member }, true)?;
        let begun = self.answer(
            id,
            "waiting for the turn to page-lock the table's memory (`echoctl why` says who has it)",
            timeout,
            wanted,
        );
        if matches!(begun, Err(Error::TimedOut { .. } | Error::Cancelled)) {
            // It may have come just now: this ends it in either case.
            self.end_turn(member);
        }
        begun.map(drop)
    }

    /// Ends the turn of a reader that registered nothing in it: what it had registered before stays so.
    pub(crate) fn end_turn(&self, member: MemberId) {
        let pinned = self.shared.state().pinned.get(&member).cloned();
        if self.tell(Call::EndPin { member, pinned }).is_err() {
            self.leave();
        }
    }

    /// Ends the turn of a reader that registered something in it, and waits until that is known.
    pub(crate) fn end_pin(&self, member: MemberId, pinned: PinReport) {
        self.shared.state().pinned.insert(member, pinned.clone());
        let ended = self.call(Call::EndPin { member, pinned: Some(pinned) }, self.timeout);
        if matches!(ended, Err(Error::TimedOut { .. })) {
            self.leave();
        }
    }

    /// What holds others up must not be held by one whom nobody hears: the daemon sees the socket close.
    fn leave(&self) {
        let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
    }

    /// Tells of a reader's batches that came back, once they are so many, as far as that can be said now.
    pub(crate) fn tell_returned(&self, member: MemberId, inbox: &Inbox, enough: usize) {
        // A daemon that is gone knows whose they were.
        let _ = self.shared.tell_returned(member, inbox, enough);
    }

    /// Tells of requests whose samples were read, once they are so many, as far as that can be said now.
    pub(crate) fn tell_read(&self, member: MemberId, inbox: &Inbox, enough: usize) {
        // A daemon that is gone knows whose they were.
        let _ = self.shared.tell_read(member, inbox, enough);
    }

    /// Tells of batches that came back, waiting until that can be said.
    pub(crate) fn release(&self, member: MemberId, tokens: Vec<LeaseToken>) -> Result<()> {
        for some in tokens.chunks(MAX_TOKENS) {
            let request = Request::Release { member, tokens: some.to_vec() };
            send(&self.shared.socket, &request, deadline_in(self.timeout))?;
        }
        Ok(())
    }

    /// Says something about samples, waiting until it can be said.
    pub(crate) fn say(&self, request: &Request) -> Result<()> {
        if self.is_elsewhere() {
            return Err(Error::Forked);
        }
        send(&self.shared.socket, request, deadline_in(self.timeout))
    }

    /// As [`Connection::say`], if it can be said at once: whether it was.
    pub(crate) fn try_say(&self, request: &Request) -> Result<bool> {
        if self.is_elsewhere() {
            return Err(Error::Forked);
        }
        let bytes = codec::encode_request(request)?;
        let sent = socket::send(self.shared.socket.as_fd(), &bytes, &[]).map_err(sent)?;
        Ok(sent == Sent::Done)
    }

    /// A member's memory is unmapped.
    pub(crate) fn detach(&self, member: MemberId) {
        if self.is_elsewhere() {
            return;
        }
        {
            let mut state = self.shared.state();
            state.inboxes.remove(&member);
            state.pinned.remove(&member);
        }
        // A daemon that cannot be told sees the socket close.
        let _ = self.tell(Call::Detach { member });
    }
}

impl State {
    fn next_call(&mut self) -> u32 {
        self.last_call = self.last_call.checked_add(1).unwrap_or(1);
        self.last_call
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            return;
        }
        // All members are detached: they hold the connection. A daemon that cannot be told sees the socket close.
        if let Ok(bytes) = codec::encode_request(&Request::Goodbye) {
            let _ = socket::send(self.shared.socket.as_fd(), &bytes, &[]);
        }
        // Ends the thread's wait, and with it the thread.
        let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // What is behind the lock is changed by single calls that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives until the connection ends, and then tells everybody.
    fn listen(&self) {
        let mut buffer = vec![0; MAX_MESSAGE + 1];
        let mut look_at = Instant::now() + LOOK;
        let mut limited = None;
        let reason = loop {
            // Also where packets come without a pause.
            if Instant::now() >= look_at {
                look_at = Instant::now() + LOOK;
                let inboxes = self.state().inboxes.clone();
                // A daemon that can be told nothing has closed, and may have said why: that is read first.
                let _ = inboxes.iter().try_for_each(|(&member, inbox)| {
                    self.tell_returned(member, inbox, 1).and_then(|()| self.tell_read(member, inbox, 1))
                });
            }
            if let Err(error) = self.limit_waits(&mut limited) {
                break told(&error);
            }
            match self.listen_once(&mut buffer) {
                Ok(None) => {}
                Ok(Some(reason)) => break reason,
                Err(error) => break told(&error),
            }
        };
        // Where this end gave up, the other must not go on granting to it.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let mut state = self.state();
        state.gone = Some(reason.clone());
        self.answered.notify_all();
        for inbox in state.inboxes.values() {
            inbox.tell(|told| told.gone = Some(reason.clone()));
        }
    }

    /// Tells of a reader's batches that came back, once they are so many.
    fn tell_returned(&self, member: MemberId, inbox: &Inbox, enough: usize) -> Result<()> {
        self.tell_some(&mut inbox.state().returned, enough, |tokens| Request::Release { member, tokens })
    }

    /// Tells of a sampler's requests whose samples were read, once they are so many.
    fn tell_read(&self, member: MemberId, inbox: &Inbox, enough: usize) -> Result<()> {
        self.tell_some(&mut inbox.state().read, enough, |numbers| Request::ReturnSamples { member, numbers })
    }

    /// Tells as much as can be told now, once it is so much. Under the inbox's lock, so that nothing is on its way when the
    /// reader is detached.
    fn tell_some<T: Clone>(
        &self,
        untold: &mut Vec<T>,
        enough: usize,
        request: impl Fn(Vec<T>) -> Request,
    ) -> Result<()> {
        while untold.len() >= enough.max(1) {
            let some = untold.len().min(MAX_TOKENS);
            let request = request(untold[..some].to_vec());
            match socket::send(self.socket.as_fd(), &codec::encode_request(&request)?, &[])? {
                Sent::Done => drop(untold.drain(..some)),
                // The daemon reads slowly: told with the next one, or when this is tried again.
                Sent::WouldBlock => break,
            }
        }
        Ok(())
    }

    /// Lets the thread of a client that reads look around from time to time, and that of another one sleep.
    fn limit_waits(&self, limited: &mut Option<bool>) -> Result<()> {
        let reads = self.state().inboxes.values().any(|inbox| inbox.state().reads);
        if *limited != Some(reads) {
            socket::let_receives_wait(self.socket.as_fd(), reads.then_some(LOOK))
                .map_err(|source| socket::SocketError::Os { doing: "set the waits of", source })?;
            *limited = Some(reads);
        }
        Ok(())
    }

    /// Receives one message, waiting for it until there may be something else to do. Some reason if it was the last.
    fn listen_once(&self, buffer: &mut [u8]) -> Result<Option<String>> {
        let (event, descriptors) = match socket::receive_waiting(self.socket.as_fd(), buffer)? {
            Received::Closed => return Ok(Some("its socket has closed".into())),
            Received::WouldBlock => return Ok(None),
            Received::Packet(packet) => checked(buffer, packet)?,
        };
        if event.descriptors() > 0 {
            send(&self.socket, &Request::Received, Instant::now() + LONG)?;
        }
        let mut state = self.state();
        match event {
            Event::Answer { id, answer } => {
                // In place before the next message, which may be a grant for it.
                let inbox = match &answer {
                    Answer::Attached(attachment) if state.calls.contains_key(&id) => {
                        let inbox = Arc::new(Inbox::default());
                        state.inboxes.insert(attachment.member, inbox.clone());
                        Some(inbox)
                    }
                    _ => None,
                };
                if let Some(place) = state.calls.get_mut(&id) {
                    *place = Some(Answered { answer, descriptors, inbox });
                    self.answered.notify_all();
                } else if let Answer::Attached(attachment) = answer {
                    // Its caller has given up. What nobody knows of must not be granted batches.
                    let (id, call) = (state.next_call(), Call::Detach { member: attachment.member });
                    drop(state);
                    send(&self.socket, &Request::Call { id, call }, Instant::now() + LONG)?;
                }
            }
            // Packets are not lost while a connection lives, so what was released need not be repeated.
            Event::Granted { member, grants, .. } => {
                if let Some(inbox) = state.inboxes.get(&member) {
                    inbox.tell(|told| {
                        told.reads = true;
                        // Those that come to one who has left go to others, once the daemon knows.
                        if !told.left {
                            grants.into_iter().for_each(|grant| told.add(grant));
                        }
                    });
                }
            }
            Event::Ended { member, reason, end } => {
                if let Some(inbox) = state.inboxes.get(&member) {
                    inbox.tell(|told| told.ended = Some((reason, end)));
                }
            }
            Event::Sampled { member, number, samples, more, least, short } => {
                if let Some(inbox) = state.inboxes.get(&member) {
                    inbox.tell(|told| {
                        told.reads = true;
                        told.arriving.extend(samples);
                        if !more {
                            let items = std::mem::take(&mut told.arriving).into();
                            let least = least.map(|Real(least)| least);
                            told.sampled.push_back(Sampled { number, items, least, short });
                        }
                    });
                }
            }
            Event::Released { .. } => {}
            Event::Closing { reason } => return Ok(Some(reason)),
            other @ (Event::Welcome(_) | Event::Refused(_) | Event::Status(_)) => {
                return Err(unexpected(&other));
            }
            Event::Zero(no) => match no {},
        }
        Ok(None)
    }
}

/// A socket that is connected to the daemon's.
pub(crate) fn connect(path: PathBuf, timeout: Duration) -> Result<OwnedFd> {
    socket::connect(&path, deadline_in(timeout)).map_err(|source| match source.is_would_block() {
        true => Error::TimedOut { what: "being accepted by echod, which is busy,", after: timeout },
        false => Error::Connect { path, source },
    })
}

/// Sends a message, waiting until it can be sent.
pub(crate) fn send(socket: &OwnedFd, request: &Request, deadline: Instant) -> Result<()> {
    let bytes = codec::encode_request(request)?;
    let started = Instant::now();
    while socket::send(socket.as_fd(), &bytes, &[]).map_err(sent)? == Sent::WouldBlock {
        let wait = socket::wait_writable(socket.as_fd(), deadline);
        if !wait.map_err(|source| socket::SocketError::Os { doing: "wait for", source })? {
            return Err(Error::TimedOut { what: "sending to echod", after: started.elapsed() });
        }
    }
    Ok(())
}

/// Says the first thing over a connection, and receives the answer. A daemon that closed before it was asked may
/// have said why.
pub(crate) fn ask(
    socket: &OwnedFd,
    request: &Request,
    deadline: Instant,
) -> Result<(Event, Option<Vec<OwnedFd>>)> {
    match send(socket, request, deadline) {
        Ok(()) | Err(Error::Socket(_) | Error::Gone { .. }) => receive(socket, deadline),
        Err(error) => Err(error),
    }
}

/// Receives a message, waiting until one comes.
fn receive(socket: &OwnedFd, deadline: Instant) -> Result<(Event, Option<Vec<OwnedFd>>)> {
    let mut buffer = vec![0; MAX_MESSAGE + 1];
    let started = Instant::now();
    loop {
        match socket::receive(socket.as_fd(), &mut buffer).map_err(received)? {
            Received::Packet(packet) => return checked(&buffer, packet),
            Received::Closed => return Err(Error::Gone { reason: "its socket has closed".into() }),
            Received::WouldBlock => {
                let wait = socket::wait_readable(socket.as_fd(), deadline);
                if !wait.map_err(|source| socket::SocketError::Os { doing: "wait for", source })? {
                    return Err(Error::TimedOut { what: "echod's first answer", after: started.elapsed() });
                }
            }
        }
    }
}

/// A message with as many descriptors as it says, or with none if some were lost.
fn checked(buffer: &[u8], packet: Packet) -> Result<(Event, Option<Vec<OwnedFd>>)> {
    let event =
        codec::decode_event(&buffer[..packet.bytes]).map_err(|error| Error::Announced(error.to_string()))?;
    let (expected, got) = (event.descriptors(), packet.descriptors.len());
    if packet.descriptors_lost && got < expected {
        return Ok((event, None));
    }
    if got != expected || packet.descriptors_lost {
        return Err(Error::Announced(format!("{got} descriptors came where {expected} belong")));
    }
    Ok((event, Some(packet.descriptors)))
}

/// A daemon that hears nothing any more is gone, and the listening thread may not know it yet.
fn sent(error: socket::SocketError) -> Error {
    if error.is_closed() { Error::Gone { reason: "its socket has closed".into() } } else { error.into() }
}

/// A packet that no daemon of this version sends is not the socket's fault.
fn received(error: socket::SocketError) -> Error {
    match error {
        socket::SocketError::Truncated(_) => Error::Announced(error.to_string()),
        _ => Error::Socket(error),
    }
}

fn client_page(welcome: &Welcome, mut descriptors: Vec<OwnedFd>) -> Result<ClientPage> {
    let descriptor = descriptors.pop().ok_or_else(|| Error::Announced("no client page came".into()))?;
    let file = Sealed::received(descriptor, welcome.page_bytes, Access::ReadWrite)?;
    let mapping = Mapping::new(&file, welcome.page_bytes as usize, Access::ReadWrite)?;
    ClientPage::attach(Words::mapped(mapping)).ok_or_else(|| Error::Announced("it is no client page".into()))
}

fn unexpected(event: &Event) -> Error {
    Error::Announced(format!("a message makes no sense here: {event:?}"))
}

#[cfg(test)]
mod tests;
