// Bundles src/ into dist/, which is checked in so that building the server needs Rust alone.
// `node build.mjs [OUTDIR]`; ./test builds into another folder and compares.
import { copyFile, mkdir } from "node:fs/promises";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
await mkdir(out, { recursive: true });
await build({
  entryPoints: ["src/app.ts"],
  outfile: `${out}/app.js`,
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
});
for (const file of ["index.html", "style.css"]) await copyFile(file, `${out}/${file}`);
