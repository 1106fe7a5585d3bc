//! The reflector's part of `/metrics`: what its workers count, and each stream that is configured.

use ::reflect::spec::EndReason;
use strum::VariantArray as _;

use super::{Page, label, with_label, worker_label};
use crate::plane::workers::Workers;
use crate::reflect::control::{Control, StreamView};

/// What is shown of a stream: name, kind, help, and how it is read.
type Shown = (&'static str, &'static str, &'static str, fn(&StreamView) -> f64);

const SHOWN: [Shown; 9] = [
    ("live", "gauge", "1 while somebody sends the reflected stream.", |stream| f64::from(u8::from(stream.has_source))),
    ("sources", "gauge", "Sources that the stream is fetched from, in turns. 0: it is pushed.", |stream| {
        stream.sources as f64
    }),
    ("rate_bps", "gauge", "The stream's rate, as measured, in bit/s.", |stream| stream.rate.bps() as f64),
    ("received_bytes_total", "counter", "Bytes of the reflected stream that came.", |stream| {
        stream.received_bytes as f64
    }),
    ("interval_seconds", "gauge", "Each viewer of the stream is sent to once in so many seconds.", |stream| {
        stream.interval.as_secs_f64()
    }),
    ("viewers", "gauge", "Viewers of the reflected stream.", |stream| stream.viewers as f64),
    ("viewers_begun_total", "counter", "Viewers of the reflected stream that came.", |stream| {
        stream.totals.begun as f64
    }),
    ("sent_bytes_total", "counter", "Bytes that viewers of the reflected stream got who are gone.", |stream| {
        stream.totals.sent_bytes as f64
    }),
    (
        "skips_total",
        "counter",
        "Times that viewers of the reflected stream who are gone went on at a newer start point.",
        |stream| stream.totals.skips as f64,
    ),
];

pub(super) fn write(page: &mut Page, reflect: &Control, workers: &Workers) {
    let rows: Vec<_> = workers.numbers().map(|(id, numbers)| (worker_label(id), numbers.reflect.load())).collect();
    page.set(&rows);
    let name = "millrace_reflect_access_log_lines_total";
    page.family(
        name,
        "counter",
        "Lines of the access log, by what became of them: written; dropped: no room in the queue; refused: none on the disk.",
    );
    let totals = reflect.access_totals();
    for (what, count) in [("written", totals.written), ("dropped", totals.dropped), ("refused", totals.refused)] {
        page.sample(name, &label("what", what), count as f64);
    }
    let streams = reflect.streams();
    for (name, kind, help, read) in SHOWN {
        let name = format!("millrace_reflect_stream_{name}");
        page.family(&name, kind, help);
        for stream in &streams {
            page.sample(&name, &label("stream", &stream.name), read(stream));
        }
    }
    let name = "millrace_reflect_stream_viewers_ended_total";
    page.family(name, "counter", "Viewers of the reflected stream that are gone, by reason.");
    for stream in &streams {
        for reason in EndReason::VARIANTS {
            let labels = with_label(&label("stream", &stream.name), "reason", reason.into());
            page.sample(name, &labels, stream.totals.ended.count(*reason) as f64);
        }
    }
}
