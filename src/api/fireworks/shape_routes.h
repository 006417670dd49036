// Routes of training shapes: their versions, and the shape chosen for a job. Pure but for the routes.
//   const std::string id = shape_of_job(call, shapes);
#pragma once
#include "api/tinker/training_routes.h"
#include "planning/shape_catalog.h"

namespace lockstep {

// `listed`, and shapes of the base on this machine's processors: NAME-cpu, NAME-lora-cpu, NAME-cpu-reference.
ShapeCatalog with_base_shapes(const ShapeCatalog& listed, const TrainingBase& base);
// "accounts/A/trainingShapes/SHAPE/versions/1"
std::string shape_version_name(const std::string& account, const std::string& shape);
// The shape that a request for a job names, or one that fits its model, mode and context when it names none; empty when the request
// describes its hardware itself. Errors: not_found; RequestError 400 when none fits, with what is missing.
std::string shape_of_job(const TrainingCall& call, const ShapeCatalog& shapes);

}  // namespace lockstep
