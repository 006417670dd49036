// A step of an optimizer that needs whole matrices (OptimizerFamily::whole_matrices) on a matrix of which each tensor-parallel rank has some outputs or
// inputs. Their parts are put together on every rank, which makes the whole step, so that each sum has its one order, and keeps its own part.
//   if (cuts_matrices(p.split)) step_cut_matrix(backend, *place.tensor, own, role, moments, stepper, views);
// All tensor-parallel ranks of a stage call together, for the same parameters in the same order, those that have none of a matrix too. Used by the
// rank's thread.
#pragma once
#include "parallel/communicator.h"
#include "train/optimizers/optimizer.h"

namespace lockstep {

// Whether tensor-parallel ranks have parts of each matrix: not where each has some of the matrices, heads or experts, or all have all.
bool cuts_matrices(ParameterSplit split);

// `own`: this rank's part, of the matrices that its data-parallel rank steps; `views` of it, with so many moments.
void step_cut_matrix(Backend& backend, Communicator& tensor, const Parameter& own, const ParameterRole& role, int moments, Stepper& stepper,
                     const StepViews& views);

}  // namespace lockstep
