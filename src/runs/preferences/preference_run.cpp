#include "runs/preferences/preference_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/seconds.h"
#include "checkpoint/json_file.h"
#include "checkpoint/run_directory.h"
#include "model/value_head.h"
#include "runs/adam_settings.h"
#include "runs/divergence.h"
#include "runs/local_trainer.h"
#include "runs/planned_run.h"
#include "runs/preferences/preference_step.h"
#include "runs/rank_traffic.h"
#include "runs/sft_data.h"
#include "runs/training_state.h"
#include "train/declared_prompts.h"
#include "train/kept_passes.h"
#include "trained/led_model.h"

namespace lockstep {
namespace {

const std::vector<std::string> kFreeOfPreference = {"data", "eval", "eval_share", "eval_every", "epochs", "export_to"};
constexpr std::size_t kMostReferenceBytes = std::size_t{1} << 31;

// The configuration, completed from the data: a resumed run must arrive at the same one.
Json preference_config(const PreferenceConfig& config, const SftPlan& plan, const PreferenceInput& input) {
  Json json = config.run.resolved;
  write_plan(plan, json);
  json["data_digest"] = preference_digest(input.train);
  return json;
}

// References of a run: scored once, and read from then on.
class References {
 public:
  References(const RunDirectory& run, const PreferenceInput& input) : path_(run.path() / "reference.json"), input_(input) {}
  // Of the items in `train`, and in `held_out`.
  std::vector<ReferenceScores> train, held_out;

  bool read() {
    std::error_code error;
    if (!std::filesystem::exists(path_, error)) return false;
    with_context(fmt::format("reading '{}'", path_.string()), [&] {
      const Json json = read_json_file(path_, kMostReferenceBytes);
      train = of(json, "train", input_.train);
      held_out = of(json, "held_out", input_.held_out);
    });
    return true;
  }
  void write() const {
    const Json json{{"train", written(train)},
                    {"train_digest", preference_digest(input_.train)},
                    {"held_out", written(held_out)},
                    {"held_out_digest", preference_digest(input_.held_out)}};
    write_file_atomic(path_, json.dump() + "\n");
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  static Json written(const std::vector<ReferenceScores>& scores) {
    Json json = Json::array();
    for (const ReferenceScores& s : scores) json.push_back({s.chosen, s.rejected});
    return json;
  }
  static std::vector<ReferenceScores> of(const Json& json, const std::string& name, const std::vector<PreferenceItem>& items) {
    const auto field = [&](const std::string& key) { return json.contains(key) ? json.at(key) : Json(); };
    const Json list = field(name);
    if (field(name + "_digest") != Json(preference_digest(items)) || !list.is_array() || list.size() != items.size())
      fail(ErrorCode::corrupt_file, "its {} scores are of other data, allowed are those that the run was begun with", name);
    std::vector<ReferenceScores> scores;
    for (const Json& one : list) {
      if (!one.is_array() || one.size() != 2 || !one[0].is_number() || !one[1].is_number())
        fail(ErrorCode::corrupt_file, "a score is {}, allowed are two numbers", one.dump().substr(0, 60));
      scores.push_back({one[0].get<double>(), one[1].get<double>()});
    }
    return scores;
  }
  std::filesystem::path path_;
  const PreferenceInput& input_;
};

class PreferenceWork final : public RunWork {
 public:
  PreferenceWork(const PreferenceConfig& config, const SftPlan& plan, const PreferenceInput& input, LocalTrainer& trainer, KeptPasses* kept,
                 const RunDirectory& run)
      : config_(config),
        plan_(plan),
        input_(input),
        trainer_(trainer),
        kept_(kept),
        run_(run),
        references_(run, input),
        row_(preference_row(config.preference.loss)) {
    eval_every_ = config.eval_every > 0 ? config.eval_every : std::max<std::int64_t>(1, std::ssize(input.train) / plan.batch);
  }
  void go_on(const Json& position) {
    if (position.contains("eval_before")) summary_.eval_before = figures_of(position["eval_before"]);
  }
  // Before the first step here: references and an evaluation.
  void begin() {
    if (finished()) return;
    if (row_.reference && !references_.read()) {
      if (step() > 0)
        fail(ErrorCode::not_found,
             "'{}' is not there, so what the run's weights were compared with is not known any more; --fork NAME begins another run from here",
             references_.path().string());
      const auto begin = std::chrono::steady_clock::now();
      references_.train = scored(input_.train);
      references_.held_out = scored(input_.held_out);
      references_.write();
      summary_.reference_seconds = seconds_since(begin);
    }
    if (step() == 0 && !input_.held_out.empty()) summary_.eval_before = evaluate();
  }

  std::int64_t step() const override { return trainer_.step(); }
  bool finished() const override { return step() >= plan_.schedule.steps; }
  void save(const RunDirectory& run, std::int64_t keep_last) override {
    Json position{{"next_step", step()}, {"seed", config_.seed}};
    if (summary_.eval_before) position["eval_before"] = json_of(*summary_.eval_before);
    trainer_.save(run, position, keep_last);
  }
  void finish_save() override { trainer_.checkpoints().finish(); }
  RunStep take_step() override;
  PreferenceSummary& summary() { return summary_; }
  std::int64_t segment_rows() const { return segment_rows_; }  // that steps computed in forwards, each once a segment of the model

 private:
  static Json json_of(const PreferenceFigures& f) {
    return {{"loss", f.loss}, {"accuracy", f.accuracy}, {"chosen", f.chosen_reward}, {"rejected", f.rejected_reward}};
  }
  static PreferenceFigures figures_of(const Json& json) {
    PreferenceFigures f;
    f.loss = json.value("loss", 0.0), f.accuracy = json.value("accuracy", 0.0);
    f.chosen_reward = json.value("chosen", 0.0), f.rejected_reward = json.value("rejected", 0.0);
    return f;
  }
  // Forward only: nothing is kept for a backward.
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data) {
    if (data.empty()) return {};
    const KeptPasses::Pause pause(kept_);  // its thread computes while this one waits
    return trainer_.score(data);
  }
  template <class F>
  void each_batch(std::size_t items, const F& work) {
    for (std::size_t begin = 0; begin < items; begin += static_cast<std::size_t>(plan_.batch)) {
      std::vector<std::size_t> places(std::min(items - begin, static_cast<std::size_t>(plan_.batch)));
      std::iota(places.begin(), places.end(), begin);
      work(places);
    }
  }
  std::vector<ReferenceScores> scored(const std::vector<PreferenceItem>& items);
  PreferenceFigures evaluate();

  const PreferenceConfig& config_;
  const SftPlan& plan_;
  const PreferenceInput& input_;
  LocalTrainer& trainer_;
  KeptPasses* kept_;  // null: none are kept
  RankTraffic traffic_{{&trainer_}};
  const RunDirectory& run_;
  References references_;
  const PreferenceRow& row_;
  PreferenceSummary summary_;
  std::int64_t eval_every_ = 1, segment_rows_ = 0;
};

std::vector<ReferenceScores> PreferenceWork::scored(const std::vector<PreferenceItem>& items) {
  std::vector<ReferenceScores> scores;
  each_batch(items.size(), [&](const std::vector<std::size_t>& places) {
    std::vector<TrainSequence> data;
    for (const std::size_t place : places) data.insert(data.end(), {items[place].chosen, items[place].rejected});
    const auto logprobs = score(data);
    for (std::size_t i = 0; i < data.size(); i += 2)
      scores.push_back({answer_score(data[i], logprobs[i], 0).logprob, answer_score(data[i + 1], logprobs[i + 1], 0).logprob});
  });
  return scores;
}

// Over all held-out items at once, scored in pieces, so that it needs no more memory than a step.
PreferenceFigures PreferenceWork::evaluate() {
  std::vector<std::size_t> all(input_.held_out.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  PreferenceBatch batch = preference_batch(input_.held_out, all, references_.held_out, row_.pairs);
  const auto in_pieces = [&](const std::vector<TrainSequence>& data) {
    std::vector<std::vector<float>> logprobs;
    each_batch(data.size(), [&](const std::vector<std::size_t>& places) {
      std::vector<TrainSequence> piece;
      for (const std::size_t place : places) piece.push_back(data[place]);
      for (std::vector<float>& row : score(piece)) logprobs.push_back(std::move(row));
    });
    return logprobs;
  };
  const auto trained = in_pieces(batch.trained), mismatched = in_pieces(batch.mismatched);
  return preference_figures(config_.preference, batch, trained, mismatched, false);
}

RunStep PreferenceWork::take_step() {
  const std::int64_t number = step();
  const auto begin = std::chrono::steady_clock::now();
  const AdamParameters adam = adam_parameters(config_, learning_rate(plan_.schedule, number));
  PreferenceBatch batch =
      preference_batch(input_.train, shuffled_places(input_.train.size(), config_.seed, number, plan_.batch), references_.train, row_.pairs);
  if (config_.share_prompts == SharePrompts::backward) row_.pairs ? declare_pairs(batch.trained) : declare_prompts(batch.trained);
  const DivergenceSettings divergence{.step = number + 1, .learning_rate = adam.learning_rate, .max_norm = adam.max_norm, .run = run_.path()};
  const std::int64_t rows_before = work_of(trainer_).segment_rows.made;
  PreferenceFigures figures;
  const auto [rows, norm] = named_divergence(divergence, [&] {
    const auto mismatched = score(batch.mismatched);
    const auto logprobs = trainer_.score(batch.trained);  // kept for the backward below
    figures = preference_figures(config_.preference, batch, logprobs, mismatched, true);
    if (!std::isfinite(figures.loss)) fail(ErrorCode::numeric, "the loss is {}", figures.loss);
    LossOptions sum;  // of -weight * log-probability: its gradient is the loss's
    sum.averaging = LossAveraging::sum;
    const ForwardBackwardResult computed = trainer_.forward_backward(batch.trained, sum);
    return std::pair(computed.rows, trainer_.take_step(adam).gradient_norm);
  });
  segment_rows_ += work_of(trainer_).segment_rows.made - rows_before;
  summary_.tokens += rows;
  summary_.last = figures;
  RunStep taken;
  taken.metrics = {{"step", step()},
                   {"loss", figures.loss},
                   {"accuracy", figures.accuracy},
                   {"margin", figures.margin()},
                   {"chosen_reward", figures.chosen_reward},
                   {"rejected_reward", figures.rejected_reward},
                   {"chosen_logprob", figures.chosen_logprob},
                   {"rejected_logprob", figures.rejected_logprob},
                   {"gradient_norm", norm},
                   {"learning_rate", adam.learning_rate},
                   {"tokens", rows},
                   {"seconds", seconds_since(begin)}};
  if (!row_.pairs) taken.metrics["shift"] = figures.shift;
  traffic_.tell(taken.metrics);
  if (!input_.held_out.empty() && (step() % eval_every_ == 0 || finished())) {
    const PreferenceFigures held = evaluate();
    summary_.eval_now = held;
    taken.metrics["eval_loss"] = held.loss;
    taken.metrics["eval_accuracy"] = held.accuracy;
    taken.metrics["eval_margin"] = held.margin();
  }
  taken.tokens = rows;
  taken.note = fmt::format("loss {:.4f}, accuracy {:.2f}, margin {:.3g}", figures.loss, figures.accuracy, figures.margin());
  return taken;
}

}  // namespace

SftPlan plan_preference(const SftAsked& asked, std::int64_t items, std::int64_t parameters) {
  SftAsked own = asked;
  if (own.epochs == 0 && own.steps == 0) own.epochs = 1;
  if (!own.learning_rate) own.learning_rate = std::stod(fmt::format("{:.1e}", default_learning_rate(parameters, asked) / 10));
  return plan_sft(own, items, parameters);
}

PreferenceSummary run_preference(const PreferenceConfig& config, const std::function<PreferenceInput(const OpenedModel&)>& make_input) {
  check(config.preference);
  if (config.share_prompts == SharePrompts::automatic)
    fail(ErrorCode::invalid_argument, "share_prompts is 'auto', allowed in train preference are off, forward, backward");
  check_run_name(config.run.name);
  check_trainable_run(profile_by_name(config.runtime.profile), config.trained);
  const PreferenceRow& row = preference_row(config.preference.loss);
  if (row.pairs && config.share_prompts == SharePrompts::backward && config.micro_batch == 1)
    fail(ErrorCode::invalid_argument,
         "micro_batch is 1, and a pair that shares its prompt in the backward is two answers in one; allowed is 2 or more, 0, or share_prompts forward");
  OpenedModel opened = row.values ? open_value_model(config.runtime) : open_model(config.runtime);
  if (!row.values) refuse_value_head(*opened.model, fmt::format("the loss {} has no log-probabilities to compare", row.name));
  PreferenceInput input = make_input(opened);
  open_beside({.runtime = config.runtime, .values = row.values});
  if (row.values)
    for (std::vector<PreferenceItem>* items : {&input.train, &input.held_out})
      for (PreferenceItem& item : *items)
        for (TrainSequence* answer : {&item.chosen, &item.rejected}) *answer = reward_sequence(*answer, opened.runtime->max_positions);
  const std::int64_t parameters = parameters_of(opened.model->manifest());
  SftPlan plan = plan_preference(config.asked, std::ssize(input.train), parameters);

  TrainerOptions options;
  options.micro_batch = config.micro_batch;
  options.checkpoint_activations = config.checkpoint_activations;
  options.share_prefixes = config.share_prompts != SharePrompts::off;
  options.declared_prefixes = config.share_prompts == SharePrompts::backward;
  options.optimizer_folder = optimizer_folder(config.optimizer_state, config.run.runs);
  options.kept = kept_by_steps(config.micro_batch, opened.ranks.size() == 1);
  TrainedSettings trained = config.trained;
  trained.seed = config.init_seed;
  trained.train_unembed = row.values;  // a head of zeros learns with the rest
  LocalTrainer trainer(opened, trained, options, std::make_shared<Executor>());

  const auto resolved = [&](const SftPlan& its) { return preference_config(config, its, input); };
  Run run = open_planned_run(config.run, config.asked, plan, resolved, kFreeOfPreference);
  const RunDirectory& directory = run.directory();
  const Json position = begin_or_go_on(run, trainer);

  PreferenceWork work(config, plan, input, trainer, options.kept.get(), directory);
  work.go_on(position);
  PreferenceSummary& summary = work.summary();
  summary.was_finished = directory.resumed() && work.finished();
  if (summary.was_finished)
    run.say(fmt::format("the run '{}' was finished at step {}: nothing is trained; --steps with a larger number goes on", run.path().string(), trainer.step()));
  else
    run.say(fmt::format("{} {}, {} held out: {} steps of {}, loss {}, learning rate {} ({}, {} steps of warm-up); trained: {}", input.train.size(),
                        preference_row(config.preference.loss).pairs ? "pairs" : "answers", input.held_out.size(), plan.schedule.steps, plan.batch,
                        config.preference.loss, plan.schedule.peak, plan.schedule.kind, plan.schedule.warmup,
                        trained.rank > 0 ? fmt::format("an adapter of rank {}", trained.rank)
                                         : fmt::format("all {:.3g} million weights", static_cast<double>(parameters) / 1e6)));

  const auto begin = std::chrono::steady_clock::now();
  work.begin();
  summary.interrupted = !run.go(work, {.label = config.preference.loss, .steps = plan.schedule.steps, .transcripts = false});
  summary.steps = trainer.step();
  summary.rows = work.segment_rows() / opened.model->segments();
  summary.seconds = seconds_since(begin);
  if (summary.interrupted) return summary;
  summary.weights_sha256 = trainer.weights_sha256();
  summary.exported = export_run(trainer, directory, config.export_to,
                                {.base = config.runtime.model,
                                 .tokenizer = opened.tokenizer != nullptr,
                                 .dtype = config.export_dtype == "bf16" ? DType::bf16 : DType::f32,
                                 .merged = row.values,
                                 .overwrite = config.overwrite});
  return summary;
}

}  // namespace lockstep
