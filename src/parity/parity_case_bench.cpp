#include "parity/parity_case_bench.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/free_memory.h"
#include "checkpoint/model_sha256.h"
#include "model/value_head.h"
#include "parity/score.h"
#include "serving/keep_forward.h"
#include "serving/loading.h"

namespace lockstep {

namespace {
// A folder of the case whose files are those that the case was recorded with.
std::string checked_folder(const std::filesystem::path& file, const std::string& path, const std::string& sha256) {
  const std::string place = case_path(file, path).string();
  if (const std::string now = model_sha256(place); now != sha256)
    fail(ErrorCode::invalid_argument, "'{}' has SHA-256 {}, allowed is {}, with which '{}' was recorded", place, now, sha256, file.string());
  return place;
}

void check_fits_model(const DifferenceCase& one, const Model& model, const std::filesystem::path& file) {
  const std::int64_t vocabulary = model.facts().vocabulary, context = model.facts().max_positions;
  if (std::ssize(one.tokens) > context)
    fail(ErrorCode::invalid_argument, "'{}' has {} tokens, allowed are at most {}, the model's context", file.string(), one.tokens.size(), context);
  for (std::size_t i = 0; i < one.tokens.size(); ++i)
    if (one.tokens[i] >= vocabulary)
      fail(ErrorCode::invalid_argument, "'{}': tokens[{}] is {}, allowed are token ids from 0 to {}", file.string(), i, one.tokens[i], vocabulary - 1);
  for (std::size_t i = 0; i < one.kept.size(); ++i) {
    if (const std::string fault = one.kept[i].fault(vocabulary); !fault.empty())
      fail(ErrorCode::invalid_argument, "'{}': kept[{}]: {}", file.string(), i, fault);
    if (const std::int32_t token = one.tokens[static_cast<std::size_t>(one.positions[i])]; !one.kept[i].contains(token))
      fail(ErrorCode::invalid_argument, "'{}': kept[{}] lacks token {}, which was drawn from it; allowed are sets with their token", file.string(), i, token);
  }
}

bool cuts(const DifferenceCase& one) { return one.top_k > 0 || one.top_p < 1 || one.min_p > 0; }

// The text as the trainer had it.
TrainSequence sequence_of_case(const DifferenceCase& one) {
  TrainSequence d;
  d.tokens.assign(one.tokens.begin(), one.tokens.end() - 1);
  d.targets.assign(d.tokens.size(), -1);
  d.weights.assign(d.tokens.size(), 0.0f);
  d.temperature = one.temperature;
  if (!one.kept.empty()) d.kept_tokens.resize(d.tokens.size());
  for (std::size_t i = 0; i < one.positions.size(); ++i) {
    const auto row = static_cast<std::size_t>(one.positions[i] - 1);
    d.targets[row] = one.tokens[row + 1];
    d.weights[row] = 1.0f;
    if (!one.kept.empty()) d.kept_tokens[row] = one.kept[i];
  }
  if (one.shared_prefix > 0) d.prefix_group = 0, d.shared_prefix = one.shared_prefix;
  return d;
}

// The owners of cached pages and of kept forwards: what is decoded is never found by what is prefilled, and training reads what decoding kept.
constexpr std::uint64_t kDecoding = 1, kPrefilling = 2;
}  // namespace

LoadedCase load_case(const std::filesystem::path& file) {
  const DifferenceCase one = read_case(file);
  const Profile& profile = profile_by_name(one.profile);
  if (profile.digest() != one.profile_digest)
    fail(ErrorCode::invalid_argument, "the profile '{}' has digest {} in this program, allowed is {}, with which '{}' was recorded", one.profile,
         profile.digest(), one.profile_digest, file.string());
  instruction_set_by_name(one.isa);
  rank_layout(one.ranks);
  check(KeepForwardSettings{.mode = one.keep_forward});
  const std::string model = checked_folder(file, one.model, one.model_sha256);
  const std::string adapter = one.adapter.empty() ? "" : checked_folder(file, one.adapter, one.adapter_sha256);
  LoadedCase loaded{.one = one, .profile = profile, .reader = ModelReader::open(model, {.mla_norm_eps = one.mla_norm_eps}), .masters = {}, .adapter = {}};
  const Model& read = *loaded.reader->model();
  refuse_value_head(read, "its tokens have no log-probabilities");
  read.require_profile(profile);
  check_fits_model(one, read, file);
  const bool all_train = adapter.empty() && profile.trains_all_weights();
  const LoadedBytes bytes = loaded_bytes(read, profile);
  // Masters in this process and on the trainer's device, a gradient, and the weights, which ranks cut their shares from.
  check_memory(2 * bytes.weights + (all_train ? 3 * bytes.masters : 0), fmt::format("repeating '{}'", file.string()));
  if (!adapter.empty()) loaded.adapter = load_adapter_folder(adapter, read.manifest());
  if (all_train) loaded.masters = loaded.reader->masters();
  return loaded;
}

CaseBench::CaseBench(const LoadedCase& loaded, const ParityPlace& place)
    : loaded_(loaded), runtime_({.kind = place.backend, .isa = place.isa, .threads = place.threads}, loaded.reader->model(), loaded.profile, loaded.length()) {
  if (const KeepForwardSettings keep{.mode = loaded.one.keep_forward}; keeps_over(place.ranks, keep, place.backend))
    kept_ = kept_forwards_of(keep, runtime_, place.page_size);
  const bool declared = loaded.one.shared_prefix > 0;
  const TrainerOptions options{.share_prefixes = declared,
                               .declared_prefixes = declared,
                               .page_size = place.page_size,
                               .kept_forwards = kept_,
                               .kept_owner = kDecoding,
                               .ranks = place.ranks};
  if (!loaded.masters.empty()) {
    trainer_ = std::make_unique<Trainer>(runtime_, loaded.masters, options);
    weights_ = trainer_->weights();
  } else {
    weights_ = loaded.reader->weight_set(runtime_.backend, loaded.profile, loaded.one.weights_version);
    base_ = std::make_shared<FrozenBase>(runtime_, weights_, options);
    if (loaded.adapter) adapter_trainer_ = std::make_unique<AdapterTrainer>(base_, loaded.adapter->layout, loaded.adapter->images, adamw(), kDecoding);
  }
  EngineOptions engine = scoring_options(runtime_, place.ranks, loaded.length() + place.page_size);
  engine.page_size = place.page_size;
  engine.kept_forwards = kept_;
  engine_ = std::make_unique<Engine>(runtime_, weights_, engine);
}

Request CaseBench::request(std::size_t prompt, std::size_t end) const {
  const DifferenceCase& one = loaded_.one;
  const auto at = [&](std::size_t i) { return one.tokens.begin() + static_cast<std::ptrdiff_t>(i); };
  Request asked;
  asked.prompt.assign(at(0), at(prompt));
  asked.given.assign(at(prompt), at(end));
  asked.sampling.temperature = one.temperature;
  asked.sampling.top_p = one.top_p;
  asked.sampling.top_k = one.top_k;
  asked.sampling.min_p = one.min_p;
  asked.sampling.max_tokens = static_cast<std::int32_t>(end - prompt);
  asked.kept_tokens = true;
  if (adapter_trainer_) asked.adapter = adapter_trainer_->weights();
  return asked;
}

Generation CaseBench::said(Request asked) {
  std::vector<Request> requests;
  requests.push_back(std::move(asked));
  Generation answer = std::move(engine_->generate(std::move(requests)).front());
  if (answer.finish == FinishReason::error) fail(ErrorCode::numeric, "{}", answer.error);
  return answer;
}

bool CaseBench::other_kept(std::size_t trained, const KeptTokens& kept) const {
  return loaded_.one.kept.empty() ? kept.cut() : kept != loaded_.one.kept[trained];
}

CaseNumbers CaseBench::sampled() {
  const DifferenceCase& one = loaded_.one;
  const auto first = static_cast<std::size_t>(one.positions.front());
  Request asked = request(first, one.tokens.size());
  asked.prefix_owner = kDecoding;
  asked.keep_forward = kept_ != nullptr;
  const Generation answer = said(std::move(asked));
  CaseNumbers numbers;
  for (std::size_t i = 0; i < one.positions.size(); ++i) {
    const GeneratedToken& token = answer.tokens.at(static_cast<std::size_t>(one.positions[i]) - first);
    numbers.bits.push_back(std::bit_cast<std::uint32_t>(token.sampling_logprob));
    numbers.other_kept_sets += other_kept(i, token.kept);
  }
  return numbers;
}

CaseNumbers CaseBench::prefilled() {
  const DifferenceCase& one = loaded_.one;
  if (one.temperature == 1 && !cuts(one)) {
    const std::shared_ptr<const AdapterWeights> adapter = adapter_trainer_ ? adapter_trainer_->weights() : nullptr;
    return of_rows(engine_score(*engine_, one.tokens, {.kind = ScoreKind::prefill, .adapter = adapter}));
  }
  // Whole pages of the prompt come from those before.
  CaseNumbers numbers;
  for (std::size_t i = 0; i < one.positions.size(); ++i) {
    const auto position = static_cast<std::size_t>(one.positions[i]);
    Request asked = request(position, position + 1);
    asked.prefix_owner = kPrefilling;
    const Generation answer = said(std::move(asked));
    numbers.bits.push_back(std::bit_cast<std::uint32_t>(answer.tokens.at(0).sampling_logprob));
    numbers.other_kept_sets += other_kept(i, answer.tokens[0].kept);
  }
  return numbers;
}

CaseNumbers CaseBench::of_rows(const std::vector<float>& logprobs) const {
  CaseNumbers numbers;
  for (const std::int64_t position : loaded_.one.positions)
    numbers.bits.push_back(std::bit_cast<std::uint32_t>(logprobs.at(static_cast<std::size_t>(position - 1))));
  return numbers;
}

CaseNumbers CaseBench::trained() {
  const std::vector<TrainSequence> data{sequence_of_case(loaded_.one)};
  return of_rows((trainer_ ? trainer_->score(data) : adapter_trainer_ ? adapter_trainer_->score(data) : base_->score(data)).front());
}

CaseNumbers CaseBench::with_a_gradient() {
  const std::vector<TrainSequence> data{sequence_of_case(loaded_.one)};
  const ForwardBackwardResult result = trainer_ ? trainer_->forward_backward(data, {}) : adapter_trainer_->forward_backward(data, {});
  if (trainer_) trainer_->abandon_gradients();
  else adapter_trainer_->abandon_gradients();
  return of_rows(result.logprobs.front());
}

std::int64_t CaseBench::rows_read() const { return (trainer_ ? trainer_->ranks().work() : base_->work()).segment_rows.read; }

}  // namespace lockstep
