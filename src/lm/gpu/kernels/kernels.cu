// All kernels: what nvcc compiles, and emulation.cpp for a host.
#include "place.cu"
#include "softmax.cu"
#include "received.cu"
#include "scan.cu"
#include "scan_rotating.cu"
#include "outputs.cu"
#include "loss.cu"
#include "compact.cu"
