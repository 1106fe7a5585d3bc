// Places tiles of one shape so that they are as large as they can be together.

/** As in the style sheet. */
const GAP = 8;
/** Who would be smaller is reached by scrolling. */
const WIDTH_MIN = 150;
/** A screen is wide. A camera's picture may be cut to a square, which is larger on a phone that is held upright. */
const WIDE = 16 / 9;
const SQUARE = 1;

/** The width that `count` tiles of a shape may have in a box of this size. */
export function tileWidth(width: number, height: number, count: number, ratio: number): number {
  let best = 0;
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns);
    const across = (width - GAP * (columns - 1)) / columns;
    const down = ((height - GAP * (rows - 1)) / rows) * ratio;
    best = Math.max(best, Math.min(across, down));
  }
  return Math.floor(Math.min(width, Math.max(best, WIDTH_MIN)));
}

/** Keeps the children of `box` so, whenever its size or their number changes. */
export function keepPlaced(box: HTMLElement, mayBeSquare: boolean): void {
  const place = () => {
    const { clientWidth, clientHeight, children } = box;
    if (children.length === 0) return;
    const ratio = mayBeSquare && clientHeight > clientWidth && clientWidth > 2 * WIDTH_MIN ? SQUARE : WIDE;
    box.style.setProperty("--ratio", String(ratio));
    box.style.setProperty("--tile", `${tileWidth(clientWidth, clientHeight, children.length, ratio)}px`);
  };
  new ResizeObserver(place).observe(box);
  new MutationObserver(place).observe(box, { childList: true });
}
