// Package program opens a .pte and gives its methods as IR modules: the container read and checked, the
// delegate's graph lifted, the constants views of the mapped file.
//
// Package program imports the container and lift; it must never import an engine or codegen.
package program
