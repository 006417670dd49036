// Maps a function's symbol to the part of a step that it belongs to (attention, linear layers, the optimizer, ...), for profiles (profile_samples.h).
//   std::string_view part = kernel_group("_ZN8lockstep5adamwINS_7Avx2VecEEEvRKNS_5AdamWERNS_10ThreadPoolE");   // "optimizer"
// The symbol of a lambda has the name of the kernel around it, and counts as that kernel's. A function that several kernels call without
// inlining it has a part of its own: the tile of a product serves the forward and the inputs' gradient, and no address tells which.
#pragma once
#include <string_view>

namespace lockstep {

constexpr std::string_view kOtherFunctions = "other functions of the program", kOutsideTheProgram = "the system and libraries";

// kOutsideTheProgram for an empty symbol, kOtherFunctions where no part is known.
std::string_view kernel_group(std::string_view symbol);

}  // namespace lockstep
