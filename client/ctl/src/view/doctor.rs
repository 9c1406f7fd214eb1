//! What this machine can do, a check a line, and under it what to do.

use super::printable::printable;
use crate::doctor::{Check, Report, Section, Verdict};

/// Where advice begins, and what is found after a name that is longer than the column.
const INDENT: usize = 11;
/// Names longer than this push what was found aside.
const LONGEST_NAME: usize = 24;

pub(super) fn show(report: &Report) -> String {
    let mut parts: Vec<String> = report.sections.iter().map(section).collect();
    parts.push(verdict(report));
    parts.join("\n\n")
}

fn section(section: &Section) -> String {
    let names = section.checks.iter().map(|check| printable(&check.name).chars().count());
    let width = names.filter(|&width| width <= LONGEST_NAME).max().unwrap_or(0);
    let lines = section.checks.iter().map(|check| line(check, width));
    std::iter::once(section.title.to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}

fn line(check: &Check, width: usize) -> String {
    let Check { name, state, found, advice, .. } = check;
    let mut text = format!("  {:<7}  {:<width$}  {}", state.name(), printable(name), printable(found));
    if let Some(advice) = advice {
        text += &format!("\n{:INDENT$}> {}", "", printable(advice));
    }
    text
}

fn verdict(report: &Report) -> String {
    let unmet: Vec<_> = report
        .sections
        .iter()
        .flat_map(|section| section.checks.iter().map(move |check| (section, check)))
        .filter(|(_, check)| check.is_unmet())
        .map(|(section, check)| {
            format!("  {:<7}  {}, {}", check.state.name(), section.title, printable(&check.name))
        })
        .collect();
    let sentence = match report.verdict() {
        Verdict::Works => return "What is asked for here would work.".into(),
        Verdict::Fails => "What is asked for here would not work:",
        Verdict::Unknown => "Whether what is asked for here would work is not known:",
    };
    format!("{sentence}\n{}", unmet.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    fn check(name: &str, state: State, advice: Option<&str>, required: bool) -> Check {
        Check {
            name: name.into(),
            state,
            found: "found\x1b".into(),
            advice: advice.map(Into::into),
            required,
        }
    }

    #[test]
    fn each_check_is_a_line_and_what_to_do_stands_under_it() {
        let checks =
            vec![check("a", State::Ok, None, true), check("longer", State::Missing, Some("do this"), false)];
        let sections = vec![Section { name: "memory", title: "Memory", checks }];
        let mut report = Report { sections };
        assert_eq!(
            show(&report),
            "\
Memory
  ok       a       found\\u{1b}
  missing  longer  found\\u{1b}
           > do this

What is asked for here would work."
        );
        report.sections[0].checks[1].required = true;
        assert!(show(&report).ends_with("would not work:\n  missing  Memory, longer"), "{}", show(&report));
        report.sections[0].checks[1].state = State::Unknown;
        assert!(show(&report).contains("is not known:\n  unknown  Memory, longer"));
    }
}
