// The last hour in memory: samples as the server makes them, and what can be read from two of them.

/** Names of the numbers in a sample. What ends in `_total` only grows. */
export interface Fields {
  machine: string[];
  drops: string[];
  worker: string[];
}

export interface Sample {
  /** Milliseconds since 1970. */
  at: number;
  machine: number[];
  drops: number[];
  workers: number[][];
}

const HOUR_MS = 3_600_000;

export class Samples {
  fields: Fields = { machine: [], drops: [], worker: [] };
  all: Sample[] = [];

  /** Begins anew: another server, or the same after a restart, counts from zero. */
  begin(fields: Fields): void {
    if (JSON.stringify(fields) !== JSON.stringify(this.fields)) this.all = [];
    this.fields = fields;
  }

  add(samples: Sample[]): void {
    for (const sample of samples) {
      const last = this.all.at(-1);
      if (last && sample.at <= last.at) continue;
      if (last && this.wentBack(last, sample)) this.all = [];
      this.all.push(sample);
    }
    const oldest = (this.all.at(-1)?.at ?? 0) - HOUR_MS;
    const first = this.all.findIndex((sample) => sample.at >= oldest);
    if (first > 0) this.all.splice(0, first);
  }

  get last(): Sample | undefined {
    return this.all.at(-1);
  }

  /** Seconds since 1970, of each sample. */
  get times(): number[] {
    return this.all.map((sample) => sample.at / 1000);
  }

  get workers(): number {
    return this.last?.workers.length ?? 0;
  }

  /** A number of the process, in each sample. */
  machine(name: string): number[] {
    const index = this.fields.machine.indexOf(name);
    return this.all.map((sample) => sample.machine[index] ?? NaN);
  }

  /** A number of one worker. */
  worker(worker: number, name: string): number[] {
    const index = this.fields.worker.indexOf(name);
    return this.all.map((sample) => sample.workers[worker]?.[index] ?? NaN);
  }

  /** A number of all workers, made one: their sum, or the worst. */
  workersAs(name: string, join: (all: number[]) => number): number[] {
    const index = this.fields.worker.indexOf(name);
    return this.all.map((sample) => join(sample.workers.map((worker) => worker[index] ?? 0)));
  }

  sum(name: string): number[] {
    return this.workersAs(name, (all) => all.reduce((sum, value) => sum + value, 0));
  }

  worst(name: string): number[] {
    return this.workersAs(name, (all) => Math.max(0, ...all));
  }

  /** How fast a counter grows, per second; nothing is known before the second sample. */
  rate(counter: number[]): number[] {
    return counter.map((value, index) => {
      const [now, before] = [this.all[index], this.all[index - 1]];
      const old = counter[index - 1];
      if (!now || !before || old === undefined) return NaN;
      return ((value - old) * 1000) / (now.at - before.at);
    });
  }

  /** Drops by reason: how many in the hour, and how many a second now, the worst first. */
  drops(): { reason: string; hour: number; rate: number }[] {
    const [first, last, before] = [this.all[0], this.last, this.all.at(-2)];
    if (!first || !last) return [];
    const rows = this.fields.drops.map((reason, index) => {
      const now = last.drops[index] ?? 0;
      const seconds = (last.at - (before?.at ?? NaN)) / 1000;
      return { reason, hour: now - (first.drops[index] ?? 0), rate: (now - (before?.drops[index] ?? NaN)) / seconds };
    });
    return rows.filter((row) => row.hour > 0).sort((one, other) => other.hour - one.hour);
  }

  private wentBack(last: Sample, next: Sample): boolean {
    const index = this.fields.machine.indexOf("process_cpu_ns_total");
    return (next.machine[index] ?? 0) < (last.machine[index] ?? 0);
  }
}

/** How much of one for each of another, as nanoseconds for a packet. */
export function ratio(one: number[], other: number[]): number[] {
  return one.map((value, index) => {
    const by = other[index] ?? 0;
    return by > 0 ? value / by : NaN;
  });
}
