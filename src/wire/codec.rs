//! Messages to bytes and back. The only module that knows bincode.
//!
//! Little-endian, integers of variable length, at most [`MAX_MESSAGE`] bytes, nothing behind the message. What
//! comes in is an allegation: the size is capped before anything is allocated for it, and what the decoder
//! cannot see (ids of zero, lists longer than a message of that kind may have) is checked here.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::error::{DecodeError, EncodeError};
use thiserror::Error;

use crate::access::{AccessList, MAX_RULES};
use crate::ids::MemberId;
use crate::spec::{ArraySpec, MAX_ARRAYS, TableSpec};
use crate::wire::message::{Call, Event, MAX_MESSAGE, MAX_PRIORITIES, MAX_TOKENS, Request};

/// The decoder counts what it makes and not what it reads: eight bytes for a number or a length that took one. The
/// packet itself is capped already, so this bounds what a lying length can allocate.
const MAX_DECODED: usize = 16 * MAX_MESSAGE;
const CONFIG: Configuration<LittleEndian, Varint, Limit<MAX_DECODED>> =
    bincode::config::standard().with_limit::<MAX_DECODED>();
/// Largest spec: what is said beside it, offsets and members, must fit into the same message.
pub const MAX_SPEC: usize = 48 * 1024;

/// A message that cannot be sent, or bytes that are none.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum CodecError {
    #[error(
        "a message would be {bytes} bytes, more than the {MAX_MESSAGE} that one may have: shorten names or \
             use fewer arrays (a table may have {MAX_ARRAYS})"
    )]
    TooLarge { bytes: usize },
    #[error(
        "the arrays take {bytes} bytes to describe, more than the {MAX_SPEC} that they may: shorten their paths or \
             use fewer"
    )]
    Spec { bytes: usize },
    #[error("a message cannot be encoded")]
    Encode(#[source] EncodeError),
    #[error("{bytes} bytes are no message: is the peer of another version")]
    Decode { bytes: usize, source: DecodeError },
    #[error("a message is followed by {0} bytes that do not belong to it")]
    Trailing(usize),
    #[error("a message has {what} = {value}, which it must not")]
    Value { what: &'static str, value: usize },
}

/// Whether everything that is ever said of a table of that spec fits into a message.
///
/// # Errors
/// If it is too large.
pub fn check_spec(spec: &TableSpec) -> Result<(), CodecError> {
    let bytes = bincode::encode_to_vec(spec, bincode::config::standard()).map_err(CodecError::Encode)?.len();
    if bytes <= MAX_SPEC { Ok(()) } else { Err(CodecError::Spec { bytes }) }
}

/// The bytes of a request.
pub fn encode_request(request: &Request) -> Result<Vec<u8>, CodecError> {
    encode(request)
}

/// The bytes of an event.
pub fn encode_event(event: &Event) -> Result<Vec<u8>, CodecError> {
    encode(event)
}

/// The request in a packet.
pub fn decode_request(bytes: &[u8]) -> Result<Request, CodecError> {
    let request: Request = decode(bytes)?;
    match &request {
        Request::Call { id: 0, .. } => return Err(CodecError::Value { what: "a call's id", value: 0 }),
        Request::Call { call, .. } => check_call(call)?,
        Request::Release { member, tokens } => {
            check_member(*member)?;
            at_most("tokens", tokens.len(), MAX_TOKENS)?;
        }
        Request::Sample { member, number, .. } | Request::CutSample { member, number } => {
            check_member(*member)?;
            check_number(*number)?;
        }
        Request::ReturnSamples { member, numbers } => {
            check_member(*member)?;
            at_most("numbers", numbers.len(), MAX_TOKENS)?;
        }
        Request::Zero(no) => match *no {},
        Request::Hello(_) | Request::Status | Request::Received | Request::Goodbye => {}
    }
    Ok(request)
}

/// The event in a packet.
pub fn decode_event(bytes: &[u8]) -> Result<Event, CodecError> {
    let event: Event = decode(bytes)?;
    if let Event::Answer { id: 0, .. } = event {
        return Err(CodecError::Value { what: "an answer's id", value: 0 });
    }
    Ok(event)
}

fn encode(message: &impl bincode::Encode) -> Result<Vec<u8>, CodecError> {
    let bytes = bincode::encode_to_vec(message, bincode::config::standard()).map_err(CodecError::Encode)?;
    match bytes.len() {
        0..=MAX_MESSAGE => Ok(bytes),
        bytes => Err(CodecError::TooLarge { bytes }),
    }
}

fn decode<M: bincode::Decode<()>>(bytes: &[u8]) -> Result<M, CodecError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    let (message, read) = bincode::decode_from_slice(bytes, CONFIG)
        .map_err(|source| CodecError::Decode { bytes: bytes.len(), source })?;
    match bytes.len() - read {
        0 => Ok(message),
        rest => Err(CodecError::Trailing(rest)),
    }
}

fn check_call(call: &Call) -> Result<(), CodecError> {
    let arrays = |arrays: &[ArraySpec]| at_most("arrays", arrays.len(), MAX_ARRAYS);
    let rules = |AccessList(rules): &AccessList| at_most("access rules", rules.len(), MAX_RULES);
    match call {
        Call::CreateTable { spec, access } => {
            arrays(&spec.arrays)?;
            access.as_ref().map_or(Ok(()), rules)
        }
        Call::SetAccess { access, .. } => rules(access),
        Call::AttachWriter { arrays: Some(list), .. }
        | Call::AttachReader { arrays: Some(list), .. }
        | Call::AttachPublisher { arrays: Some(list), .. }
        | Call::AttachLatest { arrays: Some(list), .. }
        | Call::AttachReplayWriter { arrays: Some(list), .. }
        | Call::AttachSampler { arrays: Some(list), .. }
        | Call::AttachGroupReader { arrays: Some(list), .. } => arrays(list),
        Call::UpdatePriorities { member, items } => {
            check_member(*member)?;
            at_most("priorities", items.len(), MAX_PRIORITIES)
        }
        Call::DeleteItems { member, keys } => {
            check_member(*member)?;
            at_most("keys", keys.len(), MAX_PRIORITIES)
        }
        Call::FinishWriter { member }
        | Call::DropClaim { member }
        | Call::Detach { member }
        | Call::NeedSpace { member }
        | Call::BeginPin { member }
        | Call::StateVersion { member, .. }
        | Call::EndPin { member, .. } => check_member(*member),
        _ => Ok(()),
    }
}

fn check_member(member: MemberId) -> Result<(), CodecError> {
    match member {
        MemberId(0) => Err(CodecError::Value { what: "a member's id", value: 0 }),
        _ => Ok(()),
    }
}

fn check_number(number: u64) -> Result<(), CodecError> {
    match number {
        0 => Err(CodecError::Value { what: "a request's number", value: 0 }),
        _ => Ok(()),
    }
}

fn at_most(what: &'static str, value: usize, most: usize) -> Result<(), CodecError> {
    if value <= most { Ok(()) } else { Err(CodecError::Value { what, value }) }
}

#[cfg(test)]
mod tests;
