package execfuzz

// Seed is a file that mutants are made of.
type Seed struct {
	Name  string
	Bytes []byte
}
