// Where a module that the program loads on demand is: in the program's folder, in ../lib of it, or where the loader itself looks.
//   void* library = dlopen(module_file("lockstep_mpi.so").c_str(), RTLD_NOW);
#pragma once
#include <string>

namespace lockstep {

std::string module_file(const std::string& name);

}  // namespace lockstep
