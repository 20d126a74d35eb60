// Recommend from an exported model: plain JavaScript, no packages. In Node: node scorer.mjs FOLDER 10 ITEM [ITEM ...]
// In a page: new Scorer(about, items, buffer) with what fetch() gives for export.json, items.json and weights.f32.

export class Scorer {
  // The score of item j for a history x is bias[j] + the sum of W[i][j] over i in x.
  constructor(about, items, buffer) {
    if (about.format !== 1) throw new Error(`format ${about.format} is not known, this scorer reads format 1`);
    this.n = about.n_items;
    this.items = items;
    this.numbers = new Float32Array(buffer);
    this.place = new Map(items.map((item, at) => [String(item.id), at]));
  }

  known(history) {
    const places = history.map((one) => this.place.get(String(one))).filter((at) => at !== undefined);
    return [...new Set(places)].sort((a, b) => a - b);
  }

  score(history) {
    const scores = Float64Array.from(this.numbers.subarray(0, this.n));
    for (const at of this.known(history)) {
      const start = (at + 1) * this.n;
      for (let j = 0; j < this.n; j++) scores[j] += this.numbers[start + j];
    }
    return scores;
  }

  recommend(history, k = 10) {
    const scores = this.score(history);
    const mine = new Set(this.known(history));
    const order = [...scores.keys()].filter((at) => !mine.has(at));
    order.sort((a, b) => scores[b] - scores[a] || a - b);
    return order.slice(0, k).map((at) => ({ ...this.items[at], score: scores[at] }));
  }
}

if (typeof process !== "undefined" && process.argv[1] && import.meta.url.endsWith("scorer.mjs") && process.argv.length > 3) {
  const { readFileSync } = await import("node:fs");
  const [folder, k, ...history] = process.argv.slice(2);
  const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
  const bytes = readFileSync(`${folder}/weights.f32`);
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  console.log(JSON.stringify(new Scorer(read("export.json"), read("items.json"), buffer).recommend(history, Number(k))));
}
