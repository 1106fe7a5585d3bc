//! Which cores a network card interrupts.

use crate::host::cards::Interrupt;
use crate::host::list;
use crate::{Finding, Severity};

/// Fewer than this tell nothing.
const COUNT_LEAST: u64 = 10_000;

/// Looks at the interrupts of a card that came, where these cores are there ("0-3").
pub fn interrupts(card: &str, all: &[Interrupt], cores: &str) -> Finding {
    let busy: Vec<_> = all.iter().filter(|interrupt| interrupt.count >= COUNT_LEAST).collect();
    let numbers: Vec<String> = busy.iter().map(|interrupt| interrupt.number.to_string()).collect();
    let first = busy.first().map(|interrupt| &*interrupt.cpus).unwrap_or_default();
    let is_one = busy.len() > 1 && first.len() == 1 && busy.iter().all(|interrupt| interrupt.cpus == first);
    let (severity, says, mend) = match (is_one && list(cores).len() > 1, first) {
        (true, [core]) => (
            Severity::Warning,
            format!("all queues of {card} interrupt core {core}, and the others wait for it"),
            Some(format!("for i in {}; do echo {cores} > /proc/irq/$i/smp_affinity_list; done", numbers.join(" "))),
        ),
        _ => (Severity::Ok, format!("{card} does not interrupt one core alone, as far as that can be told"), None),
    };
    let seen = busy.iter().map(|interrupt| format!("{}: {:?}", interrupt.number, interrupt.cpus)).collect::<Vec<_>>();
    let seen = if seen.is_empty() { "none of note".to_owned() } else { seen.join(", ") };
    Finding { check: "interrupts", severity, says, seen: format!("/proc/irq/*/smp_affinity_list: {seen}"), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_queues_on_one_core_are_a_warning() {
        let interrupt = |number, cpus: &[usize], count| Interrupt { number, cpus: cpus.to_vec(), count };
        let of = |all: &[Interrupt]| interrupts("eth0", all, "0-3");
        let one = of(&[interrupt(41, &[0], 50_000), interrupt(42, &[0], 50_000)]);
        assert_eq!(one.severity, Severity::Warning);
        let mend = "for i in 41 42; do echo 0-3 > /proc/irq/$i/smp_affinity_list; done";
        assert_eq!(one.mend.as_deref(), Some(mend));
        assert_eq!(of(&[interrupt(41, &[0], 50_000), interrupt(42, &[1], 50_000)]).severity, Severity::Ok);
        assert_eq!(of(&[interrupt(41, &[0], 50_000), interrupt(42, &[0], 1)]).severity, Severity::Ok, "one queue");
        assert_eq!(of(&[]).severity, Severity::Ok);
    }
}
