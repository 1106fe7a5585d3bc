//! DTLS records, as far as telling them from noise takes.
//!
//! In: one datagram. Out: whether it may be DTLS 1.2. Cost: a look at thirteen bytes.
//! Source: RFC 6347 §4.1 (a record's header), RFC 5246 §6.2.1 (content types).

const HEADER_LEN: usize = 13;

/// Whether a datagram begins with a whole record of DTLS 1.2, or with the ClientHello of one that says 1.0 (RFC 6347 §4.1).
pub fn is_record(datagram: &[u8]) -> bool {
    let Some((header, rest)) = datagram.split_first_chunk::<HEADER_LEN>() else { return false };
    let [20..=23, 0xfe, 0xfd | 0xff, .., len_high, len_low] = *header else { return false };
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    (1..=rest.len()).contains(&len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_records_of_1_2_are_told_from_noise() {
        let record = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1, 2];
        assert!(is_record(&record));
        assert!(is_record(&[&record[..], &[23]].concat()), "what is behind the first is for DTLS to judge");
        for len in 0..record.len() {
            assert!(!is_record(&record[..len]), "{len}");
        }
        for (at, byte) in [(0, 24), (0, 63), (1, 3), (2, 0xfc), (12, 0), (11, 1)] {
            let mut wrong = record;
            wrong[at] = byte;
            assert!(!is_record(&wrong), "{at}");
        }
    }
}
