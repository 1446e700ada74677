// Writes qwen.json and gemma.json: what the real library makes of many texts with the two tokenizers beside them.
// See library.mjs for how to run it. Arguments, all optional: how many texts (340), the seed (1), the folder to write
// to, and the tokenizer.json to use in place of the two, with its name.
import { T } from './library.mjs'
import { texts } from './texts.mjs'
import { readFileSync, writeFileSync } from 'fs'

const [n = '340', seed = '1', folder = new URL('.', import.meta.url).pathname, file, as] = process.argv.slice(2)
const here = (f) => new URL(f, import.meta.url).pathname
for (const [name, path] of file ? [[as, file]] : [['qwen', here('qwen-tokenizer.json')], ['gemma', here('gemma-tokenizer.json')]]) {
  const json = readFileSync(path, 'utf8')
  const tokenizer = T.Tokenizer.fromString(json)
  const specials = JSON.parse(json).added_tokens.map((t) => t.content)
  const cases = []
  for (const text of texts(Number(n), Number(seed), specials)) {
    const ids = (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds()
    const special = (await tokenizer.encode(text)).getIds()
    const decoded = await tokenizer.decode(special, false), skipped = await tokenizer.decode(special, true)
    // What is left out is the same as the text, as ids and as decoded.
    cases.push({ text, ids, special: `${special}` === `${ids}` ? undefined : special, decoded: decoded === text ? undefined : decoded, skipped: skipped === decoded ? undefined : skipped })
  }
  // Ids that no encoder makes: broken UTF-8, ids out of range.
  let state = 99
  const rnd = (m) => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return (state >>> 8) % m }
  const decodes = []
  while (decodes.length < Number(n) / 3) {
    const ids = Array.from({ length: rnd(12) }, () => rnd(tokenizer.getVocabSize() + 2))
    if (decodes.length % 2) ids.forEach((_, i) => { if (rnd(2)) ids[i] = name === 'gemma' ? 8 + rnd(256) : rnd(256) })
    const decoded = await tokenizer.decode(ids, false), skipped = await tokenizer.decode(ids, true)
    decodes.push({ ids, decoded, skipped: skipped === decoded ? undefined : skipped })
  }
  const list = (a) => '[\n' + a.map((c) => JSON.stringify(c)).join(',\n') + '\n]'
  writeFileSync(`${folder}/${name}.json`, `{"encode": ${list(cases)},\n"decode": ${list(decodes)}}\n`)
}
