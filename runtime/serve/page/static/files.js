// Text files that people attach to a message.

/** The largest file, in bytes. No context holds much more. */
const largest = 4 << 20;

export class FileError extends Error {}

/** Reads a file as text: {name, text}. */
export async function read(file) {
  if (file.size > largest) {
    throw new FileError(`${file.name} has ${(file.size / (1 << 20)).toFixed(1)} MiB; attach files of at most ${largest >> 20} MiB.`);
  }
  const bytes = await file.arrayBuffer();
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new FileError(`${file.name} is not text in UTF-8; only text can be attached.`);
  }
  if (text.includes('\0')) throw new FileError(`${file.name} is not text; only text can be attached.`);
  return { name: file.name, text };
}

/** A message with its files, as the model gets it. A fence is longer than any in the file. */
export function withFiles(content, files = []) {
  const parts = files.map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) || []).map((s) => s.length));
    const fence = '`'.repeat(longest + 1);
    return `${name}:\n${fence}\n${text}${text.endsWith('\n') ? '' : '\n'}${fence}`;
  });
  return [...parts, content].filter((s) => s !== '').join('\n\n');
}
