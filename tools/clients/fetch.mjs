// node fetch.mjs URL SHA256 FILE writes what is at an address to a file, where it has that hash.
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

// get reads what is at an address; sum is its SHA-256 in hexadecimal, or empty.
export async function get(url, sum) {
  const r = await fetch(url, { signal: AbortSignal.timeout(30000) });
  if (!r.ok) throw new Error(`${url}: status ${r.status}`);
  const content = Buffer.from(await r.arrayBuffer());
  const found = createHash('sha256').update(content).digest('hex');
  if (sum && found !== sum) throw new Error(`${url}: its SHA-256 is ${found}, expected ${sum}`);
  return content;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [url, sum, file] = process.argv.slice(2);
  try {
    await writeFile(file, await get(url, sum));
  } catch (e) {
    console.error(`${url}: ${e.message}${e.cause ? ': ' + e.cause.message : ''}`);
    process.exit(1);
  }
}
