package numeric

import "testing"

var benchmarkArguments = func() (x [1024]float64) {
	for i := range x {
		x[i] = float64(i)*0.0009 + 0.01
	}
	return
}()

var sink float64

func BenchmarkFunctions(b *testing.B) {
	for _, f := range functions {
		offset := 0.0
		if f.name == "Acosh" {
			offset = 1
		}
		b.Run(f.name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				sink = f.f(benchmarkArguments[i&1023] + offset)
				i++
			}
		})
	}
	for _, f := range []struct {
		name string
		f    func(x, y float64) float64
	}{{"Atan2", Atan2}, {"Pow", Pow}} {
		b.Run(f.name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				sink = f.f(benchmarkArguments[i&1023], 0.7)
				i++
			}
		})
	}
}
