#include "jobs/sft_job.h"

#include <numeric>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "rl/rollout.h"
#include "rl/trajectory/conversation.h"
#include "rl/trajectory/reference.h"
#include "runs/prompt_packs.h"

namespace lockstep {
namespace {

// What a perfect policy writes at an environment's training problems; problem i of the run is a function of (seed, i). A problem of many turns is a
// sequence a context window, or, as a conversation, one.
class EnvironmentSource final : public SftSource {
 public:
  EnvironmentSource(const SftJob& job, ChatData data)
      : environment_(make_environment(job.environment)),
        data_(std::move(data)),
        seed_(job.config.seed),
        chat_every_(job.chat_share > 0 ? static_cast<std::int64_t>(1 / job.chat_share + 0.5) : 0),
        settings_{.compact_at = job.compact_at} {}

  std::vector<TrainSequence> batch(std::int64_t step, std::int64_t count) const override {
    SftProblems all;
    for (std::int64_t i = step * count; i < (step + 1) * count; ++i) add(all, i, environment_->problem(Split::train, seed_, static_cast<std::uint64_t>(i)));
    return std::move(all.sequences);
  }
  std::vector<std::string> kinds() const override { return environment_->domains(); }
  SftProblems problems_of(std::int64_t step, const std::vector<std::size_t>& kinds) const override {
    SftProblems all;
    const std::uint64_t domains = environment_->domains().size();
    const std::int64_t first = step * std::ssize(kinds);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const std::int64_t number = first + static_cast<std::int64_t>(i);
      add(all, number, environment_->problem(Split::train, seed_, static_cast<std::uint64_t>(number) * domains + kinds[i]));
      all.problems.back().kind = kinds[i];
      weigh_as_one(all, all.problems.back());
    }
    return all;
  }

 private:
  // Problems chat_every_ - 1, 2 chat_every_ - 1 and so on are conversations.
  bool in_chat(std::int64_t number) const { return chat_every_ > 0 && number % chat_every_ == chat_every_ - 1; }
  // A problem weighs 1 in its batch, however many tokens its answer has: a task of short ones would else have little say beside one of long ones.
  static void weigh_as_one(SftProblems& all, const SftProblem& problem) {
    const std::span<TrainSequence> own(all.sequences.data() + problem.first, problem.count);
    float sum = 0;
    for (const TrainSequence& sequence : own) sum = std::accumulate(sequence.weights.begin(), sequence.weights.end(), sum);
    for (TrainSequence& sequence : own)
      for (float& weight : sequence.weights) weight /= sum;
  }
  void add(SftProblems& all, std::int64_t number, const Problem& problem) const {
    SftProblem added{.first = all.sequences.size(), .measured = !in_chat(number)};
    const auto put = [&](const WeightedTokens& tokens) {
      all.sequences.push_back(train_sequence(tokens));
      std::vector<std::size_t>& answers = all.answers.emplace_back();
      for (std::size_t i = 0; i < all.sequences.back().weights.size(); ++i)
        if (all.sequences.back().weights[i] != 0) answers.push_back(i);
    };
    if (in_chat(number)) {
      const ReferenceConversation conversation = reference_conversation(*environment_, problem);
      put(data_.conversation(conversation.messages, conversation.tools, {}));
    } else {
      for (const Chain& chain : reference_rollout(*environment_, problem, *data_.tokenizer(), data_.completion_end(), settings_).chains)
        put(weighted_tokens(chain));
    }
    added.count = all.sequences.size() - added.first;
    all.problems.push_back(added);
  }

  std::unique_ptr<Environment> environment_;
  ChatData data_;
  std::uint64_t seed_;
  std::int64_t chat_every_;
  PlaySettings settings_;
};

// From 20 sequences on a tenth of the data is more useful for evaluation than for training.
double eval_share_of(const SftJob& s, std::size_t sequences) {
  if (s.eval_share) return *s.eval_share;
  return s.eval.empty() && sequences >= 20 ? 0.1 : 0.0;
}

// The data grouped by prompt, if that is requested, or if it pays and nothing that is trained needs whole sequences; else null.
std::unique_ptr<SftSource> packs_that_pay(const SftJob& s, const std::vector<TrainSequence>& sequences, const OpenedModel& opened) {
  const SftConfig& c = s.config;
  const SharePrompts asked = share_prompts_by_name(c.share_prompts);
  if (asked == SharePrompts::forward) fail(ErrorCode::invalid_argument, "share_prompts is 'forward', allowed in train sft are auto, off, backward");
  if (asked == SharePrompts::off) return nullptr;
  const bool indexer = c.train_indexer && c.trained.rank == 0 && opened.model->has_indexer();
  if (indexer || c.mtp.depths > 0) {
    if (asked == SharePrompts::automatic) return nullptr;
    fail(ErrorCode::invalid_argument, "share_prompts is 'backward', and {} learns from whole sequences; allowed is off, or {}",
         indexer ? "the indexer" : "the layer of multi-token prediction", indexer ? "train_indexer off" : "mtp_depths 0");
  }
  std::unique_ptr<SftSource> packed = packed_source(sequences, c.seed);
  const SftPlan plan = plan_sft(c.asked, packed->size(), parameters_of(opened.model->manifest()));
  const bool decides = asked == SharePrompts::automatic;
  if (!decides && c.micro_batch == 0) return packed;  // there is nothing to count
  const PackedRows rows = packed_rows(*packed, plan.batch, c.share_prompts_from);
  if (decides && rows.share() < kLeastSavedRows) return nullptr;
  check_packs(rows, c.micro_batch);
  return packed;
}

SftInput read_sft_input(const SftJob& s, const OpenedModel& opened) {
  const Model& model = *opened.model;
  const ChatData reader = open_chat_data(s.config.runtime.model, opened.tokenizer, s.end_token, s.chat_template, s.reading);
  const auto read = [&](const std::string& file) {
    SftData data = read_training_file(file, reader, model.facts().vocabulary, opened.runtime->max_positions);
    if (data.untrained > 0)
      log_warning("lines of which no token is learned are left out", {{"data", file}, {"lines", data.untrained}, {"learned", data.sequences.size()}});
    return std::move(data.sequences);
  };
  SftInput input;
  if (!s.eval.empty()) input.held_out = read(s.eval);
  if (!s.environment.empty()) {
    if (s.config.share_prompts == "backward")
      fail(ErrorCode::invalid_argument, "share_prompts is 'backward', and the problems of an environment have one answer each; allowed is auto or off");
    if (!opened.tokenizer) fail(ErrorCode::invalid_argument, "an environment needs a tokenizer.json, and '{}' has none", s.config.runtime.model);
    input.train = std::make_unique<EnvironmentSource>(s, reader);
    return input;
  }
  std::vector<TrainSequence> sequences = read(s.data);
  if (const double share = eval_share_of(s, sequences.size()); share > 0) input.held_out = hold_out(sequences, share, s.config.seed);
  if (input.train = packs_that_pay(s, sequences, opened); input.train) input.declared = true;
  else input.train = shuffled_source(std::move(sequences), s.config.seed);
  return input;
}
}  // namespace

SftSummary run_sft_job(const SftJob& job) {
  check_compact_at(job.compact_at, !job.environment.empty() && make_environment(job.environment)->many_turns(), job.environment);
  return run_sft(job.config, [&](const OpenedModel& opened) { return read_sft_input(job, opened); });
}

}  // namespace lockstep
