// Package minisign signs messages and checks signatures in the formats of minisign
// (https://jedisct1.github.io/minisign/, section "Signature format"): Ed25519 keys and signatures in two to four
// lines of text, which the program minisign and OpenBSD's signify-like tools read.
//
// # Invariants
//
//   - Signatures are of the prehashed kind ("ED"): Ed25519 over the BLAKE2b-512 hash of the message. The older kind
//     ("Ed", over the message itself) is accepted.
//   - The trusted comment is signed together with the signature; a signature without a right one is none.
//   - The same key, message and comments give the same bytes.
//   - Text of any kind gives a key, a signature or an error. What a key file asks of scrypt is bounded by what
//     minisign itself asks for, 1 GiB.
//
// Package minisign imports nothing of etc.
package minisign
