//! Who comes late begins with a keyframe, and many who come together ask for one keyframe, not for many.

use std::time::{Duration, Instant};

use crate::common::{Publisher, Server, Viewer, Way};

#[test]
fn eight_who_come_late_together_begin_with_the_same_new_keyframe() {
    let server = Server::start(&["rooms.keyframe_interval_min=1s"]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut early = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut early], 1);
    // Then the last keyframe is too old to begin with (rooms.keyframe_age_max, 1.5 s).
    while publisher.keyframe_at.elapsed() < Duration::from_secs(3) {
        publisher.play(&mut [&mut early], 4);
    }
    let asked = publisher.keyframe_requests as u64;

    let start = Instant::now();
    let mut late: Vec<Viewer> = (0..8).map(|_| Viewer::join(&server, "news", Way::Udp4)).collect();
    let mut all: Vec<&mut Viewer> = late.iter_mut().chain([&mut early]).collect();
    publisher.play(&mut all, 200);
    publisher.finish(&mut all);

    let asked = publisher.keyframe_requests as u64 - asked;
    // One, and one more for each interval that went by.
    let most = 1 + start.elapsed().as_secs();
    assert!((1..=most).contains(&asked), "{asked} keyframes were asked for");
    for viewer in late.iter().chain([&early]) {
        viewer.assert_whole(0, &publisher);
    }
}
