//! A rollout worker: plays with the newest policy, and appends each step to the ring.

use std::process::ExitCode;

use anyhow::Result;
use echo_client::{Error, Writer};

use crate::sample::{Sample, TABLE, table_spec};
use crate::weights::Newest;
use crate::{Arguments, cast, rollout};

/// Works until the tables are dropped.
pub fn work(arguments: &Arguments) -> Result<ExitCode> {
    let client = cast::connect(arguments)?;
    let attached = client.attach_writer(TABLE, Some(&table_spec().arrays));
    let (mut writer, mut newest) =
        match attached.and_then(|writer| Newest::attach(&client).map(|newest| (writer, newest))) {
            Ok(attached) => attached,
            // A worker that was started as the run ended finds no table.
            Err(error) if error.refusal().is_some() => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error.into()),
        };
    let append = |sample: &Sample| append(&mut writer, sample);
    match rollout::run(arguments.seed, |policy| newest.update(policy), append) {
        Err(Error::Closed { .. }) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
    }
}

fn append(writer: &mut Writer, sample: &Sample) -> Result<(), Error> {
    let observation = sample.observation.map(f32::to_ne_bytes);
    writer.append(&[
        observation.as_flattened(),
        &sample.action.to_ne_bytes(),
        &sample.log_prob.to_ne_bytes(),
        &sample.advantage.to_ne_bytes(),
        &sample.value_target.to_ne_bytes(),
        &sample.episode_return.to_ne_bytes(),
        &sample.policy_version.to_ne_bytes(),
    ])
}
