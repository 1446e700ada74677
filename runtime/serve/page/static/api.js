// The server's API, as far as the page uses it.

/** An answer of the server that is an error, or none: status 0 is a server that cannot be reached. */
export class ServerError extends Error {
  constructor(status, body = {}, retry = 0) {
    super(body.message || `status ${status}`);
    this.status = status;
    this.code = body.code || '';
    this.param = body.param || '';
    this.retry = retry;
  }
}

/** The statuses of errors that come in a stream, which has a status of its own already. */
const statuses = { invalid_request_error: 400, rate_limit_error: 429, overloaded_error: 503, timeout_error: 504 };

const address = (path) => new URL(path, document.baseURI);

const headers = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

async function request(path, key, options = {}) {
  let response;
  try {
    response = await fetch(address(path), { cache: 'no-store', ...options, headers: { ...options.headers, ...headers(key) } });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new ServerError(0, { message: 'the server cannot be reached' });
  }
  if (response.ok) return response;
  let body;
  try {
    body = (await response.json()).error;
  } catch {
    // The error is of something between here and the server.
  }
  throw new ServerError(response.status, body, Number(response.headers.get('Retry-After')) || 0);
}

/** The models of the server. */
export async function models(key) {
  return (await (await request('v1/models', key)).json()).data;
}

/**
 * Asks for an answer, and gives its events as they come: {seed}, then {delta}, {reason} and {usage} as chat completions
 * have them.
 */
export async function* chat(body, key, signal) {
  const response = await request('v1/chat/completions', key, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  yield { seed: response.headers.get('Etc-Seed') };
  for await (const data of events(response.body)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(statuses[chunk.error.type] || 500, chunk.error);
    const choice = chunk.choices[0];
    if (choice?.delta) yield { delta: choice.delta };
    if (choice?.finish_reason) yield { reason: choice.finish_reason };
    if (chunk.usage) yield { usage: chunk.usage };
  }
  throw new ServerError(0, { message: 'the connection ended before the answer did' });
}

/** The data of server-sent events. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const parts = text.split('\n\n');
      text = parts.pop();
      for (const part of parts) {
        const data = part.split('\n').filter((line) => line.startsWith('data:'));
        if (data.length > 0) yield data.map((line) => line.slice(5).trimStart()).join('\n');
      }
    }
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new ServerError(0, { message: 'the connection ended before the answer did' });
  } finally {
    reader.cancel().catch(() => {});
  }
}
