#include "parity/rank_bits.h"

#include "base/error.h"
#include "base/hash.h"
#include "parity/parity_recording.h"
#include "parity/self_check.h"
#include "train/trainer.h"

namespace lockstep {

namespace {
constexpr std::int32_t kTokens = 70, kVocabulary = 97;  // more than a block of 64 keys

std::vector<std::int32_t> compared_tokens() {
  std::vector<std::int32_t> tokens;
  for (std::int32_t t = 0; t < kTokens; ++t) tokens.push_back((3 * t * t + 7 * t + 5) % kVocabulary);
  return tokens;
}

void add_forward(const std::string& profile, const OperationRecording& forward, std::vector<OperationDigest>& all) {
  for (const OperationRecording::RecordedOperation& operation : forward.operations()) {
    const std::string layer = operation.layer >= 0 ? fmt::format(", layer {}", operation.layer) : "";
    all.push_back(
        {fmt::format("{} forward{}: {}", profile, layer, operation.text()), xxh3(operation.hash.data(), operation.hash.size() * sizeof(std::uint64_t))});
  }
}

void add_images(const std::string& what, const Manifest& manifest, const WeightImages& images, std::vector<OperationDigest>& all) {
  for (std::size_t i = 0; i < images.size(); ++i)
    all.push_back({fmt::format("{}: {}", what, manifest.parameters()[i].name), xxh3(images[i].data(), images[i].size() * sizeof(float))});
}

void add_profile(const Profile& profile, const std::shared_ptr<const Model>& model, InstructionSet isa, int threads, std::vector<OperationDigest>& all) {
  Runtime runtime({.isa = isa, .threads = threads}, model, profile);
  Trainer trainer(runtime, initial_weights(model->manifest(), kSelfTestSeed, kSelfTestDeviation), {});
  const std::vector<std::int32_t> tokens = compared_tokens();
  const std::vector<TrainSequence> data = {TrainSequence::next_token(tokens)};
  OperationRecording forward(tokens);
  runtime.observer = &forward;
  trainer.score(data);
  runtime.observer = nullptr;
  if (forward.operations().empty()) fail(ErrorCode::internal, "the forward of the self-test's model has no operation to compare");
  add_forward(profile.name, forward, all);
  const ForwardBackwardResult result = trainer.forward_backward(data, {});
  for (const std::vector<float>& row : result.logprobs) all.push_back({profile.name + " log-probabilities", xxh3(row.data(), row.size() * sizeof(float))});
  add_images(profile.name + " gradient", model->manifest(), trainer.gradient_images(), all);
  trainer.optim_step({});
  add_images(profile.name + " weights after a step", model->manifest(), trainer.state().masters(), all);
}
}  // namespace

std::string bits_digest(const std::vector<OperationDigest>& operations) {
  std::uint64_t hash = 0;
  for (const OperationDigest& one : operations) hash = xxh3(&one.digest, sizeof(one.digest), xxh3(one.what.data(), one.what.size(), hash));
  return hex64(hash);
}

std::vector<OperationDigest> operation_digests(InstructionSet isa, int threads) {
  const std::shared_ptr<const Model> model = self_test_model();
  std::vector<OperationDigest> all;
  for (const Profile& profile : profiles())
    if (!profile.study && !profile.expanded_latents && profile.trains_all_weights()) add_profile(profile, model, isa, threads, all);
  return all;
}

}  // namespace lockstep
