#include "runs/distillation/teacher_checkpoint.h"

#include <charconv>

#include "base/error.h"
#include "checkpoint/json_file.h"
#include "checkpoint/training_checkpoint.h"
#include "model/adapter.h"
#include "model/model.h"
#include "runs/training_state.h"

namespace lockstep {
namespace {
// A setting of config.json, which has numbers as texts.
double setting_of(const Json& config, const char* key, double otherwise) {
  const auto found = config.find(key);
  if (found == config.end()) return otherwise;
  if (found->is_number()) return found->get<double>();
  double number = 0;
  const std::string text = found->is_string() ? found->get<std::string>() : std::string();
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    fail(ErrorCode::corrupt_file, "config.json: '{}' is {}, allowed is a number", key, found->dump());
  return number;
}
}  // namespace

TeacherCheckpoint teacher_checkpoint(const std::filesystem::path& path) {
  TeacherCheckpoint of;
  const std::filesystem::path plain = path.has_filename() ? path : path.parent_path();
  const bool one = std::filesystem::exists(plain / "state.json");
  of.folder = one ? plain : std::filesystem::path(newest_checkpoint(plain));
  const std::filesystem::path run = one ? std::filesystem::absolute(plain).parent_path().parent_path() : plain;
  const Json config = read_json_file(run / "config.json");
  of.rank = static_cast<std::int64_t>(setting_of(config, "adapter_rank", 0));
  of.alpha = setting_of(config, "adapter_alpha", of.alpha);
  return of;
}

WeightImages whole_images(const TeacherCheckpoint& of, const Model& model) { return load_checkpoint(of.folder, model.manifest()).masters; }

std::shared_ptr<const AdapterWeights> checkpoint_adapter(const TeacherCheckpoint& of, const OpenedModel& opened) {
  // Runs adapt no head (jobs/rl_job.cpp, runs/sft_run.cpp).
  const AdapterSettings settings{.rank = of.rank, .alpha = of.alpha, .attention = true, .mlp = true, .unembedding = false};
  const auto layout = std::make_shared<const AdapterLayout>(opened.model->manifest(), settings);
  return make_adapter(opened.runtime->backend, layout, load_checkpoint(of.folder, layout->manifest()).masters, 0);
}

}  // namespace lockstep
