//! Replays a corpus through the entry of its fuzz target: whole, cut off, and damaged. Shared by the crates' tests.

use std::path::PathBuf;

/// What a byte is turned into, one after the other, to damage it.
const DAMAGES: [fn(u8) -> u8; 6] =
    [|_| 0, |_| 0xff, |byte| byte ^ 0x80, |byte| byte ^ 0x20, |byte| byte.wrapping_add(1), |byte| byte.wrapping_sub(1)];

/// Replays each file in `folder`, counted from the crate's own. A file is cut off and damaged in at most `places_max`
/// places, spread evenly.
pub fn replay(folder: &str, places_max: usize, entry: fn(&[u8])) {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), folder].iter().collect();
    let mut count = 0;
    for file in std::fs::read_dir(&folder).expect("the corpus is checked in") {
        let mut data = std::fs::read(file.unwrap().path()).unwrap();
        let step = data.len().div_ceil(places_max).max(1);
        entry(&data);
        for len in (0..data.len()).step_by(step) {
            entry(&data[..len]);
        }
        for at in (0..data.len()).step_by(step) {
            let intact = data[at];
            for damage in DAMAGES {
                data[at] = damage(intact);
                entry(&data);
            }
            data[at] = intact;
        }
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}
