// A table of any length: only the rows that are seen are elements. By keyboard: arrows, Page Up and Down, Home and End choose
// a row, Enter opens it, Delete does what its button does.

import { make } from "../page.js";
import { Keyed, type Order, Rows } from "./rows.js";

export interface Column<Row> {
  title: string;
  /** As CSS has it, in a grid. */
  width: string;
  text: (row: Row) => string;
  /** What it is sorted by; without, its text. */
  value?: (row: Row) => number;
  /** Numbers stand at the right. */
  isNumber?: boolean;
  /** Left out where there is little room. */
  isExtra?: boolean;
}

export interface TableSpec<Row> {
  name: string;
  id: (row: Row) => string;
  columns: Column<Row>[];
  /** Where a row leads to. */
  link?: (row: Row) => string;
  action?: { label: string; run: (row: Row) => void };
  empty: string;
}

const ROW_PX = 32;
/** Rows above and below what is seen. */
const MORE = 6;

export class Table<Row> {
  readonly element: HTMLElement;
  readonly rows: Rows<Row>;
  readonly search = make("input", "search");
  private readonly spec: TableSpec<Row>;
  private readonly count = make("span", "count");
  private readonly head = make("div", "row head");
  private readonly body = make("div", "body");
  private readonly space = make("div", "space");
  private readonly note = make("p", "empty");
  private readonly made = new Map<number, { element: HTMLElement; id: string }>();
  private sorted: { column: number; down: boolean } = { column: 0, down: false };
  private chosen = -1;
  private chosenId = "";
  private readonly observer = new ResizeObserver(() => this.show());

  constructor(spec: TableSpec<Row>, query: string, searched: (text: string) => void) {
    this.spec = spec;
    this.rows = new Rows(() => this.renew());
    this.search.type = "search";
    this.search.value = query;
    this.search.placeholder = "Search";
    this.search.setAttribute("aria-label", `Search ${spec.name}`);
    this.search.addEventListener("input", () => {
      this.rows.search(this.search.value);
      searched(this.search.value);
    });
    this.count.setAttribute("role", "status");
    const tools = make("div", "tools", make("h2", "", spec.name), this.count, this.search);
    this.head.setAttribute("role", "row");
    const grid = make("div", "", this.head, this.body);
    grid.setAttribute("role", "grid");
    grid.setAttribute("aria-label", spec.name);
    const action = spec.action ? " 4.5rem" : "";
    grid.style.setProperty("--columns", spec.columns.map((column) => column.width).join(" ") + action);
    const narrow = spec.columns.filter((column) => !column.isExtra);
    grid.style.setProperty("--narrow", narrow.map(share).join(" ") + (spec.action ? " 3.6rem" : ""));
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "rowgroup");
    this.body.setAttribute("aria-label", `${spec.name}: rows`);
    this.body.append(this.space);
    this.body.addEventListener("scroll", () => this.show());
    this.body.addEventListener("keydown", (event) => this.press(event));
    this.body.addEventListener("click", (event) => this.click(event));
    this.observer.observe(this.body);
    this.element = make("section", "table", tools, make("div", "grid", grid, this.note));
    this.note.textContent = "Loading …";
    this.showHead();
    if (query) this.rows.search(query);
  }

  /** Other rows; what is chosen stays chosen. */
  set(rows: Row[]): void {
    const texts = this.spec.columns.map((column) => column.text);
    const write = (row: Row): string => texts.map((text) => text(row)).join("\n");
    this.note.textContent = this.spec.empty;
    this.rows.set(rows.map((row) => new Keyed(row, this.spec.id(row), write)), this.order());
  }

  fail(why: string): void {
    this.note.textContent = why;
    this.note.hidden = false;
  }

  close(): void {
    this.observer.disconnect();
  }

  private order(): Order<Row> {
    const column = this.spec.columns[this.sorted.column];
    const text = column?.text ?? (() => "");
    return { by: column?.value ?? ((row) => natural(text(row))), down: this.sorted.down };
  }

  private showHead(): void {
    const cells = this.spec.columns.map((column, index) => {
      const button = make("button", "", column.title);
      button.type = "button";
      button.addEventListener("click", () => {
        const down = this.sorted.column === index ? !this.sorted.down : column.isNumber === true;
        this.sorted = { column: index, down };
        this.showHead();
        this.body.scrollTop = 0;
        this.rows.sort(this.order());
        this.head.querySelectorAll("button")[index]?.focus();
      });
      const cell = make("div", classes(column), button);
      cell.setAttribute("role", "columnheader");
      const order = this.sorted.down ? "descending" : "ascending";
      cell.setAttribute("aria-sort", this.sorted.column === index ? order : "none");
      return cell;
    });
    if (this.spec.action) cells.push(make("div", "cell"));
    this.head.replaceChildren(...cells);
  }

  private renew(): void {
    const { shown } = this.rows;
    this.chosen = this.chosenId ? shown.findIndex((keyed) => keyed.id === this.chosenId) : -1;
    for (const made of this.made.values()) made.element.remove();
    this.made.clear();
    const total = this.rows.count;
    const format = (value: number) => value.toLocaleString("en");
    this.count.textContent = shown.length === total ? format(total) : `${format(shown.length)} of ${format(total)}`;
    this.note.hidden = shown.length > 0;
    this.body.parentElement?.setAttribute("aria-rowcount", String(shown.length + 1));
    this.space.style.height = `${shown.length * ROW_PX}px`;
    this.body.style.height = `${Math.min(shown.length, 14) * ROW_PX}px`;
    this.show();
  }

  /** Makes elements of the rows that are seen, and of no others. */
  private show(): void {
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW_PX) - MORE);
    const last = Math.min(this.rows.shown.length, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW_PX) + MORE);
    for (const [index, made] of this.made) {
      if (index < first || index >= last) {
        made.element.remove();
        this.made.delete(index);
      }
    }
    for (let index = first; index < last; index++) {
      const keyed = this.rows.shown[index];
      if (keyed && !this.made.has(index)) {
        const element = this.make(keyed, index);
        this.made.set(index, { element, id: keyed.id });
        this.space.append(element);
      }
    }
    this.mark();
  }

  private make({ row, id }: Keyed<Row>, index: number): HTMLElement {
    const cells = this.spec.columns.map((column, at) => {
      const text = column.text(row);
      const link = at === 0 ? this.spec.link?.(row) : undefined;
      const content = link === undefined ? text : make("a", "", text);
      if (content instanceof HTMLAnchorElement && link !== undefined) {
        content.href = link;
        content.tabIndex = -1;
      }
      const cell = make("div", classes(column), content);
      cell.setAttribute("role", "gridcell");
      cell.title = text;
      return cell;
    });
    const { action } = this.spec;
    if (action) {
      const button = make("button", "small", action.label);
      button.type = "button";
      button.tabIndex = -1;
      button.setAttribute("aria-label", `${action.label} ${id}`);
      cells.push(make("div", "cell", button));
    }
    const element = make("div", "row", ...cells);
    element.id = `${this.spec.name}-${index}`.replace(/\W/g, "-");
    element.setAttribute("role", "row");
    element.setAttribute("aria-rowindex", String(index + 2));
    element.dataset["index"] = String(index);
    element.style.top = `${index * ROW_PX}px`;
    return element;
  }

  private mark(): void {
    for (const [index, made] of this.made) made.element.setAttribute("aria-selected", String(index === this.chosen));
    const chosen = this.made.get(this.chosen);
    if (chosen) this.body.setAttribute("aria-activedescendant", chosen.element.id);
    else this.body.removeAttribute("aria-activedescendant");
  }

  private choose(index: number): void {
    const { shown } = this.rows;
    this.chosen = Math.max(0, Math.min(index, shown.length - 1));
    this.chosenId = shown[this.chosen]?.id ?? "";
    const top = this.chosen * ROW_PX;
    const { scrollTop, clientHeight } = this.body;
    if (top < scrollTop) this.body.scrollTop = top;
    else if (top + ROW_PX > scrollTop + clientHeight) this.body.scrollTop = top + ROW_PX - clientHeight;
    this.show();
  }

  private press(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW_PX) - 1);
    const to: Record<string, number> = {
      ArrowDown: this.chosen + 1,
      ArrowUp: this.chosen - 1,
      PageDown: this.chosen + page,
      PageUp: this.chosen - page,
      Home: 0,
      End: this.rows.shown.length - 1,
    };
    const row = this.rows.shown[this.chosen]?.row;
    const next = to[event.key];
    if (next !== undefined) this.choose(next);
    else if (event.key === "Enter" && row !== undefined && this.spec.link) location.hash = this.spec.link(row);
    else if (event.key === "Delete" && row !== undefined && this.spec.action) this.spec.action.run(row);
    else return;
    event.preventDefault();
  }

  private click(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target : null;
    const element = target?.closest<HTMLElement>("[data-index]");
    if (!element) return;
    const index = Number(element.dataset["index"]);
    this.choose(index);
    const row = this.rows.shown[index]?.row;
    if (row === undefined) return;
    if (target?.closest("button")) this.spec.action?.run(row);
    else if (!target?.closest("a") && this.spec.link) location.hash = this.spec.link(row);
  }
}

/** Where there is little room columns share it by the least that they want, in `rem`, and none sticks out. */
const share = ({ width }: { width: string }): string => `minmax(0, ${parseFloat(width.replace("minmax(", ""))}fr)`;

/** In this form names with numbers in them go by these, as people expect. */
const natural = (text: string): string => text.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(15, "0"));

function classes<Row>(column: Column<Row>): string {
  return `cell${column.isNumber ? " number" : ""}${column.isExtra ? " extra" : ""}`;
}
