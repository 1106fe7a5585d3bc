//! Asks for memory before it is needed. A load that is not needed yet holds up what follows once the processor can look no further
//! ahead; a prefetch does not.

/// Bytes that come into the caches together.
const LINE: usize = 64;

/// Begins to bring a value into the caches: all of what lies in it, and nothing that it points to. Values of many lines are better
/// asked for field by field, because a processor has some sixteen lines on their way at most.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for offset in offsets(start.addr(), size_of_val(value)) {
        line(start.wrapping_add(offset));
    }
}

/// One offset in each of the lines of so many bytes from `address` on.
#[inline(always)]
fn offsets(address: usize, len: usize) -> impl Iterator<Item = usize> {
    (0..address % LINE + len).step_by(LINE)
}

#[inline(always)]
fn line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_value_is_asked_for_once() {
        for (address, len) in [(64, 1), (64, 64), (64, 65), (127, 1), (127, 2), (100, 200), (65, 1_000)] {
            let asked: Vec<usize> = offsets(address, len).map(|offset| (address + offset) / LINE).collect();
            let lines: Vec<usize> = (address / LINE..=(address + len - 1) / LINE).collect();
            assert_eq!(asked, lines, "{len} bytes at {address}");
        }
        prefetch::<[u64]>(&[]);
    }
}
