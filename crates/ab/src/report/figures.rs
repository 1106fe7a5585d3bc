//! Which pictures a suite has, and what is in them.

use super::suite::{Run, Suite};
use super::words::number;
use crate::cell::{self, Cell, Metric};
use crate::record::Latency;
use measure::plot::{Bar, Bars, Figure, Group, Layer, Line, Point, Ruler, Scale, short};
use measure::rounds::Ratio;

/// One picture with what to say about it.
pub struct Picture {
    /// Part of a file's name.
    pub id: String,
    pub title: String,
    pub caption: String,
    draw: Box<dyn Fn(bool) -> String>,
}

impl Picture {
    /// The picture; with its colours inside for a file of its own.
    pub fn svg(&self, with_style: bool) -> String {
        (self.draw)(with_style)
    }

    /// Nothing without a point.
    fn lines(id: impl Into<String>, caption: &str, mut figure: Figure) -> Option<Self> {
        figure.layers.retain(|layer| !layer.points.is_empty());
        let (id, title, caption) = (id.into(), figure.title.clone(), caption.to_owned());
        let has_points = !figure.layers.is_empty();
        has_points.then(|| Picture { id, title, caption, draw: Box::new(move |style| figure.svg(style)) })
    }

    /// The same, of one point.
    fn lines_at(point: f64, what: &str, caption: &str, figure: Figure) -> Option<Self> {
        Self::lines(format!("{what}-{}", short(point).replace(',', "")), caption, figure)
    }

    /// Nothing without a bar.
    fn bars(id: &str, caption: &str, mut bars: Bars) -> Option<Self> {
        bars.groups.retain(|group| !group.bars.is_empty());
        let (id, title, caption) = (id.to_owned(), bars.title.clone(), caption.to_owned());
        let has_bars = !bars.groups.is_empty();
        has_bars.then(|| Picture { id, title, caption, draw: Box::new(move |style| bars.svg(style)) })
    }
}

/// The colour of what belongs to no subject.
const FLOOR_SLOT: usize = 7;

/// The pictures of the newest results, the most telling first.
pub fn pictures(run: &Run) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let has_lines = run.points.len() > 1 && !run.has_jobs();
    if has_lines {
        pictures.extend(cost_by_point(run));
    }
    pictures.extend(split(run));
    if has_lines {
        pictures.extend(latency_by_point(run));
    }
    pictures.extend(latency_curves(run));
    pictures.extend(by_point_or_bars(run, "rate", "Arrived packets per second", "packets/s", cell::rate, RATE));
    pictures.extend(by_point_or_bars(run, "memory", "Peak memory of the server", "MiB", cell::memory_mib, MEMORY));
    pictures
}

const RATE: &str = "What the receivers got, not what was sent. A line that bends has found its limit.";
const MEMORY: &str = "The most that the server and its children had since their start.";

/// One small picture per point: every run as a mark.
pub fn rounds(run: &Run) -> Vec<Picture> {
    run.points.iter().filter_map(|&point| rounds_at(run, point)).collect()
}

/// The cost of each subject over the dates of all results; empty when there is only one.
pub fn history(suite: &Suite) -> Vec<Picture> {
    if suite.older.is_empty() {
        return Vec::new();
    }
    suite.newest.points.iter().filter_map(|&point| history_at(suite, point)).collect()
}

/// The axis on which the points lie, each with its tick.
fn point_ruler(run: &Run) -> Ruler {
    let (Some(least), Some(most)) = (run.points.first(), run.points.last()) else {
        return Ruler::new(run.axis(), Scale::Linear);
    };
    let scale = if *least > 0.0 && most / least >= 8.0 { Scale::Log } else { Scale::Linear };
    let ticks = run.points.iter().map(|&point| (point, short(point))).collect();
    Ruler::new(run.axis(), scale).with_ticks(ticks)
}

/// Logarithmic where the largest value is many times the smallest.
fn value_ruler(label: &str, values: impl Iterator<Item = f64>) -> Ruler {
    let (least, most) = values.filter(|v| *v > 0.0).fold((f64::MAX, 0.0_f64), |(l, m), v| (l.min(v), m.max(v)));
    Ruler::new(label, if most > least * 6.0 { Scale::Log } else { Scale::Linear })
}

/// A figure whose axis on the left fits its values.
fn figure(title: impl Into<String>, note: &str, x: Ruler, unit: &str, layers: Vec<Layer>) -> Figure {
    let ys = layers.iter().flat_map(|layer| layer.points.iter().map(|point| point.y));
    Figure { title: title.into(), note: note.into(), x, y: value_ruler(unit, ys), layers }
}

/// A subject's points, joined.
fn layer(run: &Run, subject: usize, points: impl Iterator<Item = Point>) -> Layer {
    let name = run.subjects[subject].clone();
    Layer { name, slot: subject, line: Line::Solid, has_marks: true, points: points.collect() }
}

/// A line per subject with its intervals.
fn lines_by_point<'a>(run: &'a Run, metric: Metric, unit: &'a str) -> impl Iterator<Item = Layer> + 'a {
    (0..run.subjects.len()).map(move |subject| {
        let estimate = |&x: &f64| {
            let name = run.point_name(x).unwrap_or_default();
            Some(estimated(x, run.cell(subject, x).estimate(metric)?, &name, unit))
        };
        layer(run, subject, run.points.iter().filter_map(estimate))
    })
}

fn estimated(x: f64, Ratio { median, low, high }: Ratio, name: &str, unit: &str) -> Point {
    let tip = format!("{name}: {} {unit} ({}–{})", number(median), number(low), number(high));
    Point { x, y: median, interval: Some((low, high)), is_hollow: false, tip }
}

fn titled(what: &str, run: &Run, point: f64) -> String {
    run.point_name(point).map_or_else(|| what.to_owned(), |name| format!("{what}, {name}"))
}

fn cost_by_point(run: &Run) -> Option<Picture> {
    let mut layers: Vec<Layer> = lines_by_point(run, cell::cost_us, "µs").collect();
    if let Some((user, kernel)) = run.floor.as_ref().and_then(|floor| floor.cost_us()) {
        let at = |&x: &f64| Point { x, y: user + kernel, ..Point::default() };
        let points = run.points.iter().map(at).collect();
        layers.push(Layer { name: "floor".into(), slot: FLOOR_SLOT, line: Line::Dashed, has_marks: false, points });
    }
    let note = "median of the rounds; whiskers: 95 % interval; lower is better";
    let figure = figure("Server CPU time per arrived packet", note, point_ruler(run), "µs per packet", layers);
    let caption = "User space and kernel together, by the kernel's accounting, per packet that the receivers got.";
    Picture::lines("cost", caption, figure)
}

fn split(run: &Run) -> Option<Picture> {
    let floor = run.floor.as_ref().and_then(|floor| floor.cost_us()).map(|(user, kernel)| Bar {
        name: "floor".into(),
        slot: FLOOR_SLOT,
        parts: vec![user, kernel],
        text: format!("{} µs", number(user + kernel)),
    });
    let bar = |(subject, cell): (usize, Cell<'_>)| {
        let (user, kernel) = (cell.median(cell::user_us)?, cell.median(cell::kernel_us)?);
        let text = format!("{} µs", number(cell.median(cell::cost_us)?));
        Some(Bar { name: run.subjects[subject].clone(), slot: subject, parts: vec![user, kernel], text })
    };
    let groups = run.points.iter().map(|&point| {
        let bars = run.cells(point).filter_map(bar).chain(floor.clone());
        Group { label: run.point_name(point).unwrap_or_default(), bars: bars.collect() }
    });
    let bars = Bars {
        title: "Where the CPU time goes".into(),
        note: "per arrived packet, median of the rounds".into(),
        unit: "µs per packet".into(),
        parts: vec!["user space".into(), "kernel".into()],
        groups: groups.collect(),
    };
    Picture::bars("split", "What a server can improve is mostly the first part.", bars)
}

fn latency_by_point(run: &Run) -> Option<Picture> {
    let p99 = lines_by_point(run, cell::p99, "ms").map(|layer| Layer { name: layer.name + " p99", ..layer });
    let p50 = lines_by_point(run, cell::p50, "ms");
    let p50 = p50.map(|layer| Layer { name: layer.name + " p50", line: Line::Dashed, ..layer });
    let note = "p99 solid, median dashed; median of the rounds, whiskers: 95 % interval";
    let figure = figure("Latency", note, point_ruler(run), "ms", p99.chain(p50).collect());
    let caption = "From the publisher's send to the receiver, as the load measured it.";
    Picture::lines("latency", caption, figure)
}

/// Shares of packets by which a tail is judged, with their place on an axis of nines.
const NINES: [(f64, &str); 6] =
    [(0.0, "min"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];

fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// The whole distribution at the smallest and the largest point at which somebody measured latency.
fn latency_curves(run: &Run) -> Vec<Picture> {
    let mut pictures: Vec<Picture> = run.points.iter().filter_map(|&point| latency_curve(run, point)).collect();
    let last = pictures.pop();
    pictures.truncate(1);
    pictures.extend(last);
    pictures
}

fn latency_curve(run: &Run, point: f64) -> Option<Picture> {
    let layers = run.cells(point).map(|(subject, cell)| {
        let points = curve(&cell).into_iter();
        Layer { has_marks: false, ..layer(run, subject, points) }
    });
    let layers: Vec<Layer> = layers.collect();
    let last = layers.iter().flat_map(|layer| &layer.points).map(|point| point.x).fold(1.0, f64::max);
    let ticks =
        NINES.iter().map(|(share, text)| (nines(*share), (*text).to_owned())).filter(|tick| tick.0 <= last + 0.01);
    let x = Ruler::new("share of packets that are faster", Scale::Linear).with_ticks(ticks.collect());
    let note = "all rounds together; how long the slowest packets take";
    let figure = figure(titled("Distribution of latency", run, point), note, x, "ms", layers);
    let caption = "Each step to the right leaves a tenth of the packets: the flatter, the more even.";
    Picture::lines_at(point, "distribution", caption, figure)
}

/// The share of packets that are faster, as nines, and the latency; from classes, or else from what is known of the
/// quantiles.
fn curve(cell: &Cell<'_>) -> Vec<Point> {
    let at = |x: f64, ms: f64| Point { x, y: ms, ..Point::default() };
    let classes = cell.histogram();
    let all: u64 = classes.iter().map(|class| class.1).sum();
    if all > 0 {
        let mut below = 0;
        let points = classes.iter().map(|(upper, count)| {
            below += count;
            // The last class ends where one packet in all is left.
            at(nines((below as f64 - 0.5) / all as f64).min(nines(NINES[NINES.len() - 1].0)), *upper)
        });
        return points.collect();
    }
    type Quantile = (f64, fn(&Latency) -> f64);
    let quantiles: [Quantile; 4] = [
        (0.5, |latency| latency.p50),
        (0.9, |latency| latency.p90),
        (0.99, |latency| latency.p99),
        (0.999, |latency| latency.p999),
    ];
    let point = |(share, pick): Quantile| Some(at(nines(share), cell.median(|run| run.latency_ms.as_ref().map(pick))?));
    quantiles.into_iter().filter_map(point).collect()
}

fn by_point_or_bars(run: &Run, id: &str, title: &str, unit: &str, metric: Metric, caption: &str) -> Option<Picture> {
    if run.points.len() > 1 && !run.has_jobs() {
        let note = "median of the rounds; whiskers: 95 % interval";
        let layers = lines_by_point(run, metric, unit).collect();
        return Picture::lines(id, caption, figure(title, note, point_ruler(run), unit, layers));
    }
    let bar = |(subject, cell): (usize, Cell<'_>)| {
        let value = cell.median(metric)?;
        let text = format!("{} {unit}", number(value));
        Some(Bar { name: run.subjects[subject].clone(), slot: subject, parts: vec![value], text })
    };
    let group = |&point: &f64| {
        let label = run.point_name(point).filter(|_| run.has_jobs()).unwrap_or_default();
        Group { label, bars: run.cells(point).filter_map(bar).collect() }
    };
    let (note, groups) = ("median of the rounds".into(), run.points.iter().map(group).collect());
    let bars = Bars { title: title.into(), note, unit: unit.into(), parts: Vec::new(), groups };
    Picture::bars(id, caption, bars)
}

fn rounds_at(run: &Run, point: f64) -> Option<Picture> {
    let judge = run.judge();
    let layers = run.cells(point).map(|(subject, cell)| {
        let points = cell.all.iter().filter_map(|record| {
            let y = judge.of(record).filter(|value| value.is_finite())?;
            let disturbed = record.disturbed.as_ref().map(|by| format!(", disturbed: {by}")).unwrap_or_default();
            let tip = format!("round {}, {}: {}{disturbed}", record.round, record.subject, number(y));
            let x = f64::from(record.round);
            Some(Point { x, y, interval: None, is_hollow: record.disturbed.is_some(), tip })
        });
        layer(run, subject, points)
    });
    let last = run.records.iter().map(|record| record.round).max()?;
    let rounds = (1..=last).step_by(last.div_ceil(12) as usize);
    let x = Ruler::new("round", Scale::Linear)
        .with_ticks(rounds.map(|round| (f64::from(round), round.to_string())).collect());
    let note = "outlined: disturbed by something else on the machine";
    let figure = figure(titled("Every run", run, point), note, x, judge.label(), layers.collect());
    Picture::lines_at(point, "rounds", "", figure)
}

fn history_at(suite: &Suite, point: f64) -> Option<Picture> {
    let runs: Vec<&Run> = suite.older.iter().chain([&suite.newest]).collect();
    let newest = &suite.newest;
    let layers = newest.subjects.iter().enumerate().map(|(slot, name)| {
        let points = runs.iter().enumerate().filter_map(|(index, run)| {
            let subject = run.subjects.iter().position(|other| other == name)?;
            let cost = run.cell(subject, point).estimate(cell::cost_us)?;
            let version = run.machine.subjects.get(subject).and_then(|subject| subject.version.as_deref());
            let place = format!("{}, {}", run.machine.date, version.unwrap_or(name));
            Some(estimated(index as f64 + 1.0, cost, &place, "µs"))
        });
        layer(newest, slot, points)
    });
    let day = |run: &Run| run.machine.date.get(..10).unwrap_or(&run.machine.date).to_owned();
    let step = runs.len().div_ceil(6);
    let dates = runs.iter().enumerate().filter(|(index, _)| (runs.len() - 1 - index).is_multiple_of(step));
    let x = Ruler::new("measured on", Scale::Linear)
        .with_ticks(dates.map(|(index, run)| (index as f64 + 1.0, day(run))).collect());
    let note = "one mark per measurement; whiskers: 95 % interval";
    let figure = figure(titled("Cost over time", newest, point), note, x, "µs per packet", layers.collect());
    let caption = "Server CPU time per arrived packet. Machines may differ; see below.";
    Picture::lines_at(point, "history", caption, figure)
}
