//! Reads what is judged: files of the kernel, answers of its calls. What cannot be read is `None`, and no fault.

pub mod cards;
pub mod cpus;
pub mod flows;
pub mod holders;
pub mod netlink;
pub mod ports;
pub mod sockets;
pub mod stun;

use std::fs;

/// What a file says, without the blanks around it.
pub fn text(file: &str) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

/// The number that a file is.
pub fn number(file: &str) -> Option<u64> {
    text(file)?.parse().ok()
}

/// Of the words in a file the one in brackets: "always [madvise] never".
pub fn chosen(file: &str) -> Option<String> {
    let text = text(file)?;
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    Some(word.to_owned())
}

/// The numbers of a list such as "0-3,5".
pub fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_is_numbers_and_ranges() {
        assert_eq!(list("0-3,5"), [0, 1, 2, 3, 5]);
        assert_eq!(list("7"), [7]);
        assert!(list("").is_empty());
    }
}
