// Writes components.json: what single components of the real library do. See library.mjs for how to run it. Arguments,
// both optional: how many generated texts each is tried on (10), and the file to write.
import { make } from './library.mjs'
import { texts } from './texts.mjs'
import { writeFileSync } from 'fs'

const [n = '10', file = new URL('components.json', import.meta.url).pathname] = process.argv.slice(2)
const short = ['a b', ' a  b ', '  ', 'the-final--countdown', '-a-', '--', 'Hello, world!', 'x1y22z333', 'ab\ncd \r\n', 'it’s "ok"', '▁a▁▁b', 'a\u0301e\u0301 É', '你好 世界', 'a.b', 'ǅİ', '\u00a0x\u3000', '½²٣', 'A\u200db']
const tried = [...short, ...texts(400 + Number(n), 11, ['-', '▁', 'a', ' ']).slice(-Number(n)).map((t) => [...t].slice(0, 14).join(''))]
const split = (pattern, behavior, invert = false) => ({ type: 'Split', pattern, behavior, invert })
const behaviors = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous']

const normalizers = [
  { type: 'NFC' }, { type: 'NFD' }, { type: 'NFKC' }, { type: 'NFKD' }, { type: 'Lowercase' }, { type: 'ByteLevel' },
  { type: 'Prepend', prepend: '▁' }, { type: 'Prepend', prepend: '' },
  { type: 'Strip', strip_left: true, strip_right: true }, { type: 'Strip', strip_left: true, strip_right: false }, { type: 'Strip', strip_left: false, strip_right: true },
  { type: 'Replace', pattern: { String: ' ' }, content: '▁' }, { type: 'Replace', pattern: { String: '--' }, content: '' }, { type: 'Replace', pattern: { String: '.' }, content: 'DOT' },
  { type: 'Replace', pattern: { Regex: ' {2,}' }, content: '▁' }, { type: 'Replace', pattern: { Regex: '^' }, content: '▁' }, { type: 'Replace', pattern: { Regex: '$|\\s' }, content: '!' }, { type: 'Replace', pattern: { Regex: '\\d' }, content: '$0' },
  { type: 'Sequence', normalizers: [] },
  { type: 'Sequence', normalizers: [{ type: 'NFKD' }, { type: 'Lowercase' }, { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, { type: 'Replace', pattern: { String: ' ' }, content: '▁' }] }] },
].map((json) => { const c = make({ normalizer: json }).getNormalizer(); return { json, want: tried.map((t) => c.normalizeString(t)) } })

const preTokenizers = [
  { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }, { type: 'ByteLevel', add_prefix_space: true, trim_offsets: false }, { type: 'ByteLevel', add_prefix_space: true, trim_offsets: false, use_regex: false },
  ...behaviors.flatMap((b) => [split({ String: '-' }, b), split({ String: '-' }, b, true), split({ Regex: '\\s+|-' }, b), split({ Regex: '\\w+' }, b, true), split({ Regex: 'x*' }, b), split({ String: '▁' }, b)]),
  split({ String: '.' }, 'Isolated'), split({ String: '' }, 'Isolated'),
  { type: 'Digits', individual_digits: true }, { type: 'Digits', individual_digits: false }, { type: 'Whitespace' }, { type: 'WhitespaceSplit' }, { type: 'BertPreTokenizer' },
  { type: 'Punctuation' }, ...behaviors.map((behavior) => ({ type: 'Punctuation', behavior })), { type: 'CharDelimiterSplit', delimiter: '-' },
  ...['always', 'first', 'never'].flatMap((prepend_scheme) => [{ type: 'Metaspace', replacement: '▁', prepend_scheme, split: true }, { type: 'Metaspace', replacement: '▁', prepend_scheme, split: false }]),
  { type: 'Metaspace', replacement: '_', add_prefix_space: true }, { type: 'Metaspace', replacement: '▁', add_prefix_space: false, prepend_scheme: 'never' }, { type: 'Metaspace', replacement: '▁' },
  { type: 'Sequence', pretokenizers: [] },
  { type: 'Sequence', pretokenizers: [{ type: 'WhitespaceSplit' }, { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always' }] },
  { type: 'Sequence', pretokenizers: [{ type: 'Whitespace' }, { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: false }] },
  { type: 'Sequence', pretokenizers: [{ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }, { type: 'Digits', individual_digits: true }] },
  { type: 'Sequence', pretokenizers: [{ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false }, split({ String: 'Ġ' }, 'MergedWithNext'), { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false }] },
  { type: 'Sequence', pretokenizers: [{ type: 'Punctuation', behavior: 'Contiguous' }, { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }, { type: 'Digits', individual_digits: false }, split({ Regex: '[0-9][0-9][0-9]' }, 'Isolated')] },
].map((json) => { const c = make({ pre_tokenizer: json }).getPreTokenizer(); return { json, want: tried.map((t) => c.preTokenizeString(t).map((p) => p[0])) } })

const replace = (from, content) => ({ type: 'Replace', pattern: { String: from }, content })
const llama = [replace('▁', ' '), { type: 'ByteFallback' }, { type: 'Fuse' }]
const decoders = [
  null, { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true }, { type: 'ByteFallback' }, { type: 'Fuse' }, replace('▁', ' '), { type: 'Replace', pattern: { Regex: '▁+' }, content: ' ' },
  { type: 'Strip', content: ' ', start: 1, stop: 0 }, { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true }, { type: 'Metaspace', replacement: '▁', prepend_scheme: 'never' }, { type: 'BPEDecoder', suffix: '</w>' },
  { type: 'Sequence', decoders: llama }, { type: 'Sequence', decoders: [...llama, { type: 'Strip', content: ' ', start: 1, stop: 0 }] }, { type: 'Sequence', decoders: [...llama, { type: 'Strip', content: ' ', start: 2, stop: 1 }] },
  { type: 'Sequence', decoders: [...llama, replace('ab', 'X')] }, { type: 'Sequence', decoders: [{ type: 'Fuse' }, { type: 'ByteFallback' }] }, { type: 'Sequence', decoders: [{ type: 'ByteFallback' }, { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first' }] },
  { type: 'Sequence', decoders: [{ type: 'ByteLevel', add_prefix_space: true, trim_offsets: true }, replace(' ', '_'), { type: 'BPEDecoder', suffix: 'a' }] }, { type: 'Sequence', decoders: [] },
]
const tokens = ['▁', '▁▁', '▁a', 'a', 'b', 'ab', 'a▁b', ' ', '  a ', 'a</w>', '</w>', '<0x41>', '<0xE4>', '<0xBD>', '<0xA0>', '<0xF0>', '<0x+A>', '<0xg1>', '<0x4>', 'Ġ', 'Ġa', 'ä', '½', 'ł', 'ðŁ', 'ĺ', 'Ģ', '你', 'é', 'ÿ', '<bos>', '<eos>']
const vocab = Object.fromEntries(tokens.map((t, i) => [t, i]))
const special = (content, id, more = {}) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...more })
let state = 3
const rnd = (m) => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return (state >>> 8) % m }
const decoded = []
for (const json of decoders) {
  const sections = { decoder: json, model: { type: 'BPE', vocab, merges: [] }, added_tokens: [special('<bos>', vocab['<bos>']), special('<eos>', vocab['<eos>'])] }
  const t = make(sections)
  // The library panics on a token that Strip removes whole; a b in the middle keeps one from it.
  const keep = (ids) => (json?.decoders?.some((d) => d.stop > 0) ? [...ids, 4, ...ids] : ids)
  const ids = [[], [0], [7], ...Array.from({ length: 3 * Number(n) }, () => Array.from({ length: 1 + rnd(9) }, () => rnd(tokens.length + 1)))].map(keep)
  const want = []
  for (const i of ids) want.push([await t.decode(i, false), await t.decode(i, true)])
  decoded.push({ sections, ids, want })
}

// Whole tokenizers over a small vocabulary: added tokens, models, post-processors.
const letters = [...'abcdefghijklmnopqrstuvwxyzABC 0123456789.,-▁_\n']
const base = (extra = []) => Object.fromEntries([...letters, 'th', 'the', 'in', 'ing', 'an', 'and', ...extra].map((t, i) => [t, i]))
const merges = [['t', 'h'], ['th', 'e'], ['i', 'n'], ['in', 'g'], ['a', 'n'], ['an', 'd']]
const bpe = (more = {}, extra = []) => ({ type: 'BPE', vocab: base(extra), merges, ...more })
const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`)
const flags = { single_word: true, lstrip: true, rstrip: true, normalized: true }
const combos = Array.from({ length: 16 }, (_, i) => Object.fromEntries(Object.entries(flags).map(([k], j) => [k, !!(i >> j & 1)])))
const lower = { type: 'Lowercase' }
const wholes = [
  ...combos.map((c) => ({ model: bpe(), added_tokens: [special('<X>', 99, c), special('and', 100, { ...c, special: false })] })),
  ...combos.map((c) => ({ model: bpe(), normalizer: lower, added_tokens: [special('<X>', 99, c), special('AND', 100, { ...c, special: false }), special('A', 101, { lstrip: true, normalized: true })] })),
  { model: bpe(), added_tokens: [special(' ', 1), special('  ', 2), special('   ', 3), special('a ', 4, { rstrip: true }), special('\n', 5, { lstrip: true })] },
  { model: bpe(), added_tokens: [special('<', 1), special('<a', 2), special('<ab', 3), special('abc', 4), special('bc>', 5, { special: false })] },
  { model: bpe(), added_tokens: [special('a', 1), special('a', 1), special('a', 1, { special: false })], decoder: { type: 'Fuse' } },
  { model: bpe(), added_tokens: [special('É', 1, { normalized: true }), special('e\u0301', 2)], normalizer: { type: 'NFD' } },
  { model: bpe(), added_tokens: [special('a b', 1, { normalized: true })], normalizer: replace(' ', '▁') },
  { model: bpe(), added_tokens: [special('x', 1), special('y', 2, { normalized: true })], pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: true } },
  { model: bpe(), added_tokens: [special('x', 1)], normalizer: { type: 'Sequence', normalizers: [{ type: 'NFKC' }, lower] }, pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: false } },
  { model: bpe({ unk_token: '<u>' }, ['<u>']) }, { model: bpe({ unk_token: '<u>', fuse_unk: true }, ['<u>']) }, { model: bpe() },
  { model: bpe({ unk_token: '<u>', byte_fallback: true }, ['<u>']) }, { model: bpe({ unk_token: '<u>', fuse_unk: true, byte_fallback: true }, ['<u>', ...bytes]) }, { model: bpe({ byte_fallback: true }, bytes) },
  { model: bpe({ unk_token: '<u>', fuse_unk: true, byte_fallback: true }, ['<u>', ...bytes.filter((_, i) => i % 5)]) }, { model: bpe({ unk_token: '<u>', byte_fallback: true }, ['<u>', ...bytes.filter((_, i) => i % 3)]) },
  { model: bpe({ ignore_merges: true }, ['Hello', ' a', 'b ', 'x1y22z333']) }, { model: bpe({ ignore_merges: true }, ['Hello', ',', 'Ġworld', 'Ċ', ...'ĠHwo!"Ãł']), pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true } },
  { model: bpe({ unk_token: '<u>', byte_fallback: true, fuse_unk: true }, ['<u>', ...bytes.slice(30, 60), ...bytes.slice(190), 'Ġ', 'Ã']), pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true } },
  { model: { type: 'BPE', continuing_subword_prefix: '##', unk_token: '<u>', vocab: { '<u>': 0, a: 1, '##a': 2, b: 3, '##b': 4, aa: 5, ab: 6, aab: 7, '##ab': 8, '##': 9 }, merges: [['##a', '##b'], ['a', '##a'], ['a', '##b'], ['a', '##ab'], ['aa', '##']] } },
  { model: { type: 'BPE', end_of_word_suffix: '</w>', unk_token: '<u>', vocab: { '<u>': 0, a: 1, 'a</w>': 2, b: 3, 'b</w>': 4, 'ab</w>': 5, aa: 6, 'aab</w>': 7, '</w>': 8 }, merges: [['a', 'b</w>'], ['a', 'a'], ['aa', 'b</w>']] }, pre_tokenizer: { type: 'WhitespaceSplit' }, decoder: { type: 'BPEDecoder', suffix: '</w>' } },
  { model: { type: 'BPE', vocab: { a: 0, b: 1, c: 2, ab: 3, bc: 4, abc: 5, aa: 6 }, merges: ['b c', '#version: 0.2', 'a b', 'a bc', 'ab c', 'a a'] } },
  { model: { type: 'BPE', vocab: { a: 0, b: 1, c: 2, ab: 3, bc: 4, abc: 5, aa: 6 }, merges: [['a', 'b'], ['b', 'c'], ['a', 'a'], ['a', 'b'], ['ab', 'c']] } },
  { model: { type: 'BPE', unk_token: 'u', byte_fallback: true, vocab: { a: 0, b: 1, u: 2, ua: 3, 'uab': 4, '<0x63>': 5, 'a<0x63>': 6, bu: 7 }, merges: [['u', 'a'], ['ua', 'b'], ['a', '<0x63>'], ['b', 'u']] } },
  { model: { vocab: base(), merges } },
  ...[
    { type: 'BertProcessing', sep: ['[SEP]', 7], cls: ['[CLS]', 8] }, { type: 'RobertaProcessing', sep: ['</s>', 7], cls: ['<s>', 8], trim_offsets: true, add_prefix_space: true }, { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true },
    { type: 'TemplateProcessing', single: [{ SpecialToken: { id: 'x', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: 'y', type_id: 0 } }, { SpecialToken: { id: 'x', type_id: 1 } }], pair: [], special_tokens: { x: { id: 'x', ids: [3, 5], tokens: ['d', 'f'] }, y: { id: 'y', ids: [], tokens: [] } } },
    { type: 'TemplateProcessing', single: [{ Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: 'x', type_id: 0 } }, { Sequence: { id: 'A', type_id: 1 } }], pair: [], special_tokens: { x: { id: 'z', ids: [1000], tokens: ['nowhere'] } } },
    { type: 'TemplateProcessing', single: [], pair: [], special_tokens: {} },
    { type: 'Sequence', processors: [{ type: 'ByteLevel', add_prefix_space: true, trim_offsets: false, use_regex: true }, { type: 'TemplateProcessing', single: [{ SpecialToken: { id: 'x', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }], pair: [], special_tokens: { x: { id: 'x', ids: [3], tokens: ['d'] } } }] },
    { type: 'Sequence', processors: [] },
  ].map((post_processor) => ({ model: bpe(), post_processor })),
]
const words = ['<X>', 'and', ' and ', 'AND', 'A', 'a', 'the', 'thing', '  ', ' ', '<ab', 'x', 'y', 'c', 'É', 'e\u0301', '\n', '你', 'é', '😀']
const sentences = [...short, '', 'sand', 'and', ' and', 'and ', 'a  and  b', 'and and', 'andand', '<X>', ' <X> ', '<X><X>', ' <X>  <X> ', 'a<X>b', '<x> AND', 'AND aNd', '<abc>', 'abc', 'aab', 'aabab', 'aaaa', 'abcabc', 'xay', 'x y', ' x', 'cc', 'ccabc', 'é你é', '你a', 'a\u00e9\u4f60b', 'a b',
  ...Array.from({ length: 2 * Number(n) }, () => Array.from({ length: 1 + rnd(7) }, () => words[rnd(words.length)]).join(''))]
const encoded = []
for (const sections of wholes) {
  const t = make(sections)
  const size = t.getVocabSize()
  const e = { sections, size, ids: [] }
  for (const text of sentences) e.ids.push((await t.encode(text, null, { addSpecialTokens: false })).getIds())
  if (sections.post_processor) {
    e.special = []
    for (const text of sentences) e.special.push((await t.encode(text)).getIds())
  }
  if (sections.added_tokens || sections.decoder) {
    e.names = Array.from({ length: size + 2 }, (_, i) => t.idToToken(i))
    e.decoded = []
    for (const ids of e.ids.slice(-12)) e.decoded.push([await t.decode(ids, false), await t.decode(ids, true)])
  }
  encoded.push(e)
}

const list = (a) => '[\n' + a.map((c) => JSON.stringify(c)).join(',\n') + '\n]'
writeFileSync(file, `{"texts": ${JSON.stringify(tried)},\n"sentences": ${JSON.stringify(sentences)},
"normalizers": ${list(normalizers)},\n"preTokenizers": ${list(preTokenizers)},\n"decoders": ${list(decoded)},\n"wholes": ${list(encoded)}}\n`)
