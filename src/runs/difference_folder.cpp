#include "runs/difference_folder.h"

#include <bit>
#include <exception>
#include <utility>

#include "base/error.h"
#include "checkpoint/difference_case.h"
#include "checkpoint/model_sha256.h"

namespace lockstep {

namespace {
// The text and its numbers.
DifferenceCase case_of_text(const FoundDifference& found) {
  const PolicyDatum& datum = found.datum;
  DifferenceCase one;
  for (std::size_t row = 0; row < datum.weights.size(); ++row) {
    if (datum.weights[row] == 0) continue;
    one.positions.push_back(static_cast<std::int64_t>(row) + 1);
    one.sampler_bits.push_back(std::bit_cast<std::uint32_t>(datum.old_logprobs[row]));
    one.trainer_bits.push_back(std::bit_cast<std::uint32_t>(found.logprobs[row]));
    if (!datum.kept_tokens.empty()) one.kept.push_back(datum.kept_tokens[row]);
  }
  one.tokens = datum.tokens;
  one.tokens.push_back(datum.targets.back());
  one.shared_prefix = datum.shared_prefix;
  one.temperature = datum.temperature;
  one.top_k = found.top_k;
  one.top_p = found.top_p;
  one.min_p = found.min_p;
  one.step = found.step;
  return one;
}
}  // namespace

std::filesystem::path leave_difference(RlStack& stack, const FoundDifference& found, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  stack.export_model(folder / "weights", DType::f32);
  DifferenceCase one = case_of_text(found);
  one.weights_version = stack.trainer().weights_version();
  const OpenedModel& opened = stack.opened();
  Backend& backend = opened.runtime->backend;
  one.profile = stack.profile().name;
  one.profile_digest = stack.profile().digest();
  one.mla_norm_eps = stack.source().mla_norm_eps;
  one.backend = backend_kind_name(backend.device().kind());
  one.isa = instruction_set_name(backend.isa());
  one.threads = backend.device().threads().threads();
  if (opened.ranks.size() > 1) one.ranks = opened.ranks.text();
  one.keep_forward = stack.keep_forward();
  one.model = "weights";
  one.model_sha256 = model_sha256(folder / "weights");
  if (stack.trainer().with_model([](TrainedModel& model) { return model.adapter() != nullptr; })) {
    const std::filesystem::path base = std::filesystem::absolute(stack.source().model);
    one.adapter = std::exchange(one.model, base.string());
    one.adapter_sha256 = std::exchange(one.model_sha256, model_sha256(base));
  }
  write_case(folder / "case.json", one);
  return folder / "case.json";
}

std::string leave_and_tell(RlStack& stack, const FoundDifference& found, const std::filesystem::path& folder) {
  try {
    return fmt::format("; `lockstep parity --case {}` repeats it", leave_difference(stack, found, folder).string());
  } catch (const std::exception& e) {
    return fmt::format("; what repeats it could not be written: {}", e.what());
  }
}

}  // namespace lockstep
