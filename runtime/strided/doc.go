// Package strided does the arithmetic of shapes and strides, in elements, that views of tensors need: the engines'
// plans share it.
//
// Package strided imports nothing of ours.
package strided
