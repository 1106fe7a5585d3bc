// Which rows are shown, and in which order: a search over many of them a share at a time, so that no frame has much to do.

/** Rows that are looked at in one frame. */
export const LOOKS_PER_FRAME = 2000;

export class Keyed<Row> {
  readonly row: Row;
  readonly id: string;
  private readonly write: (row: Row) => string;
  private written: string | undefined;

  constructor(row: Row, id: string, write: (row: Row) => string) {
    this.row = row;
    this.id = id;
    this.write = write;
  }

  /** What a search finds it by, in small letters; not written before somebody searches. */
  get text(): string {
    return (this.written ??= this.write(this.row).toLowerCase());
  }
}

export class Rows<Row> {
  /** All, in order. */
  private all: Keyed<Row>[] = [];
  /** Those that are shown. */
  shown: Keyed<Row>[] = [];
  /** For tests: frames that a search took, and rows that it looked at in the busiest. */
  work = { frames: 0, most: 0 };
  private query = "";
  /** Whether `shown` has all that `query` finds. */
  private isWhole = true;
  private running = 0;
  private readonly changed: () => void;

  constructor(changed: () => void) {
    this.changed = changed;
  }

  get count(): number {
    return this.all.length;
  }

  /** Takes other rows. Those that were shown stay until there are new ones. */
  set(all: Keyed<Row>[], compare: (one: Keyed<Row>, other: Keyed<Row>) => number): void {
    this.all = all.sort(compare);
    this.isWhole = false;
    this.look(this.query);
  }

  sort(compare: (one: Keyed<Row>, other: Keyed<Row>) => number): void {
    this.all.sort(compare);
    this.isWhole = false;
    this.look(this.query);
  }

  search(text: string): void {
    this.look(text.trim().toLowerCase());
  }

  /** Who goes on with a query looks at what that has found. */
  private look(query: string): void {
    const from = this.isWhole && query.startsWith(this.query) ? this.shown : this.all;
    this.query = query;
    this.work = { frames: 0, most: 0 };
    const run = ++this.running;
    const found: Keyed<Row>[] = [];
    let next = 0;
    const step = (): void => {
      if (run !== this.running) return;
      const until = Math.min(next + LOOKS_PER_FRAME, from.length);
      this.work.frames++;
      this.work.most = Math.max(this.work.most, until - next);
      for (; next < until; next++) {
        const row = from[next];
        if (row && (query === "" || row.text.includes(query))) found.push(row);
      }
      this.isWhole = next >= from.length;
      if (this.isWhole) {
        this.shown = found;
        this.changed();
      } else {
        requestAnimationFrame(step);
      }
    };
    this.isWhole = false;
    step();
  }
}
