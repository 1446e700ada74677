// Errors in words, with what to do.

/** What happened and what to do: {text, advice, again}. again says whether the same request may do better later. */
export function explain(error, model) {
  const says = error.message ? `${error.message[0].toUpperCase()}${error.message.slice(1)}` : 'Something went wrong';
  const text = /[.!?]$/.test(says) ? says : `${says}.`;
  switch (error.status) {
    case 0:
      return { text, advice: 'Look whether etc serve still runs and whether you are connected, then try again.', again: true };
    case 400:
      return refused(error, text, model);
    case 401:
      return { text, advice: 'Give another key in Settings, then try again.', again: true };
    case 403:
      return { text, advice: 'Open the page by the address that etc serve printed when it began.', again: false };
    case 404:
      return { text, advice: 'Choose another model, then try again.', again: true };
    case 413:
      return { text, advice: 'Attach less, or begin a new chat.', again: false };
    case 429: {
      const when = error.retry > 1 ? `in ${error.retry} seconds` : 'in a moment';
      return { text: 'The server answers as many people as it can.', advice: `Try again ${when}.`, again: true };
    }
    case 503:
      return { text, advice: 'Try again when it is back.', again: true };
    case 504:
      return { text, advice: 'Ask for less at once, or set max tokens in Settings.', again: true };
  }
  if (error.status >= 500) {
    return { text, advice: "Try again. If it comes back, the server's log says more.", again: true };
  }
  return { text, advice: 'Reload the page and try again.', again: true };
}

/** What a request that the server does not take lacks. */
function refused(error, text, model) {
  if (error.code === 'context_length_exceeded') {
    const size = model?.context_length ? ` of ${model.context_length} tokens` : '';
    return { text, advice: `The chat is too long for the model's context${size}. Begin a new chat, attach less, or ask for fewer ` +
      'tokens in Settings.', again: false };
  }
  if (error.param === 'messages') {
    return { text, advice: 'The model does not take this conversation: begin a new chat, or try without a system prompt or tools.', again: true };
  }
  return { text, advice: 'Change it in Settings, then try again.', again: true };
}
