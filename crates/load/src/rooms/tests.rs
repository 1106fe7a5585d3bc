//! The load against a server that promises nothing (`bench::rooms`), in this process.

use std::thread;

use super::*;

#[test]
fn viewers_of_the_bare_loop_get_the_publisher_s_frames_whole() {
    let args = bench::rooms::Args { listen: "127.0.0.1:0".parse().unwrap() };
    let server = bench::rooms::Server::new(&args).unwrap();
    let url = format!("http://{}", server.http_addr());
    // It is there until the process ends.
    thread::spawn(move || server.run());

    let line = "--subscribers 20 --sample 1 --seconds 1 --warm-up 0 --json --url";
    let args = Args::parse_from(["load"].into_iter().chain(line.split(' ')).chain([&url[..]]));
    let report = measure(&args).unwrap();
    assert_eq!((report.viewers, report.failed, report.damaged, report.duplicates), (20, 0, 0, 0), "{report:?}");
    assert!(report.packets > 0 && report.latency.count > 0, "{report:?}");
}
