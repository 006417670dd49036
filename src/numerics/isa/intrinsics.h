// The compiler's intrinsics, before any pragma that widens the instruction set.
#pragma once
#include <immintrin.h>
