//! One man page: what a command line knows, and sections beside it.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Every fragment that is rendered begins with it; a page needs it once.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// A page that is being written.
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Its title, name, synopsis and description.
    pub(super) fn begin(command: &Command, section: &str) -> Self {
        let man = Man::new(command.clone());
        let (title, version) = (command.get_name().to_uppercase(), command.get_version().unwrap_or_default());
        // Not clap_mangen's own, which cannot leave the date out: the same definitions make the same page.
        let title = format!(".TH {title} {section} \"\" \"echo {version}\" echo\n");
        let mut page = Self { text: PREAMBLE.to_owned() + &title };
        page.add(|out| man.render_name_section(out));
        page.add(|out| man.render_synopsis_section(out));
        page.add(|out| man.render_description_section(out));
        page
    }

    fn add(&mut self, render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) {
        self.text += &rendered(render);
    }

    /// The options of a command, but for those that were hidden.
    pub(super) fn options(&mut self, command: &Command) -> &mut Self {
        let man = Man::new(command.clone());
        self.add(|out| man.render_options_section(out));
        self
    }

    /// A command of the command, beneath a heading of its own: how it is called, what it does, its options.
    pub(super) fn command(&mut self, command: &Command) -> &mut Self {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let usage = command.clone().render_usage().to_string();
        self.roff(Roff::new().control("SS", [name]));
        let man = Man::new(command.clone());
        for part in [
            Roff::new().text([roman(usage.trim_start_matches("Usage: "))]).control("PP", []).to_roff(),
            rendered(|out| man.render_description_section(out)),
            rendered(|out| man.render_options_section(out)),
        ] {
            let lines = part.lines().filter(|line| !line.starts_with(".SH "));
            self.text.extend(lines.map(|line| line.to_owned() + "\n"));
        }
        self
    }

    /// A section's heading.
    pub(super) fn section(&mut self, title: &str) -> &mut Self {
        self.roff(Roff::new().control("SH", [title]))
    }

    /// A paragraph.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.paragraph().roff(Roff::new().text([roman(text)]))
    }

    /// What is named, and what it is.
    pub(super) fn entries<'a>(&mut self, entries: impl IntoIterator<Item = (String, &'a str)>) -> &mut Self {
        for (name, meaning) in entries {
            self.roff(Roff::new().control("TP", []).text([bold(name)]).text([roman(meaning)]));
        }
        self
    }

    /// Lines as they are.
    pub(super) fn verbatim(&mut self, lines: &str) -> &mut Self {
        let mut roff = Roff::new();
        roff.control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        self.paragraph().roff(&roff)
    }

    /// Begins one, unless a heading has.
    fn paragraph(&mut self) -> &mut Self {
        if !self.text.lines().next_back().is_some_and(|last| last.starts_with(".S")) {
            self.roff(Roff::new().control("PP", []));
        }
        self
    }

    fn roff(&mut self, roff: &Roff) -> &mut Self {
        self.text += &roff.to_roff();
        self
    }

    /// All of it.
    pub(super) fn end(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

fn rendered(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    render(&mut out).expect("a Vec takes everything that is written to it");
    let text = String::from_utf8(out).expect("definitions are text");
    // An empty line is a paragraph of its own, around which a break is one too many.
    text.replace(PREAMBLE, "").replace(".br\n\n.br\n", ".sp\n")
}
