#include "runs/sft_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/seconds.h"
#include "checkpoint/run_directory.h"
#include "model/value_head.h"
#include "runs/adam_settings.h"
#include "runs/divergence.h"
#include "runs/held_rates.h"
#include "runs/local_trainer.h"
#include "runs/planned_run.h"
#include "runs/rank_traffic.h"
#include "runs/sft_transcript.h"
#include "runs/training_state.h"
#include "trained/led_model.h"

namespace lockstep {
namespace {

// Settings that a resumed run may change besides those that no run's bits depend on: paths of data are free, contents are not (data_digest).
const std::vector<std::string> kFreeOfSft = {"data", "eval", "eval_share", "eval_every", "patience", "epochs", "export_to"};

// The configuration, completed from the data: a resumed run must arrive at the same one.
Json resolved_config(const SftConfig& config, const SftPlan& plan, const SftInput& input) {
  const SftSource& source = *input.train;
  Json json = config.run.resolved;
  if (json.contains("share_prompts")) json["share_prompts"] = input.declared ? "backward" : "off";  // what was chosen
  write_plan(plan, json);
  if (const std::string digest = source.digest(); !digest.empty()) json["data_digest"] = digest;
  json["format"] = "2";
  return json;
}

// The weighted mean loss of held-out tokens. In pieces, so that it needs no more memory than a step.
double held_out_loss(LocalTrainer& trainer, const std::vector<TrainSequence>& data, std::int64_t batch) {
  double loss = 0, weight = 0;
  for (std::size_t begin = 0; begin < data.size(); begin += static_cast<std::size_t>(batch)) {
    const std::size_t end = std::min(data.size(), begin + static_cast<std::size_t>(batch));
    const std::vector<TrainSequence> piece(data.begin() + static_cast<std::ptrdiff_t>(begin), data.begin() + static_cast<std::ptrdiff_t>(end));
    const std::vector<std::vector<float>> logprobs = trainer.score(piece);
    for (std::size_t s = 0; s < piece.size(); ++s)
      for (std::size_t i = 0; i < piece[s].weights.size(); ++i) {
        if (piece[s].weights[i] == 0) continue;
        loss -= static_cast<double>(piece[s].weights[i]) * static_cast<double>(logprobs[s][i]);
        weight += static_cast<double>(piece[s].weights[i]);
      }
  }
  return weight != 0 ? loss / weight : 0;
}

TrainerOptions options_of(const SftConfig& config) {
  TrainerOptions options;
  options.micro_batch = config.micro_batch;
  options.checkpoint_activations = config.checkpoint_activations;
  options.train_indexer = config.train_indexer && config.trained.rank == 0;
  options.indexer_alone = config.indexer_alone;
  options.optimizer_folder = optimizer_folder(config.optimizer_state, config.run.runs);
  return options;
}

bool trains_jointly(const SftConfig& config) { return config.mtp.depths > 0 && config.mtp.joint; }

// A model is trained jointly with its layer where all of its weights move, ranks add up the same sequences' gradients for both, and its forward is the one
// that drafts are made with.
void check_joint(const SftConfig& config, const OpenedModel& opened) {
  if (!trains_jointly(config)) return;
  const auto refuse = [](const std::string& with, const char* allowed) {
    fail(ErrorCode::unsupported, "mtp-joint is on with {}; allowed is {}", with, allowed);
  };
  if (config.trained.rank > 0) refuse(fmt::format("adapter-rank {}", config.trained.rank), "0: the model's own weights move");
  if (opened.ranks.deals_rows()) refuse(fmt::format("ranks {}", opened.ranks.text()), "rows=shared: the layer's rows are the same on all ep ranks");
  if (config.sparse_from > 0) refuse(fmt::format("sparse-from {}", config.sparse_from), "0: the layer is trained under sparse attention");
  if (config.indexer_alone) refuse("an indexer that is trained alone", "training all weights");
  if (opened.model->manifest().parameter(opened.model->facts().head).tied) refuse("a head that is the input embedding", "a head of its own");
}

std::unique_ptr<LocalTrainer> sft_trainer(OpenedModel& opened, const SftConfig& config, bool declared) {
  if (config.trained.rank > 0 && config.from_scratch)
    fail(ErrorCode::invalid_argument, "adapter-rank is {} with --from-scratch; an adapter needs weights that know something", config.trained.rank);
  TrainedSettings trained = config.trained;
  trained.seed = config.init_seed;
  trained.train_unembed = false;
  TrainerOptions options = options_of(config);
  options.declared_prefixes = declared;
  options.accumulate = trains_jointly(config);
  return std::make_unique<LocalTrainer>(opened, trained, options, std::make_shared<Executor>());
}

// Null: the layer of multi-token prediction is not trained.
std::unique_ptr<LocalMtp> mtp_of(const OpenedModel& opened, const SftConfig& config, LocalTrainer& trainer) {
  if (config.mtp.depths == 0) return nullptr;
  TrainerOptions options = options_of(config);
  options.optimizer = optimizer_family(config.trained);
  return std::make_unique<LocalMtp>(config.mtp, opened, options, MtpInitial{config.init_seed, config.init_deviation}, trainer);
}

// A folder of the run with checkpoints of its own.
RunDirectory best_of(const RunDirectory& run) {
  std::error_code error;
  return RunDirectory::open(run.path(), "best", run.config(), {.resume = std::filesystem::is_directory(run.path() / "best", error), .resume_line = {}});
}

std::string described(const SftConfig& config, const SftPlan& plan, const SftSource& source, std::size_t held_out, std::int64_t parameters, bool declared) {
  const Schedule& s = plan.schedule;
  const std::string data = source.size() == 0
                               ? std::string("an environment's problems")
                               : fmt::format("{} sequences ({} epochs of them, {} held out)", source.size(),
                                             fmt::format("{:.3g}", static_cast<double>(s.steps * plan.batch) / static_cast<double>(source.size())), held_out);
  const std::string what = config.trained.rank > 0 ? fmt::format("an adapter of rank {} over {:.3g} million frozen weights", config.trained.rank,
                                                                 static_cast<double>(parameters) / 1e6)
                                                   : fmt::format("all {:.3g} million weights", static_cast<double>(parameters) / 1e6);
  return fmt::format(
      "{}: {} steps of {} sequences, learning rate {} ({}, {} steps of warm-up); trained: {}; {}", data, s.steps, plan.batch, s.peak, s.kind, s.warmup, what,
      declared ? "sequences of one prompt stay together and share it in the backward too, as checkpoints say by their training digest (--share-prompts off: "
                 "they do not)"
               : "each sequence stands alone in its batch (nothing is packed together, nothing is cut)");
}

std::filesystem::path best_weights(const RunDirectory& run, std::int64_t step) { return run.path() / "best/checkpoints" / checkpoint_name(step); }

// The steps of a supervised run, its evaluations and early stopping.
class SftWork final : public RunWork {
 public:
  SftWork(const SftConfig& config, const SftPlan& plan, const SftInput& input, const OpenedModel& opened, LocalTrainer& trainer, LocalMtp* layer,
          const RunDirectory& run)
      : config_(config), plan_(plan), input_(input), opened_(opened), trainer_(trainer), layer_(layer), run_(run) {
    may_stop_early_ =
        config.patience > 0 && !config.indexer_alone && !(layer && plan.schedule.peak == 0);  // a model that does not move says nothing of its layer
    if (config.hold_rate > 0) held_.emplace(config.hold_rate, input.train->kinds(), config.seed);
    eval_every_ = config.eval_every > 0 ? config.eval_every : std::max<std::int64_t>(1, input.train->size() / plan.batch);
  }
  // Restores the position of an earlier part of the run.
  void go_on(const Json& position) {
    summary_.best_eval = position.value("best_eval", 0.0);
    summary_.best_step = position.value("best_step", std::int64_t{-1});
    worse_ = position.value("worse", std::int64_t{0});
    summary_.stopped_early = position.value("stopped_early", false);
    if (held_ && position.contains("rates")) held_->restore(position["rates"]);
  }
  // Before the first step. Where a run may stop early, the weights that were best so far are kept beside its checkpoints: RUN/best, one checkpoint.
  void begin() {
    if (input_.held_out.empty()) return;
    if (may_stop_early_ && !finished()) best_.emplace(best_of(run_));
    if (step() == 0) summary_.eval_before = evaluate();
  }

  std::int64_t step() const override { return trainer_.step(); }
  bool finished() const override { return step() >= plan_.schedule.steps || summary_.stopped_early; }
  void save(const RunDirectory& run, std::int64_t keep_last) override {
    if (layer_) layer_->save(run, step(), keep_last);
    Json position = {{"next_step", step()},
                     {"seed", config_.seed},
                     {"best_eval", summary_.best_eval},
                     {"best_step", summary_.best_step},
                     {"worse", worse_},
                     {"stopped_early", summary_.stopped_early}};
    if (held_) position["rates"] = held_->rates();
    trainer_.save(run, position, keep_last);
  }
  void finish_save() override { trainer_.checkpoints().finish(); }
  RunStep take_step() override;
  SftSummary& summary() { return summary_; }
  std::int64_t worse() const { return worse_; }

 private:
  double evaluate();
  Json train_layer(const std::vector<TrainSequence>& batch, std::int64_t number);
  const SftConfig& config_;
  const SftPlan& plan_;
  const SftInput& input_;
  const OpenedModel& opened_;
  LocalTrainer& trainer_;
  RankTraffic traffic_{{&trainer_}};
  LocalMtp* const layer_;  // null: not trained
  const RunDirectory& run_;
  bool may_stop_early_ = false;
  std::optional<RunDirectory> best_;
  std::optional<HeldRates> held_;
  SftSummary summary_;
  std::int64_t eval_every_ = 1, worse_ = 0;  // evaluations without a better loss than the best
};

double SftWork::evaluate() {
  const double rate = step() > 0 ? learning_rate(plan_.schedule, step() - 1) : 0.0;
  const double loss = named_divergence({.step = step(), .learning_rate = rate, .max_norm = config_.max_norm, .run = run_.path()}, [&] {
    const double mean = held_out_loss(trainer_, input_.held_out, plan_.batch);
    if (!std::isfinite(mean)) fail(ErrorCode::numeric, "the loss of the held-out sequences is {}", mean);
    return mean;
  });
  summary_.eval_loss = loss;
  if (summary_.best_step < 0 || loss < summary_.best_eval) {
    summary_.best_eval = loss;
    summary_.best_step = step();
    worse_ = 0;
    if (best_ && layer_) layer_->save(*best_, step(), 1);
    if (best_) trainer_.save(*best_, {{"eval_loss", loss}}, 1);
  } else {
    ++worse_;
  }
  return loss;
}

// Under the weights that the model's own gradient was computed with; an empty object where there is nothing to train.
Json SftWork::train_layer(const std::vector<TrainSequence>& batch, std::int64_t number) {
  if (!layer_) return Json::object();
  Schedule schedule = plan_.schedule;
  schedule.peak = config_.mtp.learning_rate;
  AdamParameters adam = adam_parameters(config_, learning_rate(schedule, number));
  adam.max_norm = config_.mtp.max_norm;
  adam.router_bias_rate = config_.mtp.router_bias_rate;
  return layer_->take_step(batch, adam);
}

RunStep SftWork::take_step() {
  const std::int64_t number = step(), steps = plan_.schedule.steps;
  const auto begin = std::chrono::steady_clock::now();
  IndexTraining index;
  index.dense_attention = config_.trained.rank == 0 && number < config_.sparse_from;
  index.index_loss = config_.train_indexer && config_.trained.rank == 0 && opened_.model->has_indexer() && number >= config_.index_from;
  AdamParameters adam = adam_parameters(config_, learning_rate(plan_.schedule, number));
  adam.router_bias_rate = config_.router_bias_rate;
  SftProblems problems;
  if (held_) {
    problems = input_.train->problems_of(number, held_->draw(number, plan_.batch));
    held_->mask(problems);
  } else {
    problems.sequences = input_.train->batch(number, plan_.batch);
  }
  const std::vector<TrainSequence>& batch = problems.sequences;
  const DivergenceSettings divergence{.step = number + 1, .learning_rate = adam.learning_rate, .max_norm = adam.max_norm, .run = run_.path()};
  Json of_layer;
  const auto [result, optim] = named_divergence(divergence, [&] {
    ForwardBackwardResult computed = trainer_.forward_backward(batch, LossOptions{}, index);
    if (!std::isfinite(computed.loss)) fail(ErrorCode::numeric, "the loss is {}", computed.loss);
    of_layer = train_layer(batch, number);
    const OptimResult moved = trainer_.take_step(adam);
    return std::pair(std::move(computed), moved);
  });
  summary_.tokens += result.rows;
  summary_.loss = result.loss;
  summary_.index_loss = result.index_loss;
  RunStep taken;
  if (opened_.tokenizer && config_.transcripts > 0 && (number % config_.transcripts_every == 0 || step() == steps))
    taken.transcripts = sft_transcripts(batch, result, *opened_.tokenizer, step(), config_.transcripts);
  taken.metrics = {{"step", step()},
                   {"loss", result.loss},
                   {"index_loss", result.index_loss},
                   {"gradient_norm", optim.gradient_norm},
                   {"learning_rate", adam.learning_rate},
                   {"dense_attention", index.dense_attention},
                   {"tokens", result.rows},
                   {"trained_tokens", result.scored},
                   {"tokens_per_second", static_cast<double>(result.rows) / seconds_since(begin)}};
  taken.metrics.update(of_layer);
  traffic_.tell(taken.metrics);
  if (held_) {
    held_->measure(problems, result.logprobs);
    const Json rates = held_->rates();
    for (const auto& [kind, rate] : rates.items()) taken.metrics["rate_" + kind] = rate;
  }
  taken.tokens = result.rows;
  if (!input_.held_out.empty() && (step() % eval_every_ == 0 || step() == steps)) {
    taken.metrics["eval_loss"] = evaluate();
    if (may_stop_early_ && worse_ >= config_.patience && step() < steps) summary_.stopped_early = taken.save = true;
  }
  taken.note = fmt::format("loss {:.4f}{}{}{}", result.loss, index.index_loss ? fmt::format(", index {:.4f}", result.index_loss) : "",
                           layer_ ? fmt::format(", drafts {:.4f}", of_layer.at("mtp_loss").get<double>()) : "",
                           summary_.eval_loss ? fmt::format(", held out {:.4f}", *summary_.eval_loss) : "");
  return taken;
}
}  // namespace

SftSummary run_sft(const SftConfig& config, const std::function<SftInput(const OpenedModel&)>& make_input) {
  check_trainable_run(profile_by_name(config.runtime.profile), config.trained);
  const RuntimeSettings settings = settings_with_mtp(config.runtime, config.mtp, config.trained.rank);
  OpenedModel opened = config.from_scratch ? open_untrained_model(settings, config.init_seed, config.init_deviation) : open_model(settings);
  refuse_value_head(*opened.model, "there are no likelihoods of texts to train; lockstep train reward trains it");
  check_joint(config, opened);
  open_beside({.runtime = settings, .untrained = config.from_scratch, .seed = config.init_seed, .deviation = config.init_deviation});
  const SftInput input = make_input(opened);
  const SftSource& source = *input.train;
  const std::int64_t parameters = parameters_of(opened.model->manifest());
  SftPlan plan = plan_sft(config.asked, source.size(), parameters);
  const std::unique_ptr<LocalTrainer> trainer = sft_trainer(opened, config, input.declared);
  const std::unique_ptr<LocalMtp> layer = mtp_of(opened, config, *trainer);

  const auto resolved = [&](const SftPlan& its) { return resolved_config(config, its, input); };
  Run run = open_planned_run(config.run, config.asked, plan, resolved, kFreeOfSft);
  const RunDirectory& directory = run.directory();
  const Json position = begin_or_go_on(run, *trainer);
  if (layer) layer->begin_or_go_on(directory, trainer->step());

  SftWork work(config, plan, input, opened, *trainer, layer.get(), directory);
  work.go_on(position);
  SftSummary& summary = work.summary();
  summary.was_finished = directory.resumed() && work.finished();
  if (summary.was_finished)
    run.say(fmt::format("the run '{}' was {} at step {}: nothing is trained{}", run.path().string(), summary.stopped_early ? "stopped early" : "finished",
                        trainer->step(), summary.stopped_early ? "; --fork NAME begins another from here" : "; --steps with a larger number goes on"));
  else run.say(described(config, plan, source, input.held_out.size(), parameters, input.declared));

  const auto begin = std::chrono::steady_clock::now();
  work.begin();
  summary.interrupted = !run.go(work, {.label = "sft", .steps = plan.schedule.steps, .transcripts = opened.tokenizer && config.transcripts > 0});
  summary.steps = trainer->step();
  summary.seconds = seconds_since(begin);
  if (summary.interrupted) return summary;
  if (summary.stopped_early && !summary.was_finished)
    run.say(fmt::format("stopped after step {}: the loss of the held-out sequences was best after step {} ({:.4f}) and did not fall in {} evaluations since",
                        summary.steps, summary.best_step, summary.best_eval, work.worse()));
  if (const std::filesystem::path weights = best_weights(directory, summary.best_step); summary.stopped_early && std::filesystem::exists(weights)) {
    trainer->begin_from(weights);
    if (layer) layer->begin_from(directory.path() / "best", summary.best_step);
    summary.eval_loss = summary.best_eval;
    run.say(fmt::format("exported are the weights after step {}", summary.best_step));
  } else if (summary.stopped_early) {  // begun by an earlier version, or resumed with another measure
    run.say(fmt::format("'{}' is not there, so exported are the weights after step {}", weights.string(), summary.steps));
  }
  summary.weights_sha256 = trainer->weights_sha256();
  const WeightImages of_layer = layer ? layer->images() : WeightImages();
  if (layer) summary.draft_sha256 = layer->weights_sha256(of_layer);
  summary.exported = export_run(*trainer, directory, config.export_to,
                                {.base = config.runtime.model,
                                 .tokenizer = opened.tokenizer != nullptr,
                                 .dtype = config.export_dtype == "bf16" ? DType::bf16 : DType::f32,
                                 .overwrite = config.overwrite,
                                 .mtp = layer ? &of_layer : nullptr});
  return summary;
}

}  // namespace lockstep
