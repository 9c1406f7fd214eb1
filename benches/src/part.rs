//! The parts that a process of a measurement can play, by the words that it is started with.

use anyhow::{Context, Result, bail};

use crate::{attach, clients, fifo, latency, latest, pin, sample, stage};

/// The words of a part, behind its name: read one after the other.
pub struct Words<'a>(std::slice::Iter<'a, String>);

impl<'a> Words<'a> {
    /// The next word.
    pub fn text(&mut self) -> Result<&'a str> {
        self.0.next().map(String::as_str).context("a part lacks a word")
    }

    /// The next word, as a number.
    pub fn number(&mut self) -> Result<u64> {
        let text = self.text()?;
        text.parse().with_context(|| format!("{text} is no number"))
    }
}

/// Plays a part.
pub fn play(words: &[String]) -> Result<()> {
    let mut words = Words(words.iter());
    let mut name = words.text()?;
    if let Some(core) = name.strip_prefix("core=") {
        stage::stay_on(core.parse()?)?;
        name = words.text()?;
    }
    match name {
        "daemon" => stage::play_daemon(words.text()?),
        "fifo-writer" => fifo::play_writer(&mut words),
        "fifo-reader" => fifo::play_reader(&mut words),
        "ring-writer" => fifo::play_ring_writer(&mut words),
        "ring-reader" => fifo::play_ring_reader(&mut words),
        "latency-writer" => latency::play_writer(&mut words),
        "latency-reader" => latency::play_reader(&mut words),
        "word-writer" => latency::play_word_writer(&mut words),
        "word-reader" => latency::play_word_reader(&mut words),
        "latest-publisher" => latest::play_publisher(&mut words),
        "latest-reader" => latest::play_reader(&mut words),
        "latest-beside" => latest::play_beside(&mut words),
        "latest-copies" => latest::play_copies(&mut words),
        "latest-follower" => latest::play_follower(&mut words),
        "newest-writer" => latest::play_newest_writer(&mut words),
        "newest-reader" => latest::play_newest_reader(&mut words),
        "sampler" => sample::play_sampler(&mut words),
        "gatherer" => sample::play_gatherer(&mut words),
        "copies" => latest::play_plain_copies(&mut words),
        "attacher" => attach::play_attacher(&mut words),
        "passer" => attach::play_passer(&mut words),
        "pass-asker" => attach::play_asker(&mut words),
        "pin-reader" => pin::play_reader(&mut words),
        "pin-bare" => pin::play_bare(&mut words),
        "idlers" => clients::play_idlers(&mut words),
        "flooder" => clients::play_flooder(&mut words),
        _ => bail!("there is no part {name}"),
    }
}
