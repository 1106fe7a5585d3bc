//! Randomness that nobody guesses.

/// So many random bytes; `None` when the system has none to give.
pub(crate) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// As hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// So many bytes in hexadecimal.
pub(crate) fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let bytes: Vec<u8> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect::<Option<_>>()?;
    bytes.try_into().ok()
}
