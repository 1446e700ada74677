// Package devices has the engines that programs run on, by the names that people give: those of GPUs, which a machine
// may have, and those that every machine has. auto stands for the first that there is.
//
// It is the one place that knows all engines. Package devices imports runtime's engines; it must never import a loader,
// a session or the command line.
package devices
