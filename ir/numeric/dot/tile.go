package dot

// tileGeneric is what tileProducts of every processor computes.
func tileGeneric(out []float32, stride int, a, b []float32, cols, k int) {
	for i := range tileRows {
		for j := range cols {
			out[i*stride+j] = Product(a[i*k:(i+1)*k], b[j*k:(j+1)*k])
		}
	}
}
