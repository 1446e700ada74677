// Writes ucd.txt: what the real library believes about every code point. See ../../testdata/library.mjs for how to run it.
import { T, make, scalars } from '../../testdata/library.mjs'
import { writeFileSync } from 'fs'

const chr = String.fromCodePoint
const hex = (c) => c.toString(16).toUpperCase()
const lines = [
  '# What tokenizers 0.23.2 believes about every code point. Written by record.mjs; do not edit.',
]

const range = ([lo, hi]) => (lo === hi ? hex(lo) : `${hex(lo)}-${hex(hi)}`)
function ranges(set) {
  const out = []
  for (const c of set) {
    const last = out.at(-1)
    if (last && (last[1] + 1 === c || (last[1] === 0xd7ff && c === 0xe000))) last[1] = c
    else out.push([c, c])
  }
  return out
}
function section(name, note, body) {
  lines.push('', `# ${note}`, `[${name}]`, ...body)
}

// Oniguruma's classes: what a one-character regex keeps of a text of all characters.
const all = scalars.map((c) => chr(c)).join('')
function matched(regex) {
  const split = { type: 'Split', pattern: { Regex: regex }, behavior: 'Removed', invert: true }
  return make({ pre_tokenizer: split }).getPreTokenizer().preTokenizeString(all).map((p) => p[0].codePointAt(0))
}
const categories = ['Lu', 'Ll', 'Lt', 'Lm', 'Lo', 'Mn', 'Mc', 'Me', 'Nd', 'Nl', 'No', 'Pc', 'Pd', 'Ps', 'Pe', 'Pi', 'Pf', 'Po',
  'Sm', 'Sc', 'Sk', 'So', 'Zs', 'Zl', 'Zp', 'Cc', 'Cf', 'Co']
const runs = categories.flatMap((name) => ranges(matched(`\\p{${name}}`)).map((r) => [...r, name])).sort((a, b) => a[0] - b[0])
section('category', 'Oniguruma: \\p{Lu} and so on; what is missing is Cn.', runs.map((r) => `${range(r)} ${r[2]}`))
section('space', 'Oniguruma: \\s. Rust: char::is_whitespace, regex \\s. All agree.', ranges(matched('\\s')).map(range))
section('word', 'Oniguruma: \\w', ranges(matched('\\w')).map(range))
for (const script of ['Han', 'Hiragana', 'Katakana', 'Hangul'])
  section(script, `Oniguruma: \\p{${script}}`, ranges(matched(`\\p{${script}}`)).map(range))

// Rust's classes: into how many pieces "a", the character, "a" is cut.
const cut = (pretokenizer, n) => ranges(scalars.filter((c) => pretokenizer.preTokenizeString(`a${chr(c)}a`).length === n)).map(range)
section('regexword', 'The regex crate: \\w', cut(T.whitespacePreTokenizer(), 1))
section('numeric', 'Rust: char::is_numeric', cut(T.digitsPreTokenizer(true), 3))
section('punctuation', 'The unicode_categories crate: is_punctuation, and ASCII', cut(T.punctuationPreTokenizer('isolated'), 3))
const lower = T.lowercase()
section('lower', 'Rust: char::to_lowercase', scalars.flatMap((c) => {
  const l = lower.normalizeString(chr(c))
  return l === chr(c) ? [] : [`${hex(c)} ${[...l].map((x) => hex(x.codePointAt(0))).join(' ')}`]
}))

// The normalization crate. Hangul syllables are left out: they are computed.
const nfc = T.nfcNormalizer(), nfd = T.nfdNormalizer(), nfkd = T.nfkdNormalizer()
const syllable = (c) => c >= 0xac00 && c <= 0xd7a3
const mapping = (form, skip) => scalars.flatMap((c) => {
  const d = form.normalizeString(chr(c))
  if (d === chr(c) || syllable(c) || d === skip?.normalizeString(chr(c))) return []
  return [`${hex(c)} ${[...d].map((x) => hex(x.codePointAt(0))).join(' ')}${!skip && nfc.normalizeString(d) === chr(c) ? ' +' : ''}`]
})
section('canonical', 'Full canonical decompositions; + marks those that composition makes again.', mapping(nfd))
section('compatibility', 'Full compatibility decompositions that differ from the canonical ones.', mapping(nfkd, nfd))

// Combining classes are seen only in which of two marks is put first, so their order stands for them: 1, 2, ...
const swaps = (a, b) => nfd.normalizeString(chr(a) + chr(b)) !== chr(a) + chr(b)
const marks = scalars.filter((c) => nfd.normalizeString(chr(c)) === chr(c) && (swaps(0x345, c) || swaps(c, 0x334)))
const classes = []
for (const c of [0x334, 0x345, ...marks.filter((c) => c !== 0x334 && c !== 0x345)]) {
  let at = 0
  while (at < classes.length && swaps(c, classes[at][0])) at++
  if (at < classes.length && !swaps(classes[at][0], c)) classes[at].push(c)
  else classes.splice(at, 0, [c])
}
section('combining', 'Canonical combining classes, by rank.',
  classes.flatMap((set, i) => ranges(set.sort((a, b) => a - b)).map((r) => [...r, i + 1])).sort((a, b) => a[0] - b[0]).map((r) => `${range(r)} ${r[2]}`))

writeFileSync(new URL('ucd.txt', import.meta.url), lines.join('\n') + '\n')
