// All kernels: what nvcc compiles, and emulation.cpp for a host.
#include "place.cu"
#include "softmax.cu"
#include "received.cu"
#include "walk.cu"
#include "walk_turned.cu"
#include "outputs.cu"
#include "loss.cu"
#include "compact.cu"
