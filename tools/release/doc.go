// Release writes what a release of etc consists of, for every platform:
//
//	go run ./tools/release [-o dist] [-key minisign.key] [-snapshot]
//
//	etc_0.1.0_linux_amd64.tar.gz      an archive (a zip for Windows): the binary, the manual page, README,
//	                                  CHANGELOG and licences
//	etc_0.1.0_linux_amd64.cdx.json    its software bill of materials, CycloneDX
//	etc.rb                            the Homebrew formula, with the archives' hashes
//	SHA256SUMS                        the hashes of all of these
//	*.minisig                         minisign's signatures of all of these, where there is a key
//
// It builds the commit that is checked out, from a clone of its own, so that nothing that is not committed gets in,
// and so that the Go toolchain stamps tag, commit and time into the binaries. The version is the one that the
// toolchain stamps. Without -snapshot HEAD must have a tag, and that must be the number in internal/version, which
// exported files record.
//
// The same commit and the same Go release give the same bytes, signatures included: archives have the commit's time,
// no owners, and names in one order; binaries have no paths (-trimpath).
//
// The key is the text of a private key as minisign writes it, from the file that -key names or from the environment
// variable ETC_RELEASE_KEY; ETC_SIGN_PASSWORD opens one with a password.
package main
