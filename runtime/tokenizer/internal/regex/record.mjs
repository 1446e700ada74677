// Writes testdata/matches.json: what Oniguruma, inside the real library, matches. See ../../testdata/library.mjs for
// how to run it; an argument sets how many random texts are tried per pattern (12) and another names the file.
import { make } from '../../testdata/library.mjs'
import { mkdirSync, writeFileSync } from 'fs'

const patterns = [
  // Of published tokenizers: GPT-2, cl100k, Qwen 2, Qwen 3.5, o200k, DeepSeek, Kimi, Falcon.
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+',
  '[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+',
  '[一-龥\u0800-ヿ가-퟿]+', '[0-9][0-9][0-9]', '\\p{N}{1,3}', '\\d{1,3}(?=(?:\\d{3})*\\b)?'.replace('(?=(?:\\d{3})*\\b)?', ''), '\\d+|\\D+',
  // One construct each.
  'a', 'ab|a', 'a|ab', 'a*', 'a*?b', 'a+?', 'a??b', 'a{2}', 'a{2,}', 'a{,2}b', 'a{1,2}?', '(a|b)+c', '(?:ab)*a', '(?:a|ab)(?:c|bcd)', 'x*',
  '\\w+', '\\W+', '\\s', '\\S+', '\\h+', '\\H', '[\\w-]+', '[^\\w\\s]', '[a-]', '[-a]', '[^-a]', '[a\\-z]', '[\\d\\s]+', '[[a-c][x-z]]+', '[^[a-c]b]', '[a-z&&[^b-y]]+',
  '[a-z&&[^b]&&\\w]', '\\p{^L}+', '\\P{L}+', '\\p{Lu}', '[\\p{L}--]'.replace('--', '-'), '\\p{P}+', '\\p{S}', '\\p{Z}', '\\p{C}', '\\p{Cn}', '\\p{Hiragana}|\\p{Katakana}|\\p{Hangul}',
  '.+', '^', '^a', 'a$', '$', '^.*$', '\\Aa', 'a\\z', 'a\\Z', '\\n\\z', '\\ba', 'a\\b', '\\Ba', '\\b', '(?=a)', 'b(?=a)', 'b(?!a)', '(?<=a)b', '(?<!a)b', '(?<=ab|ba)b', '\\s+(?!\\S)', '(?<=\\s)\\S+',
  '(?i:ab)', "(?i:'s)", '(?i:k)', '(?i)a(?-i:b)', '(?i:a|b)c', '(?i:\\n)', '\\x41', '\\x{e9}', '\\u00e9', '\\t|\\r\\n|\\f|\\v|\\a|\\e', '\\.', '\\/', '\\-', '\\#', ' ', '', 'é', '(a)(b)?', '()', '(|a)b', '(?:|a)',
  '\\r?\\n', '\\r\\n|\\n', '[\\r\\n]+', '[\\x20-\\x7e]+', '[^\\x00-\\x7f]+', '▁', '\\u2581+',
]
const pool = [...'aaabbbcxyzABK sSk\'\'1239٣½²  \t\n\r\f.,-_!$+\u0000\u001b', '\r\n', 'é', 'e\u0301', '\u017f', '\u212a', 'ß', 'ﬆ', 'ǅ', 'ʰ', '漢', 'ひ', 'カ', '한', '\u00a0', '\u2028', '\u0085', '\u3000',
  '😀', '👩\u200d👩', '\u1c89', '\u0897', '\u0378', '▁', "'ll", "'RE", "'ſ", 'abc', 'the ', '  ', '\u200d', '\u0300', 'İ', 'ŉ', '\u{1e6e3}', '€']
let seed = 7
const rnd = (n) => { seed = (Math.imul(seed, 1103515245) + 12345) >>> 0; return (seed >>> 8) % n }
const texts = ['a', 'b', 'ab', 'aab', 'aaab', 'abcd', 'a\nb', 'a\n', '\n', '\na\n\nb', 'cab acb', "it's I'LL we'Re 'ſ", '  x  \n  y', '1234567 89', 'ǅabC Ab', 'K\u212ak sſS']
const n = Number(process.argv[2] ?? 12)
const cases = patterns.map((pattern) => {
  const split = make({ pre_tokenizer: { type: 'Split', pattern: { Regex: pattern }, behavior: 'Removed', invert: true } }).getPreTokenizer()
  const all = [...texts, ...Array.from({ length: n }, () => Array.from({ length: 1 + rnd(14) }, () => pool[rnd(pool.length)]).join(''))]
  // The library calls an empty text no match; empty matches are dropped with the empty pieces.
  return { pattern, texts: all, matches: all.map((t) => split.preTokenizeString(t).map((p) => p[0]).filter((p) => p !== '')) }
})
mkdirSync(new URL('testdata/', import.meta.url), { recursive: true })
writeFileSync(process.argv[3] ?? new URL('testdata/matches.json', import.meta.url), '[\n' + cases.map((c) => JSON.stringify(c)).join(',\n') + '\n]\n')
