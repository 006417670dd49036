// The wire over Open MPI: loads the module lockstep_mpi.so, from the program's folder or from ../lib of it.
//   if (started_by_mpi()) std::unique_ptr<Wire> wire = load_mpi_wire();
#pragma once
#include <memory>

#include "parallel/wire.h"

namespace lockstep {

// Whether mpirun (or srun with PMIx) started this process.
bool started_by_mpi();
// Once a process. Errors: unsupported where there is no module or no Open MPI, with the loader's word; io when MPI does not start.
std::unique_ptr<Wire> load_mpi_wire();

}  // namespace lockstep
