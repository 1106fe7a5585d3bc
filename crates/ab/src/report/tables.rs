//! The tables of a suite, as plain cells; HTML and Markdown write them their own way.

use super::suite::Run;
use super::words::{Tone, number};
use crate::cell::{self, Cell, FIGURES, PLACES, missed};
use crate::values::Judge;
use measure::text::thousands;

/// What stands where nothing is known.
pub const UNKNOWN: &str = "–";

/// One table. The first `texts` columns are words, the others numbers.
pub struct Table {
    pub title: String,
    pub note: String,
    pub texts: usize,
    pub head: Vec<String>,
    pub rows: Vec<Vec<TableCell>>,
}

pub struct TableCell {
    pub text: String,
    pub tone: Tone,
    /// The colour of a subject's name.
    pub slot: Option<usize>,
}

impl TableCell {
    fn plain(text: impl Into<String>) -> Self {
        TableCell { text: text.into(), tone: Tone::Neutral, slot: None }
    }

    fn unknown() -> Self {
        TableCell::plain(UNKNOWN)
    }

    fn number(value: Option<f64>) -> Self {
        value.map_or_else(TableCell::unknown, |value| TableCell::plain(number(value)))
    }
}

/// A row for each subject at each point of which `values` has any, behind these names.
fn by_cell<'a>(
    run: &'a Run,
    (title, note): (&str, &str),
    subject: &'a str,
    names: impl IntoIterator<Item = &'a str>,
    values: impl Fn(f64, usize, &Cell<'_>) -> Vec<TableCell>,
) -> Table {
    let mut rows = Vec::new();
    for &point in &run.points {
        for (index, cell) in run.cells(point) {
            let values = values(point, index, &cell);
            if !values.is_empty() {
                let place = run.has_axis().then(|| TableCell::plain(run.point_text(point)));
                let name = TableCell { slot: Some(index), ..TableCell::plain(run.subjects[index].as_str()) };
                rows.push(place.into_iter().chain([name]).chain(values).collect());
            }
        }
    }
    let axis = run.has_axis().then(|| run.axis());
    let head: Vec<String> = axis.into_iter().chain([subject]).chain(names).map(str::to_owned).collect();
    Table { title: title.into(), note: note.into(), texts: if run.has_axis() { 2 } else { 1 }, head, rows }
}

/// The first subject beside each other one, in everything that is compared.
pub fn verdicts(run: &Run) -> Table {
    let first = run.subjects.first().map_or("the first subject", String::as_str);
    let own = Some(run.judge()).filter(|judge| judge.less_is_better().is_none());
    let judges: Vec<Judge> = Judge::known().chain(own).collect();
    let beside = |judge: &Judge, point: f64, cell: &Cell<'_>| {
        let comparison = run.cell(0, point).compare(cell, |record| judge.of(record));
        comparison.map_or_else(TableCell::unknown, |comparison| TableCell {
            tone: Tone::of(judge, &comparison),
            ..TableCell::plain(format!("{comparison}, p {:.3}", comparison.p))
        })
    };
    let title = format!("{first} beside the others");
    let note = format!(
        "The ratio of {first} to the other, median of the pairs of rounds with its 95 % interval (bootstrap). A difference \
         is called real when the interval leaves out 1 and the signed-rank test has p < 0.05."
    );
    by_cell(run, (&title, &note), "beside", judges.iter().map(Judge::name), |point, other, cell| {
        let judges = judges.iter().filter(|_| other > 0);
        judges.map(|judge| beside(judge, point, cell)).collect()
    })
}

/// Everything that was measured, as medians.
pub fn figures(run: &Run) -> Table {
    let judge = run.judge();
    let own = Some(judge.name()).filter(|_| judge.less_is_better().is_none());
    let names = ["rounds", "CPU µs per packet"].into_iter().chain(FIGURES.iter().map(|figure| figure.name)).chain(own);
    let note = "Medians of the rounds that count. System calls are counted in the warm-up, where that disturbs nothing; \
                switches are those of the server's threads.";
    by_cell(run, ("All figures", note), "subject", names, |_, _, cell| {
        let cost = cell.estimate(cell::cost_us).map_or_else(TableCell::unknown, |cost| {
            TableCell::plain(format!("{} ({}–{})", number(cost.median), number(cost.low), number(cost.high)))
        });
        let figures = FIGURES
            .iter()
            .map(|figure| TableCell::number(cell.median(figure.metric).map(|value| value * figure.factor)));
        let own = own.map(|_| TableCell::number(cell.median(|record| judge.of(record))));
        [TableCell::plain(cell.counted.len().to_string()), cost].into_iter().chain(figures).chain(own).collect()
    })
}

/// What else the load saw, as far as the plan asks for it.
pub fn shown(run: &Run) -> Option<Table> {
    let shown = &run.machine.shown;
    if shown.is_empty() {
        return None;
    }
    let names = shown.iter().map(String::as_str);
    let note = "Medians of the rounds that count, by the load's own names.";
    Some(by_cell(run, ("What the load saw", note), "subject", names, |_, _, cell| {
        let median = |name: &String| cell.median(|record| record.values.get(name).copied());
        shown.iter().map(|name| TableCell::number(median(name))).collect()
    }))
}

/// Lost packets by place, summed over the rounds that count.
pub fn losses(run: &Run) -> Table {
    let names = ["arrived"].into_iter().chain(PLACES.iter().map(|(name, _)| *name)).chain(["missed"]);
    let note = "Packets over all rounds that count. Listener and relay: the server's own receive buffers were full; client: \
                the load's; interface: a network interface or its backlog; missed: what the receivers say never came. \
                A dash: not known.";
    by_cell(run, ("Loss by place", note), "subject", names, |_, _, cell| {
        let arrived = cell.sum(|record| Some(record.arrived.packets)).unwrap_or(0);
        let losses = PLACES.iter().map(|(_, place)| lost(cell.sum(place))).chain([lost(cell.sum(missed))]);
        std::iter::once(TableCell::plain(thousands(arrived as f64))).chain(losses).collect()
    })
}

fn lost(count: Option<u64>) -> TableCell {
    let tone = if count.is_some_and(|count| count > 0) { Tone::Bad } else { Tone::Neutral };
    TableCell { tone, ..count.map_or_else(TableCell::unknown, |count| TableCell::plain(thousands(count as f64))) }
}

/// What the bare kernel path costs.
pub fn floor(run: &Run) -> Option<Table> {
    let floor = run.floor.as_ref()?;
    let nanos = |value: Option<f64>| value.map_or_else(TableCell::unknown, |ns| TableCell::plain(format!("{ns:.0}")));
    let rows = floor.rows.iter().map(|row| {
        let sum = row.user_ns.zip(row.kernel_ns).map(|(user, kernel)| user + kernel);
        vec![TableCell::plain(row.name()), nanos(sum), nanos(row.user_ns), nanos(row.kernel_ns)]
    });
    Some(Table {
        title: "The physical floor".into(),
        note: format!(
            "What the bare kernel path and the bare cipher cost here, measured beside the subjects. The floor of this suite is \
             {}. The number behind a name is how many datagrams go into one message.",
            floor.parts.join(" + ")
        ),
        texts: 1,
        head: ["way", "CPU ns per packet", "user", "kernel"].map(str::to_owned).into(),
        rows: rows.collect(),
    })
}

/// The machine, line by line.
pub fn machine(run: &Run) -> Vec<(String, String)> {
    let machine = &run.machine;
    let mut lines = vec![
        ("CPU".to_owned(), format!("{} × {}", machine.cores, machine.cpu)),
        ("Memory".to_owned(), format!("{:.0} GiB", machine.memory_bytes as f64 / f64::from(1 << 30))),
        ("Kernel".to_owned(), machine.kernel.clone()),
        ("Virtualised".to_owned(), machine.virtualised.clone().unwrap_or_else(|| "nothing tells of it".into())),
        ("Date".to_owned(), machine.date.clone()),
        ("millrace".to_owned(), machine.millrace_version.clone()),
    ];
    lines.extend(machine.features.iter().map(|(name, value)| (name.replace('_', " "), value.clone())));
    lines
}
