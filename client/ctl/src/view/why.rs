//! What is being waited for, and who holds it up.

use echo_client::message::{Holder, Wait};

use super::printable::printable;
use super::quantity::age;

pub(super) fn show(table: &str, waits: &[Wait]) -> String {
    if waits.is_empty() {
        return format!("nothing waits at table {table}");
    }
    waits.iter().map(wait).collect::<Vec<_>>().join("\n\n")
}

fn wait(wait: &Wait) -> String {
    let mut lines = vec![
        format!("{} (for {})", printable(&wait.who), age(wait.for_ms)),
        format!("  waits for  {}", printable(&wait.waits_for)),
    ];
    lines.extend(wait.held_by.iter().map(holder));
    lines.join("\n")
}

fn holder(holder: &Holder) -> String {
    let Holder { pid, name, what, for_ms } = holder;
    let process = if *pid == 0 { "its pid is not known".to_owned() } else { format!("pid {pid}") };
    format!("  held by    {} ({process}): {} (for {})", printable(name), printable(what), age(*for_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_names_its_holders() {
        let holder =
            |pid, for_ms| Holder { pid, name: "trainer".into(), what: "reads batch 0".into(), for_ms };
        let waits = [
            Wait {
                who: "writer worker (pid 41)".into(),
                waits_for: "room".into(),
                held_by: vec![holder(42, 2000), holder(0, 61_000)],
                for_ms: 1500,
            },
            Wait { who: "the table".into(), waits_for: "nobody".into(), held_by: vec![], for_ms: 0 },
        ];
        assert_eq!(
            show("t", &waits),
            "\
writer worker (pid 41) (for 1.5s)
  waits for  room
  held by    trainer (pid 42): reads batch 0 (for 2.0s)
  held by    trainer (its pid is not known): reads batch 0 (for 1m 1s)

the table (for 0.0s)
  waits for  nobody"
        );
        assert_eq!(show("t", &[]), "nothing waits at table t");
    }
}
