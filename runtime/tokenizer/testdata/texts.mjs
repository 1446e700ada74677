// Texts that are hard on tokenizers: a fixed list, and a generator that gives the same texts for the same seed.

export const fixed = [
  '', ' ', '  ', '\n', '\r\n', '\t', '\u00a0', '\u3000', '\u2028', '\u0085', '\u200b', '\ufeff', '\0', '\u007f', '\ufffd', '\u{10ffff}', '\ue000', '\u0378',
  'a', 'Hello, world!', '  leading', 'trailing  ', ' both ', 'a  b   c    d', 'a\tb\t\tc', 'a\nb\n\nc\n\n\nd', 'a\r\nb\r\n\r\nc\r\n', '\n \n  \n', ' \n', '\n ', ' \r\n \r\n ', '\t \n\t x',
  "it's I'm you're we've they'll he'd can't", "IT'S I'M YOU'RE WE'VE THEY'LL HE'D CAN'T", "'s 't 're 've 'm 'll 'd", "''s '''t 'x 'sx 'lls", "'ſ 'ſtrange", "it’s don’t", "o'clock rock'n'roll", " 's", "'", "''", "'\n", "'l", "'r", "'V e",
  '0 1 12 123 1234 12345 1234567890', '3.14 -1e10 0x1F 1,000,000', '٠١٢٣ ४५६ ៧៨ Ⅷ ⅔ ² ½ ①', '１２３ＡＢＣ', '1a2b3c', 'v1.2.3-rc4', '10:30:45', '2024-01-02T03:04:05Z',
  'café cafe\u0301 naïve nai\u0308ve', 'e\u0301', '\u0301', 'a\u0301\u0323', 'a\u0323\u0301', 'q\u0307\u0323 q\u0323\u0307', 'Å Å A\u030a', 'ﬁ ﬂ ﬀ ﬃ', 'Ω Ω', 'ǆ ǅ Ǆ', 'İstanbul ıI', 'ß ẞ ſ K',
  'a' + '\u0301'.repeat(40), 'z' + '\u0335\u0322\u0300\u0301\u0302'.repeat(20) + ' text', 'क्षि नमस्ते', 'สวัสดีครับ', 'שָׁלוֹם', 'العَرَبِيَّة', 'தமிழ்', 'ខ្មែរ', 'བོད་སྐད', '한국어 한국어', '\u1112\u1161\u11ab\u1100\u1173\u11af',
  '你好，世界！', '日本語のテキスト。カタカナ', '中文English混排123数字', '𠮷野家 𝒳 𝟙𝟚', 'Привет, мир!', 'Γειά σου Κόσμε', 'Tiếng Việt có dấu', 'łódź žluťoučký kůň',
  '😀', '😀😀😀', '👍🏽', '👩‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪🇫🇷', '1️⃣', '❤️ ❤', '☺︎', 'a😀b', ' 😀 ', '😀\n', '\u200d', 'a\u200db', '🧑🏻‍💻 codes',
  '!?...', '«quoted» “curly” ‘single’', '—–-‐‑', '#hashtag @user $100 50% ^&*()', 'a+b=c', 'x==y && z||!w', '<html><body>', '</p>', '```go\nfunc main() {}\n```\n\n', '// comment\n\tif x {\n\t\treturn nil\n\t}\n',
  'https://example.com/a/b?c=d&e=f#g', 'user.name+tag@example.co.uk', 'C:\\Windows\\System32', '{"key": [1, 2, {"a": null}]}', 'SELECT * FROM t WHERE id = 1;', '$\\frac{a}{b}$', 'snake_case camelCase PascalCase kebab-case', '__init__', '____', '----', '....', '====\n', '!!!\r\n\r\n', '?\n?', '\n!', ' !', '  !', '! !',
  'Wednesday Wednesday Wednesday', 'WEDNESDAY', 'wEdNeSdAy', 'Wednes\u00adday', 'Wednes\u200bday', 'W e d n e s d a y',
  '▁', '▁▁', ' ▁ ', '▁a▁b', 'Ġ', 'ĠHello', 'Ċ', 'Ã©', '<0x41>', '<0x0A>', '<0xE4><0xBD><0xA0>', '<unk>', '<bos>', '<eos><pad>', '<s></s>',
  '<|im_start|>user\nhi<|im_end|>\n', '<|im_start|>', '<|im_start|><|im_end|>', 'a<|im_end|>b', ' <|im_end|> ', '<|im_end', '|im_end|>', '<|im_<|im_end|>end|>', '<|IM_END|>', '<|im_end|>\n\n', '<think>\n\n</think>\n\n', '<think', '<think>x</think>', '< think >', '<<think>>', '<|endoftext|><|endoftext|>',
  '<bos><|turn>user\nhi<turn|>\n', '<|turn>', '<turn|>', '<|turn><turn|>', 'a<turn|>b', ' <turn|> ', '<|turn', '<|channel>thought\n<channel|>', '<|chan<|channel>nel>', 'x<pad>y<eos>z<unk>',
  'a'.repeat(100), 'ab'.repeat(100), 'Wednesday'.repeat(30), ' '.repeat(100), '\n'.repeat(60), '\t'.repeat(33), ' \n'.repeat(30), 'é'.repeat(50), '你'.repeat(50), '😀'.repeat(20), '1'.repeat(64), '!'.repeat(64), '\u0301'.repeat(35), "'s".repeat(20), '\r\n'.repeat(20),
  '\u1c89\u1c8a Unicode 16 \u{105c0}', '\u0897 \u{10d40}\u{116d0} \u{1e5f0}', 'ۀ ۀ \u06d5\u0654', '\u0958 \u09dc \u0b5c', '\u{1d15e} \u{1d1bb}', '\u2adc \u212b \u2126', '\u0344 \u0340 \u0343', '\uac00\u11a8 \u1100\u1161\u11a8', '\u{11935}\u{11930} \u{11938}', 'a\u034fb a\u00adb', '\u202eRTL\u202c', 'a\u0000b\u0000', '\u001b[31mred\u001b[0m', 'x\u0008\u0008y', '\v\f\x1c\x1d\x1e\x1f',
]

const alphabets = [
  [...'abcdefghijklmnopqrstuvwxyz'], [...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'], [...'0123456789'], [...' \t\n\r'], [' ', '  ', '\n', '\r\n', '\n\n', '\t', '\u00a0', '\u3000'],
  [...'.,;:!?-_()[]{}<>/\\|@#$%^&*+=~`"\''], ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'LL", "'ſ"],
  [...'éèêëàâäôöùûüçñßøåæœÉÀ'], [...'абвгдежзиклмнопрстуфхц'], [...'αβγδεζηθικλμ'], [...'אבגדהוזח'], [...'ابتثجحخد'], [...'कखगघङचछ'], [...'กขคงจฉ'], [...'你好世界中文字漢'], [...'あいうえおカキクケコ'], [...'가나다라마한국'],
  [...'\u0300\u0301\u0302\u0308\u0323\u0327\u0331\u0345'], ['ि', 'ी', '्', 'ा', 'ั', '้', 'ְ', 'ָ', 'َ', 'ّ', '゙', 'ு'], [...'٠١٢३४५½¾²Ⅷ①'],
  ['😀', '👍', '🏽', '\u200d', '👩', '👧', '\ufe0f', '🇩', '🇪', '❤', '1️⃣'], ['▁', 'Ġ', '<0x41>', '<unk>', '\ufffd', '\u200b', '\ufeff', '\0'],
  ['the', 'The', ' the', 'capital', ' of', ' country', 'Wednesday', ' Grace', 'What', ' is', 'ing', ' plus', '12', ' Belgium', '.'],
]

/** n texts: fixed ones first, then generated from alphabets, words of specials, and code points at random. */
export function texts(n, seed, specials) {
  const rnd = (m) => { seed = (Math.imul(seed, 1103515245) + 12345) >>> 0; return (seed >>> 8) % m }
  const pick = (a) => a[rnd(a.length)]
  const any = () => { let c; do c = rnd(4) ? rnd(0x3000) : rnd(0x110000); while (c >= 0xd800 && c <= 0xdfff); return String.fromCodePoint(c) }
  const out = fixed.slice(0, n)
  while (out.length < n) {
    const kinds = Array.from({ length: 1 + rnd(4) }, () => pick([...alphabets, ...alphabets, specials, null]))
    const length = pick([3, 8, 8, 20, 20, 40]) + rnd(10)
    let s = ''
    for (let i = 0; i < length; i++) {
      const kind = pick(kinds)
      s += kind === null ? any() : pick(kind)
      if (rnd(12) === 0) s += pick([' ', ' ', '\n', ...specials])
    }
    out.push(s)
  }
  return out
}
