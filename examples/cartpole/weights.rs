//! How the newest policy gets from the trainer to the workers: a latest table, whose values are policies.
//!
//! A worker only wants the newest: the trainer never waits for a slow worker, a worker that was started late finds the
//! weights there, and one that is killed while it reads them holds nobody up.

use std::time::Duration;

use echo::spec::{ArraySpec, DType, TableSpec};
use echo_client::{Client, Error, LatestOptions, LatestReader, Publisher, Value};

use crate::policy::{PARAMETERS, Policy};

/// Name of the table.
pub const TABLE: &str = "cartpole/policy";
/// Time in which the trainer must have published its first policy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The table of policies.
pub fn table_spec() -> TableSpec {
    let arrays = vec![
        ArraySpec::new("version", DType::U32, []),
        ArraySpec::new("parameters", DType::F32, [PARAMETERS as u64]),
    ];
    TableSpec::latest(TABLE, arrays)
}

/// The trainer's side.
pub struct Published {
    publisher: Publisher,
}

impl Published {
    pub fn attach(client: &Client) -> Result<Self, Error> {
        Ok(Self { publisher: client.attach_publisher(TABLE, Some(&table_spec().arrays))? })
    }

    /// Makes `policy` the one that workers find from now on.
    pub fn publish(&mut self, policy: &Policy) -> Result<(), Error> {
        let mut claim = self.publisher.claim()?;
        claim.array_mut_as(0)?.copy_from_slice(&[policy.version]);
        claim.array_mut_as(1)?.copy_from_slice(&policy.parameters);
        claim.publish().map(drop)
    }
}

/// A worker's side.
pub struct Newest {
    reader: LatestReader,
    /// The value that it has taken last.
    version: u64,
}

impl Newest {
    pub fn attach(client: &Client) -> Result<Self, Error> {
        let reader = client.attach_latest(TABLE, Some(&table_spec().arrays), LatestOptions::default())?;
        Ok(Self { reader, version: 0 })
    }

    /// Updates a policy, if there is a newer one. The first is waited for.
    pub fn update(&mut self, policy: &mut Policy) -> Result<(), Error> {
        let value = match self.version {
            0 => Some(self.reader.wait_newer_than(0, PATIENCE)?),
            version => self.reader.newer_than(version)?,
        };
        if let Some(value) = value {
            read(&value, policy)?;
            self.version = value.version();
        }
        Ok(())
    }
}

fn read(value: &Value, policy: &mut Policy) -> Result<(), Error> {
    policy.version = value.array(0).as_slice()?[0];
    policy.parameters.copy_from_slice(value.array(1).as_slice()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spec_is_valid_and_has_room_for_a_policy() {
        let spec = table_spec();
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!(spec.sample_bytes(), 4 + size_of::<[f32; PARAMETERS]>() as u64);
    }
}
