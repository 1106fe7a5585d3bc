// Which rows are shown, and in which order. What takes something of each row is done a share at a time, so that no frame has much
// to do.

/** Rows that are looked at in one frame. */
const LOOKS_PER_FRAME = 2000;

/** By a number or a text of each row, which is asked for once. */
export interface Order<Row> {
  by: (row: Row) => number | string;
  down: boolean;
}

export class Keyed<Row> {
  readonly row: Row;
  readonly id: string;
  /** What it is ordered by. */
  key: number | string = "";
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

/** For tests: frames that something took, and rows that it looked at in the busiest. */
interface Work {
  frames: number;
  most: number;
}

export class Rows<Row> {
  /** All, in no order yet. */
  private newest: Keyed<Row>[] = [];
  /** All, in order. */
  private all: Keyed<Row>[] = [];
  /** Those that are shown. */
  shown: Keyed<Row>[] = [];
  private query = "";
  /** Whether `shown` has all that `query` finds. */
  private isWhole = true;
  private readonly ordering = new Shares();
  private readonly looking = new Shares();
  private readonly changed: () => void;

  constructor(changed: () => void) {
    this.changed = changed;
  }

  get count(): number {
    return this.all.length;
  }

  /** What the last order and the last search took. */
  get work(): { order: Work; search: Work } {
    return { order: this.ordering.work, search: this.looking.work };
  }

  /** Takes other rows. Those that were shown stay until there are new ones. */
  set(all: Keyed<Row>[], order: Order<Row>): void {
    this.newest = all;
    this.sort(order);
  }

  sort({ by, down }: Order<Row>): void {
    const rows = this.newest;
    const sign = down ? -1 : 1;
    this.ordering.run(
      rows,
      (keyed) => (keyed.key = by(keyed.row)),
      () => {
        this.all = rows.slice().sort((one, other) => sign * compare(one.key, other.key));
        this.isWhole = false;
        this.look(this.query);
      },
    );
  }

  search(text: string): void {
    this.look(text.trim().toLowerCase());
  }

  /** Who goes on with a query looks at what that has found. */
  private look(query: string): void {
    const from = this.isWhole && query.startsWith(this.query) ? this.shown : this.all;
    this.query = query;
    this.isWhole = false;
    const found: Keyed<Row>[] = [];
    this.looking.run(
      // Without a query there is nothing to look at.
      query === "" ? [] : from,
      (keyed) => keyed.text.includes(query) && found.push(keyed),
      () => {
        this.shown = query === "" ? this.all : found;
        this.isWhole = true;
        this.changed();
      },
    );
  }
}

/** Does something with each of many rows, a share in each frame. Who begins anew ends what was going on. */
class Shares {
  work: Work = { frames: 0, most: 0 };
  private running = 0;

  run<Row>(rows: Row[], act: (row: Row) => unknown, done: () => void): void {
    const run = ++this.running;
    const work = (this.work = { frames: 0, most: 0 });
    let next = 0;
    const step = (): void => {
      if (run !== this.running) return;
      const share = rows.slice(next, next + LOOKS_PER_FRAME);
      work.frames++;
      work.most = Math.max(work.most, share.length);
      for (const row of share) act(row);
      next += share.length;
      if (next >= rows.length) done();
      else requestAnimationFrame(step);
    };
    step();
  }
}

function compare(one: number | string, other: number | string): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return one === other ? 0 : String(one) < String(other) ? -1 : 1;
}
