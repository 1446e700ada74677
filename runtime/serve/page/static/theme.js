// The colours that were chosen, before anything is drawn.
try {
  document.documentElement.dataset.theme = localStorage.getItem('etc.theme') || '';
} catch {
  // The browser keeps nothing: the colours are the system's.
}
