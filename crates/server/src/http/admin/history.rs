//! The last hour, one reading a second at most.
//!
//! In: readings, with the time. Out: rows, and their names. Memory: `SAMPLES` rows of 8 bytes a number, made at the start and
//! never more: 2.8 MB, and 0.5 MB for each worker. The oldest makes room for the newest.

use std::fmt::Write as _;
use std::iter::once;

use super::sample::Reading;

/// An hour of seconds.
pub(super) const SAMPLES: usize = 3_600;

/// Rows of one answer at most.
pub(super) const ROWS_MAX: usize = 1_000;

/// What the numbers of a row are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    machine: Vec<&'static str>,
    drops: Vec<(&'static str, &'static str)>,
    worker: Vec<&'static str>,
    workers: usize,
}

impl Fields {
    fn of(reading: &Reading) -> Self {
        let names = |numbers: &[(&'static str, u64)]| numbers.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        Fields {
            machine: names(&reading.machine),
            drops: reading.drops.iter().map(|(who, why, _)| (*who, *why)).collect(),
            worker: reading.workers.first().map(|worker| names(worker)).unwrap_or_default(),
            workers: reading.workers.len(),
        }
    }

    /// Numbers of a row: the time comes first.
    fn width(&self) -> usize {
        1 + self.machine.len() + self.drops.len() + self.worker.len() * self.workers
    }

    /// As who reads samples has to know them.
    pub(super) fn json(&self) -> String {
        let drops: Vec<String> = self.drops.iter().map(|(who, why)| format!("{who}/{why}")).collect();
        serde_json::json!({"machine": self.machine, "drops": drops, "worker": self.worker}).to_string()
    }

    /// One sample: `{"at":…,"machine":[…],"drops":[…],"workers":[[…],…]}`, with the time in milliseconds since 1970.
    pub(super) fn write_sample(&self, row: &[u64], out: &mut String) {
        let (at, rest) = row.split_at(1);
        let (machine, rest) = rest.split_at(self.machine.len());
        let (drops, workers) = rest.split_at(self.drops.len());
        let list = |numbers: &[u64], out: &mut String| {
            out.push('[');
            for (index, number) in numbers.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                write!(out, "{comma}{number}").expect("writing to a String cannot fail");
            }
            out.push(']');
        };
        write!(out, "{{\"at\":{},\"machine\":", at[0]).expect("writing to a String cannot fail");
        list(machine, out);
        out.push_str(",\"drops\":");
        list(drops, out);
        out.push_str(",\"workers\":[");
        for (index, worker) in workers.chunks(self.worker.len().max(1)).enumerate() {
            out.push_str(if index == 0 { "" } else { "," });
            list(worker, out);
        }
        out.push_str("]}");
    }

    /// Of a row: where the numbers are of which the worst of several samples is wanted, and not the last.
    fn worst(&self) -> impl Iterator<Item = usize> {
        let before = 1 + self.machine.len() + self.drops.len();
        let late: Vec<usize> =
            (0..self.worker.len()).filter(|index| self.worker[*index].starts_with("late_")).collect();
        let width = self.worker.len();
        (0..self.workers).flat_map(move |worker| late.clone().into_iter().map(move |at| before + worker * width + at))
    }
}

/// A ring of rows.
#[derive(Debug)]
pub(super) struct History {
    fields: Fields,
    rows: Box<[u64]>,
    /// Rows that were ever written.
    count: u64,
}

/// Part of it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) fields: Fields,
    rows: Vec<u64>,
    /// More follows behind the last row.
    pub(super) has_more: bool,
}

impl History {
    /// Nothing yet, of readings such as this.
    pub(super) fn new(reading: &Reading) -> Self {
        let fields = Fields::of(reading);
        let rows = vec![0; fields.width() * SAMPLES].into_boxed_slice();
        History { fields, rows, count: 0 }
    }

    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.rows)
    }

    /// Takes a reading, in the place of the oldest when there are `SAMPLES`, and returns its row.
    pub(super) fn push(&mut self, at_ms: u64, reading: &Reading) -> &[u64] {
        let width = self.fields.width();
        let begin = (self.count % SAMPLES as u64) as usize * width;
        let row = &mut self.rows[begin..begin + width];
        let workers = reading.workers.iter().flatten().map(|(_, number)| *number);
        let drops = reading.drops.iter().map(|(_, _, number)| *number);
        let numbers = once(at_ms).chain(reading.machine.iter().map(|(_, number)| *number)).chain(drops).chain(workers);
        row.iter_mut().zip(numbers).for_each(|(place, number)| *place = number);
        self.count += 1;
        row
    }

    /// Rows later than `after_ms`, the oldest first, each `step`-th and so many at most. A row is the same whatever is asked for:
    /// counters are what they were, and of lateness it has the worst of the `step` rows up to it.
    pub(super) fn part(&self, after_ms: u64, step: u64, rows_max: usize) -> Part {
        let step = step.max(1);
        let oldest = self.count.saturating_sub(SAMPLES as u64);
        let chosen = (oldest..self.count).filter(|number| number % step == step - 1 && self.row(*number)[0] > after_ms);
        let mut chosen: Vec<u64> = chosen.take(rows_max + 1).collect();
        let has_more = chosen.len() > rows_max;
        chosen.truncate(rows_max);
        let mut rows = Vec::with_capacity(chosen.len() * self.fields.width());
        for number in chosen {
            let begin = rows.len();
            rows.extend_from_slice(self.row(number));
            for at in self.fields.worst() {
                let first = (number + 1 - step).max(oldest);
                let worst = (first..=number).map(|number| self.row(number)[at]).max();
                rows[begin + at] = worst.unwrap_or_default();
            }
        }
        Part { fields: self.fields.clone(), rows, has_more }
    }

    fn row(&self, number: u64) -> &[u64] {
        let (width, place) = (self.fields.width(), (number % SAMPLES as u64) as usize);
        &self.rows[place * width..(place + 1) * width]
    }
}

impl Part {
    /// When its last row was taken.
    pub(super) fn last_ms(&self) -> Option<u64> {
        self.rows.chunks(self.fields.width()).last().map(|row| row[0])
    }

    /// `{"fields":{…},"samples":[…]}`.
    pub(super) fn json(&self) -> String {
        let mut out = format!("{{\"fields\":{},\"samples\":[", self.fields.json());
        for (index, row) in self.rows.chunks(self.fields.width()).enumerate() {
            out.push_str(if index == 0 { "" } else { "," });
            self.fields.write_sample(row, &mut out);
        }
        out.push_str("]}");
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reading(number: u64, late: u64) -> Reading {
        Reading {
            machine: vec![("streams", number), ("cpu_ns_total", number * 10)],
            drops: vec![("rooms", "too_old", number / 2)],
            workers: vec![
                vec![("late_max_us", late), ("busy_ns_total", number)],
                vec![("late_max_us", 0), ("busy_ns_total", 1)],
            ],
        }
    }

    fn history(count: u64) -> History {
        let mut history = History::new(&reading(0, 0));
        for number in 1..=count {
            history.push(number * 1_000, &reading(number, if number == 5 { 700 } else { 1 }));
        }
        history
    }

    fn samples(part: &Part) -> Vec<Value> {
        let read: Value = serde_json::from_str(&part.json()).expect("JSON");
        read["samples"].as_array().expect("a list").clone()
    }

    #[test]
    fn a_sample_has_its_names_apart() {
        let history = history(1);
        let fields: Value = serde_json::from_str(&history.fields().json()).expect("JSON");
        let expected = json!({
            "machine": ["streams", "cpu_ns_total"],
            "drops": ["rooms/too_old"],
            "worker": ["late_max_us", "busy_ns_total"],
        });
        assert_eq!(fields, expected);
        let expected = json!({"at": 1_000, "machine": [1, 10], "drops": [0], "workers": [[1, 1], [0, 1]]});
        assert_eq!(samples(&history.part(0, 1, 10)), [expected]);
    }

    #[test]
    fn it_has_an_hour_and_takes_no_more_than_at_the_start() {
        let mut history = history(0);
        let (bytes, place) = (history.bytes(), history.rows.as_ptr());
        assert_eq!(bytes, SAMPLES * 8 * 8, "eight numbers of eight bytes");
        for number in 1..=10_000 {
            history.push(number * 1_000, &reading(number, 0));
        }
        assert_eq!((history.bytes(), history.rows.as_ptr()), (bytes, place));
        let all = history.part(0, 1, usize::MAX - 1);
        assert_eq!(samples(&all).len(), SAMPLES);
        assert_eq!(samples(&all)[0]["at"], 6_401_000, "the oldest of the last hour");
        assert_eq!(all.last_ms(), Some(10_000_000));
    }

    #[test]
    fn it_is_read_in_parts_of_which_each_goes_on_behind_the_one_before() {
        let history = history(10);
        let first = history.part(0, 1, 6);
        assert!(first.has_more);
        let second = history.part(first.last_ms().expect("rows"), 1, 6);
        assert!(!second.has_more);
        let at =
            |part: &Part| samples(part).iter().map(|sample| sample["at"].as_u64().expect("ms")).collect::<Vec<_>>();
        assert_eq!([at(&first), at(&second)].concat(), (1..=10).map(|number| number * 1_000).collect::<Vec<_>>());
        assert!(samples(&history.part(10_000, 1, 6)).is_empty());
    }

    #[test]
    fn of_several_seconds_the_counters_are_the_last_and_the_lateness_is_the_worst() {
        let history = history(10);
        let rows = samples(&history.part(0, 4, 100));
        let at: Vec<_> = rows.iter().map(|row| row["at"].as_u64().expect("ms")).collect();
        assert_eq!(at, [4_000, 8_000], "the same ones at whatever time somebody asks");
        assert_eq!((&rows[0]["workers"][0], &rows[1]["workers"][0]), (&json!([1, 4]), &json!([700, 8])));
        assert_eq!(rows[1]["machine"], json!([8, 80]));
    }
}
