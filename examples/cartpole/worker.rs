//! A rollout worker: plays, and appends each step to the ring.

use std::process::ExitCode;

use anyhow::Result;
use echo_client::{Error, Writer};

use crate::policy::Policy;
use crate::sample::{Sample, TABLE, table_spec};
use crate::weights::{WeightsError, WeightsFile};
use crate::{Arguments, cast, rollout};

/// Why a worker stops.
enum Stop {
    Append(Error),
    Weights(WeightsError),
}

/// Works until the table is dropped.
pub fn work(arguments: &Arguments) -> Result<ExitCode> {
    let client = cast::connect(arguments)?;
    let mut writer = match client.attach_writer(TABLE, Some(&table_spec().arrays)) {
        Ok(writer) => writer,
        // A worker that was started as the run ended finds no table.
        Err(error) if error.refusal().is_some() => return Ok(ExitCode::SUCCESS),
        Err(error) => return Err(error.into()),
    };
    let weights = WeightsFile::new(&arguments.directory);
    let newest = |policy: &mut Policy| weights.load().map(|newest| *policy = newest).map_err(Stop::Weights);
    let append = |sample: &Sample| append(&mut writer, sample).map_err(Stop::Append);
    let Err(stop) = rollout::run(arguments.seed, newest, append);
    match stop {
        Stop::Append(Error::Closed { .. }) => Ok(ExitCode::SUCCESS),
        Stop::Append(error) => Err(error.into()),
        Stop::Weights(error) => Err(error.into()),
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
