// A second reading of the protocol, in another language: recomputes docs/protocol-vectors.json from the secrets in it.
// usage: node protocol_vectors.mjs FILE; prints how many values agreed, or fails at the first that does not.
import { readFileSync } from "node:fs";
import {
  createCipheriv, createDecipheriv, createHash, createHmac, createPrivateKey, createPublicKey, diffieHellman, hkdfSync,
  sign, verify,
} from "node:crypto";

const vectors = JSON.parse(readFileSync(process.argv[2], "utf8"));
const PRIME = 2n ** 256n + 297n;
let agreed = 0;

const bytes = (hex) => Buffer.from(hex, "hex");
const join = (...parts) => Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
const u32 = (value) => { const made = Buffer.alloc(4); made.writeUInt32LE(value); return made; };
const sha = (...parts) => createHash("sha256").update(join(...parts)).digest();
const tag = (key, ...parts) => createHmac("sha256", key).update(join(...parts)).digest().subarray(0, 16);
const hkdf = (secret, salt, info, size) => Buffer.from(hkdfSync("sha256", secret, salt, info, size));
const both = (a, b) => join(u32(Math.min(a, b)), u32(Math.max(a, b)));

function same(found, expected, what) {
  if (!Buffer.from(found).equals(Buffer.from(expected))) throw new Error(`${what} differs`);
  agreed += 1;
}

const keys = {
  secret: (raw, kind) => createPrivateKey({
    key: join(bytes(kind === "x25519" ? "302e020100300506032b656e04220420" : "302e020100300506032b657004220420"), raw),
    format: "der", type: "pkcs8",
  }),
  public: (raw, kind) => createPublicKey({
    key: join(bytes(kind === "x25519" ? "302a300506032b656e032100" : "302a300506032b6570032100"), raw),
    format: "der", type: "spki",
  }),
};
const rawPublic = (key) => createPublicKey(key).export({ format: "der", type: "spki" }).subarray(12);
const agree = (mine, theirs) =>
  diffieHellman({ privateKey: keys.secret(mine, "x25519"), publicKey: keys.public(theirs, "x25519") });
const stream = (key, size) => createCipheriv("aes-256-ctr", key, Buffer.alloc(16)).update(Buffer.alloc(size));

// numbers of a vector stand in three parts, of 64, 32 and 16 bits; each is added modulo its own power of two
function add(into, other, sizes, sign_) {
  let at = 0;
  for (const [index, width] of [8, 4, 2].entries()) {
    const modulus = 2n ** BigInt(8 * width);
    for (let n = 0; n < sizes[index]; n += 1, at += width) {
      const read = (from) => BigInt("0x" + Buffer.from(from.subarray(at, at + width)).reverse().toString("hex"));
      const sum = (((read(into) + sign_ * read(other)) % modulus) + modulus) % modulus;
      Buffer.from(sum.toString(16).padStart(2 * width, "0"), "hex").reverse().copy(into, at);
    }
  }
}

const number = (raw) => BigInt("0x" + Buffer.from(raw).reverse().toString("hex"));
const power = (base, exponent) => {
  let result = 1n;
  for (base %= PRIME; exponent; exponent >>= 1n, base = (base * base) % PRIME) if (exponent & 1n) result = (result * base) % PRIME;
  return result;
};
function joinShares(shares) {
  let secret = 0n;
  for (const [place, share] of shares) {
    let top = 1n, bottom = 1n;
    for (const [other] of shares) if (other !== place) {
      top = (top * BigInt(other)) % PRIME;
      bottom = (bottom * ((BigInt(other - place) + PRIME) % PRIME)) % PRIME;
    }
    secret = (secret + share * top % PRIME * power(bottom, PRIME - 2n)) % PRIME;
  }
  return secret;
}
function shareOf(secret, key, place, threshold) {
  const drawn = stream(key, 48 * (threshold - 1));
  let value = 0n;
  for (let at = 0; at < drawn.length; at += 48) value = ((value + (number(drawn.subarray(at, at + 48)) % PRIME)) * BigInt(place)) % PRIME;
  return (value + number(secret)) % PRIME;
}
const write33 = (value) => Buffer.from(value.toString(16).padStart(66, "0"), "hex").reverse();

// --- Shamir ---------------------------------------------------------------------------------------------------------
const { shamir } = vectors;
for (const [place, share] of Object.entries(shamir.shares))
  same(write33(shareOf(bytes(shamir.secret), bytes(shamir.key), Number(place), shamir.threshold)), bytes(share), "a share");
const some = Object.entries(shamir.shares).slice(1).map(([place, share]) => [Number(place), number(bytes(share))]);
same(write33(joinShares(some)), write33(number(bytes(shamir.secret))), "the secret of three shares");

// --- a sum ----------------------------------------------------------------------------------------------------------
const run = vectors.sum, context = bytes(run.context), people = run.participants, sent = run.messages;
const size = bytes(run.total).length, n = run.n_participants;
const invitation = bytes(sent.invitation);
same(invitation.subarray(2, 34), context, "the context in the invitation");
let end = invitation.length - 4; // an empty block: no draw
const cohort = join(...people.map((one) => bytes(one.public)));
same(invitation.subarray(end - cohort.length, end), cohort, "the cohort");
const terms = invitation.subarray(34, end - cohort.length - 4);
same(sha("tacit secure sum", Buffer.from([1]), terms, sha("cohort", cohort)), context, "the context");
const bitmap = (members) => {
  const made = Buffer.alloc(Math.ceil(n / 8));
  for (const member of members) made[member >> 3] |= 1 << (member & 7);
  return made;
};

const seal = {}; // seal[i][j]: keys of i's box for j, and of codes
for (const [i, one] of people.entries()) {
  same(rawPublic(keys.secret(bytes(one.identity), "ed25519")), bytes(one.public), "an identity");
  same(rawPublic(keys.secret(bytes(one.mask_secret), "x25519")), bytes(one.mask_public), "a mask key");
  same(rawPublic(keys.secret(bytes(one.seal_secret), "x25519")), bytes(one.seal_public), "a sealing key");
  const commitment = sha("seed", context, u32(i), bytes(one.seed));
  const signed = join(Buffer.from([1, 2]), context, u32(i), bytes(one.mask_public), bytes(one.seal_public), commitment);
  const signature = sign(null, signed, keys.secret(bytes(one.identity), "ed25519"));
  same(join(signed, signature), bytes(sent.adverts[i]), "an advert");
  if (!verify(null, signed, keys.public(bytes(one.public), "ed25519"), signature)) throw new Error("a signature");
  const serverPublic = rawPublic(keys.secret(bytes(run.server_secret), "x25519"));
  const link = hkdf(agree(bytes(one.seal_secret), serverPublic), context, join("link", u32(i)), 32);
  same(link, bytes(one.link_key), "the key of a line");
  same(hkdf(bytes(one.seed), context, join("own", u32(i)), 32), bytes(one.own_mask_key), "an own mask");
  seal[i] = {};
  for (const [j, other] of people.entries()) if (i !== j) {
    const pair = hkdf(agree(bytes(one.mask_secret), bytes(other.mask_public)), context, join("mask", both(i, j)), 32);
    same(pair, bytes(one.pair_mask_keys[j]), "a pair mask");
    const cut = hkdf(agree(bytes(one.seal_secret), bytes(other.seal_public)), context, join("seal", both(i, j)), 96);
    seal[i][j] = { box: i < j ? cut.subarray(0, 32) : cut.subarray(32, 64), codes: cut.subarray(64) };
  }
}

const shareHash = (dealer, holder, own, share) =>
  sha("share", context, u32(dealer), u32(holder), Buffer.from([own ? 1 : 0]), share).subarray(0, 16);
const held = {}; // held[i][j]: both shares of i, in j's hands
for (const [i, one] of people.entries()) {
  const entries = [u32(n - 1)];
  held[i] = {};
  for (const [j] of people.entries()) if (i !== j) {
    const both_ = [[bytes(one.seed), true], [bytes(one.mask_secret), false]].map(([secret, own]) => {
      const info = join("polynomial", u32(i), u32(0), Buffer.from([own ? 1 : 0]));
      return write33(shareOf(secret, hkdf(bytes(one.seal_secret), context, info, 32), j + 1, run.threshold));
    });
    held[i][j] = both_;
    const cipher = createCipheriv("aes-256-gcm", seal[i][j].box, Buffer.alloc(12)).setAAD(context);
    const box = join(cipher.update(join(...both_)), cipher.final(), cipher.getAuthTag());
    entries.push(u32(j), shareHash(i, j, true, both_[0]), shareHash(i, j, false, both_[1]), box);
    const open = createDecipheriv("aes-256-gcm", seal[i][j].box, Buffer.alloc(12)).setAAD(context).setAuthTag(box.subarray(-16));
    same(join(open.update(box.subarray(0, -16)), open.final()), join(...both_), "a box");
  }
  const message = join(Buffer.from([1, 4]), context, u32(i), ...entries);
  same(join(message, tag(bytes(one.link_key), message)), bytes(sent.shares[i]), "shares");
}

const there = people.map((_, i) => i).filter((i) => i !== run.lost), total = Buffer.alloc(size);
for (const i of there) {
  const one = people[i], masked = Buffer.from(bytes(one.input));
  add(masked, stream(bytes(one.own_mask_key), size), run.sizes, 1n);
  for (const j of Object.keys(one.pair_mask_keys).map(Number))
    add(masked, stream(bytes(one.pair_mask_keys[j]), size), run.sizes, j > i ? 1n : -1n);
  const message = join(Buffer.from([1, 6]), context, u32(i), masked);
  same(join(message, tag(bytes(one.link_key), message)), bytes(sent.vectors[i]), "a masked vector");
  add(total, masked, run.sizes, 1n);
}

const listed = sha("survivors", context, bitmap(there));
for (const i of there) {
  const near = there.filter((j) => j !== i);
  const codes = near.flatMap((j) => [u32(j), tag(seal[i][j].codes, u32(i), u32(j), listed)]);
  const message = join(Buffer.from([1, 8]), context, u32(i), u32(near.length), ...codes);
  same(join(message, tag(bytes(people[i].link_key), message)), bytes(sent.confirmations[i]), "a confirmation");
  const pieces = people.map((_, j) => j).filter((j) => j !== i).flatMap((j) => {
    const own = j !== run.lost;
    return [u32(j), Buffer.from([own ? 1 : 0]), held[j][i][own ? 0 : 1]];
  });
  const last = join(Buffer.from([1, 10]), context, u32(i), bytes(people[i].seed), u32(n - 1), ...pieces);
  same(join(last, tag(bytes(people[i].link_key), last)), bytes(sent.unmaskings[i]), "an unmasking");
}

for (const i of there) add(total, stream(bytes(people[i].own_mask_key), size), run.sizes, -1n);
const shares = there.slice(0, run.threshold).map((j) => [j + 1, number(held[run.lost][j][1])]);
const rebuilt = write33(joinShares(shares)).subarray(0, 32);
same(rebuilt, bytes(people[run.lost].mask_secret), "the mask key of who was lost");
for (const j of there) {
  const info = join("mask", both(run.lost, j));
  const key = hkdf(agree(rebuilt, bytes(people[j].mask_public)), context, info, 32);
  add(total, stream(key, size), run.sizes, run.lost > j ? -1n : 1n);
}
same(total, bytes(run.total), "the sum");
const plain = Buffer.alloc(size);
for (const i of there) add(plain, bytes(people[i].input), run.sizes, 1n);
same(plain, bytes(run.total), "the sum of what was put in");

// --- the directory --------------------------------------------------------------------------------------------------
const { directory } = vectors;
const leaves = directory.entries.map((entry) => sha(Buffer.from([0]), bytes(entry)));
const root = (hashes) => {
  if (hashes.length === 1) return hashes[0];
  let left = 1;
  while (2 * left < hashes.length) left *= 2;
  return sha(Buffer.from([1]), root(hashes.slice(0, left)), root(hashes.slice(left)));
};
for (const [count, expected] of Object.entries(directory.roots)) same(root(leaves.slice(0, count)), bytes(expected), "a root");
const checkpoint = bytes(directory.checkpoint);
if (!verify(null, bytes(directory.statement), keys.public(bytes(directory.witness), "ed25519"), checkpoint.subarray(-64)))
  throw new Error("the witness's signature");
agreed += 1;

// --- heads of messages ----------------------------------------------------------------------------------------------
const { wire } = vectors, kinds = { welcome: 1, request: 2, model: 3, update: 4, "secure-request": 5, "secure-reply": 6 };
for (const [name, content] of Object.entries(wire.messages))
  same(join("TCIT", Buffer.from([1, kinds[name]]), bytes(wire.digest), u32(wire.round), u32(3), bytes(wire.body)), bytes(content), name);
console.log(`${agreed} values agree`);
