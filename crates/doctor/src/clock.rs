//! Whether the clock is cheap to read, and right.

use crate::{Finding, Severity};

/// Where the kernel says what it reads.
pub const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// And what else it could.
pub const AVAILABLE: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// These are outside the processor, or count its ticks: to read one takes a microsecond, or it stands still in between.
const SLOW: [&str; 5] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"];
/// From the best.
const FAST: [&str; 5] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"];

/// Looks at what the kernel reads for a clock. `None`: that is not known.
pub fn clocksource(current: Option<&str>, available: &str) -> Finding {
    let better = FAST.iter().find(|fast| available.split_whitespace().any(|word| word == **fast));
    let (severity, says, mend) = match current {
        Some(slow) if SLOW.contains(&slow) => (
            Severity::Warning,
            format!("the clock is {slow}, which is slow to read, and is read for each batch of packets"),
            better.map(|better| format!("echo {better} > {CURRENT}")),
        ),
        Some(fast) => (Severity::Ok, format!("the clock is {fast}"), None),
        None => (Severity::Note, "what the clock is is not known".to_owned(), None),
    };
    Finding { check: "clock", severity, says, seen: format!("{CURRENT}: {}", current.unwrap_or("unreadable")), mend }
}

/// Looks at whether somebody keeps the clock right. `None`: that is not known.
pub fn synchronized(is_synchronized: Option<bool>) -> Finding {
    let (severity, says, state) = match is_synchronized {
        Some(true) => (Severity::Ok, "the clock is kept right", "synchronized"),
        Some(false) => (
            Severity::Note,
            "nobody keeps the clock right, as far as the kernel knows: tokens and certificates go by it",
            "STA_UNSYNC",
        ),
        None => (Severity::Note, "whether the clock is kept right is not known", "refused"),
    };
    let mend = (is_synchronized == Some(false)).then(|| "timedatectl set-ntp true".to_owned());
    Finding { check: "time", severity, says: says.to_owned(), seen: format!("adjtimex: {state}"), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_outside_the_processor_is_a_warning() {
        let slow = clocksource(Some("acpi_pm"), "tsc hpet acpi_pm");
        assert_eq!(slow.severity, Severity::Warning);
        assert_eq!(slow.mend, Some(format!("echo tsc > {CURRENT}")));
        assert_eq!(clocksource(Some("hpet"), "hpet acpi_pm").mend, None, "there is no better one");
        assert_eq!(clocksource(Some("kvm-clock"), "kvm-clock").severity, Severity::Ok);
        assert_eq!(clocksource(None, "").severity, Severity::Note);
    }

    #[test]
    fn a_clock_that_nobody_keeps_right_is_worth_a_note() {
        assert_eq!(synchronized(Some(true)).severity, Severity::Ok);
        assert_eq!(synchronized(Some(false)).severity, Severity::Note);
    }
}
