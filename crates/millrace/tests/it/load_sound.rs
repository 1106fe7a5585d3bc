//! `millrace load rooms --audio`: sound beside the video, by WHIP and WHEP.

use crate::common::{Server, kernel_drops};
use clap::Parser;
use load::rooms as load;

#[test]
fn each_viewer_hears_the_publisher_and_sees_it() {
    let server = Server::start(&[]);
    let url = server.url();
    let words = ["load", "--audio", "--url", &url, "--subscribers", "6", "--bitrate", "300k", "--json"];
    let checked = ["--sample", "1", "--warm-up", "0", "--seconds", "2"];

    let drops_before = kernel_drops();
    let args = load::Args::parse_from(words.iter().chain(&checked));
    let report = load::measure(&args).expect("a report");

    assert_eq!((report.publishers, report.viewers, report.failed), (1, 6, 0), "{report:?}");
    assert_eq!((report.silent, report.damaged), (0, 0), "each has something of both: {report:?}");
    assert!(report.lost == 0 || kernel_drops() > drops_before, "{report:?}");
    assert_eq!(report.decrypted, report.packets, "{report:?}");
}
