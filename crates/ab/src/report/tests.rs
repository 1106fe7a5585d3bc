use super::suite::{Floor, Run};
use super::*;
use crate::record::{self, Arrived, Failure, Latency, Loss, Machine, Record, Subject, Usage};

/// What a hostile program could call itself, or write into a log.
const EVIL: &str = "<script>alert(\"1\")</script>|`'&\u{1b}[31m";

const FLOOR: &str = r#"{"parts": ["gso 8", "seal gcm128"], "rows": [
    {"path": "gso", "segments": 8, "bytes": 1200, "to": "loopback", "cpu_ns": 800, "user_ns": 100, "kernel_ns": 700},
    {"path": "seal gcm128", "bytes": 1200, "to": "nowhere", "cpu_ns": 200, "user_ns": 200, "kernel_ns": 0},
    {"path": "recvmmsg+gro", "segments": 16, "bytes": 1200, "to": "loopback", "absent": "no GRO"}]}"#;

fn machine(date: &str) -> Machine {
    let subject = |name: &str| Subject { name: name.into(), version: Some(EVIL.into()), command: EVIL.into() };
    Machine {
        cpu: EVIL.into(),
        cores: 2,
        date: date.into(),
        subjects: vec![subject("ours"), subject("theirs")],
        plan: format!("name = '{EVIL}'\n````\n"),
        plan_name: "rooms".into(),
        axis: Some("viewers".into()),
        judge: "cpu".into(),
        command: EVIL.into(),
        ..Machine::default()
    }
}

/// A run of `packets` packets that cost `us` microseconds each.
fn run(round: u32, subject: &str, point: f64, us: f64) -> Record {
    let packets = (point * 1_000.0) as u64;
    let cpu_s = us * packets as f64 / 1e6;
    let latency = Latency { p50: us, p99: us * 4.0, histogram: vec![(us, 90), (us * 4.0, 10)], ..Latency::default() };
    Record {
        plan: "rooms".into(),
        round,
        subject: subject.into(),
        point,
        seconds: 5.0,
        arrived: Arrived { packets, bytes: packets * 1_200 },
        server: Usage { user_s: cpu_s / 4.0, system_s: cpu_s * 0.75, peak_memory_bytes: 1 << 26, ..Usage::default() },
        loss: Loss { listener: Some(7), ..Loss::default() },
        latency_ms: Some(latency),
        ..Record::default()
    }
}

/// Eight rounds at two points: 2 µs a packet beside `theirs_us`.
fn records(theirs_us: f64) -> Vec<Record> {
    let mut records = Vec::new();
    for round in 1..=8 {
        for point in [10.0, 100.0] {
            // Both have the same mood in a round, and each a little of its own.
            let mood = 1.0 + f64::from(round % 3) * 0.05;
            let own = 1.0 + f64::from(round % 2) * 0.004;
            records.push(run(round, "ours", point, 2.0 * mood * own));
            records.push(run(round, "theirs", point, theirs_us * mood / own));
        }
    }
    records
}

fn kept(date: &str, records: &[Record]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    record::write_machine(directory.path(), &machine(date)).unwrap();
    std::fs::write(directory.path().join(record::ROUNDS_FILE), "").unwrap();
    for record in records {
        record::append(directory.path(), record).unwrap();
    }
    directory
}

fn page_of(records: &[Record]) -> String {
    let directory = kept("2026-01-01T00:00:00Z", records);
    std::fs::write(directory.path().join(suite::FLOOR_FILE), FLOOR).unwrap();
    write(directory.path(), false).unwrap();
    std::fs::read_to_string(directory.path().join(PAGE_FILE)).unwrap()
}

#[test]
fn a_page_says_in_words_what_differs_and_how_far_the_floor_is() {
    let page = page_of(&records(8.0));
    assert!(page.contains("ours has 0.25 times ("), "{page}");
    assert!(page.contains("of theirs at 100 viewers: 3.9"), "{page}");
    assert!(
        page.contains("floor on this machine is 1.00 µs per packet (gso 8 + seal gcm128); ours is at 2."),
        "{page}"
    );
}

#[test]
fn equal_subjects_are_said_to_be_within_noise() {
    let page = page_of(&records(2.0));
    assert!(page.contains("ours and theirs do not differ"), "{page}");
    assert!(!page.contains("times less"));
}

#[test]
fn three_rounds_are_said_to_be_too_few() {
    let few: Vec<Record> = records(8.0).into_iter().filter(|record| record.round <= 3).collect();
    assert!(page_of(&few).contains("but 3 rounds cannot tell chance from a difference"));
}

#[test]
fn pages_have_no_script_and_escape_what_programs_say() {
    let mut records = records(8.0);
    records[0].disturbed = Some(EVIL.into());
    let page = page_of(&records);
    assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
    assert!(page.contains("&lt;script&gt;"));
    assert!(
        !page.contains("http://") || page.matches("http").count() == page.matches("http://www.w3.org/2000/svg").count()
    );
}

#[test]
fn every_picture_that_is_promised_is_on_the_page() {
    let page = page_of(&records(8.0));
    for title in [
        "Server CPU time per arrived packet",
        "Where the CPU time goes",
        "Latency",
        "Distribution of latency, 100 viewers",
        "Arrived packets per second",
        "Peak memory of the server",
        "Every run, 10 viewers",
        "Loss by place",
        "The physical floor",
        "The machine, and how to repeat it",
    ] {
        assert!(page.contains(&format!(">{title}<")), "{title}");
    }
    assert!(!page.contains("NaN") && !page.contains(">inf"));
    assert!(page.contains(">56<"), "seven packets lost in each of eight rounds");
}

#[test]
fn kinds_of_work_have_names_and_bars_and_no_line_between_them() {
    let mut records = records(8.0);
    records.iter_mut().for_each(|record| record.point = if record.point == 10.0 { 1.0 } else { 2.0 });
    let directory = kept("2026-01-01T00:00:00Z", &records);
    let jobs = vec!["small ones".to_owned(), "large ones".to_owned()];
    let machine = Machine { axis: None, jobs, ..machine("2026-01-01T00:00:00Z") };
    record::write_machine(directory.path(), &machine).unwrap();
    write(directory.path(), false).unwrap();
    let page = std::fs::read_to_string(directory.path().join(PAGE_FILE)).unwrap();
    for words in
        ["of theirs (small ones): 3.9", "of theirs (large ones): 3.9", ">Every run, small ones<", ">large ones<"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains(">Latency<") && !page.contains(">Server CPU time per arrived packet<"));
}

#[test]
fn the_load_s_values_are_shown_that_the_plan_names() {
    let mut records = records(8.0);
    records.iter_mut().for_each(|record| record.values = [("stalls".to_owned(), 4321.0)].into());
    let directory = kept("2026-01-01T00:00:00Z", &records);
    let shown = vec!["stalls".to_owned(), "nothing".to_owned()];
    record::write_machine(directory.path(), &Machine { shown, ..machine("2026-01-01T00:00:00Z") }).unwrap();
    write(directory.path(), false).unwrap();
    let page = std::fs::read_to_string(directory.path().join(PAGE_FILE)).unwrap();
    for words in [">What the load saw<", ">stalls<", ">4,321<", ">nothing<"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn a_page_says_who_failed_and_leaves_no_hole() {
    let mut records = records(8.0);
    records.retain(|record| record.subject == "ours" || record.point == 10.0);
    let directory = kept("2026-01-01T00:00:00Z", &records);
    for round in [1, 2] {
        let error = format!("round {round}, subject theirs, 100 viewers: nothing got through\n  the log's end");
        let failure = Failure { round, subject: "theirs".into(), point: 100.0, error, ..Failure::default() };
        record::append_failure(directory.path(), &failure).unwrap();
    }
    write(directory.path(), false).unwrap();
    let page = std::fs::read_to_string(directory.path().join(PAGE_FILE)).unwrap();
    let expected = "2 runs failed, and are missing: theirs at 100 viewers (nothing got through). A subject";
    assert!(page.contains(expected), "{page}");
    assert!(!page.contains("NaN") && !page.contains(">inf"));
}

#[test]
fn the_terminal_shows_the_verdict_and_leaves_out_what_nobody_knows() {
    let directory = kept("2026-01-01T00:00:00Z", &records(8.0));
    let text = write(directory.path(), false).unwrap();
    for part in ["→ ours has 0.25 times", "CPU per packet", "0.251× (", "p 0.008", "user µs", "p99 ms", "listener  56"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("calls per packet") && !text.contains("relay  "), "{text}");
}

#[test]
fn of_a_repeated_run_the_last_one_counts_and_the_disturbed_one_is_hollow() {
    let mut records = records(8.0);
    let disturbed = Record { disturbed: Some("steal 9 %".into()), ..run(8, "ours", 100.0, 50.0) };
    records.insert(records.len() - 2, disturbed);
    let run = Run::new(machine("2026-01-01"), records.clone(), None);
    let cell = run.cell(0, 100.0);
    assert_eq!((cell.all.len(), cell.counted.len()), (9, 8));
    assert!(cell.median(crate::cell::cost_us).unwrap() < 2.5);
    assert_eq!(page_of(&records).matches("class=\"hollow\"").count(), 1);
}

#[test]
fn several_results_of_a_plan_become_a_history_whatever_their_order() {
    let directories = [kept("2026-03-01T00:00:00Z", &records(8.0)), kept("2026-01-01T00:00:00Z", &records(9.0))];
    let paths: Vec<PathBuf> = directories.iter().map(|directory| directory.path().to_owned()).collect();
    let suites = Suite::read_all(&paths).unwrap();
    assert_eq!((suites.len(), suites[0].older.len()), (1, 1));
    assert_eq!(suites[0].newest.machine.date, "2026-03-01T00:00:00Z");
    let page = html::page(&suites);
    assert!(page.contains("Cost over time, 100 viewers") && page.contains(">2026-01-01<"));
    assert!(!page_of(&records(8.0)).contains("Cost over time"), "one result has no history");
}

#[test]
fn a_markdown_page_names_exactly_the_pictures_beside_it() {
    let directory = kept("2026-01-01T00:00:00Z", &records(8.0));
    let path = directory.path().join("docs/rooms.md");
    let args = Args { dirs: vec![directory.path().to_owned()], html: None, markdown: Some(path.clone()) };
    execute(&args).unwrap();
    let page = std::fs::read_to_string(&path).unwrap();
    let mut named: Vec<&str> = page.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let beside = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let mut files: Vec<String> = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.retain(|name| name != "rooms.md");
    named.sort_unstable();
    files.sort_unstable();
    assert_eq!(named, files);
    assert!(files.len() > 6 && !directory.path().join(PAGE_FILE).exists());
    let svg = std::fs::read_to_string(path.with_file_name("rooms-cost.svg")).unwrap();
    assert!(svg.contains("prefers-color-scheme:dark"));
}

#[test]
fn markdown_escapes_what_programs_say_and_no_fence_ends_early() {
    let directory = kept("2026-01-01T00:00:00Z", &records(8.0));
    let page = markdown::page(&Suite::read_all(&[directory.path().to_owned()]).unwrap(), "rooms").text;
    let outside = page.split("\n`````\n").step_by(2).collect::<String>();
    let outside = outside.split("\n```\n").step_by(2).collect::<String>();
    assert!(!outside.contains("<script>") && outside.contains("&lt;script&gt;"), "{outside}");
    assert!(page.contains("\n`````\nname ="), "the plan has four backticks in it, so its fence has five");
    let widths = |line: &str| line.replace("\\|", "").matches('|').count();
    for table in page.split("\n\n").filter(|block| block.starts_with("| ")) {
        let lines: Vec<usize> = table.lines().map(widths).collect();
        assert!(lines.iter().all(|width| *width == lines[0]), "{table}");
    }
}

#[test]
fn results_without_a_packet_without_rounds_or_with_one_point_still_give_a_page() {
    let nothing = Record { seconds: 0.0, ..run(1, "ours", 0.0, 1.0) };
    for records in [vec![], vec![nothing], vec![run(1, "ours", 5.0, 1.0)]] {
        let page = page_of(&records);
        assert!(page.ends_with("</html>\n") && !page.contains("NaN") && !page.contains(">inf"), "{page}");
    }
}

#[test]
fn a_directory_without_results_and_a_broken_floor_are_named() {
    let empty = tempfile::tempdir().unwrap();
    assert!(format!("{:#}", write(empty.path(), false).unwrap_err()).contains("machine.json"));
    let directory = kept("2026-01-01T00:00:00Z", &records(8.0));
    std::fs::write(directory.path().join(suite::FLOOR_FILE), "{").unwrap();
    assert!(format!("{:#}", write(directory.path(), false).unwrap_err()).contains("floor.json"));
}

#[test]
fn a_floor_of_which_a_part_is_absent_is_no_number() {
    let floor: Floor = serde_json::from_str(FLOOR).unwrap();
    assert_eq!(
        floor.cost_us().map(|(user, kernel)| ((user * 1e3).round(), (kernel * 1e3).round())),
        Some((300.0, 700.0))
    );
    let absent: Floor = serde_json::from_str(&FLOOR.replace("seal gcm128\"]", "recvmmsg+gro 16\"]")).unwrap();
    assert_eq!(absent.cost_us(), None);
}

#[test]
fn numbers_have_three_digits() {
    let texts = [0.0123, 0.25, 4.567, 45.67, 456.7, 45_670.0, 2.5e6, f64::NAN].map(words::number);
    assert_eq!(texts, ["0.012", "0.25", "4.57", "45.7", "457", "45,670", "2.50M", "–"]);
}
