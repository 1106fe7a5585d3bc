// What all views have: figures, plots, and tables that are asked for anew while they are looked at.

import { make } from "../page.js";
import { list } from "./api.js";
import { Plot, type PlotSpec } from "./plot.js";
import type { Samples } from "./samples.js";
import { Table, type TableSpec } from "./table.js";

/** What stands behind `#/`: `streams`, `sessions/12?stream=a`. */
export interface Route {
  parts: string[];
  query: URLSearchParams;
}

export interface Context {
  samples: Samples;
  route: Route;
  about: About;
}

/** What the server says of itself. */
export interface About {
  version: string;
  host: string;
  workers: number;
  up_seconds: number;
  draining: boolean;
  products: Record<"rooms" | "livekit" | "pump" | "relay" | "reflect", boolean>;
  log_filter: string | null;
  doctor: boolean;
}

export interface Figure {
  label: string;
  read: (samples: Samples) => string;
  /** When it is to be looked at. */
  isBad?: (samples: Samples) => boolean;
}

/** Lists are asked for so often, and the longer they are the less often. */
const LIST_EVERY_MS = 5000;
const LIST_MS_PER_ROW = 1;

/** A part of the page, while it is seen. */
export class View {
  readonly element = make("div", "view");
  private readonly figures: { figure: Figure; value: HTMLElement; tile: HTMLElement }[] = [];
  private readonly plots: Plot[] = [];
  private readonly tables: Table<never>[] = [];
  private readonly drawn: ((samples: Samples) => void)[] = [];
  private readonly ended = new AbortController();
  protected readonly context: Context;

  constructor(context: Context) {
    this.context = context;
  }

  get query(): URLSearchParams {
    return this.context.route.query;
  }

  get signal(): AbortSignal {
    return this.ended.signal;
  }

  /** A table's rows, for tests. */
  get lists(): readonly Table<never>[] {
    return this.tables;
  }

  addFigures(figures: Figure[]): this {
    const list = make("dl", "figures");
    for (const figure of figures) {
      const value = make("dd", "", "–");
      const tile = make("div", "", make("dt", "", figure.label), value);
      this.figures.push({ figure, value, tile });
      list.append(tile);
    }
    this.element.append(list);
    return this;
  }

  addPlots(specs: PlotSpec[]): this {
    const grid = make("div", "plots");
    for (const spec of specs) {
      const plot = new Plot(spec);
      this.plots.push(plot);
      grid.append(plot.element);
    }
    this.element.append(grid);
    return this;
  }

  /** A table of what a path lists. */
  addList<Row>(spec: TableSpec<Row>, path: string): Table<Row> {
    const table = this.addTable(spec);
    const load = async (): Promise<void> => {
      let rows: Row[] = [];
      try {
        if (!document.hidden) {
          rows = await list<Row>(path, this.signal);
          table.set(rows);
        }
      } catch (error) {
        if (this.signal.aborted) return;
        table.fail(error instanceof Error ? error.message : String(error));
      }
      if (!this.signal.aborted) timer = setTimeout(load, LIST_EVERY_MS + rows.length * LIST_MS_PER_ROW);
    };
    let timer: ReturnType<typeof setTimeout> | undefined;
    this.signal.addEventListener("abort", () => clearTimeout(timer));
    this.reloads.push(() => {
      clearTimeout(timer);
      void load();
    });
    void load();
    return table;
  }

  private readonly reloads: (() => void)[] = [];

  /** Something was changed: lists are asked for at once. */
  reload(): void {
    for (const reload of this.reloads) reload();
  }

  addTable<Row>(spec: TableSpec<Row>): Table<Row> {
    const { route } = this.context;
    const table = new Table(spec, route.query.get("q") ?? "", (text) => {
      if (text) route.query.set("q", text);
      else route.query.delete("q");
      history.replaceState(null, "", hash(route));
    });
    this.tables.push(table as unknown as Table<never>);
    this.element.append(table.element);
    return table;
  }

  add(element: HTMLElement): this {
    this.element.append(element);
    return this;
  }

  /** Does something with each sample. */
  whenDrawn(draw: (samples: Samples) => void): this {
    this.drawn.push(draw);
    return this;
  }

  draw(samples: Samples): void {
    for (const { figure, value, tile } of this.figures) {
      value.textContent = samples.last ? figure.read(samples) : "–";
      tile.classList.toggle("bad", samples.last !== undefined && figure.isBad?.(samples) === true);
    }
    for (const plot of this.plots) if (samples.last) plot.draw(samples);
    for (const draw of this.drawn) draw(samples);
  }

  close(): void {
    this.ended.abort();
    for (const plot of this.plots) plot.close();
    for (const table of this.tables) table.close();
    this.element.remove();
  }
}

export function hash({ parts, query }: Route): string {
  const search = query.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/** An address of the page. */
export function to(parts: string[], query: Record<string, string> = {}): string {
  return hash({ parts, query: new URLSearchParams(query) });
}

/** The last value that is known. */
export function last(values: number[]): number {
  for (let index = values.length - 1; index >= 0; index--) {
    const value = values[index];
    if (value !== undefined && Number.isFinite(value)) return value;
  }
  return NaN;
}
