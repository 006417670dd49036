// Marks functions that run on GPUs too. A CUDA compiler makes them for both sides; for every other compiler the mark is empty.
//   LOCKSTEP_EVERYWHERE inline float widen(Bf16 h) {...}
#pragma once

#ifdef __CUDACC__
#define LOCKSTEP_EVERYWHERE __host__ __device__
#else
#define LOCKSTEP_EVERYWHERE
#endif
