// Writes testdata/forms.json: texts of marks, jamo and composites in the library's four normalization forms and in
// lower case. See ../../testdata/library.mjs for how to run it; an argument sets how many texts (100).
import { T } from '../../testdata/library.mjs'
import { readFileSync, writeFileSync, mkdirSync } from 'fs'

const sections = {}
for (const part of readFileSync(new URL('ucd.txt', import.meta.url), 'utf8').split('\n[').slice(1)) {
  const [name, ...lines] = part.split('\n')
  sections[name.replace(']', '')] = lines.filter((l) => l && !l.startsWith('#')).map((l) => l.split(' '))
}
const first = (name) => sections[name].map(([c]) => parseInt(c, 16))
const marks = sections.combining.flatMap(([r]) => { const [lo, hi = lo] = r.split('-').map((x) => parseInt(x, 16)); return Array.from({ length: hi - lo + 1 }, (_, i) => lo + i) })
const canonical = first('canonical'), compatibility = first('compatibility'), lower = first('lower')
const inside = sections.canonical.flatMap(([, ...d]) => d.filter((x) => x !== '+').map((x) => parseInt(x, 16)))
const newer = [0x8d3, 0x897, 0x1acf, 0x11938, 0x11935, 0x11930, 0x113c9, 0x113b8, 0x1e6e3, 0x32ff, 0x10ec5]
let seed = 1
const rnd = (n) => { seed = (Math.imul(seed, 1103515245) + 12345) >>> 0; return (seed >>> 8) % n }
const pick = (a) => a[rnd(a.length)]
const makers = [
  () => 97 + rnd(26), () => pick(marks), () => pick(marks), () => pick(inside), () => pick(inside), () => pick(canonical), () => pick(compatibility),
  () => 0x1100 + rnd(256), () => 0xac00 + rnd(11172), () => 0xac00 + 28 * rnd(399), () => pick(newer), () => pick(lower), () => rnd(0xd800), () => 0x10000 + rnd(0x10000),
]
const n = Number(process.argv[2] ?? 100)
const forms = { nfc: T.nfcNormalizer(), nfd: T.nfdNormalizer(), nfkc: T.nfkcNormalizer(), nfkd: T.nfkdNormalizer(), lower: T.lowercase() }
const texts = ['', 'plain', 'a' + '\u0301\u0323\u05b0'.repeat(60), '\u1100\u1161\u11a7', '\u1100\u1161\u11a8\u11a8', '\u0344a\u0344', '\u2126\u212b\u212a', '\u0958\u0915\u093c', '\u{1d15e}\u{1d15f}\u{1d157}\u{1d165}']
while (texts.length < n) {
  const kinds = Array.from({ length: 1 + rnd(3) }, () => pick(makers))
  texts.push(String.fromCodePoint(...Array.from({ length: 1 + rnd(rnd(8) === 0 ? 50 : 9) }, () => pick(kinds)())))
}
const out = texts.map((text) => ({ text, ...Object.fromEntries(Object.entries(forms).map(([k, f]) => [k, f.normalizeString(text)])) }))
mkdirSync(new URL('testdata/', import.meta.url), { recursive: true })
writeFileSync(process.argv[3] ?? new URL('testdata/forms.json', import.meta.url), '[\n' + out.map((o) => JSON.stringify(o)).join(',\n') + '\n]\n')
