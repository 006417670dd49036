#include "model/runtime.h"

#include <algorithm>

#include "base/error.h"
#include "model/default_context.h"
#include "model/low_bit_weights.h"

namespace lockstep {

Runtime::Runtime(const BackendOptions& options, std::shared_ptr<const Model> m, const Profile& p, std::int64_t positions)
    : backend(options), model(std::move(m)), profile(p), max_positions(context_or_default(positions, model->facts().max_positions)) {
  if (max_positions > model->facts().max_positions)
    fail(ErrorCode::invalid_argument, "a context of {} positions was asked for, the model has at most {}", max_positions, model->facts().max_positions);
  model->require_profile(profile);
  check_low_bit(model->manifest(), profile);
  const auto upload = [&](const RopeSpec& rope) {
    return backend.device().upload(lockstep::rope_table(max_positions, rope), max_positions, rope.rotary, MemoryCategory::weights);
  };
  if (model->facts().rope.rotary > 0) rope_table = upload(model->facts().rope);
  if (model->facts().index_rope) index_rope_table = upload(*model->facts().index_rope);
}

}  // namespace lockstep
