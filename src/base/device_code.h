// Marks functions that also run on GPUs: a CUDA compiler compiles them for host and device; for other compilers the mark is empty.
//   LOCKSTEP_EVERYWHERE inline float widen(Bf16 h) {...}
#pragma once

#ifdef __CUDACC__
#define LOCKSTEP_EVERYWHERE __host__ __device__
#else
#define LOCKSTEP_EVERYWHERE
#endif
