// A plot of the last hour: a frame of a fixed size, so that nothing jumps, and uPlot in it.

import uPlot from "uplot";
import { make } from "../page.js";
import type { Samples } from "./samples.js";

export interface Line {
  label: string;
  read: (samples: Samples) => number[];
}

export interface PlotSpec {
  title: string;
  /** A value with its unit. */
  format: (value: number) => string;
  lines: Line[] | ((samples: Samples) => Line[]);
  /** What the top of the scale is at least. */
  least?: number;
  /** Bytes have round numbers of their own. */
  isBinary?: boolean;
}

const HEIGHT = 150;
const HOUR_S = 3600;
/** Of a server that has just begun, so that a first sample is no line at the edge. */
const LEAST_S = 300;

/** Colours are of the style sheet, in which they differ by dark and light. */
function colour(name: string): string {
  const probe = document.body.appendChild(make("span"));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export class Plot {
  readonly element: HTMLElement;
  private readonly spec: PlotSpec;
  private readonly legend = make("span", "legend");
  private readonly canvas = make("div", "canvas");
  private plot: uPlot | null = null;
  private lines: Line[] = [];
  private readonly observer = new ResizeObserver(() => this.resize());
  private readonly scheme = matchMedia("(prefers-color-scheme: dark)");

  constructor(spec: PlotSpec) {
    this.spec = spec;
    const title = make("h3", "", spec.title);
    this.element = make("figure", "plot", make("figcaption", "", title, this.legend), this.canvas);
    this.canvas.setAttribute("role", "img");
    this.observer.observe(this.canvas);
    this.scheme.addEventListener("change", this.renew);
  }

  draw(samples: Samples): void {
    const lines = typeof this.spec.lines === "function" ? this.spec.lines(samples) : this.spec.lines;
    const isOther = lines.length !== this.lines.length || lines.some((line, index) => line.label !== this.lines[index]?.label);
    this.lines = lines;
    const data: uPlot.AlignedData = [samples.times, ...lines.map((line) => blanks(line.read(samples)))];
    if (!this.plot || isOther) this.build(data);
    else this.plot.setData(data);
    this.describe(data);
  }

  close(): void {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.renew);
    this.plot?.destroy();
  }

  private renew = (): void => {
    if (this.plot) this.build(this.plot.data);
  };

  private resize(): void {
    this.plot?.setSize({ width: this.canvas.clientWidth, height: HEIGHT });
  }

  private build(data: uPlot.AlignedData): void {
    this.plot?.destroy();
    this.element.classList.toggle("many", this.lines.length > 3);
    const [ink, grid] = [colour("faint"), colour("grid")];
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    const least = this.spec.least ?? 0;
    this.plot = new uPlot(
      {
        width: this.canvas.clientWidth || 320,
        height: HEIGHT,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: { sync: { key: "hour" }, drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: { range: (_, first, last) => [Math.max(last - HOUR_S, Math.min(first, last - LEAST_S)), last] },
          y: { range: (_, __, most) => [0, Math.max(least, Number.isFinite(most) ? most * 1.08 : 0) || 1] },
        },
        axes: [
          { ...axis, size: 24, space: 42, values: (_, times) => times.map(clock) },
          {
            ...axis,
            size: 68,
            ...(this.spec.isBinary && { incrs: POWERS }),
            values: (_, values) => values.map((value) => (value === 0 ? "0" : brief(this.spec.format(value)))),
          },
        ],
        series: [
          {},
          ...this.lines.map((line, index) => ({
            label: line.label,
            stroke: colour(`series-${index + 1}`),
            width: 1.5,
            points: { show: false },
            ...(this.lines.length === 1 && { fill: colour("series-fill") }),
          })),
        ],
        hooks: { setCursor: [(plot) => this.describe(plot.data, plot.cursor.idx ?? undefined)] },
      },
      data,
      this.canvas,
    );
  }

  /** The values at the cursor, or else the last ones. */
  private describe(data: uPlot.AlignedData, at = data[0].length - 1): void {
    const texts = this.lines.map((line, index) => {
      const value = data[index + 1]?.[at] ?? NaN;
      return [line.label, this.spec.format(value)] as const;
    });
    const entries = texts.map(([label, value], index) => {
      const entry = make("span", `key key-${index + 1}`, ...(label ? [`${label} `] : []), make("b", "", value));
      return entry;
    });
    this.legend.replaceChildren(...entries);
    this.canvas.setAttribute("aria-label", `${this.spec.title}: ${texts.map((text) => text.join(" ")).join(", ")}`);
  }
}

/** What is not known has no point. */
function blanks(values: number[]): (number | null)[] {
  return values.map((value) => (Number.isFinite(value) ? value : null));
}

/** Between the lines of a plot of bytes. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** Without zeros at the end that say nothing. */
function brief(text: string): string {
  return text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

function clock(seconds: number): string {
  const at = new Date(seconds * 1000);
  return [at.getHours(), at.getMinutes()].map((part) => String(part).padStart(2, "0")).join(":");
}
