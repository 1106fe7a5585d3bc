// Bundles src/ into dist/, which is checked in so that building the server needs Rust alone.
// `node build.mjs [OUTDIR]`; ./test builds into another folder and compares.
import { copyFile, mkdir } from "node:fs/promises";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
await mkdir(out, { recursive: true });
const settings = { bundle: true, format: "esm", target: "es2022", charset: "utf8" };
await build({ ...settings, entryPoints: ["src/app.ts"], outfile: `${out}/app.js`, external: ["./hls.js"] });
// Apart and small: it is loaded by who plays HLS.
const banner = { js: "/*! hls.js, https://github.com/video-dev/hls.js, Apache License 2.0 */" };
await build({ ...settings, entryPoints: ["src/hls.ts"], outfile: `${out}/hls.js`, minify: true, banner });
for (const file of ["index.html", "style.css"]) await copyFile(file, `${out}/${file}`);
