//! Whether the heap gets the huge pages that the server asks for.

use crate::{Finding, Severity};

/// Who gets them.
pub const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Looks at who gets huge pages: "always" everybody, "madvise" who asks, "never" nobody. `None`: that is not known.
pub fn huge_pages(enabled: Option<&str>) -> Finding {
    let (severity, says, mend) = match enabled {
        Some("never") => (
            Severity::Warning,
            "the heap gets no huge pages: with some hundred viewers, each packet waits for the memory's tables (TLB)",
            Some(format!("echo madvise > {ENABLED}")),
        ),
        None => (Severity::Note, "whether the heap gets huge pages is not known", None),
        Some("always") => (
            Severity::Note,
            "every process gets huge pages, also who does not ask: what others take is more than they use",
            Some(format!("echo madvise > {ENABLED}")),
        ),
        Some(_) => (Severity::Ok, "who asks for huge pages gets them, as the server does", None),
    };
    let seen = format!("{ENABLED}: {}", enabled.unwrap_or("unreadable"));
    Finding { check: "huge pages", severity, says: says.to_owned(), seen, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_huge_pages_are_a_warning_and_too_many_a_note() {
        assert_eq!(huge_pages(Some("madvise")).severity, Severity::Ok);
        assert_eq!(huge_pages(Some("always")).severity, Severity::Note);
        assert_eq!(huge_pages(Some("never")).severity, Severity::Warning);
        assert_eq!(huge_pages(None).severity, Severity::Note);
    }
}
