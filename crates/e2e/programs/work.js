// Work for the end-to-end test: worker threads (each with a heap and an event loop of its own),
// buffers outside the JavaScript heap, native compression and hashing in libuv's pool.
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const crypto = require("crypto");
const zlib = require("zlib");
const { promisify } = require("util");
const { execFileSync } = require("child_process");

function work(seed) {
  let state = seed;
  const next = () => (state = (state * 48271) % 2147483647);
  const map = new Map();
  const buffers = [];
  for (let i = 0; i < 30000; i++) {
    const key = (next() % 7000).toString(36);
    map.set(key, (map.get(key) || "") + i);
    if (i % 10 === 0) buffers.push(Buffer.alloc(next() % 9000, key || "x"));
    if (i % 30 === 0) buffers.splice(next() % buffers.length, 1);
  }
  const text = JSON.stringify([...map].sort());
  JSON.parse(text);
  const hash = crypto.createHash("sha256").update(text);
  for (const buffer of buffers) hash.update(buffer);
  return `${seed} ${map.size} ${buffers.length} ${hash.digest("hex").slice(0, 16)}`;
}

if (!isMainThread) {
  parentPort.postMessage(work(workerData));
} else {
  const inWorker = (seed) =>
    new Promise((resolve, reject) => {
      const worker = new Worker(__filename, { workerData: seed });
      worker.once("message", resolve);
      worker.once("error", reject);
    });
  (async () => {
    console.log("main", work(7));
    for (let round = 0; round < 2; round++) {
      const seeds = [1, 2, 3, 4].map((n) => n + round * 10 + 100);
      console.log("workers", await Promise.all(seeds.map(inWorker)));
    }
    const deflate = promisify(zlib.deflate), inflate = promisify(zlib.inflate);
    const blocks = Array.from({ length: 24 }, (_, n) => Buffer.alloc(200000 + n * 1000, "mallard " + n));
    const packed = await Promise.all(blocks.map((block) => deflate(block)));
    const back = await Promise.all(packed.map((block) => inflate(block)));
    console.log("zlib", packed.map((b) => b.length).join(), back.every((b, n) => b.equals(blocks[n])));
    const keys = await Promise.all([1, 2, 3, 4].map((n) => promisify(crypto.pbkdf2)("secret", "salt" + n, 5000, 32, "sha256")));
    console.log("pbkdf2", keys.map((key) => key.toString("hex").slice(0, 8)).join());
    console.log("child", execFileSync(process.execPath, ["-p", "[...Array(1e5).keys()].map(String).join('').length"]).toString().trim());
  })();
}
