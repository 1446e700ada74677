// Package hub brings checkpoints from a Hugging Face hub into the cache that Hugging Face's own libraries use, and
// finds those that are there already.
//
// The cache has their layout: CACHE/models--ORG--NAME with blobs (files by the hash that the hub names them by), refs
// (the commit of a branch or tag) and snapshots (for each commit the files by their names, as links to blobs). So what
// one program has downloaded, the others find.
//
// # Invariants
//
//   - A blob is there whole or not at all: it is written as NAME.incomplete, its length and hash are checked (the
//     SHA-256 of a large file, git's SHA-1 of a small one), then it is renamed. What is cut stays and is continued
//     the next time.
//   - Only one process writes a blob: it holds a lock, which the system drops when the process ends.
//   - The token goes to the endpoint's own host and to no other, whatever redirects say, and never into a message.
//   - Waits and retries are bounded, and so is what is read of any answer but the files themselves.
//   - File names and links of a hub never lead out of the cache.
//
// Package hub imports nothing of ours and must never import passes, codegen or runtime.
package hub
