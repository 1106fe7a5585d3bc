//! Whether several datagrams go to the kernel, and come from it, as one.

use crate::{Finding, Severity};

/// Looks at one of both, where the settings want it or not, and the kernel of this release can or cannot. `None`: that could
/// not be tried.
pub fn splitting(is_gso: bool, is_wanted: bool, kernel_can: Option<bool>, release: &str) -> Finding {
    let (name, option, since) = if is_gso { ("gso", "UDP_SEGMENT", "4.18") } else { ("gro", "UDP_GRO", "5.0") };
    let (severity, says, mend) = match (kernel_can, is_wanted) {
        (None, _) => (Severity::Note, format!("whether the kernel has {option} could not be tried"), None),
        (Some(false), _) => (
            Severity::Warning,
            format!("the kernel has no {option}: each datagram has a way of its own through it"),
            Some(format!("boot a kernel of {since} or later")),
        ),
        (Some(true), false) => (
            Severity::Note,
            format!("workers.{name} = false: each datagram has a way of its own through the kernel"),
            Some(format!("set workers.{name} = true")),
        ),
        (Some(true), true) => (Severity::Ok, format!("the kernel has {option}"), None),
    };
    let answer = match kernel_can {
        None => "no socket",
        Some(false) => "refused",
        Some(true) => "done",
    };
    Finding { check: name, severity, says, seen: format!("{option} on a socket: {answer}; kernel {release}"), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_cannot_is_a_warning_and_a_setting_a_note() {
        let at = |wanted, can| splitting(true, wanted, can, "6.18.1").severity;
        assert_eq!(at(true, Some(true)), Severity::Ok);
        assert_eq!(at(true, Some(false)), Severity::Warning);
        assert_eq!(at(false, Some(true)), Severity::Note);
        assert_eq!(at(true, None), Severity::Note);
        assert_eq!(splitting(false, true, Some(true), "6.18.1").check, "gro");
    }
}
