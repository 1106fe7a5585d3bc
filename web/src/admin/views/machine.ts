// The machine: what the process takes, how busy each worker is, how late, and what is dropped.

import { byId, make } from "../../page.js";
import { ask, change } from "../api.js";
import { confirm, say } from "../dialog.js";
import { bits, bytes, count, micros, nanos, percent, perSecond } from "../format.js";
import type { Line, PlotSpec } from "../plot.js";
import { ratio, type Samples } from "../samples.js";
import { last, to, View, type Context } from "../view.js";

/** More lines than this nobody tells apart: then it is the mean, and the busiest. */
const LINES_MAX = 4;

const busy = (samples: Samples): number => last(samples.rate(samples.sum("busy_ns_total"))) / 1e9 / samples.workers;
const late = (samples: Samples): number => last(samples.worst("late_p99_us"));
const dropped = (samples: Samples): number => last(samples.rate(samples.sum("dropped_total")));
const cost = (samples: Samples): number[] =>
  ratio(samples.rate(samples.sum("cpu_ns_total")), samples.rate(samples.sum("packets_out_total")));

/** A worker that is as busy as this takes no newcomers for long. */
const BUSY_SHARE = 0.85;

function busyLines(samples: Samples): Line[] {
  const share = (worker: number) => (samples: Samples) =>
    samples.rate(samples.worker(worker, "busy_ns_total")).map((ns) => ns / 1e9);
  const { workers } = samples;
  if (workers <= LINES_MAX) {
    return Array.from({ length: workers }, (_, worker) => ({ label: `worker ${worker}`, read: share(worker) }));
  }
  const all = (samples: Samples) => Array.from({ length: workers }, (_, worker) => share(worker)(samples));
  const join = (join: (values: number[]) => number) => (samples: Samples) => {
    const each = all(samples);
    return samples.all.map((_, index) => join(each.map((values) => values[index] ?? NaN)));
  };
  return [
    { label: "mean", read: join((values) => values.reduce((sum, value) => sum + value, 0) / workers) },
    { label: "busiest", read: join((values) => Math.max(...values)) },
  ];
}

const PLOTS: PlotSpec[] = [
  { title: "Workers at work", format: percent, least: 0.05, lines: busyLines },
  {
    title: "Traffic",
    format: bits,
    lines: [
      { label: "out", read: (samples) => samples.rate(samples.sum("bytes_out_total")).map((rate) => rate * 8) },
      { label: "in", read: (samples) => samples.rate(samples.sum("bytes_in_total")).map((rate) => rate * 8) },
    ],
  },
  {
    title: "Packets",
    format: perSecond,
    lines: [
      { label: "out", read: (samples) => samples.rate(samples.sum("packets_out_total")) },
      { label: "in", read: (samples) => samples.rate(samples.sum("packets_in_total")) },
    ],
  },
  { title: "CPU for each packet out", format: nanos, lines: [{ label: "", read: cost }] },
  {
    title: "Lateness, worst worker",
    format: micros,
    lines: [
      { label: "99 %", read: (samples) => samples.worst("late_p99_us") },
      { label: "half", read: (samples) => samples.worst("late_p50_us") },
    ],
  },
  {
    title: "Drops",
    format: perSecond,
    lines: [
      { label: "not sent", read: (samples) => samples.rate(samples.sum("dropped_total")) },
      { label: "all reasons", read: (samples) => samples.rate(samples.all.map((sample) => sum(sample.drops))) },
    ],
  },
  {
    title: "Who is here",
    format: count,
    least: 4,
    lines: [
      { label: "sessions", read: (samples) => samples.sum("sessions") },
      { label: "pump", read: (samples) => samples.sum("pump_sessions") },
      { label: "relay", read: (samples) => samples.sum("relay_allocations") },
      { label: "reflect", read: (samples) => samples.machine("reflect_viewers") },
    ],
  },
  { title: "Memory", format: bytes, isBinary: true, lines: [{ label: "", read: (samples) => samples.machine("process_resident_bytes") }] },
  { title: "Open files", format: count, least: 10, lines: [{ label: "", read: (samples) => samples.machine("process_open_files") }] },
];

const sum = (values: number[]): number => values.reduce((all, value) => all + value, 0);

interface Reloaded {
  taken: string[];
  restart: string[];
}

export function machine(context: Context): View {
  const view = new View(context);
  view.addFigures([
    { label: "At work", read: (samples) => percent(busy(samples)), isBad: (samples) => busy(samples) > BUSY_SHARE },
    { label: "Out", read: (samples) => bits(8 * last(samples.rate(samples.sum("bytes_out_total")))) },
    { label: "In", read: (samples) => bits(8 * last(samples.rate(samples.sum("bytes_in_total")))) },
    { label: "CPU per packet", read: (samples) => nanos(last(cost(samples))) },
    { label: "Late, 99 %", read: (samples) => micros(late(samples)) },
    { label: "Not sent", read: (samples) => perSecond(dropped(samples)), isBad: (samples) => dropped(samples) > 0 },
    { label: "Memory", read: (samples) => bytes(last(samples.machine("process_resident_bytes"))) },
    { label: "Open files", read: (samples) => count(last(samples.machine("process_open_files")) || NaN) },
  ]);
  view.addPlots(PLOTS);
  const tables = make("div", "pair", workersTable(view), dropsTable(view));
  return view.add(tables).add(actions(context));
}

/** A row for each worker, which leads to who is there. */
function workersTable(view: View): HTMLElement {
  const heads = ["Worker", "At work", "Out", "Late, 99 %", "Sessions", "Pump", "Relay", "Reflect"];
  const body = make("tbody");
  const table = make("table", "", make("thead", "", row("th", heads)), body);
  view.whenDrawn((samples) => {
    const value = (worker: number, name: string) => last(samples.worker(worker, name));
    const rate = (worker: number, name: string) => last(samples.rate(samples.worker(worker, name)));
    const lines = Array.from({ length: samples.workers }, (_, worker) => {
      const query = { worker: String(worker) };
      const link = (path: string, name: string) => {
        const made = make("a", "", count(value(worker, name)));
        made.href = to([path], query);
        return made;
      };
      return [
        String(worker),
        percent(rate(worker, "busy_ns_total") / 1e9),
        bits(8 * rate(worker, "bytes_out_total")),
        micros(value(worker, "late_p99_us")),
        link("sessions", "sessions"),
        link("pump", "pump_sessions"),
        link("relay", "relay_allocations"),
        count(value(worker, "reflect_viewers")),
      ];
    });
    if (!body.contains(document.activeElement)) body.replaceChildren(...lines.map((cells) => row("td", cells)));
  });
  return make("section", "small", make("h2", "", "Workers"), scrolled(table));
}

function dropsTable(view: View): HTMLElement {
  const body = make("tbody");
  const table = make("table", "", make("thead", "", row("th", ["Dropped, by reason", "Now", "Last hour"])), body);
  view.whenDrawn((samples) => {
    const drops = samples.drops().slice(0, 8);
    const lines = drops.map((drop) => row("td", [drop.reason.replace("/", ": ").replaceAll("_", " "), perSecond(drop.rate), count(drop.hour)]));
    body.replaceChildren(...(lines.length > 0 ? lines : [row("td", ["Nothing was dropped.", "", ""])]));
  });
  return make("section", "small", make("h2", "", "Drops"), scrolled(table));
}

function scrolled(table: HTMLElement): HTMLElement {
  return make("div", "scrolled", table);
}

function row(tag: "td" | "th", cells: (string | Node)[]): HTMLTableRowElement {
  return make("tr", "", ...cells.map((cell) => make(tag, "", cell)));
}

/** What is done with the machine as a whole. */
function actions({ about }: Context): HTMLElement {
  const filter = make("input");
  filter.id = "log-filter";
  filter.spellcheck = false;
  filter.value = about.log_filter ?? "";
  const label = make("label", "", "Log filter");
  label.htmlFor = filter.id;
  const set = make("button", "", "Change");
  const form = make("form", "line", label, filter, set);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = filter.value.trim();
    confirm({
      title: "Change the log filter",
      says: `From now on, and until the server is started anew, the log has what ${JSON.stringify(wanted)} lets through.`,
      label: "Change",
      run: () => change("PUT", "/api/admin/log-filter", { filter: wanted }),
      done: () => (about.log_filter = wanted),
    });
  });
  const drain = make("button", "danger", "Drain this server");
  drain.type = "button";
  drain.id = "drain";
  drain.addEventListener("click", () =>
    confirm({
      title: "Drain this server",
      says: "Nobody new is let in. The server ends with the last of those who are there; where nobody is, it ends at once.",
      label: "Drain",
      run: () => change("POST", "/api/admin/drain"),
      done: () => {
        byId("draining", HTMLElement).hidden = false;
        say("Draining");
      },
    }),
  );
  const reload = make("button", "", "Read the settings again");
  reload.type = "button";
  const told = make("p", "faint");
  told.setAttribute("role", "status");
  reload.addEventListener("click", () =>
    confirm({
      title: "Read the settings again",
      says: "What can change while the server runs is as the settings say then. Where something is wrong with them nothing changes.",
      label: "Read",
      run: async () => {
        const { taken, restart } = (await (await ask("/api/admin/reload", { method: "POST" })).json()) as Reloaded;
        const holds = taken.length === 0 ? "Nothing has changed that can." : `Changed: ${taken.join(", ")}.`;
        told.textContent = restart.length === 0 ? holds : `${holds} These take a restart: ${restart.join(", ")}.`;
      },
    }),
  );
  form.hidden = about.log_filter === null;
  return make("section", "small actions", make("h2", "", "This server"), make("div", "line", form, reload, drain), told);
}
