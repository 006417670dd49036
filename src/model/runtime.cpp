#include "model/runtime.h"

#include <algorithm>

#include "base/error.h"
#include "model/default_context.h"

namespace lockstep {

Runtime::Runtime(const BackendOptions& options, std::shared_ptr<const Model> m, const Profile& p, std::int64_t positions)
    : backend(options), model(std::move(m)), profile(p), max_positions(context_or_default(positions, model->facts().max_positions)) {
  if (max_positions > model->facts().max_positions)
    fail(ErrorCode::invalid_argument, "a context of {} positions was asked for, the model has at most {}", max_positions, model->facts().max_positions);
  model->require_profile(profile);
  rope_rows_ = RopeRows(backend.device(), model->facts().rope, max_positions);
  if (model->facts().index_rope) index_rope_rows_ = RopeRows(backend.device(), *model->facts().index_rope, max_positions);
}

}  // namespace lockstep
